"""The operations of a forest on rows and ids that are validated.

The rows have unit length and the form and the width of the keys stored. Nothing is checked here a second time, except
what can change between the check and the operation.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np

from .._concurrency.rwlock import changes
from .._concurrency.workers import Steps, Workers, progress_bar, spans
from .._forest import invariants as _invariants
from .._forest.allocation import trimmed, with_ids, with_room_for_keys
from .._forest.compaction import compacted
from .._forest.hits import (
    WORTH_FINDING,
    Feedback,
    Hits,
    no_hits,
    with_runners_up,
)
from .._forest.insert_remove import finisher_of, insert_slots, remove_ids, reroute_trees, turn_of
from .._forest.invariants import Leaves
from .._forest.invariants.errors import require
from .._forest.key_store import append_keys, stored_rows
from .._forest.links import Linkage
from .._forest.moved_keys import moved_keys
from .._forest.partition import with_tree, without_trees
from .._forest.quantization import encode_keys
from .._forest.replacement import overwrite_keys, reinsert_slots
from .._forest.rows import Rows
from .._forest.scorer import ScorerLoss
from .._forest.state import (
    MOST_MEMORIES,
    N_MEMORIES,
    NEXT_ID,
    NONE,
    Scorer,
    Some,
    State,
    count_bytes,
)
from .._forest.teaching import Lesson, forget_routes, teach_trees
from .._forest.update import update_scorer, update_trees
from .._jit import uninterrupted
from .._validation import check_known
from .querying import Queried

_ROWS_AT_ONCE = 16  # that move keys; those after them see where the keys are now
_INSERTS_TO_FILL = 8  # of a bounded tree, at least: what routers know would be lost if all memories went at once


class Forest(Queried):
    """A forest that takes validated rows. See :class:`~cmt_numba.ContextualMemoryTree` for what its operations do."""

    _has_warned = False  # that an update teaches nothing

    # What it holds

    @property
    def n_features(self) -> int | None:
        """Width of the keys, set by the first insert; None before."""
        state = self._the_state
        return None if state is None else state.parameters.n_features

    @property
    def depth(self) -> int:
        """Maximum number of internal nodes between a root and a leaf; 0 while every tree is a single leaf."""
        return self._lock.read(lambda: 0 if self._state is None else _invariants.depth(self._state))

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys, trees, routers, the scorer, links and the eviction policy."""
        state = self._state
        return 0 if state is None else count_bytes(state) + self._eviction.nbytes + self._links.nbytes

    @property
    def ids(self) -> np.ndarray:
        """The ids of all memories, in no particular order: int64, shape (n_memories,)."""
        return self._lock.read(
            lambda: np.empty(0, np.int64) if self._state is None else self._state.keys.ids[: self.n_memories].copy()
        )

    def __len__(self) -> int:
        return self.n_memories

    def __contains__(self, memory_id: object) -> bool:
        if not isinstance(memory_id, (int, np.integer)) or isinstance(memory_id, bool):
            return False
        if not 0 <= memory_id < self._next_id():
            return False
        return bool(self._lock.read(lambda: self._slots(np.array([memory_id], np.int64)))[0] >= 0)

    def _next_id(self) -> int:
        """Return the id of the next memory."""
        state = self._the_state
        return 0 if state is None else int(state.keys.totals.item(NEXT_ID))

    def _known_slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slots of memories. Raises KeyError if one is not stored."""
        slots = self._slots(ids)
        if slots.size > 0:
            check_known(ids, slots)
        return slots

    def leaves(self) -> Leaves:
        """Return the tree, the depth and the size of every leaf; an empty tree is a single leaf.

        Returns
        -------
        Leaves
            ``tree``, ``depth`` and ``size``: int64, one entry for each leaf.
        """
        if self._state is None:
            n_trees = int(self._options["n_trees"])
            return Leaves(np.arange(n_trees, dtype=np.int64), np.zeros(n_trees, np.int64), np.zeros(n_trees, np.int64))
        return self._lock.read(lambda: _invariants.leaves(self._allocated()))

    @changes  # nothing, but other changes must wait
    def check_invariants(self) -> None:
        """Check all invariants of the trees, the key store, the links and the eviction policy.

        Raises
        ------
        InvariantError
            If one is violated. Unless memory was overwritten from outside, this is a bug.
        """
        if self._state is not None:
            _invariants.check(self._state)
            with self._lock.instant:
                self._eviction.check(self._state)
            self._links.check(self._state)
            self._check_bound()

    def _check_bound(self) -> None:
        most = self._bound["max_memories"]
        require(most is None or self.n_memories <= most, f"there are {self.n_memories} memories, more than {most}")

    # Inserting

    @changes
    def _insert_rows(self, rows: Rows, progress: bool = False, n_reroutes: int | None = None) -> np.ndarray:
        """Insert memories, and remove others first where the bound requires it. Returns the new ids.

        ``n_reroutes`` replaces the forest's own.
        """
        most = self._bound["max_memories"]
        if most is None or self.n_memories + rows.n_rows <= most:
            return self._append_rows(rows, progress, n_reroutes)
        first_id = self._next_id()
        try:
            with progress_bar(rows.n_rows, "insert", progress) as report:
                for start, stop in spans(rows.n_rows, max(1, most // _INSERTS_TO_FILL)):
                    self._evict(self.n_memories + stop - start - most)
                    self._append_rows(rows.between(start, stop), False, n_reroutes)
                    report(stop - start)
        except BaseException:
            uninterrupted(lambda: self._remove_ids(self.ids[self.ids >= first_id]))
            raise
        return np.arange(first_id, first_id + rows.n_rows)

    def _append_rows(self, rows: Rows, progress: bool, n_reroutes: int | None) -> np.ndarray:
        """Insert memories, all or none of them."""
        before = self._state
        state = self._new_state(rows) if before is None else before
        first = int(state.keys.totals[N_MEMORIES])
        if first + rows.n_rows > MOST_MEMORIES:
            raise ValueError(f"X must have at most {MOST_MEMORIES - first} rows, not {rows.n_rows}: the forest is full")
        try:
            self._state = with_room_for_keys(state, rows.n_rows, rows.values.size)
            self._links.make_room(self._state)
            self._insert_in_steps(rows, first, progress, n_reroutes)
            self._link_in_steps(np.arange(first, first + rows.n_rows), progress)
            if rows.n_rows > first:  # seldom enough for the copying not to count
                self._state = trimmed(self._state)
        except BaseException:
            if before is None:
                self._state, self._eviction, self._links = None, self._new_eviction(), Linkage(self._n_links)
            else:
                uninterrupted(self._take_back, first)
            raise
        return self._state.keys.ids[first : first + rows.n_rows].copy()

    def _insert_in_steps(self, rows: Rows, slot: int, progress: bool, n_reroutes: int | None) -> None:
        """Store rows from a slot on, for which there is room, and insert them into the trees."""

        def insert_rows(state: State, some: Some, stop: int) -> int:
            parameters = state.parameters if n_reroutes is None else state.parameters._replace(n_reroutes=n_reroutes)
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(insert_slots(parameters, trees, routers, keys, some, stop, finisher_of(state)))

        def insert(start: int, stop: int, run: Workers) -> None:
            state = self._allocated()
            append_keys(state.key_store, rows.between(start, stop))
            if not (rows.sparse or state.parameters.coded):
                encode_keys(state.key_store, state.code_store, slot + start, slot + stop)
            self._on_each_tree(insert_rows, slot + stop, run, slot + rows.n_rows)
            self._eviction.inserted(self._allocated(), slot + start)

        self._in_steps(rows.n_rows, "insert", progress, insert, rows.n_rows)

    def _link_in_steps(self, slots: np.ndarray, progress: bool) -> None:
        """Link memories that are new, in the order of their slots, or have other keys now."""
        if self._links.are_there:

            def link(start: int, stop: int, run: Workers) -> None:
                self._links.link(self._searched(self._allocated()), slots[start:stop])

            self._in_steps(slots.size, "link", progress, link)

    def _evict(self, n: int) -> None:
        """Remove ``n`` memories, chosen by the eviction policy; none if ``n`` is not positive."""
        if n > 0:
            self._remove_ids(self._choose_to_forget(n))

    def _choose_to_forget(self, n: int) -> np.ndarray:
        """Return the ids of ``n`` memories, chosen by the eviction policy."""
        with self._lock.instant:
            return self._eviction.choose(self._allocated(), n)

    # Learning

    @changes
    def _update_rows(
        self, rows: Rows, hits: Hits, rewards: np.ndarray, progress: bool = False, key_learning_rate: float = 0.0
    ) -> None:
        """Learn from rewards, float32 (n, k), for the first ``k`` hits of each row."""
        if self._state is None or self.n_memories == 0:
            return
        if rewards.shape[1] > 1 or self._options["scorer_loss"] != ScorerLoss.CONTRAST:
            self._learn_rewards(rows, hits, rewards, progress)
            self._move_keys(rows, hits, rewards, key_learning_rate)
            return
        others = no_hits(rows.n_rows, 2)
        self._answer(rows, self._options["n_trees"], 0.0, np.uint64(0), False, others)
        pairs = with_runners_up(hits, others)
        compared = np.pad(rewards, ((0, 0), (0, 1)))
        self._learn_rewards(rows, pairs, compared, progress)
        self._move_keys(rows, pairs, compared, key_learning_rate)
        shown = pairs.ids[:, 0]
        right = np.flatnonzero((rewards[:, 0] >= WORTH_FINDING) & (self._slots(shown) != NONE))
        if right.size > 0:
            self._teach_rows(rows.take(right), shown[right])

    def _warn_if_in_vain(self, hits: Hits, rewards: np.ndarray) -> None:
        """Warn, once, if an update with these rewards teaches nothing."""
        loss = ScorerLoss(self._options["scorer_loss"])
        learns = loss in (ScorerLoss.CONTRAST, ScorerLoss.REGRESSION) or rewards.shape[1] > 1
        if learns or self._has_warned or self.n_memories == 0 or np.any(hits.exploration.node != NONE):
            return
        self._has_warned = True
        message = (
            f"this update teaches nothing: scorer_loss={loss.name.lower()!r} compares the rewards of several memories "
            'of a row. Create the tree with scorer_loss="contrast", or pass a reward for each of k=2 or more memories, '
            "or query with an epsilon above 0"
        )
        warnings.warn(message, UserWarning, stacklevel=5)

    @changes
    def _set_scorer(self, weights: np.ndarray, squares: np.ndarray) -> None:
        """Replace the weights that the scorer has learned, and the sums of squares of their gradients.

        Raises
        ------
        ValueError
            If these are not finite numbers, one for each feature, or there are no memories; nothing has changed then.
        """
        state = self._state
        if state is None:
            raise ValueError("a scorer needs memories, which say how many features there are")
        scorer = Scorer(np.array(weights, np.float32), np.array(squares, np.float32))
        for array in scorer:
            if array.shape != (state.parameters.n_features,) or not np.isfinite(array).all():
                raise ValueError(f"a scorer of {state.parameters.n_features} features needs as many finite numbers")
        self._lock.step(lambda: setattr(self, "_state", state._replace(scorer=scorer)))

    def _learn_rewards(self, rows: Rows, hits: Hits, rewards: np.ndarray, progress: bool) -> None:
        state = self._allocated()
        if state.scorer.theta.size == 0:
            theta, squares = np.zeros((2, rows.n_features), np.float32)
            state = self._state = state._replace(scorer=state.scorer._replace(theta=theta, squares=squares))
        at, feedback = np.zeros(state.parameters.n_trees, np.int64), Feedback(rows, hits, rewards)

        def learn_rows(state: State, some: Some, stop: int) -> int:
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(update_trees(state.parameters, trees, routers, keys, turn_of(state, some, at, stop), feedback))

        def learn(start: int, stop: int, run: Workers) -> None:
            state = self._allocated()
            of_rows = Feedback(rows.between(start, stop), hits.between(start, stop), rewards[start:stop])
            update_scorer(state.parameters, state.key_store, state.scorer, of_rows)
            self._on_each_tree(learn_rows, stop, run)

        self._in_steps(rows.n_rows, "update", progress, learn)

    def _move_keys(self, rows: Rows, hits: Hits, rewards: np.ndarray, rate: float) -> None:
        """Move dense keys by rewards. Memories stay in their leaves."""
        if rows.sparse or rate == 0.0:
            return
        ids, explored = hits.ids[:, : rewards.shape[1]], hits.exploration.node != NONE
        slots = np.where(explored[:, None], NONE, self._slots(ids.reshape(-1)).reshape(ids.shape))
        for first, stop in spans(rows.n_rows, _ROWS_AT_ONCE):
            state = self._allocated()
            moved, keys = moved_keys(state, rows.between(first, stop), slots[first:stop], rewards[first:stop], rate)
            self._lock.step(partial(overwrite_keys, self._searched(state), moved, keys))
        self._link_in_steps(np.setdiff1d(slots, NONE), False)

    @changes
    def _teach_rows(
        self, rows: Rows, ids: np.ndarray, n_passes: int = 1, afresh: bool = False, progress: bool = False
    ) -> None:
        """Teach routers which memory each row belongs to. Raises KeyError if one is not stored."""
        slots, state = self._known_slots(ids), self._allocated()
        if afresh:
            for t in range(state.parameters.n_trees):
                self._lock.step(partial(forget_routes, state.trees, state.models, t))
        orders = self._new_generator()
        for _ in range(n_passes):
            lesson = Lesson(rows, orders.permutation(rows.n_rows), slots)
            at = np.tile(np.array([0, NONE]), (state.parameters.n_trees, 1))

            def teach_rows(state: State, some: Some, stop: int) -> int:
                return int(teach_trees(state.parameters, state.trees, state.models, some, lesson, at, stop))  # noqa: B023

            self._in_steps(rows.n_rows, "teach", progress, self._on_trees(teach_rows))

    # Reorganising

    @changes
    def _remove_ids(self, ids: np.ndarray) -> None:
        """Remove memories, each named once. Raises KeyError if one is not stored."""
        self._known_slots(ids)

        def remove(start: int, stop: int) -> None:
            state = self._allocated()
            stores, followed = (state.key_store, state.code_store), (self._eviction.recency, self._links.near)
            self._links.unlink(state, self._slots(ids[start:stop]))
            remove_ids(state.trees, state.models, *stores, *followed, ids[start:stop])

        steps = Steps(0, ids.size, self._pace)
        for start, stop in steps:
            self._lock.step(partial(steps.take, remove, start, stop))

    @changes
    def _renumber(self) -> np.ndarray:
        """Let the id of each memory be its slot, as if the others had never been; return the ids before."""
        state, n = self._allocated(), self.n_memories
        former = state.keys.ids[:n].copy()
        self._lock.step(partial(setattr, self, "_state", state._replace(keys=with_ids(state.keys, np.arange(n)))))
        return former

    @changes
    def _replace_rows(self, ids: np.ndarray, rows: Rows, progress: bool = False) -> None:
        """Give memories, each named once, the keys in ``rows``. Raises KeyError if one is not stored."""
        slots = self._known_slots(ids)
        state = self._allocated()
        if rows.sparse:
            self._state = state = with_room_for_keys(state, 0, rows.values.size)
        at = np.zeros(state.parameters.n_trees, np.int64)

        def overwrite() -> None:
            overwrite_keys(self._searched(self._allocated()), slots, rows)

        def reinsert(state: State, some: Some, stop: int) -> int:
            return int(reinsert_slots(state.parameters, self._searched(state), turn_of(state, some, at, stop), slots))

        if self._is_a_step(rows.n_rows) and not progress:

            def replace(start: int, stop: int, run: Workers) -> None:
                overwrite()
                self._on_each_tree(reinsert, stop, run)
                if self._links.are_there:
                    self._links.link(self._searched(self._allocated()), slots)

            self._in_steps(rows.n_rows, "replace", False, replace)
        else:
            self._lock.step(overwrite)
            self._in_steps(rows.n_rows, "replace", progress, self._on_trees(reinsert))
            self._link_in_steps(slots, progress)
        self._note_returned(ids[:, None])

    @changes
    def _reroute(self, n: int, progress: bool = False) -> None:
        """Reroute ``n`` memories of each tree."""
        if self.n_memories == 0:
            return
        at = np.zeros(self._allocated().parameters.n_trees, np.int64)

        def reroute(state: State, some: Some, stop: int) -> int:
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(reroute_trees(state.parameters, trees, routers, keys, turn_of(state, some, at, stop)))

        self._in_steps(n, "reroute", progress, self._on_trees(reroute))

    @changes
    def _rebuild(self, ids: np.ndarray, groups: np.ndarray, progress: bool = False) -> None:
        """Build the trees anew and keep groups of memories together. Raises KeyError if one is not stored.

        Memories that are not named are groups of their own. The new trees are put in place when all are complete.
        """
        slots, before = self._known_slots(ids), self._allocated()
        group = np.arange(self.n_memories)
        group[slots] = self.n_memories + np.unique(groups, return_inverse=True)[1]
        rows = stored_rows(before, slice(self.n_memories))
        state, generator = without_trees(before), self._new_generator()
        n_trees = state.parameters.n_trees
        with progress_bar(n_trees, "tree", progress) as report:
            for t in range(n_trees):
                state = with_tree(state, t, rows, group, generator)
                report(1)
        self._lock.step(partial(setattr, self, "_state", state))

    @changes
    def _compact(self, copies: bool) -> None:
        """Store the memories in the order in which searches read them."""
        if self.n_memories == 0:
            return
        before = self._allocated()
        state = compacted(before, copies=copies)

        def put_in_place() -> None:
            # All in one assignment, whatever comes in between: policy and links know memories by their slots.
            moved = self._eviction.moved(before, state), self._links.moved(before, state)
            self._state, self._eviction, self._links = state, *moved

        self._lock.step(put_in_place)
