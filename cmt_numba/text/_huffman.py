"""Huffman trees of classes: frequent classes are near the root, so that little is learned for a text on average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def huffman_tree(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tree in which a class drawn by its count has the least mean depth (Huffman, 1952).

    Parameters
    ----------
    counts : ndarray of int64, shape (n_classes,)
        At least one.

    Returns
    -------
    parents : ndarray of int32, shape (2 * n_classes - 1,)
        The parent of each class and then of each inner node; -1 for the last, which is the root.
    children : ndarray of int32, shape (n_classes - 1, 2)
        Of each inner node.
    """
    n = counts.size
    leaves = np.argsort(counts, kind="stable").tolist()
    weights = [*counts.tolist(), *[0] * (n - 1)]
    parents = np.full(2 * n - 1, -1, np.int32)
    children = np.zeros((n - 1, 2), np.int32)
    leaf, inner = 0, n  # inner nodes are made in the order of their weights
    for node in range(n, 2 * n - 1):
        pair = []
        for _ in range(2):
            if leaf < n and (inner == node or weights[leaves[leaf]] <= weights[inner]):
                pair.append(leaves[leaf])
                leaf += 1
            else:
                pair.append(inner)
                inner += 1
        weights[node] = weights[pair[0]] + weights[pair[1]]
        children[node - n] = pair
        parents[pair] = node
    return parents, children


def levels(children: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the inner nodes of each level of a tree, from the root, as rows of ``children``."""
    n_classes = len(children) + 1
    level = np.array([len(children) - 1] if len(children) else [], np.int64)
    while level.size:
        yield level
        below = children[level].reshape(-1)
        level = below[below >= n_classes].astype(np.int64) - n_classes
