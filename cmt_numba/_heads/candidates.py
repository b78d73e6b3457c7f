"""Kernels: scores of the candidate labels of rows."""

from typing import Any, NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, kernel, release, zeros
from .._kernels import NONE, Probe, aim_probe, new_probe, row_of
from .._postings import LabelAnswers, Questions
from .label_scorers import score_common, score_label
from .search import SearchEffort, candidates_of


class Listing(NamedTuple):
    """Concatenated label lists of rows: the labels of row ``i`` end at ``ends[i]``."""

    ends: np.ndarray  # int64 (rows,): end of each row's labels
    labels: np.ndarray  # int64: concatenated labels
    scores: np.ndarray  # float32: score of each label


class LabelCandidates(NamedTuple):
    """The distinct candidate labels of a row, and their scores."""

    labels: np.ndarray  # int64 (most + n_right,): candidates, with room for correct labels
    scores: np.ndarray  # float32: score of each candidate
    n_found: np.ndarray  # int64 (1,): number of candidates
    probe: Probe  # probe prepared for the row


@inner_allocating
def new_candidates(rows, max_labels, n_right):
    """Return buffers for ``max_labels`` candidates of a row and ``n_right`` correct labels."""
    return LabelCandidates(
        empty(max_labels + n_right, np.int64),
        empty(max_labels + n_right, np.float32),
        zeros(1, np.int64),
        new_probe(rows, 0, rows.offsets.size - 1),
    )


@inner
def take_candidates(found, i, candidates):
    """Copy the labels found for entry ``i`` to ``candidates``."""
    first = found.ends[i - 1] if i > 0 else np.int64(0)
    candidates.n_found[0] = found.ends[i] - first
    for j in range(candidates.n_found[0]):
        candidates.labels[j] = found.labels[first + j]


@inner
def score_candidates(head, candidates, n_common, x):
    """Score a row's candidates. The first ``n_common`` of them are common labels."""
    aim_probe(candidates.probe, x)
    n_scored = score_common(head, x, candidates.scores[:n_common])
    for i in range(n_scored, candidates.n_found[0]):
        candidates.scores[i] = score_label(head, candidates.labels[i], candidates.probe, x)


@inner
def place_of(candidates, label):
    """Return the position of a label among a row's candidates; append it, without a score, if it is missing."""
    n_found = candidates.n_found[0]
    for i in range(n_found):
        if candidates.labels[i] == label:
            return np.int64(i)
    candidates.labels[n_found] = label
    candidates.n_found[0] += 1
    return n_found


@inner
def score_with_right(head, candidates, found, i, x, label):
    """Write the scores of an entry's candidates and its correct label; return the position of the latter."""
    take_candidates(found, i, candidates)
    n_found = candidates.n_found[0]
    right = place_of(candidates, label)
    score_candidates(head, candidates, found.n_common, x)
    for j in range(n_found):
        found.scores[found.ends[i] - n_found + j] = candidates.scores[j]
    return right


@inner
def best_of(candidates, excluded):
    """Return the position of the highest-scoring candidate except ``excluded``, or NONE if no other exists."""
    best = NONE
    for i in range(candidates.n_found[0]):
        if i != excluded and (best == NONE or candidates.scores[i] > candidates.scores[best]):
            best = np.int64(i)
    return best


@inner
def drop_candidate(candidates, i):
    """Remove candidate ``i``. The last candidate takes its place."""
    last = candidates.n_found[0] - 1
    candidates.labels[i] = candidates.labels[last]
    candidates.scores[i] = candidates.scores[last]
    candidates.n_found[0] = last


@inner
def _score_row(head, rows, found, i, room, answers):
    """Score the candidates of entry ``i`` in place, and write the best ones to ``answers``."""
    labels, scores, row = answers.labels, answers.scores, found.rows[i]
    first = found.ends[i - 1] if i > 0 else np.int64(0)
    stop = found.ends[i]
    n_found = stop - first
    room.n_found[0] = n_found
    candidates = LabelCandidates(found.labels[first:stop], found.scores[first:stop], room.n_found, room.probe)
    score_candidates(head, candidates, found.n_common, row_of(rows, row))
    for rank in range(min(labels.shape[1], n_found)):
        best = best_of(candidates, NONE)
        labels[row, rank] = candidates.labels[best]
        scores[row, rank] = candidates.scores[best]
        drop_candidate(candidates, best)


@kernel
def score_found(head, rows, found, answers):
    """Score the labels found for some rows, and write each row's best labels to ``answers``, best first.

    Writes the scores of ``found`` and, if ``answers`` has columns, overwrites its labels.
    """
    head = by_reference(head)
    room = new_candidates(rows, 0, 0)
    for i in range(found.rows.size):
        _score_row(head, rows, found, i, room, answers)
    release(room)


NO_ANSWERS = LabelAnswers(np.empty((0, 0), np.int64), np.empty((0, 0), np.float32), *np.empty((2, 0), np.int64))


def scored_candidates(head: Any, questions: Questions, effort: SearchEffort, answers: LabelAnswers = NO_ANSWERS) -> Any:
    """Yield the candidate labels of rows ``first:stop`` with their scores, in batches of rows.

    Writes the best labels and their scores to ``answers``. Each step overwrites the arrays of the previous step.
    """
    order = np.arange(questions.first, questions.stop)
    for found in candidates_of(head, questions, order, effort):
        score_found(head, questions.rows, found, answers)
        yield found


def score_labels(head: Any, questions: Questions, effort: SearchEffort, answers: LabelAnswers) -> None:
    """Write the best labels of rows ``first:stop``, their scores, and the numbers of labels scored and found."""
    for found in scored_candidates(head, questions, effort, answers):
        answers.n_scored[found.rows] = np.diff(found.ends, prepend=0)
        answers.n_met[found.rows] = found.n_met


def list_hard_negatives(head: Any, questions: Questions, effort: SearchEffort, labels: np.ndarray) -> None:
    """Write the candidate labels of rows ``first:stop`` without common ones: int32 (rows, most), padded with NONE."""
    order = np.arange(questions.first, questions.stop)
    for found in candidates_of(head, questions, order, effort):
        starts = np.concatenate([[0], found.ends[:-1]]) + found.n_common
        n_each = np.minimum(found.ends - starts, labels.shape[1])
        columns = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
        labels[found.rows] = NONE
        labels[np.repeat(found.rows, n_each), columns] = found.labels[np.repeat(starts, n_each) + columns]


def list_labels(head: Any, questions: Questions, effort: SearchEffort, lowest: float, listing: Listing) -> int:
    """List the labels with scores above ``lowest``, unsorted, for rows from ``first`` on until ``listing`` is full.

    Writes only ``listing``. Returns the first row that did not fit, or ``stop`` if all fit.
    """
    end = 0
    for found in scored_candidates(head, questions, effort):
        above = np.flatnonzero(found.scores[: found.ends[-1]] > lowest)
        ends = end + np.searchsorted(above, found.ends)
        n_rows = int(np.searchsorted(ends, listing.labels.size, side="right"))
        n_labels = int(ends[n_rows - 1]) - end if n_rows > 0 else 0
        listing.ends[found.rows[:n_rows]] = ends[:n_rows]
        listing.labels[end : end + n_labels] = found.labels[above[:n_labels]]
        listing.scores[end : end + n_labels] = found.scores[above[:n_labels]]
        if n_rows < found.rows.size:
            return int(found.rows[n_rows])
        end += n_labels
    return questions.stop
