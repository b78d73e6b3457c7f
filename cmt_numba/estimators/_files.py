"""Estimators in files and pickles.

``_KINDS`` maps each attribute of an estimator to the :class:`_Store` that converts it to JSON and plain arrays.
Parameters are stored as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse

from .._feedback import LearnedSearch
from .._forest import N_COUNTERS, arrays_of, invariants, numbers_of, put_together, require, writeable
from .._heads import Expectation, Head, StoredDuals, StoredExamples, trim_duals
from .._validation import MOST_WANTED
from ..persistence import (
    Contents,
    as_part,
    check_at_rest,
    column,
    generator_fields,
    of_part,
    read_array,
    read_column,
    read_generator,
    read_sparse_matrix,
    sparse_matrix,
    take,
    trim_examples,
    trim_expectation,
    trim_head,
)
from ..tree import ContextualMemoryTree
from ._checks import MOST_ROWS, check_model
from ._choice import METHODS, Choice
from ._classification_model import ClassificationModel
from ._feature_scales import FeatureScales
from ._feature_weights import MOST_WEIGHTED, FeatureWeights
from ._input import trim_weights
from ._memories import Memories
from ._multilabel_model import MultilabelModel
from ._neighbors import METRICS
from ._retrieval_model import RetrievalModel
from ._values import Components, DistinctVectors, ValueStore

__all__ = ["check_model", "estimator_contents", "estimator_of", "pickled_attributes", "unpickled_attributes"]

_MODELS: dict[str, Any] = {
    "CMTClassifier": ClassificationModel,
    "CMTMultilabelClassifier": MultilabelModel,
    "CMTRetriever": RetrievalModel,
}
Arrays = dict[str, np.ndarray]
_APART = "as in a file"  # key that marks converted attributes in pickles


class _Store(Protocol):
    """Converter between an attribute and its JSON and arrays."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        """Convert a value to JSON and to arrays whose names begin with ``name``."""

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        """Return the value, or raise InvariantError, TypeError or ValueError if it is invalid."""


class _Number:
    """A nonnegative integer."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return int(value), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> int:
        if type(field) is not int or not 0 <= field <= MOST_ROWS:
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


class _Choice:
    """One of a set of JSON values."""

    def __init__(self, *choices: Any) -> None:
        self._choices = choices

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return value, {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        if field not in self._choices or (isinstance(field, int) and type(field) is not bool):
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


def _whole(array: np.ndarray) -> np.ndarray:
    return array


class _Array:
    """A one-dimensional array."""

    def __init__(self, dtype: Any, trim: Callable[[np.ndarray], np.ndarray] = _whole) -> None:
        self._dtype, self._trim = dtype, trim

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return {}, {name: self._trim(np.asarray(value, self._dtype))}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        return read_array(name, arrays, self._dtype)


class _Real:
    """A finite number."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return float(value), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> float:
        if type(field) is not float or not np.isfinite(field):
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


class _Learned:
    """What a search has learned from rewards."""

    def put(self, name: str, value: LearnedSearch) -> tuple[Any, Arrays]:
        field = {"n_features": value.model.n_features, "is_sparse": value.model.is_sparse}
        return field, as_part(name, value.arrays())

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> LearnedSearch:
        field = _as_dict(name, field)
        width = _Number().get(f"n_features of {name}", field.get("n_features"), arrays, thorough=thorough)
        is_sparse = _Choice(False, True).get(f"is_sparse of {name}", field.get("is_sparse"), arrays, thorough=thorough)
        return LearnedSearch.of_arrays(width, is_sparse, of_part(name, arrays))


class _FeatureWeights:
    """Counts of the features that occur."""

    def put(self, name: str, value: FeatureWeights) -> tuple[Any, Arrays]:
        features = np.flatnonzero(value.counts)
        field = {"width": value.counts.size, "n_rows": value.n_rows, "is_used": value.is_used}
        field["are_weighted"] = value.are_weighted
        return field, {f"{name}.features": features, f"{name}.counts": value.counts[features]}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> FeatureWeights:
        field = _as_dict(name, field)
        width = _Number().get(f"width of {name}", field.get("width"), arrays, thorough=thorough)
        n_rows = _Real().get(f"n_rows of {name}", field.get("n_rows"), arrays, thorough=thorough)
        features = read_array(f"{name}.features", arrays, np.int64)
        found = read_array(f"{name}.counts", arrays, np.float32)
        is_used, are_weighted = (
            _Choice(False, True).get(f"{flag} of {name}", field.get(flag, False), arrays, thorough=thorough)
            for flag in ("is_used", "are_weighted")
        )
        require(
            width <= MOST_WEIGHTED and features.size == found.size and n_rows >= 0.0,
            f"{name} must have one count for each feature",
        )
        require(
            bool(np.all((features >= 0) & (features < width))), f"{name} must have features between 0 and {width - 1}"
        )
        require(bool(np.all((found >= 0.0) & np.isfinite(found))), f"{name} must be finite and not negative")
        counts = np.zeros(width, np.float32)
        counts[features] = found
        return FeatureWeights(counts, n_rows, is_used, are_weighted)


class _Choices:
    """A method, a metric and a number of neighbors."""

    def put(self, name: str, value: Choice) -> tuple[Any, Arrays]:
        return list(value), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Choice:
        if type(field) is not list or len(field) != 3:
            raise ValueError(f"{name} must be a list of a method, a metric and a number of neighbors")
        method = _Choice(*METHODS).get(name, field[0], arrays, thorough=thorough)
        metric = _Choice(*METRICS).get(name, field[1], arrays, thorough=thorough)
        number = _Number().get(name, field[2], arrays, thorough=thorough)
        require(1 <= number <= MOST_WANTED, f"{name} must have at least one neighbor")
        return Choice(method, metric, number)


class _Calibration:
    """An array of one number: positive, or NaN if it has not been learned."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return None if np.isnan(value[0]) else float(value[0]), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        if field is not None and not (type(field) is float and 0.0 < field < np.inf):
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return np.array([np.nan if field is None else field])


class _Labels:
    """A one-dimensional array of classes or names, of any type that files support."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return column(name, value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        labels = read_column(field, name, arrays)
        if labels.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional, got shape {labels.shape}")
        return labels


class _Optional:
    """None, or a value that another store converts."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return (None, {}) if value is None else self._store.put(name, value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return None if field is None else self._store.get(name, field, arrays, thorough=thorough)


class TreeInFiles:
    """A tree, whose invariants are checked on reading."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        fields, arrays = value._contents()
        return fields, as_part(name, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ContextualMemoryTree:
        return ContextualMemoryTree._made_of(_as_dict(name, field), of_part(name, arrays), thorough=thorough)


class _Structure:
    """A named tuple of arrays. :func:`check_model` checks its contents."""

    def __init__(self, kind: Any, trim: Callable[[Any], Any]) -> None:
        self._kind, self._trim = kind, trim

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        value = self._trim(value)
        return numbers_of(value), as_part(name, arrays_of(value))

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        value = put_together(self._kind, of_part(name, arrays), _as_dict(name, field))
        if hasattr(value, "counters") and value.counters.ndim == 2 and value.counters.shape[1] == N_COUNTERS:
            check_at_rest(value.counters)
        return value


class _Generator:
    """A random number generator of NumPy's default type."""

    def put(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return generator_fields(value), {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.random.Generator:
        return read_generator(name, field)


class _Values:
    """The values of a retriever's memories: any objects in pickles, but only some types in files."""

    def __init__(self, *, pickled: bool = False) -> None:
        self._pickled = pickled

    def put(self, name: str, value: ValueStore) -> tuple[Any, Arrays]:
        values = value.all()
        if self._pickled:
            return values, {}
        if scipy.sparse.issparse(values):
            shape, arrays = sparse_matrix(name, values)
            return {"sparse": shape}, arrays
        how, arrays = column(name, values)
        return {"dense": how}, arrays

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ValueStore:
        if self._pickled:
            return ValueStore(field)
        field = _as_dict(name, field)
        if "sparse" in field:
            return ValueStore(read_sparse_matrix(field["sparse"], name, arrays, thorough=thorough))
        values = read_column(field.get("dense"), name, arrays)
        if values.ndim > 2:
            raise ValueError(f"{name} must have one or two dimensions")
        return ValueStore(values)


class _Memories:
    """The tables of a retriever, packed so that value ``i`` belongs to memory ``i``."""

    _arrays: ClassVar[tuple[str, ...]] = ("ids", "entries", "keys", "owners")

    def __init__(self, values: _Store) -> None:
        self._values = values

    def put(self, name: str, value: Memories) -> tuple[Any, Arrays]:
        value = value.packed()
        how, arrays = self._values.put("_values", value.values)
        arrays |= {f"{name}.{part}": getattr(value, part) for part in self._arrays}
        return {"next_id": value.next_id, "values": how}, arrays

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Memories:
        field = _as_dict(name, field)
        tables: dict[str, Any] = {part: read_array(f"{name}.{part}", arrays, np.int64) for part in self._arrays}
        next_id = _Number().get(f"the next id of {name}", field.get("next_id"), arrays, thorough=thorough)
        values = self._values.get("_values", field.get("values"), arrays, thorough=thorough)
        return Memories.of(places=np.arange(tables["ids"].size), next_id=next_id, values=values, **tables)


class _Components:
    """The basis for comparing values in a retriever."""

    def put(self, name: str, value: Components) -> tuple[Any, Arrays]:
        return value.n_components, {} if value.basis is None else {name: value.basis}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Components:
        n_components = _Number().get(name, field, arrays, thorough=thorough)
        basis = read_array(name, arrays, np.float32, n_axes=2) if name in arrays else None
        require(basis is None or basis.shape[1] == n_components, f"{name} must have a vector for each component")
        require(basis is None or not thorough or invariants.all_finite(basis), f"{name} must be finite")
        return Components.of(basis, n_components)


class _Distinct:
    """The numbers and digests of distinct vectors."""

    def put(self, name: str, value: DistinctVectors) -> tuple[Any, Arrays]:
        numbers, digests = value.as_arrays()
        return {}, {f"{name}.numbers": numbers, f"{name}.digests": digests}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> DistinctVectors:
        numbers = read_array(f"{name}.numbers", arrays, np.int64)
        digests = read_array(f"{name}.digests", arrays, np.uint8, n_axes=2)
        return DistinctVectors.of(numbers, digests)


def _as_dict(name: str, field: Any) -> dict[str, Any]:
    if type(field) is not dict:
        raise ValueError(f"{name} must be a mapping")
    return field


_OF_ALL: dict[str, _Store] = {"n_features_in_": _Number(), "feature_names_in_": _Labels()}
_OF_LABEL_FORESTS: dict[str, _Store] = {
    **_OF_ALL,
    "forest_": TreeInFiles(),
    "head_": _Structure(Head, trim_head),
    "classes_": _Labels(),
    "_n_of_label": _Array(np.int64),
    "_seed": _Number(),
    "_orders": _Generator(),
    "_cells_pruned": _Number(),
    "_n_unlisted": _Number(),
}
LEARNED = frozenset({"n_features_in_", "feature_names_in_", "_model"})
"""Learned attributes of an estimator. Other attributes are parameters, or set by the user."""

_KINDS: dict[str, dict[str, _Store]] = {
    "CMTClassifier": {
        **_OF_LABEL_FORESTS,
        "examples_": _Optional(_Structure(StoredExamples, trim_examples)),
        "_n_measured": _Number(),
        "_n_relearned": _Number(),
        "_weight_of_label": _Optional(_Array(np.float64)),
        "_example_weights": _Optional(_Array(np.float32, trim_weights)),
        "_duals": _Optional(_Structure(StoredDuals, trim_duals)),
        "_example_lengths": _Optional(_Array(np.float32, trim_weights)),
        "_choice": _Optional(_Choices()),
        "_example_names": _Optional(_Labels()),
        "_calibration": _Calibration(),
        "_feature_weights": _Optional(_FeatureWeights()),
        "_scales": _Optional(_Structure(FeatureScales, FeatureScales._make)),
        "_label_of_class": _Array(np.int64),
        "_class_of_label": _Array(np.int64),
    },
    "CMTMultilabelClassifier": {
        **_OF_LABEL_FORESTS,
        "examples_": _Optional(TreeInFiles()),
        "n_labels_": _Number(),
        "_n_rows": _Number(),
        "_weight_of_label": _Optional(_Array(np.float64)),
        "_weight_of_rows": _Optional(_Real()),
        "threshold_": _Real(),
        "_sparse_output": _Choice(False, True),
        "_pair": _Optional(_Labels()),
        "_without_trees": _Choice(False, True),
        "_names": _Optional(_Labels()),
        "_label_of_column": _Array(np.int64),
        "_column_of_label": _Array(np.int64),
    },
    "CMTRetriever": {
        **_OF_ALL,
        "search_": _Choice("key", "value"),
        "forest_": TreeInFiles(),
        "_orders": _Generator(),
        "_sparse": _Choice(False, True),
        "_memories": _Memories(_Values()),
        "_components": _Components(),
        "_distinct": _Distinct(),
        "_learned": _Learned(),
        "expectation_": _Structure(Expectation, trim_expectation),
    },
}
_NOT_ALWAYS = {"feature_names_in_", "_components", "expectation_", "_learned", "threshold_"}
"""Attributes that depend on the parameters or the data."""


def pickled_attributes(kind: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's attributes for a pickle, with instances of private classes as plain arrays."""
    apart = {name: store for name, store in _pickled_apart(kind).items() if state.get(name) is not None}
    return state | {name: {_APART: store.put(name, state[name])} for name, store in apart.items()}


def unpickled_attributes(kind: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's attributes, including its model, from the attributes in a pickle."""
    state = dict(state)
    for name, store in _pickled_apart(kind).items():
        if isinstance(state.get(name), dict) and _APART in state[name]:
            field, arrays = state[name][_APART]
            arrays = {path: writeable(array) for path, array in arrays.items()}
            state[name] = store.get(name, field, arrays, thorough=False)
    return _with_model(kind, state) if "forest_" in state else state


def _with_model(kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes in which the parts of the model are combined into a model."""
    of_model = _KINDS[kind].keys() - _OF_ALL.keys()
    parts = {name: value for name, value in attributes.items() if name in of_model}
    others = {name: value for name, value in attributes.items() if name not in of_model}
    return others | {"_model": _MODELS[kind].of_attributes(parts)}


def _pickled_apart(kind: str) -> dict[str, _Store]:
    """Return the stores of the attributes that are instances of private classes.

    Pickles hold these attributes as plain arrays.
    """
    apart: dict[str, _Store] = {}
    for name, store in _KINDS[kind].items():
        inner = store._store if isinstance(store, _Optional) else store
        if isinstance(inner, _Structure | _Components | _Distinct | _Learned | _FeatureWeights | _Choices):
            apart[name] = inner
        elif isinstance(inner, _Memories):
            apart[name] = _Memories(_Values(pickled=True))
    return apart


def estimator_contents(estimator: Any) -> Contents:
    """Return the contents of a file for an estimator."""
    attributes: dict[str, Any] = {}
    arrays: Arrays = {}
    learned = estimator._attributes()
    for name, store in _KINDS[estimator._kind].items():
        if name in learned:
            attributes[name], more = store.put(name, learned[name])
            arrays |= more
    parameters = {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()}
    return Contents(estimator._kind, {"parameters": parameters, "attributes": attributes}, arrays)


def read_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters from a file or a journal."""
    if isinstance(parameters.get("class_weight"), list):
        return parameters | {"class_weight": dict(parameters["class_weight"])}
    return parameters


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON. A dict becomes a list of pairs, because JSON has only string keys."""
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):
        return [[_plain(name, part) for part in pair] for pair in value]
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"{name} must be a number, text or None to be saved, got {value!r:.50}")
    return value


def estimator_of(kind: type, contents: Contents, *, thorough: bool) -> Any:
    """Return the estimator of class ``kind`` from the contents of a file."""
    parameters, attributes = (take(contents.fields, name, dict) for name in ("parameters", "attributes"))
    for name, value in parameters.items():
        _plain(name, value)
    estimator: Any = kind(**read_parameters(parameters))
    estimator._check_parameters()
    if not attributes:
        return estimator  # was saved unfitted
    learned: dict[str, Any] = {}
    for name, store in _KINDS[contents.kind].items():
        if name in attributes:
            learned[name] = store.get(name, attributes[name], contents.arrays, thorough=thorough)
        elif name not in _NOT_ALWAYS:
            raise ValueError(f"{name} is missing")
    vars(estimator).update(_with_model(contents.kind, learned))
    check_model(estimator, thorough=thorough)
    return estimator
