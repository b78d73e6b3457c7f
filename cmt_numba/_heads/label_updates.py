"""Kernels: scores and updates of many pairs of a label and a row, grouped by label.

Pairs of a label are handled together, so that its scorer is fetched from memory once. Labels are divided among threads,
which write nothing in common, so results do not depend on the division.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._change import Workers
from .._forest import (
    DONE,
    NONE,
    ONLY_TREE,
    TABLES_FULL,
    Rows,
    add_row,
    locate_or_insert,
    longest_row,
    margin_of,
    new_workspace,
    row_of,
)
from .._jit import by_reference, kernel, release
from .label_scorers import Head, with_more_cells, without_room


class PairsByLabel(NamedTuple):
    """Pairs by label: ``labels[i]`` has the pairs ``at[i] .. ends[i]`` left to handle."""

    labels: np.ndarray  # int64
    at: np.ndarray  # int64
    ends: np.ndarray  # int64
    rows: np.ndarray  # int64, of each pair
    values: np.ndarray  # float32, of each pair: its score, or the multiple of the row to add to the scorer


def sorted_by_label(labels: np.ndarray, rows: np.ndarray, values: np.ndarray) -> tuple[PairsByLabel, np.ndarray]:
    """Return pairs grouped by label, in a stable order, and the original position of each."""
    small = labels.size > 0 and labels.max() < 1 << 16
    order = np.argsort(labels.astype(np.uint16) if small else labels, kind="stable")  # NumPy sorts 16 bits by radix
    labels = labels[order]
    starts = np.flatnonzero(np.diff(labels, prepend=NONE))
    ends = np.append(starts[1:], labels.size) if labels.size > 0 else starts
    return PairsByLabel(labels[starts], starts, ends, rows[order], values[order]), order


def _shares(pairs: PairsByLabel, n_threads: int) -> list[tuple[int, int]]:
    """Divide the labels into one span for each thread, with about equal numbers of pairs."""
    n_each = pairs.rows.size / n_threads
    bounds = np.searchsorted(pairs.ends, [round(i * n_each) for i in range(1, n_threads)]).tolist()
    return list(pairwise([0, *bounds, pairs.ends.size]))


@kernel
def score_pairs(models, rows, pairs, first, stop):
    """Score the pairs of the labels ``first .. stop``.

    Writes their values, so several threads may score those of several labels at once.
    """
    models = by_reference(models)
    for i in range(first, stop):
        for pair in range(pairs.at[i], pairs.ends[i]):
            pairs.values[pair] = margin_of(models, ONLY_TREE, pairs.labels[i], row_of(rows, pairs.rows[pair]))


@kernel
def learn_pairs(models, rows, pairs, first, stop):
    """Add the rows of pairs to the scorers of the labels ``first .. stop`` while there is room.

    Writes the models of these labels and their positions ``at``, so several threads may train different labels at once.
    Returns DONE, or TABLES_FULL if some tables lack room.
    """
    models = by_reference(models)
    work, status = new_workspace(longest_row(rows, 0, rows.offsets.size - 1)), DONE
    for i in range(first, stop):
        while pairs.at[i] < pairs.ends[i]:
            x = row_of(rows, pairs.rows[pairs.at[i]])
            if locate_or_insert(models, ONLY_TREE, pairs.labels[i], x, work) != DONE:
                status = TABLES_FULL
                break
            add_row(models, ONLY_TREE, pairs.labels[i], x, work, pairs.values[pairs.at[i]])
            pairs.at[i] += 1
    release(work)
    return status


def scores_of(
    head: Head, rows: Rows, labels: np.ndarray, of_rows: np.ndarray, n_threads: int, run: Workers
) -> np.ndarray:
    """Return the scores of pairs of a label and a row, for a head without digest: float32."""
    scores = np.empty(labels.size, np.float32)
    pairs, order = sorted_by_label(labels, of_rows, scores)
    models = head.models
    run(lambda share: score_pairs(models, rows, pairs, *share), _shares(pairs, n_threads))
    scores[order] = pairs.values
    return scores


def with_rows_added(head: Head, rows: Rows, pairs: PairsByLabel, n_threads: int, run: Workers) -> Head:
    """Add rows to the scorers of their labels; return the head, a new one if it grew."""

    def learn(share: tuple[int, int]) -> int:
        # Threads cannot allocate tables in one array: labels that need larger ones are trained afterwards.
        return int(learn_pairs(without_room(head.models), rows, pairs, *share))

    if any(status != DONE for status in run(learn, _shares(pairs, n_threads))):
        while learn_pairs(head.models, rows, pairs, 0, pairs.ends.size) != DONE:
            head = with_more_cells(head)
    return head
