"""Checks of the invariants that kernels rely on.

Kernels have no bounds checks. These checks use only NumPy and validate every value before they use it, so they are safe
for arrays from a damaged file.

Kernels are compiled for exactly the dtypes and memory layouts in the annotations of fields. Axes with the same name
must have the same length.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._change import spans
from .._jit import as_python
from . import state as states
from .hash_table import hash_feature, hash_number
from .structures import ArrayKind, arrays_of, layout_of

_AT_ONCE = 1 << 20
_CELLS_AT_ONCE = 1 << 17
_LARGEST_TABLE_BITS = states.N_TABLE_SIZES - 1
_MOST_IDS = 2**62
_LONGEST_VALUE = 1.001  # upper bound on the values of a unit-length key after rounding

_leaf_limit = as_python(states.leaf_limit)
_home_of_feature, _home_of_number = as_python(hash_feature), as_python(hash_number)  # for arrays


class InvariantError(AssertionError):
    """Raised if an invariant is violated. The message states the invariant."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with ``message`` unless the condition ``holds``."""
    if not holds:
        raise InvariantError(message)


def all_finite(numbers: np.ndarray) -> bool:
    """Return whether all numbers are finite."""
    return all(bool(np.isfinite(part).all()) for part in _parts(numbers))


def _all_small(numbers: np.ndarray, most: float) -> bool:
    """Return whether all absolute values are at most ``most``; False if there is a NaN."""
    return all(bool((np.abs(part) <= most).all()) for part in _parts(numbers))


def all_within(numbers: np.ndarray, least: int, most: int) -> bool:
    """Return whether all numbers are between ``least`` and ``most``, inclusive."""
    return numbers.size == 0 or bool(numbers.min() >= least and numbers.max() <= most)


def are_offsets(offsets: np.ndarray, n_entries: int) -> bool:
    """Return whether offsets increase, not necessarily strictly, from 0 to ``n_entries``."""
    rising = bool(offsets.size > 0 and offsets[0] == 0 and offsets[-1] == n_entries)
    return rising and bool(np.all(offsets[1:] >= offsets[:-1]))


def _rise(numbers: np.ndarray, firsts: np.ndarray) -> bool:
    """Return whether numbers strictly increase within each segment. Segments begin at ``firsts``."""
    begins = np.zeros(numbers.size + 1, np.bool_)
    begins[firsts] = True
    return bool(np.all((numbers[1:] > numbers[:-1]) | begins[1:-1])) if numbers.size else True


def _parts(numbers: np.ndarray) -> list[np.ndarray]:
    flat = numbers.reshape(-1)
    return [flat[first:stop] for first, stop in spans(flat.size, _AT_ONCE)]


def check_runs(occupied: np.ndarray, homes: np.ndarray, what: str) -> None:
    """Raise InvariantError unless lookups in tables (one per row) end and find every entry from its home."""
    size = occupied.shape[1]
    cells = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64)
    last_empty = np.where(occupied, np.array(-1, cells.dtype), cells)
    np.maximum.accumulate(last_empty, axis=1, out=last_empty)
    end = last_empty[:, -1:].copy()
    require(np.all(end >= 0), f"{what} has no empty cell to end a search")
    np.copyto(
        last_empty, end - np.array(size, cells.dtype), where=last_empty < 0
    )  # runs continue from the last cell to the first
    walked = (cells - homes) & (size - 1)
    found = walked < cells - last_empty
    found |= ~occupied
    require(found.all(), f"{what} has an entry that searches cannot find")


def check_number_table(table: np.ndarray, keys: np.ndarray, what: str, *, features: bool = False) -> None:
    """Raise InvariantError unless lookups in ``table`` find the place of every key, hashed as id or feature."""
    n, size = keys.size, table.size
    require(size > 0 and size & (size - 1) == 0, f"the size of {what} is not a power of two")
    occupied = table != states.NONE
    places = table[occupied]
    require(places.size == n, f"{what} must have {n} entries, but has {places.size}")
    require(n == 0 or (places.min() >= 0 and places.max() < n), f"{what} refers to an entry that does not exist")
    require(np.all(np.bincount(places, minlength=n) == 1), f"{what} refers to an entry more than once")
    ordered = np.sort(keys)
    require(np.all(ordered[1:] != ordered[:-1]), f"{what} has two entries for one key")
    homes = np.zeros(size, np.int32 if size < 2**31 else np.int64)
    its_keys = keys[places].astype(np.int64)
    homes[occupied] = _home_of_feature(its_keys, size.bit_length() - 1) if features else _home_of_number(its_keys, size)
    check_runs(occupied[None], homes[None], what)


def check_layout(structure: Any, lengths: dict[str, int] | None = None) -> None:
    """Raise InvariantError unless arrays match their annotations, with the known ``lengths`` of named axes."""
    kind: type[tuple[Any, ...]] = type(structure)
    layout = layout_of(kind)
    known = dict(lengths or {})
    arrays = arrays_of(structure)
    require(arrays.keys() == layout.keys(), f"the arrays must be {', '.join(layout)}")
    for name, array in arrays.items():
        fault = _fault_of(array, layout[name], known)
        require(fault is None, f"{name} must {fault}")


def _fault_of(array: np.ndarray, kind: ArrayKind, known: dict[str, int]) -> str | None:
    """Return what is wrong with an array, or None, and add the lengths of new axes to ``known``."""
    if array.dtype != kind.dtype:
        return f"be of dtype {kind.dtype}, not {array.dtype}"
    if array.ndim != len(kind.axes):
        return f"have {len(kind.axes)} dimensions, not {array.ndim}"
    for axis, length in zip(kind.axes, array.shape, strict=True):
        wanted = axis if isinstance(axis, int) else known.setdefault(axis, length)
        if length != wanted:
            what = "an axis" if isinstance(axis, int) else f"an axis ({axis})"
            return f"have {what} of length {wanted}, not {length}"
    return None if array.flags.c_contiguous and array.flags.aligned else "be contiguous and aligned"


# Keys and the scorer


def check_key_frame(parameters: Any, keys: states.KeyArrays) -> None:
    """Raise InvariantError unless the arrays of a key store have the expected lengths. Call :func:`check_layout` first.

    The check reads no array except ``totals``.
    """
    n, next_id, end, live, longest = (
        int(keys.totals[i])
        for i in (states.N_MEMORIES, states.NEXT_ID, states.VALUES_END, states.VALUES_LIVE, states.LONGEST)
    )
    capacity, d = keys.ids.size, parameters.n_features
    require(1 <= d <= states.MOST_FEATURES, f"keys must have 1 to {states.MOST_FEATURES} features, got {d}")
    require(
        0 <= n <= min(capacity, states.MOST_MEMORIES),
        f"the number of memories, {n}, is not between 0 and {min(capacity, states.MOST_MEMORIES)}",
    )
    require(n <= next_id <= _MOST_IDS, f"the next id is invalid: {next_id}")
    require(0 <= longest <= d, f"the longest key has an invalid number of cells: {longest}")
    require(n < keys.slot_table.size, "the slot table is too small")
    if parameters.sparse:
        require(keys.indices.size == keys.values.size, "every cell of a key must have a feature")
        require(keys.spans.shape[0] == capacity, "every key must have a span")
        require(0 <= live <= end <= keys.values.size, "the key store has overflowed")
    else:
        require(keys.values.size >= capacity * d, "the key store is too small")


def check_keys(parameters: Any, keys: states.KeyArrays, *, values: bool = True) -> None:
    """Raise InvariantError if a key store is invalid. Call :func:`check_key_frame` first.

    If ``values`` is False, skip the values of keys, for example because only codes are stored.
    """
    n = int(keys.totals[states.N_MEMORIES])
    ids = keys.ids[:n]
    require(all_within(ids, 0, int(keys.totals[states.NEXT_ID]) - 1), "an id is out of range")
    check_number_table(keys.slot_table, ids, "the slot table")
    if parameters.sparse:
        _check_sparse(parameters, keys, n, values)
    elif values:
        require(_all_small(keys.values[: n * parameters.n_features], _LONGEST_VALUE), "a key is not of length 1")


def _check_sparse(parameters: Any, keys: states.KeyArrays, n: int, with_values: bool) -> None:
    start, stop = keys.spans[:n, 0], keys.spans[:n, 1]
    end = int(keys.totals[states.VALUES_END])
    require(np.all(start <= stop), "a key ends before it starts")
    require(all_within(start, 0, end) and all_within(stop, 0, end), "a key lies outside the key store")
    lengths = stop - start
    require(int(lengths.sum()) == keys.totals[states.VALUES_LIVE], "the number of key cells is wrong")
    require(
        all_within(lengths, 0, int(keys.totals[states.LONGEST])), "a key has more cells than the recorded longest key"
    )
    order = np.argsort(start[lengths > 0], kind="stable")
    start, stop = start[lengths > 0][order], stop[lengths > 0][order]
    require(np.all(stop[:-1] <= start[1:]), "two keys share a cell")
    indices, values = keys.indices[:end], keys.values[:end]
    if int(lengths.sum()) < end:  # skip the cells of removed keys
        edges = np.zeros(end + 1, np.int8)
        edges[start] += 1
        edges[stop] -= 1
        live = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
        indices, values = indices[live], values[live]
    firsts = np.cumsum(stop - start) - (stop - start)
    require(all_within(indices, 0, parameters.n_features - 1), "a key has a feature that does not exist")
    require(_rise(indices, firsts), "the features of a key are not in ascending order")
    require(not with_values or _all_small(values, _LONGEST_VALUE), "a key is not of length 1")


def _check_scorer(parameters: Any, scorer: Any) -> None:
    """Raise InvariantError if a scorer is invalid."""
    require(scorer.theta.size in (0, parameters.n_features), "the scorer must have one weight per feature or none")
    require(all_finite(scorer.theta), "the scorer has a weight that is not finite")
    squares = scorer.squares
    require(all_finite(squares) and np.all(squares >= 0), "a sum of squares of the scorer is negative")


# Linear models: the routers of a forest and the label scorers of a head


def check_model_frame(state: Any, n_trees: int = 1) -> None:
    """Raise InvariantError unless the arrays of models have the expected lengths. Call :func:`check_layout` first.

    The check reads no array except ``counters``.
    """
    d, n_nodes = state.parameters.n_features, state.nodes.shape[1]
    sparse, counters = state.parameters.sparse, state.counters
    require(counters.shape[0] == state.nodes.shape[0] == n_trees, "every tree must have counters")
    require(
        state.weights.dense.shape[1] == (0 if sparse else n_nodes * 2 * d),
        "the size of the weights does not match the number of dense models",
    )
    require(sparse or state.weights.table.shape[1] == 0, "dense models must not have tables")
    require(all_within(counters[:, states.NODES_END], 0, n_nodes), "the end of the nodes is out of range")
    n_cells = state.weights.table.shape[1]
    require(all_within(counters[:, states.TABLES_END], 0, n_cells), "the end of the tables is out of range")


def check_models(state: Any, t: int, used: np.ndarray, what: str, *, sums: bool = False) -> None:
    """Raise InvariantError if a model in the rows ``used`` of ``nodes[t]`` is invalid.

    Call :func:`check_model_frame` first. ``what`` is the name of the models in messages. If ``sums`` is True, the
    accumulators are sums of examples, which may be negative.
    """
    nodes, d = state.nodes[t], state.parameters.n_features
    require(all_finite(nodes["bias"][used]), f"{what}: a model's bias is not finite")
    squares = nodes["bias_square"][used]
    require(all_finite(squares) and np.all(squares >= 0), f"{what}: a model's bias_square is negative or not finite")
    if state.parameters.sparse:
        _check_tables(state, t, used, what, sums)
        return
    require(not nodes["table_bits"][used].any(), f"{what}: a dense model has a table")
    weights = state.weights.dense[t].reshape(-1, 2 * d)
    for rows in np.array_split(used, max(1, used.size * 2 * d // _CELLS_AT_ONCE)):
        part = weights[rows]
        require(all_finite(part), f"{what}: a model's weight is not finite")
        require(sums or np.all(part[:, d:] >= 0), f"{what}: a model's sum of squares is negative")


def _check_tables(state: Any, t: int, used: np.ndarray, what: str, sums: bool) -> None:
    nodes, end = state.nodes[t], int(state.counters[t, states.TABLES_END])
    bits = nodes["table_bits"][used].astype(np.int64)
    owners, bits = used[bits != 0], bits[bits != 0]
    require(all_within(bits, states.SMALLEST_TABLE_BITS, _LARGEST_TABLE_BITS), f"{what}: a table has an invalid size")
    starts = nodes["table_start"][owners].astype(np.int64) << states.SMALLEST_TABLE_BITS
    free_starts, free_bits = _free_tables(state, t, what)
    all_starts, all_bits = np.concatenate([starts, free_starts]), np.concatenate([bits, free_bits])
    order = np.argsort(all_starts, kind="stable")
    ends = all_starts[order] + (1 << all_bits[order])
    expected = np.concatenate([np.zeros(1, np.int64), ends])
    require(np.array_equal(expected[:-1], all_starts[order]), f"{what}: tables overlap or leave a gap")
    require(int(expected[-1]) == end, f"{what}: a table is missing")
    for first, size, rows in _alike(starts, bits, owners):
        _check_cells(state, t, first, size, rows, what, sums)


def _free_tables(state: Any, t: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of all free tables and log2 of their sizes."""
    table, end = state.weights.table[t], int(state.counters[t, states.TABLES_END])
    starts, all_bits = [], []
    left = end
    for bits in range(states.N_TABLE_SIZES):
        start = int(state.counters[t, states.FREE_TABLES + bits])
        while start != states.NONE:
            left -= 1 << bits
            within = bits >= states.SMALLEST_TABLE_BITS and 0 <= start <= end - (1 << bits) and left >= 0
            require(within, f"{what}: a list of free tables is invalid")
            starts.append(start)
            all_bits.append(bits)
            link = int(table[start]["feature"])
            start = link if link == states.NONE else link << states.SMALLEST_TABLE_BITS
    return np.array(starts, np.int64), np.array(all_bits, np.int64)


def _alike(starts: np.ndarray, bits: np.ndarray, owners: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
    """Yield groups of tables of equal size: their starts, their size and their owners."""
    for size_bits in np.unique(bits):
        of_size = np.flatnonzero(bits == size_bits)
        n_parts = max(1, (of_size.size << int(size_bits)) // _CELLS_AT_ONCE)
        for part in np.array_split(of_size, min(n_parts, of_size.size)):
            yield starts[part], 1 << int(size_bits), owners[part]


def _check_cells(state: Any, t: int, starts: np.ndarray, size: int, owners: np.ndarray, what: str, sums: bool) -> None:
    """Raise InvariantError if the contents of tables of equal size are invalid."""
    table = state.weights.table[t, : int(state.counters[t, states.TABLES_END])]
    blocks = table.view(f"V{table.itemsize << states.SMALLEST_TABLE_BITS}")  # of the size of the smallest table
    places = (starts >> states.SMALLEST_TABLE_BITS)[:, None] + np.arange(size >> states.SMALLEST_TABLE_BITS)
    cells = blocks[places].view(table.dtype)
    features = np.ascontiguousarray(cells["feature"])
    occupied = features != states.NONE
    counts = np.count_nonzero(occupied, axis=1)
    require(
        np.array_equal(counts, state.nodes[t]["table_used"][owners]), f"{what}: the feature count of a table is wrong"
    )
    require(np.all(4 * counts <= 3 * size), f"{what}: a table is too full")
    require(
        all_within(features[occupied], 0, state.parameters.n_features - 1),
        f"{what}: a table has a feature that does not exist",
    )
    ordered = np.sort(features, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != states.NONE)
    require(not twice.any(), f"{what}: a table has a feature twice")
    check_runs(occupied, _home_of_feature(features, size.bit_length() - 1), f"{what}: a table")
    require(all_finite(cells["weight"]), f"{what}: a model's weight is not finite")
    require(not cells["weight"][~occupied].any(), f"{what}: an empty cell of a table has a weight")
    squares = cells["square"][occupied]
    require(all_finite(squares), f"{what}: a model's sum of squares is not finite")
    require(sums or np.all(squares >= 0), f"{what}: a model's sum of squares is negative")


# Trees


def levels(state: states.State, t: int) -> list[np.ndarray]:
    """Return the places of tree ``t``: one array for each level, from the root down."""
    counters, nodes, leaves = state.counters[t], state.nodes[t], state.leaves[t]
    level = counters[states.ROOT : states.ROOT + 1]
    parents = np.array([states.NONE])
    result = []
    n_left = int(counters[states.NODES_END] + counters[states.LEAVES_END])
    while level.size:
        n_left -= level.size
        require(n_left >= 0, f"tree {t}: a node or leaf is reachable more than once")
        internal, leaf = level[level >= 0], ~level[level < 0]
        require(np.all(internal < counters[states.NODES_END]), f"tree {t}: a link refers to a node that does not exist")
        require(np.all(leaf < counters[states.LEAVES_END]), f"tree {t}: a link refers to a leaf that does not exist")
        named = np.empty(level.size, np.int64)
        named[level >= 0] = nodes["parent"][internal]
        named[level < 0] = leaves["parent"][leaf]
        require(np.array_equal(named, parents), f"tree {t}: a node or leaf has the wrong parent")
        result.append(level.astype(np.int64))
        level = nodes["child"][internal].reshape(-1)
        parents = np.repeat(internal, 2)
    return result


def depth(state: states.State) -> int:
    """Return the maximum number of internal nodes between a root and a leaf."""
    return max(len(levels(state, t)) - 1 for t in range(state.parameters.n_trees))


class Leaves(NamedTuple):
    """All leaves of a forest, ordered by tree and depth."""

    tree: np.ndarray
    """The tree of each leaf (int64, shape (n_leaves,))."""
    depth: np.ndarray
    """The number of internal nodes above each leaf (int64, shape (n_leaves,))."""
    size: np.ndarray
    """The number of memories in each leaf (int64, shape (n_leaves,))."""


Leaves.__module__ = "cmt_numba"  # the module from which pickles import the class


def leaves(state: states.State) -> Leaves:
    """Return the tree, the depth and the size of each leaf."""
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


def check(state: states.State, *, values: bool = True) -> None:
    """Raise InvariantError if the state is invalid.

    If ``values`` is False, skip the values of keys and dense routers, which are never used as indices.
    """
    check_frame(state)
    check_keys(state.parameters, state.keys, values=values)
    _check_scorer(state.parameters, state.scorer)
    for t in range(state.parameters.n_trees):
        places = levels(state, t)
        _check_leaves(state, t, places)
        _check_counts(state, t, places)
        _check_free_lists(state, t, places)
        _check_routers(state, t, places, values)


def check_frame(state: states.State) -> None:
    """Raise InvariantError unless all arrays have the expected dtypes and lengths.

    The check reads only the counters and totals, so its time does not depend on the size of the forest.
    """
    parameters, counters, keys = state.parameters, state.counters, state.keys
    n_trees = parameters.n_trees
    check_layout(state, {"trees": n_trees, "streams": n_trees + 1})
    check_key_frame(parameters, keys)
    check_model_frame(state, n_trees)
    n = int(keys.totals[states.N_MEMORIES])
    require(state.leaf_of.shape[1] >= n, "every memory must have a leaf")
    require(
        all_within(counters[:, states.LEAVES_END], 1, state.leaves.shape[1]), "the end of the leaves is out of range"
    )
    width = state.members.shape[2]
    require(width >= _leaf_limit(parameters.leaf_multiplier, n), f"leaves have no room for c log2({n}) memories")
    for t in range(n_trees):
        require(counters[t, states.COUNT] == n, f"tree {t}: contains {counters[t, states.COUNT]} of {n} memories")
        at_rest = counters[t, states.MOVING_SLOT] == states.NONE and counters[t, states.REROUTES_LEFT] == 0
        require(at_rest, f"tree {t}: an insert is unfinished")


def _check_leaves(state: states.State, t: int, places: list[np.ndarray]) -> None:
    n = int(state.keys.totals[states.N_MEMORIES])
    everywhere = np.concatenate(places)
    leaf = ~everywhere[everywhere < 0]
    size = state.leaves["size"][t, leaf]
    width = state.members.shape[2]
    require(all_within(size, 0, width), f"tree {t}: a leaf holds more than c log2(n) = {width} memories")
    require(leaf.size == 1 or np.all(size > 0), f"tree {t}: a leaf below the root is empty")
    taken = np.arange(width) < size[:, None]
    members = state.members[t, leaf][taken]
    known = members.size == n and all_within(members, 0, n - 1)
    require(known and np.all(np.bincount(members) == 1), f"tree {t}: not every memory is in exactly one leaf")
    holder = np.repeat(leaf, size)
    require(np.array_equal(state.leaf_of[t, members], holder), f"tree {t}: a memory has the wrong leaf")


def _check_counts(state: states.State, t: int, places: list[np.ndarray]) -> None:
    nodes, leaves = state.nodes[t], state.leaves[t]
    below = np.zeros(state.counters[t, states.NODES_END], np.int64)
    for level in reversed(places):
        internal = level[level >= 0]
        child = nodes["child"][internal]
        count = np.where(child >= 0, below[np.maximum(child, 0)], leaves["size"][np.maximum(~child, 0)])
        require(np.array_equal(nodes["below"][internal], count), f"tree {t}: a node's counts are wrong")
        below[internal] = count.sum(axis=1)


def _check_free_lists(state: states.State, t: int, places: list[np.ndarray]) -> None:
    everywhere = np.concatenate(places)
    for name, live, links, head, end in (
        ("node", everywhere[everywhere >= 0], state.nodes["parent"][t], states.FREE_NODE, states.NODES_END),
        ("leaf", ~everywhere[everywhere < 0], state.leaves["parent"][t], states.FREE_LEAF, states.LEAVES_END),
    ):
        end = int(state.counters[t, end])
        free = _linked(links, int(state.counters[t, head]), end, f"tree {t}: the {name} free list")
        rows = np.concatenate([live, free])
        require(np.array_equal(np.sort(rows), np.arange(end)), f"tree {t}: a {name} is missing or used twice")


def _linked(links: np.ndarray, head: int, most: int, what: str) -> np.ndarray:
    rows: list[int] = []
    while head != states.NONE:
        require(0 <= head < most and len(rows) < most, f"{what} is invalid")
        rows.append(head)
        head = int(links[head])
    return np.array(rows, np.int64)


def _check_routers(state: states.State, t: int, places: list[np.ndarray], values: bool) -> None:
    everywhere = np.concatenate(places)
    internal = everywhere[everywhere >= 0]
    nodes = state.nodes[t]
    unused = np.ones(nodes.size, np.bool_)
    unused[internal] = False
    require(not nodes["table_bits"][unused].any(), f"tree {t}: an unused node has a table")
    examples, mistakes = nodes["examples"][internal], nodes["mistakes"][internal]
    counted = np.all(mistakes <= examples) and not np.any(mistakes < 0)
    require(counted, f"tree {t}: the count of router mistakes of a node is wrong")
    require(not np.any(nodes["departed"][internal] < 0), f"tree {t}: the count of removed memories of a node is wrong")
    if values or state.parameters.sparse:
        check_models(state, t, internal, f"tree {t}")
