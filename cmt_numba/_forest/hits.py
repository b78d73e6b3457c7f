"""Queries, their answers, and rewards for them."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .rows import Rows
from .state import NONE, RIGHT

WORTH_KEEPING = 0.5  # the least reward for which a query is stored as a further key
WORTH_FINDING = 1.0  # the least reward for which routers learn the path to a memory; lower rewards are rarely the best

NO_ROOM = np.empty((0, 0), np.float32)
"""Placeholder for the scratch space of a probe."""

_PUBLIC_MODULE = "cmt_numba"
"""The module under which pickles find the classes."""


class Query(NamedTuple):
    """The rows ``first .. stop`` of a query, and the parameters of the search."""

    rows: Rows
    first: int
    stop: int
    n_leaves: int  # leaves to search in all trees together
    epsilon: float  # probability with which a row explores
    seed: np.uint64  # seed of the draws of rows that explore
    room: np.ndarray = NO_ROOM  # see room_for_probe


class Exploration(NamedTuple):
    """The record of exploration of a query, with one entry for each row. ``update`` trains routers on it.

    Attributes
    ----------
    tree : ndarray of int32, shape (n,)
        The tree explored, -1 where the query did not explore.
    node : ndarray of int32, shape (n,)
        The internal node where a side was drawn; -1 where there was none, or where memories were drawn in a leaf.
    generation : ndarray of int32, shape (n,)
        Distinguishes the node from later ones with the same number.
    side : ndarray of int8, shape (n,)
        The side drawn: 0 left, 1 right, -1 none.
    probability : ndarray of float32, shape (n,)
        The probability with which the side was drawn; NaN where there was none.
    """

    tree: np.ndarray
    node: np.ndarray
    generation: np.ndarray
    side: np.ndarray
    probability: np.ndarray


Exploration.__module__ = _PUBLIC_MODULE


class Explored(NamedTuple):
    """The record of exploration of one row.

    Attributes
    ----------
    tree : int
        The tree.
    node : int or None
        The internal node where a side was drawn; None where memories were drawn in a leaf.
    side : {"left", "right"} or None
        The side drawn.
    probability : float or None
        The probability with which the side was drawn.
    """

    tree: int
    node: int | None
    side: Literal["left", "right"] | None
    probability: float | None


Explored.__module__ = _PUBLIC_MODULE


class Hits(NamedTuple):
    """The answers to a query.

    Attributes
    ----------
    ids : ndarray of int64, shape (n, k)
        Memory ids, the best first; -1 where fewer than ``k`` memories were found.
    scores : ndarray of float32, shape (n, k)
        The scorer's values; ``-inf`` where there is no memory.
    exploration : Exploration
        The record of exploration, for :meth:`ContextualMemoryTree.update`.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    exploration: Exploration

    def explored(self, row: int) -> Explored | None:
        """Return what a row explored, or None."""
        tree, node, _, side, probability = (column[row].item() for column in self.exploration)
        if tree == NONE:
            return None
        if node == NONE:
            return Explored(tree, None, None, None)
        return Explored(tree, node, "right" if side == RIGHT else "left", probability)

    def between(self, first: int, stop: int) -> "Hits":
        """Return the answers to the rows ``first .. stop``, which share memory with these."""
        exploration = Exploration(*(column[first:stop] for column in self.exploration))
        return Hits(self.ids[first:stop], self.scores[first:stop], exploration)


Hits.__module__ = _PUBLIC_MODULE


class ShownHits(Hits):
    """The answers to a query, and the probability that each memory was shown.

    ``hits[i]`` is the answer to row ``i`` alone; a slice, a mask or an array of positions gives the answers to these
    rows. All of these can be passed to :meth:`ContextualMemoryTree.update` with the rows that they belong to. Iterating
    yields the answers to the rows, and ``len`` is their number.

    Parts, copies and pickles have the probabilities only if these were read before.
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
            raise TypeError("hits are selected by rows: write hits[rows], or hits.ids[rows, column]")
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
        """Return hits with propensities, or with a function that computes them when they are first read."""
        shown = cls(hits.ids, hits.scores, hits.exploration)
        shown._found = found
        return shown

    @property
    def propensities(self) -> np.ndarray:
        """The probability that each memory is shown to its row, over all draws of exploration.

        This is float64 of shape (n, k), 0 where there is no memory. With ``k=1`` it is the probability of the choice,
        as off-policy evaluation needs it. The probabilities of all memories that may be shown to a row sum to the
        number of memories that it is shown, on average. They are exact for the trees as they were at the query, and
        are computed when they are first read: read them before the trees change.

        Raises
        ------
        RuntimeError
            If the trees have changed since the query, or these are not the answers as the query has returned them.
        """
        if self._found is None:
            raise RuntimeError("propensities must be read before the hits are changed")
        if callable(self._found):
            self._found = self._found()
        return self._found

    def __reduce__(self) -> Any:
        known = None if callable(self._found) else self._found
        return type(self), (self.ids, self.scores, self.exploration), {"_found": known}


ShownHits.__module__ = _PUBLIC_MODULE


UNEXPLORED = Exploration(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.int32, np.int8, np.float32)))
"""Placeholder for a record of exploration in kernels that do not use it."""


class Feedback(NamedTuple):
    """Rows of a query, their answers, and the rewards."""

    rows: Rows
    hits: Hits
    rewards: np.ndarray  # float32 (n, k)


def no_hits(n: int, k: int) -> Hits:
    """Return the answers to ``n`` queries that found nothing and did not explore."""
    tree, node, generation = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n, np.int32)
    side, probability = np.empty(n, np.int8), np.empty(n, np.float32)
    for column in (tree, node, side):
        column.fill(-1)
    probability.fill(np.nan)
    ids, scores, _ = unexplored(n, k)
    return Hits(ids, scores, Exploration(tree, node, generation, side, probability))


def unexplored(n: int, k: int) -> Hits:
    """Return arrays for the answers to ``n`` queries, without a record of exploration."""
    ids, scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)  # faster than np.full for a single row
    ids.fill(-1)  # NONE as an int, which is faster
    scores.fill(-np.inf)
    return Hits(ids, scores, UNEXPLORED)


def certain(ids: np.ndarray) -> np.ndarray:
    """Return the propensities of the answers to a query without exploration."""
    return (ids != NONE).astype(np.float64)


def partly_drawn(pool: Hits, k: int, epsilon: float, generator: np.random.Generator) -> ShownHits:
    """Return the first ``k`` of each row or, with probability ``epsilon``, ``k`` drawn from the whole row."""
    n, width = pool.ids.shape
    there = pool.ids != NONE
    order = np.argsort(np.where(there, generator.random((n, width)), np.inf), axis=1, kind="stable")
    explores = generator.random((n, 1)) < epsilon
    columns = np.where(explores, np.sort(order[:, :k], axis=1), np.arange(min(k, width)))
    ids, scores = np.take_along_axis(pool.ids, columns, 1), np.take_along_axis(pool.scores, columns, 1)
    found = there.sum(axis=1, keepdims=True)
    drawn = np.minimum(k, found) / np.maximum(found, 1)
    shown = np.where(ids != NONE, (1.0 - epsilon) * (columns < k) + epsilon * drawn, 0.0)
    return ShownHits.of(Hits(ids, scores, no_hits(n, 1).exploration), shown)


def are_among(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each id, (n, k), is among the others of its row, (n, m). NONE is not."""
    span = max(ids.max(initial=0), others.max(initial=0)) + 1
    rows = np.arange(ids.shape[0], dtype=np.int64)[:, None] * span
    codes = (others + rows)[others != NONE]
    found: np.ndarray = np.isin(ids + rows, codes)
    return found & (ids != NONE)


def without_own(hits: Hits, own_ids: np.ndarray, k: int) -> Hits:
    """Return the first ``k`` answers to each row that are not the row's own memory."""
    order = np.argsort(hits.ids == own_ids[:, None], axis=1, kind="stable")[:, :k]
    ids, scores = np.take_along_axis(hits.ids, order, axis=1), np.take_along_axis(hits.scores, order, axis=1)
    own = (ids == own_ids[:, None]) & (ids != NONE)
    return hits._replace(ids=np.where(own, NONE, ids), scores=np.where(own, np.float32(-np.inf), scores))


def with_runners_up(hits: Hits, others: Hits) -> Hits:
    """Return the first memory of each row, and the better of the two ``others`` that differs from it.

    Rows without a memory and rows that explored a node have no other, since their rewards are not compared.
    """
    ids = others.ids.copy()
    shown, first, second = hits.ids[:, 0], others.ids[:, 0], others.ids[:, 1]
    compared = (shown != NONE) & (hits.exploration.node == NONE)
    ids[:, 0], ids[:, 1] = shown, np.where(compared, np.where(first == shown, second, first), NONE)
    return Hits(ids, np.zeros(ids.shape, np.float32), hits.exploration)


def rewarded_memories(hits: Hits, own_ids: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with a memory that is worth finding, and the memory that routers learn to lead them to.

    It is the oldest of the memories with the highest reward and the row's own, ``own_ids``, which is NONE for rows that
    are not stored. If each of two memories were sent to the other, they would only swap places; with this rule they
    come together.
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
    """Return pairs of memories that are worth finding for the same row, int64 (n, 2).

    Each such memory is paired with the row's own or, if the row is not stored, with the first of them.
    """
    worth = (hits.ids != NONE) & (rewards >= WORTH_FINDING)
    rows, columns = np.nonzero(worth)
    first = np.take_along_axis(hits.ids, worth.argmax(axis=1)[:, None], axis=1)[:, 0]
    anchors = np.where(own_ids == NONE, first, own_ids)
    return np.column_stack([anchors[rows], hits.ids[rows, columns]])


def joined(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ids in the pairs, and for each the first id of its connected component."""
    ids, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(-1, 2)
    graph = scipy.sparse.coo_array((np.ones(len(ends), np.bool_), (ends[:, 0], ends[:, 1])), (ids.size, ids.size))
    _, group = connected_components(graph, directed=False)
    _, firsts = np.unique(group, return_index=True)
    return ids, ids[firsts[group]]
