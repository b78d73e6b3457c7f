"""What a classifier of one class for each example has learned, and how it learns and forgets.

A head that learns in batches does not know what its earlier examples taught it: each batch moves the scorers of the
labels that it competes with, and nothing takes back what is too much. So labels without new examples fade, and the
error stays above that of one ``fit``. Therefore a few stored examples are learned again with each new one, half of them
of labels that compete with the new ones, each from its stored dual variables. Whenever the number of examples has
grown by a share, the head starts again from the means of all examples, and is trained on all of them. The work for n
examples, in any number of batches, is that of a constant number of passes. Where that would take long, and examples
come a few at a time, more stored examples are learned again with each new one instead, so that no call takes long.
"""

from __future__ import annotations

import copy
import logging
import warnings
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._change import in_own_thread
from .._engine import remove_ids, renumber
from .._forest import N_MEMORIES, NEXT_ID, NONE, Hits, Rows, no_hits, rescaled
from .._heads import (
    HEAD_LOSSES,
    N_COMPETITORS,
    N_STORED,
    ExampleParameters,
    Head,
    HeadLesson,
    HeadLoss,
    LabelAnswers,
    Questions,
    StoredDuals,
    StoredExamples,
    all_examples,
    all_of,
    all_slots,
    append_examples,
    as_ready_as,
    count_in_means,
    draw_of_labels,
    duals_of_slots,
    exact_scores_of_all,
    find_shortlists,
    give_ids,
    lacks_gaps,
    learn_labels,
    margin_wanted,
    measure_gaps,
    new_duals,
    new_examples,
    new_head,
    new_shortlists,
    no_stored_duals,
    resume,
    rows_of_labels,
    slots_of_examples,
    some_examples,
    with_duals,
    with_labels,
    with_only,
    with_only_examples,
    with_room_for_examples,
)
from .._jit import keeping_interpreter
from ..tree import ContextualMemoryTree
from ._calibration import (
    FEWEST_HELD_OUT,
    LOGITS_PER_MARGIN,
    MOST_RANKED,
    held_out,
    logits_per_margin,
    positions_in,
)
from ._choice import Choice, choose, resolved
from ._feature_weights import add_counts, count_features, seem_cut_off
from ._input import ExampleBatch, joined_weights, taken, total_weights, weighted
from ._label_index import MOST_TRAINED_ALONE_DENSE, LabelIndex, LabelOptions, means_of
from ._labels import are_among, check_expected, distinct_classes, in_one_type
from ._neighbors import NeighborTable, nearest, new_table
from ._votes import count_votes, weights_of_votes

PASSES_ONLINE = 2
"""Passes over a batch and the earlier examples learned with it. More would fit the head to these few."""

_REPLAYED = 8  # earlier examples that are learned again with each new one
_GROWTH = 0.25  # of the number of examples, after which all are learned again: each is, five times on average
_FEW_ROWS = 64  # to be learned together
_MOST_AT_ONCE = 1000  # examples, all of which can be learned again in some 20 ms
_LARGE_BATCH = 16  # so small a part of all examples is worth learning all again
_SWEPT = 16  # other examples that are learned again with each new one, where all are not
_FEWEST = 16  # new examples, below which the online steps suffice
_EVICTED_AT_ONCE = 1 / 16  # of the maximum number of examples: forgetting takes time in proportion to all

_LABELS_SCANNED = 8  # whose examples may be a row's neighbours; the nearest seldom belongs to one the head ranks lower
_WORTH_A_WORD = 20_000  # examples from which on learning probabilities takes some seconds

logger = logging.getLogger("cmt_numba")


class ClassificationOptions(LabelOptions, Protocol):
    """The parameters of a classifier that its model reads."""

    n_head_passes: int
    loss: str
    aggressiveness: float
    learning_rate: float
    store_examples: bool
    max_examples: int | None
    method: str
    metric: str
    n_neighbors: int | str
    weights: str
    feature_weights: str


class ClassPlaces(NamedTuple):
    """Where the classes of a batch are among all classes."""

    classes: np.ndarray  # all known from now on, sorted
    added: np.ndarray  # int64: where new ones go among those known before, as in numpy.insert
    of_batch: np.ndarray  # int64: where the distinct classes of the batch are among all, rising


def place_classes(
    known: np.ndarray | None, y: np.ndarray, expected: np.ndarray | None
) -> tuple[ClassPlaces, np.ndarray]:
    """Return where the classes of rows are among all, and for each row where its class is among those of the batch.

    Parameters
    ----------
    known : ndarray or None
        The classes known before, sorted.
    y : ndarray
        The class of each row.
    expected : ndarray or None
        The classes that may come, if the user has named them.
    """
    found, of_rows = distinct_classes(y)
    if known is None:
        known = (found if expected is None else expected)[:0]
    if expected is None:
        if known.size > 0:
            known, found = in_one_type("y", known, found)
        expected = found
    else:
        known, found, expected = in_one_type("y", known, found, expected)
        expected = np.unique(expected)
        check_expected(found, expected)
    new = expected[~are_among(known, expected)]
    added = np.searchsorted(known, new)
    classes = np.insert(known, added, new) if new.size > 0 else known
    return ClassPlaces(classes, added, np.searchsorted(classes, found)), of_rows


class ClassificationModel:
    """Classes, an index of their labels, and the stored examples.

    Attributes
    ----------
    index : LabelIndex
        The forest and the scorers. Labels are numbered in the order of insertion, classes are sorted.
    classes : ndarray
        All classes.
    label_of_class : ndarray of int64
        The label of each class, NONE if it has no examples.
    class_of_label : ndarray of int64
        The position of each label's class.
    example_weights : ndarray of float32 or None
        By slots of stored examples, with room for more; None while all weigh 1.
    duals : StoredDuals or None
        Dual variables of stored examples; None while none have been learned with MIRA.
    n_measured : int
        The number of examples when half of the measured gaps were last forgotten.
    n_relearned : int
        The number of examples when all were last learned.
    calibration : ndarray of float64, shape (1,)
        What a margin is worth as logits; NaN until it is learned. Readers learn it.
    example_lengths : ndarray of float32 or None
        Lengths of stored examples before they were scaled, with room for more; None while all were 1.
    choice : Choice or None
        What was chosen for parameters that are "auto"; None before a file of an earlier version learns.
    has_warned : bool
        Whether it has warned of rows that seem to have lost features.
    """

    def __init__(
        self, index: LabelIndex, classes: np.ndarray, label_of_class: np.ndarray, class_of_label: np.ndarray
    ) -> None:
        self.index, self.classes = index, classes
        self.label_of_class, self.class_of_label = label_of_class, class_of_label
        self.example_weights: np.ndarray | None = None
        self.duals: StoredDuals | None = None
        self.n_measured = self.n_relearned = 0
        self.calibration = np.full(1, np.nan)
        self.example_lengths: np.ndarray | None = None
        self.choice: Choice | None = None
        self.has_warned = False
        self._table: tuple[StoredExamples, NeighborTable] | None = None

    @classmethod
    def new(cls, options: ClassificationOptions, rows: Rows, n_classes: int) -> ClassificationModel:
        """Return a model without classes, for rows like these and about this number of classes."""
        loss, learning_rate = HEAD_LOSSES[options.loss], float(options.learning_rate)
        index = LabelIndex.new(options, rows, n_classes, loss, learning_rate, of_sets=False)
        if options.store_examples:
            index.examples = new_examples(ExampleParameters(n_features=rows.n_features, sparse=rows.sparse))
        nothing = np.empty(0, np.int64)
        return cls(index, nothing, nothing, nothing)

    @classmethod
    def of_attributes(cls, known: dict[str, Any]) -> ClassificationModel:
        """Return the model of a file or a pickle."""
        index = LabelIndex.of_attributes(known, of_sets=False)
        index.examples = known["examples_"]
        model = cls(index, known["classes_"], known["_label_of_class"], known["_class_of_label"])
        model.example_weights, model.duals = known.get("_example_weights"), known.get("_duals")
        model.n_measured, model.n_relearned = known["_n_measured"], known.get("_n_relearned", 0)
        model.calibration = known.get("_calibration", model.calibration)
        index.feature_weights, model.choice = known.get("_feature_weights"), known.get("_choice")
        model.example_lengths = known.get("_example_lengths")
        return model

    def attributes(self) -> dict[str, Any]:
        """Return what files and pickles hold, by the names of attributes there."""
        return self.index.attributes() | {
            "classes_": self.classes,
            "examples_": self.index.examples,
            "_n_measured": self.n_measured,
            "_n_relearned": self.n_relearned,
            "_example_weights": self.example_weights,
            "_duals": self.duals,
            "_calibration": self.calibration,
            "_feature_weights": self.index.feature_weights,
            "_example_lengths": self.example_lengths,
            "_choice": self.choice,
            "_label_of_class": self.label_of_class,
            "_class_of_label": self.class_of_label,
        }

    @property
    def tree(self) -> ContextualMemoryTree:
        """The trees over the labels."""
        return self.index.tree

    def copied(self) -> ClassificationModel:
        """Return a model that learns without changing this one."""
        other = copy.copy(self)
        other.index, other.duals = self.index.copied(), copy.deepcopy(self.duals)
        return other

    def roll_back(self) -> None:
        """Remove the labels of a change that failed."""
        self.index.roll_back(self.class_of_label.size)

    def prepare_like(self, former: ClassificationModel, options: ClassificationOptions) -> None:
        """Prepare what answers need, if a former model had it, so that no reader waits for it."""
        self.index.prepare_like(former.index, options)

    @property
    def n_stored(self) -> int:
        """The number of stored examples."""
        examples = self.index.examples
        return 0 if examples is None else int(examples.keys.totals[N_MEMORIES])

    def stored(self) -> StoredExamples:
        """Return the stored examples, or raise ValueError."""
        if self.index.examples is None:
            raise ValueError("examples are not stored: pass store_examples=True and fit again")
        return self.index.examples

    # Learning

    def learn(self, batch: ExampleBatch, places: ClassPlaces, options: ClassificationOptions, *, afresh: bool) -> None:
        """Make classes known and learn examples; ``batch.y`` says where their classes are among those of the batch."""
        given, weights = batch.rows, batch.weights
        index, n_rows, n_passes, slots = self.index, given.n_rows, options.n_head_passes, None
        is_first = index.n_labels == 0
        if is_first:
            index.feature_weights = count_features(options.feature_weights, given, weights)
        rows = index.weighed(given)
        # Sparse classes of one example each are found by their features, and very many dense ones by lists of similar
        # scorers: routers have nothing to learn for them.
        many = rows.sparse or n_rows > MOST_TRAINED_ALONE_DENSE
        listed = afresh and many and places.of_batch.size == n_rows
        labels, known = self._add_classes(batch._replace(rows=rows), places, 0 if listed else None, options)
        if not is_first and index.feature_weights is not None and not (self.has_warned or known.all()):
            self._warn_if_cut_off(given.take(np.flatnonzero(~known)))
        if index.examples is not None:
            slots = self._store(batch, labels)
            if not self._spreads_work(n_rows) and self._learn_again_if_due(options):
                self._choose(options)
                return
        index.begin_training()
        if self._has_means() and known.any():
            counted = rows if known.all() else rows.take(known)
            counted = weighted(rescaled(counted), taken(weights, known))
            index.head = count_in_means(index.head, counted, labels[known])
        if not listed:
            index.teach_routers(index.questions(rows).routed, labels, options, afresh=afresh)
        n_swept = 0
        if index.examples is not None and n_passes > 0 and self.n_relearned > 0:
            competing = self._competing(rows, labels, options)
            n_swept = _SWEPT * n_rows if self._spreads_work(n_rows) else 0
            given, labels, slots = replayed(index.examples, n_rows, competing, index.orders, n_swept)
            n_swept = slots.size - 1 - int(slots.argmax())
            rows = index.weighed(given)
            n_passes, weights = min(n_passes, PASSES_ONLINE), taken(self.example_weights, slots)
        if n_passes > 0:
            self._train_head(index.questions(rows), labels, n_passes, weights, slots, options, n_swept)
        if n_swept > 0 and _n_times_grown(self.n_stored) > _n_times_grown(self.n_stored - n_rows):
            self.calibration = np.full(1, np.nan)
        index.end_training(n_rows)
        self.n_relearned = self.n_relearned or n_rows
        if is_first:
            self._choose(options)
        elif index.examples is None and index.feature_weights is not None:
            index.feature_weights = add_counts(index.feature_weights, options.feature_weights, given, batch.weights)

    def _warn_if_cut_off(self, rows: Rows) -> None:
        """Warn once if rows of new classes seem to come from a vocabulary that was fitted without them."""
        if self.index.feature_weights is not None and seem_cut_off(self.index.feature_weights, rows):
            self.has_warned = True
            warnings.warn(
                f"the {rows.n_rows} rows of new classes have fewer features than rows before, and none that is new: if "
                "they come from a vectorizer whose vocabulary was fitted without these classes, use HashingVectorizer "
                "or cmt_numba.text.TextClassifier, which learn new words",
                UserWarning,
                stacklevel=2,
            )

    def _add_classes(
        self, batch: ExampleBatch, places: ClassPlaces, n_reroutes: int | None, options: ClassificationOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Make classes known; return the label of each row, and which rows had one.

        Classes that have rows but no memory yet are inserted in random order, each under its mean example.
        """
        (rows, y, _, weights, _), (classes, added, found), index = batch, places, self.index
        label_of_class, class_of_label = self.label_of_class, self.class_of_label
        if added.size > 0:
            label_of_class = np.insert(label_of_class, added, NONE)
            class_of_label = class_of_label + np.searchsorted(added, class_of_label, side="right")
        is_new, head = label_of_class[found] == NONE, index.head
        new = found[is_new]
        if new.size > 0:
            index.orders.shuffle(new)
            place = np.full(found.size, NONE, np.int64)
            place[np.searchsorted(found, new)] = np.arange(new.size)
            of_new = np.flatnonzero(place[y] != NONE)
            head, inserted = index.insert_labels(rows, place[y[of_new]], of_new, new.size, weights, n_reroutes, options)
            label_of_class = label_of_class.copy()
            label_of_class[new] = inserted
            class_of_label = np.concatenate([class_of_label, new])
        labels, known = label_of_class[found][y], ~is_new[y]
        self.classes, self.label_of_class, self.class_of_label, index.head = (
            classes,
            label_of_class,
            class_of_label,
            head,
        )
        self._count(labels, weights, new.size)
        return labels, known

    def _count(self, labels: np.ndarray, weights: np.ndarray | None, n_new: int) -> None:
        """Count examples of these labels, of which ``n_new`` are new, and their weights."""
        index = self.index
        if index.weight_of_label is None and weights is not None:
            index.weight_of_label = index.n_of_label.astype(np.float64)
        if n_new > 0:
            index.n_of_label = np.pad(index.n_of_label, (0, n_new))
        np.add.at(index.n_of_label, labels, 1)
        if index.weight_of_label is not None:
            index.weight_of_label = np.pad(index.weight_of_label, (0, n_new))
            np.add.at(index.weight_of_label, labels, 1.0 if weights is None else weights)

    def _store(self, batch: ExampleBatch, labels: np.ndarray) -> np.ndarray:
        """Store examples; return their slots."""
        rows, _, ids, weights, lengths = batch
        examples = with_room_for_examples(self.stored(), rows, self.index.n_labels)
        self.index.examples = examples
        n_stored, next_id = (int(examples.keys.totals[total]) for total in (N_MEMORIES, NEXT_ID))
        self.example_weights = joined_weights(self.example_weights, n_stored, weights, rows.n_rows)
        self.example_lengths = joined_weights(self.example_lengths, n_stored, lengths, rows.n_rows)
        append_examples(examples.lists, rows, labels)
        if ids is not None:
            give_ids(examples.lists, ids, max(next_id, int(ids.max(initial=-1)) + 1))
        return np.arange(n_stored, n_stored + rows.n_rows)

    def _has_means(self) -> bool:
        """Return whether the head keeps the sums of the examples that its scorers start from."""
        return self.index.head.parameters.loss == HeadLoss.MIRA

    def _learn_again_if_due(self, options: ClassificationOptions) -> bool:
        """Learn all stored examples again if many have come or gone since all were learned; return whether it was so.

        If that fails the head is what it was, and so are the dual variables, which belong to it.
        """
        index = self.index
        if index.examples is None or options.n_head_passes == 0 or not is_due(self.n_stored, self.n_relearned):
            return False
        (rows, labels), slots = all_examples(index.examples), all_slots(index.examples)
        before, weights = (index.head, self.duals, index.feature_weights), taken(self.example_weights, slots)
        self.duals = None
        try:
            index.feature_weights = count_features(options.feature_weights, rows, weights)
            with keeping_interpreter(rows.n_rows):
                self.train_from_means(index.weighed(rows), labels, weights, options, slots)
        except BaseException:
            index.head, self.duals, index.feature_weights = before
            raise
        self.n_relearned = rows.n_rows
        self.calibration = np.full(1, np.nan)
        return True

    def _spreads_work(self, n_rows: int) -> bool:
        """Return whether some examples are learned again with each new one, instead of all at times.

        So it is where a few examples come at a time, and it would take long to learn all.
        """
        is_long = self.n_stored > _MOST_AT_ONCE and n_rows * _LARGE_BATCH < self.n_stored
        return is_long and self.index.scores_all and self._has_means()

    def has_much_due(self, n_rows: int, options: ClassificationOptions) -> bool:
        """Return whether learning this number of rows entails much more work than the rows themselves."""
        n_examples = self.n_stored + n_rows
        learns_again = options.n_head_passes > 0 and self.n_stored > 0 and is_due(n_examples, self.n_relearned)
        learns_again = learns_again and not self._spreads_work(n_rows)
        evicts = options.max_examples is not None and n_examples > options.max_examples
        return learns_again or evicts or self.index.has_much_due(n_rows)

    def train_from_means(
        self,
        rows: Rows,
        labels: np.ndarray,
        weights: np.ndarray | None,
        options: ClassificationOptions,
        slots: np.ndarray | None = None,
    ) -> None:
        """Start the head again from the means of these examples, and train it on them, which are all there are.

        If their ``slots`` are given they are the model's own, and routers are taught as well.
        """
        index = self.index
        means, lengths = means_of(rows, labels, np.arange(rows.n_rows), int(labels.max()) + 1, weights)
        index.head = with_labels(new_head(index.head.parameters), means, lengths)
        index.begin_training()
        if slots is not None:
            index.teach_routers(index.questions(rows).routed, labels, options, afresh=False)
        if options.n_head_passes > 0:
            self._train_head(index.questions(rows), labels, options.n_head_passes, weights, slots, options)
        index.end_training(rows.n_rows)

    def trained_on(
        self, rows: Rows, labels: np.ndarray, weights: np.ndarray | None, options: ClassificationOptions
    ) -> ClassificationModel:
        """Return a model with the same forest whose head has learned these examples and no others."""
        learner, index = copy.copy(self), copy.copy(self.index)
        index.orders = np.random.default_rng(index.seed)
        index.n_of_label = np.bincount(labels)
        index.weight_of_label = None if weights is None else total_weights(labels, weights, index.n_of_label.size)
        index.n_cells_pruned = learner.n_measured = 0
        learner.index = index
        learner.train_from_means(index.weighed(rows), labels, weights, options)
        return learner

    def _choose(self, options: ClassificationOptions) -> None:
        """Choose how to answer where parameters are "auto"."""

        def predict(slots: np.ndarray, asked: Rows) -> np.ndarray:
            rows, labels = all_examples(self.stored())
            learner = self.trained_on(rows.take(slots), labels[slots], taken(self.example_weights, slots), options)
            return learner.best_labels(asked, 1, options).labels[:, 0]

        self.choice = choose(self.index.examples, self.example_lengths, self.index.n_labels, options, predict)

    def _competing(self, rows: Rows, labels: np.ndarray, options: ClassificationOptions) -> np.ndarray:
        """Return the labels that compete for these rows, which have these labels; one as often as for rows."""
        index, shape = self.index, (rows.n_rows, N_COMPETITORS)
        if index.scores_all:
            shortlists = new_shortlists(labels, N_COMPETITORS)
            lesson = HeadLesson(all_of(rows, rows), np.arange(rows.n_rows), labels, shortlists, True)
            find_shortlists(index.hard_negatives(rows.n_rows, options), index.head, lesson, lesson.order, in_own_thread)
            return shortlists[:, 1:][shortlists[:, 1:] != NONE].astype(np.int64)
        best, scores = np.full(shape, NONE, np.int64), np.full(shape, -np.inf, np.float32)
        index.search_labels(rows, LabelAnswers(best, scores, *np.zeros((2, rows.n_rows), np.int64)), options)
        return best[(best != NONE) & (best != labels[:, None])]

    def _train_head(
        self,
        questions: Questions,
        labels: np.ndarray,
        n_passes: int,
        weights: np.ndarray | None,
        slots: np.ndarray | None,
        options: ClassificationOptions,
        n_swept: int = 0,
    ) -> None:
        """Train the head in passes over rows; ``slots`` are those of the stored examples that they are, if they are.

        The last ``n_swept`` rows are only held apart from the competitors that they have.
        """
        index, n_rows = self.index, labels.size
        n_examples = int(index.n_of_label.sum()) if slots is None else self.n_stored
        if n_examples > 2 * self.n_measured:
            index.head.gaps[:] *= 0.5  # which shrink as classes get further examples: make room for new ones
            self.n_measured = n_examples
        of_labels = index.n_of_label if index.weight_of_label is None else index.weight_of_label
        duals = new_duals(options.aggressiveness, of_labels[labels], weights)
        if slots is not None and self.duals is not None:
            resume(self.duals, slots, duals)
        shortlists = new_shortlists(labels)
        lesson = HeadLesson(questions, index.orders.permutation(n_rows), labels, shortlists, True)
        search = index.hard_negatives(n_rows, options)
        if lacks_gaps(index.head):
            measure_gaps(search, index.head, lesson, duals, float(of_labels.mean()))
        if index.is_untrained():
            return

        def learn(n_pass: int, order: np.ndarray) -> Head:
            return learn_labels(
                search, index.head, HeadLesson(questions, order, labels, shortlists, n_pass == 0), duals
            )

        if index.scores_all and (n_swept > 0 or n_rows <= _FEW_ROWS):
            # In one call, since calls take longer than the rows.
            n_sought = n_rows - n_swept
            sought = questions.rows.between(0, n_sought)
            lesson = HeadLesson(all_of(sought, sought), np.arange(n_sought), labels, shortlists[:n_sought], True)
            find_shortlists(search, index.head, lesson, lesson.order, in_own_thread)
            shortlists[n_sought:, 1 : 1 + N_STORED] = duals.competitors[n_sought:, :N_STORED]
            index.head = learn(1, np.concatenate([index.orders.permutation(n_rows) for _ in range(n_passes)]))
            index.prune()
        else:
            index.train_in_passes(n_rows, n_passes, duals.settled, learn, options.verbose)
        if slots is not None and self._has_means():
            self.duals = with_duals(self.duals or no_stored_duals(), slots, duals)

    # Forgetting

    def without_examples(self, slots: np.ndarray, options: ClassificationOptions) -> ClassificationModel:
        """Return a model without some stored examples, and without classes that have no others."""
        index = self.index
        n_left = index.n_of_label - np.bincount(self.stored().label_of[slots], minlength=index.n_of_label.size)
        if not n_left.any():
            raise ValueError("ids must not be all examples: call fit to learn others")
        return self.without(np.sort(self.class_of_label[n_left == 0]), slots, options)

    def without_oldest(self, options: ClassificationOptions) -> ClassificationModel:
        """Return a model without the oldest examples if there are more than ``max_examples``, otherwise this model."""
        n_stored = self.n_stored
        if options.max_examples is None or n_stored <= options.max_examples:
            return self
        n = min(n_stored - options.max_examples + int(_EVICTED_AT_ONCE * options.max_examples), n_stored - 1)
        return self.without_examples(np.arange(n), options)  # slots are in the order in which examples came

    def without(self, classes: np.ndarray, slots: np.ndarray, options: ClassificationOptions) -> ClassificationModel:
        """Return a model without classes, by their positions, and without stored examples, by their slots.

        It shares nothing with this one. Labels are numbered anew, by the slots of their memories. This takes time and
        memory in proportion to the model, however little goes. If much has gone, all that is left is learned again.
        """
        index, labels = self.index, self.label_of_class[classes]
        fewer, tree = copy.copy(index), copy.deepcopy(index.tree)
        if index.scores_all:
            kept = np.delete(np.arange(index.n_labels), labels[labels != NONE])
        else:
            remove_ids(tree._forest, labels[labels != NONE])
            kept = renumber(tree._forest)
        number = np.full(self.class_of_label.size, NONE, np.int64)
        number[kept] = np.arange(kept.size)
        head = with_only(index.head, kept)
        fewer.tree, fewer.orders, fewer.feature_weights = tree, *copy.deepcopy((index.orders, index.feature_weights))
        fewer.n_of_label, fewer.weight_of_label = index.n_of_label[kept], taken(index.weight_of_label, kept)
        left = np.delete(np.arange(self.classes.size), classes)
        position = np.full(self.classes.size, NONE, np.int64)
        position[left] = np.arange(left.size)
        class_of_label = position[self.class_of_label[kept]]
        label_of_class = np.full(left.size, NONE, np.int64)
        label_of_class[class_of_label] = np.arange(kept.size)
        model = ClassificationModel(fewer, self.classes[left], label_of_class, class_of_label)
        model.example_weights, model.duals, model.calibration = self.example_weights, self.duals, self.calibration
        model.example_lengths, model.choice, model.has_warned = self.example_lengths, self.choice, self.has_warned
        if index.examples is not None:
            head = self._forget_examples(model, head, slots, number, kept.size)
        fewer.head = as_ready_as(head, index.head, index.lightest_listed)
        # What goes counts like what comes: with a number of either all is learned again.
        n_gone = int(index.n_of_label.sum() - fewer.n_of_label.sum())
        model.n_measured = min(self.n_measured, int(fewer.n_of_label.sum()))
        model.n_relearned = max(1, self.n_relearned - 2 * n_gone) if self.n_relearned > 0 else 0
        if model._learn_again_if_due(options):
            model._choose(options)
        return model

    def _forget_examples(
        self, fewer: ClassificationModel, head: Head, slots: np.ndarray, number: np.ndarray, n_labels: int
    ) -> Head:
        """Leave in ``fewer`` the examples of labels that have a number, but for those in slots; return its head."""
        examples, weights, index = self.stored(), self.example_weights, fewer.index
        rows, label_of = all_examples(examples)
        stays = number[label_of] != NONE
        stays[slots] = False
        gone = slots[number[label_of[slots]] != NONE]
        of_gone = number[label_of[gone]]
        index.n_of_label = index.n_of_label - np.bincount(of_gone, minlength=n_labels)
        if self._has_means() and gone.size > 0:
            removed = weighted(rescaled(index.weighed(rows.take(gone))), taken(weights, gone))
            head = count_in_means(head, removed._replace(values=-removed.values), of_gone)
        stays = np.flatnonzero(stays)
        if index.weight_of_label is not None:  # subtracting large weights would leave nothing of small ones
            index.weight_of_label = total_weights(number[label_of[stays]], taken(weights, stays), n_labels)
        fewer.example_weights, fewer.example_lengths = taken(weights, stays), taken(self.example_lengths, stays)
        fewer.duals = None if self.duals is None else duals_of_slots(self.duals, stays, number)
        index.examples = with_only_examples(examples, stays, number[label_of[stays]], n_labels)
        return head

    # Answering

    def best_labels(self, rows: Rows, k: int, options: ClassificationOptions) -> LabelAnswers:
        """Return the ``k`` best labels of each row."""
        return self.index.best_labels(self.index.weighed(rows), k, options)

    def class_scores(self, rows: Rows, options: ClassificationOptions) -> np.ndarray:
        """Return the head's score of each class for each row, minus infinity where it is no candidate: float64."""
        index, scores = self.index, np.full((rows.n_rows, self.classes.size), -np.inf)
        rows = index.weighed(rows)
        scorers = index.all_scorers(options, rows.n_rows)
        if scorers is not None:
            scores[:, self.class_of_label] = exact_scores_of_all(scorers, rows)
        else:
            labels, found, *_ = index.best_labels(rows, index.effort(options).n_labels, options)
            row, rank = np.nonzero(labels != NONE)
            scores[row, self.class_of_label[labels[row, rank]]] = found[row, rank]
        return scores

    def probabilities(self, scores: np.ndarray, options: ClassificationOptions) -> np.ndarray:
        """Return probabilities in place of scores, in each row of which some class has one.

        What a margin is worth is learned when it is first needed.
        """
        if np.isnan(self.calibration[0]):
            self.calibration[0] = self.learned_logits(options)
        scores -= scores.max(axis=1, keepdims=True)
        proba: np.ndarray = np.exp(float(self.calibration[0]) / margin_wanted(self.index.head) * scores)
        proba /= proba.sum(axis=1, keepdims=True)
        return proba

    def learned_logits(self, options: ClassificationOptions) -> float:
        """Return what a margin is worth as logits, from stored examples that are held out, if there are enough."""
        if self.index.examples is None:
            return LOGITS_PER_MARGIN
        rows, labels = all_examples(self.index.examples)
        needed = np.unique(labels, return_index=True)[1]  # a label needs one example to learn
        apart, seen = held_out(labels.size, 0, never=needed)
        if apart.size < FEWEST_HELD_OUT:
            return LOGITS_PER_MARGIN
        if labels.size >= _WORTH_A_WORD:
            logger.warning("learning probabilities from %d examples; see CMTClassifier.calibrate", labels.size)
        learner = self.trained_on(rows.take(seen), labels[seen], taken(self.example_weights, seen), options)
        return learner.logits_for(rows.take(apart), labels[apart], options)

    def logits_for(self, rows: Rows, labels: np.ndarray, options: ClassificationOptions) -> float:
        """Return what a margin is worth as logits, from rows that the model has not learned, and their labels."""
        found, scores, *_ = self.best_labels(rows, min(MOST_RANKED, self.index.n_labels), options)
        return logits_per_margin(scores, positions_in(found, labels), margin_wanted(self.index.head))

    def nearest_slots(
        self, rows: Rows, lengths: np.ndarray, k: int, options: ClassificationOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the ``k`` nearest stored examples of each row, and their distances.

        ``lengths`` are those of the rows before they were scaled.
        """
        choice, examples = resolved(options, self.choice), self.stored()
        if choice.method != "scored_neighbors":
            return nearest(self._neighbor_table(choice.metric), rows, lengths, k)
        hits = self._scored_examples(rows, k, options)
        slots, found = np.full(hits.ids.shape, NONE), hits.ids != NONE
        slots[found] = slots_of_examples(examples, hits.ids[found])
        return slots, 1.0 - hits.scores

    def _neighbor_table(self, metric: str) -> NeighborTable:
        """Return the stored examples laid out for comparisons, until others are stored."""
        examples, kept = self.stored(), self._table
        stored, _ = all_examples(examples)
        is_kept = kept is not None and kept[0] is examples and kept[1].squares.size == stored.n_rows
        if kept is None or not is_kept or kept[1].metric != metric:
            lengths = None if self.example_lengths is None else self.example_lengths[: stored.n_rows]
            kept = self._table = examples, new_table(stored, lengths, metric)
        return kept[1]

    def _scored_examples(self, rows: Rows, k: int, options: ClassificationOptions) -> Hits:
        """Return the ``k`` best stored examples of each row by the mean of cosine and score of the example's label."""
        hits, examples, index = no_hits(rows.n_rows, k), self.stored().lists, self.index
        best = self.best_labels(rows, min(index.n_labels, k + _LABELS_SCANNED), options)
        index.in_threads(rows, partial(rows_of_labels, examples, rows, best, _LABELS_SCANNED, hits))
        return hits

    def votes(self, rows: Rows, lengths: np.ndarray, options: ClassificationOptions) -> np.ndarray:
        """Return the votes of the nearest stored examples for each class: float64, shape (n_rows, n_classes)."""
        slots, distances = self.nearest_slots(rows, lengths, resolved(options, self.choice).n_neighbors, options)
        examples = self.stored()
        classes = np.where(slots == NONE, NONE, self.class_of_label[examples.label_of[slots]])
        weights = weights_of_votes(options.weights, 1.0 - distances, rows, all_examples(examples)[0], slots)
        return count_votes(classes, weights, self.classes.size)


def is_due(n_examples: int, n_learned: int) -> bool:
    """Return whether so many examples have come since all were last learned that they are to be learned again.

    Nothing is due before the first have been learned.
    """
    return n_learned > 0 and n_examples - n_learned >= max(_FEWEST, _GROWTH * n_learned)


def _n_times_grown(n_examples: int) -> int:
    """Return how often a single example must have become more by a quarter until there are so many."""
    return int(np.log(max(1, n_examples)) / np.log(1.0 + _GROWTH))


def replayed(
    examples: StoredExamples, n_new: int, competing: np.ndarray, generator: np.random.Generator, n_swept: int = 0
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return the newest ``n_new`` examples after others drawn from those before, and the labels and slots of all.

    Half of the others are drawn from all examples. The other half are drawn by how much labels compete, which is how
    often they are among those ``competing``: first one of these and then one of the label's examples. Behind the newest
    are up to ``n_swept`` more, drawn from all. It takes time in proportion to what is drawn, however many examples and
    labels there are.
    """
    n = int(examples.keys.totals[N_MEMORIES])
    n_old, slots = n - n_new, np.arange(n - n_new, n)
    if n_old > 0:
        numbers = generator.random((_REPLAYED * n_new // 2, 3))
        of_all, of_competing = (numbers[:, 2] * n_old).astype(np.int64), np.empty(numbers.shape[0], np.int64)
        draw_of_labels(
            examples.lists, np.sort(competing), numbers, n_old, np.empty(competing.size, np.int64), of_competing
        )
        if of_competing[0] == NONE:  # no label that competes had come before: then all are drawn from all
            of_competing = (numbers[:, 0] * n_old).astype(np.int64)
        drawn = np.unique(np.concatenate([of_all, of_competing]))
        swept = np.unique((generator.random(n_swept) * n_old).astype(np.int64))
        slots = np.concatenate([drawn, slots, swept[~are_among(drawn, swept)]])
    return some_examples(examples, slots), examples.label_of[slots].astype(np.int64), slots
