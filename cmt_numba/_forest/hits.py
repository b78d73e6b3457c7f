"""What a query asks, what it answers, and what is learned from it."""

from typing import NamedTuple

import numpy as np

from .rows import Rows
from .state import NONE

_WORTH_FINDING = 1.0  # a reward, from which on routers learn the way to a memory: less is seldom the best there is

_PUBLIC_MODULE = "cmt_numba"
"""Where pickles find the classes, wherever these are defined."""


class Query(NamedTuple):
    """What kernels are asked: the rows ``first .. stop``, and how to search for their answers."""

    rows: Rows
    first: int
    stop: int
    n_leaves: int  # to reach in all trees together
    epsilon: float  # probability with which a row explores
    seed: np.uint64  # of what rows draw that explore


class Exploration(NamedTuple):
    """What a query explored, one entry a row: the record that ``update`` learns routers from.

    Attributes
    ----------
    tree : ndarray of int32, shape (n,)
        The tree explored, -1 where the query did not explore.
    node : ndarray of int32, shape (n,)
        The internal node where a side was drawn; -1 where there was none, or where memories were drawn in a leaf.
    generation : ndarray of int32, shape (n,)
        Tells the node from a later one that was given the same number.
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


class Hits(NamedTuple):
    """The answers to a query.

    Attributes
    ----------
    ids : ndarray of int64, shape (n, k)
        Memory ids, the best first; -1 where fewer than ``k`` memories were found.
    scores : ndarray of float32, shape (n, k)
        The scorer's values; ``-inf`` where there is no memory.
    exploration : Exploration
        What each row explored, for :meth:`ContextualMemoryTree.update`.
    """

    ids: np.ndarray
    scores: np.ndarray
    exploration: Exploration

    def between(self, first: int, stop: int) -> "Hits":
        """Return the answers to the rows ``first .. stop``, which share memory with these."""
        exploration = Exploration(*(column[first:stop] for column in self.exploration))
        return Hits(self.ids[first:stop], self.scores[first:stop], exploration)


Hits.__module__ = _PUBLIC_MODULE


class Feedback(NamedTuple):
    """Rows that were asked, what they were answered, and what the answers were worth."""

    rows: Rows
    hits: Hits
    rewards: np.ndarray  # float32 (n, k)


def no_hits(n: int, k: int) -> Hits:
    """Return the answers to ``n`` queries that found nothing and did not explore."""
    return Hits(
        ids=np.full((n, k), NONE, np.int64),
        scores=np.full((n, k), -np.inf, np.float32),
        exploration=Exploration(
            tree=np.full(n, NONE, np.int32),
            node=np.full(n, NONE, np.int32),
            generation=np.zeros(n, np.int32),
            side=np.full(n, NONE, np.int8),
            probability=np.full(n, np.nan, np.float32),
        ),
    )


def without_own(hits: Hits, own_ids: np.ndarray, k: int) -> Hits:
    """Return the first ``k`` answers to each row that are not the row's own memory."""
    order = np.argsort(hits.ids == own_ids[:, None], axis=1, kind="stable")[:, :k]
    ids, scores = np.take_along_axis(hits.ids, order, axis=1), np.take_along_axis(hits.scores, order, axis=1)
    own = (ids == own_ids[:, None]) & (ids != NONE)
    return hits._replace(ids=np.where(own, NONE, ids), scores=np.where(own, np.float32(-np.inf), scores))


def rewarded_memories(hits: Hits, own_ids: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with a memory that is worth finding, and that memory, which their routers are to lead to.

    It is the first stored of those with the highest reward and the row's own, ``own_ids``, which is NONE where the row
    is not stored. For were two memories sent each where the other is, they would only change places; as it is, those
    that are worth something to each other come together.
    """
    there = hits.ids != NONE
    highest = np.where(there, rewards, np.float32(0.0)).max(axis=1, initial=0.0)
    rows = np.flatnonzero(highest >= _WORTH_FINDING)
    best = there[rows] & (rewards[rows] == highest[rows, None])
    latest = np.iinfo(np.int64).max
    first = np.where(best, hits.ids[rows], latest).min(axis=1, initial=latest)
    own = np.where(own_ids[rows] == NONE, latest, own_ids[rows])
    return rows, np.minimum(first, own)
