"""Model of a classifier with one class per example: learning, forgetting and queries.

Learning a batch lowers the scores of competing labels, so labels without new examples would fade. To prevent this, a
few stored examples are learned again with each new one, starting from their stored dual variables. Half of these
examples have labels that compete with the new one. If dense examples are not stored, the means of competing labels that
have stopped coming are learned again instead.

When a quarter of the examples is new, the scorers are retrained from the means of all examples. The total work for
``n`` examples then equals a constant number of passes. If retraining takes long and batches are small, each call
instead learns more stored examples, so that no call takes long.
"""

from __future__ import annotations

import copy
import logging
from functools import partial
from typing import Any, Protocol, Self

import numpy as np

from .. import _heads as heads
from .. import _postings as postings
from .. import persistence as files
from .._change import share_rows
from .._display import warn
from .._jit import keeping_interpreter
from .._kernels import N_MEMORIES, NEXT_ID, NONE, Rows, as_matrix, no_hits, rescaled
from .._validation import check_rows
from . import _input as inputs
from ._calibration import LOGITS_PER_MARGIN, MAX_RANKED, learned_logits, positions_in, prior_share
from ._choice import AUTO, Choice, choose, examples_of_some_labels, held_out_errors, resolved
from ._feature_scales import MAX_LABELS_OF_A_TABLE, MAX_OF_A_TABLE, fixed_scales, is_table, measure_scales
from ._feature_weights import add_counts, are_in_doubt, count_features, seem_cut_off
from ._fields import CalibrationField, ChoiceField
from ._input import ExampleBatch, Factors, taken
from ._label_index import LabelIndex, LabelOptions, means_of, threads_for
from ._labels import ClassPlaces
from ._logistic import fit_logistic, is_preferred
from ._neighbors import NeighborSearch, count_votes, weights_of_votes
from ._replay import UNLIKELY, has_grown, is_due, replayed

_PASSES_OF_MIRA = 50  # default maximum number of passes; few sets need more than 15
_PASSES_OF_ADAGRAD = 5  # default number of passes with other losses
_STEPS_OF_SOFTMAX = 50_000  # with this loss, small tables need more passes until the gradient is small
PASSES_ONLINE = 2  # passes over a batch and its replayed examples. More passes would overfit.
_FEW_ROWS = 64  # batches of at most this size are learned in a single kernel call
_MAX_AT_ONCE = 200  # with more examples, a few steps between retrainings would leave the others far from their optimum
_LARGE_BATCH = 16  # with more examples, retrain only for batches of at least 1/16 of all examples
_SWEPT = 16  # number of additional stored examples to learn with each new example instead of retraining
_ENOUGH_TO_CHOOSE = 1000  # number of examples from which the choice of feature weights is final
_ENOUGH_HELD_OUT = 500  # number of held-out examples for this choice
_ENOUGH_FOR_FEATURES = 2500  # number of examples to train and test on for this choice
_MEASURED_UNTRAINED = 256  # number of examples on which the margin of untrained scorers is measured
_EVICTED_AT_ONCE = 1 / 16  # fraction of `max_examples` to evict together, because an eviction copies the whole model

_LEAD_OF_USUAL = 1e-6  # score of the most frequent class for rows whose scores are all 0
_LABELS_SCANNED = 8  # number of labels, best first, whose examples are compared with a row
_MAX_LABELS_OF_LOGISTIC = 50  # maximum number of classes for a logistic regression
# A logistic regression is fitted again with each batch up to this number of examples. From the smaller number on, this
# takes long.
_MAX_REFITTED, _FEW_REFITTED = 5000, 1000
_MAX_FOR_PRIOR = 1000  # maximum number of examples that determine the prior share of votes
_TINY = 1e-300
_WORTH_A_WORD = 20_000  # minimum number of examples for a log message, because calibration takes seconds

logger = logging.getLogger("cmt_numba")


class ClassOptions(LabelOptions, Protocol):
    """Parameters of a classifier that the model depends on."""

    n_head_passes: int | None
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


def n_passes_of(options: ClassOptions, n_rows: int = _STEPS_OF_SOFTMAX) -> int:
    """Return the maximum number of passes that train the head on ``n_rows`` rows, or on a batch of further rows."""
    if options.n_head_passes is not None:
        return options.n_head_passes
    if (loss := head_loss(options)) == heads.HeadLoss.SOFTMAX:
        return min(_PASSES_OF_MIRA, max(_PASSES_OF_ADAGRAD, _STEPS_OF_SOFTMAX // max(1, n_rows)))
    return _PASSES_OF_MIRA if loss == heads.HeadLoss.MIRA else _PASSES_OF_ADAGRAD


def head_loss(options: ClassOptions) -> int:
    """Return the loss with which the head learns, unless a logistic regression takes its place."""
    return int(heads.HeadLoss.MIRA) if options.loss == AUTO else heads.HEAD_LOSSES[options.loss]


class ClassificationModel(files.WithFields):
    """Classes, an index of their labels, and the stored examples.

    A new model is empty, and suits a first batch and about ``n_classes``, with measured or given ``scales``.
    """

    FIELDS = files.FieldTable(
        # scorers of the labels, which are numbered in insertion order, whereas classes are sorted
        index=files.PartField(LabelIndex),
        classes=files.LabelsField(),  # all classes
        label_of_class=files.ArrayField(np.int64),  # label of each class; NONE for a class without examples
        class_of_label=files.ArrayField(np.int64),  # position in ``classes`` of each label's class
        # weight of each stored example, by slot, with spare capacity; None if all are 1
        example_weights=files.OptionalField(files.ArrayField(np.float32, inputs.trim_weights)),
        # dual variables of the stored examples; None until some are trained with MIRA
        duals=files.OptionalField(files.StructureField(heads.StoredDuals, heads.trim_duals)),
        # number of examples when the weight of earlier gap measurements was last halved
        n_measured=files.NumberField(),
        n_relearned=files.NumberField(),  # number of examples at the last retraining
        calibration=CalibrationField(),  # logits per margin; NaN until the first query that needs it
        # values of "auto" parameters; None in a model from an older file until it learns
        choice=files.OptionalField(ChoiceField()),
        names_of_examples=files.OptionalField(files.LabelsField()),
    )
    has_warned = False  # whether the model has warned that rows of new classes seem to lack features
    example_names: inputs.ExampleNames | None = None  # string ids of the stored examples; None if ids are integers
    _neighbors: tuple[heads.StoredExamples, NeighborSearch] | None = None
    _prior: tuple[heads.StoredExamples, Any, float] | None = None

    def __init__(self, options: ClassOptions, batch: ExampleBatch, n_classes: int, scales: Any = None) -> None:
        rows, loss, learning_rate = batch.rows, head_loss(options), float(options.learning_rate)
        index = self.index = LabelIndex(options, rows, loss, learning_rate, of_sets=False)
        nothing: np.ndarray = np.empty(0, np.int64)
        self.classes = self.label_of_class = self.class_of_label = nothing
        self.example_weights: Factors = None
        self.duals: heads.StoredDuals | None = None
        self.n_measured = self.n_relearned = 0
        self.calibration = np.full(1, np.nan)
        self.choice: Choice | None = None
        if options.store_examples:
            index.examples = heads.new_examples(heads.ExampleParameters(n_features=rows.n_features, sparse=rows.sparse))
        if scales is not None:
            index.scales = fixed_scales(scales, rows.n_features)
        self._measure_features(batch, options, n_classes)
        index.head = index.empty_head(rows.n_features)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        names = values.pop("names_of_examples")
        model = super()._of_fields(values)
        if names is not None:
            model.example_names = inputs.ExampleNames(names.tolist(), model.example_ids().tolist())
        return model

    @property
    def names_of_examples(self) -> np.ndarray | None:
        """The string ids of the stored examples, in the order of :meth:`example_ids`; None if ids are integers."""
        return None if self.example_names is None else self.example_names.of_ids(self.example_ids())

    def copied(self) -> ClassificationModel:
        other = copy.copy(self)
        other.index, other.duals = self.index.copied(), copy.deepcopy(self.duals)
        other.example_names = None if self.example_names is None else self.example_names.copied()
        return other

    def roll_back(self) -> None:
        """Undo a failed change."""
        self.index.roll_back()

    def prepare_like(self, former: ClassificationModel, options: ClassOptions) -> None:
        self.index.prepare_like(former.index, options)

    @property
    def n_stored(self) -> int:
        examples = self.index.examples
        return 0 if examples is None else int(examples.keys.totals[N_MEMORIES])

    def stored(self) -> heads.StoredExamples:
        """Return the stored examples, or raise ValueError if examples are not stored."""
        if self.index.examples is None:
            raise ValueError("examples are not stored: pass store_examples=True and fit again")
        return self.index.examples

    def example_ids(self) -> np.ndarray:
        """Return the ids of the stored examples by slot: int64."""
        return self.stored().keys.ids[: self.n_stored]

    def shown_ids(self, ids: np.ndarray) -> np.ndarray:
        """Return example ids as users see them: integers with NONE, or strings with an empty string for NONE."""
        return ids if self.example_names is None else self.example_names.of_ids(ids)

    # Learning

    def learn(self, batch: ExampleBatch, places: ClassPlaces, options: ClassOptions) -> None:
        """Add classes and learn examples. ``batch.y`` holds indices into ``places.of_batch``."""
        if self.index.is_logistic and (places.added.size > 0 or (self.label_of_class[places.of_batch] == NONE).any()):
            self._use_margins(options)  # a logistic regression would rarely find a class of few examples
        given, weights = batch.rows, batch.weights
        index, n_rows, slots, is_first = self.index, given.n_rows, None, self.index.n_labels == 0
        n_passes = n_passes_of(options, n_rows) if is_first else n_passes_of(options)
        rows = index.prepared(given, batch.lengths)
        labels, known = self._add_classes(batch._replace(rows=rows), places)
        if not is_first and index.feature_weights is not None and not (self.has_warned or known.all()):
            self._warn_if_cut_off(given.take(np.flatnonzero(~known)))
        spreads_work = False
        if index.examples is not None:
            slots = self._store(batch, labels)
            spreads_work = self._spreads_work(n_rows)
            if not spreads_work and self._learn_again_if_due(options):
                return
        index.begin_training()
        if index.is_logistic and index.examples is not None:
            if self.n_stored <= _MAX_REFITTED:
                self._refit_logistic()
            return
        if self._has_means() and known.any():
            counted = rows if known.all() else rows.take(known)
            counted = inputs.weighted(rescaled(counted), taken(weights, known))
            index.head = heads.count_in_means(index.head, counted, labels[known])
        n_swept = 0
        if index.examples is not None and n_passes > 0 and self.n_relearned > 0:
            competing = self._competing(rows, labels, options)
            n_swept = _SWEPT * n_rows if spreads_work else 0
            slots, n_swept = replayed(index.examples, n_rows, competing, index.orders, n_swept)
            rows, labels = index.prepared_examples(slots)
            n_passes, weights = min(n_passes, PASSES_ONLINE), taken(self.example_weights, slots)
        elif n_passes > 0 and not (is_first or rows.sparse) and self._has_means():
            rows, labels, weights = self._with_means(rows, labels, weights, options)
        if n_passes > 0:
            self._train_head(rows, labels, n_passes, weights, slots, options, n_swept)
        if n_swept > 0 and has_grown(self.n_stored, n_rows):
            self.calibration = np.full(1, np.nan)
            self._measure_again(options)
        if index.examples is None and not is_first:
            if index.feature_weights is not None:
                index.feature_weights = add_counts(index.feature_weights, options.feature_weights, given, batch.weights)
            index.measure_further(given, batch.lengths, batch.weights)
        index.end_training(n_rows)
        self.n_relearned = self.n_relearned or n_rows
        if is_first:
            self._choose(0, options)

    def _with_means(
        self, rows: Rows, labels: np.ndarray, weights: Factors, options: ClassOptions
    ) -> tuple[Rows, np.ndarray, np.ndarray | None]:
        """Return dense rows and, with the same total weight, the means of competing labels that have stopped coming.

        The means stand for earlier examples that are not stored, so that these labels do not fade. Labels that still
        come do not need them, and means alone would shift their boundaries.
        """
        index, others = self.index, np.unique(self._competing(rows, labels, options))
        by_chance = (1.0 - index.n_of_label / index.n_of_label.sum()) ** index.n_unseen
        others = others[by_chance[others] < UNLIKELY]
        if others.size == 0:
            return rows, labels, weights
        weights = np.ones(rows.n_rows, np.float32) if weights is None else weights
        shares = np.full(others.size, weights.sum() / others.size, np.float32)
        joined = np.concatenate([as_matrix(rows), heads.dense_parts(index.head)[1][others]])
        return check_rows(joined), np.append(labels, others), np.append(weights, shares)

    def _measure_features(self, batch: ExampleBatch, options: ClassOptions, n_classes: int = 0) -> None:
        """Measure the features of examples, and decide whether to weight or standardise them.

        ``n_classes`` is the number of classes to come if none is known. Sparse rows are marked as weighted if those of
        the batch or earlier ones are.
        """
        index, kind, (rows, _, _, weights, lengths, are_weighted) = self.index, options.feature_weights, batch
        are_weighted = are_weighted or (index.feature_weights is not None and index.feature_weights.are_weighted)
        index.feature_weights = count_features(kind, rows, weights, are_weighted=are_weighted)
        if index.scales is not None and index.scales.is_fixed:
            return
        former, index.scales = index.scales, None
        if rows.sparse or lengths is None or kind not in ("auto", "scale"):
            return
        elif kind == "scale":
            is_used = True
        elif former is not None and former.n_rows >= _ENOUGH_TO_CHOOSE:
            is_used = former.is_used
        else:
            n_classes = max(n_classes, index.n_labels)
            is_used = n_passes_of(options) > 0 and is_table(rows, n_classes, has_all=index.examples is None)
        measured = measure_scales(rows, lengths, weights, is_used=is_used)
        index.scales = measured._replace(keeps_lengths=former is not None and former.keeps_lengths)

    def _measure_again(self, options: ClassOptions) -> None:
        """Measure the features of all stored examples, without deciding again whether to weight or standardise them."""
        index, weights, (rows, _) = self.index, self.index.feature_weights, heads.all_examples(self.stored())
        shares, scales = taken(self.example_weights, np.arange(self.n_stored)), index.scales
        if weights is not None:
            found = count_features(options.feature_weights, rows, shares, are_weighted=weights.are_weighted)
            index.feature_weights = weights if found is None else found._replace(is_used=weights.is_used)
        if scales is not None and not scales.is_fixed:
            lengths = inputs.filled(index.example_lengths, rows.n_rows)
            index.use_scales(measure_scales(rows, lengths, shares, is_used=scales.is_used))

    def _warn_if_cut_off(self, rows: Rows) -> None:
        """Warn once if rows of new classes seem to come from a vectorizer fitted without these classes."""
        if self.index.feature_weights is not None and seem_cut_off(self.index.feature_weights, rows):
            self.has_warned = True
            warn(
                "the rows of new classes have fewer features than earlier rows, and no new features: if a vectorizer "
                "made these rows with a vocabulary fitted without these classes, use HashingVectorizer or "
                "cmt_numba.text.TextClassifier, which accept new words",
                UserWarning,
            )

    def _add_classes(self, batch: ExampleBatch, places: ClassPlaces) -> tuple[np.ndarray, np.ndarray]:
        """Insert new classes, as means of their rows; return each row's label, and whether it is old."""
        (rows, y, _, weights, *_), (classes, added, found), index = batch, places, self.index
        label_of_class, class_of_label = self.label_of_class, self.class_of_label
        if added.size > 0:
            label_of_class = np.insert(label_of_class, added, NONE)
            class_of_label = class_of_label + np.searchsorted(added, class_of_label, side="right")
        is_new, head = label_of_class[found] == NONE, index.head
        new = found[is_new]
        if new.size > 0:
            place = np.full(found.size, NONE, np.int64)
            place[np.searchsorted(found, new)] = np.arange(new.size)
            of_new = np.flatnonzero(place[y] != NONE)
            label_of_class = label_of_class.copy()
            label_of_class[new] = np.arange(index.n_labels, index.n_labels + new.size)
            head = index.head_with_labels(rows, place[y[of_new]], of_new, new.size, weights)
            class_of_label = np.concatenate([class_of_label, new])
        labels, known = label_of_class[found][y], ~is_new[y]
        self.classes, index.head = classes, head
        self.label_of_class, self.class_of_label = label_of_class, class_of_label
        self._count(labels, weights, new.size)
        return labels, known

    def _count(self, labels: np.ndarray, weights: Factors, n_new: int) -> None:
        """Update the number and total weight of each label's examples. The last ``n_new`` labels are new."""
        index = self.index
        if index.weight_of_label is None and weights is not None:
            index.weight_of_label = index.n_of_label.astype(np.float64)
        if n_new > 0:
            index.n_of_label, index.n_unseen = (np.pad(each, (0, n_new)) for each in (index.n_of_label, index.n_unseen))
        np.add.at(index.n_of_label, labels, 1)
        index.n_unseen = index.n_unseen + labels.size
        index.n_unseen[labels] = 0
        if index.weight_of_label is not None:
            index.weight_of_label = np.pad(index.weight_of_label, (0, n_new))
            np.add.at(index.weight_of_label, labels, 1.0 if weights is None else weights)

    def _store(self, batch: ExampleBatch, labels: np.ndarray) -> np.ndarray:
        rows, _, ids, weights, lengths, _ = batch
        examples = heads.with_room_for_examples(self.stored(), rows, self.index.n_labels)
        self.index.examples = examples
        index, n_rows, totals = self.index, labels.size, examples.keys.totals
        n_stored, next_id = int(totals[N_MEMORIES]), int(totals[NEXT_ID])
        self.example_weights = inputs.joined_weights(self.example_weights, n_stored, weights, n_rows)
        index.example_lengths = inputs.joined_weights(index.example_lengths, n_stored, lengths, n_rows)
        heads.append_examples(examples.lists, rows, labels)
        if ids is not None and ids.dtype.kind != "i":
            if self.example_names is None:
                self.example_names = inputs.ExampleNames()
            self.example_names.add(ids.tolist(), next_id)
        elif ids is not None:
            heads.give_ids(examples.lists, ids, max(next_id, int(ids.max(initial=-1)) + 1))
        return np.arange(n_stored, n_stored + n_rows)

    def _has_means(self) -> bool:
        """Return whether the head keeps the sum of each label's examples."""
        return self.index.head.parameters.loss == heads.HeadLoss.MIRA

    def _learn_again_if_due(self, options: ClassOptions) -> bool:
        """Retrain if many examples were added or removed; return whether. If this fails, restore what was learned."""
        index = self.index
        if index.examples is None or n_passes_of(options) == 0 or not is_due(self.n_stored, self.n_relearned):
            return False
        rows, labels = heads.all_examples(index.examples)
        before = index.head, self.duals, index.feature_weights, index.scales
        lengths = None if index.example_lengths is None else index.example_lengths[: rows.n_rows]
        try:
            shares = taken(self.example_weights, np.arange(rows.n_rows))
            self._measure_features(ExampleBatch(rows, labels, None, shares, lengths), options)
            with keeping_interpreter(rows.n_rows):
                self._learn_all(options)
                self._choose(self.n_relearned, options)
        except BaseException:
            index.head, self.duals, index.feature_weights, index.scales = before
            raise
        self.n_relearned = rows.n_rows
        self.calibration = np.full(1, np.nan)
        return True

    def _learn_all(self, options: ClassOptions) -> None:
        self.duals, slots = None, np.arange(self.n_stored)
        self.train_from_means(*self.index.prepared_examples(), taken(self.example_weights, slots), options, slots)

    def _spreads_work(self, n_rows: int) -> bool:
        """Return whether to learn more stored examples in each call, which keeps small calls short."""
        is_long = max(_MAX_AT_ONCE, n_rows * _LARGE_BATCH) < self.n_stored
        return is_long and self.index.scores_all and self._has_means() and not self.index.is_logistic

    def has_much_due(self, n_rows: int, options: ClassOptions) -> bool:
        """Return whether learning ``n_rows`` rows entails much additional work, such as retraining."""
        n_stored = self.n_stored
        n_examples = n_stored + n_rows
        learns_again = n_passes_of(options) > 0 and n_stored > 0 and is_due(n_examples, self.n_relearned)
        learns_again = learns_again and not self._spreads_work(n_rows)
        learns_again = learns_again or (self.index.is_logistic and n_stored > _FEW_REFITTED)
        evicts = options.max_examples is not None and n_examples > options.max_examples
        return learns_again or evicts or self.index.has_much_due(n_rows)

    def train_from_means(
        self, rows: Rows, labels: np.ndarray, weights: Factors, options: ClassOptions, slots: np.ndarray | None = None
    ) -> None:
        """Train a head from the means of rows. ``slots`` are their slots if they are stored examples."""
        index = self.index
        means, lengths = means_of(rows, labels, np.arange(rows.n_rows), int(labels.max()) + 1, weights)
        head = heads.new_head(index.head.parameters._replace(n_features=rows.n_features))
        index.head = heads.with_labels(head, means, lengths)
        index.begin_training()
        n_passes = n_passes_of(options, rows.n_rows)
        if index.is_logistic:
            fit_logistic(index.head, rows, labels, weights)
        elif n_passes > 0:
            self._train_head(rows, labels, n_passes, weights, slots, options)
        index.end_training(rows.n_rows)

    def _use_margins(self, options: ClassOptions) -> None:
        """Train the head to separate classes by margins instead of a logistic regression."""
        assert self.index.scales is not None
        self.index.scales = self.index.scales._replace(keeps_lengths=False)
        self._learn_all(options)
        self.calibration = np.full(1, np.nan)

    def _refit_logistic(self) -> None:
        weights = taken(self.example_weights, np.arange(self.n_stored))
        fit_logistic(self.index.head, *self.index.prepared_examples(), weights)

    def trained_on(self, slots: np.ndarray, options: ClassOptions) -> ClassificationModel:
        """Return a model whose head is trained only on the stored examples in some slots.

        If all labels are scored, those without an example in these slots are left out, and the others are renumbered.
        """
        learner, index, weights = copy.copy(self), copy.copy(self.index), taken(self.example_weights, slots)
        rows, labels = index.prepared_examples(slots)
        if index.scores_all:
            labels = np.unique(labels, return_inverse=True)[1]
        index.orders = np.random.default_rng(index.seed)
        index.n_of_label = np.bincount(labels)
        index.n_unseen = np.zeros_like(index.n_of_label)
        n_labels = index.n_of_label.size
        index.weight_of_label = None if weights is None else inputs.total_weights(labels, weights, n_labels)
        index.n_cells_pruned = learner.n_measured = 0
        learner.index = index
        learner.train_from_means(rows, labels, weights, options)
        return learner

    def answers_for(self, slots: np.ndarray, options: ClassOptions) -> np.ndarray:
        """Return the best label for each stored example in some slots."""
        return self.index.best_label_of(self.index.prepared_examples(slots)[0], options)

    def _choose(self, n_before: int, options: ClassOptions) -> None:
        """Choose values for "auto" parameters. ``n_before`` is the number of examples at the choice before."""
        index = self.index
        if index.examples is None:
            self.choice = resolved(options, None)
            return
        if n_before < _ENOUGH_TO_CHOOSE:
            was_logistic = index.is_logistic
            if index.scales is not None:
                index.scales = index.scales._replace(keeps_lengths=False)
            if options.feature_weights == "auto":
                self._choose_features(options)
            if self._choose_loss(options) or was_logistic:
                self._learn_all(options)

        def predict(seen: np.ndarray, tested: np.ndarray) -> np.ndarray:
            return self.trained_on(seen, options).answers_for(tested, options)

        self.choice = choose(index.examples, index.example_lengths, index.n_labels, options, predict)

    def _choose_features(self, options: ClassOptions) -> None:
        """Decide by the error on held-out examples whether to weight or standardise features, unless this is clear."""
        index, scales, weights = self.index, self.index.scales, self.index.feature_weights
        rows, labels = heads.all_examples(self.stored())
        used = examples_of_some_labels(labels, _ENOUGH_FOR_FEATURES) if index.scores_all else np.arange(labels.size)
        before: Any
        if scales is not None and scales.is_fixed:
            return
        may_scale = scales is not None and index.scores_all and index.n_labels <= MAX_LABELS_OF_A_TABLE
        if scales is not None and may_scale and n_passes_of(options) > 0:
            name, before, first = "scales", scales, rows.n_features <= MAX_OF_A_TABLE
        elif weights is not None and are_in_doubt(weights, rows):
            name, before, first = "feature_weights", weights, weights.is_used
        else:
            return

        def errors_if(is_used: bool) -> dict[bool, int]:
            def errors_of(seen: np.ndarray, tested: np.ndarray) -> dict[bool, int]:
                wanted = labels[used[tested]]
                if index.scores_all:
                    wanted = np.searchsorted(np.unique(labels[used[seen]]), wanted)
                answers = self.trained_on(used[seen], options).answers_for(used[tested], options)
                return {is_used: int(np.count_nonzero(answers != wanted))}

            setattr(index, name, before._replace(is_used=is_used))
            return dict(held_out_errors(labels[used], errors_of, _ENOUGH_HELD_OUT))

        try:
            errors = errors_if(first)
            if any(errors.values()):  # without errors, the first is the best
                errors.update(errors_if(not first))
        finally:
            setattr(index, name, before)
        if errors:
            best = before._replace(is_used=min(errors, key=errors.__getitem__))
            setattr(index, name, best)
            if best.is_used != before.is_used:
                self._learn_all(options)

    def _choose_loss(self, options: ClassOptions) -> bool:
        """Decide by the log loss on held-out examples whether a table gets a logistic regression; return whether."""
        index, scales = self.index, self.index.scales
        if options.loss != AUTO or scales is None or scales.is_fixed or n_passes_of(options) == 0:
            return False
        if scales.means.size > MAX_OF_A_TABLE or not 2 <= index.n_labels <= _MAX_LABELS_OF_LOGISTIC:
            return False
        _, labels = heads.all_examples(self.stored())
        used = examples_of_some_labels(labels, _ENOUGH_FOR_FEATURES)
        logistic = scales._replace(is_used=True, keeps_lengths=True)

        found: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {True: [], False: []}

        def note_scores(seen: np.ndarray, tested: np.ndarray) -> dict[Any, int]:
            wanted = np.searchsorted(np.unique(labels[used[seen]]), labels[used[tested]])
            for one in (scales, logistic):
                index.scales = one
                learner = self.trained_on(used[seen], options)
                rows, _ = learner.index.prepared_examples(used[tested])
                found[one is logistic].append(learner.margins_for(rows, wanted, options))
            return {}

        try:
            held_out_errors(labels[used], note_scores, _ENOUGH_HELD_OUT)
        finally:
            index.scales = scales
        if not (found[True] and is_preferred(found[True], found[False])):
            return False
        index.scales = logistic
        return True

    def _competing(self, rows: Rows, labels: np.ndarray, options: ClassOptions) -> np.ndarray:
        """Return the labels that compete with each row's label, concatenated over all rows."""
        index, shape = self.index, (rows.n_rows, heads.N_COMPETITORS)
        if index.scores_all:
            shortlists = heads.new_shortlists(labels, heads.N_COMPETITORS)
            index.shortlist(rows, labels.size, shortlists)
            return shortlists[:, 1:][shortlists[:, 1:] != NONE].astype(np.int64)
        best, scores = np.full(shape, NONE, np.int64), np.full(shape, -np.inf, np.float32)
        index.search_labels(rows, postings.LabelAnswers(best, scores, *np.zeros((2, rows.n_rows), np.int64)), options)
        return best[(best != NONE) & (best != labels[:, None])]

    def _train_head(
        self,
        rows: Rows,
        labels: np.ndarray,
        n_passes: int,
        weights: Factors,
        slots: np.ndarray | None,
        options: ClassOptions,
        n_swept: int = 0,
    ) -> None:
        """Train the head in passes over rows.

        ``slots`` are the slots of the rows if they are stored examples. The last ``n_swept`` rows need no search for
        hard negatives, because their dual variables identify their competitors.
        """
        index, n_rows = self.index, labels.size
        n_examples = int(index.n_of_label.sum()) if slots is None else self.n_stored
        if n_examples > 2 * self.n_measured:
            index.head.gaps[:] *= 0.5  # gaps shrink as classes get more examples, so new measurements must count more
            self.n_measured = n_examples
        of_labels = index.n_of_label if index.weight_of_label is None else index.weight_of_label
        duals = heads.new_duals(options.aggressiveness, of_labels[labels], weights)
        if slots is not None and self.duals is not None:
            heads.resume(self.duals, slots, duals)
        shortlists = heads.new_shortlists(labels)
        is_short = index.scores_all and self._has_means() and (n_swept > 0 or n_rows <= _FEW_ROWS)
        if not is_short or heads.lacks_gaps(index.head):
            questions, search = postings.all_of(rows), index.hard_negatives(n_rows, options)
            order = index.orders.permutation(n_rows)
            if index.is_untrained():
                order = order[:_MEASURED_UNTRAINED]  # the margin only scales probabilities
            lesson = heads.HeadLesson(questions, order, labels, shortlists, True)
            heads.measure_gaps(search, index.head, lesson, duals, float(of_labels.mean()))
        if index.is_untrained():
            return
        if is_short:
            n_sought = n_rows - n_swept
            index.shortlist(rows, n_sought, shortlists)
            shortlists[n_sought:, 1 : 1 + heads.N_STORED] = duals.competitors[n_sought:, : heads.N_STORED]
            order = np.arange(n_rows)[None].repeat(n_passes, axis=0)
            index.orders.permuted(order, axis=1, out=order)
            index.head = heads.learn_shortlists(index.head, rows, labels, shortlists, order.ravel(), duals)
            index.prune()
        else:

            def learn(n_pass: int, order: np.ndarray) -> heads.Head:
                lesson = heads.HeadLesson(questions, order, labels, shortlists, n_pass == 0)
                return heads.learn_labels(search, index.head, lesson, duals)

            index.train_in_passes(n_rows, n_passes, duals, learn, options.verbose)
        if slots is not None and self._has_means():
            self.duals = heads.with_duals(self.duals or heads.no_stored_duals(), slots, duals)

    # Forgetting

    def without_examples(self, slots: np.ndarray, options: ClassOptions) -> ClassificationModel:
        """Return a model without the examples in ``slots``, and without classes that lose all their examples."""
        index = self.index
        n_left = index.n_of_label - np.bincount(self.stored().label_of[slots], minlength=index.n_of_label.size)
        if not n_left.any():
            raise ValueError("ids must not include all examples: call fit to replace them")
        return self.without(np.sort(self.class_of_label[n_left == 0]), slots, options)

    def without_oldest(self, options: ClassOptions) -> ClassificationModel:
        """Return a model without the oldest examples, or this model if it has at most ``max_examples``."""
        n_stored = self.n_stored
        if options.max_examples is None or n_stored <= options.max_examples:
            return self
        n = min(n_stored - options.max_examples + int(_EVICTED_AT_ONCE * options.max_examples), n_stored - 1)
        return self.without_examples(np.arange(n), options)  # slots are in order of arrival

    def without(self, classes: np.ndarray, slots: np.ndarray, options: ClassOptions) -> ClassificationModel:
        """Return a model without the classes at some positions and the examples in some slots.

        Labels are renumbered. Time and memory are proportional to the size of the model, even if little is removed. If
        much is removed, the new model is retrained on the remaining examples.
        """
        index, labels = self.index, self.label_of_class[classes]
        fewer, kept = copy.copy(index), np.delete(np.arange(index.n_labels), labels[labels != NONE])
        number = np.full(self.class_of_label.size, NONE, np.int64)
        number[kept] = np.arange(kept.size)
        head = heads.with_only(index.head, kept)
        fewer.orders, fewer.feature_weights = copy.deepcopy((index.orders, index.feature_weights))
        fewer.n_of_label, fewer.n_unseen = index.n_of_label[kept], index.n_unseen[kept]
        fewer.weight_of_label = taken(index.weight_of_label, kept)
        left = np.delete(np.arange(self.classes.size), classes)
        position = np.full(self.classes.size, NONE, np.int64)
        position[left] = np.arange(left.size)
        class_of_label = position[self.class_of_label[kept]]
        label_of_class = np.full(left.size, NONE, np.int64)
        label_of_class[class_of_label] = np.arange(kept.size)
        model = copy.copy(self)
        model.index, model.classes, model._neighbors = fewer, self.classes[left], None
        model.label_of_class, model.class_of_label = label_of_class, class_of_label
        if index.examples is not None:
            head = self._forget_examples(model, head, slots, number, kept.size)
        fewer.head = head
        if not fewer.scores_all:
            fewer.head = heads.as_ready_as(head, index.head, index.lightest_listed)
        # In the decision to retrain, a removed example counts like a new one.
        n_gone = int(index.n_of_label.sum() - fewer.n_of_label.sum())
        model.n_measured = min(self.n_measured, int(fewer.n_of_label.sum()))
        model.n_relearned = max(1, self.n_relearned - 2 * n_gone) if self.n_relearned > 0 else 0
        if not model._learn_again_if_due(options) and fewer.is_logistic:
            model._refit_logistic()
        return model

    def _forget_examples(
        self, fewer: ClassificationModel, head: heads.Head, slots: np.ndarray, number: np.ndarray, n_labels: int
    ) -> heads.Head:
        """Copy the remaining examples to ``fewer``, and return its head.

        Those in ``slots`` and of removed labels are removed. Label ``l`` becomes ``number[l]``, or NONE if it is
        removed.
        """
        examples, weights, index = self.stored(), self.example_weights, fewer.index
        label_of = heads.all_examples(examples)[1]
        stays = number[label_of] != NONE
        stays[slots] = False
        gone = slots[number[label_of[slots]] != NONE]
        of_gone = number[label_of[gone]]
        index.n_of_label = index.n_of_label - np.bincount(of_gone, minlength=n_labels)
        if self._has_means() and gone.size > 0 and not self.index.is_logistic:
            removed = inputs.weighted(rescaled(self.index.prepared_examples(gone)[0]), taken(weights, gone))
            head = heads.count_in_means(head, removed._replace(values=-removed.values), of_gone)
        stays = np.flatnonzero(stays)
        if index.weight_of_label is not None:  # sum again, because subtracting large weights would lose small weights
            index.weight_of_label = inputs.total_weights(number[label_of[stays]], taken(weights, stays), n_labels)
        fewer.example_weights, index.example_lengths = taken(weights, stays), taken(index.example_lengths, stays)
        fewer.duals = None if self.duals is None else heads.duals_of_slots(self.duals, stays, number)
        index.examples = heads.with_only_examples(examples, stays, number[label_of[stays]], n_labels)
        if self.example_names is not None:
            left = fewer.example_ids()
            fewer.example_names = inputs.ExampleNames(self.example_names.of_ids(left).tolist(), left.tolist())
        return head

    # Queries

    def class_scores(self, rows: Rows, options: ClassOptions) -> np.ndarray:
        """Return the score of each class for each prepared row: float64, minus infinity for those not found."""
        index, scores = self.index, np.full((rows.n_rows, self.classes.size), -np.inf)
        scorers = index.all_scorers(rows.n_rows) if index.is_sparse else heads.all_scorers(index.head)
        if scorers is not None:
            found = heads.exact_scores_of_all(scorers, rows)
            found[~found.any(axis=1), index.usual_label] = _LEAD_OF_USUAL
            scores[:, self.class_of_label] = found
        else:
            labels, found, *_ = index.best_labels(rows, index.max_candidates(options), options)
            row, rank = np.nonzero(labels != NONE)
            scores[row, self.class_of_label[labels[row, rank]]] = found[row, rank]
        return scores

    def probabilities(self, scores: np.ndarray, options: ClassOptions) -> np.ndarray:
        """Return calibrated probabilities from ``scores``, which have a finite entry per row and are overwritten."""
        if np.isnan(self.calibration[0]):
            self.calibration[0] = self.learned_logits(options)
        scores -= scores.max(axis=1, keepdims=True)
        proba: np.ndarray = np.exp(float(self.calibration[0]) / heads.margin_wanted(self.index.head) * scores)
        proba /= proba.sum(axis=1, keepdims=True)
        return proba

    def learned_logits(self, options: ClassOptions) -> float:
        """Return logits per margin learned from held-out examples, or the default if there are too few."""
        if self.index.is_logistic:
            return 1.0
        if self.index.examples is None:
            return LOGITS_PER_MARGIN
        _, labels = heads.all_examples(self.index.examples)
        if labels.size >= _WORTH_A_WORD:
            logger.warning("learning probabilities from %d examples; see CMTClassifier.calibrate", labels.size)

        def margins_of(seen: np.ndarray, tested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.trained_on(seen, options).margins_for(*self.index.prepared_examples(tested), options)

        return learned_logits(labels, margins_of)

    def margins_for(self, rows: Rows, labels: np.ndarray, options: ClassOptions) -> tuple[np.ndarray, np.ndarray]:
        """Return the best scores of prepared rows, in margins, and the position of the correct label among them."""
        found, scores, *_ = self.index.best_labels(rows, min(MAX_RANKED, self.index.n_labels), options)
        return scores / heads.margin_wanted(self.index.head), positions_in(found, labels)

    def nearest_slots(
        self, rows: Rows, lengths: np.ndarray, k: int, options: ClassOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots and the distances of the ``k`` stored examples nearest to each row.

        ``lengths`` are the lengths of rows before they were scaled to unit length.
        """
        choice, examples = resolved(options, self.choice), self.stored()
        if choice.method != "scored_neighbors":
            n_threads = threads_for(rows.n_rows, options)
            return self._neighbor_search(choice.metric).nearest(rows, lengths, k, n_threads)
        # The examples are ranked by the mean of cosine and label's score.
        hits, n_labels = no_hits(rows.n_rows, k), min(self.index.n_labels, k + _LABELS_SCANNED)
        best = self.index.best_labels(self.index.prepared(rows, lengths), n_labels, options)
        find = partial(heads.rows_of_labels, examples.lists, rows, best, _LABELS_SCANNED, hits)
        share_rows(find, rows.n_rows, threads_for(rows.n_rows, options))
        slots, found = np.full(hits.ids.shape, NONE), hits.ids != NONE
        slots[found] = heads.slots_of_examples(examples, hits.ids[found])
        return slots, 1.0 - hits.scores

    def probabilities_of_votes(self, rows: Rows, lengths: np.ndarray, options: ClassOptions) -> np.ndarray:
        """Return probabilities: shares of the votes, and a prior share that all classes have in equal parts."""
        votes, prior = self.votes(rows, lengths, options), self._prior_share(options)
        shares: np.ndarray = votes / votes.sum(axis=1, keepdims=True)
        return (1.0 - prior) * shares + prior / self.classes.size

    def _prior_share(self, options: ClassOptions) -> float:
        """Return the prior share that suits some examples, each predicted by the others, cached for these examples."""
        examples, choice = self.stored(), resolved(options, self.choice)
        key = self.n_stored, self.classes.size, choice, options.weights
        if self._prior is None or self._prior[0] is not examples or self._prior[1] != key:
            some = np.sort(np.random.default_rng(0).permutation(self.n_stored)[:_MAX_FOR_PRIOR])
            rows, labels = heads.some_examples(examples, some)
            lengths = inputs.filled(taken(self.index.example_lengths, some), some.size)
            slots, distances = self.nearest_slots(rows, lengths, choice.n_neighbors + 1, options)
            is_own = slots == some[:, None]
            is_own[~is_own.any(axis=1), -1] = True  # examples equal to this one came first
            others = ~is_own
            shape = some.size, choice.n_neighbors
            votes = self._count_votes(rows, slots[others].reshape(shape), distances[others].reshape(shape), options)
            right = votes[np.arange(some.size), self.class_of_label[labels]] / np.maximum(votes.sum(axis=1), _TINY)
            self._prior = examples, key, prior_share(right, self.classes.size)
        return self._prior[2]

    def _neighbor_search(self, metric: str) -> NeighborSearch:
        """Return the search among stored examples for a metric, cached until the stored examples change."""
        examples, kept = self.stored(), self._neighbors
        stored, _ = heads.all_examples(examples)
        is_kept = kept is not None and kept[0] is examples and kept[1].n_examples == stored.n_rows
        if kept is None or not is_kept or kept[1].metric != metric:
            lengths = self.index.example_lengths
            lengths = None if lengths is None else lengths[: stored.n_rows]
            kept = self._neighbors = examples, NeighborSearch(stored, lengths, metric)
        return kept[1]

    def votes(self, rows: Rows, lengths: np.ndarray, options: ClassOptions) -> np.ndarray:
        """Return the votes of the nearest stored examples for each class: float64, shape (n_rows, n_classes)."""
        slots, distances = self.nearest_slots(rows, lengths, resolved(options, self.choice).n_neighbors, options)
        return self._count_votes(rows, slots, distances, options)

    def _count_votes(self, rows: Rows, slots: np.ndarray, distances: np.ndarray, options: ClassOptions) -> np.ndarray:
        examples, found = self.stored(), slots != NONE
        classes = np.where(found, self.class_of_label[examples.label_of[np.where(found, slots, 0)]], NONE)
        weights = weights_of_votes(options.weights, 1.0 - distances, rows, heads.all_examples(examples)[0], slots)
        return count_votes(classes, weights, self.classes.size)
