"""Exact searches of batches among few vectors, by matrix products."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._forest import top_k
from .search import compare_slots
from .state import COSINE, EUCLIDEAN, METRIC, DenseState, used_vectors

_PRODUCTS_AT_ONCE = 1 << 18  # number of products computed together, which fit into the processor's cache
_FEWEST_ROWS = 16  # the smallest number of rows that share a product, except at the end of a span
_SPARE = 8  # number of candidates beyond the number of results
_MOST_PRODUCT = 1e37  # larger products could overflow
_SHORTEST = 1e-15  # products of shorter vectors could lose digits

Search = Callable[[int, int], None]


def search_by_products(
    state: DenseState, held: Any, Q: np.ndarray, slots: np.ndarray, scores: np.ndarray, ids: np.ndarray
) -> Search:
    """Return a function that writes the best vectors among those in ``slots`` for a span of rows, exactly.

    Products of float32 choose candidates, whose exact scores decide. A row is compared with all vectors if rounding
    errors could have hidden one of the best.
    """
    metric, k = state.totals[METRIC], ids.shape[1]
    vectors = used_vectors(state)
    vectors = vectors if len(slots) == len(vectors) else vectors[slots]
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    lengths = np.sqrt(squares)
    longest, n_kept = lengths.max(), min(k + _SPARE, len(slots))
    is_short = bool(((lengths < _SHORTEST) & (lengths > 0.0)).any())
    divisors = np.where(lengths < _SHORTEST, 1.0, lengths).astype(np.float32)
    rounding = 1.1 * (vectors.shape[1] + 8) * 2.0**-24

    def search(first: int, stop: int) -> None:
        step = max(_FEWEST_ROWS, _PRODUCTS_AT_ONCE // len(slots))
        for start in range(first, stop, step):
            rows = slice(start, min(start + step, stop))
            found = Q[rows] @ vectors.T
            of_rows = np.sqrt(np.einsum("ij,ij->i", Q[rows], Q[rows], dtype=np.float64))
            errors = rounding * of_rows * longest
            if metric == COSINE:
                found /= divisors
                errors = rounding * of_rows
            elif metric == EUCLIDEAN:
                found -= (0.5 * squares).astype(np.float32)
                errors += rounding * longest**2
            columns, best = top_k(found, n_kept)
            is_sure = ((of_rows + longest) * longest < _MOST_PRODUCT) & (not is_short)
            if n_kept < len(slots):
                is_sure &= best[:, -1] < best[:, k - 1] - 2.0 * errors - 1e-30
            candidates = slots[columns]
            compare_slots(held, Q, rows.start, rows.stop, candidates, scores, ids)
            for row in rows.start + np.flatnonzero(~is_sure):
                compare_slots(held, Q, row, row + 1, slots[None], scores, ids)

    return search
