"""Stored examples of a classifier, with a list of examples for each label."""

from typing import Annotated, NamedTuple

import numpy as np

from .. import _kernels as kernels
from .._jit import empty, inner, kernel, release, zeros
from .._postings import LabelAnswers
from .candidates import best_of, drop_candidate, new_candidates, take_candidates
from .search import FoundLabels

MAX_DRAWN_FROM = 256  # number of a label's newest examples from which :func:`draw_replayed` draws, to limit its time


class ExampleParameters(NamedTuple):
    """Fixed parameters of a store of examples."""

    n_features: int
    sparse: bool


class ExampleLists(NamedTuple):
    """The arrays of :class:`StoredExamples` that kernels use."""

    keys: kernels.KeyStore
    label_of: np.ndarray
    next_of: np.ndarray
    first_of: np.ndarray


class StoredExamples(NamedTuple):
    """A key store of examples, with a linked list of examples for each label."""

    parameters: ExampleParameters
    keys: kernels.KeyArrays
    label_of: Annotated[np.ndarray, kernels.kind_of(np.int32, "places of keys")]
    next_of: Annotated[np.ndarray, kernels.kind_of(np.int32, "places of keys")]  # slot of the label's next older one
    first_of: Annotated[np.ndarray, kernels.kind_of(np.int32, "labels")]  # slot of each label's newest example

    @property
    def lists(self) -> ExampleLists:
        return ExampleLists(kernels.key_store(self.parameters, self.keys), self.label_of, self.next_of, self.first_of)


def new_examples(parameters: ExampleParameters) -> StoredExamples:
    none = np.empty(0, np.int32)
    return StoredExamples(parameters, kernels.new_keys(), none, none, none)


def with_room_for_examples(examples: StoredExamples, rows: kernels.Rows, n_labels: int) -> StoredExamples:
    """Return a store with room for additional examples with labels below ``n_labels``."""
    keys = kernels.keys_with_room(examples.parameters, examples.keys, rows.n_rows, rows.values.size)
    first_of, old = examples.first_of, examples.first_of.size
    if n_labels > old:
        first_of = kernels.resized(first_of, max(n_labels, 2 * old))
        first_of[old:] = kernels.NONE
    label_of, next_of = examples.label_of, examples.next_of
    if keys.ids.size > label_of.size:
        label_of, next_of = kernels.resized(label_of, keys.ids.size), kernels.resized(next_of, keys.ids.size)
    return examples._replace(keys=keys, label_of=label_of, next_of=next_of, first_of=first_of)


def trimmed_examples(examples: StoredExamples) -> StoredExamples:
    """Return stored examples without spare capacity. The result shares arrays with ``examples``."""
    n = int(examples.keys.totals[kernels.N_MEMORIES])
    keys = kernels.trimmed_keys(examples.parameters, examples.keys)
    return examples._replace(keys=keys, label_of=examples.label_of[:n], next_of=examples.next_of[:n])


def all_examples(examples: StoredExamples) -> tuple[kernels.Rows, np.ndarray]:
    """Return the rows of all stored examples, which share memory with the store, and their labels (int64)."""
    keys, n = examples.keys, int(examples.keys.totals[kernels.N_MEMORIES])
    d, sparse = examples.parameters.n_features, examples.parameters.sparse
    if sparse:
        offsets = np.concatenate([keys.spans[:1, 0], keys.spans[:n, 1]]).astype(np.int64)
    else:
        offsets = np.arange(0, (n + 1) * d, d, dtype=np.int64)
    indices = keys.indices[: offsets[-1]] if sparse else keys.indices
    rows = kernels.Rows(keys.values[: offsets[-1]], indices, offsets, d, sparse)
    return rows, examples.label_of[:n].astype(np.int64)


def slots_of_examples(examples: StoredExamples, ids: np.ndarray) -> np.ndarray:
    """Return the slots of examples by id, or NONE for ids that are not stored."""
    slots = np.empty(ids.size, np.int64)
    kernels.find_slots(examples.keys, ids, slots)
    return slots


def with_only_examples(
    examples: StoredExamples, slots: np.ndarray, labels: np.ndarray, n_labels: int
) -> StoredExamples:
    """Return a store of the examples in some sorted slots. They keep their ids but get new labels."""
    rows = all_examples(examples)[0].take(slots)
    fewer = with_room_for_examples(new_examples(examples.parameters), rows, n_labels)
    append_examples(fewer.lists, rows, labels)
    keys = kernels.with_ids(fewer.keys, examples.keys.ids[slots])
    keys.totals[kernels.NEXT_ID] = int(examples.keys.totals[kernels.NEXT_ID])
    return fewer._replace(keys=keys)


@kernel
def append_examples(examples, rows, labels):
    """Append rows to the store, which must have room, and to the lists of their labels."""
    first = examples.keys.totals[kernels.N_MEMORIES]
    kernels.append_keys(examples.keys, rows)
    for i in range(labels.size):
        examples.label_of[first + i] = labels[i]
        examples.next_of[first + i] = examples.first_of[labels[i]]
        examples.first_of[labels[i]] = first + i


@kernel
def give_ids(examples, ids, next_id):
    """Give the newest examples new, distinct ids. ``next_id`` is the id of the next example."""
    keys = examples.keys
    n = keys.totals[kernels.N_MEMORIES]
    first = n - ids.size
    for slot in range(first, n):
        kernels.erase_id(keys, keys.ids[slot])
    for slot in range(first, n):
        keys.ids[slot] = ids[slot - first]
        kernels.enter_slot(keys.slot_table, keys.ids[slot], slot)
    keys.totals[kernels.NEXT_ID] = next_id


@inner
def _group_labels(examples, labels, n_old, newest):
    """Move labels with older examples to the front, and write their newest to ``newest``; return their number."""
    n_labels, last, slot = 0, kernels.NONE, kernels.NONE
    for i in range(labels.size):
        label = labels[i]
        if label != last:
            slot = np.int64(examples.first_of[label]) if label < examples.first_of.size else kernels.NONE
            while slot >= n_old:  # false for NONE
                slot = np.int64(examples.next_of[slot])
            last = label
        if slot != kernels.NONE:
            labels[n_labels], newest[n_labels] = label, slot
            n_labels += 1
    return n_labels


@inner
def _draw_near(examples, first, number):
    """Draw one of a label's newest examples from slot ``first`` on, by a random ``number`` in [0, 1)."""
    n, slot = 0, first
    while slot != kernels.NONE and n < MAX_DRAWN_FROM:
        n += 1
        slot = np.int64(examples.next_of[slot])
    slot = first
    for _ in range(np.int64(number * n)):
        slot = np.int64(examples.next_of[slot])
    return slot


@kernel
def draw_replayed(examples, competing, numbers, swept, n_new, slots, ends):
    """Draw distinct stored examples to learn with the newest ``n_new``; write the slots of both.

    Each row of ``numbers`` (random numbers in [0, 1)) draws two examples: one from all earlier examples, and one from
    the earlier examples of a label in the sorted ``competing``. Only a label's newest examples can be drawn, which
    limits the time. Each number in ``swept`` draws an additional example from all earlier examples.

    Writes ``slots``, which must have room: the drawn examples, the newest and the swept ones; and ``ends``, the numbers
    of slots without and with the swept examples. Overwrites ``competing``.
    """
    n_old, n = examples.keys.totals[kernels.N_MEMORIES] - n_new, 0
    newest, drawn = empty(competing.size, np.int64), zeros(max(n_old, 1), np.bool_)
    n_labels = _group_labels(examples, competing, n_old, newest)
    for draw in range(2 * numbers.shape[0] if n_old > 0 else 0):
        i = draw // 2
        if draw % 2 == 0:
            slot = np.int64(numbers[i, 2] * n_old)
        elif n_labels > 0:
            slot = _draw_near(examples, newest[np.int64(numbers[i, 0] * n_labels)], numbers[i, 1])
        else:
            slot = np.int64(numbers[i, 0] * n_old)
        if not drawn[slot]:
            drawn[slot], slots[n] = True, slot
            n += 1
    for i in range(n_new):
        slots[n] = n_old + i
        n += 1
    ends[0] = n
    for i in range(swept.size if n_old > 0 else 0):
        slot = np.int64(swept[i] * n_old)
        if not drawn[slot]:
            drawn[slot], slots[n] = True, slot
            n += 1
    ends[1] = n
    release((newest, drawn))


@kernel
def count_cells(examples, slots):
    """Return the number of cells of the examples in some slots."""
    n = np.int64(0)
    for i in range(slots.size):
        key = kernels.key_of(examples.keys, slots[i])
        n += key.b - key.a
    return n


@kernel
def copy_examples(examples, slots, values, indices, offsets, labels):
    """Copy the rows and labels of the examples in some slots. ``indices`` are empty for dense rows."""
    end = np.int64(0)
    for i in range(slots.size):
        key = kernels.key_of(examples.keys, slots[i])
        offsets[i] = end
        for cell in range(key.a, key.b):
            values[end] = key.values[cell]
            if indices.size > 0:
                indices[end] = key.indices[cell]
            end += 1
        labels[i] = examples.label_of[slots[i]]
    offsets[slots.size] = end


def some_examples(examples: StoredExamples, slots: np.ndarray) -> tuple[kernels.Rows, np.ndarray]:
    """Return copies of the rows in some slots, in this order, and their labels (int64)."""
    lists, d, sparse = examples.lists, examples.parameters.n_features, examples.parameters.sparse
    n_cells = count_cells(lists, slots) if sparse else slots.size * d
    values, indices = np.empty(n_cells, np.float32), np.empty(n_cells if sparse else 0, np.int32)
    offsets, labels = np.empty(slots.size + 1, np.int64), np.empty(slots.size, np.int64)
    copy_examples(lists, slots, values, indices, offsets, labels)
    return kernels.Rows(values, indices, offsets, d, sparse), labels


@inner
def _scan_label(examples, best, probe, label, label_score):
    """Offer a label's examples to ``best``. The score of an example is the mean of its cosine and the label's score."""
    slot = np.int64(examples.first_of[label]) if label < examples.first_of.size else kernels.NONE
    while slot != kernels.NONE:
        score = (kernels.score(examples.keys, probe, slot) + label_score) / np.float32(2.0)
        kernels.offer(best, score, np.uint64(slot), slot)
        slot = np.int64(examples.next_of[slot])


@inner
def _nearest_row(examples, rows, found, i, candidates, best, n_labels):
    take_candidates(found, i, candidates)
    n_found = candidates.n_found[0]
    for j in range(n_found):
        candidates.scores[j] = found.scores[found.ends[i] - n_found + j]
    kernels.aim_probe(candidates.probe, kernels.row_of(rows, found.rows[i]))
    best.n_found[0] = 0
    n_scanned = 0
    while candidates.n_found[0] > 0 and (n_scanned < n_labels or best.n_found[0] < best.scores.size):
        j = best_of(candidates, kernels.NONE)
        _scan_label(examples, best, candidates.probe, candidates.labels[j], candidates.scores[j])
        drop_candidate(candidates, j)
        n_scanned += 1


@kernel
def find_examples(examples, rows, found, n_labels, hits):
    """Write each row's best examples among those of its best ``n_labels`` labels, or of more if these have too few."""
    candidates = new_candidates(rows, found.max_labels, 0)
    best = kernels.new_best(hits.ids.shape[1], 0)
    for i in range(found.rows.size):
        _nearest_row(examples, rows, found, i, candidates, best, n_labels)
        kernels.answer(examples.keys, best, found.rows[i], hits.ids, hits.scores)
    release((candidates, best))


def rows_of_labels(
    examples: ExampleLists,
    rows: kernels.Rows,
    answers: LabelAnswers,
    n_labels: int,
    hits: kernels.Hits,
    first: int,
    stop: int,
) -> None:
    """Write the best examples of rows ``first:stop``, among those of each row's best ``n_labels`` labels, to ``hits``.

    Further labels are scanned only if these labels have too few examples. Writes only ``hits``.
    """
    labels, scores = answers.labels[first:stop], answers.scores[first:stop]
    found, n_each = labels != kernels.NONE, np.count_nonzero(labels != kernels.NONE, axis=1)
    ends, max_labels = np.cumsum(n_each), labels.shape[1]
    entries = FoundLabels(np.arange(first, stop), ends, n_each, labels[found], scores[found], 0, max_labels)
    find_examples(examples, rows, entries, n_labels, hits)
