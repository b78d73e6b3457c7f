"""Weights of terms, learned from rewards of documents for queries.

The score of a document for a query is a sum over their common terms. The learned weights maximise the likelihood of the
rewards under the softmax of the scores, times a prior. The prior is normal and has two parts: a curve over the idf of
terms, learned from few queries, and a deviation of each term from it. So the weights of rare terms follow those of
similar terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.optimize import minimize

_CURVE_DEVIATION = 0.5  # prior deviation of the curve's coefficients, as a share of a weight of 1
_TERM_DEVIATION = 0.3  # prior deviation of a term's weight from the curve; from 0.1 to 1 errors hardly change
_SCALE_DEVIATION = 100.0  # prior deviation of the factor between scores and logits, which is unknown
_MOST_STEPS = 200


class Comparisons(NamedTuple):
    """Queries with ``k`` candidate documents each, whose rewards differ."""

    products: Any  # CSR (n * k, terms): for each query and document the product of their entries
    rewards: np.ndarray  # float64 (n, k), at most 1 in each row; 0 where there is no document
    there: np.ndarray  # bool (n, k)


def comparisons_of(queries: Any, keys: Any, ids: np.ndarray, rewards: np.ndarray) -> Comparisons:
    """Return the rows whose rewards differ, which are the only ones to learn from."""
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
        return np.ones(idf.size)  # the scores do not predict the rewards, so neither would their parts
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

    The idf is standardised by that of the terms seen. Outside their range the curve is constant.
    """
    z = (np.clip(idf, seen.min(), seen.max()) - seen.mean()) / max(float(seen.std()), 1e-9)
    return np.column_stack([z, (z**2 - 1.0) / 2.0, (z**3 - 3.0 * z) / 4.0])


def _most_likely(
    comparisons: Comparisons, of_curve: np.ndarray, of_terms: Any, start: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """Return the coefficients with the highest posterior. It is concave unless rows have several rewards."""
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
    # The odds of a rewarded document with a very low score underflow to 0: compare logarithms.
    best = np.where(rewards > 0.0, shifted, -np.inf).max(axis=1, keepdims=True)
    right = rewards * np.exp(np.where(rewards > 0.0, shifted - best, -np.inf))
    total, rewarded = odds.sum(axis=1, keepdims=True), right.sum(axis=1, keepdims=True)
    off = values / deviations
    loss = float(np.sum(np.log(total) - np.log(rewarded) - best) + 0.5 * off @ off)
    slopes = (odds / total - right / rewarded).ravel()
    parts = [slopes @ of_curve] + ([] if of_terms is None else [of_terms.T @ slopes])
    return loss, np.concatenate(parts) + off / deviations
