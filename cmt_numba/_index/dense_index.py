"""``DenseIndex``: stores dense vectors and finds the nearest ones to queries."""

from __future__ import annotations

from time import thread_time
from typing import Any, Self

import numpy as np

from .._change import share_rows
from .._jit import TILE, held, keeping_interpreter
from .._kernels import NONE, require
from . import changes
from .effort import (
    COPY,
    MORE_IF_ALIKE,
    N_AT_ONCE,
    N_COLUMNS,
    N_CONTRAST_COLUMNS,
    N_MEASURED,
    N_MEASURED_OF_LISTS,
    N_MEASURED_OF_OTHERS,
    N_RECENT,
    N_REFERENCES,
    N_SAMPLES,
    RANKS,
    SAMPLES_PER_QUERY_BETWEEN,
    Gaps,
)
from .few_vectors import compare_few
from .invariants import check_state
from .query_checks import CheckedQuery, QueryChecks
from .sample_search import find_gaps, find_nearest
from .search import Mask, SlotChoice, compare_slots, count_allowed, search_one_by_one, search_together
from .state import (
    COSINE,
    EUCLIDEAN,
    INNER_PRODUCT,
    METRIC,
    N_FAR,
    N_LISTED,
    N_LISTS,
    N_VECTORS,
    SCALE,
    DenseState,
    new_state,
    restored,
    used_arrays,
    used_vectors,
    with_room,
)

METRICS = {"cosine": COSINE, "inner_product": INNER_PRODUCT, "euclidean": EUCLIDEAN}

_FEW = 1024  # up to this number of vectors, all are compared
_ROWS_OF_A_BATCH, _FEW_FOR_BATCH = 16, 16384  # the same for vectors that a filter allows, if many rows share codes,
_MANY_TIMES, _FEW_OF_MANY = 32, 8192  # or if they are few of all
_FEW_ROWS, _LISTS_PER_ROW = 16, 32  # up to 16 rows, plus one for every 32 lists, share too few lists to gain from it
_FEW_VALUES = 1 << 17  # the coding of a query takes longer than the comparison of so many values
_ROWS_OF_A_PRODUCT, _PRODUCTS_AT_ONCE = 8, 1 << 18  # the least rows of a matrix product, and its most elements
_PRODUCTS_OF_A_THREAD = 1 << 24  # fewer take less time than the start of a thread
_KEPT_MICROSECONDS = 60.0  # if a search takes longer, other threads gain from the interpreter lock
_SEARCHES_PER_TIME = 32  # the time of one of so many searches is measured
_ALL = Mask(np.empty(0, np.uint64), np.empty(0, np.int64))
_NO_PRODUCTS = np.empty((0, 0), np.float32)


def _products(Q: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the products of queries and vectors in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(Q @ vectors.T)


def _unit(X: np.ndarray) -> np.ndarray:
    """Return vectors of length 1 in float64."""
    V = X.astype(np.float64)
    return np.asarray(V / np.maximum(np.sqrt(np.square(V).sum(axis=1)), 1e-300)[:, None])


class Allowed:
    """The result of :meth:`DenseIndex.allow`: the vectors that a search may return, until the index changes."""

    __slots__ = ("_mask", "owner", "slots", "version")

    def __init__(self, owner: DenseIndex, version: int, slots: np.ndarray) -> None:
        self.owner, self.version, self.slots = owner, version, slots
        self._mask: Mask | None = None

    def mask(self, state: DenseState) -> Mask:
        """Return the mask of the allowed vectors."""
        if self._mask is None:
            mask = Mask(
                np.empty(-(-int(state.totals[N_VECTORS]) // 64), np.uint64),
                np.empty(int(state.lists.counts[N_LISTS]), np.int64),
            )
            count_allowed(state, self.slots, mask)
            self._mask = mask
        return self._mask


class DenseIndex:
    """An index of dense vectors, which can be added, replaced and removed at any time.

    The score by the ``metric`` is the cosine, the inner product, or the negative Euclidean distance. The caller
    provides the lock: changes need exclusive access, and searches may run concurrently. With ``needs_lists``, also a
    few vectors are in lists.
    """

    def __init__(
        self, n_features: int, metric: str = "cosine", random_state: int = 0, *, needs_lists: bool = False
    ) -> None:
        self._needs_lists = needs_lists
        self.n_features, self.metric, self.random_state = n_features, metric, random_state
        self.next_id, self.version = 0, 0
        self._state = new_state(n_features, METRICS[metric], random_state)
        self._held = held(self._state)
        samples, contrasts = np.empty((0, N_COLUMNS), np.float32), np.empty((0, N_CONTRAST_COLUMNS), np.float32)
        self._gaps = Gaps(samples, contrasts, 0, n_features, metric)
        self._due = 0.0  # number of samples
        self._n_measured, self._n_lists_measured = 1, 1  # vectors and lists at the last sample
        self._checks = QueryChecks()
        self._n_searches = 0
        self._microseconds: dict[Any, float] = {}  # per row, by the kernel of a search

    def _set_state(self, state: DenseState) -> None:
        self._state, self._held = state, held(state)

    def _make_room(self, n_more: int = 0) -> None:
        """Make room for more vectors, and for the lists that a change of one vector needs."""
        state = with_room(self._state, n_more)
        if state is not self._state:
            self._set_state(state)

    def __len__(self) -> int:
        return int(self._state.totals[N_VECTORS])

    @property
    def held(self) -> Any:
        """The state for kernels, until the next change."""
        return self._held

    @property
    def ids(self) -> np.ndarray:
        """The ids of all vectors, int64, in no particular order."""
        return self._state.vectors.ids[: len(self)].copy()

    @property
    def nbytes(self) -> int:
        """The size in bytes of the vectors and all that describes them, without spare room."""
        arrays, n = used_arrays(self._state), len(self)
        of_slots = 4 * n * (self.n_features + 1) + self._state.vectors.slot_table.nbytes
        return sum(array.nbytes for array in arrays.values()) + of_slots

    @property
    def n_lists(self) -> int:
        """The number of lists that have vectors."""
        if not self._has_lists:
            return min(len(self), 1)
        return int(np.count_nonzero(self._state.lists.sizes[: self._state.lists.counts[N_LISTS]]))

    def list_means(self) -> np.ndarray:
        """Return the mean of the vectors in each list, float32, shape (n_lists, n_features)."""
        n, lists = len(self), self._state.lists
        list_of = lists.list_of[lists.places[:n] // TILE] if self._has_lists else np.zeros(n, np.int64)
        _, numbers, counts = np.unique(list_of, return_inverse=True, return_counts=True)
        sums = np.zeros((counts.size, self.n_features))
        np.add.at(sums, numbers, used_vectors(self._state))
        return (sums / counts[:, None]).astype(np.float32)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        return self._slots_of(ids) != NONE

    def _slots_of(self, ids: np.ndarray) -> np.ndarray:
        slots = np.empty(len(ids), np.int64)
        changes.find_ids(self._held, np.ascontiguousarray(ids), slots)  # a kernel is compiled again for strided arrays
        return slots

    def vectors(self, ids: np.ndarray) -> np.ndarray:
        """Return stored vectors as they were given, float32, shape (n, n_features); zeros for other ids."""
        return self._vectors_in(self._slots_of(ids))

    def _vectors_in(self, slots: np.ndarray) -> np.ndarray:
        X = np.empty((len(slots), self.n_features), np.float32)
        changes.read_slots(self._held, slots, X)
        return X

    def cosines(self, Q: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the cosines of queries and vectors, arrays of shape (n, m); 0 for an id that is not stored."""
        cosines = np.empty(ids.shape)
        changes.measure_cosines(self._held, Q, self._slots_of(ids.reshape(-1)).reshape(ids.shape), cosines)
        return cosines

    @property
    def _has_lists(self) -> bool:
        return bool(self._state.totals[N_LISTED] > 0)

    def insert(self, X: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Store finite vectors, C-contiguous and for the cosine not zero, and return their ids.

        Given ``ids`` must not be stored. By default they are consecutive and were not used before.
        """
        n, before = len(X), len(self)
        ids = np.arange(self.next_id, self.next_id + n) if ids is None else np.ascontiguousarray(ids)
        if n == 0:
            return ids
        try:
            self._change(changes.INSERT, ids, X)
        except BaseException:
            self.remove(ids[: len(self) - before])
            raise
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        self._measure((N_MEASURED_OF_OTHERS if self._gaps.have_copies else N_MEASURED) * n, N_SAMPLES)
        return ids

    def _change(self, change: int, ids: np.ndarray, X: np.ndarray) -> None:
        """Insert, replace or remove vectors. A few vectors are in no lists, which need more time and compilation."""
        self.version += 1
        n = len(self) + (len(ids) if change == changes.INSERT else 0)
        if n > self._state.vectors.ids.size:
            self._make_room(n - len(self))
        if not self._has_lists and n <= min(_FEW, _FEW_VALUES // self.n_features) and not self._needs_lists:
            changes.change_few(self._held, change, ids, X)
            return
        if not self._has_lists:
            self._set_origin(np.concatenate([self._vectors_in(np.arange(len(self))), X])[:_FEW])
        n_listed = int(self._state.totals[N_LISTED])
        if n_listed < len(self):
            self._change_lists(changes.ENTER, np.arange(len(self)), X[:0], n_listed)
        self._change_lists(change, ids, X)

    def _change_lists(self, change: int, ids: np.ndarray, X: np.ndarray, n_done: int = 0) -> None:
        while n_done < len(ids):
            n_done = changes.change_vectors(self._held, change, ids, X, n_done)
            if n_done < len(ids):
                self._make_room()

    def _set_origin(self, some: np.ndarray) -> None:
        """Choose the origin and the scale of codes for some of the first vectors in lists."""
        state, some = self._state, some.astype(np.float64)
        if self.metric == "euclidean":
            state.origin[:] = np.median(some, axis=0)
        lengths = np.sqrt(np.square(some - state.origin).sum(axis=1))
        state.numbers[SCALE] = 1.0 / np.median(lengths[lengths > 0.0]) if lengths.any() else 1.0

    def remove(self, ids: np.ndarray) -> None:
        """Remove stored vectors. Ids must be distinct."""
        self._change(changes.REMOVE, np.ascontiguousarray(ids), np.empty((0, self.n_features), np.float32))
        self._measure(N_MEASURED_OF_OTHERS * len(ids), N_RECENT)

    def replace(self, ids: np.ndarray, X: np.ndarray) -> None:
        """Replace stored vectors. Ids must be distinct."""
        self._change(changes.REPLACE, np.ascontiguousarray(ids), X)
        self._measure(N_MEASURED_OF_OTHERS * len(ids), N_RECENT)

    def reroute(self, n: int) -> None:
        """Refresh the lists of about ``n`` vectors: move their centers, and vectors to the nearest list."""
        self.version += 1
        if not self._has_lists:
            return
        left = -(-n * int(self._state.lists.counts[N_LISTS]) // max(len(self), 1))
        while (left := left - changes.refresh_lists(self._held, left)) > 0:
            self._make_room()

    def _measure(self, weight: int, most: int) -> None:
        """Measure the effort of searches on random stored vectors, in proportion to the number of changes.

        A change needs ``weight / len(self)`` samples, or more if they are alike. The effort is measured more often if
        the number of lists does not grow like that of vectors, because lists of equal size split at the same time. The
        ``most`` latest samples are kept.
        """
        n = len(self)
        if n <= _FEW:
            return
        self._due += weight / n * (MORE_IF_ALIKE if self._gaps.are_alike else 1)
        n_lists = int(self._state.lists.counts[N_LISTS])
        of_lists = N_MEASURED_OF_LISTS * abs(n_lists - self._n_lists_measured * n / self._n_measured) / n_lists
        n_samples = min(int(max(self._due, of_lists)), N_SAMPLES)
        if n_samples < N_AT_ONCE:
            return
        self._due, self._n_measured, self._n_lists_measured = 0.0, n, n_lists
        rng = np.random.default_rng([self.random_state, self._gaps.n_measured])
        slots, references = rng.integers(n, size=n_samples), rng.integers(n, size=N_REFERENCES)
        X = self._vectors_in(slots)
        radius = COPY * self._usual_distance(X, self._vectors_in(references))
        samples, contrasts = self._samples_of(X, slots, radius)
        n_between = n_samples // SAMPLES_PER_QUERY_BETWEEN
        between = self._between(X[:n_between], self._vectors_in(rng.integers(n, size=n_between)))
        _, of_between = self._samples_of(between, np.full(n_between, NONE))
        of_between[:, : RANKS.size] = np.nan
        self._gaps = self._gaps.with_samples(samples, np.concatenate([contrasts, of_between]), most)

    def _between(self, X: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return queries halfway between vectors and others."""
        A, B = (some.astype(np.float64) if self.metric == "euclidean" else _unit(some) for some in (X, others))
        return np.ascontiguousarray((A + B) / 2.0, np.float32)

    def _usual_distance(self, X: np.ndarray, references: np.ndarray) -> float:
        """Return the median distance of vectors from the nearest of some others, on the scale of codes."""
        A, B = X.astype(np.float64), references.astype(np.float64)
        scale = float(self._state.numbers[SCALE])
        if self.metric == "cosine":
            scale = 1.0
            A, B = _unit(A), _unit(B)
        squares = np.square(A).sum(axis=1)[:, None] - 2.0 * A @ B.T + np.square(B).sum(axis=1)
        return scale * float(np.sqrt(max(np.median(squares.min(axis=1)), 0.0)))

    def calibrate(self, Q: np.ndarray, ids: np.ndarray) -> None:
        """Measure the effort on given queries instead of stored vectors, until the next change.

        The vector with the id ``ids[i]``, which may be -1, does not count as a result of query ``i``.
        """
        if len(self) > _FEW:
            self._gaps = Gaps(*self._samples_of(Q, self._slots_of(ids)), 0, self.n_features, self.metric)

    def _samples_of(
        self, X: np.ndarray, ignored: np.ndarray, radius: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return samples and contrasts of equal rows for :class:`Gaps`.

        The vector in slot ``ignored[i]``, which may be NONE, does not count as a result of row ``i``. With a radius,
        the row is this vector, and vectors within the radius are near copies if the next vector is twice as far away as
        any of them.
        """
        samples = np.empty((len(X), N_COLUMNS), np.float32)
        contrasts = np.empty((len(X), N_CONTRAST_COLUMNS), np.float32)
        for first in range(0, len(X), N_AT_ONCE):
            span = slice(first, first + N_AT_ONCE)
            self._measure_some(X[span], ignored[span], radius, samples[span], contrasts[span])
        return samples, contrasts

    def _measure_some(
        self, X: np.ndarray, ignored: np.ndarray, radius: float | None, samples: np.ndarray, contrasts: np.ndarray
    ) -> None:
        n_ranks, is_stored = RANKS.size, radius is not None
        gaps, distances, by_angle, n_groups = self._gaps_of(X, ignored, 0.0, is_stored)
        contrasts[:, :n_ranks] = squares = np.square(np.fmin.accumulate(by_angle, axis=1))
        contrasts[:, n_ranks:] = gaps / np.maximum(squares, 1e-24)
        samples[:, :n_ranks], samples[:, n_ranks:-2] = gaps, self._per_distance(gaps, distances)
        samples[:, -2], samples[:, -1] = 0.0, n_groups
        near = np.flatnonzero(distances[:, 0] <= (radius or -1.0))
        if near.size > 0:
            others, their_distances, *_ = self._gaps_of(X[near], ignored[near], radius or 0.0, is_stored)
            farthest_copies = np.where(distances[near] <= radius, distances[near], 0.0).max(axis=1)
            is_apart = ~(their_distances[:, 0] < 2.0 * farthest_copies)
            samples[near, -2] = is_apart
            samples[near[is_apart], n_ranks:-2] = self._per_distance(others, their_distances)[is_apart]

    def _per_distance(self, gaps: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Return gaps per distance of the vectors, or for inner products the gaps themselves."""
        return gaps.copy() if self.metric == "inner_product" else gaps / np.maximum(distances, 1e-12)

    def _nearest(self, X: np.ndarray, ignored: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the nearest vectors without copies, and the number of copies in each list."""
        slots = np.empty((len(X), RANKS[-1]), np.int64)
        n_copies = np.zeros((len(X), int(self._state.lists.counts[N_LISTS])), np.int32)
        find_nearest(self._held, X, ignored, np.float32(radius), slots, n_copies)
        return slots, n_copies

    def _gaps_of(self, X: np.ndarray, ignored: np.ndarray, radius: float, is_stored: bool) -> tuple[np.ndarray, ...]:
        """Return the gaps of the nearest vectors, their distances, also by angle, and the numbers of groups."""
        slots, n_copies = self._nearest(X, ignored, radius)
        if not is_stored:
            n_copies[:] = 0
        return self._gaps_at(X, np.ascontiguousarray(slots[:, RANKS - 1]), n_copies)

    def _gaps_at(self, X: np.ndarray, slots: np.ndarray, n_copies: np.ndarray) -> tuple[np.ndarray, ...]:
        gaps, distances, by_angle = np.empty((3, *slots.shape), np.float32)
        n_groups = np.empty(len(X), np.float32)
        find_gaps(self._held, X, slots, n_copies, gaps, distances, by_angle, n_groups)
        return gaps, distances, by_angle, n_groups

    def allow(self, ids: np.ndarray) -> Allowed:
        """Return the set of stored vectors that a search may return. It is valid until the next change."""
        return Allowed(self, self.version, self._slots_of(ids))

    def allows(self, among: Allowed, ids: np.ndarray) -> np.ndarray:
        """Return whether a search may return each id. Other ids than those of stored vectors are not allowed."""
        there = self.contains(ids)
        slots = self._slots_of(ids[there])
        bits = among.mask(self._state).words[slots >> 6] >> (slots & 63).astype(np.uint64)
        there[there] = (bits & np.uint64(1)).astype(np.bool_)
        return there

    def search(
        self, Q: np.ndarray, k: int, target_recall: float = 0.95, among: Allowed | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the float64 scores of the ``k`` best vectors for each query, padded with -1 and -inf.

        Equal scores are sorted by id. With a ``target_recall`` of 1, the search is exact. ``among`` is the result of
        :meth:`allow`: only these vectors are returned.
        """
        n_rows, n = len(Q), len(self)
        ids, scores = np.empty((n_rows, k), np.int64), np.empty((n_rows, k))
        slots, mask, is_exact = None, _ALL, target_recall >= 1.0 or self._state.totals[N_FAR] > 0
        if among is not None:
            if among.owner is not self or among.version != self.version:
                raise ValueError("the set of allowed vectors is of another index or of an earlier version of this one")
            slots = among.slots
            most = _FEW_FOR_BATCH if n_rows >= _ROWS_OF_A_BATCH else max(_FEW, min(n // _MANY_TIMES, _FEW_OF_MANY))
            if len(slots) > most and not is_exact:
                slots, mask = None, among.mask(self._state)
        elif n <= _FEW or is_exact:
            slots = np.arange(n)
        kernel: Any = compare_slots
        arguments: tuple[Any, Any]
        vectors, n_at_once = None, 0
        if slots is None:
            together = n_rows > _FEW_ROWS + int(self._state.lists.counts[N_LISTS]) // _LISTS_PER_ROW
            kernel = search_together if together else search_one_by_one
            arguments = self._gaps.effort(target_recall), tuple(mask)
        else:
            by_product = n_rows >= _ROWS_OF_A_PRODUCT and self.metric != "euclidean"
            arguments = slots, _NO_PRODUCTS
            if slots.size > (_FEW if by_product else _FEW_VALUES // self.n_features):
                arguments = SlotChoice(slots, bool(is_exact or slots.size <= _FEW)), _ALL
            else:
                kernel = compare_few
                if by_product:
                    vectors, n_at_once = self._vectors_in(slots), _PRODUCTS_AT_ONCE // max(slots.size, 1)
                    n_threads = min(n_threads, 1 + n_rows * vectors.size // _PRODUCTS_OF_A_THREAD)

        def answer(first: int, stop: int) -> None:
            if vectors is None:
                kernel(self._held, Q, first, stop, *arguments, scores, ids)
                return
            for at in range(first, stop, n_at_once):
                end = min(at + n_at_once, stop)
                compare_few(self._held, Q, at, end, slots, _products(Q[at:end], vectors), scores, ids)

        self._n_searches += 1
        is_timed = self._n_searches % _SEARCHES_PER_TIME == 1 and n_rows > 0
        with keeping_interpreter(n_rows, self._microseconds.get(kernel, 0.0), _KEPT_MICROSECONDS):
            before = thread_time() if is_timed else 0.0
            share_rows(answer, n_rows, n_threads)
            if is_timed:
                self._microseconds[kernel] = 1e6 * (thread_time() - before) / n_rows
        if slots is None and among is None:
            self._check(self._checks.due(Q, k, target_recall, together))
        return ids, scores

    @property
    def recall_seen(self) -> float | None:
        """The mean recall of the latest queries that were also compared with all vectors, or None without such queries.

        About one query in 1,000 is compared with all vectors. They also become samples for the effort.
        """
        return self._checks.recall

    def _check(self, queries: list[CheckedQuery]) -> None:
        """Compare queries with all vectors, note the recall of searches, and add samples for the effort."""
        if not queries:
            return
        X = np.array([query.x for query in queries])
        slots, n_copies = self._nearest(X, np.full(len(X), NONE), 0.0)
        samples = np.zeros((len(X), N_COLUMNS), np.float32)
        gaps, distances, _, n_groups = self._gaps_at(X, np.ascontiguousarray(slots[:, RANKS - 1]), n_copies)
        samples[:, : RANKS.size], samples[:, RANKS.size : -2] = gaps, self._per_distance(gaps, distances)
        samples[:, -1] = n_groups
        recalls = []
        for query, nearest in zip(queries, slots, strict=True):
            k = min(query.k, int(RANKS[-1]))
            scores, ids = np.empty((1, k)), np.empty((1, k), np.int64)
            compare_few(self._held, query.x[None], 0, 1, nearest[nearest != NONE], _NO_PRODUCTS, scores, ids)
            found = np.empty((1, k)), np.empty((1, k), np.int64)
            effort = self._gaps.effort(query.target_recall)
            search_one_by_one(self._held, query.x[None], 0, 1, effort, tuple(_ALL), *found)
            recalls.append(float(np.mean(found[0] >= scores[0, -1])))
        self._checks.add(recalls)
        self._gaps = self._gaps.with_samples(samples, np.empty((0, N_CONTRAST_COLUMNS), np.float32))

    def recall(self, Q: np.ndarray, k: int, target_recall: float) -> float:
        """Return the fraction of the true ``k`` best vectors that a search with this target finds."""
        k = min(k, len(self))
        if k == 0 or len(Q) == 0:
            return 1.0
        found, _ = self.search(Q, k, target_recall)
        best, _ = self.search(Q, k, 1.0)
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(best, found, strict=True)]))

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the persistent state: arrays, and facts that JSON can express. Arrays may be views."""
        arrays = used_arrays(self._state) | {"vectors": used_vectors(self._state), "samples": self._gaps.samples}
        arrays["contrasts"] = self._gaps.contrasts
        facts = {
            "n_features": self.n_features,
            "metric": self.metric,
            "random_state": self.random_state,
            "next_id": self.next_id,
            "due": self._due,
            "n_measured": self._n_measured,
            "n_lists_measured": self._n_lists_measured,
            "n_samples": self._gaps.n_measured,
        }
        return arrays, facts

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with a state that :meth:`arrays` has returned. Raise InvariantError if it is invalid.

        The vectors may be a memory map with mode "c"; changes of vectors are made in memory. All other arrays are
        copied.
        """
        require(facts.get("metric") in METRICS, "the metric must be known")
        for name in ("n_features", "random_state", "next_id", "n_measured", "n_lists_measured", "n_samples"):
            is_valid = isinstance(facts.get(name), int) and 0 <= facts[name] < 1 << 62
            require(is_valid, f"{name} must be a non-negative integer")
        require(facts["n_features"] > 0, "n_features must be positive")
        require(facts["n_measured"] > 0, "n_measured must be positive")
        require(
            isinstance(facts.get("due"), float) and 0.0 <= facts["due"] < N_SAMPLES, "due must be a number of samples"
        )
        require(arrays["vectors"].shape[1:] == (facts["n_features"],), "vectors must have n_features columns")
        index = cls(facts["n_features"], facts["metric"], facts["random_state"])
        state = restored(index._state, arrays)
        check_state(state, facts["next_id"])
        changes.derive(state)
        index._set_state(with_room(state, 1))  # now, so that the first change takes no longer than others
        require(index._state.totals[METRIC] == METRICS[index.metric], "the metrics must agree")
        for name, n_columns, most in (
            ("samples", N_COLUMNS, N_SAMPLES),
            ("contrasts", N_CONTRAST_COLUMNS, 2 * N_SAMPLES),
        ):
            found = arrays[name]
            is_valid = found.dtype == np.float32 and found.ndim == 2 and found.shape[1] == n_columns
            require(is_valid, f"{name} must be float32 with {n_columns} columns")
            require(len(found) <= most, f"there must be at most {most} {name}")
        index.next_id, index._due = facts["next_id"], facts["due"]
        index._n_measured, index._n_lists_measured = facts["n_measured"], facts["n_lists_measured"]
        index._gaps = Gaps(
            arrays["samples"].copy(), arrays["contrasts"].copy(), facts["n_samples"], index.n_features, index.metric
        )
        return index

    def copy(self) -> Self:
        """Return an independent copy."""
        arrays, facts = self.arrays()
        return type(self).of_arrays(arrays | {"vectors": arrays["vectors"].copy()}, facts)

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        check_state(self._state, self.next_id)
        ids = self._state.vectors.ids[: len(self)]
        require(np.array_equal(self._slots_of(ids), np.arange(len(ids))), "the hash table must find each id")
