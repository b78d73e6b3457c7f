"""How far to search for a recall: found by asking for what is stored."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse

from .._engine.filters import Filter
from .._forest.filtering import WORTH_A_CANDIDATE, WORTH_A_LEAF
from ..tree import ContextualMemoryTree
from ._metrics import Frame
from ._search import scan, search, stored_units

N_EXACT = 4096
"""Candidates, up to which all are compared."""

_N_ASKED = 128  # of the stored vectors
_SHARE_MISSED = 0.5  # of what may be missed: links lead from a stored vector to its own neighbours at once
_FASTER = 4  # how much faster many rows are compared with dense memories by matrix products
_MANY_ROWS = 16


class Effort(NamedTuple):
    """What a search takes to have some recall.

    Attributes
    ----------
    k : int
        The number of nearest vectors of which it finds some share.
    share : float
        The share of the memories that were candidates, as a power of two; 1 without a filter.
    target_recall : float
        What was asked for.
    n_probes : int or None
        The number of leaves to search. None: all memories are compared.
    recall : float
        The share of the nearest vectors that were found: of stored vectors, without these themselves.
    n_memories : int
        The number of memories when it was measured.
    breadth : int
        The number of candidates to keep while links are followed; 0 if none are.
    """

    k: int
    share: float
    target_recall: float
    n_probes: int | None
    recall: float
    n_memories: int
    breadth: int = 0


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

    def of(self, tree: ContextualMemoryTree, frame: Frame, k: int, target: float, among: Filter | None) -> Effort:
        """Return the effort for ``k`` neighbours of the candidates, which is measured if it is not known."""
        n = n_candidates = tree.n_memories
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
            effort = self._measured[k, share, target] = measure(tree, frame, k, share, target)
        return effort


def compares_all(effort: Effort, n_candidates: int, n_rows: int, *, sparse: bool) -> bool:
    """Return whether comparing rows with all candidates takes less than searching for them."""
    if effort.n_probes is None:
        return True
    faster = _FASTER if n_rows >= _MANY_ROWS and not sparse else 1
    return n_candidates <= faster * (WORTH_A_LEAF * effort.n_probes + WORTH_A_CANDIDATE * effort.breadth)


def measure(tree: ContextualMemoryTree, frame: Frame, k: int, share: float, target: float) -> Effort:
    """Return the least effort, of powers of two and numbers halfway, that has the recall."""
    draws = np.random.default_rng([tree.n_memories, k])
    ids = tree.ids
    asked = draws.choice(ids, min(_N_ASKED, ids.size), replace=False)
    among = None if share >= 1.0 else Filter(np.sort(draws.choice(ids, max(1, int(share * ids.size)), replace=False)))
    units = tree._lock.read(lambda: stored_units(tree._allocated(), (slots := tree._slots(asked))[slots >= 0]))
    if tree._options["coded"] and not scipy.sparse.issparse(units):  # what is asked for lies between codes
        units = units + draws.uniform(-0.5, 0.5, units.shape) * np.abs(units).max(axis=1, keepdims=True) / 127
    vectors = frame.vectors(units, np.ones(units.shape[0]))
    rows = tree._check_rows(frame.queries(vectors))
    n_candidates = ids.size if among is None else among.ids.size
    true = _neighbours(scan(tree, rows, k + 1, among).ids, asked, k)
    linked = tree._links.are_there
    worth = WORTH_A_CANDIDATE if linked else WORTH_A_LEAF
    needed = 1.0 - _SHARE_MISSED * (1.0 - target) if linked else target

    def try_with(n: int) -> Effort:
        n_probes, breadth = (1, n) if linked else (n, 0)
        found = search(tree, rows, k + 1, n_probes, among, breadth).ids
        return Effort(k, share, target, n_probes, _recall(found, asked, true), ids.size, breadth)

    n, before = math.ceil(k / share) if linked else tree._options["n_trees"], 0
    while n * worth < n_candidates:
        effort = try_with(n)
        if effort.recall >= needed:
            between = (n + before) // 2
            if before > 0 and between > before:
                other = try_with(between)
                effort = other if other.recall >= needed else effort
            return effort
        n, before = 2 * n, n
    return Effort(k, share, target, None, 1.0, ids.size)


def _neighbours(found: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Return the first ``k`` ids of each row that are not its own."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1)


def _recall(found: np.ndarray, own: np.ndarray, true: np.ndarray) -> float:
    neighbours = _neighbours(found, own, true.shape[1])
    n_found = sum(np.intersect1d(*pair).size for pair in zip(neighbours, true, strict=True))
    return n_found / true.size
