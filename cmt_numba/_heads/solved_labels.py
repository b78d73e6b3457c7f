"""Training of all labels of a multi-label head in several threads.

Threads train the labels, and the trained scorers are then stored in tables one by one. When a sparse head learns for
the first time, the trained scorers become the lists of a digest instead.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._change import map_threads, spans
from .._jit import by_reference, empty, inner, kernel, release
from .._postings import Digest, offsets_of
from .binary_svm import Duties, LabelTask, Solved, numbered_afresh, solve_labels
from .hard_negatives import ExamplePairs, LabelBlock
from .label_scorers import Head, with_lists, with_more_cells

_CELLS_IN_A_TASK = 1 << 21  # maximum number of cells in the rows of a task's labels
_PAIRS_AT_ONCE = 1 << 18  # number of pairs counted in one batch
_ROOM = 1 << 23  # initial number of weights in an array; larger arrays grow without a copy
_TASKS_AT_ONCE = 16  # number of tasks solved before their scorers are stored


def tasks_for(
    rows: kernels.Rows, block: LabelBlock, n_sweeps: int, share: float, max_cells: int = _CELLS_IN_A_TASK
) -> list[LabelTask]:
    """Divide the labels of a block into tasks of at most ``max_cells`` cells, or one label each."""
    n_cells = _cells_before(rows, block.pairs)
    bounds = [block.first]
    while bounds[-1] < block.stop:
        stop = int(np.searchsorted(n_cells, n_cells[bounds[-1]] + max_cells, side="right")) - 1
        bounds.append(min(max(bounds[-1] + 1, stop), block.stop))
    return [LabelTask(first, stop, n_sweeps, share) for first, stop in pairwise(bounds)]


def _cells_before(rows: kernels.Rows, pairs: ExamplePairs) -> np.ndarray:
    """Return the cumulative number of cells in the rows that labels are paired with, starting at 0."""
    lengths, offsets, total = np.diff(rows.offsets), pairs.offsets, 0
    n_cells = np.zeros(offsets.size, np.int64)
    for first, stop in spans(int(offsets[-1]), _PAIRS_AT_ONCE):
        sums = np.cumsum(lengths[pairs.rows[first:stop]])
        ends = slice(*np.searchsorted(offsets, (first, stop), side="right"))
        n_cells[ends] = total + sums[offsets[ends] - first - 1]
        total += int(sums[-1])
    return n_cells


def solved_labels(
    head: Head, rows: kernels.Rows, features: np.ndarray, pairs: ExamplePairs, duties: Duties, task: LabelTask
) -> Solved:
    """Train the labels of a task; return their scorers without spare capacity."""
    offsets, n_labels = pairs.offsets[task.first : task.stop + 1], task.stop - task.first
    n_cells = np.concatenate([[0], np.cumsum(np.diff(rows.offsets)[pairs.rows[offsets[0] : offsets[-1]]])])
    max_cells = int(np.minimum(np.diff(n_cells[offsets - offsets[0]]), rows.n_features).sum())
    room = np.empty(max_cells if rows.sparse else 0, np.int32), np.empty(max_cells, np.float32)
    solved = Solved(np.zeros(n_labels, np.int64), *room, np.zeros(n_labels, np.float32))
    scaled = rows._replace(values=rows.values.copy()) if task.first < duties.n_known else rows
    solve_labels(head.models, rows, scaled, features, pairs, duties, task, solved)
    end = int(solved.ends[-1])
    return solved._replace(features=solved.features[:end].copy(), weights=solved.weights[:end].copy())


@inner
def _store(models, label, solved, i, n_known, cells):
    """Store scorer ``i`` of ``solved`` for a label; return DONE, or TABLES_FULL without changing anything."""
    first = solved.ends[i - 1] if i > 0 else 0
    n = solved.ends[i] - first
    if not models.sparse:
        start = linear.dense_start(models, label)
        for j in range(n):
            models.weights[0, start + j] = solved.weights[first + j]
    else:
        used = models.records[0, label]["table_used"] if label < n_known else 0
        if linear.request_cells(models, linear.ONLY_GROUP, 1 << linear.table_bits(used + n)) != linear.DONE:
            return linear.TABLES_FULL
        if label >= n_known:
            linear.reset_weights(models, linear.ONLY_GROUP, label)
            models.records[0, label]["sum_square"] = 0.0
        row = kernels.Row(solved.weights, solved.features, first, first + n, kernels.UNSCALED)
        linear.locate_or_insert_cells(models, linear.ONLY_GROUP, label, row, cells)
        for j in range(n):
            models.table[0, cells[j]]["weight"] = solved.weights[first + j]
    models.records[0, label]["bias"] = solved.biases[i]
    return linear.DONE


@inner
def _max_cells(solved):
    longest, first = 0, 0
    for i in range(solved.ends.size):
        longest = max(longest, solved.ends[i] - first)
        first = solved.ends[i]
    return longest


@kernel
def store_solved(models, offsets, task, solved, n_known, at):
    """Store the scorers of a task's labels from number ``at[0]`` on, and increment ``at[0]`` after each.

    ``offsets`` are the offsets of the pairs. Labels without pairs keep their scorers. Scorers of labels from
    ``n_known`` on are reset first. Writes the models. Returns DONE, or TABLES_FULL if the caller must repeat the call
    with larger tables.
    """
    models = by_reference(models)
    cells, status = empty(_max_cells(solved), np.int64), linear.DONE
    while at[0] < task.stop - task.first:
        label = task.first + at[0]
        if offsets[label] < offsets[label + 1]:
            status = _store(models, label, solved, at[0], n_known, cells)
            if status != linear.DONE:
                break
        at[0] += 1
    release(cells)
    return status


class Training(NamedTuple):
    """Rows and settings for training; see :class:`LabelTask`."""

    rows: kernels.Rows
    duties: Duties
    n_sweeps: int
    share: float
    n_threads: int = 1
    cells_in_a_task: int = _CELLS_IN_A_TASK
    tasks_at_once: int = _TASKS_AT_ONCE


def learn_memberships(head: Head, blocks: Iterable[LabelBlock], training: Training) -> Head:
    """Train scorers on label-row pairs in several threads; return the head, or a larger head if tables were full.

    Results depend neither on the number of threads nor on the division into blocks and tasks. Writes the models of the
    head, and the weights of the pairs and duties.
    """
    n_known, current = training.duties.n_known, [head]
    for block, task, solved in _solved(current, blocks, training):
        at = np.zeros(1, np.int64)
        while store_solved(current[0].models, block.pairs.offsets, task, solved, n_known, at) != linear.DONE:
            current[0] = with_more_cells(current[0])
    return current[0]


def learn_afresh(head: Head, blocks: Iterable[LabelBlock], training: Training) -> Head:
    """Train sparse scorers like :func:`learn_memberships`, but start from the pairs alone.

    The input and the returned head have lists and no tables. Labels without pairs keep their lists. The blocks must
    cover all labels, in order.
    """
    old, scorers = head.digest, head.labels.copy()
    n_cells = np.diff(old.offsets)
    # The arrays grow in place, because a copy would double the memory. Unwritten pages use no memory.
    grown, end = old._replace(features=np.empty(_ROOM, np.int32), weights=np.empty(_ROOM, np.float32)), 0
    for block, task, solved in _solved([head], blocks, training):
        labels = np.arange(task.first, task.stop)
        paired = np.diff(block.pairs.offsets[task.first : task.stop + 1]) > 0
        n_cells[labels[paired]] = np.diff(solved.ends, prepend=0)[paired]
        scorers["bias"][0, labels[paired]] = solved.biases[paired]
        end = _append_lists(grown, end, n_cells, old, solved, labels[~paired & (n_cells[labels] > 0)], task)
    for array in (grown.features, grown.weights):
        array.resize(end, refcheck=False)
    return with_lists(head._replace(labels=scorers), grown._replace(offsets=offsets_of(n_cells)))


def _solved(
    current: list[Head], blocks: Iterable[LabelBlock], training: Training
) -> Iterator[tuple[LabelBlock, LabelTask, Solved]]:
    """Yield all tasks with scorers that start from ``current[0]``, which the caller may replace after each task."""
    rows, features = numbered_afresh(training.rows)
    former = training.duties.former
    if rows.sparse:
        former = former._replace(squares=former.squares[features])
    duties = training.duties._replace(former=former)
    for block in blocks:
        tasks = tasks_for(rows, block, training.n_sweeps, training.share, training.cells_in_a_task)
        for first, stop in spans(len(tasks), training.tasks_at_once):
            some = tasks[first:stop]
            solve = partial(solved_labels, current[0], rows, features, block.pairs, duties)
            for task, solved in zip(some, map_threads(solve, some, training.n_threads), strict=True):
                yield block, task, solved


def _append_lists(
    new: Digest, end: int, n_cells: np.ndarray, old: Digest, solved: Solved, kept: np.ndarray, task: LabelTask
) -> int:
    """Append the trained lists of a task's labels and the old lists of ``kept`` labels; return the new end."""
    needed, read = end + int(n_cells[task.first : task.stop].sum()), 0
    if needed > new.features.size:
        for array in (new.features, new.weights):
            array.resize(needed, refcheck=False)
    for label in [*kept.tolist(), task.stop]:
        stop = int(solved.ends[label - task.first - 1]) if label > task.first else 0
        parts = [(solved.features, solved.weights, read, stop)]
        if label < task.stop:
            parts.append((old.features, old.weights, *old.offsets[label : label + 2].tolist()))
        for features, weights, a, b in parts:
            new.features[end : end + b - a], new.weights[end : end + b - a] = features[a:b], weights[a:b]
            end += b - a
        read = stop
    return end
