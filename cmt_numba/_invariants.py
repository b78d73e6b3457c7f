"""Everything that must hold of a state between two calls, and the shape of its trees."""

from typing import NamedTuple

import numpy as np

from ._keys import find_slots
from ._state import (
    COUNT,
    FREE_LEAF,
    FREE_NODE,
    FREE_TABLES,
    LEAVES_END,
    MOVING_SLOT,
    N_MEMORIES,
    N_TABLE_SIZES,
    NEXT_ID,
    NODES_END,
    NONE,
    REROUTES_LEFT,
    ROOT,
    SMALLEST_TABLE_BITS,
    TABLES_END,
    VALUES_END,
    VALUES_LIVE,
    State,
)


class InvariantError(AssertionError):
    """The state of a tree contradicts itself; the message says where."""


def _require(holds: bool | np.bool_, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def levels(state: State, t: int) -> list[np.ndarray]:
    """Return the places of tree ``t`` level by level, the root's first.

    Raises
    ------
    InvariantError
        If a place is out of range, a child does not name its parent, or there are more places than rows for them.
    """
    counters, nodes, leaves = state.counters[t], state.nodes[t], state.leaves[t]
    level = counters[ROOT : ROOT + 1]
    parents = np.array([NONE])
    result = []
    n_left = int(counters[NODES_END] + counters[LEAVES_END])
    while level.size:
        n_left -= level.size
        _require(n_left >= 0, f"tree {t}: a place can be reached twice")
        internal, leaf = level[level >= 0], ~level[level < 0]
        _require(np.all(internal < counters[NODES_END]), f"tree {t}: a link to a node that does not exist")
        _require(np.all(leaf < counters[LEAVES_END]), f"tree {t}: a link to a leaf that does not exist")
        named = np.empty(level.size, np.int64)
        named[level >= 0] = nodes["parent"][internal]
        named[level < 0] = leaves["parent"][leaf]
        _require(np.array_equal(named, parents), f"tree {t}: a place does not name its parent")
        result.append(level.astype(np.int64))
        level = nodes["child"][internal].reshape(-1)
        parents = np.repeat(internal, 2)
    return result


def depth(state: State) -> int:
    """Return the most internal nodes between a root and a leaf of the forest."""
    return max(len(levels(state, t)) - 1 for t in range(state.parameters.n_trees))


class Leaves(NamedTuple):
    """All leaves of a forest, tree by tree and those nearest to the root first.

    Attributes
    ----------
    tree : ndarray of int64, shape (n_leaves,)
        The number of the leaf's tree.
    depth : ndarray of int64, shape (n_leaves,)
        Internal nodes above the leaf.
    size : ndarray of int64, shape (n_leaves,)
        Memories in the leaf.
    """

    tree: np.ndarray
    depth: np.ndarray
    size: np.ndarray


def leaves(state: State) -> Leaves:
    """Return all leaves of the forest."""
    parts = [
        (t, depth, state.leaves["size"][t, ~level[level < 0]])
        for t in range(state.parameters.n_trees)
        for depth, level in enumerate(levels(state, t))
    ]
    n_each = [sizes.size for _, _, sizes in parts]
    return Leaves(
        tree=np.repeat(np.array([t for t, _, _ in parts], np.int64), n_each),
        depth=np.repeat(np.array([depth for _, depth, _ in parts], np.int64), n_each),
        size=np.concatenate([sizes for _, _, sizes in parts]).astype(np.int64),
    )


def check(state: State) -> None:
    """Raise InvariantError if anything is wrong with the state."""
    _check_keys(state)
    for t in range(state.parameters.n_trees):
        places = levels(state, t)
        _check_leaves(state, t, places)
        _check_counts(state, t, places)
        _check_free_lists(state, t, places)
        _check_routers(state, t, places)
    _require(np.all(np.isfinite(state.scorer.theta)), "the scorer has a weight that is not finite")


def _check_keys(state: State) -> None:
    keys, totals = state.keys, state.keys.totals
    n = int(totals[N_MEMORIES])
    ids = keys.ids[:n]
    _require(n == 0 or (ids.min() >= 0 and ids.max() < totals[NEXT_ID]), "an id was never given out")
    slots = np.empty(n, np.int64)
    find_slots(keys, ids, slots)
    _require(np.array_equal(slots, np.arange(n)), "the slot table does not lead from an id to its slot")
    _require(np.count_nonzero(keys.slot_table != NONE) == n, "the slot table holds an id that has gone")
    if state.parameters.sparse:
        start, end = keys.spans[:n].T
        _require(np.all(start <= end), "a key ends before it starts")
        _require((end - start).sum() == totals[VALUES_LIVE], "the count of key cells is wrong")
        _require(n == 0 or (start.min() >= 0 and end.max() <= totals[VALUES_END]), "a key lies outside the key store")
        order = np.lexsort((end, start))  # a key of no cells may start where the next one does
        _require(np.all(end[order][:-1] <= start[order][1:]), "two keys share a cell")
        _require(totals[VALUES_END] <= keys.values.size, "the key store has overflowed")
    else:
        values = keys.values[: n * state.parameters.n_features]
        _require(np.all(np.isfinite(values)), "a key is not finite")
        _check_codes(state, values.reshape(n, state.parameters.n_features))


def _check_codes(state: State, keys: np.ndarray) -> None:
    n, d = keys.shape
    codes, marks = state.codes.values[: n * d].reshape(n, d), state.codes.marks[:n]
    differences = keys - marks["scale"][:, None] * codes
    _require(
        np.all(np.linalg.norm(differences, axis=1) <= marks["error"]), "a code is farther from its key than it says"
    )


def _check_packed(state: State, t: int, leaf: np.ndarray) -> None:
    n, d = state.packed.marks.shape[1], state.parameters.n_features
    leaf = leaf[state.leaves["packed"][t, leaf] != NONE]
    if leaf.size == 0:
        return
    _require(t > 0, "tree 0: a leaf names packed codes, of which there are none")
    start, size = state.leaves["packed"][t, leaf], state.leaves["size"][t, leaf]
    _require(start.min() >= 0 and (start + size).max() <= n, f"tree {t}: a leaf's packed codes are not there")
    taken = np.arange(size.max()) < size[:, None]
    at, slots = (start[:, None] + np.arange(size.max()))[taken], state.members[t, leaf, : size.max()][taken]
    codes, packed = state.codes.values.reshape(-1, d), state.packed.values[t - 1].reshape(n, d)
    same = np.array_equal(packed[at], codes[slots]) and np.array_equal(
        state.packed.marks[t - 1, at], state.codes.marks[slots]
    )
    _require(same, f"tree {t}: a packed code is not its memory's")


def _check_leaves(state: State, t: int, places: list[np.ndarray]) -> None:
    counters = state.counters[t]
    n = int(state.keys.totals[N_MEMORIES])
    _require(counters[COUNT] == n, f"tree {t}: holds {counters[COUNT]} memories of {n}")
    _require(counters[MOVING_SLOT] == NONE and counters[REROUTES_LEFT] == 0, f"tree {t}: a step is unfinished")
    everywhere = np.concatenate(places)
    leaf = ~everywhere[everywhere < 0]
    size = state.leaves["size"][t, leaf]
    width = state.members.shape[2]
    _require(np.all(size <= width), f"tree {t}: a leaf holds more than c log2(n) = {width} memories")
    _require(leaf.size == 1 or np.all(size > 0), f"tree {t}: an empty leaf below the root")
    taken = np.arange(width) < size[:, None]
    members = state.members[t, leaf][taken]
    _require(np.array_equal(np.sort(members), np.arange(n)), f"tree {t}: not every memory is in exactly one leaf")
    holder = np.repeat(leaf, size)
    _require(np.array_equal(state.leaf_of[t, members], holder), f"tree {t}: a memory names another leaf than its own")
    _check_packed(state, t, leaf)


def _check_counts(state: State, t: int, places: list[np.ndarray]) -> None:
    nodes, leaves = state.nodes[t], state.leaves[t]
    below = np.zeros(state.counters[t, NODES_END], np.int64)
    for level in reversed(places):
        internal = level[level >= 0]
        child = nodes["child"][internal]
        count = np.where(child >= 0, below[np.maximum(child, 0)], leaves["size"][np.maximum(~child, 0)])
        _require(np.array_equal(nodes["below"][internal], count), f"tree {t}: a node's counts are wrong")
        below[internal] = count.sum(axis=1)


def _check_free_lists(state: State, t: int, places: list[np.ndarray]) -> None:
    everywhere = np.concatenate(places)
    for name, live, links, head, end in (
        ("node", everywhere[everywhere >= 0], state.nodes["parent"][t], FREE_NODE, NODES_END),
        ("leaf", ~everywhere[everywhere < 0], state.leaves["parent"][t], FREE_LEAF, LEAVES_END),
    ):
        end = int(state.counters[t, end])
        free = _linked(links, int(state.counters[t, head]), end, f"tree {t}: the {name} free list")
        rows = np.concatenate([live, free])
        _require(np.array_equal(np.sort(rows), np.arange(end)), f"tree {t}: a {name} is lost or used twice")


def _linked(links: np.ndarray, head: int, most: int, what: str) -> np.ndarray:
    rows: list[int] = []
    while head != NONE:
        _require(0 <= head < most and len(rows) < most, f"{what} is broken")
        rows.append(head)
        head = int(links[head])
    return np.array(rows, np.int64)


def _check_routers(state: State, t: int, places: list[np.ndarray]) -> None:
    everywhere = np.concatenate(places)
    internal = everywhere[everywhere >= 0]
    nodes, d = state.nodes[t], state.parameters.n_features
    _require(np.all(np.isfinite(nodes["bias"][internal])), f"tree {t}: a router's bias is not finite")
    if state.parameters.sparse:
        _check_tables(state, t, internal)
        return
    end = int(state.counters[t, NODES_END])
    weights = state.routers.weights[t, : end * 2 * d].reshape(end, 2 * d)[internal]
    _require(np.all(np.isfinite(weights)), f"tree {t}: a router's weight is not finite")


def _check_tables(state: State, t: int, internal: np.ndarray) -> None:
    nodes, table, d = state.nodes[t], state.routers.table[t], state.parameters.n_features
    tables = []
    for node in internal[nodes["table_bits"][internal] > 0]:
        start, bits = int(nodes["table_start"][node]) << SMALLEST_TABLE_BITS, int(nodes["table_bits"][node])
        tables.append((start, bits))
        cells = table[start : start + (1 << bits)]
        cells = cells[cells["feature"] != NONE]
        features = cells["feature"]
        _require(features.size == nodes["table_used"][node], f"tree {t}: node {node}'s table miscounts its features")
        _require(np.unique(features).size == features.size, f"tree {t}: node {node} holds a feature twice")
        _require(
            features.size == 0 or (features.min() >= 0 and features.max() < d),
            f"tree {t}: node {node} holds a feature that does not exist",
        )
        _require(np.all(np.isfinite(cells["weight"])), f"tree {t}: a router's weight is not finite")
    end = int(state.counters[t, TABLES_END])
    for bits in range(N_TABLE_SIZES):
        start = int(state.counters[t, FREE_TABLES + bits])
        while start != NONE:
            _require(0 <= start < end and len(tables) <= end, f"tree {t}: a list of free tables is broken")
            tables.append((start, bits))
            link = int(table[start]["feature"])
            start = link if link == NONE else link << SMALLEST_TABLE_BITS
    tables.sort()
    ends = [start + (1 << bits) for start, bits in tables]
    _require(ends[:-1] == [start for start, _ in tables[1:]], f"tree {t}: router tables overlap or leave a gap")
    _require((not tables and end == 0) or (tables[0][0] == 0 and ends[-1] == end), f"tree {t}: a router table is lost")
