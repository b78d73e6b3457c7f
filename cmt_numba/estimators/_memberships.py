"""How the head of a multi-label classifier learns which labels rows have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse

from .._change import spans, with_progress
from .._forest import Rows
from .._heads import (
    NEGLIGIBLE,
    ExamplePairs,
    LabelBlock,
    Questions,
    Training,
    by_label,
    forget_labels,
    joined,
    learn_afresh,
    learn_memberships,
    list_hard_negatives,
    new_digest,
    new_duties,
    one_block,
    pair_with_all,
    pair_with_answers,
    pair_with_hard_negatives,
    pairs_that_count,
    with_index,
    with_lists,
    with_lists_of,
)
from ._weights import filled

if TYPE_CHECKING:
    from ._multilabel import CMTMultilabelClassifier

_SWEEPS = 4  # over the rows of a label, in each pass
_SWEEPS_AT_ONCE = 21  # over the rows of a common label, which are all there are from the start
_NEGLIGIBLE_IN_COMMON = 0.001  # of the largest weight of the label
_PAIRS_AT_ONCE = 1 << 22


class LabelledRows(NamedTuple):
    """Rows to be learned together."""

    rows: Rows
    answers: scipy.sparse.csr_array  # an indicator of the columns of each row
    weights: np.ndarray | None  # float32, above 0; None if all are 1

    def of_answers(self) -> np.ndarray:
        """Return the row of each entry of ``answers``."""
        return np.repeat(np.arange(self.rows.n_rows), np.diff(self.answers.indptr))


def train_memberships(
    classifier: CMTMultilabelClassifier,
    questions: Questions,
    of_rows: np.ndarray,
    labels: np.ndarray,
    n_known: int,
    weights: np.ndarray | None,
) -> None:
    """Train the head of a classifier on rows: row ``of_rows[i]`` has the label ``labels[i]``.

    Labels from ``n_known`` on are new. ``weights`` are those of the rows.
    """
    forget_labels(classifier.head_.models, n_known)  # they started as their means, which the index lists
    in_lists = n_known == 0 and classifier.head_.parameters.sparse
    if in_lists:
        classifier.head_ = with_lists(classifier.head_, new_digest(np.zeros(classifier.forest_.n_memories, np.int64)))
    learn = learn_afresh if in_lists else learn_memberships
    n_rows, n_labels = questions.rows.n_rows, classifier.forest_.n_memories
    common, orders = classifier.head_.common.labels, classifier._orders
    of_each = filled(weights, n_rows)
    in_hand, of_all = of_each.sum(dtype=np.float64), classifier._amounts()[1]
    duties = new_duties(
        classifier.aggressiveness, of_each, np.where(np.arange(n_labels) < n_known, in_hand, of_all), n_known
    )
    n_threads = classifier.forest_._forest.threads_for(n_rows)

    def train(rows: Rows, of_each: np.ndarray, blocks: Iterable[LabelBlock], n_sweeps: int, share: float) -> None:
        training = Training(rows, duties._replace(weights=of_each), n_sweeps, share, n_threads)
        classifier.head_ = learn(classifier.head_, blocks, training)

    # Rows may have come in the order of their labels, and sweeps want them mixed.
    order, place = orders.permutation(n_rows), np.empty(n_rows, np.int64)
    place[order] = np.arange(n_rows)
    rows, answers = questions.rows.take(order), pair_with_answers(place[of_rows], labels, n_labels)
    blocks = list(spans(common.size, max(1, _PAIRS_AT_ONCE // max(1, n_rows))))
    for first, stop in with_progress(blocks, "block of common labels", classifier.verbose):
        pairs = pair_with_all(answers, common[first:stop], n_rows)
        train(rows, of_each[order], one_block(pairs), _SWEEPS_AT_ONCE, _NEGLIGIBLE_IN_COMMON)
    if n_labels == common.size:
        return
    del rows, answers  # a copy of all rows
    others = ~np.isin(labels, common)
    pairs = pair_with_answers(of_rows[others], labels[others], n_labels)
    for n_pass in with_progress(range(classifier.n_head_passes), "pass", classifier.verbose):
        if n_pass > 0 and classifier._worth_listing(n_rows):
            # It finds what the last pass got wrong.
            classifier.head_ = with_index(classifier.head_, classifier._lightest_listed)
        if in_lists:
            classifier.head_ = with_lists_of(classifier.head_, common)  # the others' are learned anew
        found = by_label(_hard_negatives(classifier, questions), orders.permutation(n_rows), n_labels)
        counted: list[ExamplePairs] = []
        of_labels = _noting(pair_with_hard_negatives(pairs, found, n_rows), counted)
        train(questions.rows, of_each, of_labels, _SWEEPS, NEGLIGIBLE if n_known == 0 else 0.0)
        pairs = joined(counted)
    if n_known > 0:
        classifier._prune()
    else:
        classifier._note_pruned()  # all have lost what is negligible with every pass


def _noting(blocks: Iterable[LabelBlock], counted: list[ExamplePairs]) -> Iterator[LabelBlock]:
    """Yield blocks and, when they have been learned, note those of their pairs that count."""
    for block in blocks:
        yield block
        counted.append(pairs_that_count(block.pairs))


def _hard_negatives(classifier: CMTMultilabelClassifier, questions: Questions) -> np.ndarray:
    """Return the candidate labels of each row, without the common ones, then NONE: int32."""
    state, effort = classifier._searched(), classifier._effort(training=True)
    most = effort.n_leaves * state.members.shape[2] + effort.n_listed
    found = np.empty((questions.rows.n_rows, most), np.int32)
    trees, routers, head = state.trees, state.models, classifier.head_.scorers

    def find(first: int, stop: int) -> None:
        asked = questions._replace(first=first, stop=stop)
        list_hard_negatives(trees, routers, head, asked, effort, found)

    classifier._in_threads(questions.rows, find)
    return found
