"""The driver: it owns the state of a forest and runs kernels on it, step by step and in threads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numba
import numpy as np

from .._concurrency.rwlock import ReadWriteLock, changes
from .._concurrency.workers import Pace, Steps, Workers, in_own_thread, progress_bar, workers
from .._forest.allocation import with_more, with_spare_room
from .._forest.eviction import Eviction, new_eviction
from .._forest.insert_remove import remove_slots_from, undo_move
from .._forest.key_store import drop_keys_from, find_slots
from .._forest.links import Linkage
from .._forest.rng import draw_word
from .._forest.rows import Rows
from .._forest.state import COUNT, DONE, N_MEMORIES, Parameters, Some, State, new_state
from .._jit import uninterrupted
from .filters import Filter, Remembered

_ROWS_WORTH_A_THREAD = 64  # below this, starting a thread costs more than it saves
_REMOVALS_IN_A_STEP = 1000


class Driver:
    """The state of a forest, and what runs kernels on it.

    Parameters
    ----------
    options : dict of str to object
        The fields of :class:`~cmt_numba._forest.state.Parameters`, except for the form and the width of keys.
    max_memories : int or None
        The maximum number of memories.
    eviction : str
        The eviction policy, one of ``EVICTIONS``.
    n_links : int
        With how many others a memory is linked at most.
    n_threads : int or None
        The number of threads for batches; None for as many as numba uses.
    seed : numpy.random.SeedSequence
        What the random streams start from.
    """

    _pace = Pace()
    _of_searches: tuple[State, Any] | None = None  # what searches read of which state
    _the_state: State | None = None

    def __init__(
        self,
        options: dict[str, Any],
        *,
        max_memories: int | None,
        eviction: str,
        n_links: int,
        n_threads: int | None,
        seed: np.random.SeedSequence,
    ) -> None:
        self._options = options
        self._bound: dict[str, Any] = {"max_memories": max_memories, "eviction": eviction}
        self._eviction = self._new_eviction()
        self._n_links = n_links
        self._links = Linkage(n_links)
        self._n_threads = n_threads
        self._filters: Remembered[Filter] = Remembered()
        # The initial random streams: one for each tree, and one more for queries.
        self._streams = seed.generate_state(options["n_trees"] + 1, np.uint64)
        self._state = None  # allocated by the first insert, which sets the form and the width of keys
        self._lock = ReadWriteLock()

    @property
    def n_memories(self) -> int:
        """Number of memories stored."""
        state = self._the_state
        return 0 if state is None else int(state.keys.totals.item(N_MEMORIES))

    @property
    def _state(self) -> State | None:
        return self._the_state

    @_state.setter
    def _state(self, state: State | None) -> None:
        if state is not self._the_state:
            self._of_searches = None  # it would keep the arrays of the former state
        self._the_state = state

    def _searched(self, state: State) -> Any:
        """Return what searches read of the state, as kernels take it; made once for each state."""
        known = self._of_searches
        if known is None or known[0] is not state:
            known = self._of_searches = state, state.searched
        return known[1]

    def _allocated(self) -> State:
        assert self._state is not None
        return self._state

    def _new_state(self, rows: Rows) -> State:
        """Return an empty state for keys of the form and width of these rows."""
        options = self._options | {"coded": self._options["coded"] and not rows.sparse}
        return new_state(Parameters(n_features=rows.n_features, sparse=rows.sparse, **options), self._streams)

    def _new_eviction(self) -> Eviction:
        return new_eviction(self._bound["eviction"], bounded=self._bound["max_memories"] is not None)

    def _slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slots of memories, -1 for ids that are not stored."""
        slots, state = np.empty(ids.size, np.int64), self._state
        slots.fill(-1)
        if state is not None:
            find_slots(state.keys, ids, slots)
        return slots

    @changes  # nothing, but other changes must wait
    def _twin(self) -> Self:
        """Return a forest that goes on exactly as this one would, and shares nothing with it."""
        twin = object.__new__(type(self))
        with self._lock.instant:  # queries may draw random numbers meanwhile
            own = ("_streams", "_the_state", "_eviction", "_links")
            copied = {name: copy.deepcopy(vars(self)[name]) for name in own}
        vars(twin).update(vars(self) | copied, _of_searches=None, _lock=ReadWriteLock(), _filters=Remembered())
        return twin

    # Random numbers

    def _draw_word(self) -> int:
        """Return 64 bits of the random stream for queries."""
        with self._lock.instant:
            streams = self._allocated().streams
            return int(draw_word(streams, streams.size - 1))

    def _new_generator(self) -> np.random.Generator:
        """Return a random generator seeded by the random stream for queries."""
        return np.random.Generator(np.random.PCG64(self._draw_word()))

    # Threads and steps

    def _most_threads(self) -> int:
        return self._n_threads or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]

    def _threads_for(self, n_rows: int) -> int:
        return max(1, min(self._most_threads(), n_rows // _ROWS_WORTH_A_THREAD))

    def _is_a_step(self, n_rows: int) -> bool:
        """Return whether rows are so few that they are a single step, in the thread that asks for it."""
        return n_rows <= min(self._pace.first, _ROWS_WORTH_A_THREAD)

    def _in_steps(
        self, n: int, unit: str, progress: bool, work: Callable[[int, int, Workers], None], n_new: int = 0
    ) -> None:
        """Do ``work`` on the rows ``0 .. n``, one step after the other. Of these ``n_new`` are new memories.

        Large arrays grow between the steps, because that takes too long for one of them.
        """
        n_threads, n_memories = self._threads_for(n), self.n_memories + n_new
        if self._is_a_step(n) and not progress:
            self._state = with_spare_room(self._allocated(), n, n_memories)
            self._lock.step(lambda: work(0, n, in_own_thread))
            return
        steps = Steps(0, n, self._pace)
        with progress_bar(n, unit, progress) as report, workers(n_threads) as run:

            def take_step(start: int, stop: int) -> None:
                work(start, stop, run)

            for start, stop in steps:
                self._state = with_spare_room(self._allocated(), stop - start, n_memories)
                self._lock.step(partial(steps.take, take_step, start, stop))
                report(stop - start)

    def _on_trees(self, work: Callable[[State, Some, int], int]) -> Callable[[int, int, Workers], None]:
        """Return a function for :meth:`_in_steps` that does ``work`` on every tree."""
        return lambda start, stop, run: self._on_each_tree(work, stop, run)

    def _on_each_tree(
        self, work: Callable[[State, Some, int], int], stop: int, run: Workers, n_memories: int | None = None
    ) -> None:
        """Do ``work`` on every tree up to row ``stop``, and allocate more room whenever a tree runs out of it.

        A tree writes only to memory of its own, so trees run in parallel; in one thread all in one call. Arrays grow
        while no tree runs, and have room for ``n_memories`` if that is given.
        """
        n_trees = self._allocated().parameters.n_trees
        waiting = [Some(0, n_trees)] if run is in_own_thread else [Some(t, t + 1) for t in range(n_trees)]
        try:
            while waiting:
                state = self._allocated()
                statuses = run(lambda some: work(state, some, stop), waiting)  # noqa: B023
                waiting = [some for some, status in zip(waiting, statuses, strict=True) if status != DONE]
                for status in sorted(set(statuses) - {DONE}):
                    self._state = with_more(self._allocated(), status, n_memories or self.n_memories)
        except BaseException:
            uninterrupted(self._undo_moves)
            raise

    # Recovery

    def _undo_moves(self) -> None:
        """Undo the move of a memory that a failure or an interrupt has left half done, in each tree."""
        for t in range(self._allocated().parameters.n_trees):
            undo_move(self._allocated().trees, t)

    @changes
    def _roll_back(self, first: int | None = None) -> None:
        """Undo what changes that did not complete have left, even if they were interrupted while they were undone.

        Memories that are not in all trees are removed; so are those from slot ``first`` on, which were inserted last.
        """
        if self._state is None:
            return
        self._lock.step(self._undo_moves)
        placed = int(self._allocated().counters[:, COUNT].min())
        first = placed if first is None else min(first, placed)
        if first < self.n_memories:
            self._take_back(first)

    def _take_back(self, first: int) -> None:
        """Remove the memories from slot ``first`` on, and their ids. What routers learned from them stays.

        Moves that are half done are undone first: an interrupt may have come before they were.
        """
        state = self._allocated()
        self._lock.step(self._undo_moves)

        def take_back(slot: int) -> None:
            for t in range(state.parameters.n_trees):
                remove_slots_from(state.trees, state.models, state.key_store, t, slot)
            drop_keys_from(state.key_store, slot)

        self._lock.step(partial(self._eviction.taken_back, first))
        self._lock.step(partial(self._links.taken_back, first))
        for slot in reversed(range(first, self.n_memories, _REMOVALS_IN_A_STEP)):
            self._lock.step(partial(take_back, slot))
