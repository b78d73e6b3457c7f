"""Kernels: one against some. The labels that a row reaches, and what the head says of them."""

from typing import NamedTuple

import numpy as np

from ._frontier import count_leaves, new_frontier, reach_leaves
from ._jit import inner, inner_allocating, kernel
from ._keys import hash_number, longest_row, row_of
from ._linear import margin_of
from ._state import N_MEMORIES, NONE


class Candidates(NamedTuple):
    """The labels reached for a row, each once."""

    labels: np.ndarray  # int64 (most,)
    scores: np.ndarray  # float32 (most,)
    n_found: np.ndarray  # int64 (1,)
    seen: np.ndarray  # int64 (power of two,): search and label of labels already found


@inner_allocating
def new_candidates(state, n_leaves, most):
    """Return room for up to ``most`` labels out of ``n_leaves`` leaves."""
    most = min(most, min(n_leaves * state.members.shape[2], state.keys.totals[N_MEMORIES]))
    n_seen = 1
    while n_seen < 2 * (most + 1):
        n_seen *= 2
    return Candidates(
        np.empty(most + 1, np.int64),  # one more, because the right label counts even where it was not reached
        np.empty(most + 1, np.float32),
        np.zeros(1, np.int64),
        np.full(n_seen, NONE, np.int64),
    )


@inner
def _add_if_new(candidates, search, label):
    """Add a label unless it is there already; return where it stands. Entries of earlier searches count as empty."""
    seen = candidates.seen
    mask = seen.size - 1
    entry = (np.int64(search) << 32) | label
    cell = hash_number(label, seen.size)
    while (seen[cell] >> 32) == search:
        if seen[cell] == entry:
            return
        cell = (cell + 1) & mask
    seen[cell] = entry
    candidates.labels[candidates.n_found[0]] = label
    candidates.n_found[0] += 1


@inner
def find_candidates(state, head, frontier, candidates, x, search):
    """Find and score the labels that a row reaches, those on the surest paths first, until there is no more room."""
    candidates.n_found[0] = 0
    most = candidates.labels.size - 1
    for i in range(reach_leaves(state, frontier, x)):
        t, leaf = np.int64(frontier.reached_tree[i]), np.int64(frontier.reached_leaf[i])
        for j in range(state.leaves[t, leaf]["size"]):
            if candidates.n_found[0] < most:
                _add_if_new(candidates, search, np.int64(state.members[t, leaf, j]))
    for i in range(candidates.n_found[0]):
        candidates.scores[i] = margin_of(head, 0, candidates.labels[i], x)


@inner
def best_of(candidates, excluded):
    """Return where the candidate of the highest score stands, NONE if there is none."""
    best = NONE
    for i in range(candidates.n_found[0]):
        if i != excluded and (best == NONE or candidates.scores[i] > candidates.scores[best]):
            best = np.int64(i)
    return best


@inner
def _answer_row(state, head, frontier, candidates, rows, row, labels, scores):
    """Write the best labels of a row and their scores, the best first; return how many came into question."""
    find_candidates(state, head, frontier, candidates, row_of(rows, row), row)
    n_found = candidates.n_found[0]
    for rank in range(min(labels.shape[1], n_found)):
        best = best_of(candidates, NONE)
        labels[row, rank] = candidates.labels[best]
        scores[row, rank] = candidates.scores[best]
        candidates.n_found[0] -= 1
        candidates.labels[best] = candidates.labels[candidates.n_found[0]]
        candidates.scores[best] = candidates.scores[candidates.n_found[0]]
    return n_found


@kernel
def score_labels(state, head, rows, first, stop, n_leaves, most, labels, scores, n_touched):
    """Write the best labels of the rows ``first .. stop``, their scores and how many labels the head scored."""
    frontier = new_frontier(state, min(n_leaves, count_leaves(state)))
    candidates = new_candidates(state, n_leaves, most)
    for row in range(first, stop):
        n_touched[row] = _answer_row(state, head, frontier, candidates, rows, row, labels, scores)
