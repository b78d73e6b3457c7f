"""Kernels: one against some. The labels that a row reaches, and what the head says of them."""

from typing import NamedTuple

import numpy as np

from .._forest.frontier import Frontier, begin_search, frontier_at, new_frontiers, reach_next
from .._forest.rows import Rows, longest_row, row_of
from .._forest.scorer import Probe, aim_probe, new_probe
from .._forest.state import N_MEMORIES, NONE
from .._jit import by_reference, inner, inner_allocating, inner_merged, kernel
from .inverted_index import keep_best_labels, meet_labels
from .label_scorers import score_common, score_label

_FOUND = np.float32(-1e30)  # no list makes up for it


class Questions(NamedTuple):
    """Rows to be labelled, as routers see them and as the head does."""

    routed: Rows
    rows: Rows


class Effort(NamedTuple):
    """How far the search for a row's candidates may go."""

    n_leaves: int  # to reach in all trees together
    n_labels: int  # to look at
    n_listed: int  # of those out of the head's index, to be scored in full


class Candidates(NamedTuple):
    """The labels that come into question for a row, each once, and what it takes to find them."""

    labels: np.ndarray  # int64 (most + n_right,): right labels count even where they were not reached
    scores: np.ndarray  # float32, of each
    n_found: np.ndarray  # int64 (1,)
    n_touched: np.ndarray  # int64 (1,): labels looked at, of which some were not worth a score
    sums: np.ndarray  # float32 (labels,): what the index says of a label found, or _FOUND; 0 for labels not found
    effort: Effort
    most: int  # labels to look at
    frontiers: Frontier  # a single one
    priorities: np.ndarray  # float32 (longest row,): of the lists of the row's features
    probe: Probe  # aimed at the row


@inner_allocating
def new_candidates(state, head, questions, effort, n_right):
    """Return room for the candidates of any of the questions, and for ``n_right`` labels that were not reached."""
    n_labels = state.keys.totals[N_MEMORIES]
    longest = longest_row(questions.rows, 0, questions.rows.offsets.size - 1)
    most, listed = min(effort.n_labels, n_labels), head.postings.n_labels > 0
    if not listed:
        most = min(most, effort.n_leaves * state.members.shape[2] + head.common.labels.size)
    return Candidates(
        np.empty(most + n_right, np.int64),
        np.empty(most + n_right, np.float32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(n_labels, np.float32),
        effort,
        most,
        new_frontiers(state, 1),
        np.empty(longest, np.float32),
        new_probe(state, longest),
    )


@inner_merged
def _reach_labels(state, candidates, routed, most):
    """Add the labels of the leaves that a row reaches, those of the surest leaves first, until there are ``most``."""
    frontier, n_leaves = frontier_at(candidates.frontiers, 0), candidates.effort.n_leaves
    begin_search(frontier)
    patience = min(most, state.members.shape[2])
    while candidates.n_found[0] < most:
        t, leaf = reach_next(state, frontier, routed, n_leaves, patience)
        if leaf == NONE:
            break
        for j in range(state.leaves[t, leaf]["size"]):
            label = np.int64(state.members[t, leaf, j])
            if candidates.n_found[0] < most and candidates.sums[label] == 0.0:
                candidates.sums[label] = _FOUND
                candidates.labels[candidates.n_found[0]] = label
                candidates.n_found[0] += 1


@inner_merged
def _add_common(head, candidates):
    """Add the labels that come into question for every row."""
    common = head.common.labels
    for i in range(min(common.size, candidates.most)):
        candidates.labels[i] = common[i]
        candidates.sums[common[i]] = _FOUND
        candidates.n_found[0] += 1


@inner
def _find_labels(state, head, candidates, questions, row):
    """Find the labels that come into question for a row, the common ones first; return how many are common.

    The others are those of the leaves that the row reaches, and the best of those that the head's index lists for it.
    """
    x, sums = row_of(questions.rows, row), candidates.sums
    candidates.n_found[0] = 0
    _add_common(head, candidates)
    most, listed = candidates.most, head.postings.n_labels > 0
    n_common = candidates.n_found[0]
    half_way = n_common + (most - n_common + 1) // 2  # what is left goes to leaves and index in equal parts
    if n_common < most:
        _reach_labels(state, candidates, row_of(questions.routed, row), half_way if listed else most)
    n_reached = n_met = n_found = candidates.n_found[0]
    labels = candidates.labels[:most]
    if listed and n_common < most:
        n_met = meet_labels(head.postings, candidates.priorities, x, sums, labels, n_reached)
        n_found += keep_best_labels(labels[n_reached:n_met], sums, candidates.effort.n_listed)
    for i in range(n_met):
        sums[labels[i]] = 0.0
    candidates.n_found[0], candidates.n_touched[0] = n_found, n_met
    return n_common


@inner
def find_candidates(state, head, candidates, questions, row):
    """Find the labels that come into question for a row, and score them."""
    n_common = _find_labels(state, head, candidates, questions, row)
    x = row_of(questions.rows, row)
    aim_probe(state, candidates.probe, x, False)
    n_scored = score_common(head, x, candidates.scores[:n_common])
    for i in range(n_scored, candidates.n_found[0]):
        candidates.scores[i] = score_label(head, candidates.labels[i], candidates.probe, x)


@inner
def place_of(head, candidates, questions, row, label):
    """Return where a label stands among the row's candidates, adding it if it was not reached."""
    for i in range(candidates.n_found[0]):
        if candidates.labels[i] == label:
            return np.int64(i)
    i = candidates.n_found[0]
    candidates.labels[i] = label
    candidates.scores[i] = score_label(head, label, candidates.probe, row_of(questions.rows, row))
    candidates.n_found[0] += 1
    return np.int64(i)


@inner
def best_of(candidates, excluded):
    """Return where the candidate of the highest score stands, leaving out one; NONE if there is no other."""
    best = NONE
    for i in range(candidates.n_found[0]):
        if i != excluded and (best == NONE or candidates.scores[i] > candidates.scores[best]):
            best = np.int64(i)
    return best


@inner
def drop_candidate(candidates, i):
    """Take a candidate out."""
    last = candidates.n_found[0] - 1
    candidates.labels[i] = candidates.labels[last]
    candidates.scores[i] = candidates.scores[last]
    candidates.n_found[0] = last


@inner
def _answer_row(state, head, candidates, questions, row, labels, scores):
    """Write the best labels of a row and their scores, the best first; return how many labels were looked at."""
    candidates = by_reference(candidates)
    find_candidates(state, head, candidates, questions, row)
    for rank in range(min(labels.shape[1], candidates.n_found[0])):
        best = best_of(candidates, NONE)
        labels[row, rank] = candidates.labels[best]
        scores[row, rank] = candidates.scores[best]
        drop_candidate(candidates, best)
    return candidates.n_touched[0]


@kernel
def score_labels(state, head, questions, first, stop, effort, labels, scores, n_touched):
    """Write the best labels of the rows ``first .. stop``, their scores and how many labels were looked at."""
    state, head, questions = by_reference(state), by_reference(head), by_reference(questions)
    candidates = new_candidates(state, head, questions, effort, 0)
    for row in range(first, stop):
        n_touched[row] = _answer_row(state, head, candidates, questions, row, labels, scores)


@inner
def _list_rivals_of(state, head, candidates, questions, row, rivals):
    candidates = by_reference(candidates)
    n_common = _find_labels(state, head, candidates, questions, row)
    n = min(candidates.n_found[0] - n_common, rivals.shape[1])
    for i in range(rivals.shape[1]):
        rivals[row, i] = candidates.labels[n_common + i] if i < n else NONE


@kernel
def list_rivals(state, head, questions, first, stop, effort, rivals):
    """Write the labels, but for common ones, that come into question for the rows ``first .. stop``, then NONE."""
    state, head, questions = by_reference(state), by_reference(head), by_reference(questions)
    candidates = new_candidates(state, head, questions, effort, 0)
    for row in range(first, stop):
        _list_rivals_of(state, head, candidates, questions, row, rivals)


@inner
def _list_row(state, head, candidates, questions, row, lowest, end, labels, scores):
    """List the labels of a row from ``end`` on; return where they end, NONE if there is no room."""
    candidates = by_reference(candidates)
    find_candidates(state, head, candidates, questions, row)
    for i in range(candidates.n_found[0]):
        if candidates.scores[i] > lowest:
            if end == labels.size:
                return NONE
            labels[end], scores[end] = candidates.labels[i], candidates.scores[i]
            end += 1
    return end


@kernel
def list_labels(state, head, questions, first, stop, effort, lowest, ends, labels, scores):
    """List the labels of a score above ``lowest`` of the rows from ``first`` on, in no order, as long as there is room.

    Writes where each row's labels end to ``ends``, and returns the row that it got to, ``stop`` if all are listed.
    """
    state, head, questions = by_reference(state), by_reference(head), by_reference(questions)
    candidates = new_candidates(state, head, questions, effort, 0)
    end = 0
    for row in range(first, stop):
        end = _list_row(state, head, candidates, questions, row, lowest, end, labels, scores)
        if end == NONE:
            return row
        ends[row] = end
    return stop
