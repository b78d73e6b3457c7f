"""Examples by label: what a classifier keeps so that it can answer with memories as well as with labels."""

from typing import NamedTuple

import numpy as np

from .._forest.allocation import keys_with_room, resized
from .._forest.key_store import append_keys
from .._forest.leaf_scan import answer, new_best, offer
from .._forest.rows import Rows
from .._forest.scorer import score
from .._forest.state import N_MEMORIES, NONE, Keys, Scorer, new_keys, new_scorer
from .._jit import by_reference, inner, kernel
from .candidates import best_of, drop_candidate, find_candidates, new_candidates


class ExampleParameters(NamedTuple):
    """What is fixed for the life of a store of examples."""

    n_features: int
    sparse: bool


class Examples(NamedTuple):
    """A key store of examples, and for every label the list of its examples."""

    parameters: ExampleParameters
    keys: Keys
    scorer: Scorer  # never trained: examples are compared by their cosine
    label_of: np.ndarray  # int32 (capacity,)
    next_of: np.ndarray  # int32 (capacity,): the next example of the same label
    first_of: np.ndarray  # int32 (labels,): the label's newest example


def new_examples(parameters: ExampleParameters) -> Examples:
    """Return an empty store."""
    none = np.empty(0, np.int32)
    return Examples(parameters, new_keys(), new_scorer(), none, none, none)


def with_room_for_examples(examples: Examples, rows: Rows, n_labels: int) -> Examples:
    """Return a store with room for one more example for each of the rows, of labels below ``n_labels``."""
    keys = keys_with_room(examples.parameters, examples.keys, rows.n_rows, rows.values.size)
    first_of, old = examples.first_of, examples.first_of.size
    if n_labels > old:
        first_of = resized(first_of, max(n_labels, 2 * old), 0)
        first_of[old:] = NONE
    label_of, next_of = examples.label_of, examples.next_of
    if keys.ids.size > label_of.size:
        label_of, next_of = resized(label_of, keys.ids.size, 0), resized(next_of, keys.ids.size, 0)
    return examples._replace(keys=keys, label_of=label_of, next_of=next_of, first_of=first_of)


@kernel
def append_examples(examples, rows, labels):
    """Store one more example for each of the rows, for which there is room, and list them by their labels."""
    first = examples.keys.totals[N_MEMORIES]
    append_keys(examples, rows)
    for i in range(labels.size):
        examples.label_of[first + i] = labels[i]
        examples.next_of[first + i] = examples.first_of[labels[i]]
        examples.first_of[labels[i]] = first + i


@inner
def _scan_label(examples, best, probe, label, label_score):
    """Score the examples of a label, if there was memory for any.

    The score is the mean of an example's cosine and of what the head says of the label.
    """
    slot = np.int64(examples.first_of[label]) if label < examples.first_of.size else NONE
    while slot != NONE:
        offer(best, (score(examples, probe, slot) + label_score) / np.float32(2.0), np.uint64(slot), slot)
        slot = np.int64(examples.next_of[slot])


@inner
def _nearest_row(state, head, examples, candidates, best, questions, row, n_labels, hits):
    candidates, best = by_reference(candidates), by_reference(best)
    find_candidates(state, head, candidates, questions, row)
    best.n_found[0] = 0
    n_scanned = 0
    while candidates.n_found[0] > 0 and (n_scanned < n_labels or best.n_found[0] < best.scores.size):
        i = best_of(candidates, NONE)
        _scan_label(examples, best, candidates.probe, candidates.labels[i], candidates.scores[i])
        drop_candidate(candidates, i)
        n_scanned += 1
    answer(examples, best, row, hits)


@kernel
def nearest_rows(state, head, examples, questions, first, stop, effort, n_labels, hits):
    """Write the best examples of the best ``n_labels`` labels for the rows ``first .. stop`` into ``hits``.

    More labels are looked at where these have too few examples.
    """
    state, head, examples = by_reference(state), by_reference(head), by_reference(examples)
    questions, hits = by_reference(questions), by_reference(hits)
    candidates = new_candidates(state, head, questions, effort, 0)
    best = new_best(hits.ids.shape[1], 0)
    for row in range(first, stop):
        _nearest_row(state, head, examples, candidates, best, questions, row, n_labels, hits)
