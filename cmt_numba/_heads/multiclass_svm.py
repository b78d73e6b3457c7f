"""Kernels: what the head learns from an example: to tell its right label from the labels reached with it.

Scores start as cosines. How far apart the right label and its best rival lie then, the *gap*, depends on the data: 0.5
for texts of many rare words, 0.1 for pictures. So the margin that the head is trained towards is a multiple of the
mean gap of some examples, and whatever has the dimension of a score is counted in margins.
"""

from typing import NamedTuple

import numpy as np

from .._forest.linear_model import adagrad_step, add_row, locate, new_workspace
from .._forest.rows import longest_row, row_of
from .._forest.scorer import probed_dot
from .._forest.state import DONE, NEXT_ROW, NONE, TABLES_FULL
from .._jit import by_reference, inner, inner_allocating, inner_merged, kernel
from .candidates import best_of, find_candidates, new_candidates, place_of
from .label_scorers import MIRA, SOFTMAX, Head

_GAPS_IN_A_MARGIN = 1.4
_GAPS_MEASURED = 1000.0
_STEEPNESS = 12.0  # logits per margin
_NEGLIGIBLE = 0.01  # a smaller slope teaches a label nothing that would be worth the memory of its features
_PRIOR_EXAMPLES = 4.0  # are what a label's mean, where its scorer starts, is worth
_HARDNESS = 3.0  # C, once a label has many examples
_SWEEPS = 3  # MIRA's closed-form steps for one example at a time
_CLOSE_ENOUGH = 0.001  # a smaller step of MIRA, in margins, is none

N_RIVALS = 8
"""So many rivals of an example can MIRA hold apart at once."""


class Duals(NamedTuple):
    """What MIRA has added for each example so far: the examples' dual variables.

    A label's scorer is its key, plus the examples of the label, minus the examples that it was the rival of, each times
    its weight. Remembering the weights lets later passes take back what has turned out to be too much.
    """

    rivals: np.ndarray  # int32 (rows, N_RIVALS)
    weights: np.ndarray  # float32 (rows, N_RIVALS): 0 where there is no rival
    softness: np.ndarray  # float32 (rows,): so much less than the margin is asked for, for each weight of the row
    settled: np.ndarray  # bool (rows,): the last look at the row changed nothing


def new_duals(aggressiveness: float, n_of_label: np.ndarray) -> Duals:
    """Return the dual variables of examples that nothing has been learned from.

    ``n_of_label`` says for each how many examples its label has. The fewer they are, the more of each is in their mean,
    where the label's scorer starts; so the less does the gap that it shows say of other rows, and the less it counts.
    """
    n_rows = n_of_label.size
    hardness = aggressiveness * _HARDNESS * n_of_label / (n_of_label + _PRIOR_EXAMPLES)
    return Duals(
        np.full((n_rows, N_RIVALS), NONE, np.int32),
        np.zeros((n_rows, N_RIVALS), np.float32),
        (1.0 / hardness).astype(np.float32),
        np.zeros(n_rows, np.bool_),
    )


def margin_wanted(head: Head) -> float:
    """Return how far the score of the right label shall lie above that of every other."""
    return _GAPS_IN_A_MARGIN * head.gaps[1] / head.gaps[0] if head.gaps[1] > 0.0 else 1.0


_margin_wanted = inner(margin_wanted)


@inner
def _measure_row(state, head, candidates, questions, row, label):
    find_candidates(state, head, candidates, questions, row)
    right = place_of(head, candidates, questions, row, label)
    rival = best_of(candidates, right)
    if rival != NONE:
        head.gaps[0] += 1.0
        head.gaps[1] += np.abs(candidates.scores[right] - candidates.scores[rival])


@kernel
def measure_gaps(state, head, questions, order, labels, effort):
    """Measure the gaps of rows in the given order, until enough are known for good."""
    state = by_reference(state)
    head = by_reference(head)
    candidates = new_candidates(state, head, questions, effort, 1)
    for row in order:
        if head.gaps[0] >= _GAPS_MEASURED:
            break
        _measure_row(state, head, candidates, questions, row, labels[row])


@inner_allocating
def _new_slopes(most):
    return np.empty(most, np.float32)


@inner_merged
def _find_slopes(head, candidates, right, slopes):
    """Write the slope of the loss in each candidate's score."""
    n, scores = candidates.n_found[0], candidates.scores
    steepness = np.float32(_STEEPNESS / _margin_wanted(head))
    if head.parameters.loss == SOFTMAX:
        highest = scores[best_of(candidates, NONE)]
        total = np.float32(0.0)
        for i in range(n):
            slopes[i] = np.exp(steepness * (scores[i] - highest))
            total += slopes[i]
        for i in range(n):
            slopes[i] /= total
    else:
        for i in range(n):
            slopes[i] = np.float32(1.0) / (np.float32(1.0) + np.exp(-steepness * (scores[i] - np.float32(0.5))))
    slopes[right] -= np.float32(1.0)


@inner_merged
def _descend(head, candidates, x, right, slopes, work):
    """Take an AdaGrad step for every candidate whose slope counts.

    Returns False, with nothing learned, if the head's tables must grow and there is no room.
    """
    _find_slopes(head, candidates, right, slopes)
    for i in range(candidates.n_found[0]):
        if np.abs(slopes[i]) >= _NEGLIGIBLE and not locate(head, 0, candidates.labels[i], x, work):
            return False
    rate = head.parameters.learning_rate * _margin_wanted(head) / _STEEPNESS
    for i in range(candidates.n_found[0]):
        if np.abs(slopes[i]) >= _NEGLIGIBLE:
            locate(head, 0, candidates.labels[i], x, work)
            adagrad_step(head, 0, candidates.labels[i], x, work, slopes[i], rate, np.inf)
    return True


@inner
def _entry_for(duals, row, label):
    """Return where a row's weight for a rival stands or may be entered, NONE if there is no room."""
    free = NONE
    for j in range(duals.weights.shape[1]):
        if duals.weights[row, j] == 0.0:
            free = np.int64(j)
        elif duals.rivals[row, j] == label:
            return np.int64(j)
    return free


@inner
def _hold_apart(head, candidates, x, right, rival, row, entry, duals, size, work):
    """Change the weight of one rival by what just meets the margin, in closed form; return the change.

    The more a row's weights, which are never negative, come to, the less of the margin is asked for: slack is squared.
    Returns NaN, with nothing learned, if the head's tables must grow and there is no room.
    """
    margin = _margin_wanted(head)
    used = np.float32(0.0)
    for j in range(N_RIVALS):
        used += duals.weights[row, j]
    softness = duals.softness[row]
    short = margin - (candidates.scores[right] - candidates.scores[rival]) - softness * used
    change = short / (2.0 * size + softness)
    change = np.float32(max(change, -duals.weights[row, entry]))
    if np.abs(change) < _CLOSE_ENOUGH * margin:
        return np.float32(0.0)
    if not (locate(head, 0, candidates.labels[right], x, work) and locate(head, 0, candidates.labels[rival], x, work)):
        return np.float32(np.nan)
    add_row(head, 0, candidates.labels[rival], x, work, -change)
    locate(head, 0, candidates.labels[right], x, work)
    add_row(head, 0, candidates.labels[right], x, work, change)
    duals.rivals[row, entry] = candidates.labels[rival]
    duals.weights[row, entry] = max(np.float32(0.0), duals.weights[row, entry] + change)
    candidates.scores[right] += change * size
    candidates.scores[rival] -= change * size
    return change


@inner_merged
def _ascend(head, candidates, x, right, row, duals, work):
    """Crammer and Singer's dual, one row at a time: hold the right label apart from its rivals, no more than needed.

    Returns False if the head's tables must grow and there is no room; the row can then be learned again.
    """
    size = probed_dot(head, candidates.probe, x)
    duals.settled[row] = True
    if size == 0.0:
        return True
    for _ in range(_SWEEPS):
        farthest = np.float32(0.0)
        rival = best_of(candidates, right)
        if rival == NONE:
            return True
        entry = _entry_for(duals, row, candidates.labels[rival])
        if entry != NONE:
            change = _hold_apart(head, candidates, x, right, rival, row, entry, duals, size, work)
            if np.isnan(change):
                return False
            farthest = np.abs(change)
        for j in range(N_RIVALS):
            if duals.weights[row, j] > 0.0:
                for i in range(candidates.n_found[0]):
                    if candidates.labels[i] == duals.rivals[row, j] and i != rival:
                        change = _hold_apart(head, candidates, x, right, np.int64(i), row, j, duals, size, work)
                        if np.isnan(change):
                            return False
                        farthest = max(farthest, np.abs(change))
        if farthest == 0.0:
            break
        duals.settled[row] = False
    return True


@inner
def _learn_row(state, head, candidates, questions, row, label, duals, slopes, work):
    """Learn from a row; return False if the head's tables must grow and there is no room."""
    find_candidates(state, head, candidates, questions, row)
    right = place_of(head, candidates, questions, row, label)
    x = row_of(questions.rows, row)
    if head.parameters.loss == MIRA:
        return _ascend(head, candidates, x, right, row, duals, work)
    return _descend(head, candidates, x, right, slopes, work)


@kernel
def learn_labels(state, head, questions, order, labels, stop, effort, duals):
    """Train the head that row ``order[i]`` has the label ``labels[order[i]]``, up to ``i = stop``.

    Goes on from the row in the head's counters.
    """
    state = by_reference(state)
    head = by_reference(head)
    candidates = new_candidates(state, head, questions, effort, 1)
    work = new_workspace(longest_row(questions.rows, 0, questions.rows.offsets.size - 1))
    slopes = _new_slopes(candidates.labels.size)
    while head.counters[0, NEXT_ROW] < stop:
        row = order[head.counters[0, NEXT_ROW]]
        if not _learn_row(state, head, candidates, questions, row, labels[row], duals, slopes, work):
            return TABLES_FULL
        head.counters[0, NEXT_ROW] += 1
    return DONE
