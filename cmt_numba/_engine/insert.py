"""Atomic insertion of memories (INSERT, Algorithm 4)."""

from functools import partial

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .._change import Workers, changes, progress_bar, spans, uninterrupted
from .._validation import check_ids
from .forest import Forest, kernel_parameters
from .reorganise import remove_ids

# A batch that replaces all memories is inserted in this many parts. An empty tree would lose its routers.
_INSERTS_TO_FILL = 8
_REMOVALS_IN_A_STEP = 1000
_NO_IDS = np.empty(0, np.int64)


def insert_rows(forest: Forest, rows: kernels.Rows, progress: bool = False) -> np.ndarray:
    """Insert memories within a change, and evict others first if necessary; return the ids."""
    was_empty, first_id, most = forest.state is None, forest.next_id, forest.options["max_memories"]
    n, n_rows, forest.last_evicted = forest.n_memories, rows.n_rows, _NO_IDS
    if most is None and n + n_rows > kernels.MAX_MEMORIES:
        raise ValueError(
            f"X must have at most {kernels.MAX_MEMORIES - n} rows, got {n_rows}: a tree holds at most "
            f"{kernels.MAX_MEMORIES} memories"
        )
    if not was_empty and forest.fitting_state(rows) is None:  # another thread's first insert has set the type of keys
        rows = forest.check_rows(kernels.as_matrix(rows))
    try:
        if was_empty:
            parameters = kernel_parameters(forest.options, rows.n_features, rows.sparse)
            forest.put(forests.new_state(parameters, forest.streams))
        if most is None or n + n_rows <= most:
            _append_rows(forest, rows, n_rows, progress)
        else:
            with progress_bar(n_rows, "insert", progress) as report:
                for start, stop in spans(n_rows, max(1, most // _INSERTS_TO_FILL)):
                    excess = forest.n_memories + stop - start - most
                    if excess > 0:
                        _evict(forest, excess)
                    _append_rows(forest, rows.between(start, stop), stop - start, False)
                    report(stop - start)
    except BaseException:
        uninterrupted(forest.clear if was_empty else partial(_take_back_ids, forest, first_id))
        raise
    return np.arange(first_id, first_id + n_rows)


def _evict(forest: Forest, n: int) -> None:
    """Remove ``n`` memories, which the eviction policy or, during replay, the journal selects."""
    with forest.lock.instant:
        chosen = forest.eviction.choose(forest.allocated(), n)
    if forest.evicts is not None:
        if forest.evicts.size < n:
            raise ValueError(f"the journal lists only {forest.evicts.size} of the {n} memories that the insert evicts")
        chosen, forest.evicts = check_ids(forest.evicts[:n]), forest.evicts[n:]
    remove_ids(forest, chosen)
    forest.last_evicted = np.concatenate([forest.last_evicted, chosen])


def _append_rows(forest: Forest, rows: kernels.Rows, n_rows: int, progress: bool) -> None:
    """Store keys in the next slots and insert them into every tree."""
    state = forest.state
    assert state is not None
    first = state.keys.totals.item(kernels.N_MEMORIES)
    forest.put(forests.with_room_for_keys(state, n_rows, rows.values.size))
    n_reroutes = state.parameters.n_reroutes

    def insert(run: Workers, start: int, stop: int) -> None:
        kernels.store_keys(forest.view(), rows, start, stop)
        forest.on_each_tree(run, forests.insert_slots, first + stop, n_reroutes, n_memories=first + n_rows)
        if forest.eviction.minds_queries:
            forest.eviction.inserted(forest.allocated(), first + start)

    forest.in_steps(n_rows, "insert", progress, insert, first + n_rows)
    if n_rows > first:  # rare, so the cost of the copy is negligible
        forest.put(forests.trimmed(forest.allocated()))


def _take_back_ids(forest: Forest, first_id: int) -> None:
    """Remove the memories with ids ``first_id`` and above. The ids become available again if nothing was evicted."""
    n, ids = forest.n_memories, forest.ids()
    new = np.flatnonzero(ids >= first_id)
    are_last = new.size == forest.next_id - first_id and np.array_equal(new, np.arange(n - new.size, n))
    roll_back(forest, n - new.size if are_last else None)
    if not are_last:
        remove_ids(forest, forest.ids()[forest.ids() >= first_id])


@changes
def roll_back(forest: Forest, first: int | None = None) -> None:
    """Remove the newest memories, from slot ``first`` on, and those missing from a tree. Their ids become available."""
    if forest.state is None:
        return
    forest.lock.step(forest.undo_moves)
    placed = int(forest.allocated().counters[:, forests.COUNT].min())
    first = placed if first is None else min(first, placed)
    if first == forest.n_memories:
        return
    forest.lock.step(partial(forest.eviction.taken_back, first))
    for slot in reversed(range(first, forest.n_memories, _REMOVALS_IN_A_STEP)):
        forest.lock.step(partial(forests.withdraw_slots, forest.view(), slot))
