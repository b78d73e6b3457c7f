"""``DenseIndex``: stores dense vectors and finds the nearest ones to queries."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._change import share_rows
from .._forest import NONE, require
from .._jit import TILE, held, keeping_interpreter
from . import changes
from .effort import N_AT_ONCE, N_MEASURED, N_MEASURED_OF_LISTS, N_NEAREST, N_SAMPLES, Gaps
from .few_vectors import compare_few
from .invariants import check_state
from .sample_search import find_nearest
from .search import Mask, RowRange, SlotChoice, compare_slots, count_allowed, find_gaps, search_rows
from .state import (
    COSINE,
    EUCLIDEAN,
    INNER_PRODUCT,
    METRIC,
    N_FAR,
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
_MICROSECONDS = 100.0  # estimated time of a search per row
_ALL = Mask(np.empty(0, np.uint64), np.empty(0, np.int64))


def _products(Q: np.ndarray, vectors: np.ndarray | None) -> np.ndarray:
    """Return the products of queries and vectors in float32, or without vectors an empty array."""
    if vectors is None:
        return np.empty((0, 0), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(Q @ vectors.T)


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
    provides the lock: changes need exclusive access, and searches may run concurrently.
    """

    def __init__(self, n_features: int, metric: str = "cosine", random_state: int = 0) -> None:
        self.n_features, self.metric, self.random_state = n_features, metric, random_state
        self.next_id, self.version = 0, 0
        self._state = new_state(n_features, METRICS[metric], random_state)
        self._held = held(self._state)
        self._gaps = Gaps(np.empty((0, N_NEAREST + 2), np.float32), 0, n_features)
        self._n_due, self._n_lists_measured = 0, 1  # changes since the last sample, and the lists then

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
        return int(np.count_nonzero(self._state.lists.sizes[: self._state.lists.counts[N_LISTS]]))

    def list_means(self) -> np.ndarray:
        """Return the mean of the vectors in each list, float32, shape (n_lists, n_features)."""
        n, lists = len(self), self._state.lists
        list_of = lists.list_of[lists.places[:n] // TILE]
        _, numbers, counts = np.unique(list_of, return_inverse=True, return_counts=True)
        sums = np.zeros((counts.size, self.n_features))
        np.add.at(sums, numbers, used_vectors(self._state))
        return (sums / counts[:, None]).astype(np.float32)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        return self._slots_of(ids) != NONE

    def _slots_of(self, ids: np.ndarray) -> np.ndarray:
        slots = np.empty(len(ids), np.int64)
        changes.find_ids(self._held, np.ascontiguousarray(ids), slots)  # a strided array would compile it again
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

    def insert(self, X: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Store finite vectors, C-contiguous and for the cosine not zero, and return their ids.

        Given ``ids`` must not be stored. By default they are consecutive and were not used before.
        """
        n, before = len(X), len(self)
        ids = np.arange(self.next_id, self.next_id + n) if ids is None else ids
        if n == 0:
            return ids
        if before == 0:
            self._set_origin(X)
        self.version += 1
        n_done = 0
        try:
            if before + n > self._state.vectors.ids.size:
                self._make_room(n)
            while (n_done := changes.insert_vectors(self._held, X, ids, n_done)) < n:
                self._make_room(n - n_done)
        except BaseException:
            self.remove(ids[: len(self) - before])
            raise
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        self._measure(n)
        return ids

    def _set_origin(self, X: np.ndarray) -> None:
        """Choose the origin and the scale of codes for the first vectors of an empty index."""
        state, some = self._state, X[:_FEW].astype(np.float64)
        if self.metric == "euclidean":
            state.origin[:] = np.median(some, axis=0)
        lengths = np.sqrt(np.square(some - state.origin).sum(axis=1))
        state.numbers[SCALE] = 1.0 / np.median(lengths[lengths > 0.0]) if lengths.any() else 1.0

    def remove(self, ids: np.ndarray) -> None:
        """Remove stored vectors. Ids must be distinct."""
        self.version += 1
        n = 0
        while (n := changes.remove_ids(self._held, ids, n)) < len(ids):
            self._make_room()
        self._measure(len(ids))

    def replace(self, ids: np.ndarray, X: np.ndarray) -> None:
        """Replace stored vectors. Ids must be distinct."""
        self.version += 1
        slots, n = self._slots_of(ids), 0
        while (n := changes.replace_slots(self._held, slots, X, n)) < len(ids):
            self._make_room()
        self._measure(len(ids))

    def reroute(self, n: int) -> None:
        """Refresh the lists of about ``n`` vectors: move their centers, and vectors to the nearest list."""
        self.version += 1
        left = -(-n * int(self._state.lists.counts[N_LISTS]) // max(len(self), 1))
        while (left := left - changes.refresh_lists(self._held, left)) > 0:
            self._make_room()

    def _measure(self, n_changes: int) -> None:
        """Measure the effort of searches on random stored vectors, in proportion to the number of changes.

        It is measured more often if lists of equal size split at the same time.
        """
        n = len(self)
        if n <= _FEW:
            return
        self._n_due += n_changes
        n_lists = int(self._state.lists.counts[N_LISTS])
        changed, lists_changed = self._n_due / n, abs(n_lists - self._n_lists_measured) / n_lists
        n_samples = min(int(N_MEASURED * changed + N_MEASURED_OF_LISTS * max(lists_changed - changed, 0.0)), N_SAMPLES)
        if n_samples < N_AT_ONCE:
            return
        self._n_due, self._n_lists_measured = 0, n_lists
        rng = np.random.default_rng([self.random_state, self._gaps.n_measured])
        slots = rng.integers(n, size=n_samples)
        X = self._vectors_in(slots)
        self._gaps.add(self._gaps_of(X, slots, slots))

    def calibrate(self, Q: np.ndarray, ids: np.ndarray) -> None:
        """Measure the effort on given queries instead of stored vectors, until the next change.

        The vector with the id ``ids[i]``, which may be -1, does not count as a result of query ``i``.
        """
        if len(self) > _FEW:
            self._gaps = Gaps(self._gaps_of(Q, self._slots_of(ids), np.full(len(Q), NONE)), 0, self.n_features)

    def _gaps_of(self, X: np.ndarray, ignored: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return samples for :class:`Gaps`.

        The vector in slot ``ignored[i]`` does not count as a result of row ``i``. The row is the vector in slot
        ``own[i]``. Both may be NONE.
        """
        n, k = len(X), min(N_NEAREST, len(self) - 1)
        nearest, gaps = np.empty((n, k), np.int64), np.full((n, N_NEAREST + 2), np.nan, np.float32)
        find_nearest(self._held, X, ignored, nearest)
        found, apart, n_groups = np.empty((n, k), np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
        find_gaps(self._held, own, X, nearest, found, n_groups, apart)
        gaps[:, :k], gaps[:, -2], gaps[:, -1] = found, n_groups, apart
        return gaps

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
        slots, mask = None, _ALL
        is_exact = target_recall >= 1.0 or self._state.totals[N_FAR] > 0
        if among is not None:
            if among.owner is not self or among.version != self.version:
                raise ValueError("the set of allowed vectors is of another index or of an earlier version of this one")
            slots = among.slots
            most = _FEW_FOR_BATCH if n_rows >= _ROWS_OF_A_BATCH else max(_FEW, min(n // _MANY_TIMES, _FEW_OF_MANY))
            if len(slots) > most and not is_exact:
                slots, mask = None, among.mask(self._state)
        elif n <= _FEW or is_exact:
            slots = np.arange(n)
        by_product = n_rows >= _ROWS_OF_A_PRODUCT and self.metric != "euclidean"
        if slots is not None and slots.size <= (_FEW if by_product else _FEW_VALUES // self.n_features):
            vectors, n_at_once = None, max(n_rows, 1)
            if by_product:
                vectors, n_at_once = self._vectors_in(slots), _PRODUCTS_AT_ONCE // max(slots.size, 1)
                n_threads = min(n_threads, 1 + n_rows * vectors.size // _PRODUCTS_OF_A_THREAD)

            def answer(first: int, stop: int) -> None:
                for at in range(first, stop, n_at_once):
                    end = min(at + n_at_once, stop)
                    compare_few(self._held, Q, at, end, slots, _products(Q[at:end], vectors), scores, ids)

        elif slots is not None:
            choice = SlotChoice(slots, bool(is_exact or slots.size <= _FEW))

            def answer(first: int, stop: int) -> None:
                compare_slots(self._held, Q, RowRange(first, stop, n_rows > 1), choice, _ALL, scores, ids)

        else:
            effort = self._gaps.effort(target_recall)
            together = n_rows > _FEW_ROWS + int(self._state.lists.counts[N_LISTS]) // _LISTS_PER_ROW

            def answer(first: int, stop: int) -> None:
                search_rows(self._held, Q, RowRange(first, stop, together), effort, mask, scores, ids)

        with keeping_interpreter(n_rows, _MICROSECONDS):
            share_rows(answer, n_rows, n_threads)
        return ids, scores

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
        arrays = used_arrays(self._state) | {"vectors": used_vectors(self._state), "gaps": self._gaps.samples}
        facts = {
            "n_features": self.n_features,
            "metric": self.metric,
            "random_state": self.random_state,
            "next_id": self.next_id,
            "n_due": self._n_due,
            "n_lists_measured": self._n_lists_measured,
            "n_measured": self._gaps.n_measured,
        }
        return arrays, facts

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with a state that :meth:`arrays` has returned. Raise InvariantError if it is invalid.

        The vectors may be a memory map with mode "c"; changes of vectors are made in memory. All other arrays are
        copied.
        """
        require(facts.get("metric") in METRICS, "the metric must be known")
        for name in ("n_features", "random_state", "next_id", "n_due", "n_lists_measured", "n_measured"):
            is_valid = isinstance(facts.get(name), int) and 0 <= facts[name] < 1 << 62
            require(is_valid, f"{name} must be a non-negative integer")
        require(facts["n_features"] > 0, "n_features must be positive")
        require(arrays["vectors"].shape[1:] == (facts["n_features"],), "vectors must have n_features columns")
        index = cls(facts["n_features"], facts["metric"], facts["random_state"])
        state = restored(index._state, arrays)
        check_state(state, facts["next_id"])
        changes.derive(state)
        index._set_state(state)
        require(index._state.totals[METRIC] == METRICS[index.metric], "the metrics must agree")
        gaps = arrays["gaps"]
        require(
            gaps.dtype == np.float32 and gaps.ndim == 2 and gaps.shape[1] == N_NEAREST + 2 and len(gaps) <= N_SAMPLES,
            f"gaps must be float32 with {N_NEAREST + 2} columns",
        )
        index.next_id, index._n_due = facts["next_id"], facts["n_due"]
        index._n_lists_measured = facts["n_lists_measured"]
        index._gaps = Gaps(gaps.copy(), facts["n_measured"], index.n_features)
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
