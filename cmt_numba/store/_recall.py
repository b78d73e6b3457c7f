"""Measurement of the search effort for a target recall, in small parts, by searches for stored vectors."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Generator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._engine import Filter, count_in_lists, gaps_of, has_lists, make_lists
from .._forest import WORTH_A_CANDIDATE, WORTH_A_LEAF
from .._jit import keeping_interpreter
from ._search import Effort, StoreSearch

N_EXACT = 4096
"""Maximum number of candidates that are all compared."""

_FEWEST_ASKED, _MOST_ASKED = 128, 1024  # minimum and maximum number of stored vectors to search for
_MAY_BE_MISSED = 25  # expected number of neighbours that searches at the target recall miss in the whole sample
_SHARE_STORED = 1 / 3  # weight of the search that may visit the vector itself; smaller for few neighbours
_N_HALVED = 2  # number of times to halve the interval that contains the least sufficient effort
_SAFE = 0.4  # until the effort is measured, the breadth is this times k / (1 - target)
_CELLS_IN_A_PART, _ROWS_IN_A_PART = 3 << 20, 64  # maximum number of cells and of rows compared in one part
_CANDIDATES_IN_A_PART, _LEAVES_IN_A_PART = 4096, 256  # maximum totals over all rows of one part
_ROWS_OF_A_PART = 64  # a batch of queries runs an additional part for every 64 rows

_FEWEST_LISTED = 5000  # minimum number of memories for cluster lists
_MOST_GAPS_TRIED = 4
_ROWS_LISTED = (1, 16, 64, 256)  # batch sizes at which lists and links are compared
# Estimated times in microseconds; only their ratios matter. A search in lists: per call, row, byte read, and byte
# compared with a row. A search along links: per search, candidate, and byte of a candidate. A comparison with all
# memories: per byte, with a single row and in matrix products with many rows.
_OF_A_CALL, _OF_A_ROW, _OF_A_BYTE_READ, _OF_A_BYTE_COMPARED = 40.0, 4.0, 6.5e-5, 1.2e-5
_OF_A_WALK, _OF_A_CANDIDATE, _OF_A_CANDIDATE_BYTE = 20.0, 0.35, 1.4e-3
_OF_A_BYTE_SCANNED, _OF_A_BYTE_MULTIPLIED = 2e-4, 3e-5

Measurement = Generator[None, None, Effort]


class Efforts:
    """Measured efforts, and measurements in progress.

    A measurement starts when an effort is first needed, and again when the number of memories has doubled or halved.
    Each query runs a part of the measurement, which takes a few milliseconds. Until it is finished, queries search more
    than necessary. Results depend on earlier calls, but not on the clock.

    Attributes
    ----------
    are_new : bool
        Whether some measured efforts have not been stored yet.
    under_way : dict
        Unfinished measurements, by number of neighbours, fraction of candidates and target.
    """

    def __init__(self, written: Any = None) -> None:
        self.are_new = False
        self._measured: dict[tuple[int, float, float], Effort] = {} if written is None else _read(written)
        self.under_way: dict[tuple[int, float, float], Measurement] = {}
        self._lists: Generator[None, None, None] | None = None
        self._makes_lists = Lock()
        # Measurements that no thread is working on.
        self._waiting: deque[tuple[tuple[int, float, float], Measurement]] = deque()

    def known(self) -> tuple[Effort, ...]:
        """Return all measured efforts."""
        return tuple(self._measured.values())

    def forget(self) -> None:
        """Forget all efforts."""
        self._measured.clear()
        self._waiting.clear()
        self.under_way.clear()
        self._lists = None

    def written(self) -> str:
        """Return the efforts as JSON."""
        return json.dumps(self.known())

    def of(self, search: StoreSearch, k: int, target: float, among: Filter | None) -> Effort:
        """Return the effort for ``k`` neighbours among the candidates, or a safe estimate until it is measured."""
        n = n_candidates = search.tree._forest.n_memories
        share = 1.0
        if among is not None:
            n_candidates = among.ids.size
            share = min(1.0, n_candidates / max(1, n))  # the filter may contain ids of deleted memories
        are_few = n_candidates <= max(N_EXACT, k) or (among is not None and search.are_few(n_candidates, share))
        if are_few or target >= 1.0:
            return Effort(k, share, target, None, 1.0, n)
        k = 1 << (k - 1).bit_length()
        if share < 1.0:
            share = 2.0 ** round(math.log2(share))
        key = k, share, target
        effort = self._measured.get(key)
        fits = effort is not None and effort.n_memories / 2 < n < effort.n_memories * 2
        lacks_lists = effort is not None and effort.gap is not None and not has_lists(search.tree._forest)
        if (not fits or lacks_lists) and key not in self.under_way:
            measurement = self._measure(search, *key)
            if self.under_way.setdefault(key, measurement) is measurement:  # no other thread was faster
                self._waiting.append((key, measurement))
        if fits:
            assert effort is not None
            return effort
        return _safe_effort(search, k, share, target, n_candidates, effort)

    def measure_part(self, n_rows: int) -> None:
        """Run one part of the unfinished measurements, or several after a large batch of ``n_rows``."""
        with keeping_interpreter(_ROWS_IN_A_PART):  # so that kernels release the interpreter lock
            self._measure_parts(1 + n_rows // _ROWS_OF_A_PART)

    def _measure(self, search: StoreSearch, k: int, share: float, target: float) -> Measurement:
        """Return the least effort that reaches the recall, with a gap if cluster lists are faster."""
        forest = search.tree._forest
        sample = yield from _sampled(search, k, share, target)
        effort = yield from _measured(search, k, share, target, sample)
        parameters = forest.allocated().parameters
        can_list = not parameters.sparse and not parameters.coded and forest.n_memories >= _FEWEST_LISTED
        if share < 1.0 or not can_list or sample.asked.size == 0:
            return effort
        while not has_lists(forest):
            if not self._make_lists(search):
                return effort
            yield
        effort = yield from _with_gap(search, effort, sample)
        if effort.gap is None and all(known.gap is None for known in self.known()):
            forest.lists = None  # unused lists would waste memory
        return effort

    def _make_lists(self, search: StoreSearch) -> bool:
        """Make part of the cluster lists. Return False if they cannot be finished."""
        if self._makes_lists.acquire(blocking=False):  # otherwise another thread is making a part
            try:
                if self._lists is None:
                    self._lists = make_lists(search.tree._forest)
                next(self._lists)
            except StopIteration:
                self._lists = None
                return has_lists(search.tree._forest)
            finally:
                if has_lists(search.tree._forest):
                    self._lists = None
                self._makes_lists.release()
        return True

    def _measure_parts(self, n: int) -> None:
        for _ in range(n):
            try:
                key, measurement = self._waiting.pop()  # so no other thread runs the same part
            except IndexError:
                return
            is_unfinished = False
            try:
                next(measurement)
                is_unfinished = True
            except StopIteration as done:
                if self.under_way.get(key) is measurement:  # not forgotten in the meantime
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
    """Return efforts from JSON text. Raises ValueError if the text is invalid."""
    try:
        efforts = [Effort(*row) for row in json.loads(written)]
        for effort in efforts:
            numbers = (effort.k, effort.n_memories, effort.n_probes or 1)
            if any(type(number) is not int or number < 1 for number in numbers) or type(effort.breadth) is not int:
                raise ValueError(f"k, n_memories, n_probes or breadth of {effort} is invalid")
            if not (effort.gap is None or effort.gap >= 0.0) or type(effort.n_rows_listed) is not int:
                raise ValueError(f"gap or n_rows_listed of {effort} is invalid")
            if not (0.0 < effort.share <= 1.0 and 0.0 < effort.target_recall <= 1.0 and effort.breadth >= 0):
                raise ValueError(f"share, target_recall or breadth of {effort} is invalid")
    except (TypeError, ValueError) as error:
        raise ValueError(f"the measured recall of the store is invalid: {error}") from error
    return {(effort.k, effort.share, effort.target_recall): effort for effort in efforts}


def _safe_effort(
    search: StoreSearch, k: int, share: float, target: float, n_candidates: int, former: Effort | None
) -> Effort:
    """Return an effort that suffices for nearly all data, or twice the former effort if there is one.

    If there are few candidates, the returned effort compares all of them.
    """
    n = search.tree._forest.n_memories
    breadth = 0
    if search.tree._forest.links.are_there and not search.are_few(n_candidates):
        breadth = math.ceil(k / share * max(1.0, _SAFE / (1.0 - target)))
        breadth = breadth if former is None or former.breadth == 0 else max(k, 2 * former.breadth)
    if breadth == 0 or breadth * WORTH_A_CANDIDATE >= n_candidates:
        return Effort(k, share, target, None, 1.0, n)
    return Effort(k, share, target, 1, target, n, breadth)


class Sample(NamedTuple):
    """Stored vectors to search for, and their true neighbours."""

    asked: np.ndarray  # int64 (n,): the ids of the vectors
    vectors: Any  # float32 (n, n_features), dense or CSR
    among: Filter | None
    candidates: np.ndarray  # int64: the ids among which to search, ascending
    true: np.ndarray  # int64 (n, k): the ids of the nearest candidates


def _sampled(search: StoreSearch, k: int, share: float, target: float) -> Generator[None, None, Sample]:
    """Draw stored vectors, and return them with their true neighbours."""
    tree = search.tree
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
    candidates = ids if among is None else among.ids
    if asked.size == 0:  # all sampled memories have been deleted
        return Sample(asked, None, among, candidates, np.empty((0, k), np.int64))
    vectors, units = (_stacked([part[i] for part in parts]) for i in (1, 2))
    if search.is_coded():  # unlike stored vectors, queries are not rounded to codes
        units = units + draws.uniform(-0.5, 0.5, units.shape) * np.abs(units).max(axis=1, keepdims=True) / 127
        vectors = search.space.vectors(units, np.full(asked.size, search.space.length()))
    true = yield from _true_neighbours(search, vectors, asked, candidates, k)
    return Sample(asked, vectors, among, candidates, true)


def _measured(search: StoreSearch, k: int, share: float, target: float, sample: Sample) -> Measurement:
    """Return the least effort that reaches the recall: double it until it suffices, then halve the interval twice.

    Links lead from a stored vector straight to its neighbours, so a search that visits the vector finds them more
    easily than the neighbours of a new vector. A search that does not visit the vector cannot use the links through it
    and finds fewer. The recall for new vectors lies between the two.
    """
    tree, linked = search.tree, search.tree._forest.links.are_there
    asked, vectors, among, candidates, true = sample
    n_memories = max(1, tree.n_memories)
    if asked.size == 0:
        return Effort(k, share, target, None, 1.0, n_memories)
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
        return Effort(k, share, target, n_probes, found, n_memories, breadth)

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
    return Effort(k, share, target, None, 1.0, n_memories)


def _with_gap(search: StoreSearch, effort: Effort, sample: Sample) -> Measurement:
    """Add the least gap that reaches the recall to an effort, or return it unchanged if cluster lists are not faster.

    The list of a true neighbour determines the least gap at which a search finds it.
    """
    forest, k, target = search.tree._forest, effort.k, effort.target_recall
    Q, rows = search.prepared(sample.vectors)
    gaps = np.empty(sample.true.shape)
    n = sample.asked.size
    spans = [np.arange(i, min(i + _ROWS_IN_A_PART, n)) for i in range(0, n, _ROWS_IN_A_PART)]
    for some in spans:
        gaps[some] = gaps_of(forest, rows.take(some), sample.true[some])
        yield
    gaps = np.sort(gaps[np.isfinite(gaps)])
    share = target
    for _ in range(_MOST_GAPS_TRIED):
        gap = float(gaps[min(gaps.size - 1, math.ceil(share * gaps.size))]) if gaps.size > 0 else 0.0
        n_found, n_compared = 0, 0.0
        for some in spans:
            found = search.near(Q[some], rows.take(some), k + 1, 1, None, gap=gap).ids
            n_found += _count_found(found, sample.asked[some], sample.true[some])
            counted = count_in_lists(forest, rows.take(some), gap)
            if counted is None:
                return effort
            n_compared += float(counted.sum())
            yield
        if n_found >= target * sample.true.size:
            n_rows = _rows_listed(search, effort, n_compared / n)
            return effort if n_rows is None else effort._replace(gap=gap, n_rows_listed=n_rows)
        share += (1.0 - share) / 2
    return effort


def _rows_listed(search: StoreSearch, effort: Effort, n_compared: float) -> int | None:
    """Return the least batch size for which cluster lists are the fastest search, or None if they never are.

    Rows of a batch share the lists that they search, so larger batches take less time per row. ``n_compared`` is the
    mean number of memories in the lists that a row reaches.
    """
    forest = search.tree._forest
    d, n, lists = forest.allocated().parameters.n_features, forest.n_memories, forest.lists
    if lists is None:
        return None
    n_centers = lists.sizes.size
    for n_rows in _ROWS_LISTED:
        n_read = n * (1.0 - (1.0 - min(1.0, n_compared / n)) ** n_rows) / n_rows + n_centers / min(n_rows, 8)
        listed = _OF_A_CALL / n_rows + _OF_A_ROW + d * n_read * _OF_A_BYTE_READ
        listed += d * (n_compared + n_centers) * _OF_A_BYTE_COMPARED
        if effort.compares_all(n, n_rows, sparse=False):
            other = d * n * (_OF_A_BYTE_MULTIPLIED if n_rows > 1 else _OF_A_BYTE_SCANNED)
        else:
            n_codes = WORTH_A_LEAF * (effort.n_probes or 1)
            walked = effort.breadth * (_OF_A_CANDIDATE + d * _OF_A_CANDIDATE_BYTE)
            other = _OF_A_WALK + (walked if effort.breadth > 0 else d * n_codes * _OF_A_BYTE_READ)
        if listed < other:
            return n_rows
    return None


def _true_neighbours(
    search: StoreSearch, vectors: Any, own: np.ndarray, candidates: np.ndarray, k: int
) -> Generator[None, None, np.ndarray]:
    """Return the ids of the ``k`` candidates nearest to each vector, other than itself: shape (n, k)."""
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
    """Return the sample size at which searches miss enough neighbours for a reliable estimate of the recall.

    Searches tend to miss the neighbours of a vector together, so ``k`` neighbours count as ``sqrt(k)`` independent
    ones.
    """
    n = math.ceil(_MAY_BE_MISSED / (math.sqrt(k) * (1.0 - target)))
    return min(max(n, _FEWEST_ASKED), _MOST_ASKED)


def _neighbours(found: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Return the first ``k`` ids of each row other than its own id, ``own``."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1)


def _count_found(found: np.ndarray, own: np.ndarray, true: np.ndarray) -> int:
    """Count the true neighbours that were found."""
    neighbours = _neighbours(found, own, true.shape[1])
    return sum(np.intersect1d(*pair).size for pair in zip(neighbours, true, strict=True))
