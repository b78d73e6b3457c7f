"""Term weights, learned from the rewards that documents received for queries.

The score of a document is a sum over the terms that the document shares with the query. Learning maximises the
likelihood of the rewards under the softmax of the scores, times a normal prior. A term's weight is the value of a curve
over the idf plus a deviation. A few queries suffice to learn the curve, so even rare terms get useful weights.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.optimize import minimize

# Standard deviations of the prior. Weights are 1 before learning.
_CURVE_DEVIATION = 0.5  # of the curve's coefficients
_TERM_DEVIATION = 0.3  # of a term's weight around the curve; values from 0.1 to 1 have similar error rates
_SCALE_DEVIATION = 100.0  # of the unknown factor that turns scores into logits
_MOST_STEPS = 200


class Comparisons(NamedTuple):
    """``n`` queries with ``k`` candidate documents each. The rewards of a query's documents differ."""

    products: Any  # CSR (n * k, n_terms): elementwise product of a query and one of its documents
    rewards: np.ndarray  # float64 (n, k), scaled to a maximum of 1 for each query; 0 for missing documents
    there: np.ndarray  # bool (n, k), false for missing documents


def comparisons_of(queries: Any, keys: Any, ids: np.ndarray, rewards: np.ndarray) -> Comparisons:
    """Multiply queries by their documents. Queries whose rewards are all equal are omitted."""
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
    """Return the most probable weight of each term: float64, shape (n_terms,)."""
    products = comparisons.products
    seen = np.unique(products.indices)
    if seen.size == 0:
        return np.ones(idf.size)
    curve = _curve_over(idf, idf[seen])
    of_curve = np.column_stack([products.sum(axis=1), products @ curve])
    of_terms = products[:, seen]
    unlearned = of_curve[:, :1]  # the scores with all weights 1
    logits_per_score = _most_likely(comparisons, unlearned, None, np.ones(1), np.array([_SCALE_DEVIATION]))[0]
    if logits_per_score <= 0.0:
        return np.ones(idf.size)  # the scores do not predict the rewards
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
    """Return scaled Hermite polynomials of degree 1 to 3 of the idf: float, shape (n_terms, 3).

    The idf is standardised by the mean and the deviation of ``seen``, and clipped to the range of ``seen``.
    """
    z = (np.clip(idf, seen.min(), seen.max()) - seen.mean()) / max(float(seen.std()), 1e-9)
    return np.column_stack([z, (z**2 - 1.0) / 2.0, (z**3 - 3.0 * z) / 4.0])


def _most_likely(
    comparisons: Comparisons, of_curve: np.ndarray, of_terms: Any, start: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    found = minimize(  # convex if each query has one rewarded document
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
    """Return the negative log-posterior and its gradient.

    The likelihood of a query is the sum of its documents' softmax probabilities, weighted by their rewards. ``values``
    has a coefficient for each column of ``of_curve``, then one for each column of ``of_terms``, which may be None.
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
