"""Prediction of a forest's memory use from the number and the width of its keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._engine import insert_rows
from ._forest import (
    CODE_MARKS,
    LEAF,
    MOST_FEATURES,
    MOST_MEMORIES,
    N_COUNTERS,
    NODE,
    SMALLEST_TABLE_BITS,
    SPARE,
    WEIGHT_CELL,
    Rows,
    leaf_limit,
    levels,
    slot_table_size,
)
from ._jit import as_python
from ._validation import check_integer, check_real, check_rows
from .tree import OPTIONS, ContextualMemoryTree

_leaf_limit = as_python(leaf_limit)

_ROOM = (1.0 + SPARE) / 2  # mean ratio of allocated to used nodes, leaves and router tables after a large insert

# Measured constants: how evenly trees divide memories, and how similar the memories below a node are.
_SPREAD = 0.26  # standard deviation of leaf sizes at one depth, in square roots of the mean size
_EARLY = 0.65  # shift of the split probability in standard deviations, because leaves may have shrunk since they split
_TABLE_SPREAD = 0.1  # standard deviation of the logarithm of the number of a router's features at one depth
_LIKENESS = 0.85  # number of a router's features, divided by the number of features in equally many random keys
_FINER = 0.12  # increase of this ratio's exponent per doubling of the memories, because groups become finer

_EXACT_RANKS = 1000  # number of most common features with individual counts; other features are counted in groups
_GROUPS = 400  # number of these groups


def predict_nbytes(
    n_memories: int,
    n_features: int | None = None,
    *,
    cells_per_key: float | None = None,
    sample: Any = None,
    n_trees: int = 1,
    leaf_multiplier: float = 4.0,
    copies: bool = False,
    scorer: bool = False,
) -> int:
    """Predict ``nbytes``, the number of allocated bytes of a :class:`~cmt_numba.ContextualMemoryTree`.

    For ``n`` memories of ``d`` features and leaves of at most ``W = floor(c log2 n)`` memories, the prediction is the
    sum of:

    - Keys. An id takes 8 bytes, and the hash table of ids has 4-byte cells, whose number is the first power of two
      above ``5 n / 4``. A dense key takes ``4 d`` bytes and its code ``d + 8`` bytes. A sparse key takes 16 bytes, and
      8 per cell. Each tree takes 4 bytes per key for its leaf. With ``copies``, each tree except the first has another
      copy of the codes.
    - Leaves, with ``12 + 4 W`` bytes each. By default trees are so well balanced that all nodes at one depth have about
      ``m = n / 2**depth`` memories below them. Leaves therefore split at about the same time. Their number stays near a
      power of two and then doubles quickly, and leaves are between half full and full. The probability that a node at
      this depth has split is ``Phi(0.65 + (m - W) / (0.26 sqrt(m)))``, where ``Phi`` is the normal distribution
      function.
    - Internal nodes, one fewer than leaves, with 64 bytes and a router each. A dense router takes ``8 d`` bytes. A
      sparse router takes 12 bytes per cell of a hash table. The number of cells is a power of two, and at least 4/3 of
      the number of features that the router was trained on. That number is at most the number of distinct features of
      the ``m`` keys below the node.

    After one large insert, nodes, leaves and tables have up to 10 % spare capacity, which the prediction includes. Many
    small inserts enlarge an array by 25 % whenever it is full. All arrays except the hash table of ids then take 1 to
    1.25 times the memory they need, and a forest takes 0.9 to 1.25 times the prediction.

    Parameters
    ----------
    n_memories : int
        Number of memories, ``n``.
    n_features : int, optional
        Number of features, ``d``. Not needed with a ``sample``.
    cells_per_key : float, optional
        Mean number of features of a sparse key. The prediction assumes that feature frequencies follow Zipf's law, as
        word frequencies do. It is more accurate with a ``sample``.
    sample : sparse matrix, shape (n_sample, n_features), optional
        A random sample of about a thousand sparse keys. The function builds a small tree from it to estimate the number
        of features that routers store.
    n_trees : int, default 1
        Number of trees.
    leaf_multiplier : float, default 4.0
        The option ``leaf_multiplier`` of the forest, ``c``.
    copies : bool, default False
        Whether :meth:`~cmt_numba.ContextualMemoryTree.compact` will be called with ``copies``.
    scorer : bool, default False
        Whether the scorer will be trained, which takes 8 bytes per feature.

    Returns
    -------
    int
        Number of bytes. The error is usually below 10 % for dense keys, and for sparse keys with a sample. Without a
        sample, predictions for texts are up to two thirds too high. Predictions are less accurate for forests with very
        few leaves, for dissimilar sparse keys, whose tables may all be just below or above a power of two, and for an
        ``alpha`` far below the default, which gives less balanced trees.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> predict_nbytes(1_000_000, 128, n_trees=4) // 2**20
    741
    """
    n = check_integer("n_memories", n_memories, 0, MOST_MEMORIES)
    n_trees = OPTIONS["n_trees"].check("n_trees", n_trees)
    multiplier = OPTIONS["leaf_multiplier"].check("leaf_multiplier", leaf_multiplier)
    rows = None if sample is None else check_rows(sample, sparse=True, n_features=n_features)
    if rows is not None:
        n_features, cells_per_key = rows.n_features, rows.values.size / rows.n_rows
    d = check_integer("n_features", n_features, 1, MOST_FEATURES)
    cells = None if cells_per_key is None else check_real("cells_per_key", cells_per_key, 0.0, float(d))
    if n == 0:
        return 0
    width = _leaf_limit(multiplier, n)
    at_depth = _expected_nodes(n, width)
    n_nodes = sum(at_depth)
    own = 8 * n + 4 * slot_table_size(n)
    of_each_tree = 4 * n + _ROOM * (n_nodes + 1) * (LEAF.itemsize + 4 * width) + _ROOM * n_nodes * NODE.itemsize
    of_each_tree += 8 * (N_COUNTERS + 1)
    if cells is None:
        code = d + CODE_MARKS.itemsize
        own += n * (4 * d + code) + (n * code * (n_trees - 1) if copies else 0)
        of_each_tree += _ROOM * n_nodes * 8 * d
    else:
        met = _met_in_text(d, cells) if rows is None else _met_in_sample(rows, multiplier)
        n_cells = sum(count * _expected_cells(met(n * 0.5**depth, depth)) for depth, count in enumerate(at_depth))
        own += n * 16 + int(8 * n * cells)
        of_each_tree += _ROOM * n_cells * WEIGHT_CELL.itemsize
    return int(own + n_trees * of_each_tree + (8 * d if scorer else 0))


def _expected_nodes(n: int, width: int) -> list[float]:
    """Return the expected number of internal nodes at each depth."""
    counts: list[float] = []
    mean = float(n)
    while mean >= 1.0:
        split = 0.5 * math.erfc(-(_EARLY + (mean - width) / (_SPREAD * math.sqrt(mean))) / math.sqrt(2.0))
        if n <= width or split * 2 ** len(counts) < 0.01:
            break
        counts.append(split * 2 ** len(counts))
        mean /= 2
    return counts


def _expected_cells(n_met: float) -> float:
    """Return the expected number of cells in the table of a router with about ``n_met`` features."""
    quantiles = n_met * np.exp(_TABLE_SPREAD * np.linspace(-2.0, 2.0, 41))
    weights = np.exp(-(np.linspace(-2.0, 2.0, 41) ** 2) / 2)
    bits = np.maximum(SMALLEST_TABLE_BITS, np.ceil(np.log2(np.maximum(1.0, quantiles * 4 / 3))))
    return float(np.sum(weights * 2.0**bits) / np.sum(weights))


def _met_in_text(n_features: int, cells_per_key: float) -> Callable[[float, int], float]:
    """Return a function that predicts the number of a router's features if feature frequencies follow Zipf's law.

    Its arguments are the number of memories below the node, and the node's depth.
    """
    edges = np.arange(1.0, min(n_features, _EXACT_RANKS) + 2)
    if n_features > _EXACT_RANKS:
        edges = np.concatenate([edges, np.geomspace(edges[-1], n_features + 1, _GROUPS)[1:]])
    size = np.diff(edges)
    share = np.log(edges[1:] / edges[:-1]) / size
    share /= np.sum(size * share)

    def distinct(n_drawn: float) -> float:
        return float(np.sum(size * -np.expm1(n_drawn * np.log1p(-share)))) if n_features > 1 else 1.0

    # Bisect for the number of words of a text that has ``cells_per_key`` distinct words.
    least, most = 0.0, 1e9
    for _ in range(100):
        middle = (least + most) / 2
        least, most = (middle, most) if distinct(middle) < cells_per_key else (least, middle)
    return lambda m, depth: distinct(m * least) * (1.0 if depth == 0 else _LIKENESS)


def _met_in_sample(sample: Rows, leaf_multiplier: float) -> Callable[[float, int], float]:
    """Return a function like :func:`_met_in_text`, based on feature frequencies and co-occurrences in a sample."""
    distinct = _distinct_like(sample)
    tree = ContextualMemoryTree(1, leaf_multiplier=leaf_multiplier, n_threads=1, random_state=0)
    insert_rows(tree._forest, sample)
    state = tree._forest.allocated()
    likeness: list[float] = []
    for places in levels(state, 0):
        nodes = state.nodes[0, places[places >= 0]]
        if 2 * nodes.size < 2 ** len(likeness):
            break
        expected = sum(map(distinct, nodes["below"].sum(axis=1)))
        likeness.append(max(0.1, float(nodes["table_used"].sum()) / max(1.0, expected)))

    def met(m: float, depth: int) -> float:
        alike = likeness[min(depth, len(likeness) - 1)] if likeness else _LIKENESS
        finer = 1.0 + _FINER * max(0.0, math.log2(m * 2**depth / sample.n_rows))
        return distinct(m) * math.pow(alike, finer)

    return met


def _distinct_like(sample: Rows) -> Callable[[float], float]:
    """Return a function that estimates the number of distinct features of ``m`` random keys.

    Beyond the size of the sample, the result is the geometric mean of two estimates. The first, a power of the number
    of keys (Heaps' law), is too high. The second, based on the features seen once or twice (Chao, 1984), is too low.
    """
    n = sample.n_rows
    counts = np.bincount(sample.indices)
    counts = counts[counts > 0]
    once, twice = (max(1.0, float(np.count_nonzero(counts == times))) for times in (1, 2))
    unseen = once * once / (2 * twice)

    if counts.size == 0:
        return lambda m: 0.0

    def among(m: float) -> float:
        return float(np.sum(-np.expm1(counts * math.log1p(-m / n))))

    def distinct(m: float) -> float:
        if m < n:
            return among(m)
        power = math.log2(counts.size / among(n / 2))
        growing = counts.size * (m / n) ** power
        stopping = counts.size + unseen * -math.expm1((m - n) * math.log1p(-once / (n * unseen + once)))
        return float(min(sample.n_features, math.sqrt(growing * stopping)))

    return distinct
