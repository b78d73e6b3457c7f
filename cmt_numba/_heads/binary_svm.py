"""Kernels: what a multi-label head learns: of each label that comes into question, whether the row has it.

Every label is a linear support vector machine of its own with squared slack, whose bias is the weight of one more
feature. It starts at 0 and is solved in the dual, by one row after another in closed form, over the rows that it learns
from (see ``hard_negatives.py``). A row has a label if its score is positive; scores are asked to lie 1 away from 0.

All other rows share no telling feature with the label's own, so the label's score of them is its bias. They count as
rows without features, and as they are all alike, a single dual variable stands for them. Without them a rare label
would not learn that it is rare.
"""

from typing import NamedTuple

import numpy as np

from .._forest.linear_model import dense_start
from .._forest.rng import random_below
from .._forest.rows import Row, Rows, dot, longest_row, row_of, squared_length
from .._forest.scorer import gathered_dot
from .._forest.sparse_weights import find_cell, locate_or_insert_cells, request_cells, table_bits
from .._forest.state import DONE, NONE, ONLY_TREE, TABLES_FULL
from .._jit import by_reference, empty, inner, inner_allocating, kernel, zeros
from .dual_ascent import dual_step

_SOFTNESS = 0.5  # 1 / (2 C), as linear support vector machines have it by default
_CLOSE_ENOUGH = 1e-4  # a smaller step is none
_FARTHEST = 0.003  # a sweep whose longest step is shorter is the last one
_SWEEPS_TO_CHECK = 5  # one in so many looks at all rows, the others at those that the last one learned from


class Duties(NamedTuple):
    """What is asked of labels by all rows together."""

    softness: float  # so much less than the margin is asked for, for each weight
    n_rows: np.ndarray  # int64 (labels,): rows there are; those that a label does not learn from have no features
    of_others: np.ndarray  # float32 (labels,): the dual variables of all of those together


class Bench(NamedTuple):
    """Room to solve one label after another. Features are numbered as they occur in the rows in hand."""

    features: np.ndarray  # int32: which feature of the head each one is
    weights: np.ndarray  # float32, of the label in hand
    met: np.ndarray  # int64: the last label that had rows with the feature
    touched: np.ndarray  # int32: the features of the label's rows
    kept: np.ndarray  # float32: room for those weights that go back to the head
    cells: np.ndarray  # int64: room to locate them in the head
    active: np.ndarray  # int64: the entries of the pairs that still learn
    sizes: np.ndarray  # float32 (rows,): squared lengths; the bias is one feature more
    stream: np.ndarray  # uint64 (1,): of random numbers


def new_duties(aggressiveness: float, n_rows: np.ndarray) -> Duties:
    """Return the duties of labels that nothing has been learned from."""
    return Duties(_SOFTNESS / aggressiveness, n_rows, np.zeros(n_rows.size, np.float32))


def numbered_afresh(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Return sparse rows with their features numbered as they occur, and the features: int32."""
    if not rows.sparse:
        return rows, np.empty(0, np.int32)
    features, indices = np.unique(rows.indices, return_inverse=True)
    return rows._replace(indices=indices.astype(np.int32), n_features=features.size), features.astype(np.int32)


@inner_allocating
def _new_bench(rows, features, most):
    d, n_rows = rows.n_features, rows.offsets.size - 1
    return Bench(
        features,
        zeros(d, np.float32),
        empty(d, np.int64),
        empty(d, np.int32),
        empty(d, np.float32),
        empty(d, np.int64),
        empty(most, np.int64),
        empty(n_rows, np.float32),
        zeros(1, np.uint64),
    )


@inner
def _prepare(bench, rows):
    for feature in range(bench.met.size):
        bench.met[feature] = NONE
    for row in range(bench.sizes.size):
        bench.sizes[row] = squared_length(row_of(rows, row)) + np.float32(1.0)


@inner
def _score(bench, x):
    if x.indices.size == 0:
        return dot(bench.weights, np.int64(0), x.values, x.a, x.b - x.a)
    return gathered_dot(bench.weights, x.indices[x.a : x.b], x.values[x.a : x.b])


@inner
def _add(bench, x, amount):
    values = x.values[x.a : x.b]
    if x.indices.size == 0:
        for i in range(values.size):
            bench.weights[i] += amount * values[i]
    else:
        indices = x.indices[x.a : x.b]
        for i in range(values.size):
            bench.weights[indices[i]] += amount * values[i]


@inner
def _touch_features(bench, rows, pairs, label, first, stop):
    """List the features of the label's rows, and return how many they are."""
    n_touched = 0
    for pair in range(first, stop):
        x = row_of(rows, pairs.rows[pair])
        for i in range(x.a, x.b):
            feature = np.int64(x.indices[i])
            if bench.met[feature] != label:
                bench.met[feature] = label
                bench.touched[n_touched] = feature
                n_touched += 1
    return n_touched


@inner
def _load(models, bench, label, n_touched):
    """Lay a label's weights on the bench."""
    if not models.sparse:
        start = dense_start(models, label)
        for i in range(bench.weights.size):
            bench.weights[i] = models.weights[0, start + i]
        return
    started = models.nodes[0, label]["table_bits"] > 0
    for i in range(n_touched):
        weight = np.float32(0.0)
        if started:
            cell = find_cell(models, ONLY_TREE, label, bench.features[bench.touched[i]])
            if cell >= 0:
                weight = models.table[0, cell]["weight"]
        bench.weights[bench.touched[i]] = weight


@inner
def _store(models, bench, label, n_touched, share):
    """Take a label's weights back from the bench; new ones only if they are not negligible. There must be room."""
    if not models.sparse:
        start = dense_start(models, label)
        for i in range(bench.weights.size):
            models.weights[0, start + i] = bench.weights[i]
        return
    lightest = np.float32(0.0)
    for i in range(n_touched):
        lightest = max(lightest, share * np.abs(bench.weights[bench.touched[i]]))
    started = models.nodes[0, label]["table_bits"] > 0
    n_kept = 0
    for i in range(n_touched):
        local = bench.touched[i]
        weight = bench.weights[local]
        feature = bench.features[local]
        kept = weight != 0.0 and np.abs(weight) >= lightest
        if not kept and started:
            kept = find_cell(models, ONLY_TREE, label, feature) >= 0
        if kept:
            bench.touched[n_kept] = feature  # over what has been read
            bench.kept[n_kept] = weight
            n_kept += 1
    row = Row(bench.kept, bench.touched, 0, n_kept)
    locate_or_insert_cells(models, ONLY_TREE, label, row, bench.cells)
    for i in range(n_kept):
        models.table[0, bench.cells[i]]["weight"] = bench.kept[i]


@inner
def _request_room(models, label, n_touched):
    """Return DONE if there is room for a weight for every feature of a label's rows, else TABLES_FULL."""
    if not models.sparse:
        return DONE
    return request_cells(models, ONLY_TREE, 1 << table_bits(models.nodes[0, label]["table_used"] + n_touched))


@inner
def _hold_others_off(bias, label, n_others, duties):
    """Return the bias that keeps all rows without features as far below 0 as the margin asks for."""
    softness = np.float32(duties.softness / n_others)
    short = np.float32(1.0) + bias - softness * duties.of_others[label]
    change = dual_step(short, np.float32(1.0) + softness, duties.of_others[label])
    duties.of_others[label] += change
    return bias - change


@inner
def _sweep(bench, rows, pairs, n_active, bias, softness):
    """Go once through the active pairs. Returns the new bias, the longest step and how many pairs still learn."""
    farthest, n_learning = np.float32(0.0), 0
    for i in range(n_active):
        # In random order, drawn on the way: in any fixed one it takes many more sweeps.
        drawn = i + random_below(bench.stream, 0, n_active - i)
        pair = bench.active[drawn]
        bench.active[drawn] = bench.active[i]
        x = row_of(rows, pairs.rows[pair])
        sign = np.float32(1.0) if pairs.has[pair] else np.float32(-1.0)
        weight = pairs.weights[pair]
        short = np.float32(1.0) - sign * (_score(bench, x) + bias) - softness * weight
        change = dual_step(short, bench.sizes[pairs.rows[pair]] + softness, weight)
        if np.abs(change) >= _CLOSE_ENOUGH:
            _add(bench, x, sign * change)
            bias += sign * change
            pairs.weights[pair] = weight + change
            farthest = max(farthest, np.abs(change))
        if pairs.weights[pair] > 0.0 or change > 0.0:
            bench.active[n_learning] = pair
            n_learning += 1
    return bias, farthest, n_learning


@inner
def _solve(bench, rows, pairs, label, first, stop, bias, duties, n_sweeps):
    """Solve a label whose weights lie on the bench; return its bias."""
    n_others = duties.n_rows[label] - (stop - first)
    n_active = 0
    for sweep in range(n_sweeps):
        checks = sweep % _SWEEPS_TO_CHECK == 0
        if checks:
            n_active = stop - first
            for i in range(n_active):
                bench.active[i] = first + i
        bias, farthest, n_active = _sweep(bench, rows, pairs, n_active, bias, np.float32(duties.softness))
        if n_others > 0:
            bias = _hold_others_off(bias, label, n_others, duties)
        if checks and farthest < _FARTHEST:
            break
    return bias


@inner
def _learn_label(models, bench, rows, pairs, label, first, stop, duties, n_sweeps, share):
    """Learn a label from the pairs ``first .. stop``; return DONE, or TABLES_FULL, with nothing learned."""
    n_touched = _touch_features(bench, rows, pairs, label, first, stop) if models.sparse else 0
    if _request_room(models, label, n_touched) != DONE:
        return TABLES_FULL
    _load(models, bench, label, n_touched)
    bias = np.float32(models.nodes[0, label]["bias"])
    models.nodes[0, label]["bias"] = _solve(bench, rows, pairs, label, first, stop, bias, duties, n_sweeps)
    _store(models, bench, label, n_touched, share)
    return DONE


@kernel
def learn_memberships(models, rows, features, pairs, duties, n_sweeps, share, at):
    """Train linear models on pairs of labels and rows, label by label.

    The features of sparse ``rows`` are numbered as they occur: number ``i`` is the head's ``features[i]``. Each label
    takes at most so many sweeps over its rows, and keeps no new weights below ``share`` of its largest. Goes on from
    the label ``at[0]``, which it moves on.

    Writes the models, and the weights of ``pairs`` and ``duties``. Returns DONE, or TABLES_FULL; it can then be called
    again.
    """
    models = by_reference(models)
    bench = _new_bench(rows, features, longest_row(pairs, 0, pairs.offsets.size - 1))
    _prepare(bench, rows)
    while at[0] < pairs.offsets.size - 1:
        label = at[0]
        first, stop = pairs.offsets[label], pairs.offsets[label + 1]
        if (
            first < stop
            and _learn_label(models, bench, rows, pairs, label, first, stop, duties, n_sweeps, np.float32(share))
            != DONE
        ):
            return TABLES_FULL
        at[0] += 1
    return DONE
