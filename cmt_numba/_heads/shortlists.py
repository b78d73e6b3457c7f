"""Shortlists: the hardest negatives of each row, found by one search and kept for later passes.

A row's candidates depend on the head's index but not on its scorers, and most of them score far below the correct
label. After the first pass, only the correct label and the best candidates are kept.
"""

import numpy as np

from .._jit import by_reference, empty, inner, kernel, release
from .._kernels import NONE, new_held_scores, row_of, select_few, top_k
from .._linear import MODELS_END, ONLY_GROUP, margin_of
from .search import FoundLabels

_UNSCORED = np.empty((0, 0), np.float32)
_LENGTH = 16  # number of candidates kept for a row: twice its maximum number of competitors


def new_shortlists(labels: np.ndarray, length: int = _LENGTH) -> np.ndarray:
    """Return shortlists with the correct label of each row, padded with NONE: int32, shape (rows, 1 + length)."""
    shortlists = np.full((labels.size, 1 + length), NONE, np.int32)
    shortlists[:, 0] = labels
    return shortlists


def shorten(found: FoundLabels, shortlists: np.ndarray) -> np.ndarray:
    """Write the best candidates of each row in ``found`` to its shortlist, after the correct label.

    Returns the scores of these shortlists: float32, shape (rows of ``found``, 1 + others). The score is minus infinity
    for a missing label, and NaN for a correct label that is not a candidate.
    """
    n_each, right = np.diff(found.ends, prepend=0), shortlists[found.rows, 0]
    row = np.repeat(np.arange(n_each.size), n_each)
    every, all_scores = found.labels[: row.size], found.scores[: row.size]
    is_right = every == right[row]
    best_scores = np.full((n_each.size, shortlists.shape[1]), np.nan, np.float32)
    best_scores[row[is_right], 0] = all_scores[is_right]
    wrong = np.flatnonzero(~is_right)
    row = row[wrong]
    n_each = np.bincount(row, minlength=n_each.size)
    place = np.arange(row.size) - np.repeat(np.cumsum(n_each) - n_each, n_each)
    longest, length = int(n_each.max(initial=0)), shortlists.shape[1] - 1
    labels = np.full((n_each.size, max(longest, length)), NONE, np.int32)
    scores = np.full(labels.shape, -np.inf, np.float32)
    labels[row, place] = every[wrong]
    scores[row, place] = all_scores[wrong]
    if longest > length:
        best, scores = top_k(scores, length)
        labels = np.take_along_axis(labels, best, axis=1)
    order = np.argsort(-labels, axis=1)  # NONE last
    shortlists[found.rows, 1:] = np.take_along_axis(labels, order, axis=1)
    best_scores[:, 1:] = np.take_along_axis(scores, order, axis=1)
    return best_scores


@inner
def _write_best(scores, shortlist, held, best, found):
    """Write the labels with the highest scores to a shortlist, sorted by label. Overwrite the correct label's score.

    Sorting by score would make the order depend on rounding. ``best`` and ``found`` are buffers for the result.
    """
    scores[shortlist[0]] = np.float32(np.nan)  # the selection ignores it
    labels, n = shortlist[1:], select_few(scores, held, best, found)
    labels[n:] = NONE
    for end in range(n):
        label, place = np.int32(found[end]), end
        while place > 0 and labels[place - 1] > label:
            labels[place] = labels[place - 1]
            place -= 1
        labels[place] = label


@kernel
def shortlist_best(scores, rows, shortlists):
    """Write the labels with the highest scores of each row to its shortlist. Overwrite the correct labels' scores."""
    k = shortlists.shape[1] - 1
    held, best, found = new_held_scores(), empty(k, np.float32), empty(k, np.int64)
    for i in range(rows.size):
        _write_best(scores[i], shortlists[rows[i]], held, best, found)
    release((held, best, found))


def shortlist_nearest(labels: np.ndarray, rows: np.ndarray, shortlists: np.ndarray) -> None:
    """Write the first labels of each row, except the correct one, to its shortlist, sorted by label."""
    labels = np.where(labels == shortlists[rows, :1], NONE, labels)
    best = np.take_along_axis(labels, np.argsort(labels == NONE, axis=1, kind="stable"), axis=1)
    shortlists[rows, 1:] = -np.sort(-best[:, : shortlists.shape[1] - 1], axis=1)


@kernel
def shortlist_rows(models, rows, n_rows, shortlists):
    """Score all labels for the first ``n_rows`` rows, and write the best to their shortlists. Fast for a few rows."""
    models = by_reference(models)
    k, scores = shortlists.shape[1] - 1, empty(models.counters[0, MODELS_END], np.float32)
    held, best, found = new_held_scores(), empty(k, np.float32), empty(k, np.int64)
    for i in range(n_rows):
        x = row_of(rows, i)
        for label in range(scores.size):
            scores[label] = margin_of(models, ONLY_GROUP, label, x)
        _write_best(scores, shortlists[i], held, best, found)
    release((held, best, found, scores))


@kernel
def list_shortlists(shortlists, scores, rows, ends, n_each, labels, of_labels):
    """Concatenate the shortlists of some rows, and their scores unless ``scores`` is empty; return the total length."""
    end = 0
    for i in range(rows.size):
        n_each[i] = 0
        for j in range(shortlists.shape[1]):
            if shortlists[rows[i], j] != NONE:
                labels[end + n_each[i]] = shortlists[rows[i], j]
                if scores.size > 0:
                    of_labels[end + n_each[i]] = scores[i, j]
                n_each[i] += 1
        end += n_each[i]
        ends[i] = end
    return end


def shortlisted(shortlists: np.ndarray, rows: np.ndarray, scores: np.ndarray = _UNSCORED) -> FoundLabels:
    """Return the shortlists of some rows as candidates, the correct label first.

    ``scores`` have the shape of these shortlists. Without them, the scores of the result are uninitialised.
    """
    max_entries = rows.size * shortlists.shape[1]
    ends, n_each, labels = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64), np.empty(max_entries, np.int64)
    of_labels = np.empty(max_entries, np.float32)
    n = list_shortlists(shortlists, scores, rows, ends, n_each, labels, of_labels)
    return FoundLabels(rows, ends, n_each, labels[:n], of_labels[:n], 0, shortlists.shape[1])
