"""Everything that must hold of what estimators have learned: when they are saved and loaded, and whenever one asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._forest.invariants.errors import require
from .._forest.invariants.numbers import all_finite, all_within
from .._forest.state import N_MEMORIES, NEXT_ID, NONE
from .._heads.invariants.labels import check_duals, check_example_frame, check_examples, check_head, check_head_frame
from .._heads.invariants.ridge import check_expectation, check_expectation_frame
from ._memories import Memories

MOST_ROWS = 2**53
"""Rows of a stream."""


def check_parts(estimator: Any, *, thorough: bool) -> None:
    """Raise InvariantError if the parts of an estimator contradict each other, or one of them itself.

    Its trees are taken to be sound. Unless the check is to be ``thorough``, it does not look at what large arrays hold.
    """
    _CHECKS[estimator._kind](estimator, thorough)


def _check_label_forest(estimator: Any, thorough: bool) -> None:
    forest, head = estimator.forest_, estimator.head_
    n_labels, d = forest.n_memories, estimator.n_features_in_
    require(head.parameters.n_features == d >= 1, "the head must be of the width of the examples")
    _check_names(estimator)
    if forest._forest.state is not None:
        require(forest.n_features == d, "the forest must be of the width of the examples")
        require(
            forest._forest.state.parameters.sparse == head.parameters.sparse, "the head must be sparse like the forest"
        )
        require(forest._forest.state.keys.totals[NEXT_ID] == n_labels, "labels cannot have gone")
    (check_head if thorough else check_head_frame)(head, n_labels)
    require(estimator._n_of_label.size <= n_labels, "there are examples of labels that do not exist")
    if thorough:
        require(all_within(estimator._n_of_label, 1, MOST_ROWS), "a label has no examples")
        if forest._forest.state is not None:
            ids = forest._forest.state.keys.ids[:n_labels]
            require(np.array_equal(ids, np.arange(n_labels)), "a label has another number than its memory")


def _check_names(estimator: Any) -> None:
    names = getattr(estimator, "feature_names_in_", None)
    require(names is None or names.size == estimator.n_features_in_, "features must have a name each")


def _check_inverse(there: np.ndarray, back: np.ndarray, what: str) -> None:
    """Raise InvariantError unless ``there`` leads to each entry of ``back`` once, and that back again."""
    require(all_within(there, int(NONE), back.size - 1) and all_within(back, 0, there.size - 1), f"{what} do not exist")
    require(np.count_nonzero(there != NONE) == back.size, f"{what} are not of one number")
    require(np.array_equal(there[back], np.arange(back.size)), f"{what} do not lead to each other")


def _check_classifier(estimator: Any, thorough: bool) -> None:
    _check_label_forest(estimator, thorough)
    n_labels, head, examples = estimator.forest_.n_memories, estimator.head_, estimator.examples_
    require(head.common.labels.size == 0, "a classifier has no common labels")
    if examples is not None:
        alike = examples.parameters == (head.parameters.n_features, head.parameters.sparse)
        require(alike, "examples must be stored like they are learned")
        if thorough:
            check_examples(examples, n_labels)
        else:
            check_example_frame(examples)
    classes = estimator.classes_
    require(estimator._label_of_class.size == classes.size, "classes must have a label each, or none")
    require(estimator._class_of_label.size == n_labels, "labels must have a class each")
    _check_weights("labels", estimator._weight_of_label, n_labels)
    if examples is not None:
        n_examples = int(examples.keys.totals[N_MEMORIES])
        weights = estimator._example_weights
        _check_weights("examples", None if weights is None else weights[:n_examples], n_examples)
        if estimator._duals is not None:
            check_duals(estimator._duals, n_examples, n_labels, thorough=thorough)
    if thorough:
        require(bool(np.all(classes[:-1] < classes[1:])), "classes must be sorted")
        _check_inverse(estimator._label_of_class, estimator._class_of_label, "classes and labels")


def _check_weights(what: str, weights: np.ndarray | None, n: int) -> None:
    require(weights is None or weights.size == n, f"{what} must weigh something each")
    require(weights is None or all_finite(weights), f"the weights of {what} must be finite")


def _check_multilabel(estimator: Any, thorough: bool) -> None:
    _check_label_forest(estimator, thorough)
    n_labels, n_columns, pair = estimator.forest_.n_memories, estimator.n_labels_, estimator._pair
    require(estimator._label_of_column.size == n_columns, "columns must have a label each, or none")
    require(estimator._column_of_label.size == n_labels, "labels must have a column each")
    require(estimator.classes_.size == (n_columns if pair is None else pair.size), "columns must be a class each")
    names = estimator._names
    require(names is None or np.array_equal(names, estimator.classes_), "names must be those of the columns")
    require(names is None or np.unique(names).size == names.size, "labels must have different names")
    weight = estimator._weight_of_rows
    require((weight is None) == (estimator._weight_of_label is None), "labels and all rows must both have weights")
    require(weight is None or weight >= 0.0, "all rows must weigh something")
    _check_weights("labels", estimator._weight_of_label, n_labels)
    require(pair is None or (n_columns == 1 and pair.size in (1, 2)), "a vector is of two classes")
    if thorough:
        require(all_within(estimator._n_of_label, 1, estimator._n_rows), "a label has more examples than there are")
        _check_inverse(estimator._label_of_column, estimator._column_of_label, "columns and labels")


def _check_retriever(estimator: Any, thorough: bool) -> None:
    forest, memories, d = estimator.forest_, estimator._memories, estimator.n_features_in_
    require(d >= 1, "keys must have a feature")
    _check_names(estimator)
    require(memories.entries.size == memories.ids.size, "memories must be something in the forest each")
    require(memories.places.size == memories.ids.size, "memories must have a value each")
    require(memories.values.n_values >= memories.ids.size, "memories must have a value each")
    require(memories.owners.size == memories.keys.size, "what is in the forest must lead to a memory each")
    require(memories.keys.size == forest.n_memories, "what is in the forest must lead to a memory each")
    if thorough:
        _check_memories(memories, forest.ids, shared=estimator.search_ == "value")
    if estimator.search_ == "value":
        _check_search_by_value(estimator, thorough)
    elif forest._forest.state is not None:
        parameters = forest._forest.state.parameters
        require(parameters.n_features == d, "the forest must be of the width of the keys")
        require(parameters.sparse == estimator._sparse, "the forest must be sparse like the keys")
    if thorough:
        numbers, _ = estimator._distinct.as_arrays()
        numbers = np.sort(numbers)
        if estimator.search_ == "value":
            require(np.array_equal(numbers, memories.keys), "the forest holds another value")
        else:
            further = np.setdiff1d(memories.keys, memories.entries)
            require(bool(np.all(np.isin(numbers, further))), "a further key is not in the forest")


def _check_memories(memories: Memories, in_forest: np.ndarray, *, shared: bool) -> None:
    ids, keys, entries, owners = memories.ids, memories.keys, memories.entries, memories.owners
    require(all_within(ids, 0, memories.next_id - 1), "an id was never given out")
    require(bool(np.all(ids[:-1] < ids[1:])), "ids must rise")
    require(bool(np.all(keys[:-1] < keys[1:])), "what is in the forest must be listed in order")
    require(np.array_equal(keys, np.sort(in_forest)), "the forest holds something else than is listed")
    require(bool(np.all(np.isin(entries, keys))), "a memory is nothing in the forest")
    require(bool(np.all(np.isin(owners, ids))), "what is in the forest leads to no memory")
    require(all_within(memories.places, 0, memories.values.n_values - 1), "a memory has no value")
    require(np.unique(memories.places).size == ids.size, "two memories have one value's place")
    if shared:
        require(np.array_equal(memories.entries_of(owners), keys), "a value leads to a memory that has another")
    else:
        require(np.array_equal(memories.owners_of(entries), ids), "a key leads to another memory")


def _check_search_by_value(estimator: Any, thorough: bool) -> None:
    for name in ("_components", "expectation_"):
        require(hasattr(estimator, name), f"{name} is missing")
    expectation, components, values = estimator.expectation_, estimator._components, estimator._memories.values
    parameters, n_components = expectation.parameters, components.n_components
    (check_expectation if thorough else check_expectation_frame)(expectation)
    require(parameters.n_features == estimator.n_features_in_, "the expectation must be of the width of the keys")
    require(parameters.sparse == estimator._sparse, "the expectation must be sparse like the keys")
    require(expectation.bias.size == n_components, "the expectation must be of the width of the components")
    require(values.are_vectors, "values must be vectors to be searched")
    width = n_components if components.basis is None else components.basis.shape[0]
    require(values.width == width, "the basis must be of the width of the values")
    state = estimator.forest_._forest.state
    if state is not None:
        alike = state.parameters.n_features == n_components + 1 and not state.parameters.sparse
        require(alike, "the forest must be of the width of the components")


_CHECKS: dict[str, Callable[[Any, bool], None]] = {
    "CMTClassifier": _check_classifier,
    "CMTMultilabelClassifier": _check_multilabel,
    "CMTRetriever": _check_retriever,
}
