"""How far to search for a recall: found by asking for what is stored."""

from __future__ import annotations

import math

import numpy as np

from .._engine import Filter
from .._forest import WORTH_A_CANDIDATE, WORTH_A_LEAF
from ._search import Effort, StoreSearch

N_EXACT = 4096
"""Candidates, up to which all are compared."""

_FEWEST_ASKED, _MOST_ASKED = 128, 1024  # of the stored vectors
_MAY_BE_MISSED = 25  # neighbours, at least; as far as that many vectors may be asked
_SHARE_STORED = 1 / 3  # of the recall: that of the search that goes to the vector itself; less for few neighbours
_N_HALVED = 2  # how often what is between an effort that is enough and half of it is halved


class Efforts:
    """Efforts that have been measured. They are measured again when the number of memories has doubled or halved."""

    def __init__(self) -> None:
        self._measured: dict[tuple[int, float, float], Effort] = {}

    def known(self) -> tuple[Effort, ...]:
        """Return all efforts."""
        return tuple(self._measured.values())

    def forget(self) -> None:
        """Forget all efforts."""
        self._measured.clear()

    def of(self, search: StoreSearch, k: int, target: float, among: Filter | None) -> Effort:
        """Return the effort for ``k`` neighbours of the candidates, which is measured if it is not known."""
        n = n_candidates = search.tree._forest.n_memories
        share = 1.0
        if among is not None:
            n_candidates = among.ids.size
            share = min(1.0, n_candidates / max(1, n))  # memories may have been deleted since the filter was made
        if n_candidates <= max(N_EXACT, k) or target >= 1.0:
            return Effort(k, share, target, None, 1.0, n)
        k = 1 << (k - 1).bit_length()
        if share < 1.0:
            share = 2.0 ** round(math.log2(share))
        effort = self._measured.get((k, share, target))
        if effort is None or not effort.n_memories / 2 < n < effort.n_memories * 2:
            effort = self._measured[k, share, target] = measure(search, k, share, target)
        return effort


def measure(search: StoreSearch, k: int, share: float, target: float) -> Effort:
    """Return the least effort that has the recall, of a first one, its doubles, and three numbers between any two.

    Links lead from a stored vector to its own neighbours at once, which are found more easily than those of a new one.
    Without it they are found less easily, for it stands in the way of links that there would be. The recall of new
    vectors lies in between.
    """
    tree = search.tree
    draws = np.random.default_rng([tree.n_memories, k])
    ids = tree.ids
    chosen = np.sort(draws.choice(ids, min(_n_asked(k, target), ids.size), replace=False))
    among = None if share >= 1.0 else Filter(np.sort(draws.choice(ids, max(1, int(share * ids.size)), replace=False)))
    asked, vectors, units = search.read(chosen)[0]
    if search.is_coded():  # what is asked for lies between codes
        units = units + draws.uniform(-0.5, 0.5, units.shape) * np.abs(units).max(axis=1, keepdims=True) / 127
        vectors = search.space.vectors(units, np.full(asked.size, search.space.length()))
    vectors, rows = search.prepared(vectors)
    n_candidates = ids.size if among is None else among.ids.size
    true = _neighbours(search.nearest(vectors, rows, min(k + 1, n_candidates), among).ids, asked, k)
    linked = tree._forest.links.are_there
    worth = WORTH_A_CANDIDATE if linked else WORTH_A_LEAF

    def try_with(n: int) -> Effort:
        n_probes, breadth = (1, n) if linked else (n, 0)
        recall = _recall(search.near(vectors, rows, k + 1, n_probes, among, breadth).ids, asked, true)
        if linked:
            wanted = k if among is None else k + 1  # the few that a filter leaves are all compared
            without = _recall(search.near(vectors, rows, wanted, n_probes, among, breadth, asked).ids, asked, true)
            recall = without + _SHARE_STORED * (1.0 - 1.0 / k) * (recall - without)  # the nearest one is always linked
        return Effort(k, share, target, n_probes, recall, ids.size, breadth)

    n, before = math.ceil(k / share) if linked else tree._forest.n_trees, 0
    while n * worth < n_candidates:
        effort = try_with(n)
        if effort.recall >= target:
            for _ in range(_N_HALVED if before > 0 else 0):
                other = try_with((before + n) // 2)
                if other.recall >= target:
                    n, effort = (before + n) // 2, other
                else:
                    before = (before + n) // 2
            return effort
        n, before = 2 * n, n
    return Effort(k, share, target, None, 1.0, ids.size)


def _n_asked(k: int, target: float) -> int:
    """Return how many vectors to ask for, so that enough may be missed to tell how much is.

    What is missed for one vector is missed together, and counts as the square root of it.
    """
    n = math.ceil(_MAY_BE_MISSED / (math.sqrt(k) * (1.0 - target)))
    return min(max(n, _FEWEST_ASKED), _MOST_ASKED)


def _neighbours(found: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Return the first ``k`` ids of each row that are not its own."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1)


def _recall(found: np.ndarray, own: np.ndarray, true: np.ndarray) -> float:
    neighbours = _neighbours(found, own, true.shape[1])
    n_found = sum(np.intersect1d(*pair).size for pair in zip(neighbours, true, strict=True))
    return n_found / true.size
