"""Estimators in files: which of their attributes are stored, how, and what must hold of them.

The attributes of each estimator are listed once, with a :class:`_Store` that takes each apart into JSON and plain
arrays. Parameters are JSON.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse

from ._examples import Examples
from ._expectation import Expectation
from ._head import Head
from ._invariants._errors import require
from ._invariants._expectations import check_expectation, check_expectation_frame
from ._invariants._labels import check_example_frame, check_examples, check_head, check_head_frame
from ._invariants._numbers import all_finite, all_within
from ._locking import Guarded, changes
from ._state import NEXT_ID, NONE
from ._structures import arrays_of, numbers_of, put_together, writeable
from ._values import Components, DistinctVectors, ValueStore
from .persistence._columns import (
    column,
    read_array,
    read_column,
    read_sparse_matrix,
    sparse_matrix,
)
from .persistence._container import Contents
from .persistence._tidy import tidy_examples, tidy_expectation, tidy_head
from .persistence._trees import check_at_rest, read_object, refusing, take, write_object
from .tree import ContextualMemoryTree

Arrays = dict[str, np.ndarray]
_MOST = 2**53  # rows of a stream
_APART = "as in a file"  # in pickles


class SavableEstimator(Guarded):
    """What estimators have in common that can be saved. A class of them has an entry in this module's ``_KINDS``.

    Any number of threads may use an estimator at once. Changes are made one after the other, and at once: what is asked
    meanwhile waits until the change is complete. To set parameters is no change in this sense: who does so while other
    threads use the estimator must expect either value to be used.
    """

    _kind: ClassVar[str]

    @changes  # of which there are none, but others must wait
    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        # Whoever pickles it has not done so yet when other threads go on.
        state = {name: copy.deepcopy(value) for name, value in state.items() if name != "_own_guard"}
        for name, store in _pickled_apart(self._kind).items():
            if state.get(name) is not None:  # else of a class that may be called otherwise one day
                state[name] = {_APART: store.put(name, state[name])}
        return state  # type: ignore[no-any-return]

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {name: writeable(value) for name, value in state.items()}
        for name, store in _pickled_apart(self._kind).items():
            if isinstance(state.get(name), dict) and _APART in state[name]:
                field, arrays = state[name][_APART]
                arrays = {path: writeable(array) for path, array in arrays.items()}
                state[name] = store.get(name, field, arrays, thorough=False)
        super().__setstate__(state)  # type: ignore[misc]

    @changes  # of which there are none, but others must wait
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator and all that it has learned to a file.

        A file that is there already is replaced at once, when the new one is complete: a crash leaves one or the other.
        See :mod:`cmt_numba.persistence` for what is in it.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        TypeError
            If a parameter, a class or a value is of a type that cannot be saved: of all objects only those that JSON
            gives back as they were. Nothing has been written then.
        OSError
            If the file cannot be written.
        """
        write_object(path, estimator_contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return the estimator that :meth:`save` has written. It goes on exactly as the one saved would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file instead of reading it, as :meth:`ContextualMemoryTree.load` does: only for files that you
            trust.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is not one of such an estimator, damaged, or of a later version; it says what is wrong.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (cls._kind,), mmap=mmap)
        with refusing(path):
            estimator: Self = estimator_of(cls, contents, thorough=not mmap)
            return estimator


class _Store(Protocol):
    """How an attribute is stored."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        """Return the JSON and the arrays that stand for a value, the arrays under names that begin like ``name``."""

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        """Return the value. Raises InvariantError, TypeError or ValueError if there is none."""


class _Number:
    """A whole number that is not negative."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return int(value), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> int:
        if type(field) is not int or not 0 <= field <= _MOST:
            raise ValueError(f"{name} cannot be {field!r:.50}")
        return field


class _Choice:
    """One of some values that JSON can express."""

    def __init__(self, *choices: Any) -> None:
        self._choices = choices

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return value, {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        if field not in self._choices or (isinstance(field, int) and type(field) is not bool):
            raise ValueError(f"{name} cannot be {field!r:.50}")
        return field


class _Array:
    """An array of one axis."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return {}, {name: np.asarray(value, self._dtype)}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        return read_array(name, arrays, self._dtype)


class _Labels:
    """Classes, or names, in an array of one axis and any type that a file can hold."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return column(name, value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        labels = read_column(field, name, arrays)
        if labels.ndim != 1:
            raise ValueError(f"{name} must have one axis")
        return labels


class _Optional:
    """None, or what another store can store."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return (None, {}) if value is None else self._store.put(name, value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return None if field is None else self._store.get(name, field, arrays, thorough=thorough)


class _Tree:
    """A tree, which is checked."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        fields, arrays = value._contents()
        return fields, _prefixed(name, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ContextualMemoryTree:
        return ContextualMemoryTree._made_of(_as_dict(name, field), _of_prefix(name, arrays), thorough=thorough)


class _Structure:
    """A named tuple of arrays, which the estimator's check looks at."""

    def __init__(self, kind: Any, tidy: Callable[[Any], Any]) -> None:
        self._kind, self._tidy = kind, tidy

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        value = self._tidy(value)
        return numbers_of(value), _prefixed(name, arrays_of(value))

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return put_together(self._kind, _of_prefix(name, arrays), _as_dict(name, field))


class _Generator:
    """A generator of random numbers, numpy's default one."""

    _most: ClassVar[dict[str, int]] = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        state = value.bit_generator.state
        numbers = state["state"] | {"has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
        return {key: int(numbers[key]) for key in self._most}, {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.random.Generator:
        numbers = _as_dict(name, field)
        for key, most in self._most.items():
            if not 0 <= take(numbers, key, int) < most:
                raise ValueError(f"{name} is no state of a generator of random numbers")
        bits = np.random.PCG64(0)
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": numbers["state"], "inc": numbers["inc"]},
            "has_uint32": numbers["has_uint32"],
            "uinteger": numbers["uinteger"],
        }
        return np.random.Generator(bits)


class _Values:
    """What a retriever's memories stand for."""

    def put(self, name: str, value: ValueStore) -> tuple[Any, Arrays]:
        values = value.all()
        if scipy.sparse.issparse(values):
            shape, arrays = sparse_matrix(name, values)
            return {"sparse": shape}, arrays
        how, arrays = column(name, values)
        return {"dense": how}, arrays

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ValueStore:
        field = _as_dict(name, field)
        if "sparse" in field:
            return ValueStore(read_sparse_matrix(field["sparse"], name, arrays, thorough=thorough))
        values = read_column(field.get("dense"), name, arrays)
        if values.ndim > 2:
            raise ValueError(f"{name} must have one axis or two")
        return ValueStore(values)


class _AnyValues(_Values):
    """What a retriever's memories stand for, whatever a pickle can hold."""

    def put(self, name: str, value: ValueStore) -> tuple[Any, Arrays]:
        return value.all(), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ValueStore:
        return ValueStore(field)


class _Components:
    """The basis that a retriever compares values in."""

    def put(self, name: str, value: Components) -> tuple[Any, Arrays]:
        return value.n_components, {} if value.basis is None else {name: value.basis}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Components:
        n_components = _Number().get(name, field, arrays, thorough=thorough)
        basis = read_array(name, arrays, np.float32, n_axes=2) if name in arrays else None
        require(basis is None or basis.shape[1] == n_components, f"{name} must have a vector for each component")
        require(basis is None or not thorough or all_finite(basis), f"{name} must be finite")
        return Components.of(basis, n_components)


class _Distinct:
    """The numbers of distinct vectors, and their digests."""

    def put(self, name: str, value: DistinctVectors) -> tuple[Any, Arrays]:
        numbers, digests = value.as_arrays()
        return {}, {f"{name}.numbers": numbers, f"{name}.digests": digests}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> DistinctVectors:
        numbers = read_array(f"{name}.numbers", arrays, np.int64)
        digests = read_array(f"{name}.digests", arrays, np.uint8, n_axes=2)
        return DistinctVectors.of(numbers, digests)


def _prefixed(name: str, arrays: Arrays) -> Arrays:
    return {f"{name}.{path}": array for path, array in arrays.items()}


def _of_prefix(name: str, arrays: Arrays) -> Arrays:
    return {path.removeprefix(f"{name}."): array for path, array in arrays.items() if path.startswith(f"{name}.")}


def _as_dict(name: str, field: Any) -> dict[str, Any]:
    if type(field) is not dict:
        raise ValueError(f"{name} must be a mapping")
    return field


_OF_ALL: dict[str, _Store] = {"n_features_in_": _Number(), "feature_names_in_": _Labels()}
_OF_LABEL_FORESTS: dict[str, _Store] = {
    **_OF_ALL,
    "forest_": _Tree(),
    "head_": _Structure(Head, tidy_head),
    "classes_": _Labels(),
    "_n_of_label": _Array(np.int64),
    "_seed": _Number(),
    "_orders": _Generator(),
    "_cells_pruned": _Number(),
    "_n_unlisted": _Number(),
}
_KINDS: dict[str, dict[str, _Store]] = {
    "CMTClassifier": {
        **_OF_LABEL_FORESTS,
        "examples_": _Optional(_Structure(Examples, tidy_examples)),
        "_n_measured": _Number(),
        "_label_of_class": _Array(np.int64),
        "_class_of_label": _Array(np.int64),
    },
    "CMTMultilabelClassifier": {
        **_OF_LABEL_FORESTS,
        "examples_": _Optional(_Tree()),
        "n_labels_": _Number(),
        "_n_rows": _Number(),
        "_sparse_output": _Choice(False, True),
        "_pair": _Optional(_Labels()),
        "_label_of_column": _Array(np.int64),
        "_column_of_label": _Array(np.int64),
    },
    "CMTRetriever": {
        **_OF_ALL,
        "search_": _Choice("key", "value"),
        "forest_": _Tree(),
        "_orders": _Generator(),
        "_sparse": _Choice(False, True),
        "_values": _Values(),
        "_stored": _Array(np.bool_),
        "_entry_of": _Array(np.int64),
        "_memory_of": _Array(np.int64),
        "_components": _Components(),
        "_distinct": _Distinct(),
        "expectation_": _Structure(Expectation, tidy_expectation),
    },
}
_NOT_ALWAYS = {"feature_names_in_", "_components", "_distinct", "expectation_"}


def _pickled_apart(kind: str) -> dict[str, _Store]:
    """Return how pickles hold those attributes that are of no public class: as plain arrays, like files."""
    apart: dict[str, _Store] = {}
    for name, store in _KINDS[kind].items():
        inner = store._store if isinstance(store, _Optional) else store
        if isinstance(inner, _Structure | _Components | _Distinct):
            apart[name] = inner
        elif isinstance(inner, _Values):
            apart[name] = _AnyValues()
    return apart


def estimator_contents(estimator: Any) -> Contents:
    """Return what an estimator is in a file.

    Raises
    ------
    TypeError
        If something is of a type that cannot be saved.
    """
    attributes: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, store in _KINDS[estimator._kind].items():
        if hasattr(estimator, name):
            attributes[name], more = store.put(name, getattr(estimator, name))
            arrays |= more
    parameters = {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()}
    return Contents(estimator._kind, {"parameters": parameters, "attributes": attributes}, arrays)


def _plain(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"{name} must be a number, text or None to be saved, not {value!r:.50}")
    return value


def estimator_of(kind: type, contents: Contents, *, thorough: bool) -> Any:
    """Return the estimator that a file holds, of the class ``kind``.

    Raises
    ------
    InvariantError, TypeError, ValueError
        If it does not hold one.
    """
    parameters, attributes = (take(contents.fields, name, dict) for name in ("parameters", "attributes"))
    for name, value in parameters.items():
        _plain(name, value)
    estimator: Any = kind(**parameters)
    if not attributes:
        return estimator  # it had learned nothing
    for name, store in _KINDS[contents.kind].items():
        if name in attributes:
            setattr(estimator, name, store.get(name, attributes[name], contents.arrays, thorough=thorough))
        elif name not in _NOT_ALWAYS:
            raise ValueError(f"{name} is missing")
    _CHECKS[contents.kind](estimator, thorough)
    return estimator


def _check_label_forest(estimator: Any, thorough: bool) -> None:
    forest, head = estimator.forest_, estimator.head_
    n_labels, d = forest.n_memories, estimator.n_features_in_
    require(head.parameters.n_features == d >= 1, "the head must be of the width of the examples")
    _check_names(estimator)
    if forest._state is not None:
        require(forest.n_features == d, "the forest must be of the width of the examples")
        require(forest._state.parameters.sparse == head.parameters.sparse, "the head must be sparse like the forest")
        require(forest._state.keys.totals[NEXT_ID] == n_labels, "labels cannot have gone")
    (check_head if thorough else check_head_frame)(head, n_labels)
    check_at_rest(head.counters)
    require(estimator._n_of_label.size <= n_labels, "there are examples of labels that do not exist")
    if thorough:
        require(all_within(estimator._n_of_label, 1, _MOST), "a label has no examples")
        if forest._state is not None:
            ids = forest._state.keys.ids[:n_labels]
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
    if thorough:
        require(bool(np.all(classes[:-1] < classes[1:])), "classes must be sorted")
        _check_inverse(estimator._label_of_class, estimator._class_of_label, "classes and labels")


def _check_multilabel(estimator: Any, thorough: bool) -> None:
    _check_label_forest(estimator, thorough)
    n_labels, n_columns, pair = estimator.forest_.n_memories, estimator.n_labels_, estimator._pair
    require(estimator._label_of_column.size == n_columns, "columns must have a label each, or none")
    require(estimator._column_of_label.size == n_labels, "labels must have a column each")
    require(estimator.classes_.size == (n_columns if pair is None else pair.size), "columns must be a class each")
    require(pair is None or (n_columns == 1 and pair.size in (1, 2)), "a vector is of two classes")
    if thorough:
        require(all_within(estimator._n_of_label, 1, estimator._n_rows), "a label has more examples than there are")
        _check_inverse(estimator._label_of_column, estimator._column_of_label, "columns and labels")


def _check_retriever(estimator: Any, thorough: bool) -> None:
    forest, n_memories, d = estimator.forest_, estimator._stored.size, estimator.n_features_in_
    n_entries = 0 if forest._state is None else int(forest._state.keys.totals[NEXT_ID])
    require(d >= 1, "keys must have a feature")
    _check_names(estimator)
    require(estimator._memory_of.size == n_entries, "what is in the forest must lead to a memory each")
    require(estimator._entry_of.size == n_memories, "memories must be something in the forest each")
    require(estimator._values.n_values == n_memories, "memories must have a value each")
    if thorough:
        require(all_within(estimator._memory_of, 0, n_memories - 1), "what is in the forest leads to no memory")
        require(all_within(estimator._entry_of, 0, n_entries - 1), "a memory is nothing in the forest")
    if estimator.search_ == "value":
        _check_search_by_value(estimator, thorough)
    elif forest._state is not None:
        parameters = forest._state.parameters
        require(parameters.n_features == d, "the forest must be of the width of the keys")
        require(parameters.sparse == estimator._sparse, "the forest must be sparse like the keys")


def _check_search_by_value(estimator: Any, thorough: bool) -> None:
    for name in ("_components", "_distinct", "expectation_"):
        require(hasattr(estimator, name), f"{name} is missing")
    expectation, components, values = estimator.expectation_, estimator._components, estimator._values
    parameters, n_components = expectation.parameters, components.n_components
    (check_expectation if thorough else check_expectation_frame)(expectation)
    require(parameters.n_features == estimator.n_features_in_, "the expectation must be of the width of the keys")
    require(parameters.sparse == estimator._sparse, "the expectation must be sparse like the keys")
    require(expectation.bias.size == n_components, "the expectation must be of the width of the components")
    require(values.are_vectors, "values must be vectors to be searched")
    width = n_components if components.basis is None else components.basis.shape[0]
    require(values.width == width, "the basis must be of the width of the values")
    state = estimator.forest_._state
    if state is not None:
        alike = state.parameters.n_features == n_components + 1 and not state.parameters.sparse
        require(alike, "the forest must be of the width of the components")
    if thorough:
        numbers, _ = estimator._distinct.as_arrays()
        require(np.array_equal(np.sort(numbers), np.sort(estimator.forest_.ids)), "the forest holds another value")


_CHECKS: dict[str, Callable[[Any, bool], None]] = {
    "CMTClassifier": _check_classifier,
    "CMTMultilabelClassifier": _check_multilabel,
    "CMTRetriever": _check_retriever,
}
