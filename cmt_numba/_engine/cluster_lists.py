"""Building and updating the cluster lists of a forest's memories.

Cluster lists are a cache. They are built on demand in parts. After many changes the centres no longer fit the memories,
and the lists are dropped. Files do not contain them.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np

from .._forest import N_MEMORIES, NONE, Rows, State, as_matrix, find_slots, stored_rows
from .._heads import MEMBERS_SAMPLED, VectorLists, find_centers
from .coded_candidates import ZERO, CodedCandidates
from .forest import Forest

_LISTS = 1.0  # ratio of the number of lists to the square root of the number of memories
_CELLS_IN_A_PART = 1 << 17  # number of key cells that one part compares with the centres
_CELLS_READ_IN_A_PART = 1 << 20  # number of key cells that one part copies for the sample


def make_lists(forest: Forest) -> Generator[None, None, None]:
    """Build cluster lists of all memories, in parts of a few milliseconds; yield after each part.

    Memories may change between parts. The forest must store full dense keys. The new lists replace existing lists.
    """
    n, d = forest.n_memories, forest.allocated().parameters.n_features
    n_lists = max(1, int(_LISTS * np.sqrt(n)))
    order = np.random.default_rng(0).permutation(n)[: MEMBERS_SAMPLED * n_lists]
    parts, size = [], max(1, _CELLS_READ_IN_A_PART // d)
    for first in range(0, order.size, size):
        parts.append(forest.lock.read(partial(_keys_of, forest, order[first : first + size])))
        yield
    sample = np.concatenate(parts)
    if len(sample) == 0:
        return
    centers = yield from find_centers(sample[:n_lists].copy(), sample, max(1, _CELLS_IN_A_PART // d))
    lists = VectorLists(centers, max(n, forest.n_memories), ZERO)

    def begin() -> None:
        if _is_of(forest, d):
            forest.lists = lists

    forest.lock.read(begin)
    while forest.lists is lists and not lists.is_complete:
        forest.lock.read(partial(_enter_more, forest, lists))
        yield


def _is_of(forest: Forest, n_features: int) -> bool:
    state = forest.state
    return state is not None and state.parameters.n_features == n_features


def _keys_of(forest: Forest, slots: np.ndarray) -> np.ndarray:
    """Return the keys in ``slots``, except slots that are no longer in use."""
    state = forest.allocated()
    keys: np.ndarray = as_matrix(stored_rows(state, slots[slots < int(state.keys.totals[N_MEMORIES])]))
    return keys


def _enter_more(forest: Forest, lists: VectorLists) -> None:
    """Add the next slots to unfinished lists."""
    first = lists.n_listed
    stop = min(forest.n_memories, first + max(1, _CELLS_IN_A_PART // lists.n_features))
    if stop > first and forest.lists is lists:
        _enter(forest, lists, np.arange(first, stop))
        lists.n_listed = stop
    lists.is_complete = lists.n_listed == forest.n_memories


def _enter(forest: Forest, lists: VectorLists, slots: np.ndarray) -> None:
    """Add or move slots in the lists, or drop the lists after too many changes."""
    if lists.has_room(slots.size):
        lists.enter(forest.allocated().codes, slots, _keys_of(forest, slots))
    else:
        forest.lists = None


def has_lists(forest: Forest) -> bool:
    """Return whether the forest has complete cluster lists."""
    lists = forest.lists
    return lists is not None and lists.is_complete


def listed_candidates(forest: Forest, gap: float) -> CodedCandidates | None:
    """Return the cluster lists for a search with ``gap``, or None if they are missing or incomplete."""
    lists = forest.lists
    if lists is None or not lists.is_complete:
        return None
    return CodedCandidates(lists.landmarks(gap), lists.sizes)


def list_slots(forest: Forest, slots: np.ndarray, progress: bool = False) -> None:
    """Add new memories, in slot order, to the cluster lists, or move memories whose keys have changed."""

    def enter(_run: object, start: int, stop: int) -> None:
        enter_changed(forest, slots[start:stop])

    if forest.lists is not None:
        forest.in_steps(slots.size, "list", progress, enter)


def enter_changed(forest: Forest, slots: np.ndarray) -> None:
    """Add or move slots with new keys in the cluster lists, within a step.

    Unfinished lists skip changed slots that they do not contain yet.
    """
    lists = forest.lists
    if lists is None or slots.size == 0:
        return
    if np.array_equal(slots, np.arange(lists.n_listed, lists.n_listed + slots.size)):
        _enter(forest, lists, slots)
        lists.n_listed += slots.size
    elif (some := slots[slots < lists.n_listed]).size > 0:
        _enter(forest, lists, some)


def withdraw_last(forest: Forest, first: int) -> None:
    """Remove the slots ``first`` and above from the cluster lists, within a step."""
    lists = forest.lists
    if lists is not None and first < lists.n_listed:
        lists.withdraw(np.arange(first, lists.n_listed))
        lists.n_listed = first


def moved_lists(forest: Forest, state: State) -> VectorLists | None:
    """Return the cluster lists for a state with the same memories in other slots, or None if they are incomplete."""
    lists = forest.lists
    if lists is None or not lists.is_complete:
        forest.lists = None
        return None
    slots = np.empty(forest.n_memories, np.int64)
    find_slots(state.keys, forest.allocated().keys.ids[: slots.size], slots)
    return lists.moved(slots)


def gaps_of(forest: Forest, rows: Rows, ids: np.ndarray) -> np.ndarray:
    """Return the smallest gap at which a search for row ``i`` finds memory ``ids[i, j]``, shape (n, k).

    The gap is infinite if the memory is not in a list.
    """

    def find() -> np.ndarray:
        lists, gaps = forest.lists, np.full(ids.shape, np.inf)
        if lists is None:
            return gaps
        slots = forest.slots_of(ids.reshape(-1)).reshape(ids.shape)
        row, column = np.nonzero((slots != NONE) & (slots < lists.n_listed))
        near = as_matrix(rows) @ lists.centers.vectors.T
        gaps[row, column] = near.max(axis=1)[row] - near[row, lists.list_of(slots[row, column])]
        return gaps

    return forest.lock.read(find)


def count_in_lists(forest: Forest, rows: Rows, gap: float) -> np.ndarray | None:
    """Return the number of memories in the lists that each row reaches with ``gap``, or None if they are incomplete."""

    def count() -> np.ndarray | None:
        lists = forest.lists
        if lists is None or not lists.is_complete:
            return None
        near = as_matrix(rows) @ lists.centers.vectors.T
        counts: np.ndarray = (near >= near.max(axis=1)[:, None] - gap) @ lists.sizes
        return counts

    return forest.lock.read(count)
