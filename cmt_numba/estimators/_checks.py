"""Invariants of fitted estimators, checked by ``save``, ``load`` and ``check_invariants``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _heads as heads
from .._forest import invariants
from .._index import DenseIndex
from .._kernels import N_MEMORIES, NONE, require
from .._postings import SparseIndex
from ._calibration import THRESHOLDS
from ._classification_model import ClassificationModel
from ._input import Factors
from ._label_index import LabelIndex
from ._multilabel_model import MultilabelModel
from ._retrieval_model import RetrievalModel
from ._tree_model import TreeModel

_MAX_ROWS = 2**53  # maximum number of rows in a stream


def check_model(estimator: Any, *, thorough: bool) -> None:
    """Raise InvariantError if a model is inconsistent. Large arrays are read only if ``thorough``."""
    names, d = getattr(estimator, "feature_names_in_", None), estimator.n_features_in_
    require(names is None or names.size == d, "every feature must have a name")
    _CHECKS[estimator._kind](estimator._model, d, thorough)


def _check_index(index: LabelIndex, n_labels: int, d: int, thorough: bool) -> None:
    head, scales = index.head, index.scales
    if scales is not None:
        are_valid = scales.are_valid(d) and not head.parameters.sparse
        require(are_valid, "each feature of dense rows must have a scale that rows can have")
    width = d + index.is_standardized
    require(head.parameters.n_features == width > 0, "the head must have the same number of features as the examples")
    (heads.check_head if thorough else heads.check_head_frame)(head, n_labels)
    require(index.n_of_label.size <= n_labels, "an example has a label that does not exist")
    _check_weights("labels", index.weight_of_label, n_labels)
    if thorough:
        require(invariants.all_within(index.n_of_label, 1, _MAX_ROWS), "a label has no examples")


def _check_inverse(there: np.ndarray, back: np.ndarray, what: str) -> None:
    """Raise InvariantError unless ``back`` is the inverse of ``there``, which may contain NONE."""
    exist = invariants.all_within(there, int(NONE), back.size - 1) and invariants.all_within(back, 0, there.size - 1)
    require(exist, f"the map between {what} refers to an entry that does not exist")
    require(np.count_nonzero(there != NONE) == back.size, f"the numbers of {what} differ")
    require(np.array_equal(there[back], np.arange(back.size)), f"the maps between {what} are not inverse to each other")


def _check_weights(what: str, weights: Factors, n: int) -> None:
    require(weights is None or weights.size == n, f"the number of weights must equal the number of {what}")
    require(weights is None or invariants.all_finite(weights), f"the weights of {what} must be finite")


def _check_classes(model: ClassificationModel | TreeModel, d: int, thorough: bool) -> None:
    if isinstance(model, TreeModel):
        model.check(d, thorough=thorough)
        return
    index, n_labels = model.index, model.class_of_label.size
    alike = not index.of_sets and index.n_rows == 0 and index.weight_of_rows is None
    require(alike, "the index must be that of a classifier")
    _check_index(index, n_labels, d, thorough)
    head, examples, classes = index.head, index.examples, model.classes
    require(index.n_of_label.size == index.n_unseen.size == n_labels, "every label must have counts of examples")
    require(head.common.labels.size == 0, "a classifier must not have common labels")
    require(model.label_of_class.size == classes.size, "every class must have at most one label")
    if index.feature_weights is not None:
        alike = index.feature_weights.counts.size == d and head.parameters.sparse
        require(alike, "each feature of sparse rows must have one weight")
    if examples is not None:
        alike = examples.parameters == (d, head.parameters.sparse)
        require(alike, "examples must have the same features and format as the head")
        if thorough:
            heads.check_examples(examples, n_labels)
        else:
            heads.check_example_frame(examples)
        n_examples, weights = int(examples.keys.totals[N_MEMORIES]), model.example_weights
        _check_weights("examples", None if weights is None else weights[:n_examples], n_examples)
        lengths = index.example_lengths
        _check_weights("lengths of examples", None if lengths is None else lengths[:n_examples], n_examples)
        if thorough and model.example_names is not None:
            names = model.shown_ids(model.example_ids())
            sound = "" not in names and np.unique(names).size == n_examples
            require(sound, "examples must have distinct, non-empty names")
        if model.duals is not None:
            heads.check_duals(model.duals, n_examples, n_labels, thorough=thorough)
    if thorough:
        require(bool(np.all(classes[:-1] < classes[1:])), "classes must be sorted")
        _check_inverse(model.label_of_class, model.class_of_label, "classes and labels")


def _check_label_sets(model: MultilabelModel, d: int, thorough: bool) -> None:
    index = model.index
    others = (index.examples, index.example_lengths, index.feature_weights)
    require(index.of_sets and all(part is None for part in others), "the index must be one of label sets")
    _check_index(index, model.column_of_label.size, d, thorough)
    if model.examples is not None:
        alike = isinstance(model.examples, SparseIndex) == index.is_sparse
        require(alike and model.examples.n_features == d, "stored examples must have the features of the rows")
        require(model.examples.metric == "cosine", "the index of stored examples must be one of cosines")
        if thorough:
            model.examples.check_invariants()
    n_columns, pair, names, weight = model.n_columns, model.pair, model.names, index.weight_of_rows
    require(model.label_of_column.size == n_columns, "every column must have at most one label")
    require(model.classes.size == (n_columns if pair is None else pair.size), "each column must have a class")
    require(names is None or np.array_equal(names, model.classes), "the names must match the columns")
    require(names is None or np.unique(names).size == names.size, "labels must have distinct names")
    require((weight is None) == (index.weight_of_label is None), "labels and rows must both have weights, or neither")
    require(weight is None or weight >= 0.0, "the total weight of rows must not be negative")
    require(pair is None or (n_columns == 1 and pair.size in (1, 2)), "a vector must have one or two classes")
    width = index.head.parameters.n_features
    sound = model.squares.size == width and model.curvature.size <= model.column_of_label.size
    require(sound, "features must have sums of squares, and labels may have a curvature")
    if model.f1_sums is not None:
        require(model.f1_sums.size == THRESHOLDS.size + 1, "there must be an F1 for each threshold")
        sound = invariants.all_finite(model.f1_sums) and bool(np.all(model.f1_sums >= 0.0))
        require(sound, "sums of F1 must be finite and not negative")
    if model.means is not None:
        sets, sums, amounts, last, n_rows = model.means
        require(index.is_standardized and sums.shape[1] == d, "label sets must have means of rows of a table")
        require(sets.shape[1] <= n_columns, "label sets must have columns")
        has_labels = np.all(model.label_of_column[np.flatnonzero(sets.any(axis=0))] != NONE)
        require(bool(has_labels), "label sets must have labels with examples")
        sound = invariants.all_finite(sums) and invariants.all_finite(amounts) and bool(np.all(amounts > 0.0))
        require(sound and invariants.all_within(last, 0, n_rows), "label sets must have rows")
    if thorough:
        few = invariants.all_within(index.n_of_label, 1, index.n_rows)
        require(few, "a label has no examples, or more than there are rows")
        _check_inverse(model.label_of_column, model.column_of_label, "columns and labels")


def _check_retrieval(model: RetrievalModel, d: int, thorough: bool) -> None:
    index, memories, by_value = model.index, model.memories, model.by_value
    ids, keys, values = memories.ids, memories.keys, memories.values
    require(d >= 1, "keys must have at least one feature")
    require(memories.places.size == ids.size <= values.n_values, "every memory must have a value")
    require(keys.size == len(index), "every entry of the index must belong to a memory")
    require(index.metric == "cosine", "the index must be one of cosines")
    if thorough:
        index.check_invariants()
        require(invariants.all_within(ids, 0, memories.next_id - 1), "a memory has an id that was never assigned")
        require(bool(np.all(ids[:-1] < ids[1:])), "ids must be in ascending order")
        require(np.array_equal(keys, np.sort(index.ids)), "a memory has no entry in the index")
        require(invariants.all_within(memories.places, 0, values.n_values - 1), "a memory has no value")
        require(np.unique(memories.places).size == ids.size, "two memories share the position of a value")
        require(np.array_equal(memories.entries_of(memories.index.columns[1]), keys), "an entry has the wrong owner")
    if by_value is None:
        require(np.array_equal(memories.entries, ids), "the entry of a key must be the id of its memory")
        require(index.n_features == d, "the index must have the same number of features as the keys")
        alike = isinstance(index, SparseIndex) == model.sparse
        require(alike, "the index and the keys must both be sparse or both be dense")
    else:
        by_value.check(d, model.sparse, thorough)
        basis, n_components = by_value.components
        require(values.are_vectors, "values must be vectors to search by value")
        width = n_components if basis is None else basis.shape[0]
        require(values.width == width, "the basis must have the same width as the values")
        alike = isinstance(index, DenseIndex) and index.n_features == n_components + 1
        require(alike, "the index must be dense and have one feature more than there are components")
        distinct = not thorough or len(memories.numbered()) == keys.size
        require(distinct, "the values in the index must be distinct")
    if model.learned is not None:
        require(by_value is None and model.learned.model.n_features == d, "the rewards must be of the keys")
        require(model.learned.model.is_sparse == model.sparse, "the rewards must be of the keys")


_CHECKS: dict[str, Callable[[Any, int, bool], None]] = {
    "CMTClassifier": _check_classes,
    "CMTMultilabelClassifier": _check_label_sets,
    "CMTRetriever": _check_retrieval,
}
