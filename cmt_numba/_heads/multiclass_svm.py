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

from .._change import Workers, spans, workers
from .._forest import (
    DONE,
    NODES_END,
    NONE,
    ONLY_TREE,
    TABLES_FULL,
    add_row,
    aim_probe,
    locate_or_insert,
    longest_row,
    new_probe,
    new_workspace,
    probed_dot,
    row_of,
    squared_length,
)
from .._jit import by_reference, empty, inner, inner_allocating, kernel, release, zeros
from .candidates import LabelCandidates, best_of, new_candidates, score_with_right
from .dual_ascent import dual_step
from .label_scorers import Head, HeadLoss
from .label_updates import PairsByLabel, scores_of, sorted_by_label, with_rows_added
from .lessons import CandidateSearch, HeadLesson, find_shortlists, learn_in_turn
from .search import FoundLabels
from .shortlists import shortlisted
from .softmax import descend

_GAPS_IN_A_MARGIN = 1.4
_GAPS_MEASURED = 1000.0
_PRIOR_EXAMPLES = 4.0  # are what a label's mean, where its scorer starts, is worth
_HARDNESS = 3.0  # C, once a label has several examples
_LEAST_HARDNESS = 1.0  # C for a label of very many examples
_NOTHING = 1e-30  # C of an example that teaches nothing: its inverse is finite in float32
_MANY_EXAMPLES = 50.0  # of a label: with more, the margin becomes wider and C smaller
_SWEEPS = 3  # MIRA's closed-form steps for one example at a time
_CLOSE_ENOUGH = 0.001  # a smaller step of MIRA, in margins, is none

N_COMPETITORS = 8
"""So many competitors of an example can MIRA hold apart at once."""

_MOST_CHANGED = 2 + N_COMPETITORS + _SWEEPS  # scorers by one look at a row
_RIGHT = np.int64(0)  # where the right label stands in a shortlist
_ROWS_AT_ONCE = 1024  # scored before the first of them is learned
MOST_IN_TURN = 1024
"""Labels of a head that learns each row before the next one is scored: the fewer, the more rows concern the same."""


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


class Steps(NamedTuple):
    """What rows are to teach labels: step ``s`` adds ``amounts[s]`` times row number ``numbers[s]`` to a scorer."""

    labels: np.ndarray  # int64: whose scorer
    numbers: np.ndarray  # int64: of the row among those in hand
    amounts: np.ndarray  # float32
    earlier: np.ndarray  # int64: 1 more than the step before of the same label, 0 if there is none
    last: np.ndarray  # int64 (labels,): the same of the last step of each label
    n: np.ndarray  # int64 (1,)


class _Products(NamedTuple):
    """Dot products of rows in hand with one of them."""

    of: np.ndarray  # int64: the number of the row that each product is with
    values: np.ndarray  # float32


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
        (1.0 / np.maximum(hardness, _NOTHING)).astype(np.float32),
        np.zeros(n_rows, np.bool_),
        importance,
    )


def margin_wanted(head: Any) -> float:
    """Return how far the score of the right label shall lie above that of every other."""
    return _GAPS_IN_A_MARGIN * head.gaps[1] / head.gaps[0] if head.gaps[1] > 0.0 else 1.0


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
def _keep_weights(plan, candidates, row, duals):
    for j in range(N_COMPETITORS):
        duals.weights[row, j] = plan.weights[j]
        if plan.places[j] != NONE:
            duals.competitors[row, j] = candidates.labels[plan.places[j]]


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
    if n_changed > 0:
        _keep_weights(plan, candidates, row, duals)
    return DONE


@inner
def _ascend_at(head, rows, labels, found, i, candidates, duals, margin, plan, work):
    row, x = found.rows[i], row_of(rows, found.rows[i])
    right = score_with_right(head, candidates, found, i, x, labels[row])
    _plan_row(candidates, x, right, row, duals, margin, plan)
    return _carry_out(head, plan, candidates, x, row, duals, work)


@kernel
def ascend_on(head, rows, labels, found, duals, margin, at):
    """Train the head with MIRA on rows whose candidates have been found, moving ``at[0]`` on with each.

    Writes the scores of ``found``, the models of ``head`` and the ``duals``. Returns DONE, or TABLES_FULL, having
    learned only the rows that ``at`` says.
    """
    head = by_reference(head)
    candidates, plan, status = new_candidates(rows, found.most, 1), _new_plan(), DONE
    work = new_workspace(longest_row(rows, 0, rows.offsets.size - 1))
    for i in range(found.rows.size):
        status = _ascend_at(head, rows, labels, found, i, candidates, duals, np.float32(margin), plan, work)
        if status != DONE:
            break
        at[0] += 1
    release((candidates, plan, work))
    return status


@inner
def _note_steps(plan, candidates, i, row, duals, steps):
    """Append what a plan for row number ``i`` says to the steps that are to be taken."""
    for j in range(plan.n_changed[0]):
        step, label = steps.n[0], candidates.labels[plan.changed[j]]
        steps.labels[step] = label
        steps.numbers[step] = i
        steps.amounts[step] = plan.changes[j]
        steps.earlier[step] = steps.last[label]
        steps.n[0] += 1
        steps.last[label] = steps.n[0]
    _keep_weights(plan, candidates, row, duals)


@inner
def _add_steps_noted(rows, found, i, candidates, steps, products):
    """Add to the scores of row number ``i`` what the steps noted for rows before it will change in them."""
    aimed = False
    for j in range(candidates.n_found[0]):
        after = steps.last[candidates.labels[j]]
        while after > 0:
            step = after - 1
            number = steps.numbers[step]
            if products.of[number] != i:
                if not aimed:
                    aim_probe(candidates.probe, row_of(rows, found.rows[i]))
                    aimed = True
                products.of[number] = i
                products.values[number] = probed_dot(candidates.probe, row_of(rows, found.rows[number]))
            candidates.scores[j] += steps.amounts[step] * products.values[number]
            after = steps.earlier[step]


@inner
def _plan_row(candidates, x, right, row, duals, margin, plan):
    """Crammer and Singer's dual for one row: hold the right label apart from competitors, no more than needed."""
    size = squared_length(x)
    plan.n_changed[0] = 0
    duals.settled[row] = True
    if size == 0.0 or candidates.n_found[0] < 2:
        return
    _begin_plan(plan, candidates, duals, row, right)
    softness = duals.softness[row]
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


@kernel
def plan_steps(rows, found, duals, margin, steps):
    """Decide for one row after the other what it teaches the scorers of its candidates, of which the first is right.

    The scores of ``found`` do not know of the steps of rows before it, which are added. So it does not matter that
    nothing is learned before all is planned.

    Writes the scores of ``found``, the ``duals``, and ``steps``, which must have room.
    """
    probe, n_found, plan = new_probe(rows, 0, rows.offsets.size - 1), zeros(1, np.int64), _new_plan()
    products = _Products(empty(found.rows.size, np.int64), empty(found.rows.size, np.float32))
    products.of[:] = NONE
    first = np.int64(0)
    for i in range(found.rows.size):
        row, stop = found.rows[i], found.ends[i]
        n_found[0] = stop - first
        candidates = LabelCandidates(found.labels[first:stop], found.scores[first:stop], n_found, probe)
        _add_steps_noted(rows, found, i, candidates, steps, products)
        _plan_row(candidates, row_of(rows, row), _RIGHT, row, duals, np.float32(margin), plan)
        if plan.n_changed[0] > 0:
            _note_steps(plan, candidates, i, row, duals, steps)
        first = stop
    release((probe, n_found, plan, products))


def _scored(search: CandidateSearch, head: Head, lesson: HeadLesson, block: np.ndarray, run: Workers) -> FoundLabels:
    """Return the shortlists of some rows with scores. If the lesson says so they are searched for first."""
    known = find_shortlists(search, head, lesson, block, run) if lesson.searching else None
    found = shortlisted(lesson.shortlists, block, known)
    unknown = np.arange(found.labels.size) if known is None else np.flatnonzero(np.isnan(found.scores))
    of_rows = np.repeat(block, found.n_met)[unknown]
    asked = found.labels[unknown]
    found.scores[unknown] = scores_of(head, lesson.questions.rows, asked, of_rows, search.n_threads, run)
    return found


def lacks_gaps(head: Head) -> bool:
    """Return whether too few gaps are known for good."""
    return bool(head.gaps[0] < _GAPS_MEASURED)


def measure_gaps(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, n_per_label: float = 0.0
) -> None:
    """Measure the gaps of a lesson's rows, until enough are known for good. It learns nothing else.

    ``n_per_label`` is the mean number of examples of a label. For MIRA, gaps are counted as wider if it is large.
    """
    wider = max(1.0, n_per_label / _MANY_EXAMPLES) if head.parameters.loss == HeadLoss.MIRA else 1.0
    with workers(search.n_threads) as run:
        for first, stop in spans(lesson.order.size, _ROWS_AT_ONCE):
            block = lesson.order[first:stop]
            if not lacks_gaps(head):
                break
            found = _scored(search, head, lesson, block, run)
            starts = np.concatenate([[0], found.ends[:-1]])
            of_right = found.scores[starts]
            found.scores[starts] = -np.inf
            gaps = np.abs(of_right - np.maximum.reduceat(found.scores, starts))
            competes = np.diff(found.ends, prepend=0) > 1
            gaps, importance = gaps[competes], duals.importance[block[competes]].astype(np.float64)
            n = np.searchsorted(head.gaps[0] + np.cumsum(importance) - importance, _GAPS_MEASURED)
            head.gaps[0] += importance[:n].sum()
            head.gaps[1] += wider * (importance[:n] @ gaps[:n])


def learn_labels(search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals) -> Head:
    """Train a head on a lesson; return it, or another one if it grew.

    Searches for the rows' candidates and writes the lesson's shortlists, or is content with these.

    Writes the models of the head and the ``duals``. What is learned does not depend on the number of threads, of which
    more than one are used by heads of many labels with MIRA.
    """
    margin = margin_wanted(head)
    if head.parameters.loss != HeadLoss.MIRA:
        return descend(search, head, lesson, duals.importance, margin)
    if head.counters[0, NODES_END] > MOST_IN_TURN:
        return ascend_in_blocks(search, head, lesson, duals)

    def learn(head: Head, found: FoundLabels, at: np.ndarray) -> int:
        return int(ascend_on(head.scorers, lesson.questions.rows, lesson.labels, found, duals, margin, at))

    return learn_in_turn(search, head, lesson, learn)


def ascend_in_blocks(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, *, rows_at_once: int = _ROWS_AT_ONCE
) -> Head:
    """Train a head with MIRA on blocks of rows: search and score a block, plan one row after the other, then learn.

    The plans know what those before them will change. So, but for rounding, the head learns what it would if each row
    were learned before the next one is scored. Only the plans, which take little time, are made in one thread.
    """
    rows, n_labels = lesson.questions.rows, int(head.counters[0, NODES_END])
    margin, steps = margin_wanted(head), _new_steps(min(lesson.order.size, rows_at_once) * _MOST_CHANGED, n_labels)
    with workers(search.n_threads) as run:
        for first, stop in spans(lesson.order.size, rows_at_once):
            block = lesson.order[first:stop]
            found = _scored(search, head, lesson, block, run)
            plan_steps(rows, found, duals, margin, steps)
            head = with_rows_added(head, rows, _taken_out(steps, block), search.n_threads, run)
    return head


def _new_steps(most: int, n_labels: int) -> Steps:
    numbers = np.empty((3, most), np.int64)
    last = np.zeros(n_labels, np.int64)  # of which only what is used takes memory and time
    return Steps(numbers[0], numbers[1], np.empty(most, np.float32), numbers[2], last, np.zeros(1, np.int64))


def _taken_out(steps: Steps, block: np.ndarray) -> PairsByLabel:
    """Return the steps that have been noted for the rows of a block, and forget them."""
    n = int(steps.n[0])
    labels = steps.labels[:n]
    steps.last[labels] = 0
    steps.n[0] = 0
    return sorted_by_label(labels, block[steps.numbers[:n]], steps.amounts[:n])[0]
