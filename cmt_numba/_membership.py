"""Kernels: what a multi-label head learns: of each label that comes into question, whether the row has it.

Every label is a linear support vector machine of its own with squared slack, solved in the dual one row at a time. It
starts at 0 and learns from the rows that have it, and from those that it came into question for. A row has a label if
its score is positive; scores are asked to lie 1 away from 0.
"""

from typing import NamedTuple

import numpy as np

from ._candidates import find_candidates, new_candidates, place_of
from ._jit import inner, kernel
from ._keys import longest_row, row_of
from ._linear import add_row, locate, new_workspace
from ._rivalry import entry_for
from ._scorer import probed_dot
from ._state import DONE, NEXT_ROW, NONE, TABLES_FULL

_SOFTNESS = 0.5  # 1 / (2 C), as linear support vector machines have it by default
_SWEEPS = 2
_CLOSE_ENOUGH = 0.001  # a smaller step is none
_RIVALS_REMEMBERED = 128  # of a row; of further ones the row cannot take back what it has taught them
_RIGHT = np.float32(1.0)  # in the sums of candidates, between searches


class Answers(NamedTuple):
    """The labels of rows: row ``i`` has ``labels[offsets[i] : offsets[i + 1]]``."""

    offsets: np.ndarray  # int64 (rows + 1,)
    labels: np.ndarray  # int64


class Memberships(NamedTuple):
    """The dual variables of rows: what each has added to its labels, and taken from its rivals."""

    of_right: np.ndarray  # float32, one for each entry of the answers
    rivals: np.ndarray  # int32 (rows, rivals)
    weights: np.ndarray  # float32 (rows, rivals): 0 where there is no rival
    settled: np.ndarray  # bool (rows,): the last look at the row changed nothing
    softness: float  # so much less than the margin is asked for, for each weight


def new_memberships(aggressiveness: float, answers: Answers) -> Memberships:
    """Return the dual variables of rows that nothing has been learned from."""
    n_rows = answers.offsets.size - 1
    return Memberships(
        np.zeros(answers.labels.size, np.float32),
        np.full((n_rows, _RIVALS_REMEMBERED), NONE, np.int32),
        np.zeros((n_rows, _RIVALS_REMEMBERED), np.float32),
        np.zeros(n_rows, np.bool_),
        _SOFTNESS / aggressiveness,
    )


@inner
def _place_answers(head, candidates, questions, row, answers):
    """See to it that the row's labels are among the candidates, and mark them as right."""
    for pair in range(answers.offsets[row], answers.offsets[row + 1]):
        place_of(head, candidates, questions, row, answers.labels[pair])
        candidates.sums[answers.labels[pair]] = _RIGHT


@inner
def _forget_answers(candidates, row, answers):
    for pair in range(answers.offsets[row], answers.offsets[row + 1]):
        candidates.sums[answers.labels[pair]] = 0.0


@inner
def _push(head, candidates, i, sign, weight, softness, x, size, work):
    """Change the weight of a row in the scorer of a candidate by what just meets the margin, softened by the weight.

    Returns the change; NaN, with nothing learned, if the head's tables must grow and there is no room.
    """
    short = np.float32(1.0) - sign * candidates.scores[i] - np.float32(softness) * weight
    change = max(short / (size + np.float32(softness)), -weight)
    if np.abs(change) < _CLOSE_ENOUGH:
        return np.float32(0.0)
    if not locate(head, 0, candidates.labels[i], x, work):
        return np.float32(np.nan)
    add_row(head, 0, candidates.labels[i], x, work, sign * change)
    head.nodes[0, candidates.labels[i]]["bias"] += sign * change
    candidates.scores[i] += sign * change * size
    return change


@inner
def _hold_rivals_off(head, candidates, row, memberships, x, size, work):
    """Push every candidate that the row does not have below 0; return whether there was room."""
    for i in range(candidates.n_found[0]):
        label = candidates.labels[i]
        if candidates.sums[label] == _RIGHT:
            continue
        entry, softness = entry_for(memberships, row, label), memberships.softness
        weight = memberships.weights[row, entry] if entry != NONE else np.float32(0.0)
        change = _push(head, candidates, i, np.float32(-1.0), weight, softness, x, size, work)
        if np.isnan(change):
            return False
        if change != 0.0:
            memberships.settled[row] = False
            if entry != NONE:
                memberships.rivals[row, entry] = label
                memberships.weights[row, entry] = max(np.float32(0.0), weight + change)
    return True


@inner
def _pull_answers(head, candidates, questions, row, answers, memberships, x, size, work):
    """Push every label that the row has above 0; return whether there was room."""
    for pair in range(answers.offsets[row], answers.offsets[row + 1]):
        i = place_of(head, candidates, questions, row, answers.labels[pair])
        weight = memberships.of_right[pair]
        change = _push(head, candidates, i, np.float32(1.0), weight, memberships.softness, x, size, work)
        if np.isnan(change):
            return False
        if change != 0.0:
            memberships.settled[row] = False
            memberships.of_right[pair] = max(np.float32(0.0), weight + change)
    return True


@inner
def _learn_row(state, head, candidates, questions, row, answers, memberships, work):
    """Learn from a row; return False if the head's tables must grow and there is no room."""
    find_candidates(state, head, candidates, questions, row)
    _place_answers(head, candidates, questions, row, answers)
    x = row_of(questions.rows, row)
    size = probed_dot(head, candidates.probe, x) + np.float32(1.0)  # the bias is one feature more
    memberships.settled[row] = True
    roomy = True
    for _ in range(_SWEEPS):
        roomy = roomy and _pull_answers(head, candidates, questions, row, answers, memberships, x, size, work)
        roomy = roomy and _hold_rivals_off(head, candidates, row, memberships, x, size, work)
    _forget_answers(candidates, row, answers)
    return roomy


@kernel
def learn_memberships(state, head, questions, order, answers, stop, effort, memberships):
    """Train the head that row ``order[i]`` has its answers and no other labels, up to ``i = stop``.

    Goes on from the row in the head's counters.
    """
    candidates = new_candidates(state, head, questions, effort, longest_row(answers, 0, answers.offsets.size - 1))
    work = new_workspace(longest_row(questions.rows, 0, questions.rows.offsets.size - 1))
    while head.counters[0, NEXT_ROW] < stop:
        row = order[head.counters[0, NEXT_ROW]]
        if not _learn_row(state, head, candidates, questions, row, answers, memberships, work):
            return TABLES_FULL
        head.counters[0, NEXT_ROW] += 1
    return DONE
