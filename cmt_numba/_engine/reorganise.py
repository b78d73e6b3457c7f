"""Removing, replacing and rerouting memories, rebuilding trees, and compaction."""

from functools import partial

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .._change import TimedSteps, Workers, changes, progress_bar
from .forest import Forest


@changes
def remove_ids(forest: Forest, ids: np.ndarray) -> None:
    """Remove the memories with distinct ids (REMOVE, Algorithm 6). Raises KeyError if an id is not stored."""
    forest.known_slots(ids)

    def remove(start: int, stop: int) -> None:
        forests.remove_memories(forest.view(), forest.eviction.recency, ids[start:stop])

    steps = TimedSteps(0, ids.size, forest.pace)
    for start, stop in steps:
        forest.lock.step(partial(steps.take, remove, start, stop))


@changes
def replace_rows(forest: Forest, ids: np.ndarray, rows: kernels.Rows, progress: bool = False) -> None:
    """Replace the keys of memories with distinct ids. Raises KeyError if an id is not stored.

    A small batch is one step. A large batch first writes all keys in one step, and then moves memories in later steps.
    """
    slots = forest.known_slots(ids)
    if rows.sparse:
        forest.put(forests.with_room_for_keys(forest.allocated(), 0, rows.values.size))
    at = np.zeros(forest.n_trees, np.int64)
    in_one_step = forest.is_one_step(rows.n_rows, progress)

    def overwrite() -> None:
        forests.overwrite_keys(forest.view(), slots, rows)

    def reinsert(run: Workers, start: int, stop: int) -> None:
        if in_one_step:
            overwrite()
        forest.on_each_tree(run, forests.reinsert_slots, forests.Turn(at, stop), slots)

    if not in_one_step:
        forest.lock.step(overwrite)
    forest.in_steps(rows.n_rows, "replace", progress, reinsert)


@changes
def reroute_memories(forest: Forest, n: int, progress: bool = False) -> None:
    """Reroute ``n`` memories of each tree (REROUTE, Algorithm 7)."""
    if forest.n_memories == 0:
        return
    n_memories = forest.n_memories

    def reroute(run: Workers, start: int, stop: int) -> None:
        forests.begin_reroutes(forest.allocated().counters, stop - start)
        forest.on_each_tree(run, forests.insert_slots, n_memories, 0)  # only makes the pending reroutes

    forest.in_steps(n, "reroute", progress, reroute)


@changes
def rebuild_trees(forest: Forest, ids: np.ndarray, groups: np.ndarray, progress: bool = False) -> None:
    """Rebuild the trees around groups of memories. Raises KeyError if an id is not stored.

    ``groups[i]`` is the group of memory ``ids[i]``; every other memory is a group of its own. The new trees are swapped
    in when all are complete.
    """
    slots, before = forest.known_slots(ids), forest.allocated()
    group = np.arange(forest.n_memories)
    group[slots] = forest.n_memories + np.unique(groups, return_inverse=True)[1]
    rows = kernels.stored_rows(before, slice(forest.n_memories))
    state, generator = forests.without_trees(before), np.random.Generator(np.random.PCG64(forest.draw_word()))
    with progress_bar(forest.n_trees, "tree", progress) as report:
        for t in range(forest.n_trees):
            state = forests.with_tree(state, t, rows, group, generator)
            report(1)
    forest.lock.step(partial(forest.put, state))


@changes
def compact_memories(forest: Forest) -> None:
    """Reorder memories by the leaves of the first tree."""
    if forest.n_memories == 0:
        return
    before = forest.allocated()
    state = forests.compacted(before)
    # The policy refers to memories by slot, so it is replaced together with the state.
    forest.lock.step(lambda: forest.put(state, forest.eviction.moved(before, state)))
