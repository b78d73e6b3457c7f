"""``Forest``: the state of a forest, its lock, its random streams, and its division of work among threads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numba
import numpy as np

from .._change import Pace, ReadWriteLock, TimedSteps, Workers, in_own_thread, progress_bar, workers
from .._forest import (
    DONE,
    N_MEMORIES,
    NEXT_ID,
    Eviction,
    Leaves,
    Linkage,
    Parameters,
    Rows,
    State,
    TreeRange,
    count_bytes,
    draw_word,
    find_slots,
    finisher_of,
    invariants,
    new_eviction,
    new_state,
    require,
    undo_moves,
    with_more,
    with_spare_room,
)
from .._heads import VectorLists
from .._validation import check_known, check_rows, unit_rows
from .filters import ArrayCache, Filter
from .options import ROUTER_LOSSES, SCORER_LOSSES

_FIRST_ROWS, _FIRST_INSERTS = 16, 128  # in a first step: rows, or inserts into single trees of about 20 us each
_ROWS_WORTH_A_THREAD = 64  # below this, starting a thread costs more than it saves


class QueryJournal(Protocol):
    """The part of a journal that queries use."""

    def draw_word(self) -> int:
        """Return 64 bits of the random stream for queries. The draw is journaled."""

    def note_returned(self, ids: np.ndarray) -> None:
        """Journal which memories a query has returned."""


class Forest:
    """A forest of trees over one store of memories. The functions of this package work on it.

    They expect rows of unit length, of the form and width of the stored keys.

    Parameters
    ----------
    options : dict of str to object
        The options of a tree, without ``n_threads`` and ``random_state``, validated.
    n_threads : int or None
        The number of threads for batches; None for as many as numba uses.
    streams : ndarray of uint64, shape (n_trees + 1,)
        The initial random streams: one for each tree, and one for queries.

    Attributes
    ----------
    n_trees : int
        The number of trees.
    lock : ReadWriteLock
        The lock for reads and steps.
    state : State or None
        All arrays; None before the first insert, which sets the form and the width of keys. See :meth:`put`.
    eviction, links
        The eviction policy and the links between memories.
    lists : VectorLists or None
        Cluster lists of the memories, if searches have asked for them.
    filters : ArrayCache
        Filters of recent queries.
    pace : Pace
        The length of steps.
    journal : QueryJournal or None
        The journal, if the forest is in a folder.
    last_evicted : ndarray of int64
        The ids of the memories that the last insert evicted.
    evicts : ndarray of int64, or None
        The ids of the memories to evict while a journal is replayed; otherwise None, and the policy chooses.
    """

    def __init__(self, options: dict[str, Any], n_threads: int | None, streams: np.ndarray) -> None:
        self.options, self.n_threads, self.streams = options, n_threads, streams
        self.n_trees = int(options["n_trees"])
        self.lock = self._lock = ReadWriteLock()
        self.filters: ArrayCache[Filter] = ArrayCache()
        self.pace = Pace(max(_FIRST_ROWS, _FIRST_INSERTS // self.n_trees))
        self.has_warned = False  # whether it has warned of updates without effect
        self.journal: QueryJournal | None = None
        self.last_evicted = np.empty(0, np.int64)
        self.evicts: np.ndarray | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all memories and everything learned, as if nothing had been inserted."""
        self.state: State | None = None
        self._view: tuple[State, Any] | None = None
        self._finisher: Any = None
        self.eviction = new_eviction(self.options["eviction"], bounded=self.options["max_memories"] is not None)
        self.links = Linkage(self.options["n_links"])
        self.lists: VectorLists | None = None

    # Contents

    @property
    def n_memories(self) -> int:
        """Number of memories stored."""
        state = self.state
        return 0 if state is None else state.keys.totals.item(N_MEMORIES)

    @property
    def next_id(self) -> int:
        """The id of the next memory."""
        state = self.state
        return 0 if state is None else state.keys.totals.item(NEXT_ID)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        state = self.state
        if state is None:
            return 0
        of_lists = 0 if self.lists is None else self.lists.nbytes
        return count_bytes(state) + self.eviction.nbytes + self.links.nbytes + of_lists

    def ids(self) -> np.ndarray:
        """Return the ids of all memories by slot."""
        return self.lock.read(
            lambda: np.empty(0, np.int64) if self.state is None else self.state.keys.ids[: self.n_memories].copy()
        )

    def depth(self) -> int:
        """Return the maximum number of internal nodes between a root and a leaf."""
        return self.lock.read(lambda: 0 if self.state is None else invariants.depth(self.state))

    def leaves(self) -> Leaves:
        """Return the tree, the depth and the size of every leaf."""
        if self.state is None:
            zeros = np.zeros(self.n_trees, np.int64)
            return Leaves(np.arange(self.n_trees, dtype=np.int64), zeros, zeros.copy())
        return self.lock.read(lambda: invariants.leaves(self.allocated()))

    def slots_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id, or -1 if it is not stored."""
        slots, state = np.empty(ids.size, np.int64), self.state
        slots.fill(-1)
        if state is not None:
            find_slots(state.keys, ids, slots)
        return slots

    def known_slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id. Raises KeyError if one is not stored."""
        slots = self.slots_of(ids)
        if slots.size > 0:
            check_known(ids, slots)
        return slots

    def check(self) -> None:
        """Raise InvariantError if an invariant of the trees, the keys, the links or the policy is violated."""
        if self.state is not None:
            invariants.check(self.state)
            with self.lock.instant:
                self.eviction.check(self.state)
            self.links.check(self.state)
            if self.lists is not None:
                self.lists.check(self.n_memories)
            self.check_bound()

    def check_bound(self) -> None:
        """Raise InvariantError if there are more memories than ``max_memories``."""
        most = self.options["max_memories"]
        require(most is None or self.n_memories <= most, f"there are {self.n_memories} memories, more than {most}")

    # Rows

    def check_rows(self, X: Any) -> Rows:
        """Return ``X`` as rows of the form and width of the stored keys. Raises TypeError or ValueError."""
        if self.state is None:
            return check_rows(X, n_threads=self.most_threads())
        parameters = self.state.parameters
        return check_rows(X, sparse=parameters.sparse, n_features=parameters.n_features, n_threads=self.most_threads())

    def unit_rows(self, X: Any) -> Rows:
        """Return the result of ``check_matrix`` as rows."""
        state = self.state
        sparse = None if state is None else state.parameters.sparse
        return unit_rows(X, sparse=sparse, n_threads=self.most_threads())

    def fitting_state(self, rows: Rows) -> State | None:
        """Return the state if its keys have the form and the width of the rows, else None.

        Another thread may have made the first insert, or a first insert may have failed, since the rows were validated.
        """
        state = self.state
        if state is None:
            return None
        parameters = state.parameters
        return state if parameters.n_features == rows.n_features and parameters.sparse == rows.sparse else None

    # The state

    def allocated(self) -> State:
        """Return the state, which must exist."""
        assert self.state is not None
        return self.state

    def new_state(self, rows: Rows) -> State:
        """Return an empty state for keys of the form and width of these rows."""
        return new_state(kernel_parameters(self.options, rows.n_features, rows.sparse), self.streams)

    def put(
        self,
        state: State,
        eviction: Eviction | None = None,
        links: Linkage | None = None,
        lists: VectorLists | None = None,
    ) -> None:
        """Replace the state, and with it the policy, links and lists if memories have moved to other slots."""
        if state is not self.state:
            self.state, self.eviction, self.links = state, eviction or self.eviction, links or self.links
            self.lists = lists or self.lists
            self._view = None  # it refers to the arrays of the former state

    def view(self, state: State | None = None) -> Any:
        """Return the forest in the form that kernels take. The last one is cached."""
        state = state or self.state
        known = self._view
        if known is None or known[0] is not state:
            assert state is not None
            known = self._view = state, state.view()
        return known[1]

    def finisher(self) -> Any:
        """Return the address of the kernel that finishes steps, for kernels that move memories."""
        if self._finisher is None:
            self._finisher = finisher_of(self.allocated().parameters, self.view())
        return self._finisher

    def copy(self) -> Forest:
        """Return an independent copy, which continues exactly as this forest would.

        No other thread may change it meanwhile.
        """
        with self.lock.instant:  # queries may draw random numbers meanwhile
            twin = Forest(self.options, self.n_threads, self.streams.copy())
            twin.state, twin.eviction, twin.links = copy.deepcopy((self.state, self.eviction, self.links))
            twin.lists = None if self.lists is None else self.lists.copy()
        twin.pace, twin.has_warned = self.pace, self.has_warned
        return twin

    # Random numbers

    def draw_word(self) -> int:
        """Return 64 bits of the random stream for queries, as part of a change."""
        with self.lock.instant:
            streams = self.allocated().streams
            return int(draw_word(streams, streams.size - 1))

    def new_generator(self) -> np.random.Generator:
        """Return a random generator seeded by the random stream for queries."""
        return np.random.Generator(np.random.PCG64(self.draw_word()))

    # Threads and steps

    def most_threads(self) -> int:
        """Return the number of threads for large batches."""
        return self.n_threads or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]

    def threads_for(self, n_rows: int) -> int:
        """Return the number of threads for a number of rows."""
        return max(1, min(self.most_threads(), n_rows // _ROWS_WORTH_A_THREAD))

    def is_one_step(self, n_rows: int, progress: bool) -> bool:
        """Return whether :meth:`in_steps` takes all rows in its first step."""
        return n_rows <= self.pace.first and not progress

    def in_steps(
        self, n: int, unit: str, progress: bool, step: Callable[[Workers, int, int], None], n_new: int = 0
    ) -> None:
        """Call ``step(run, start, stop)`` for spans of the rows ``0 .. n``, of which ``n_new`` are new memories.

        Other threads read between the steps. Large arrays also grow between steps, since copying them takes long.
        """
        n_memories = self.n_memories + n_new
        if self.is_one_step(n, progress):
            self.put(with_spare_room(self.allocated(), n, n_memories))
            self.lock.step(partial(step, in_own_thread, 0, n))
            return
        steps = TimedSteps(0, n, self.pace)
        with progress_bar(n, unit, progress) as report, workers(self.threads_for(n)) as run:
            work = partial(step, run)
            for start, stop in steps:
                self.put(with_spare_room(self.allocated(), stop - start, n_memories))
                self.lock.step(partial(steps.take, work, start, stop))
                report(stop - start)

    def on_each_tree(
        self, run: Workers, kernel: Callable[..., int], *arguments: Any, n_memories: int | None = None
    ) -> None:
        """Call ``kernel(view, trees, *arguments)`` for all trees, and allocate larger arrays when they are full.

        The kernel returns DONE, or which array is full; it can then be called again. Each tree writes only to its own
        memory, so trees run in parallel; a single thread takes all of them in one call. Arrays grow while no tree runs,
        for ``n_memories`` if given. If this fails, memories that were being moved are put back, so that readers find
        all of them.
        """
        n_trees = self.n_trees
        waiting = [TreeRange(0, n_trees)] if run is in_own_thread else [TreeRange(t, t + 1) for t in range(n_trees)]
        try:
            while True:
                view = self.view()
                if run is in_own_thread:
                    statuses = [kernel(view, waiting[0], *arguments)]
                else:
                    statuses = run(lambda trees: kernel(view, trees, *arguments), waiting)  # noqa: B023
                if not any(statuses):
                    return
                waiting = [trees for trees, status in zip(waiting, statuses, strict=True) if status != DONE]
                for status in sorted(set(statuses) - {DONE}):
                    self.put(with_more(self.allocated(), status, n_memories or self.n_memories))
        except BaseException:
            self.undo_moves()
            raise

    def undo_moves(self) -> None:
        """Put back memories that were being moved when a failure occurred."""
        undo_moves(self.view())


def kernel_parameters(options: dict[str, Any], n_features: int, sparse: bool) -> Parameters:
    """Return the options of a forest in the form that kernels take, for keys of a form and width."""
    named = {name: value for name, value in options.items() if name in Parameters._fields}
    return Parameters(
        **named
        | {
            "n_features": n_features,
            "sparse": sparse,
            "router_loss": ROUTER_LOSSES.index(options["router_loss"]),
            "scorer_loss": SCORER_LOSSES.index(options["scorer_loss"]),
            "coded": options["keep"] == "codes" and not sparse,
        }
    )
