"""How good answers are: what the papers on memory trees and on very many labels report.

These are the measures that scikit-learn has not, or not for rankings: answers are lists of the best few labels or ids,
because a matrix with a score for every label of every row would not fit into memory where labels are many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ._forest.state import NONE
from ._validation import check_choice, check_real, check_wanted, unmasked

F1_AVERAGES = ("micro", "samples")


def entropy_reduction(accuracy: float, constant_accuracy: float) -> float:
    """Return how many bits a predictor is better than a constant one (section 4.1 of the paper).

    Parameters
    ----------
    accuracy : float in [0, 1]
        Share of right answers.
    constant_accuracy : float in [0, 1]
        Share of right answers of the constant predictor, as of :func:`constant_accuracy`.

    Returns
    -------
    float
        ``log2(accuracy) - log2(constant_accuracy)``; minus infinity where no answer is right, and infinity where only
        the constant predictor is never right.

    Raises
    ------
    TypeError, ValueError
        If an argument is no number from 0 to 1.

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
    """Return the accuracy of always answering the most frequent class.

    Parameters
    ----------
    y : array-like, shape (n,)
        Classes of any type that sorts.

    Raises
    ------
    ValueError
        If there are none.
    """
    y = np.asarray(unmasked("y", y))
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y must be one class for each of at least one row, not of shape {y.shape}")
    return float(np.unique(y, return_counts=True)[1].max() / y.size)


def hamming(Y: Any, predicted: Any) -> float:
    """Return how many labels of a row are wrong on average (the paper's Hamming loss: a number, not a share).

    Parameters
    ----------
    Y, predicted : array-like or sparse matrix, shape (n, n_labels)
        Not 0 where a row has a label, and where it was said to have it.

    Raises
    ------
    TypeError, ValueError
        If these are not two matrices of numbers of the same shape, of at least one row.
    """
    Y, predicted = _same_shape(Y, predicted)
    return float((Y.nnz + predicted.nnz - 2 * Y.multiply(predicted).nnz) / Y.shape[0])


def f1(Y: Any, predicted: Any, average: str = "micro") -> float:
    """Return the harmonic mean of precision and recall, like scikit-learn's ``f1_score`` with ``zero_division=1``.

    Parameters
    ----------
    Y, predicted : array-like or sparse matrix, shape (n, n_labels)
        Not 0 where a row has a label, and where it was said to have it.
    average : {"micro", "samples"}, default "micro"
        Whether all labels of all rows count the same, or each row: the mean of the F1 of its two sets of labels, which
        is 1 where both are empty.

    Raises
    ------
    TypeError, ValueError
        If these are not two matrices of numbers of the same shape, of at least one row.
    """
    check_choice("average", average, F1_AVERAGES)
    Y, predicted = _same_shape(Y, predicted)
    common = Y.multiply(predicted).sum(axis=1)
    either = Y.sum(axis=1) + predicted.sum(axis=1)
    if average == "micro":
        common, either = common.sum(keepdims=True), either.sum(keepdims=True)
    return float(np.mean(np.where(either > 0, 2.0 * common / np.maximum(either, 1), 1.0)))


def precision_at(Y: Any, ranked: Any, k: int, *, inverse_propensities: Any = None) -> float:
    """Return how many of the first ``k`` labels of a ranking are right, as a share of ``k``.

    Parameters
    ----------
    Y : array-like or sparse matrix, shape (n, n_labels)
        Not 0 where a row has a label.
    ranked : array-like of int, shape (n, at least k)
        Labels (columns of ``Y``) by row, the best first, -1 for none.
    k : int
        So many of them count: at most 1,000,000.
    inverse_propensities : array-like, shape (n_labels,), optional
        What each label is worth, as of :func:`inverse_propensities`: the propensity-scored precision of Jain et al.
        (2016), as a share of the highest that a ranking could have.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    return _gain_at(Y, ranked, np.ones(check_wanted("k", k, 0)), inverse_propensities, by_row=False)


def ndcg_at(Y: Any, ranked: Any, k: int, *, inverse_propensities: Any = None) -> float:
    """Return the normalised discounted cumulative gain of the first ``k`` labels of a ranking.

    A right label in place ``i = 1, 2, ...`` counts ``1 / log2(i + 1)``.

    Parameters
    ----------
    Y : array-like or sparse matrix, shape (n, n_labels)
        Not 0 where a row has a label.
    ranked : array-like of int, shape (n, at least k)
        Labels (columns of ``Y``) by row, the best first, -1 for none.
    k : int
        So many of them count: at most 1,000,000.
    inverse_propensities : array-like, shape (n_labels,), optional
        What each label is worth, as of :func:`inverse_propensities`: the propensity-scored gain of Jain et al. (2016),
        all rows' as a share of the highest that rankings could have.

    Returns
    -------
    float
        In [0, 1]: the mean over rows of each row's gain as a share of the highest that it could have, 0 for a row
        without labels.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    discounts = 1.0 / np.log2(np.arange(2, check_wanted("k", k, 0) + 2))
    return _gain_at(Y, ranked, discounts, inverse_propensities, by_row=True)


def inverse_propensities(Y: Any, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Return what finding a label is worth where rare labels are often missing from the truth (Jain et al., 2016).

    Their model of extreme classification data: a label of ``m`` of ``n`` training rows is noted down, where it belongs,
    with the probability ``1 / (1 + c (m + b)^-a)``, ``c = (log n - 1) (b + 1)^a``.

    Parameters
    ----------
    Y : array-like or sparse matrix, shape (n, n_labels)
        Not 0 where a training row has a label.
    a, b : float
        Depend on the data; the authors give 0.55 and 1.5 for most, 0.5 and 0.4 for Wikipedia, 0.6 and 2.6 for Amazon.

    Returns
    -------
    ndarray of float64, shape (n_labels,)
        The inverses of these probabilities, at least 1.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    a, b = check_real("a", a, 0.0, 1e6), check_real("b", b, 0.0, 1e6, above=True)
    Y = indicators("Y", Y)
    c = max(0.0, np.log(Y.shape[0]) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (np.bincount(Y.indices, minlength=Y.shape[1]) + b) ** -a)


def recall_at(found: Any, exact: Any, k: int) -> float:
    """Return the share of the ``k`` memories that exact search finds which were found.

    Parameters
    ----------
    found, exact : array-like of int, shape (n, at least k)
        Ids by row, the best first, -1 for none.
    k : int
        So many of them count: at most 1,000,000.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used, or exact search has found nothing.
    """
    k = check_wanted("k", k, 0)
    found, exact = _first_columns("found", found, k), _first_columns("exact", exact, k)
    if found.shape != exact.shape:
        raise ValueError(
            f"found and exact must have the same number of rows, not {found.shape[0]} and {exact.shape[0]}"
        )
    n_there = np.count_nonzero(exact != NONE)
    if n_there == 0:
        raise ValueError("exact must hold at least one id")
    n_found = sum(np.count_nonzero((found == column[:, None]).any(axis=1) & (column != NONE)) for column in exact.T)
    return float(n_found / n_there)


def indicators(name: str, Y: Any) -> scipy.sparse.csr_array:
    """Return a matrix of labels as a checked CSR array of int64 ones, its indices sorted.

    Raises
    ------
    TypeError, ValueError
        If it is no matrix of numbers of at least one row.
    """
    unmasked(name, Y)
    try:
        lists = scipy.sparse.csr_array(Y if scipy.sparse.issparse(Y) else np.asarray(Y))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an indicator matrix of labels: {error}") from error
    if lists.ndim != 2 or lists.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an indicator matrix of labels: numbers in two dimensions")
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
        raise ValueError(f"predicted must have the shape {Y.shape} of Y, not {predicted.shape}")
    return Y, predicted


def _first_columns(name: str, ids: Any, k: int) -> np.ndarray:
    ids = np.asarray(unmasked(name, ids))
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, not {ids.dtype}")
    if ids.ndim != 2 or ids.shape[1] < k:
        raise ValueError(f"{name} must have two dimensions and at least {k} columns, not shape {ids.shape}")
    first: np.ndarray = ids[:, :k]
    return first


def _gain_at(Y: Any, ranked: Any, discounts: np.ndarray, worths: Any, *, by_row: bool) -> float:
    """Return the discounted worth of the right labels of rankings, as a share of the highest possible.

    Without ``worths`` each label is worth 1, and the highest possible is that of the row's labels, ``by_row``, or that
    of as many labels as there are discounts.
    """
    Y, ranked = indicators("Y", Y), _first_columns("ranked", ranked, discounts.size)
    if ranked.shape[0] != Y.shape[0]:
        raise ValueError(f"ranked must have one row for each of the {Y.shape[0]} rows of Y, not {ranked.shape[0]}")
    if ranked.size and not NONE <= ranked.min() <= ranked.max() < Y.shape[1]:
        raise ValueError(f"ranked must hold columns of Y, 0 to {Y.shape[1] - 1}, and -1 for none")
    worth_of = np.ones(Y.shape[1]) if worths is None else _worths(worths, Y.shape[1])
    if Y.shape[1] == 0:
        return 0.0  # there is no label to be right about
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
        raise ValueError(f"inverse_propensities must be one number of at least 0 for each of the {n_labels} labels")
    return values


def _contains(Y: scipy.sparse.csr_array, labels: np.ndarray) -> np.ndarray:
    """Return where ``labels``, shape (n, k), are among those of their row: bool, shape (n, k)."""
    width = np.int64(Y.shape[1])
    own = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * width + Y.indices
    asked = np.arange(Y.shape[0], dtype=np.int64)[:, None] * width + labels
    found: np.ndarray = np.isin(asked, own) & (labels != NONE)
    return found


def _best_gains(Y: scipy.sparse.csr_array, worth_of: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """Return the gain of each row's labels in the best order: float64, shape (n,)."""
    row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    worth = worth_of[Y.indices]
    worth = worth[np.lexsort((-worth, row))]
    place = np.arange(row.size) - np.repeat(Y.indptr[:-1], np.diff(Y.indptr))
    counted = place < discounts.size
    gains = worth[counted] * discounts[place[counted]]
    best: np.ndarray = np.bincount(row[counted], weights=gains, minlength=Y.shape[0])
    return best
