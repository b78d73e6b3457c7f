"""What trees are like, and how well they find what they hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._concurrency.workers import spans
from .._forest.rows import as_matrix
from .._forest.state import NONE
from .._validation import check_integer, check_memory_ids, check_rows
from ..tree import ContextualMemoryTree
from ._plain import as_plain

_COSINES_AT_ONCE = 2**23  # of exact search: 32 MB
_AS_GOOD = 1e-5  # cosines that differ by less are equal, up to rounding


class TreeProfile(NamedTuple):
    """The shape of a forest.

    Attributes
    ----------
    n_memories, n_trees : int
        What it holds, and in how many trees.
    depth : int
        The most internal nodes between a root and a leaf.
    balance : float
        ``log2(leaves) / mean depth of a leaf``, the mean over trees: 1 for trees that are perfectly balanced (or a
        single leaf), towards 0 for those that are lists.
    nbytes : int
        Bytes allocated.
    leaf_depths : ndarray of int64, shape (depth + 1,)
        How many leaves of all trees lie at each depth.
    leaf_sizes : ndarray of int64, shape (largest leaf + 1,)
        How many leaves of all trees hold so many memories.
    """

    n_memories: int
    n_trees: int
    depth: int
    balance: float
    nbytes: int
    leaf_depths: np.ndarray
    leaf_sizes: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain Python for JSON."""
        plain: dict[str, Any] = as_plain(self)
        return plain


def profile(tree: Any) -> TreeProfile:
    """Return the shape of the trees of a :class:`ContextualMemoryTree`, or of an estimator that has learned.

    Raises
    ------
    TypeError
        If ``tree`` is neither.
    """
    tree = _forest_of(tree)
    leaves = tree.leaves()
    n_leaves = np.bincount(leaves.tree)
    mean_depth = np.bincount(leaves.tree, weights=leaves.depth) / n_leaves
    balance = np.where(mean_depth > 0.0, np.log2(n_leaves) / np.where(mean_depth > 0.0, mean_depth, 1.0), 1.0)
    return TreeProfile(
        n_memories=tree.n_memories,
        n_trees=int(n_leaves.size),
        depth=int(leaves.depth.max()),
        balance=float(balance.mean()),
        nbytes=tree.nbytes,
        leaf_depths=np.bincount(leaves.depth),
        leaf_sizes=np.bincount(leaves.size),
    )


def self_consistency(tree: Any, X: Any, ids: Any, n_probes: int | None = None) -> float:
    """Return the share of memories that find themselves: asked for by their own key, they are the best answer.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The memory.
    X : array-like or sparse matrix, shape (n, n_features)
        Keys as they were inserted. Of equal keys only one can find itself.
    ids : array-like of int, shape (n,)
        The ids that they were given.
    n_probes : int, optional
        Leaves to search, as in :meth:`ContextualMemoryTree.query`.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    found = _forest_of(tree).query(X, n_probes=n_probes).ids[:, 0]
    return float(np.mean(found == check_memory_ids(ids, found.size)))


def recall_against_exact(
    tree: Any, keys: Any, queries: Any, k: int = 10, n_probes: int | None = None, *, ids: Any = None
) -> float:
    """Return the share of the ``k`` nearest memories by the cosine that a tree finds.

    A memory found counts if its cosine is as high as that of the ``k``-th of exact search, so it does not matter which
    of equally good ones is found. A scorer that has learned orders memories otherwise, which costs recall here.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The memory.
    keys : array-like or sparse matrix, shape (n_keys, n_features)
        The keys of all memories stored.
    queries : array-like or sparse matrix, shape (n, n_features)
        What to ask for.
    k : int, default 10
        Memories wanted.
    n_probes : int, optional
        Leaves to search, as in :meth:`ContextualMemoryTree.query`.
    ids : array-like of int, shape (n_keys,), optional
        The ids of the keys, each of them another one; by default 0, 1, 2, ..., as the first insert gives them.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used, or the tree finds a memory that is not among ``ids``.
    """
    k = check_integer("k", k, 1)
    found = _forest_of(tree).query(queries, k, n_probes).ids
    rows = check_rows(keys)
    keys, queries = as_matrix(rows), as_matrix(check_rows(queries, sparse=rows.sparse, n_features=rows.n_features))
    n_keys = rows.n_rows
    places = _places_of(found, np.arange(n_keys) if ids is None else check_memory_ids(ids, n_keys))
    k = min(k, n_keys)
    n_found = 0
    for first, stop in spans(queries.shape[0], max(1, _COSINES_AT_ONCE // n_keys)):
        cosines = queries[first:stop] @ keys.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        least = np.partition(cosines, n_keys - k, axis=1)[:, [n_keys - k]]
        place = places[first:stop]
        good = (np.take_along_axis(cosines, place, axis=1) >= least - _AS_GOOD) & (place != NONE)
        n_found += int(good.sum())
    return float(n_found / (k * queries.shape[0]))


def _places_of(found: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return where among ``ids`` each id found stands, NONE where none was found."""
    order = np.argsort(ids, kind="stable")
    place = order[np.minimum(np.searchsorted(ids[order], found), ids.size - 1)]
    there = found != NONE
    if not np.array_equal(ids[place][there], found[there]):
        raise ValueError("keys must be those of all memories stored: the tree has found another one")
    return np.where(there, place, NONE)


def _forest_of(tree: Any) -> ContextualMemoryTree:
    forest = tree if isinstance(tree, ContextualMemoryTree) else getattr(tree, "forest_", None)
    if not isinstance(forest, ContextualMemoryTree):
        raise TypeError(f"tree must be a ContextualMemoryTree or an estimator that has learned, not {tree!r}")
    return forest
