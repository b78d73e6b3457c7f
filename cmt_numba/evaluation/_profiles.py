"""Shape and recall of trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._change import spans
from .._forest import NONE, as_matrix
from .._validation import check_integer, check_memory_ids, check_rows
from ..tree import ContextualMemoryTree
from ._json import to_json

_COSINES_AT_ONCE = 2**23  # block size of exact search: 32 MB
_AS_GOOD = 1e-5  # smaller differences of cosines are rounding errors


class TreeProfile(NamedTuple):
    """The shape of a forest.

    Attributes
    ----------
    n_memories, n_trees : int
        Number of memories, and number of trees.
    depth : int
        Maximum number of internal nodes between a root and a leaf.
    balance : float
        ``log2(leaves) / mean depth of a leaf``, averaged over trees. It is 1 for perfectly balanced trees and single
        leaves, and close to 0 for degenerate trees.
    nbytes : int
        Allocated memory in bytes.
    leaf_depths : ndarray of int64, shape (depth + 1,)
        Number of leaves at each depth, over all trees.
    leaf_sizes : ndarray of int64, shape (largest leaf + 1,)
        Number of leaves with each number of memories, over all trees.
    """

    n_memories: int
    n_trees: int
    depth: int
    balance: float
    nbytes: int
    leaf_depths: np.ndarray
    leaf_sizes: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """Return the profile as JSON-compatible Python objects."""
        plain: dict[str, Any] = to_json(self)
        return plain


def profile(tree: Any) -> TreeProfile:
    """Return the shape of the trees of a :class:`ContextualMemoryTree` or a fitted estimator."""
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
    """Return the fraction of memories that are the best result for a query with their own key.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The memory.
    X : array-like or sparse matrix, shape (n, n_features)
        Keys as they were inserted. If keys are equal, only one of them can be the best result.
    ids : array-like of int, shape (n,)
        Ids of the memories with these keys.
    n_probes : int, optional
        Number of leaves to search, as in :meth:`ContextualMemoryTree.query`.
    """
    found = _forest_of(tree).query(X, n_probes=n_probes).ids[:, 0]
    return float(np.mean(found == check_memory_ids(ids, found.size)))


def recall_against_exact(
    tree: Any, keys: Any, queries: Any, k: int = 10, n_probes: int | None = None, *, ids: Any = None
) -> float:
    """Return the fraction of the ``k`` nearest memories by cosine similarity that a tree finds.

    A result is correct if its cosine is at least the cosine of the ``k``-th result of exact search, so ties do not
    matter. A trained scorer ranks memories differently, which lowers this recall.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The memory.
    keys : array-like or sparse matrix, shape (n_keys, n_features)
        The keys of all stored memories.
    queries : array-like or sparse matrix, shape (n, n_features)
        The queries.
    k : int, default 10
        Number of memories per query.
    n_probes : int, optional
        Number of leaves to search, as in :meth:`ContextualMemoryTree.query`.
    ids : array-like of int, shape (n_keys,), optional
        Distinct ids of the keys. By default 0, 1, 2, ..., as assigned by the first insert.
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
    """Return the position in ``ids`` of each id in ``found``, or NONE for a missing id."""
    order = np.argsort(ids, kind="stable")
    place = order[np.minimum(np.searchsorted(ids[order], found), ids.size - 1)]
    there = found != NONE
    if not np.array_equal(ids[place][there], found[there]):
        raise ValueError(
            "keys must contain the keys of all stored memories, but the tree returned a memory whose key is missing"
        )
    return np.where(there, place, NONE)


def _forest_of(tree: Any) -> ContextualMemoryTree:
    forest = tree if isinstance(tree, ContextualMemoryTree) else getattr(tree, "forest_", None)
    if not isinstance(forest, ContextualMemoryTree):
        raise TypeError(f"tree must be a ContextualMemoryTree or a fitted estimator, got {tree!r}")
    return forest
