"""Compare the time of a query with a lower bound: a bare loop over the same memory.

The loop reads the weights of the routers on each query's paths and the keys of the memories that it scores, leaf by
leaf in the order of the search. It computes the same dot products, and keeps only the largest. It receives a list of
the places to read, so it makes no decisions and never waits for one product to find the next place. No search can be
faster.

A second loop reads dense keys as 8-bit codes, and only the best key of each query in full. It computes as many products
as the first loop, but reads less memory.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cmt_numba import ContextualMemoryTree
from cmt_numba._forest.frontier import begin_search, frontier_at, new_frontiers, reach_next
from cmt_numba._forest.linear_model import dense_start
from cmt_numba._forest.rows import Rows, row_of
from cmt_numba._forest.sparse_weights import find_cell
from cmt_numba._forest.state import NONE, State
from cmt_numba._forest.topology import parent_of
from cmt_numba._jit import inner, inner_fastmath, kernel, release
from cmt_numba._validation import check_rows

from .keys import make_data

_LINE = 64  # bytes of a cache line


class Reads(NamedTuple):
    """What each query of a batch reads. ``*_ends`` hold the end of each query's entries, where the next ones start."""

    trees: np.ndarray  # int64, for each router read
    nodes: np.ndarray  # int64, for each router read
    node_ends: np.ndarray  # int64 (queries,)
    slots: np.ndarray  # int64: the memories scored
    slot_ends: np.ndarray  # int64 (queries,)
    n_leaves: np.ndarray  # int64 (queries,): leaves reached


class Times(NamedTuple):
    """Median times in microseconds per query."""

    query: float
    floor: float
    codes: float  # NaN with sparse keys


class Visit(NamedTuple):
    """Mean numbers of what a query reads."""

    routers: float
    memories: float
    router_lines: float  # cache lines of routers
    lines: float  # cache lines of routers, leaves and keys


# What a search reads


@inner
def _list_routers(trees, models, t, place, row, met, reads, end):
    """List the routers above a node that the row has not read before, from the top down; return the new end."""
    first, node = end, parent_of(trees, t, place)
    while node != NONE and met[t, node] != row:
        met[t, node] = row
        # A router of sparse keys without any training has no weights to read.
        if not models.sparse or trees.nodes[t, node]["table_bits"] > 0:
            if end < reads.nodes.size:
                reads.trees[end], reads.nodes[end] = t, node
            end += 1
        node = parent_of(trees, t, node)
    if end <= reads.nodes.size:
        for i in range((end - first) // 2):
            j, k = first + i, end - 1 - i
            reads.trees[j], reads.trees[k] = reads.trees[k], reads.trees[j]
            reads.nodes[j], reads.nodes[k] = reads.nodes[k], reads.nodes[j]
    return end


@inner
def _list_memories(trees, t, leaf, row, scored, reads, end):
    """List the memories of a leaf that the row has not scored before; return the new end."""
    for i in range(trees.leaves[t, leaf]["size"]):
        slot = np.int64(trees.members[t, leaf, i])
        if scored[slot] != row:
            scored[slot] = row
            if end < reads.slots.size:
                reads.slots[end] = slot
            end += 1
    return end


@inner
def _list_row(trees, models, frontiers, rows, row, n_leaves, met, scored, reads, node_end, slot_end):
    """List what a row reads; return the new ends.

    This works for any search order: the untried nodes and the leaf just reached are all below routers that the row has
    read.
    """
    x, frontier = row_of(rows, row), frontier_at(frontiers, 0)
    begin_search(frontier)
    t, leaf = reach_next(trees, models, frontier, x, n_leaves, trees.members.shape[2])
    while leaf != NONE:
        for i in range(frontier.here[0]["end"]):
            left, place = np.int64(frontier.heap[i]["tree"]), np.int64(frontier.heap[i]["place"])
            node_end = _list_routers(trees, models, left, place, row, met, reads, node_end)
        node_end = _list_routers(trees, models, t, ~leaf, row, met, reads, node_end)
        slot_end = _list_memories(trees, t, leaf, row, scored, reads, slot_end)
        reads.n_leaves[row] += 1
        t, leaf = reach_next(trees, models, frontier, x, n_leaves, trees.members.shape[2])
    return node_end, slot_end


@kernel
def _list_reads(trees, models, rows, n_leaves, met, scored, reads):
    """List what each row reads, as far as there is room. The ends tell how much room is needed."""
    frontiers = new_frontiers(trees, 1)
    node_end = slot_end = np.int64(0)
    for row in range(rows.offsets.size - 1):
        node_end, slot_end = _list_row(
            trees, models, frontiers, rows, row, n_leaves, met, scored, reads, node_end, slot_end
        )
        reads.node_ends[row], reads.slot_ends[row] = node_end, slot_end
    release(frontiers)


def list_reads(state: State, rows: Rows, n_leaves: int) -> Reads:
    """Return what a search of ``n_leaves`` leaves reads for each row, in order."""
    n, room = rows.n_rows, (0, 0)
    for _ in range(2):  # the first round has no room and finds out how much is needed
        nodes, slots = (np.empty(size, np.int64) for size in room)
        ends = np.zeros((3, n), np.int64)
        reads = Reads(np.empty_like(nodes), nodes, ends[0], slots, ends[1], ends[2])
        met = np.full(state.nodes.shape, NONE)
        scored = np.full(state.leaf_of.shape[1], NONE)
        _list_reads(state.trees, state.models, rows, n_leaves, met, scored, reads)
        room = int(ends[0, -1]), int(ends[1, -1])
    return reads


@kernel
def _find_starts(models, reads, starts):
    """Write where the weights of each dense router start in the weights of all trees."""
    for i in range(starts.size):
        starts[i] = reads.trees[i] * models.weights.shape[1] + dense_start(models, reads.nodes[i])


@kernel
def _find_cells(models, rows, reads, cells):
    """Write the cell where the look-up of each feature of a row in each router's table ends, even if it is absent."""
    n_cells_a_tree = models.table.shape[1]
    i = end = 0
    for row in range(rows.offsets.size - 1):
        while i < reads.node_ends[row]:
            t, node = reads.trees[i], reads.nodes[i]
            for j in range(rows.offsets[row], rows.offsets[row + 1]):
                cell = find_cell(models, t, node, rows.indices[j])
                cells[end] = t * n_cells_a_tree + (cell if cell >= 0 else ~cell)
                end += 1
            i += 1


def count_lines(state: State, rows: Rows, reads: Reads) -> Visit:
    """Return how much memory a query reads. This models cache misses where no hardware counter is available."""
    n, d = rows.n_rows, state.parameters.n_features
    routers, memories, leaves = reads.nodes.size / n, reads.slots.size / n, float(reads.n_leaves.mean())
    if state.parameters.sparse:
        cells = cells_of(state, rows, reads)
        asked = np.repeat(np.arange(n), np.diff(rows.offsets) * np.diff(reads.node_ends, prepend=0))
        weights = np.unique((asked << 40) | (state.routers.table.itemsize * cells // _LINE)).size / n
        first, stop = 4 * state.keys.spans[reads.slots].T
        keys = float(np.sum(1 + 2 * ((stop - 1) // _LINE - first // _LINE + 1))) / n  # spans; values and indices
    else:
        lines_of_a_row = -(-4 * d // _LINE)
        weights, keys = routers * lines_of_a_row, memories * lines_of_a_row
    members = 4 * memories / _LINE + leaves  # a list may begin anywhere in a cache line
    router_lines = routers + weights  # the record of a node takes one cache line
    return Visit(routers, memories, router_lines, router_lines + leaves + members + keys)


def cells_of(state: State, rows: Rows, reads: Reads) -> np.ndarray:
    """Return the cell of each feature of each row in each router's table, as an index into all tables together."""
    n_met = np.diff(reads.node_ends, prepend=0)
    cells = np.empty(int(n_met @ np.diff(rows.offsets)), np.int64)
    _find_cells(state.models, rows, reads, cells)
    return cells


# The bare loops


@inner_fastmath
def _dot(x, a, y, c, n):
    left, right = x[a : a + n], y[c : c + n]
    total = np.float32(0.0)
    for i in range(n):
        total += left[i] * right[i]
    return total


@inner_fastmath
def _coded_dot(x, a, codes, c, n):
    left, right = x[a : a + n], codes[c : c + n]
    total = np.float32(0.0)
    for i in range(n):
        total += left[i] * np.float32(right[i])
    return total


@inner_fastmath
def _dot_of_cells(x, a, table, cells, c, n):
    left, right = x[a : a + n], cells[c : c + n]
    total = np.float32(0.0)
    for i in range(n):
        total += left[i] * table[right[i]]["weight"]
    return total


@inner_fastmath
def _dot_by_feature(by_feature, indices, values, a, b):
    features, weights = indices[a:b], values[a:b]
    total = np.float32(0.0)
    for i in range(b - a):
        total += by_feature[features[i]] * weights[i]
    return total


@kernel
def _read_dense(rows, weights, starts, node_ends, keys, slots, slot_ends, largest):
    """Write each row's largest margin and largest score."""
    d = rows.n_features
    i = j = 0
    for row in range(rows.offsets.size - 1):
        margin = score = np.float32(-np.inf)
        while i < node_ends[row]:
            margin = max(margin, _dot(rows.values, row * d, weights, starts[i], d))
            i += 1
        while j < slot_ends[row]:
            score = max(score, _dot(rows.values, row * d, keys, slots[j] * d, d))
            j += 1
        largest[row, 0], largest[row, 1] = margin, score


@kernel
def _read_codes(rows, weights, starts, node_ends, keys, codes, scales, slots, slot_ends, largest):
    """Write each row's largest margin, and the score of the key whose code has the largest."""
    d = rows.n_features
    i = j = 0
    for row in range(rows.offsets.size - 1):
        margin = score = np.float32(-np.inf)
        best = np.int64(0)
        while i < node_ends[row]:
            margin = max(margin, _dot(rows.values, row * d, weights, starts[i], d))
            i += 1
        while j < slot_ends[row]:
            coded = scales[slots[j]] * _coded_dot(rows.values, row * d, codes, slots[j] * d, d)
            if coded > score:
                score, best = coded, slots[j]
            j += 1
        largest[row, 0], largest[row, 1] = margin, _dot(rows.values, row * d, keys, best * d, d)


@kernel
def _read_sparse(rows, table, cells, node_ends, keys, slots, slot_ends, by_feature, largest):
    """Write each row's largest margin and largest score. ``by_feature`` must be all zeros, and is again on return."""
    i = j = end = 0
    for row in range(rows.offsets.size - 1):
        a, b = rows.offsets[row], rows.offsets[row + 1]
        for k in range(a, b):
            by_feature[rows.indices[k]] = rows.values[k]
        margin = score = np.float32(-np.inf)
        while i < node_ends[row]:
            margin = max(margin, _dot_of_cells(rows.values, a, table, cells, end, b - a))
            end += b - a
            i += 1
        while j < slot_ends[row]:
            first, stop = keys.spans[slots[j], 0], keys.spans[slots[j], 1]
            score = max(score, _dot_by_feature(by_feature, keys.indices, keys.values, first, stop))
            j += 1
        for k in range(a, b):
            by_feature[rows.indices[k]] = 0.0
        largest[row, 0], largest[row, 1] = margin, score


def bare_loops(state: State, rows: Rows, reads: Reads) -> dict[str, Callable[[], np.ndarray]]:
    """Return the loops as functions that return the largest margin and the largest score of each row."""
    largest, d = np.empty((rows.n_rows, 2), np.float32), state.parameters.n_features
    ends, keys = (reads.node_ends, reads.slots, reads.slot_ends), state.keys
    if state.parameters.sparse:
        table, cells = state.routers.table.reshape(-1), cells_of(state, rows, reads)
        by_feature = np.zeros(d, np.float32)

        def floor() -> np.ndarray:
            _read_sparse(rows, table, cells, ends[0], keys, ends[1], ends[2], by_feature, largest)
            return largest

        return {"floor": floor}

    weights = state.routers.weights.reshape(-1)
    starts = np.empty_like(reads.nodes)
    _find_starts(state.models, reads, starts)
    matrix = keys.values.reshape(-1, d)
    scales = np.abs(matrix).max(axis=1) / np.float32(127.0)
    codes = np.rint(matrix / np.where(scales > 0.0, scales, 1.0)[:, None]).astype(np.int8).reshape(-1)

    def dense_floor() -> np.ndarray:
        _read_dense(rows, weights, starts, ends[0], keys.values, ends[1], ends[2], largest)
        return largest

    def floor_of_codes() -> np.ndarray:
        _read_codes(rows, weights, starts, ends[0], keys.values, codes, scales, ends[1], ends[2], largest)
        return largest

    return {"floor": dense_floor, "codes": floor_of_codes}


# Timing


def compare(tree: ContextualMemoryTree, queries: Any, n_probes: int | None = None, repeats: int = 7) -> Times:
    """Time queries and the bare loops in turns. The tree must use one thread."""
    state = tree._forest.state
    assert state is not None
    rows = check_rows(queries, sparse=state.parameters.sparse, n_features=state.parameters.n_features)
    n_leaves = state.parameters.n_trees if n_probes is None else n_probes
    jobs: dict[str, Callable[[], Any]] = {"query": lambda: tree.query(queries, n_probes=n_probes)}
    jobs.update(bare_loops(state, rows, list_reads(state, rows, n_leaves)))
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # compile
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: 1e6 * statistics.median(taken) / rows.n_rows for name, taken in seconds.items()}
    return Times(medians["query"], medians["floor"], medians.get("codes", np.nan))


class Floor:
    """Time queries against a bare loop over the same memory, on one thread."""

    params = (["dense 64", "dense 128", "text"], [1, 8])
    param_names = ("keys", "trees")
    timeout = 900
    n_memories, n_queries = 50_000, 2000

    def setup_cache(self) -> dict[tuple[str, int], Times]:
        """Measure all cases."""
        times = {}
        for keys in self.params[0]:
            form, _, n_features = keys.partition(" ")
            data = make_data(form, self.n_memories, self.n_queries, int(n_features or 0))
            for n_trees in self.params[1]:
                tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
                tree.insert(data.keys)
                times[keys, n_trees] = compare(tree, data.queries)
        return times

    def track_query(self, times: dict[tuple[str, int], Times], keys: str, n_trees: int) -> float:
        """Return the microseconds per query."""
        return times[keys, n_trees].query

    def track_floor(self, times: dict[tuple[str, int], Times], keys: str, n_trees: int) -> float:
        """Return the microseconds per query of the bare loop."""
        return times[keys, n_trees].floor

    def track_times_the_floor(self, times: dict[tuple[str, int], Times], keys: str, n_trees: int) -> float:
        """Return the time of a query divided by that of the bare loop."""
        return times[keys, n_trees].query / times[keys, n_trees].floor

    def track_times_the_floor_of_codes(self, times: dict[tuple[str, int], Times], keys: str, n_trees: int) -> float:
        """Return the time of a query divided by that of the loop over codes."""
        return times[keys, n_trees].query / times[keys, n_trees].codes

    track_query.unit = track_floor.unit = "microseconds"  # type: ignore[attr-defined]
    track_times_the_floor.unit = track_times_the_floor_of_codes.unit = "times"  # type: ignore[attr-defined]
