"""Kernels: scores and updates of many label-row pairs, grouped by label.

A label's pairs are processed together, so that its scorer is fetched from memory only once. Different threads process
different labels, so results do not depend on the number of threads.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._change import Workers
from .._jit import by_reference, kernel, release
from .label_scorers import Head, with_more_cells, without_room


class PairsByLabel(NamedTuple):
    """Pairs grouped by label. Pairs ``at[i]:ends[i]`` of ``labels[i]`` are still to be processed."""

    labels: np.ndarray  # int64: distinct labels
    at: np.ndarray  # int64: next pair of each label
    ends: np.ndarray  # int64: end of each label's pairs
    rows: np.ndarray  # int64: row of each pair
    values: np.ndarray  # float32: score of each pair, or the multiple of its row to add to the scorer


def sorted_by_label(labels: np.ndarray, rows: np.ndarray, values: np.ndarray) -> tuple[PairsByLabel, np.ndarray]:
    """Sort pairs stably by label; return the groups, and the original position of each pair."""
    small = labels.size > 0 and labels.max() < 1 << 16
    order = np.argsort(labels.astype(np.uint16) if small else labels, kind="stable")  # radix sort if 16 bits suffice
    labels = labels[order]
    starts = np.flatnonzero(np.diff(labels, prepend=kernels.NONE))
    ends = np.append(starts[1:], labels.size) if labels.size > 0 else starts
    return PairsByLabel(labels[starts], starts, ends, rows[order], values[order]), order


def _shares(pairs: PairsByLabel, n_threads: int) -> list[tuple[int, int]]:
    """Divide the labels into one span for each thread, with about equal numbers of pairs."""
    n_each = pairs.rows.size / n_threads
    bounds = np.searchsorted(pairs.ends, [round(i * n_each) for i in range(1, n_threads)]).tolist()
    return list(pairwise([0, *bounds, pairs.ends.size]))


@kernel
def score_pairs(models, rows, pairs, first, stop):
    """Write the scores of the pairs of labels ``first:stop``. Threads may score different labels concurrently."""
    models = by_reference(models)
    for i in range(first, stop):
        for pair in range(pairs.at[i], pairs.ends[i]):
            x = kernels.row_of(rows, pairs.rows[pair])
            pairs.values[pair] = linear.margin_of(models, linear.ONLY_GROUP, pairs.labels[i], x)


@kernel
def learn_pairs(models, rows, pairs, first, stop):
    """Add the rows of pairs to the scorers of labels ``first:stop`` while there is room.

    Writes the models of these labels and their positions ``at``, so threads may train different labels concurrently.
    Returns DONE, or TABLES_FULL if a table lacks room.
    """
    models = by_reference(models)
    work, status = linear.new_workspace(kernels.longest_row(rows, 0, rows.offsets.size - 1)), linear.DONE
    for i in range(first, stop):
        while pairs.at[i] < pairs.ends[i]:
            x = kernels.row_of(rows, pairs.rows[pairs.at[i]])
            if linear.locate_or_insert(models, linear.ONLY_GROUP, pairs.labels[i], x, work) != linear.DONE:
                status = linear.TABLES_FULL
                break
            linear.add_row(models, linear.ONLY_GROUP, pairs.labels[i], x, work, pairs.values[pairs.at[i]])
            pairs.at[i] += 1
    release(work)
    return status


def scores_of(
    head: Head, rows: kernels.Rows, labels: np.ndarray, of_rows: np.ndarray, n_threads: int, run: Workers
) -> np.ndarray:
    """Return the scores of label-row pairs for a head without a digest: float32."""
    scores = np.empty(labels.size, np.float32)
    pairs, order = sorted_by_label(labels, of_rows, scores)
    models = head.models
    run(lambda share: score_pairs(models, rows, pairs, *share), _shares(pairs, n_threads))
    scores[order] = pairs.values
    return scores


def with_rows_added(head: Head, rows: kernels.Rows, pairs: PairsByLabel, n_threads: int, run: Workers) -> Head:
    """Add rows to the scorers of their labels; return the head, or a larger head if tables were full."""

    def learn(share: tuple[int, int]) -> int:
        # Threads cannot allocate tables, so labels that need larger tables are trained afterwards.
        return int(learn_pairs(without_room(head.models), rows, pairs, *share))

    if any(status != linear.DONE for status in run(learn, _shares(pairs, n_threads))):
        while learn_pairs(head.models, rows, pairs, 0, pairs.ends.size) != linear.DONE:
            head = with_more_cells(head)
    return head
