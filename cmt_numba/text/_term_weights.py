"""Weights of terms, learned from which of some documents a query was for.

A query and its candidate documents have a score each, a sum over the terms that both have. The weights are those under
which the softmax of the scores best explains the rewards, and which a prior finds likely. The prior is normal in two
parts: all weights may follow a curve over the idf of terms, which is learned from few queries; and each term may leave
it. So the weights of rare terms, of which few rewards tell anything, move with those of terms like them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.optimize import minimize

_CURVE_DEVIATION = 0.5  # of the coefficients of the curve, as a share of a weight of 1
_TERM_DEVIATION = 0.3  # of a single term's weight from the curve; from 0.1 to 1 errors hardly change
_SCALE_DEVIATION = 100.0  # of the factor between scores and logits, which is unknown
_MOST_STEPS = 200


class Comparisons(NamedTuple):
    """Queries with candidate documents, ``k`` each, of which the rewards differ."""

    products: Any  # CSR (n * k, terms): for each query and document the product of their entries
    rewards: np.ndarray  # float64 (n, k), the highest of each row 1; 0 where there is no document
    there: np.ndarray  # bool (n, k)


def comparisons_of(queries: Any, keys: Any, ids: np.ndarray, rewards: np.ndarray) -> Comparisons:
    """Return what can be learned from: the rows whose rewards differ."""
    there = ids >= 0
    highest = np.where(there, rewards, 0.0).max(axis=1)
    lowest = np.where(there, rewards, np.inf).min(axis=1)
    rows = np.flatnonzero(highest > lowest)
    ids, there, k = ids[rows], there[rows], ids.shape[1]
    asked = queries[np.repeat(rows, k)]
    found = keys[np.where(there, ids, 0).ravel()]
    products = scipy.sparse.csr_array(asked.multiply(found), dtype=np.float64)
    return Comparisons(products, np.where(there, rewards[rows], 0.0) / highest[rows, None], there)


def learn_weights(comparisons: Comparisons, idf: np.ndarray) -> np.ndarray:
    """Return the most likely factor of each term's weight: float64, shape (n_terms,).

    Parameters
    ----------
    comparisons : Comparisons
        The training data.
    idf : ndarray of float64, shape (n_terms,)
        The inverse document frequency of each term.
    """
    products = comparisons.products
    seen = np.unique(products.indices)
    if seen.size == 0:
        return np.ones(idf.size)
    curve = _curve_over(idf, idf[seen])
    of_curve = np.column_stack([products.sum(axis=1), products @ curve])
    of_terms = products[:, seen]
    unlearned = of_curve[:, :1]  # the scores as they are
    logits_per_score = _most_likely(comparisons, unlearned, None, np.ones(1), np.array([_SCALE_DEVIATION]))[0]
    if logits_per_score <= 0.0:
        return np.ones(idf.size)  # the scores say nothing of the rewards, so neither would their parts
    n_shared = of_curve.shape[1]
    deviations = np.full(n_shared + seen.size, _TERM_DEVIATION * logits_per_score)
    deviations[:n_shared] = _CURVE_DEVIATION * logits_per_score
    deviations[0] = _SCALE_DEVIATION
    start = np.zeros(deviations.size)
    start[0] = logits_per_score
    found = _most_likely(comparisons, of_curve, of_terms, start, deviations)
    if found[0] <= 0.0:
        return np.ones(idf.size)
    learned = found[0] + curve @ found[1:n_shared]
    learned[seen] += found[n_shared:]
    return np.asarray(np.maximum(learned / found[0], 0.0))


def _curve_over(idf: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return polynomials of degree 1 to 3 in the idf, one a column, of about the same size.

    The idf is standardised by that of the terms seen. Beyond what was seen the curve is constant.
    """
    z = (np.clip(idf, seen.min(), seen.max()) - seen.mean()) / max(float(seen.std()), 1e-9)
    return np.column_stack([z, (z**2 - 1.0) / 2.0, (z**3 - 3.0 * z) / 4.0])


def _most_likely(
    comparisons: Comparisons, of_curve: np.ndarray, of_terms: Any, start: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """Return the coefficients of the highest posterior, which is concave but for rows with several rewards."""
    found = minimize(
        lambda values: _negative_log_posterior(comparisons, of_curve, of_terms, values, deviations),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _MOST_STEPS},
    )
    return np.asarray(found.x)


def _negative_log_posterior(
    comparisons: Comparisons, of_curve: np.ndarray, of_terms: Any, values: np.ndarray, deviations: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the negative logarithm of likelihood times prior, and its gradient.

    The likelihood of a row is the softmax of its logits, summed over its documents in proportion to their rewards.
    ``values`` are the coefficients of the columns of ``of_curve``, and those of ``of_terms`` if that is not None.
    """
    rewards, there, n_shared = comparisons.rewards, comparisons.there, of_curve.shape[1]
    logits = of_curve @ values[:n_shared]
    if of_terms is not None:
        logits = logits + of_terms @ values[n_shared:]
    logits = np.where(there, logits.reshape(there.shape), -np.inf)
    shifted = logits - logits.max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    # Where a rewarded document is hopelessly behind, its odds are 0: compare in logarithms.
    best = np.where(rewards > 0.0, shifted, -np.inf).max(axis=1, keepdims=True)
    right = rewards * np.exp(np.where(rewards > 0.0, shifted - best, -np.inf))
    total, rewarded = odds.sum(axis=1, keepdims=True), right.sum(axis=1, keepdims=True)
    off = values / deviations
    loss = float(np.sum(np.log(total) - np.log(rewarded) - best) + 0.5 * off @ off)
    slopes = (odds / total - right / rewarded).ravel()
    parts = [slopes @ of_curve] + ([] if of_terms is None else [of_terms.T @ slopes])
    return loss, np.concatenate(parts) + off / deviations
