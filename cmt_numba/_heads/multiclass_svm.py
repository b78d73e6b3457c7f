"""Kernels: training of a head as a multiclass support vector machine.

Scores start as cosines. The *gap* between the right label and its best competitor then depends on the data: 0.5 for
texts of many rare words, 0.1 for images. So the margin is a multiple of the mean gap of some examples, and all
thresholds on scores are relative to the margin.

MIRA keeps scorers close to their start, the mean of the label's examples. That is best for few examples. With many
examples per label, training is more accurate than the means, so the multiple grows with the number of examples.
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
    Rows,
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
from .label_scorers import Head, HeadLoss, with_more_cells
from .label_updates import PairsByLabel, scores_of, sorted_by_label, with_rows_added
from .lessons import CandidateSearch, HeadLesson, find_shortlists, learn_in_turn
from .search import FoundLabels
from .shortlists import shortlisted
from .softmax import descend

_GAPS_IN_A_MARGIN = 1.4
_GAPS_MEASURED = 1000.0
_PRIOR_EXAMPLES = 4.0  # weight of a label's mean, where its scorer starts, in examples
_HARDNESS = 3.0  # C for a label of several examples
_LEAST_HARDNESS = 1.0  # C for a label of very many examples
_NOTHING = 1e-30  # least C: its inverse is finite in float32
_MANY_EXAMPLES = 50.0  # examples per label above which the margin grows and C shrinks
_SWEEPS = 3  # rounds of closed-form steps for an example
_CLOSE_ENOUGH = 0.001  # smaller steps, in margins, are skipped

N_COMPETITORS = 8
"""The maximum number of competitors of an example with dual variables."""

_MOST_CHANGED = 2 + N_COMPETITORS + _SWEEPS  # scorers changed by a row at once
_RIGHT = np.int64(0)  # position of the right label in a shortlist
_ROWS_AT_ONCE = 1024  # rows scored before any of them is learned
MOST_IN_TURN = 1024
"""Maximum number of labels to learn each row before the next is scored. With few labels, most rows share them."""


class Duals(NamedTuple):
    """The dual variables of examples.

    A label's scorer is its start, plus the examples of the label, minus the examples that it competes for, each times
    its dual variable. Later passes can reduce dual variables that have become too large.
    """

    competitors: np.ndarray  # int32 (rows, N_COMPETITORS)
    weights: np.ndarray  # float32 (rows, N_COMPETITORS): 0 for no competitor
    softness: np.ndarray  # float32 (rows,): slack for each unit of the row's weights, 1 / C
    settled: np.ndarray  # bool (rows,): whether the last pass over the row changed nothing
    importance: np.ndarray  # float32 (rows,): sample weights; MIRA has them in the softness


class _Plan(NamedTuple):
    """The changes for one row. They are applied together, so that each scorer is written only once."""

    places: np.ndarray  # int64 (N_COMPETITORS,): positions of the row's competitors among its candidates, or NONE
    weights: np.ndarray  # float32 (N_COMPETITORS,)
    changed: np.ndarray  # int64: positions of candidates whose scorers change
    changes: np.ndarray  # float32: the multiple of the row to add to each
    n_changed: np.ndarray  # int64 (1,)


class Steps(NamedTuple):
    """Updates of scorers: step ``s`` adds ``amounts[s]`` times row number ``numbers[s]``."""

    labels: np.ndarray  # int64: whose scorer
    numbers: np.ndarray  # int64: of the row in the current block
    amounts: np.ndarray  # float32
    earlier: np.ndarray  # int64: 1 + the previous step of the same label, 0 for none
    last: np.ndarray  # int64 (labels,): 1 + the last step of each label, 0 for none
    n: np.ndarray  # int64 (1,)


class _Products(NamedTuple):
    """Dot products of rows of the current block with one of them."""

    of: np.ndarray  # int64: the row that each product was computed with
    values: np.ndarray  # float32


def new_duals(aggressiveness: float, n_of_label: np.ndarray, weights: np.ndarray | None = None) -> Duals:
    """Return the dual variables of examples that have not been learned yet.

    ``n_of_label`` is the number of examples of each example's label, or their total weight. With few examples each is a
    large part of the mean that the scorer starts from, so its gap says little about new rows, and ``C`` is small. With
    very many examples some are noise, so ``C`` decreases again. ``weights`` multiply ``C``.
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
    """Return the required margin between the score of the right label and all others."""
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
    """Find the competitors that the row has weights for among its candidates."""
    for j in range(N_COMPETITORS):
        plan.weights[j] = duals.weights[row, j]
        plan.places[j] = NONE
        if duals.weights[row, j] > 0.0:
            for i in range(candidates.n_found[0]):
                if candidates.labels[i] == duals.competitors[row, j] and i != right:
                    plan.places[j] = np.int64(i)


@inner
def _entry_for(plan, place):
    """Return the entry of a competitor's weight, or a free one; NONE if there is no room."""
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
    """Change the weight of a competitor in closed form so that the margin is just met; return the change.

    Slack is squared, so the required margin shrinks with the sum of the row's weights, which are never negative.
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
    """Apply a plan to the scorers.

    Returns DONE, or TABLES_FULL, with nothing changed, if tables lack room.
    """
    n_changed = plan.n_changed[0]
    for step in range(2 * n_changed):  # first make sure that there is room for all
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
    """Train the head with MIRA on rows with candidates, and advance ``at[0]`` with each.

    Writes the scores of ``found``, the models of ``head`` and the ``duals``. Returns DONE, or TABLES_FULL after
    learning ``at[0]`` rows.
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
    """Append the changes planned for row number ``i`` to the steps."""
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
    """Add the effect of the steps of earlier rows to the scores of row number ``i``."""
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
    """Plan the changes for one row by the dual of Crammer and Singer."""
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
            # First the best competitor, then all others with a weight.
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
    """Plan the steps of rows in turn; the first candidate of each is its correct label.

    The scores of ``found`` do not include the steps of earlier rows of the block, so these are added. The result is as
    if each row were learned before the next.

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
    """Return the shortlists of some rows with scores. If ``lesson.searching`` is set, search for them first."""
    known = find_shortlists(search, head, lesson, block, run) if lesson.searching else None
    found = shortlisted(lesson.shortlists, block) if known is None else shortlisted(lesson.shortlists, block, known)
    unknown = np.arange(found.labels.size) if known is None else np.flatnonzero(np.isnan(found.scores))
    of_rows = np.repeat(block, found.n_met)[unknown]
    asked = found.labels[unknown]
    found.scores[unknown] = scores_of(head, lesson.questions.rows, asked, of_rows, search.n_threads, run)
    return found


def lacks_gaps(head: Head) -> bool:
    """Return whether too few gaps have been measured."""
    return bool(head.gaps[0] < _GAPS_MEASURED)


def measure_gaps(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, n_per_label: float = 0.0
) -> None:
    """Measure the gaps of a lesson's rows until there are enough.

    ``n_per_label`` is the mean number of examples of a label. For MIRA a large number widens the gaps.
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
    """Train a head on a lesson; return the head, a new one if it grew.

    If ``lesson.searching`` is set, searches for the rows' candidates first and writes the lesson's shortlists.

    Writes the models of the head and the ``duals``. Results do not depend on the number of threads. Only heads of many
    labels with MIRA use more than one thread.
    """
    margin = margin_wanted(head)
    if head.parameters.loss != HeadLoss.MIRA:
        return descend(search, head, lesson, duals.importance, margin)
    if head.counters[0, NODES_END] > MOST_IN_TURN:
        return ascend_in_blocks(search, head, lesson, duals)

    def learn(head: Head, found: FoundLabels, at: np.ndarray) -> int:
        return int(ascend_on(head.scorers, lesson.questions.rows, lesson.labels, found, duals, margin, at))

    return learn_in_turn(search, head, lesson, learn)


def learn_shortlists(
    head: Head, rows: Rows, labels: np.ndarray, shortlists: np.ndarray, order: np.ndarray, duals: Duals
) -> Head:
    """Train a head with MIRA on rows in this order, from their shortlists; return the head, a new one if it grew.

    For a few rows, which may be repeated in ``order`` for several passes. Writes the models and the ``duals``.
    """
    margin, at = margin_wanted(head), np.zeros(1, np.int64)
    found = shortlisted(shortlists, order)
    while ascend_on(head.scorers, rows, labels, found, duals, margin, at) != DONE:
        head, found = with_more_cells(head), shortlisted(shortlists, order[at[0] :])
    return head


def ascend_in_blocks(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, *, rows_at_once: int = _ROWS_AT_ONCE
) -> Head:
    """Train a head with MIRA on blocks of rows: search and score a block, plan its rows in turn, then learn.

    Each plan includes the effect of earlier ones, so the result is, up to rounding, as if each row were learned before
    the next was scored. Only planning, which takes little time, runs in a single thread.
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
    last = np.zeros(n_labels, np.int64)  # unused pages take no memory
    return Steps(numbers[0], numbers[1], np.empty(most, np.float32), numbers[2], last, np.zeros(1, np.int64))


def _taken_out(steps: Steps, block: np.ndarray) -> PairsByLabel:
    """Return the steps for the rows of a block, grouped by label, and reset them."""
    n = int(steps.n[0])
    labels = steps.labels[:n]
    steps.last[labels] = 0
    steps.n[0] = 0
    return sorted_by_label(labels, block[steps.numbers[:n]], steps.amounts[:n])[0]
