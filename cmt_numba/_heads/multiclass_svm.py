"""Kernels: training of a head as a multiclass support vector machine.

Scores start as cosines. The *gap* between the scores of the correct label and its best competitor then depends on the
data: about 0.5 for texts with many rare words, 0.1 for images. The margin is therefore a multiple of the mean gap of
some examples, and all thresholds on scores are relative to the margin.

MIRA keeps scorers close to their start, the mean of the label's examples. This is best for few examples. With many
examples per label, trained scorers are more accurate than means, so the multiple grows with the number of examples.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._change import Workers, spans, workers
from .._jit import by_reference, empty, inner, inner_allocating, kernel, release, zeros
from .binary_svm import dual_step
from .candidates import LabelCandidates, best_of, new_candidates, score_with_right
from .label_scorers import Head, HeadLoss, with_more_cells
from .label_updates import PairsByLabel, scores_of, sorted_by_label, with_rows_added
from .lessons import CandidateSearch, HeadLesson, find_shortlists, learn_in_turn
from .search import FoundLabels
from .shortlists import shortlisted
from .softmax import descend

_GAPS_IN_A_MARGIN = 1.4
_GAPS_MEASURED = 1000.0
_PRIOR_EXAMPLES = 4.0  # weight of a label's initial mean, in examples
_HARDNESS = 3.0  # C for labels with several examples
_MIN_HARDNESS = 1.0  # C for labels with very many examples
_NOTHING = 1e-30  # smallest C; its inverse is finite in float32
_MANY_EXAMPLES = 50.0  # examples per label above which the margin grows and C shrinks
_SWEEPS = 3  # rounds of closed-form steps per example
_CLOSE_ENOUGH = 0.001  # steps below this fraction of the margin are skipped
_LARGEST_GAP = 0.01  # duality gap, as a fraction of the margin times all dual variables, at which training stops
N_COMPETITORS = 8  # maximum number of an example's competitors that have dual variables
_MAX_CHANGED = 2 + N_COMPETITORS + _SWEEPS  # maximum number of scorers that a row changes
_RIGHT = np.int64(0)  # position of the correct label in a shortlist
_ROWS_AT_ONCE = 1024  # number of rows scored before training on any of them
N_STORED = 4  # competitors stored per example, those with the largest weights. More give no lower error.
_GENTLE = 1.25  # growth factor of the arrays of stored dual variables
MAX_IN_TURN = 1024  # up to this number of labels, each row is learned before the next is scored


class Duals(NamedTuple):
    """The dual variables of examples.

    A label's scorer is its initial mean, plus the label's examples, minus the examples that the label competes for,
    each multiplied by its dual variable. Later passes can reduce dual variables that have become too large.
    """

    competitors: np.ndarray  # int32 (rows, N_COMPETITORS): labels that compete with each row's label
    weights: np.ndarray  # float32 (rows, N_COMPETITORS): dual variable of each competitor, 0 for none
    softness: np.ndarray  # float32 (rows,): slack per unit of the row's weights, 1 / C
    settled: np.ndarray  # bool (rows,): whether the last pass over the row changed nothing
    gaps: np.ndarray  # float32 (rows,): each row's part of the duality gap before its last step
    importance: np.ndarray  # float32 (rows,): sample weights; for MIRA, the softness includes them


class _Plan(NamedTuple):
    """The changes for one row, which are applied together so that each scorer is written only once."""

    places: np.ndarray  # int64 (N_COMPETITORS,): positions of the row's competitors among its candidates, or NONE
    weights: np.ndarray  # float32 (N_COMPETITORS,): dual variables of the competitors
    changed: np.ndarray  # int64: positions of candidates whose scorers change
    changes: np.ndarray  # float32: the multiple of the row to add to each of these scorers
    n_changed: np.ndarray  # int64 (1,): number of changed scorers


class Steps(NamedTuple):
    """Scorer updates: step ``s`` adds ``amounts[s]`` times row ``numbers[s]`` of a block to scorer ``labels[s]``."""

    labels: np.ndarray  # int64: label of each step
    numbers: np.ndarray  # int64: position of each step's row in the block
    amounts: np.ndarray  # float32: multiple of the row to add
    earlier: np.ndarray  # int64: 1 + the previous step of the same label, or 0
    last: np.ndarray  # int64 (labels,): 1 + the last step of each label, or 0
    n: np.ndarray  # int64 (1,): number of steps


class _Products(NamedTuple):
    """Dot products of the rows of a block with the current row."""

    of: np.ndarray  # int64: number of the row with which each product was computed
    values: np.ndarray  # float32: product of each row with that row


def new_duals(aggressiveness: float, n_of_label: np.ndarray, weights: np.ndarray | None = None) -> Duals:
    """Return dual variables of 0 for untrained examples.

    ``n_of_label[i]`` is the number, or the total weight, of examples with the label of example ``i``. With few, each is
    a large part of the mean that the scorer starts from, and its gap says little about new rows, so ``C`` is small.
    With very many, some are noise, so ``C`` decreases again. ``weights`` multiply ``C``.
    """
    n_rows = n_of_label.size
    importance = np.ones(n_rows, np.float32) if weights is None else weights
    excess = np.maximum(1.0, n_of_label / _MANY_EXAMPLES)
    hardness = _MIN_HARDNESS + (_HARDNESS - _MIN_HARDNESS) / excess
    hardness = aggressiveness * hardness * importance * n_of_label / (n_of_label + _PRIOR_EXAMPLES)
    return Duals(
        np.full((n_rows, N_COMPETITORS), kernels.NONE, np.int32),
        np.zeros((n_rows, N_COMPETITORS), np.float32),
        (1.0 / np.maximum(hardness, _NOTHING)).astype(np.float32),
        np.zeros(n_rows, np.bool_),
        np.zeros(n_rows, np.float32),
        importance,
    )


def margin_wanted(head: Any) -> float:
    """Return the required margin of the correct label's score over all other scores."""
    return _GAPS_IN_A_MARGIN * head.gaps[1] / head.gaps[0] if head.gaps[1] > 0.0 else 1.0


@inner_allocating
def _new_plan():
    return _Plan(
        empty(N_COMPETITORS, np.int64),
        empty(N_COMPETITORS, np.float32),
        empty(_MAX_CHANGED, np.int64),
        empty(_MAX_CHANGED, np.float32),
        zeros(1, np.int64),
    )


@inner
def _begin_plan(plan, candidates, duals, row, right):
    """Copy the row's dual variables to the plan, and find their competitors among the candidates."""
    for j in range(N_COMPETITORS):
        plan.weights[j] = duals.weights[row, j]
        plan.places[j] = kernels.NONE
        if duals.weights[row, j] > 0.0:
            for i in range(candidates.n_found[0]):
                if candidates.labels[i] == duals.competitors[row, j] and i != right:
                    plan.places[j] = np.int64(i)


@inner
def _entry_for(plan, place):
    """Return the entry of a competitor's weight, or a free entry; NONE if there is no room."""
    free = kernels.NONE
    for j in range(N_COMPETITORS):
        if plan.weights[j] == 0.0:
            free = np.int64(j)
        elif plan.places[j] == place:
            return np.int64(j)
    return free


@inner
def _gap_of_row(plan, candidates, right, best, margin, softness):
    """Return the row's part of the duality gap, which is 0 at the optimum and positive elsewhere."""
    lead = candidates.scores[right] - candidates.scores[best]
    slack, used, gap = max(np.float32(0.0), margin - lead), np.float32(0.0), np.float32(0.0)
    for j in range(N_COMPETITORS):
        used += plan.weights[j]
        if plan.places[j] != kernels.NONE:
            gap -= plan.weights[j] * (margin - (candidates.scores[right] - candidates.scores[plan.places[j]]))
    return gap + np.float32(0.5) * (slack * slack / softness + softness * used * used)


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
    """Change a competitor's weight in closed form to meet the margin exactly; return the change.

    Slack is squared, so larger weights of the row reduce the required margin. Weights are never negative.
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
        if plan.places[j] != kernels.NONE:
            duals.competitors[row, j] = candidates.labels[plan.places[j]]


@inner
def _carry_out(head, plan, candidates, x, row, duals, work):
    """Apply a plan to the scorers. Returns DONE, or TABLES_FULL without changing anything if tables lack room."""
    n_changed = plan.n_changed[0]
    for step in range(2 * n_changed):  # the first half of the steps only makes room
        i = step % n_changed
        label = candidates.labels[plan.changed[i]]
        if linear.locate_or_insert(head.models, linear.ONLY_GROUP, label, x, work) != linear.DONE:
            return linear.TABLES_FULL
        if step >= n_changed:
            linear.add_row(head.models, linear.ONLY_GROUP, label, x, work, plan.changes[i])
    if n_changed > 0:
        _keep_weights(plan, candidates, row, duals)
    return linear.DONE


@kernel
def ascend_on(head, rows, labels, found, duals, margin, at):
    """Train the head with MIRA on rows with candidates, and increment ``at[0]`` after each row.

    Writes the scores of ``found``, the models of ``head`` and the ``duals``. Returns DONE, or TABLES_FULL after
    learning ``at[0]`` rows.
    """
    head = by_reference(head)
    candidates, plan, status = new_candidates(rows, found.max_labels, 1), _new_plan(), linear.DONE
    work = linear.new_workspace(kernels.longest_row(rows, 0, rows.offsets.size - 1))
    for i in range(found.rows.size):
        row, x = found.rows[i], kernels.row_of(rows, found.rows[i])
        right = score_with_right(head, candidates, found, i, x, labels[row])
        _plan_row(candidates, x, right, row, duals, np.float32(margin), plan)
        status = _carry_out(head, plan, candidates, x, row, duals, work)
        if status != linear.DONE:
            break
        at[0] += 1
    release((candidates, plan, work))
    return status


@inner
def _note_steps(plan, candidates, i, row, duals, steps):
    """Append the planned changes of row ``i`` of the block to the steps."""
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
    """Add the effect of earlier rows' steps to the scores of row ``i`` of the block."""
    aimed = False
    for j in range(candidates.n_found[0]):
        after = steps.last[candidates.labels[j]]
        while after > 0:
            step = after - 1
            number = steps.numbers[step]
            if products.of[number] != i:
                if not aimed:
                    kernels.aim_probe(candidates.probe, kernels.row_of(rows, found.rows[i]))
                    aimed = True
                products.of[number] = i
                products.values[number] = kernels.probed_dot(candidates.probe, kernels.row_of(rows, found.rows[number]))
            candidates.scores[j] += steps.amounts[step] * products.values[number]
            after = steps.earlier[step]


@inner
def _plan_row(candidates, x, right, row, duals, margin, plan):
    """Plan the changes for one row by ascent in the dual of Crammer and Singer."""
    size = kernels.squared_length(x)
    plan.n_changed[0] = 0
    duals.settled[row] = True
    if size == 0.0 or candidates.n_found[0] < 2:
        return
    _begin_plan(plan, candidates, duals, row, right)
    softness = duals.softness[row]
    duals.gaps[row] = _gap_of_row(plan, candidates, right, best_of(candidates, right), margin, softness)
    for _ in range(_SWEEPS):
        farthest = np.float32(0.0)
        best = best_of(candidates, right)
        for j in range(-1, N_COMPETITORS):
            # First the best competitor, then the remaining competitors with weights.
            entry, competitor = np.int64(j), best
            if j < 0:
                entry = _entry_for(plan, best)
            else:
                competitor = plan.places[j] if plan.weights[j] > 0.0 and plan.places[j] != best else kernels.NONE
            if entry != kernels.NONE and competitor != kernels.NONE:
                change = _hold_apart(plan, candidates, right, competitor, entry, margin, softness, size)
                farthest = max(farthest, np.abs(change))
        if farthest == 0.0:
            break
        duals.settled[row] = False


@kernel
def plan_steps(rows, found, duals, margin, steps):
    """Plan the steps of one row after another. The first candidate of each row is its correct label.

    The scores of ``found`` lack the steps of earlier rows of the block, so these are added. The result is the same as
    learning each row before scoring the next. Writes the scores of ``found``, the ``duals``, and ``steps``, which must
    have room.
    """
    probe, n_found, plan = kernels.new_probe(rows, 0, rows.offsets.size - 1), zeros(1, np.int64), _new_plan()
    products = _Products(empty(found.rows.size, np.int64), empty(found.rows.size, np.float32))
    products.of[:] = kernels.NONE
    first = np.int64(0)
    for i in range(found.rows.size):
        row, stop = found.rows[i], found.ends[i]
        n_found[0] = stop - first
        candidates = LabelCandidates(found.labels[first:stop], found.scores[first:stop], n_found, probe)
        _add_steps_noted(rows, found, i, candidates, steps, products)
        _plan_row(candidates, kernels.row_of(rows, row), _RIGHT, row, duals, np.float32(margin), plan)
        if plan.n_changed[0] > 0:
            _note_steps(plan, candidates, i, row, duals, steps)
        first = stop
    release((probe, n_found, plan, products))


def _scored(search: CandidateSearch, head: Head, lesson: HeadLesson, block: np.ndarray, run: Workers) -> FoundLabels:
    """Return the shortlists of some rows with scores. If ``lesson.searching`` is True, search for candidates first."""
    known = find_shortlists(search, head, lesson, block, run) if lesson.searching else None
    found = shortlisted(lesson.shortlists, block) if known is None else shortlisted(lesson.shortlists, block, known)
    unknown = np.arange(found.labels.size) if known is None else np.flatnonzero(np.isnan(found.scores))
    of_rows = np.repeat(block, found.n_met)[unknown]
    asked = found.labels[unknown]
    found.scores[unknown] = scores_of(head, lesson.questions.rows, asked, of_rows, search.n_threads, run)
    return found


def has_converged(head: Head, duals: Duals) -> bool:
    """Return whether another pass over all rows would hardly improve the head.

    The duality gap is the sum over the rows, each at the time of its last step.
    """
    used = margin_wanted(head) * float(duals.weights.sum(dtype=np.float64))
    return head.parameters.loss == HeadLoss.MIRA and float(duals.gaps.sum(dtype=np.float64)) <= _LARGEST_GAP * used


def lacks_gaps(head: Head) -> bool:
    """Return whether too few gaps have been measured."""
    return bool(head.gaps[0] < _GAPS_MEASURED)


def measure_gaps(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, n_per_label: float = 0.0
) -> None:
    """Measure the gaps of a lesson's rows until there are enough.

    ``n_per_label`` is the mean number of examples per label. With MIRA, a large number increases the recorded gaps.
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
    """Train a head on a lesson; return the head, or a larger head if tables were full.

    If ``lesson.searching`` is True, first search for candidates and write the lesson's shortlists. Writes the models of
    the head and the ``duals``. Results do not depend on the number of threads. Only MIRA with many labels uses more
    than one thread.
    """
    margin = margin_wanted(head)
    if head.parameters.loss != HeadLoss.MIRA:
        return descend(search, head, lesson, duals.importance, margin)
    if head.counters[0, linear.MODELS_END] > MAX_IN_TURN:
        return ascend_in_blocks(search, head, lesson, duals)

    def learn(head: Head, found: FoundLabels, at: np.ndarray) -> int:
        return int(ascend_on(head.scorers, lesson.questions.rows, lesson.labels, found, duals, margin, at))

    return learn_in_turn(search, head, lesson, learn)


def learn_shortlists(
    head: Head, rows: kernels.Rows, labels: np.ndarray, shortlists: np.ndarray, order: np.ndarray, duals: Duals
) -> Head:
    """Train a head with MIRA on the shortlists of a few rows; return the head, or a larger head if tables were full.

    ``order`` may repeat rows for several passes. Writes the models and the ``duals``.
    """
    margin, at = margin_wanted(head), np.zeros(1, np.int64)
    found = shortlisted(shortlists, order)
    while ascend_on(head.scorers, rows, labels, found, duals, margin, at) != linear.DONE:
        head, found = with_more_cells(head), shortlisted(shortlists, order[at[0] :])
    return head


def ascend_in_blocks(
    search: CandidateSearch, head: Head, lesson: HeadLesson, duals: Duals, *, rows_at_once: int = _ROWS_AT_ONCE
) -> Head:
    """Train a head with MIRA on blocks of rows; return the head, or a larger head if tables were full.

    For each block, search for candidates and score them, plan the steps of one row after another with the effect of
    earlier plans, and apply all steps. Up to rounding, this is the same as learning each row before scoring the next.
    Only planning, which takes little time, runs in a single thread.
    """
    rows, n_labels = lesson.questions.rows, int(head.counters[0, linear.MODELS_END])
    margin, numbers = margin_wanted(head), np.empty((3, min(lesson.order.size, rows_at_once) * _MAX_CHANGED), np.int64)
    last = np.zeros(n_labels, np.int64)  # unused pages take no memory
    amounts = np.empty(numbers.shape[1], np.float32)
    steps = Steps(numbers[0], numbers[1], amounts, numbers[2], last, np.zeros(1, np.int64))
    with workers(search.n_threads) as run:
        for first, stop in spans(lesson.order.size, rows_at_once):
            block = lesson.order[first:stop]
            found = _scored(search, head, lesson, block, run)
            plan_steps(rows, found, duals, margin, steps)
            head = with_rows_added(head, rows, _taken_out(steps, block), search.n_threads, run)
    return head


def _taken_out(steps: Steps, block: np.ndarray) -> PairsByLabel:
    """Return the steps of a block's rows, grouped by label, and clear ``steps``."""
    n = int(steps.n[0])
    labels = steps.labels[:n]
    steps.last[labels] = 0
    steps.n[0] = 0
    return sorted_by_label(labels, block[steps.numbers[:n]], steps.amounts[:n])[0]


class StoredDuals(NamedTuple):
    """The dual variables of examples by slot, with which training continues. Slots beyond the end have none."""

    competitors: Annotated[np.ndarray, kernels.kind_of(np.int32, "slots", N_STORED)]  # labels, padded with NONE
    weights: Annotated[np.ndarray, kernels.kind_of(np.float32, "slots", N_STORED)]


def no_stored_duals(n_slots: int = 0) -> StoredDuals:
    """Return dual variables of 0 for ``n_slots`` untrained examples."""
    return StoredDuals(np.full((n_slots, N_STORED), kernels.NONE, np.int32), np.zeros((n_slots, N_STORED), np.float32))


@kernel
def _copy_stored(competitors, weights, slots, of_rows, weights_of_rows):
    for i in range(slots.size):
        if slots[i] < weights.shape[0]:
            for j in range(N_STORED):
                of_rows[i, j] = competitors[slots[i], j]
                weights_of_rows[i, j] = weights[slots[i], j]


@kernel
def _store_largest(of_rows, weights_of_rows, slots, competitors, weights):
    """Store each row's largest weights with their competitors. Ties go to the first competitor."""
    for i in range(slots.size):
        slot, n = slots[i], 0
        for j in range(weights_of_rows.shape[1]):
            weight, place = weights_of_rows[i, j], n
            if weight <= 0.0 or (n == N_STORED and weight <= weights[slot, N_STORED - 1]):
                continue
            n = min(n + 1, N_STORED)
            place = n - 1
            while place > 0 and weights[slot, place - 1] < weight:
                weights[slot, place] = weights[slot, place - 1]
                competitors[slot, place] = competitors[slot, place - 1]
                place -= 1
            weights[slot, place], competitors[slot, place] = weight, of_rows[i, j]
        for j in range(n, N_STORED):
            weights[slot, j], competitors[slot, j] = np.float32(0.0), kernels.NONE


def resume(stored: StoredDuals, slots: np.ndarray, duals: Duals) -> None:
    """Copy the stored dual variables of some slots to ``duals``, which has an empty row for each slot."""
    _copy_stored(stored.competitors, stored.weights, slots, duals.competitors, duals.weights)


def with_duals(stored: StoredDuals, slots: np.ndarray, duals: Duals) -> StoredDuals:
    """Store the ``duals`` of the examples in some slots; return all stored duals, in larger arrays if needed."""
    n = int(slots.max(initial=-1)) + 1
    if n > stored.weights.shape[0]:
        larger = no_stored_duals(max(n, int(_GENTLE * stored.weights.shape[0])))
        for new, old in zip(larger, stored, strict=True):
            new[: old.shape[0]] = old
        stored = larger
    _store_largest(duals.competitors, duals.weights, slots, stored.competitors, stored.weights)
    return stored


def duals_of_slots(stored: StoredDuals, slots: np.ndarray, number: np.ndarray) -> StoredDuals:
    """Return the dual variables of the examples in some slots, in this order, with renumbered labels.

    Label ``l`` becomes ``number[l]``. Competitors whose new number is kernels.NONE lose their weight.
    """
    fewer, known = no_stored_duals(slots.size), slots < stored.weights.shape[0]
    competitors = stored.competitors[slots[known]]
    competitors = np.where(competitors == kernels.NONE, kernels.NONE, number[competitors])
    fewer.competitors[known] = competitors
    fewer.weights[known] = np.where(competitors == kernels.NONE, np.float32(0.0), stored.weights[slots[known]])
    return fewer


def trim_duals(stored: StoredDuals) -> StoredDuals:
    """Return views of dual variables for a file, without trailing examples that have none."""
    used = np.flatnonzero(stored.weights.any(axis=1))
    n = int(used[-1]) + 1 if used.size > 0 else 0
    return StoredDuals(stored.competitors[:n], stored.weights[:n])
