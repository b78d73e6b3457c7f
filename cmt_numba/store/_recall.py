"""Search effort for a target recall, measured in small parts by searching for stored vectors."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import scipy.sparse

from .._engine import Filter
from .._forest import WORTH_A_CANDIDATE, WORTH_A_LEAF
from .._jit import keeping_interpreter
from ._search import Effort, StoreSearch

N_EXACT = 4096
"""Number of candidates up to which all are compared."""

_FEWEST_ASKED, _MOST_ASKED = 128, 1024  # stored vectors to search for
_MAY_BE_MISSED = 25  # minimum number of neighbours that a measured search is expected to miss
_SHARE_STORED = 1 / 3  # weight of the search that may visit the vector itself; less for few neighbours
_N_HALVED = 2  # halvings of the interval below a sufficient effort
_SAFE = 0.4  # before the measurement is done, the breadth is this times k / (1 - target)
_CELLS_IN_A_PART, _ROWS_IN_A_PART = 3 << 20, 64  # cells and rows compared in one part
_CANDIDATES_IN_A_PART, _LEAVES_IN_A_PART = 4096, 256  # of all rows searched in one part
_ROWS_OF_A_PART = 64  # rows of a batch per additional part

Measurement = Generator[None, None, Effort]


class Efforts:
    """Measured efforts, and measurements in progress.

    A measurement starts when an effort is first needed, and again when the number of memories has doubled or halved.
    Each query runs a part of it, which takes a few milliseconds. Until it is done, queries search farther than
    necessary. Results therefore depend only on earlier calls, not on the clock.

    Attributes
    ----------
    are_new : bool
        Whether there are measured efforts that have not been written.
    under_way : dict
        The measurements under way, by number of neighbours, share and target.
    """

    def __init__(self, written: Any = None) -> None:
        self.are_new = False
        self._measured: dict[tuple[int, float, float], Effort] = {} if written is None else _read(written)
        self.under_way: dict[tuple[int, float, float], Measurement] = {}
        self._waiting: deque[tuple[tuple[int, float, float], Measurement]] = deque()  # no thread runs a part of these

    def known(self) -> tuple[Effort, ...]:
        """Return all measured efforts."""
        return tuple(self._measured.values())

    def forget(self) -> None:
        """Forget all efforts."""
        self._measured.clear()
        self._waiting.clear()
        self.under_way.clear()

    def written(self) -> str:
        """Return the efforts as JSON."""
        return json.dumps(self.known())

    def of(self, search: StoreSearch, k: int, target: float, among: Filter | None) -> Effort:
        """Return the effort for ``k`` neighbours among the candidates; a safe one until it is measured."""
        n = n_candidates = search.tree._forest.n_memories
        share = 1.0
        if among is not None:
            n_candidates = among.ids.size
            share = min(1.0, n_candidates / max(1, n))  # memories may have been deleted since the filter was made
        are_few = n_candidates <= max(N_EXACT, k) or (among is not None and search.are_few(n_candidates, share))
        if are_few or target >= 1.0:
            return Effort(k, share, target, None, 1.0, n)
        k = 1 << (k - 1).bit_length()
        if share < 1.0:
            share = 2.0 ** round(math.log2(share))
        key = k, share, target
        effort = self._measured.get(key)
        if effort is not None and effort.n_memories / 2 < n < effort.n_memories * 2:
            return effort
        if key not in self.under_way:
            measurement = _measured(search, *key)
            if self.under_way.setdefault(key, measurement) is measurement:  # no other thread was faster
                self._waiting.append((key, measurement))
        return _safe_effort(search, k, share, target, n_candidates, effort)

    def measure_part(self, n_rows: int) -> None:
        """Run one part of the current measurements, or several after a large batch."""
        with keeping_interpreter(_ROWS_IN_A_PART):  # with this many rows, kernels release the lock
            self._measure_parts(1 + n_rows // _ROWS_OF_A_PART)

    def _measure_parts(self, n: int) -> None:
        for _ in range(n):
            try:
                key, measurement = self._waiting.pop()  # so that no other thread runs the same part
            except IndexError:
                return
            is_unfinished = False
            try:
                next(measurement)
                is_unfinished = True
            except StopIteration as done:
                if self.under_way.get(key) is measurement:  # not forgotten meanwhile
                    self._measured[key] = done.value
                    self.are_new = True
            finally:
                if is_unfinished:
                    self._waiting.append((key, measurement))
                elif self.under_way.get(key) is measurement:
                    del self.under_way[key]

    def measure(self, search: StoreSearch, k: int, target: float, among: Filter | None) -> Effort:
        """Finish all measurements, and return the effort for ``k`` neighbours among the candidates."""
        self.of(search, k, target, among)
        while self.under_way:
            self.measure_part(0)
        return self.of(search, k, target, among)


def _read(written: Any) -> dict[tuple[int, float, float], Effort]:
    """Return efforts from their JSON text. Raises ValueError if it is not valid."""
    try:
        efforts = [Effort(*row) for row in json.loads(written)]
        for effort in efforts:
            numbers = (effort.k, effort.n_memories, effort.n_probes or 1)
            if any(type(number) is not int or number < 1 for number in numbers) or type(effort.breadth) is not int:
                raise ValueError(f"{effort} is invalid")
            if not (0.0 < effort.share <= 1.0 and 0.0 < effort.target_recall <= 1.0 and effort.breadth >= 0):
                raise ValueError(f"{effort} is invalid")
    except (TypeError, ValueError) as error:
        raise ValueError(f"the measured recall of the store is invalid: {error}") from error
    return {(effort.k, effort.share, effort.target_recall): effort for effort in efforts}


def _safe_effort(
    search: StoreSearch, k: int, share: float, target: float, n_candidates: int, former: Effort | None
) -> Effort:
    """Return an effort that suffices for nearly all data: twice the previous effort, if there is one.

    If there are few candidates, all are compared.
    """
    n = search.tree._forest.n_memories
    breadth = 0
    if search.tree._forest.links.are_there and not search.are_few(n_candidates):
        breadth = math.ceil(k / share * max(1.0, _SAFE / (1.0 - target)))
        breadth = breadth if former is None else max(k, 2 * former.breadth)
    if breadth == 0 or breadth * WORTH_A_CANDIDATE >= n_candidates:
        return Effort(k, share, target, None, 1.0, n)
    return Effort(k, share, target, 1, target, n, breadth)


def _measured(search: StoreSearch, k: int, share: float, target: float) -> Measurement:
    """Return the least effort that reaches the recall, by doubling and then halving the last interval twice.

    Links lead from a stored vector directly to its own neighbours, so these are found more easily than those of a new
    vector. A search that does not visit the vector itself finds them less easily, because links through it are missing.
    The recall of new vectors lies in between.
    """
    tree, linked = search.tree, search.tree._forest.links.are_there
    draws = np.random.default_rng([tree.n_memories, k])
    ids = np.sort(tree.ids)
    chosen = np.sort(draws.choice(ids, min(_n_asked(k, target), ids.size), replace=False))
    among = None if share >= 1.0 else Filter(np.sort(draws.choice(ids, max(1, int(share * ids.size)), replace=False)))
    yield
    parts = []
    for first in range(0, chosen.size, _ROWS_IN_A_PART):
        parts.append(search.read(chosen[first : first + _ROWS_IN_A_PART])[0])
        yield
    asked = np.concatenate([part.ids for part in parts])
    if asked.size == 0:  # all have been deleted
        return Effort(k, share, target, None, 1.0, max(1, ids.size))
    vectors, units = (_stacked([part[i] for part in parts]) for i in (1, 2))
    if search.is_coded():  # stored vectors lie on the grid of codes, but real queries do not
        units = units + draws.uniform(-0.5, 0.5, units.shape) * np.abs(units).max(axis=1, keepdims=True) / 127
        vectors = search.space.vectors(units, np.full(asked.size, search.space.length()))
    candidates = ids if among is None else among.ids
    true = yield from _true_neighbours(search, vectors, asked, candidates, k)
    Q, rows = search.prepared(vectors)

    def recall(n: int, wanted: int, left_out: np.ndarray | None) -> Generator[None, None, float]:
        n_probes, breadth = (1, n) if linked else (n, 0)
        size = max(4, (_CANDIDATES_IN_A_PART if linked else _LEAVES_IN_A_PART) // n)
        n_found = 0
        for first in range(0, asked.size, size):
            some = np.arange(first, min(first + size, asked.size))
            avoided = None if left_out is None else left_out[some]
            found = search.near(Q[some], rows.take(some), wanted, n_probes, among, breadth, avoided).ids
            n_found += _count_found(found, asked[some], true[some])
            yield
        return n_found / true.size

    def try_with(n: int) -> Measurement:
        found = yield from recall(n, k + 1, None)
        if linked:  # the nearest one is always linked
            wanted = k if among is None else k + 1
            without = yield from recall(n, wanted, asked)
            found = without + _SHARE_STORED * (1.0 - 1.0 / k) * (found - without)
        n_probes, breadth = (1, n) if linked else (n, 0)
        return Effort(k, share, target, n_probes, found, ids.size, breadth)

    n, before = math.ceil(k / share) if linked else tree._forest.n_trees, 0
    while n * (WORTH_A_CANDIDATE if linked else WORTH_A_LEAF) < candidates.size:
        effort = yield from try_with(n)
        if effort.recall >= target:
            for _ in range(_N_HALVED if before > 0 else 0):
                other = yield from try_with((before + n) // 2)
                if other.recall >= target:
                    n, effort = (before + n) // 2, other
                else:
                    before = (before + n) // 2
            return effort
        n, before = 2 * n, n
    return Effort(k, share, target, None, 1.0, ids.size)


def _true_neighbours(
    search: StoreSearch, vectors: Any, own: np.ndarray, candidates: np.ndarray, k: int
) -> Generator[None, None, np.ndarray]:
    """Return the ids of the ``k`` nearest candidates of each vector, without its own: int64 (n, k)."""
    Q, rows = search.prepared(vectors)
    ids, scores = np.full((own.size, k + 1), -1), np.full((own.size, k + 1), -np.inf)
    size = max(k + 1, _CELLS_IN_A_PART // rows.n_features if isinstance(vectors, np.ndarray) else N_EXACT)
    for begin in range(0, candidates.size, size):
        block = Filter(candidates[begin : begin + size])
        for first in range(0, own.size, _ROWS_IN_A_PART):
            some = np.arange(first, min(first + _ROWS_IN_A_PART, own.size))
            found = search.nearest(Q[some], rows.take(some), min(k + 1, block.ids.size), block)
            both = np.concatenate([ids[some], found.ids], axis=1), np.concatenate([scores[some], found.scores], axis=1)
            order = np.argsort(-both[1], axis=1, kind="stable")[:, : k + 1]
            ids[some], scores[some] = (np.take_along_axis(part, order, axis=1) for part in both)
            yield
    return _neighbours(ids, own, k)


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))


def _n_asked(k: int, target: float) -> int:
    """Return how many vectors to search for, so that an estimate rests on enough missed neighbours.

    Neighbours of one vector tend to be missed together, so ``k`` of them count as their square root.
    """
    n = math.ceil(_MAY_BE_MISSED / (math.sqrt(k) * (1.0 - target)))
    return min(max(n, _FEWEST_ASKED), _MOST_ASKED)


def _neighbours(found: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Return the first ``k`` ids of each row that are not its own."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1)


def _count_found(found: np.ndarray, own: np.ndarray, true: np.ndarray) -> int:
    """Return the number of true neighbours that were found."""
    neighbours = _neighbours(found, own, true.shape[1])
    return sum(np.intersect1d(*pair).size for pair in zip(neighbours, true, strict=True))
