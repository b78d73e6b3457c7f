"""Shape of trees."""

from typing import Any, NamedTuple

import numpy as np

from ..tree import ContextualMemoryTree
from ._tasks import to_json


class TreeProfile(NamedTuple):
    """The shape of a forest."""

    n_memories: int
    """Number of memories."""
    n_trees: int
    """Number of trees."""
    depth: int
    """Maximum number of internal nodes between a root and a leaf."""
    balance: float
    """``log2(leaves) / mean depth of a leaf``, averaged over trees. It is 1 for perfectly balanced trees and single
    leaves, and close to 0 for degenerate trees."""
    nbytes: int
    """Allocated memory in bytes."""
    leaf_depths: np.ndarray
    """Number of leaves at each depth, over all trees (int64, shape (depth + 1,))."""
    leaf_sizes: np.ndarray
    """Number of leaves with each number of memories, over all trees (int64, shape (largest leaf + 1,))."""

    def as_dict(self) -> dict[str, Any]:
        """Return the profile as JSON-compatible Python objects."""
        return to_json(self)


def profile(tree: ContextualMemoryTree) -> TreeProfile:
    """Return the shape of the trees of a :class:`ContextualMemoryTree`."""
    if not isinstance(tree, ContextualMemoryTree):
        raise TypeError(f"tree must be a ContextualMemoryTree, got {tree!r}")
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
