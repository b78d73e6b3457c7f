"""Kernels: the label-row pairs on which a multi-label head is trained, grouped by label.

A label is paired with its own rows and with its *hard negatives*: rows without the label for which it is a candidate.
Each pair has a dual variable, the weight of the row in the label's scorer.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._jit import kernel
from .._kernels import NONE
from .._postings import offsets_of

_PAIRS_IN_A_BLOCK = 1 << 20
_ROWS_COUNTED = 4096  # number of rows whose labels are counted in one batch


class ExamplePairs(NamedTuple):
    """Label-row pairs: label ``l`` is paired with the distinct rows ``rows[offsets[l]:offsets[l + 1]]``."""

    offsets: np.ndarray  # int64 (labels + 1,)
    rows: np.ndarray  # int32: row of each pair
    has: np.ndarray  # bool: whether the row has the label
    weights: np.ndarray  # float32: the dual variable; a row without the label is subtracted from the scorer


def pair_with_answers(rows: np.ndarray, labels: np.ndarray, n_labels: int) -> ExamplePairs:
    """Pair ``n_labels`` labels with their own rows: row ``rows[i]`` has label ``labels[i]``."""
    by_label = np.argsort(labels, kind="stable")
    n = labels.size
    offsets = offsets_of(np.bincount(labels, minlength=n_labels))
    return ExamplePairs(offsets, rows[by_label].astype(np.int32), np.ones(n, np.bool_), np.zeros(n, np.float32))


def pair_with_all(answers: ExamplePairs, labels: np.ndarray, n_rows: int) -> ExamplePairs:
    """Pair some labels with all rows, in row order."""
    counts = np.zeros(answers.offsets.size - 1, np.int64)
    counts[labels] = n_rows
    n = labels.size * n_rows
    rows = np.tile(np.arange(n_rows, dtype=np.int32), labels.size)
    pairs = ExamplePairs(offsets_of(counts), rows, np.zeros(n, np.bool_), np.zeros(n, np.float32))
    for label in labels:
        pairs.has[pairs.offsets[label] + answers.rows[answers.offsets[label] : answers.offsets[label + 1]]] = True
    return pairs


def pairs_that_count(pairs: ExamplePairs) -> ExamplePairs:
    """Return copies of the pairs whose row has the label or whose weight is not 0."""
    counted = np.flatnonzero(pairs.has | (pairs.weights > 0.0))
    offsets = np.searchsorted(counted, pairs.offsets)
    return ExamplePairs(offsets, pairs.rows[counted], pairs.has[counted], pairs.weights[counted])


def renumbered(pairs: ExamplePairs, rows: np.ndarray, labels: np.ndarray, n_labels: int) -> ExamplePairs:
    """Return copies of the pairs with new numbers of rows and labels, without those that get the number NONE."""
    row, label = rows[pairs.rows], np.repeat(labels, np.diff(pairs.offsets))
    kept = np.flatnonzero((row != NONE) & (label != NONE))
    kept = kept[np.argsort(label[kept], kind="stable")]
    offsets = offsets_of(np.bincount(label[kept], minlength=n_labels))
    return ExamplePairs(offsets, row[kept].astype(np.int32), pairs.has[kept], pairs.weights[kept])


def joined(parts: list[ExamplePairs]) -> ExamplePairs:
    """Concatenate pairs. The labels must ascend from part to part."""
    offsets = np.stack([part.offsets for part in parts]).sum(axis=0)
    return ExamplePairs(offsets, *(np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:]))


class HardNegatives(NamedTuple):
    """Rows by candidate label: label ``l`` is a candidate for the rows ``rows[offsets[l]:offsets[l + 1]]``."""

    offsets: np.ndarray  # int64 (labels + 1,)
    rows: np.ndarray  # int32: rows of all labels, in label order


def group_by_label(candidates: np.ndarray, order: np.ndarray, n_labels: int) -> HardNegatives:
    """Group candidates by label. Each row of ``candidates`` holds labels, padded with NONE."""
    counts = np.zeros(n_labels, np.int64)
    for first in range(0, order.size, _ROWS_COUNTED):
        some = candidates[first : first + _ROWS_COUNTED]
        counts += np.bincount(some[some != NONE], minlength=n_labels)
    offsets = offsets_of(counts)
    rows = np.empty(offsets[-1], np.int32)
    sort_by_label(candidates, order, offsets[:-1].copy(), rows)
    return HardNegatives(offsets, rows)


class LabelBlock(NamedTuple):
    """The pairs of labels ``first:stop`` only."""

    first: int
    stop: int
    pairs: ExamplePairs


def one_block(pairs: ExamplePairs) -> list[LabelBlock]:
    """Return all pairs as a single block."""
    return [LabelBlock(0, pairs.offsets.size - 1, pairs)]


def pair_with_hard_negatives(
    pairs: ExamplePairs, found: HardNegatives, n_rows: int, max_pairs: int = _PAIRS_IN_A_BLOCK
) -> Iterator[LabelBlock]:
    """Yield the pairs and pairs with hard negatives in blocks of at most ``max_pairs`` pairs, or of a single label."""
    n_before, first = pairs.offsets + found.offsets, 0
    last, paired_with = n_before.size - 1, np.full(n_rows, NONE, np.int64)
    while first < last:
        stop = min(max(first + 1, int(np.searchsorted(n_before, n_before[first] + max_pairs, side="right")) - 1), last)
        n = int(n_before[stop] - n_before[first])
        has, weights = np.zeros(n, np.bool_), np.zeros(n, np.float32)
        merged = ExamplePairs(np.zeros(last + 1, np.int64), np.empty(n, np.int32), has, weights)
        merge_pairs(pairs, found, first, stop, paired_with, merged)
        n = merged.offsets[stop]
        merged.offsets[stop:] = n
        yield LabelBlock(first, stop, ExamplePairs(merged.offsets, merged.rows[:n], merged.has[:n], merged.weights[:n]))
        first = stop


@kernel
def sort_by_label(candidates, order, ends, rows):
    """Append each row to the ``rows`` of its candidate labels, from ``ends[label]`` on."""
    for row in order:
        for i in range(candidates.shape[1]):
            label = candidates[row, i]
            if label == NONE:
                break
            rows[ends[label]] = row
            ends[label] += 1


@kernel
def merge_pairs(pairs, found, first, stop, paired_with, merged):
    """Write the pairs of each label, and then the hard negatives that are not paired with the label yet.

    ``paired_with`` is a buffer that must hold no label from ``first`` on. Writes ``paired_with`` and ``merged``.
    """
    end = 0
    for label in range(first, stop):
        for pair in range(pairs.offsets[label], pairs.offsets[label + 1]):
            merged.rows[end] = pairs.rows[pair]
            merged.has[end] = pairs.has[pair]
            merged.weights[end] = pairs.weights[pair]
            paired_with[pairs.rows[pair]] = label
            end += 1
        for i in range(found.offsets[label], found.offsets[label + 1]):
            if paired_with[found.rows[i]] != label:
                merged.rows[end] = found.rows[i]
                end += 1
        merged.offsets[label + 1] = end
