"""Compare a tree's keys and results with exact search in float64."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import EVERY_LEAF
from internals import forest_of

from cmt_numba import ContextualMemoryTree

WIDTH = 8
ROWS = np.random.default_rng(0).integers(-3, 4, (30, WIDTH)).astype(np.float64)
LARGEST = float(np.finfo(np.float32).max)


def with_mask(mask: bool) -> np.ma.MaskedArray:
    masked = np.ma.array(ROWS, mask=False)
    masked[3, 4] = np.ma.masked if mask else masked[3, 4]
    return masked


def pandas_frame(**options: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS, **options)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


def unit(rows: Any) -> np.ndarray:
    """Return rows scaled to length 1, in float64."""
    rows = np.asarray(rows, np.float64)
    lengths = np.sqrt(np.sum(np.square(rows), axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1.0)


def stored(tree: ContextualMemoryTree) -> np.ndarray:
    """Return the stored keys of a tree in the order of their slots."""
    state = forest_of(tree).allocated()
    if not state.parameters.sparse:
        return state.keys.values[: len(tree) * tree.n_features].reshape(len(tree), -1)
    rows = np.zeros((len(tree), tree.n_features))
    for slot, (a, b) in enumerate(state.keys.spans[: len(tree)]):
        rows[slot, state.keys.indices[a:b]] = state.keys.values[a:b]
    return rows


def check_keys(tree: ContextualMemoryTree, X: Any, expected: Any, *, rtol: float = 1e-6) -> None:
    """Insert rows into a tree, and compare its keys and results with exact search in float64."""
    expected = unit(expected)
    first = len(tree)
    ids = tree.insert(X)
    tree.check_invariants()
    np.testing.assert_allclose(stored(tree)[first:], expected, rtol=rtol, atol=1e-7)
    hits = tree.query(X, k=len(tree), n_probes=EVERY_LEAF)
    assert np.all(np.sort(hits.ids) == np.sort(tree.ids))
    exact = expected @ unit(stored(tree)).T
    np.testing.assert_allclose(hits.scores, -np.sort(-exact), atol=1e-5)
    np.testing.assert_allclose(hits.scores, np.take_along_axis(exact, hits.ids, axis=1), atol=1e-5)
    assert np.all(np.isin(ids, hits.ids))


def trees(width: int = WIDTH) -> list[ContextualMemoryTree]:
    """Return trees that store dense and sparse keys."""
    made = []
    for first in (np.eye(1, width), scipy.sparse.csr_array(np.eye(1, width))):
        tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
        tree.insert(first)
        made.append(tree)
    return made
