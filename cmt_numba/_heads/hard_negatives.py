"""Kernels: the pairs of labels and rows that a multi-label head learns from, listed label by label.

A label is paired with the rows that have it, and with its *hard negatives*: the rows that it is a candidate of though
they do not have it. Each pair has a dual variable, its weight in the label's scorer.
"""

from typing import NamedTuple

import numpy as np

from .._forest.state import NONE
from .._jit import kernel
from .inference_weights import offsets_of


class Pairs(NamedTuple):
    """Label ``l`` is paired with the rows of the entries ``offsets[l] .. offsets[l + 1]``, each only once."""

    offsets: np.ndarray  # int64 (labels + 1,)
    rows: np.ndarray  # int32
    has: np.ndarray  # bool: the row has the label
    weights: np.ndarray  # float32: what the row has added to the label's scorer, or taken from it


def pair_with_answers(rows: np.ndarray, labels: np.ndarray, n_labels: int) -> Pairs:
    """Return pairs for as many labels, of which ``labels[i]`` is one that row ``rows[i]`` has."""
    by_label = np.argsort(labels, kind="stable")
    n = labels.size
    offsets = offsets_of(np.bincount(labels, minlength=n_labels))
    return Pairs(offsets, rows[by_label].astype(np.int32), np.ones(n, np.bool_), np.zeros(n, np.float32))


def pair_with_all(answers: Pairs, labels: np.ndarray, n_rows: int) -> Pairs:
    """Return pairs of some labels with all rows, in their order."""
    counts = np.zeros(answers.offsets.size - 1, np.int64)
    counts[labels] = n_rows
    n = labels.size * n_rows
    rows = np.tile(np.arange(n_rows, dtype=np.int32), labels.size)
    pairs = Pairs(offsets_of(counts), rows, np.zeros(n, np.bool_), np.zeros(n, np.float32))
    for label in labels:
        pairs.has[pairs.offsets[label] + answers.rows[answers.offsets[label] : answers.offsets[label + 1]]] = True
    return pairs


def pairs_that_count(pairs: Pairs) -> Pairs:
    """Return copies of the pairs of rows that have the label, and of those that have a weight."""
    counted = np.flatnonzero(pairs.has | (pairs.weights > 0.0))
    offsets = np.searchsorted(counted, pairs.offsets)
    return Pairs(offsets, pairs.rows[counted], pairs.has[counted], pairs.weights[counted])


def pair_with_hard_negatives(pairs: Pairs, hard_negatives: np.ndarray, order: np.ndarray) -> Pairs:
    """Return the pairs, and those of rows with their candidate labels that are not among them.

    ``hard_negatives`` has a row for each row, with NONE after the last label.
    """
    n_labels = pairs.offsets.size - 1
    found = offsets_of(np.bincount(hard_negatives[hard_negatives != NONE], minlength=n_labels))
    rows = np.empty(found[-1], np.int32)
    sort_by_label(hard_negatives, order, found[:-1].copy(), rows)
    most = pairs.rows.size + rows.size
    merged = Pairs(
        np.zeros(n_labels + 1, np.int64), np.empty(most, np.int32), np.zeros(most, np.bool_), np.zeros(most, np.float32)
    )
    merge_pairs(pairs, found, rows, np.full(order.size, NONE, np.int64), merged)
    n = merged.offsets[-1]
    return Pairs(merged.offsets, merged.rows[:n], merged.has[:n], merged.weights[:n])


@kernel
def sort_by_label(hard_negatives, order, ends, rows):
    """Write each label's rows in the given order, from ``ends[label]`` on."""
    for row in order:
        for i in range(hard_negatives.shape[1]):
            label = hard_negatives[row, i]
            if label == NONE:
                break
            rows[ends[label]] = row
            ends[label] += 1


@kernel
def merge_pairs(pairs, offsets, rows, paired_with, merged):
    """Write the pairs of each label and then those of its ``rows`` that are not among them."""
    end = 0
    for label in range(offsets.size - 1):
        for pair in range(pairs.offsets[label], pairs.offsets[label + 1]):
            merged.rows[end] = pairs.rows[pair]
            merged.has[end] = pairs.has[pair]
            merged.weights[end] = pairs.weights[pair]
            paired_with[pairs.rows[pair]] = label
            end += 1
        for i in range(offsets[label], offsets[label + 1]):
            if paired_with[rows[i]] != label:
                merged.rows[end] = rows[i]
                end += 1
        merged.offsets[label + 1] = end
