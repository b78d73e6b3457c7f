"""Queries, their answers, and feedback on them."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .constants import NONE, RIGHT
from .rows import Rows

WORTH_KEEPING = 0.5  # minimum reward at which a query is stored as an additional key
WORTH_FINDING = 1.0  # minimum reward at which routers learn the path to a memory
NO_ROOM = np.empty((0, 0), np.float32)  # placeholder for ``Query.room``: searches allocate their probes


class Query(NamedTuple):
    """The rows ``first:stop`` of a query, and the parameters of the search."""

    rows: Rows
    first: int
    stop: int
    n_leaves: int  # number of leaves to search in all trees together
    epsilon: float  # probability that a row explores
    seed: np.uint64  # seed of the random draws for exploration
    room: np.ndarray = NO_ROOM  # zeros for the values of probes, see ``room_for_probe``


class Exploration(NamedTuple):
    """The exploration of a query, with one entry for each row. ``update`` trains routers on it."""

    tree: np.ndarray
    """The explored tree, or -1 if the row did not explore (int32, shape (n,))."""
    node: np.ndarray
    """The internal node at which a side was drawn, or -1 if the row did not explore or drew memories from a leaf
    (int32, shape (n,))."""
    generation: np.ndarray
    """A counter that distinguishes the node from later nodes with the same number (int32, shape (n,))."""
    side: np.ndarray
    """The side drawn: 0 for left, 1 for right, -1 for none (int8, shape (n,))."""
    probability: np.ndarray
    """The probability of the side drawn, or NaN if none was drawn (float32, shape (n,))."""


class Explored(NamedTuple):
    """The exploration of one row."""

    tree: int
    """The explored tree."""
    node: int | None
    """The internal node at which a side was drawn, or None if memories were drawn from a leaf."""
    side: Literal["left", "right"] | None
    """The side drawn, "left" or "right", or None if memories were drawn from a leaf."""
    probability: float | None
    """The probability of the side drawn, or None if memories were drawn from a leaf."""


class Hits(NamedTuple):
    """The answers to a query."""

    ids: NDArray[np.int64]
    """Memory ids, best first. Rows with fewer than ``k`` memories are padded with -1. (Int64, shape (n, k).)"""
    scores: NDArray[np.float32]
    """The scores of the memories, padded with ``-inf`` (float32, shape (n, k))."""
    exploration: Exploration
    """The exploration, for :meth:`ContextualMemoryTree.update`."""

    def explored(self, row: int) -> Explored | None:
        """Return the exploration of a row, or None if the row did not explore."""
        tree, node, _, side, probability = (column[row].item() for column in self.exploration)
        if tree == NONE:
            return None
        if node == NONE:
            return Explored(tree, None, None, None)
        return Explored(tree, node, "right" if side == RIGHT else "left", probability)

    def between(self, first: int, stop: int) -> "Hits":
        """Return the answers to the rows ``first:stop`` as views of the arrays."""
        exploration = Exploration(*(column[first:stop] for column in self.exploration))
        return Hits(self.ids[first:stop], self.scores[first:stop], exploration)


class ShownHits(Hits):
    """The answers to a query, with the probability of each memory being shown.

    ``hits[rows]`` selects the answers to some rows by an integer, a slice, a mask or an array of integers. The result
    can be passed to :meth:`ContextualMemoryTree.update` with the same rows of the query. ``len(hits)`` is the number of
    rows, and iteration yields the answers row by row.

    Copies and pickles contain the probabilities only if ``propensities`` was read before.
    """

    _found: np.ndarray | Callable[[], np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Self]:  # type: ignore[override]
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, rows: Any) -> Self:  # type: ignore[override]
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            row = range(len(self))[rows]
            rows = slice(row, row + 1)
        elif isinstance(rows, tuple):
            raise TypeError(f"hits are indexed by row: use hits[rows] or hits.ids[rows, column], got {rows!r:.50}")
        elif not isinstance(rows, slice):
            rows = np.asarray(rows)
            rows = rows.astype(np.int64) if rows.size == 0 else rows
        exploration = Exploration(*(column[rows] for column in self.exploration))
        some = type(self)(self.ids[rows], self.scores[rows], exploration)
        if callable(self._found):
            some._found = lambda: self.propensities[rows]
        elif self._found is not None:
            some._found = self._found[rows]
        return some

    def _asdict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changed: Any) -> Self:
        return type(self)(**(self._asdict() | changed))

    @classmethod
    def of(cls, hits: Hits, found: np.ndarray | Callable[[], np.ndarray]) -> Self:
        """Return hits with propensities ``found``: an array, or a function that computes the array on first access."""
        shown = cls(hits.ids, hits.scores, hits.exploration)
        shown._found = found
        return shown

    @property
    def propensities(self) -> np.ndarray:
        """The probability that each memory is shown to its row, over all draws of exploration.

        An array of float64, shape (n, k), padded with 0. With ``k=1`` it contains the propensities for off-policy
        evaluation. Over all memories that may be shown to a row, the probabilities sum to the expected number of
        memories shown. They are exact for the trees at the time of the query, and computed on first access: read them
        before the trees change.

        Raises
        ------
        RuntimeError
            If the trees have changed since the query, or if these hits are a modified copy.
        """
        if self._found is None:
            raise RuntimeError("propensities must be read before the hits are changed")
        if callable(self._found):
            self._found = self._found()
        return self._found

    def __reduce__(self) -> Any:
        known = None if callable(self._found) else self._found
        return type(self), (self.ids, self.scores, self.exploration), {"_found": known}


for _public in (Exploration, Explored, Hits, ShownHits):
    _public.__module__ = "cmt_numba"  # module from which pickles import the classes
UNEXPLORED = Exploration(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.int32, np.int8, np.float32)))
"""Placeholder for the exploration in kernels that do not use it."""


class Feedback(NamedTuple):
    """Rows of a query, their answers, and the rewards of the answers."""

    rows: Rows
    hits: Hits
    rewards: np.ndarray  # float32 (n, k)


def no_hits(n: int, k: int) -> Hits:
    """Return empty answers, without exploration, to ``n`` rows."""
    tree, node, generation = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n, np.int32)
    side, probability = np.empty(n, np.int8), np.empty(n, np.float32)
    for column in (tree, node, side):
        column.fill(-1)
    probability.fill(np.nan)
    ids, scores, _ = unexplored(n, k)
    return Hits(ids, scores, Exploration(tree, node, generation, side, probability))


def unexplored(n: int, k: int) -> Hits:
    """Return empty answers to ``n`` rows, with a placeholder for the exploration."""
    ids, scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)  # faster than np.full for a single row
    ids.fill(-1)  # faster than NONE, which is a NumPy scalar
    scores.fill(-np.inf)
    return Hits(ids, scores, UNEXPLORED)


def certain(ids: np.ndarray) -> np.ndarray:
    """Return the propensities of a query without exploration: 1 for each memory."""
    return (ids != NONE).astype(np.float64)


def are_among(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each of ``ids`` (n, k) is in the same row of ``others`` (n, m); False for NONE."""
    span = max(ids.max(initial=0), others.max(initial=0)) + 1
    rows = np.arange(ids.shape[0], dtype=np.int64)[:, None] * span
    codes = (others + rows)[others != NONE]
    found: np.ndarray = np.isin(ids + rows, codes)
    return found & (ids != NONE)


def without_own(hits: Hits, own_ids: np.ndarray, k: int) -> Hits:
    """Return the first ``k`` memories of each row except the row's own memory, ``own_ids[row]``."""
    order = np.argsort(hits.ids == own_ids[:, None], axis=1, kind="stable")[:, :k]
    ids, scores = np.take_along_axis(hits.ids, order, axis=1), np.take_along_axis(hits.scores, order, axis=1)
    own = (ids == own_ids[:, None]) & (ids != NONE)
    return hits._replace(ids=np.where(own, NONE, ids), scores=np.where(own, np.float32(-np.inf), scores))


def with_runners_up(hits: Hits, others: Hits) -> Hits:
    """Return pairs of memories to compare: each row's first memory, and the best different memory in ``others``.

    The second memory is NONE for a row without a memory, and for a row that explored a node, because its reward trains
    the router instead.
    """
    ids = others.ids.copy()
    shown, first, second = hits.ids[:, 0], others.ids[:, 0], others.ids[:, 1]
    compared = (shown != NONE) & (hits.exploration.node == NONE)
    ids[:, 0], ids[:, 1] = shown, np.where(compared, np.where(first == shown, second, first), NONE)
    return Hits(ids, np.zeros(ids.shape, np.float32), hits.exploration)


def rewarded_memories(hits: Hits, own_ids: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with a reward of at least ``WORTH_FINDING``, and the memory that routers learn to route each to.

    The target is the oldest memory among those with the highest reward and the row's own memory. ``own_ids`` is NONE
    for rows that are not stored. Two memories that reward each other thus have the same target. If each were routed to
    the other, they would only swap leaves.
    """
    there = hits.ids != NONE
    highest = np.where(there, rewards, np.float32(0.0)).max(axis=1, initial=0.0)
    rows = np.flatnonzero(highest >= WORTH_FINDING)
    best = there[rows] & (rewards[rows] == highest[rows, None])
    latest = np.iinfo(np.int64).max
    first = np.where(best, hits.ids[rows], latest).min(axis=1, initial=latest)
    own = np.where(own_ids[rows] == NONE, latest, own_ids[rows])
    return rows, np.minimum(first, own)


def rewarded_pairs(hits: Hits, own_ids: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Return pairs of memories that belong together, int64 of shape (n, 2).

    Each memory with a reward of at least ``WORTH_FINDING`` is paired with the row's own memory. If the row is not
    stored, it is paired with the first of these memories.
    """
    worth = (hits.ids != NONE) & (rewards >= WORTH_FINDING)
    rows, columns = np.nonzero(worth)
    first = np.take_along_axis(hits.ids, worth.argmax(axis=1)[:, None], axis=1)[:, 0]
    anchors = np.where(own_ids == NONE, first, own_ids)
    return np.column_stack([anchors[rows], hits.ids[rows, columns]])


def joined(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ids in ``pairs``, and for each the lowest id of its connected component."""
    ids, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(-1, 2)
    graph = scipy.sparse.coo_array((np.ones(len(ends), np.bool_), (ends[:, 0], ends[:, 1])), (ids.size, ids.size))
    _, group = connected_components(graph, directed=False)
    _, firsts = np.unique(group, return_index=True)
    return ids, ids[firsts[group]]
