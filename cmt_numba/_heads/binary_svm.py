"""Kernels: training of multi-label heads with one binary support vector machine per label.

Each label has a linear support vector machine with squared slack. Its bias is the weight of a constant feature. Dual
coordinate ascent trains it on the rows paired with the label (see ``hard_negatives.py``), one row at a time in closed
form. A row has the label if its score is positive; the margin is 1. A row's weight multiplies its ``C``.

The remaining rows are treated as rows without features, whose score is the bias. These rows are identical, so they
share a single dual variable. Without them, a rare label would not learn that it is rare.

Further rows change a scorer from its former weights. The more the former objective curves in a direction, the smaller
the change: a weight counts ``1 + a * g`` times, where ``a`` is the curvature of the label's slack and ``g`` is the mean
square of the feature. This approximates the diagonal of the Hessian matrix, so a scorer that learns in batches ends
where one that learns all rows at once would.
"""

from typing import NamedTuple

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._jit import by_reference, empty, inner, inner_allocating, kernel, prefetch, release, zeros

_SOFTNESS = 0.5  # 1 / (2 C) for C = 1, the usual default of linear support vector machines
_FEW_ROWS, _POWER, _MAX_SOFTER = 20.0, 0.4, 4.0  # softness grows with the number of sparse rows of a label
_SOFTEST = 1e10  # keeps the softness of the lightest rows finite in float32
_CLOSE_ENOUGH = 1e-4  # smaller steps are skipped
_FARTHEST = 0.003  # training stops after a sweep without longer steps
_ROWS_AHEAD = 6  # number of rows to prefetch in advance
_CELLS_IN_A_LINE = 16  # cells in a cache line of 64 bytes
_SWEEPS_TO_CHECK = 5  # every fifth sweep checks all rows; other sweeps check only rows that still change


class FormerRows(NamedTuple):
    """The rows that labels have learned before."""

    n_of_label: np.ndarray  # float64 (labels,): total weight of the rows with each label
    curvature: np.ndarray  # float32 (labels,): second derivative of the slack with respect to the label's scores
    squares: np.ndarray  # float32 (features,): mean square of each feature


class Duties(NamedTuple):
    """Parameters and dual variables that all tasks share."""

    softness: float  # slack per unit of a dual variable, for rows of weight 1
    n_known: int  # labels below this number have scorers; other scorers start as the sum of their pairs
    weights: np.ndarray  # float32 (rows,): weights of the current rows
    totals: np.ndarray  # float64 (labels,): total weight of all rows, paired with the label or not
    of_others: np.ndarray  # float32 (labels,): dual variable shared by the rows without features
    former: FormerRows
    curvature: np.ndarray  # written, float32 (labels,): that of the current rows


class LabelTask(NamedTuple):
    """Labels ``first:stop`` to train, with at most ``n_sweeps`` sweeps over each label's rows."""

    first: int
    stop: int
    n_sweeps: int
    share: float  # new weights below this fraction of a label's largest weight are dropped


class Solved(NamedTuple):
    """The trained scorers of a task: label ``first + i`` has the entries ``ends[i - 1]:ends[i]``."""

    ends: np.ndarray  # int64: end of each label's entries
    features: np.ndarray  # int32: feature of each entry, as numbered in the head
    weights: np.ndarray  # float32: weight of each entry
    biases: np.ndarray  # float32: bias of each label


class Bench(NamedTuple):
    """Buffers for training one label after another. Features are numbered as they occur in the current rows."""

    features: np.ndarray  # int32: the number of each feature in the head
    weights: np.ndarray  # float32: weights of the current label
    met: np.ndarray  # int32: the last label with a weight for each feature
    touched: np.ndarray  # int32: features with weights of the current label
    n_touched: np.ndarray  # int64 (1,): number of touched features; all other weights are 0
    ratios: np.ndarray  # float32: square root of how far each weight moves, relative to a new label
    active: np.ndarray  # int64: positions of pairs that still change
    learning: np.ndarray  # int64: buffer for the active pairs of the next sweep
    softness: np.ndarray  # float32 (rows,): softness of each row, smaller for larger weights
    stream: np.ndarray  # uint64 (1,): random state


def no_former_rows(n_labels: int, n_features: int) -> FormerRows:
    return FormerRows(np.zeros(n_labels), *(np.zeros(n, np.float32) for n in (n_labels, n_features)))


def new_duties(
    aggressiveness: float, weights: np.ndarray, totals: np.ndarray, n_known: int, former: FormerRows
) -> Duties:
    """Return duties whose dual variables are 0."""
    of_others, curvature = np.zeros((2, totals.size), np.float32)
    softness = min(_SOFTNESS / aggressiveness, _SOFTEST)
    return Duties(softness, n_known, weights, totals.astype(np.float64), of_others, former, curvature)


def numbered_afresh(rows: kernels.Rows) -> tuple[kernels.Rows, np.ndarray]:
    """Renumber sparse features by occurrence, unless there are few; return rows and original features (int32)."""
    if not rows.sparse:
        return rows, np.empty(0, np.int32)
    if rows.n_features <= rows.indices.size:
        return rows, np.arange(rows.n_features, dtype=np.int32)
    features, indices = np.unique(rows.indices, return_inverse=True)
    return rows._replace(indices=indices.astype(np.int32), n_features=features.size), features.astype(np.int32)


@inner
def dual_step(short, curvature, weight):
    """Return the step of dual coordinate ascent for a variable of value ``weight``, which must not become negative.

    ``short`` is the shortfall of the margin. A step of 1 reduces the shortfall by ``curvature``, which is the squared
    length of the vector added to the model, plus the softness.
    """
    return max(short / curvature, -weight)


@inner_allocating
def _new_bench(rows, features, max_pairs):
    d, n_rows = rows.n_features, rows.offsets.size - 1
    return Bench(
        features,
        zeros(d, np.float32),
        empty(d, np.int32),
        empty(d, np.int32),
        zeros(1, np.int64),
        empty(d, np.float32),
        empty(max_pairs, np.int64),
        empty(max_pairs, np.int64),
        empty(n_rows, np.float32),
        zeros(1, np.uint64),
    )


@inner
def _soften(bench, rows, pairs, label, first, stop, duties):
    """Write the softness of a label's rows, and return that of rows of weight 1.

    The more rows have the label, the more their slack outweighs the length of the weights. In sparse rows, which have
    many features, slack therefore counts less.
    """
    n_rows = duties.former.n_of_label[label] if rows.sparse else 0.0
    for pair in range(first, stop):
        if rows.sparse and pairs.has[pair]:
            n_rows += duties.weights[pairs.rows[pair]]
    softness = np.float32(duties.softness * min(max(n_rows / _FEW_ROWS, 1.0) ** _POWER, _MAX_SOFTER))
    for pair in range(first, stop):
        row = pairs.rows[pair]
        bench.softness[row] = softness / duties.weights[row]
    return softness


@inner
def _prefetch_row(rows, row):
    """Prefetch a sparse row. Rows are read in random order, and a cache miss takes longer than scoring."""
    a, b = rows.offsets[row], rows.offsets[row + 1]
    for i in range(a, b if rows.sparse else a, _CELLS_IN_A_LINE):
        prefetch(rows.values, i)
        prefetch(rows.indices, i)


@inner
def _score(bench, x):
    if x.indices.size == 0:
        return kernels.dot(bench.weights, 0, x.values, x.a, x.b - x.a)
    return kernels.gathered_dot(bench.weights, x.indices[x.a : x.b], x.values[x.a : x.b])


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
def _touch(bench, x, label):
    """Append the features of a sparse row that have no weight for the label yet to ``bench.touched``."""
    n_touched = bench.n_touched[0]
    for i in range(x.a, x.b if x.indices.size > 0 else x.a):
        feature = x.indices[i]
        if bench.met[feature] != label:
            bench.met[feature] = label
            bench.touched[n_touched] = feature
            n_touched += 1
    bench.n_touched[0] = n_touched


@inner
def _load(models, bench, rows, pairs, label, first, stop):
    """Copy a label's weights for the features of its rows to ``bench.weights``."""
    if not models.sparse:
        start = linear.dense_start(models, label)
        for i in range(bench.weights.size):
            bench.weights[i] = models.weights[0, start + i]
        return
    if models.records[0, label]["table_bits"] == 0:
        return
    for pair in range(first, stop):
        _touch(bench, kernels.row_of(rows, pairs.rows[pair]), label)
    for i in range(bench.n_touched[0]):
        cell = linear.find_cell(models, linear.ONLY_GROUP, label, bench.features[bench.touched[i]])
        if cell >= 0:
            bench.weights[bench.touched[i]] = models.table[0, cell]["weight"]


@inner
def _clear(bench, sparse):
    if sparse:
        for i in range(bench.n_touched[0]):
            bench.weights[bench.touched[i]] = 0.0
        bench.n_touched[0] = 0
    else:
        bench.weights[:] = 0.0


@inner
def _add_up(bench, rows, pairs, label, first, stop):
    """Sum a label's pairs into ``bench.weights``; return their part of the bias."""
    bias = np.float32(0.0)
    for pair in range(first, stop):
        ahead = min(pair + _ROWS_AHEAD, stop - 1)
        if pairs.weights[ahead] > 0.0:
            _prefetch_row(rows, pairs.rows[ahead])
        if pairs.weights[pair] > 0.0:
            x = kernels.row_of(rows, pairs.rows[pair])
            amount = pairs.weights[pair] if pairs.has[pair] else -pairs.weights[pair]
            _touch(bench, x, label)
            _add(bench, x, amount)
            bias += amount
    return bias


@inner
def _keep(models, bench, label, duties, share, solved, end):
    """Append a label's weights from entry ``end`` on, without negligible new weights; return the new end."""
    if not models.sparse:
        for i in range(bench.weights.size):
            solved.weights[end + i] = bench.weights[i]
        return end + bench.weights.size
    lightest, n_touched = np.float32(0.0), bench.n_touched[0]
    for i in range(n_touched):
        lightest = max(lightest, share * np.abs(bench.weights[bench.touched[i]]))
    started = label < duties.n_known and models.records[0, label]["table_bits"] > 0
    for i in range(n_touched):
        weight, feature = bench.weights[bench.touched[i]], bench.features[bench.touched[i]]
        kept = weight != 0.0 and np.abs(weight) >= lightest
        if not kept and started:
            kept = linear.find_cell(models, linear.ONLY_GROUP, label, feature) >= 0
        if kept:
            solved.features[end] = feature
            solved.weights[end] = weight
            end += 1
    return end


@inner
def _hold_others_off(bias, ease, label, others, softness, duties):
    """Take the dual step of the rows without features, and return the new bias."""
    softness = np.float32(softness / others)
    short = np.float32(1.0) + bias - softness * duties.of_others[label]
    change = dual_step(short, ease + softness, duties.of_others[label])
    duties.of_others[label] += change
    return bias - ease * change


@inner
def _learn_pair(bench, rows, pairs, pair, label, bias, ease, of_others):
    """Take the dual step of a pair; return the new bias and the step.

    ``ease`` is the squared value of the constant feature of the bias. ``of_others`` is the dual variable of the rows
    without features. If it is large enough to offset the change of the bias, the curvature omits the bias, because the
    next step of these rows restores it.
    """
    x = kernels.row_of(rows, pairs.rows[pair])
    sign = np.float32(1.0) if pairs.has[pair] else np.float32(-1.0)
    weight, softness = pairs.weights[pair], bench.softness[pairs.rows[pair]]
    short = np.float32(1.0) - sign * (_score(bench, x) + bias) - softness * weight
    if short <= 0.0 and weight == 0.0:
        return bias, np.float32(0.0)
    curvature = kernels.squared_length(x) + ease + softness
    change = dual_step(short, curvature - ease, weight)
    if np.abs(change) > of_others:
        change = dual_step(short, curvature, weight)
    if np.abs(change) >= _CLOSE_ENOUGH:
        if weight == 0.0:
            _touch(bench, x, label)
        _add(bench, x, sign * change)
        bias += ease * sign * change
        pairs.weights[pair] = weight + change
    return bias, change


@inner
def _sweep(bench, rows, pairs, label, first, n_active, checking, bias, ease, others, softness, duties):
    """Sweep once over the active pairs or, if ``checking``, over ``n_active`` pairs from ``first`` on.

    Returns the new bias, the longest step and the number of pairs that still change. The order of pairs differs between
    sweeps, because a fixed order needs many more sweeps. Step ``i`` visits pair ``factor * i + offset`` modulo a power
    of two. As the factor is odd, each pair is visited once.
    """
    mask = np.int64(1)
    while mask < n_active:
        mask *= 2
    mask -= 1
    factor, offset = (
        2 * kernels.random_below(bench.stream, 0, mask + 1) + 1,
        kernels.random_below(bench.stream, 0, mask + 1),
    )
    farthest, n_learning = np.float32(0.0), 0
    for i in range(mask + 1):
        number = (factor * (i + _ROWS_AHEAD) + offset) & mask
        if number < n_active:
            _prefetch_row(rows, pairs.rows[first + number if checking else bench.active[number]])
        number = (factor * i + offset) & mask
        if number < n_active:
            pair = first + number if checking else bench.active[number]
            bias, change = _learn_pair(bench, rows, pairs, pair, label, bias, ease, duties.of_others[label])
            if np.abs(change) >= _CLOSE_ENOUGH:
                if others > 0.0:
                    bias = _hold_others_off(bias, ease, label, others, softness, duties)
                farthest = max(farthest, np.abs(change))
            if pairs.weights[pair] > 0.0 or change > 0.0:
                bench.learning[n_learning] = pair
                n_learning += 1
    for i in range(n_learning):
        bench.active[i] = bench.learning[i]
    return bias, farthest, n_learning


@inner
def _solve(bench, rows, pairs, label, first, stop, bias, ease, duties, n_sweeps):
    """Train the label whose weights are in ``bench.weights``; return its bias."""
    others, n_active, softness = duties.totals[label], 0, _soften(bench, rows, pairs, label, first, stop, duties)
    for pair in range(first, stop):
        others -= duties.weights[pairs.rows[pair]]
    for sweep in range(n_sweeps):
        checks = sweep % _SWEEPS_TO_CHECK == 0
        n = stop - first if checks else n_active
        bias, farthest, n_active = _sweep(
            bench, rows, pairs, label, first, n, checks, bias, ease, others, softness, duties
        )
        if others > 0.0:
            bias = _hold_others_off(bias, ease, label, others, softness, duties)
        if checks and farthest < _FARTHEST:
            break
    duties.curvature[label] = 0.0
    for pair in range(first, stop):
        if pairs.weights[pair] > 0.0:
            duties.curvature[label] += np.float32(1.0) / bench.softness[pairs.rows[pair]]
    return bias


@inner
def _divide_weights(bench, sparse):
    """Divide the weights of the current label by their ratios."""
    n = bench.n_touched[0] if sparse else bench.weights.size
    for i in range(n):
        feature = bench.touched[i] if sparse else i
        bench.weights[feature] /= bench.ratios[feature]


@inner
def _change_units(bench, rows, scaled, pairs, label, first, stop, former):
    """Rescale weights and rows, so that a change of any weight by 1 costs the same.

    Return the squared unit of the bias.
    """
    for i in range(bench.ratios.size):
        square = former.squares[i]
        bench.ratios[i] = np.float32(1.0) / np.sqrt(np.float32(1.0) + former.curvature[label] * square)
    for pair in range(first, stop):
        x = kernels.row_of(rows, pairs.rows[pair])
        for i in range(x.a, x.b):
            feature = np.int64(x.indices[i]) if rows.sparse else i - x.a
            scaled.values[i] = x.values[i] * bench.ratios[feature]
    _divide_weights(bench, rows.sparse)
    return np.float32(1.0) / (np.float32(1.0) + former.curvature[label])


@inner
def _restore_units(bench, sparse):
    for i in range(bench.ratios.size):
        bench.ratios[i] = np.float32(1.0) / bench.ratios[i]
    _divide_weights(bench, sparse)


@inner
def _solve_label(models, bench, rows, scaled, pairs, label, duties, task, solved, end):
    """Train a label and append its scorer from entry ``end`` on; return the new end."""
    first, stop = pairs.offsets[label], pairs.offsets[label + 1]
    bench.stream[0], ease = label, np.float32(1.0)
    if label < duties.n_known:
        bias = np.float32(models.records[0, label]["bias"])
        _load(models, bench, rows, pairs, label, first, stop)
        ease = _change_units(bench, rows, scaled, pairs, label, first, stop, duties.former)
        bias = _solve(bench, scaled, pairs, label, first, stop, bias, ease, duties, task.n_sweeps)
        _restore_units(bench, rows.sparse)
    else:
        bias = _add_up(bench, rows, pairs, label, first, stop) - duties.of_others[label]
        bias = _solve(bench, rows, pairs, label, first, stop, bias, ease, duties, task.n_sweeps)
    solved.biases[label - task.first] = bias
    end = _keep(models, bench, label, duties, np.float32(task.share), solved, end)
    _clear(bench, models.sparse)
    return end


@kernel
def solve_labels(models, rows, scaled, features, pairs, duties, task, solved):
    """Train the labels of a task, each on the rows that are paired with it.

    Feature ``i`` of sparse ``rows`` is feature ``features[i]`` of the head. ``duties.former.squares`` is numbered like
    the rows. Reads the models. Writes ``solved``, the values of ``scaled``, which are the rows again, and, for these
    labels only, the weights of ``pairs``, ``duties.of_others`` and ``duties.curvature``. Threads may therefore solve
    different tasks concurrently, each with its own ``scaled``.
    """
    models = by_reference(models)
    bench = _new_bench(rows, features, kernels.longest_row(pairs, task.first, task.stop))
    for feature in range(bench.met.size):
        bench.met[feature] = kernels.NONE
    end = 0
    for label in range(task.first, task.stop):
        if pairs.offsets[label] < pairs.offsets[label + 1]:
            end = _solve_label(models, bench, rows, scaled, pairs, label, duties, task, solved, end)
        solved.ends[label - task.first] = end
    release(bench)
