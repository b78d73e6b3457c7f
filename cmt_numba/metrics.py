"""Evaluation measures from the papers on memory trees and extreme classification.

A ranking contains only the best labels or ids of each row. With many labels, a matrix of all scores would not fit in
memory.
"""

from typing import Any

import numpy as np
import scipy.sparse

from ._kernels import NONE
from ._validation import check_choice, check_entries, check_real, check_wanted, label_array, unmasked

F1_AVERAGES = ("micro", "samples")


def entropy_reduction(accuracy: float, constant_accuracy: float) -> float:
    """Return ``log2(accuracy) - log2(constant_accuracy)``: the entropy reduction of a predictor, in bits.

    It is relative to a constant predictor (paper, section 4.1; see :func:`constant_accuracy`), minus infinity if
    ``accuracy`` is 0, and infinity if only ``constant_accuracy`` is 0.

    Examples
    --------
    >>> entropy_reduction(0.5, 0.001953125)
    8.0
    """
    accuracy = check_real("accuracy", accuracy, 0.0, 1.0)
    constant = check_real("constant_accuracy", constant_accuracy, 0.0, 1.0)
    if accuracy == 0.0:
        return -np.inf
    return float(np.log2(accuracy) - np.log2(constant)) if constant > 0.0 else np.inf


def constant_accuracy(y: Any) -> float:
    """Return the accuracy of always predicting the most frequent of the classes ``y``."""
    y = label_array("y", y)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y must have one class per row and at least one row, got shape {y.shape}")
    return float(np.unique(y, return_counts=True)[1].max() / y.size)


def hamming(Y: Any, predicted: Any) -> float:
    """Return the mean number of wrong labels per row, which the paper calls Hamming loss.

    Unlike scikit-learn's ``hamming_loss``, the result is not divided by the number of labels. ``Y`` and ``predicted``
    are indicator matrices whose nonzero entries are labels.
    """
    Y, predicted = _same_shape(Y, predicted)
    return float((Y.nnz + predicted.nnz - 2 * Y.multiply(predicted).nnz) / Y.shape[0])


def f1(Y: Any, predicted: Any, average: str = "micro") -> float:
    """Return the harmonic mean of precision and recall, like scikit-learn's ``f1_score`` with ``zero_division=1``.

    ``Y`` and ``predicted`` are indicator matrices of labels. With ``average="micro"``, F1 is computed from the total
    counts over all rows and labels. With ``"samples"``, it is the mean of the F1 of each row, which is 1 for a row with
    neither true nor predicted labels.
    """
    check_choice("average", average, F1_AVERAGES)
    Y, predicted = _same_shape(Y, predicted)
    common = Y.multiply(predicted).sum(axis=1)
    either = Y.sum(axis=1) + predicted.sum(axis=1)
    if average == "micro":
        common, either = common.sum(keepdims=True), either.sum(keepdims=True)
    return float(np.mean(np.where(either > 0, 2.0 * common / np.maximum(either, 1), 1.0)))


def precision_at(Y: Any, ranked: Any, k: int, *, inverse_propensities: Any = None) -> float:
    """Return the fraction of the first ``k`` labels of a ranking that are correct.

    Parameters
    ----------
    Y : array-like or sparse matrix, shape (n, n_labels)
        Indicator matrix of the true labels. Nonzero entries are labels.
    ranked : array-like of int, shape (n, at least k)
        Labels (columns of ``Y``) for each row, best first, padded with -1.
    k : int
        Number of labels of each row to evaluate, at most 1,000,000.
    inverse_propensities : array-like, shape (n_labels,), optional
        The weight of each label, see :func:`inverse_propensities`. The result is then the propensity-scored precision
        of Jain et al. (2016), divided by that of the best possible rankings.
    """
    return _gain_at(Y, ranked, np.ones(check_wanted("k", k, 0)), inverse_propensities, by_row=False)


def ndcg_at(Y: Any, ranked: Any, k: int, *, inverse_propensities: Any = None) -> float:
    """Return the normalised discounted cumulative gain of the first ``k`` labels of a ranking, in [0, 1].

    A correct label at rank ``i = 1, 2, ...`` has the gain ``1 / log2(i + 1)``. The result is the mean of the rows'
    gains, each divided by the gain of the row's best possible ranking. A row without labels counts as 0. The arguments
    are those of :func:`precision_at`. With ``inverse_propensities``, the result is the propensity-scored gain of Jain
    et al. (2016): the total gain of all rows, divided by that of the best possible rankings.
    """
    discounts = 1.0 / np.log2(np.arange(2, check_wanted("k", k, 0) + 2))
    return _gain_at(Y, ranked, discounts, inverse_propensities, by_row=True)


def inverse_propensities(Y: Any, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Return label weights that correct for missing rare labels in the ground truth (Jain et al., 2016).

    In the authors' model, a correct label that occurs in ``m`` of ``n`` training rows is observed with the probability
    (propensity) ``1 / (1 + c (m + b)^-a)``, where ``c = (log n - 1) (b + 1)^a``. The authors use 0.5 and 0.4 as ``a``
    and ``b`` for Wikipedia, 0.6 and 2.6 for Amazon, and 0.55 and 1.5 for most other data. ``Y`` is the indicator matrix
    of the labels of the training rows.
    """
    a, b = check_real("a", a, 0.0, 1e6), check_real("b", b, 0.0, 1e6, above=True)
    Y = indicators("Y", Y)
    c = max(0.0, np.log(Y.shape[0]) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (np.bincount(Y.indices, minlength=Y.shape[1]) + b) ** -a)


def recall_at(found: Any, exact: Any, k: int) -> float:
    """Return the recall: the fraction of the exact best ``k`` memories that were found.

    ``found`` and ``exact`` are the ids for each row from the evaluated search and from an exact search, best first,
    padded with -1.
    """
    k = check_wanted("k", k, 0)
    found, exact = _first_columns("found", found, k), _first_columns("exact", exact, k)
    if found.shape != exact.shape:
        raise ValueError(
            f"found and exact must have the same number of rows, got {found.shape[0]} and {exact.shape[0]}"
        )
    n_there = np.count_nonzero(exact != NONE)
    if n_there == 0:
        raise ValueError("exact must contain at least one id")
    n_found = sum(np.count_nonzero((found == column[:, None]).any(axis=1) & (column != NONE)) for column in exact.T)
    return float(n_found / n_there)


def indicators(name: str, Y: Any) -> scipy.sparse.csr_array:
    """Convert an indicator matrix to a CSR array of int64 ones with sorted indices."""
    unmasked(name, Y)
    try:
        Y = Y if scipy.sparse.issparse(Y) else np.asarray(Y)
        lists = scipy.sparse.csr_array(Y) if Y.ndim == 2 else None
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an indicator matrix of labels: {error}") from error
    if lists is None or lists.dtype.kind not in "fiub":
        found = f"{Y.dtype} of shape {Y.shape}"
        raise ValueError(f"{name} must be a two-dimensional indicator matrix of numbers, got {found}")
    if lists.shape[0] == 0:
        raise ValueError(f"{name} must have at least one row")
    lists = lists.astype(np.bool_).astype(np.int64)
    lists.sum_duplicates()
    lists.eliminate_zeros()
    lists.data[:] = 1
    return lists


def _same_shape(Y: Any, predicted: Any) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    Y, predicted = indicators("Y", Y), indicators("predicted", predicted)
    if Y.shape != predicted.shape:
        raise ValueError(f"predicted must have shape {Y.shape} like Y, got {predicted.shape}")
    return Y, predicted


def _first_columns(name: str, ids: Any, k: int) -> np.ndarray:
    ids = np.asarray(unmasked(name, ids))
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {ids.dtype}")
    if ids.ndim != 2 or ids.shape[1] < k:
        raise ValueError(f"{name} must have two dimensions and at least {k} columns, got shape {ids.shape}")
    return ids[:, :k]


def _gain_at(Y: Any, ranked: Any, discounts: np.ndarray, worths: Any, *, by_row: bool) -> float:
    """Return the discounted gain of the correct labels of rankings, divided by the best possible gain.

    Without ``worths``, each label has the weight 1, and the best possible gain of a row is the sum of all discounts or,
    if ``by_row``, the gain of ranking its own labels first.
    """
    Y, ranked = indicators("Y", Y), _first_columns("ranked", ranked, discounts.size)
    check_entries("ranked", ranked.shape[0], Y.shape[0], "rows of Y")
    if ranked.size and not NONE <= ranked.min() <= ranked.max() < Y.shape[1]:
        raise ValueError(f"ranked must contain columns of Y, from 0 to {Y.shape[1] - 1}, or -1 for no label")
    worth_of = np.ones(Y.shape[1]) if worths is None else _worths(worths, Y.shape[1])
    if Y.shape[1] == 0:
        return 0.0
    right = _contains(Y, ranked)
    gains = (np.where(right, worth_of[ranked], 0.0) * discounts).sum(axis=1)
    if worths is None and not by_row:
        return float(gains.mean() / discounts.sum())
    best = _best_gains(Y, worth_of, discounts)
    if worths is None:
        return float(np.mean(gains / np.where(best > 0.0, best, 1.0)))
    return float(gains.sum() / best.sum()) if best.sum() > 0.0 else 0.0


def _worths(worths: Any, n_labels: int) -> np.ndarray:
    values = np.asarray(unmasked("inverse_propensities", worths), dtype=np.float64)
    if values.shape != (n_labels,) or not np.all(values >= 0.0):
        raise ValueError(f"inverse_propensities must have one non-negative number for each of the {n_labels} labels")
    return values


def _contains(Y: scipy.sparse.csr_array, labels: np.ndarray) -> np.ndarray:
    """Return whether ``labels[i, j]`` is a label of row ``i``: bool, shape (n, k)."""
    width = np.int64(Y.shape[1])
    own = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * width + Y.indices
    asked = np.arange(Y.shape[0], dtype=np.int64)[:, None] * width + labels
    return np.isin(asked, own) & (labels != NONE)


def _best_gains(Y: scipy.sparse.csr_array, worth_of: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    worth = worth_of[Y.indices]
    worth = worth[np.lexsort((-worth, row))]
    place = np.arange(row.size) - np.repeat(Y.indptr[:-1], np.diff(Y.indptr))
    counted = place < discounts.size
    gains = worth[counted] * discounts[place[counted]]
    return np.bincount(row[counted], weights=gains, minlength=Y.shape[0])
