"""Cluster lists of the memories of a forest: making them, and updating them when memories change.

Lists are a cache. They are made on demand, in parts, and dropped when there have been so many changes that the centers
no longer fit. Files do not contain them.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np

from .._forest import N_MEMORIES, NONE, Rows, State, as_matrix, find_slots, stored_rows
from .._heads import MEMBERS_SAMPLED, VectorLists, find_centers
from .coded_candidates import ZERO, CodedCandidates
from .forest import Forest

_LISTS = 1.0  # lists: this times the square root of the number of memories
_CELLS_IN_A_PART = 1 << 17  # cells of keys that one part compares with the centers
_CELLS_READ_IN_A_PART = 1 << 20


def make_lists(forest: Forest) -> Generator[None, None, None]:
    """Put all memories of a forest in lists, in parts of a few milliseconds. Memories may change between the parts.

    The forest must keep full dense keys. The new lists replace existing ones.
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
    """Return the keys in the given slots, without those that are no longer in use."""
    state = forest.allocated()
    keys: np.ndarray = as_matrix(stored_rows(state, slots[slots < int(state.keys.totals[N_MEMORIES])]))
    return keys


def _enter_more(forest: Forest, lists: VectorLists) -> None:
    """Enter some more slots."""
    first = lists.n_listed
    stop = min(forest.n_memories, first + max(1, _CELLS_IN_A_PART // lists.n_features))
    if stop > first and forest.lists is lists:
        _enter(forest, lists, np.arange(first, stop))
        lists.n_listed = stop
    lists.is_complete = lists.n_listed == forest.n_memories


def _enter(forest: Forest, lists: VectorLists, slots: np.ndarray) -> None:
    """Enter slots, or drop the lists if there have been too many changes. Nothing else may change the forest."""
    if lists.has_room(slots.size):
        lists.enter(forest.allocated().codes, slots, _keys_of(forest, slots))
    else:
        forest.lists = None


def has_lists(forest: Forest) -> bool:
    """Return whether there are lists that searches may use."""
    lists = forest.lists
    return lists is not None and lists.is_complete


def listed_candidates(forest: Forest, gap: float) -> CodedCandidates | None:
    """Return the lists for a search with a gap, or None if there are none yet."""
    lists = forest.lists
    if lists is None or not lists.is_complete:
        return None
    return CodedCandidates(lists.landmarks(gap), lists.sizes)


def list_slots(forest: Forest, slots: np.ndarray, progress: bool = False) -> None:
    """Enter memories into the lists: new ones in the order of their slots, or those whose keys have changed."""

    def enter(_run: object, start: int, stop: int) -> None:
        enter_changed(forest, slots[start:stop])

    if forest.lists is not None:
        forest.in_steps(slots.size, "list", progress, enter)


def enter_changed(forest: Forest, slots: np.ndarray) -> None:
    """Enter slots with new keys, as part of a step. Skip slots that the lists have not reached yet."""
    lists = forest.lists
    if lists is None or slots.size == 0:
        return
    if np.array_equal(slots, np.arange(lists.n_listed, lists.n_listed + slots.size)):
        _enter(forest, lists, slots)
        lists.n_listed += slots.size
    elif (some := slots[slots < lists.n_listed]).size > 0:
        _enter(forest, lists, some)


def withdraw_last(forest: Forest, first: int) -> None:
    """Remove the slots from ``first`` on from the lists, as part of a step."""
    lists = forest.lists
    if lists is not None and first < lists.n_listed:
        lists.withdraw(np.arange(first, lists.n_listed))
        lists.n_listed = first


def moved_lists(forest: Forest, state: State) -> VectorLists | None:
    """Return the lists with the slots of another state of the forest; None if they are unfinished."""
    lists = forest.lists
    if lists is None or not lists.is_complete:
        forest.lists = None
        return None
    slots = np.empty(forest.n_memories, np.int64)
    find_slots(state.keys, forest.allocated().keys.ids[: slots.size], slots)
    return lists.moved(slots)


def gaps_of(forest: Forest, rows: Rows, ids: np.ndarray) -> np.ndarray:
    """Return the least gap at which a search finds each memory, or infinity if the memory is not in a list.

    ``ids`` are the ids of some memories for each row.
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
    """Return how many memories are in the lists that each row reaches, or None if there are no lists."""

    def count() -> np.ndarray | None:
        lists = forest.lists
        if lists is None or not lists.is_complete:
            return None
        near = as_matrix(rows) @ lists.centers.vectors.T
        counts: np.ndarray = (near >= near.max(axis=1)[:, None] - gap) @ lists.sizes
        return counts

    return forest.lock.read(count)
