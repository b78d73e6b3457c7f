"""Kernels: what the head learns from an example: to tell its right label from the labels reached with it.

Scores start as cosines. How far apart the right label and its best competitor lie then, the *gap*, depends on the
data: 0.5 for texts of many rare words, 0.1 for pictures. So the margin that the head is trained towards is a multiple
of the mean gap of some examples, and whatever has the dimension of a score is counted in margins.

What MIRA learns is kept close to the start, where each label's scorer is the mean of its examples. That is best where
examples are few. Many examples tell labels apart better than their means do. So from some number of examples per label
on, the multiple grows with that number, and the start counts for less.
"""

from typing import Any, NamedTuple

import numpy as np

from .._forest.linear_model import adagrad_step, add_row, locate_or_insert, new_workspace
from .._forest.rows import longest_row, row_of
from .._forest.scorer import probed_dot
from .._forest.state import DONE, NONE, ONLY_TREE, TABLES_FULL
from .._jit import by_reference, empty, inner, inner_allocating, kernel, release, zeros
from .candidates import Effort, best_of, new_candidates, place_of, score_candidates, take_candidates
from .dual_ascent import dual_step
from .label_scorers import HeadLoss
from .search import Questions, candidates_of
from .shortlists import shorten, shortlisted

_GAPS_IN_A_MARGIN = 1.4
_GAPS_MEASURED = 1000.0
_STEEPNESS = 12.0  # logits per margin
_NEGLIGIBLE = 0.01  # a smaller slope teaches a label nothing that would be worth the memory of its features
_PRIOR_EXAMPLES = 4.0  # are what a label's mean, where its scorer starts, is worth
_HARDNESS = 3.0  # C, once a label has several examples
_LEAST_HARDNESS = 1.0  # C for a label of very many examples
_MANY_EXAMPLES = 50.0  # of a label: with more, the margin becomes wider and C smaller
_SWEEPS = 3  # MIRA's closed-form steps for one example at a time
_CLOSE_ENOUGH = 0.001  # a smaller step of MIRA, in margins, is none

N_COMPETITORS = 8
"""So many competitors of an example can MIRA hold apart at once."""

_MOST_CHANGED = 2 + N_COMPETITORS + _SWEEPS  # scorers by one look at a row


class Duals(NamedTuple):
    """What MIRA has added for each example so far: the examples' dual variables.

    A label's scorer is its key, plus the examples of the label, minus the examples that it was the competitor of, each
    times its weight. Remembering the weights lets later passes take back what has turned out to be too much.
    """

    competitors: np.ndarray  # int32 (rows, N_COMPETITORS)
    weights: np.ndarray  # float32 (rows, N_COMPETITORS): 0 where there is no competitor
    softness: np.ndarray  # float32 (rows,): so much less than the margin is asked for, for each weight of the row
    settled: np.ndarray  # bool (rows,): the last look at the row changed nothing
    importance: np.ndarray  # float32 (rows,): how much each counts; of MIRA it is in the softness


class _Plan(NamedTuple):
    """What one look at a row is to change. Scorers learn it when it is complete, so each is written only once."""

    places: np.ndarray  # int64 (N_COMPETITORS,): of the row's competitors among its candidates, or NONE
    weights: np.ndarray  # float32 (N_COMPETITORS,)
    changed: np.ndarray  # int64: the places of candidates whose scorers change
    changes: np.ndarray  # float32: how much of the row is added to each
    n_changed: np.ndarray  # int64 (1,)


class Lesson(NamedTuple):
    """Row ``order[i]`` has the label ``labels[order[i]]``."""

    questions: Questions
    order: np.ndarray  # int64
    labels: np.ndarray  # int64 (rows,)
    shortlists: np.ndarray  # int32 (rows, labels)
    searching: bool  # for candidates, and not content with the shortlists


def new_duals(aggressiveness: float, n_of_label: np.ndarray, weights: np.ndarray | None = None) -> Duals:
    """Return the dual variables of examples that nothing has been learned from.

    ``n_of_label`` says for each how many examples its label has, or what they weigh together. The fewer they are, the
    more of each is in their mean, where the label's scorer starts; so the less does the gap that it shows say of other
    rows, and the less it counts. Very many are not all to be held apart: some are noise. ``weights`` multiply the ``C``
    of each.
    """
    n_rows = n_of_label.size
    importance = np.ones(n_rows, np.float32) if weights is None else weights
    excess = np.maximum(1.0, n_of_label / _MANY_EXAMPLES)
    hardness = _LEAST_HARDNESS + (_HARDNESS - _LEAST_HARDNESS) / excess
    hardness = aggressiveness * hardness * importance * n_of_label / (n_of_label + _PRIOR_EXAMPLES)
    return Duals(
        np.full((n_rows, N_COMPETITORS), NONE, np.int32),
        np.zeros((n_rows, N_COMPETITORS), np.float32),
        (1.0 / hardness).astype(np.float32),
        np.zeros(n_rows, np.bool_),
        importance,
    )


def margin_wanted(head: Any) -> float:
    """Return how far the score of the right label shall lie above that of every other."""
    return _GAPS_IN_A_MARGIN * head.gaps[1] / head.gaps[0] if head.gaps[1] > 0.0 else 1.0


_margin_wanted = inner(margin_wanted)


@inner
def _measure_gap(head, candidates, right, importance):
    """Count the gap between a row's right label and its best competitor, if it has one."""
    competitor = best_of(candidates, right)
    if competitor != NONE:
        head.gaps[0] += importance
        head.gaps[1] += importance * np.abs(candidates.scores[right] - candidates.scores[competitor])


def measure_gaps(
    trees: Any, routers: Any, head: Any, lesson: Lesson, effort: Effort, duals: Duals, n_per_label: float = 0.0
) -> None:
    """Measure the gaps of a lesson's rows, until enough are known for good. It learns nothing else.

    ``n_per_label`` is the mean number of examples of a label. For MIRA, gaps are counted as wider if it is large.
    """
    at, before = np.zeros(1, np.int64), float(head.gaps[1])
    for found in candidates_of(trees, routers, head, lesson.questions, lesson.order, effort):
        if head.gaps[0] >= _GAPS_MEASURED:
            break
        ascend_on(head, lesson.questions.rows, lesson.labels, found, duals, at, True)
    if head.loss == HeadLoss.MIRA:
        head.gaps[1] = before + (head.gaps[1] - before) * max(1.0, n_per_label / _MANY_EXAMPLES)


@inner
def _find_slopes(head, candidates, right, slopes):
    """Write the slope of the loss in each candidate's score."""
    loss, n, scores = head.loss, candidates.n_found[0], candidates.scores
    steepness = np.float32(_STEEPNESS / _margin_wanted(head))
    if loss == HeadLoss.SOFTMAX:
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


@inner
def _descend(head, candidates, x, right, importance, slopes, work):
    """Take an AdaGrad step for every candidate whose slope counts.

    Returns DONE, or TABLES_FULL, with nothing learned, if the head's tables must grow and there is no room.
    """
    _find_slopes(head, candidates, right, slopes)
    for i in range(candidates.n_found[0]):
        if (
            np.abs(slopes[i]) >= _NEGLIGIBLE
            and locate_or_insert(head.models, ONLY_TREE, candidates.labels[i], x, work) != DONE
        ):
            return TABLES_FULL
    rate = head.learning_rate * _margin_wanted(head) / _STEEPNESS
    for i in range(candidates.n_found[0]):
        if np.abs(slopes[i]) >= _NEGLIGIBLE:
            locate_or_insert(head.models, ONLY_TREE, candidates.labels[i], x, work)
            slope = importance * slopes[i]
            adagrad_step(head.models, ONLY_TREE, candidates.labels[i], x, work, slope, rate, np.inf)
    return DONE


@inner_allocating
def _new_plan():
    return _Plan(
        empty(N_COMPETITORS, np.int64),
        empty(N_COMPETITORS, np.float32),
        empty(_MOST_CHANGED, np.int64),
        empty(_MOST_CHANGED, np.float32),
        zeros(1, np.int64),
    )


@inner
def _begin_plan(plan, candidates, duals, row, right):
    """Look up where the competitors that the row has a weight for stand among its candidates."""
    plan.n_changed[0] = 0
    for j in range(N_COMPETITORS):
        plan.weights[j] = duals.weights[row, j]
        plan.places[j] = NONE
        if duals.weights[row, j] > 0.0:
            for i in range(candidates.n_found[0]):
                if candidates.labels[i] == duals.competitors[row, j] and i != right:
                    plan.places[j] = np.int64(i)


@inner
def _entry_for(plan, place):
    """Return where the weight of a competitor stands or may be entered, NONE if there is no room."""
    free = NONE
    for j in range(N_COMPETITORS):
        if plan.weights[j] == 0.0:
            free = np.int64(j)
        elif plan.places[j] == place:
            return np.int64(j)
    return free


@inner
def _note_change(plan, place, change):
    i = np.int64(0)
    while i < plan.n_changed[0] and plan.changed[i] != place:
        i += 1
    if i == plan.n_changed[0]:
        plan.changed[i] = place
        plan.changes[i] = 0.0
        plan.n_changed[0] += 1
    plan.changes[i] += change


@inner
def _hold_apart(plan, candidates, right, competitor, entry, margin, softness, size):
    """Change the weight of one competitor by what just meets the margin, in closed form; return by how much.

    The more a row's weights, which are never negative, come to, the less of the margin is asked for: slack is squared.
    """
    used = np.float32(0.0)
    for j in range(N_COMPETITORS):
        used += plan.weights[j]
    short = margin - (candidates.scores[right] - candidates.scores[competitor]) - softness * used
    change = np.float32(dual_step(short, 2.0 * size + softness, plan.weights[entry]))
    if np.abs(change) < _CLOSE_ENOUGH * margin:
        return np.float32(0.0)
    plan.places[entry] = competitor
    plan.weights[entry] = max(np.float32(0.0), plan.weights[entry] + change)
    candidates.scores[right] += change * size
    candidates.scores[competitor] -= change * size
    _note_change(plan, right, change)
    _note_change(plan, competitor, -change)
    return change


@inner
def _carry_out(head, plan, candidates, x, row, duals, work):
    """Let the scorers of a plan learn what it says.

    Returns DONE, or TABLES_FULL, with nothing learned, if the head's tables must grow and there is no room.
    """
    n_changed = plan.n_changed[0]
    for step in range(2 * n_changed):  # first see that there is room for all
        i = step % n_changed
        label = candidates.labels[plan.changed[i]]
        if locate_or_insert(head.models, ONLY_TREE, label, x, work) != DONE:
            return TABLES_FULL
        if step >= n_changed:
            add_row(head.models, ONLY_TREE, label, x, work, plan.changes[i])
    for j in range(N_COMPETITORS):
        duals.weights[row, j] = plan.weights[j]
        if plan.places[j] != NONE:
            duals.competitors[row, j] = candidates.labels[plan.places[j]]
    return DONE


@inner
def _ascend(head, candidates, x, right, row, duals, plan, work):
    """Crammer and Singer's dual, one row at a time: hold the right label apart from competitors, no more than needed.

    Returns DONE, or TABLES_FULL if the head's tables must grow and there is no room; the row can then be learned again.
    """
    size = probed_dot(candidates.probe, x)
    duals.settled[row] = True
    if size == 0.0 or best_of(candidates, right) == NONE:
        return DONE
    _begin_plan(plan, candidates, duals, row, right)
    margin, softness = np.float32(_margin_wanted(head)), duals.softness[row]
    for _ in range(_SWEEPS):
        farthest = np.float32(0.0)
        best = best_of(candidates, right)
        for j in range(-1, N_COMPETITORS):
            # The best competitor, then all others that have a weight.
            entry, competitor = np.int64(j), best
            if j < 0:
                entry = _entry_for(plan, best)
            else:
                competitor = plan.places[j] if plan.weights[j] > 0.0 and plan.places[j] != best else NONE
            if entry != NONE and competitor != NONE:
                change = _hold_apart(plan, candidates, right, competitor, entry, margin, softness, size)
                farthest = max(farthest, np.abs(change))
        if farthest == 0.0:
            break
        duals.settled[row] = False
    return _carry_out(head, plan, candidates, x, row, duals, work)


@inner
def _score_with_right(head, candidates, found, i, x, label):
    """Score the candidates of an entry and its right label; return where that stands among them.

    Writes the scores of ``found``.
    """
    take_candidates(found, i, candidates)
    n_found = candidates.n_found[0]
    right = place_of(candidates, label)
    score_candidates(head, candidates, found.n_common, x)
    for j in range(n_found):
        found.scores[found.ends[i] - n_found + j] = candidates.scores[j]
    return right


@inner
def _ascend_at(head, rows, labels, found, i, candidates, duals, plan, work, measuring):
    row, x = found.rows[i], row_of(rows, found.rows[i])
    right = _score_with_right(head, candidates, found, i, x, labels[row])
    if measuring:
        _measure_gap(head, candidates, right, duals.importance[row])
        return DONE
    return _ascend(head, candidates, x, right, row, duals, plan, work)


@kernel
def ascend_on(head, rows, labels, found, duals, at, measuring):
    """Train the head with MIRA on rows whose candidates have been found, moving ``at[0]`` on with each.

    If it is ``measuring``, it learns only the gaps of the rows, until enough are known for good.

    Writes the scores of ``found``, and the models of ``head`` and the ``duals``, or the gaps of ``head``. Returns DONE,
    or TABLES_FULL, having learned only the rows that ``at`` says.
    """
    head = by_reference(head)
    candidates, plan, status = new_candidates(rows, found.most, 1), _new_plan(), DONE
    work = new_workspace(longest_row(rows, 0, rows.offsets.size - 1))
    for i in range(found.rows.size):
        if measuring and head.gaps[0] >= _GAPS_MEASURED:
            break
        status = _ascend_at(head, rows, labels, found, i, candidates, duals, plan, work, measuring)
        if status != DONE:
            break
        at[0] += 1
    release((candidates, plan, work))
    return status


@inner
def _descend_at(head, rows, labels, found, i, candidates, importance, slopes, work):
    row, x = found.rows[i], row_of(rows, found.rows[i])
    right = _score_with_right(head, candidates, found, i, x, labels[row])
    return _descend(head, candidates, x, right, importance[row], slopes, work)


@kernel
def descend_on(head, rows, labels, found, importance, at):
    """Train the head with a loss other than MIRA's on rows whose candidates have been found, moving ``at[0]`` on.

    The slope of each row is multiplied by its ``importance``.

    Writes the scores of ``found`` and the models of ``head``. Returns DONE, or TABLES_FULL, having learned only the
    rows that ``at`` says.
    """
    head = by_reference(head)
    candidates = new_candidates(rows, found.most, 1)
    work = new_workspace(longest_row(rows, 0, rows.offsets.size - 1))
    slopes, status = empty(found.most + 1, np.float32), DONE
    for i in range(found.rows.size):
        status = _descend_at(head, rows, labels, found, i, candidates, importance, slopes, work)
        if status != DONE:
            break
        at[0] += 1
    release((candidates, work, slopes))
    return status


def learn_labels(
    trees: Any, routers: Any, head: Any, lesson: Lesson, effort: Effort, duals: Duals, at: np.ndarray
) -> int:
    """Train the head on a lesson, from number ``at[0]`` on, which it moves on.

    Searches for the rows' candidates, unless the lesson has shortlists, which it writes.

    Writes the models of ``head`` and the ``duals``. Returns DONE, or TABLES_FULL; it can then be called again.
    """
    rows, labels = lesson.questions.rows, lesson.labels
    order = lesson.order[at[0] :]
    if lesson.searching:
        all_found = candidates_of(trees, routers, head, lesson.questions, order, effort)
    else:
        all_found = shortlisted(lesson.shortlists, order)
    for found in all_found:
        before = int(at[0])
        if head.loss == HeadLoss.MIRA:
            status = ascend_on(head, rows, labels, found, duals, at, False)
        else:
            status = descend_on(head, rows, labels, found, duals.importance, at)
        if lesson.searching:
            n = int(at[0]) - before
            shorten(found._replace(rows=found.rows[:n], ends=found.ends[:n]), lesson.shortlists)
        if status != DONE:
            return int(status)
    return int(DONE)
