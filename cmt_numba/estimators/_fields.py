"""Fields of estimators in files and pickles: parameters as JSON, and those of the model's class (its ``FIELDS``)."""

from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._feedback import LearnedSearch
from .._index import DenseIndex
from .._postings import SparseIndex
from .._validation import MOST_WANTED
from ..tree import ContextualMemoryTree, options_of
from ._choice import METHODS, Choice
from ._feature_weights import MAX_WEIGHTED, FeatureWeights
from ._neighbors import NEIGHBOR_METRICS
from ._values import ValueStore

Arrays = dict[str, np.ndarray]

TREE = files.PartField(ContextualMemoryTree)
INDEX = files.VariantField(dense=DenseIndex, sparse=SparseIndex)
LEARNED = files.VariantField(learned=LearnedSearch)  # what a search has learned from rewards
FEATURE_WEIGHTS = files.TupleField(
    FeatureWeights,
    counts=files.SparseArrayField(np.float32, MAX_WEIGHTED),
    n_rows=files.RealField(0.0),
    is_used=files.FlagField(),
    are_weighted=files.FlagField(),
)


LEARNED_STATE = frozenset({"n_features_in_", "feature_names_in_", "_model"})  # attributes; others are parameters


class ChoiceField:
    """A method, a metric and a number of neighbors."""

    def put(self, name: str, value: Choice, arrays: Arrays) -> Any:
        return list(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Choice:
        known = type(field) is list and len(field) == 3 and field[0] in METHODS and field[1] in NEIGHBOR_METRICS
        if not known or type(field[2]) is not int or not 1 <= field[2] <= MOST_WANTED:
            raise ValueError(f"{name} must be a method, a metric and a number of neighbors, got {field!r:.50}")
        return Choice(*field)


class CalibrationField:
    """An array of one number: positive, or NaN if it has not been learned."""

    def put(self, name: str, value: np.ndarray, arrays: Arrays) -> Any:
        return None if np.isnan(value[0]) else float(value[0])

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        if field is not None and not (type(field) is float and 0.0 < field < np.inf):
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return np.array([np.nan if field is None else field])


class ValuesField:
    """The values of a retriever's memories: any objects in pickles, but only some types in files."""

    def put(self, name: str, value: ValueStore, arrays: Arrays) -> Any:
        values = value.all()
        if isinstance(arrays, files.PickledArrays):
            arrays[name] = values
            return "pickled"
        if scipy.sparse.issparse(values):
            return {"sparse": files.put_sparse_matrix(name, values, arrays)}
        return {"dense": files.put_column(name, values, arrays)}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> ValueStore:
        if field == "pickled" and isinstance(arrays, files.PickledArrays):
            return ValueStore(arrays[name])
        field = files.as_mapping(name, field)
        if "sparse" in field:
            return ValueStore(files.read_sparse_matrix(field["sparse"], name, arrays, thorough=thorough))
        values = files.read_column(field.get("dense"), name, arrays)
        if values.ndim > 2:
            raise ValueError(f"{name} must have one or two dimensions")
        return ValueStore(values)


class ParametersField:
    """The parameters of an estimator."""

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        return {key: _plain(key, parameter) for key, parameter in value.items()}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> dict[str, Any]:
        return read_parameters(self.put(name, files.as_mapping(name, field), arrays))


class ModelField:
    """The model of an estimator, of one of several classes."""

    def __init__(self, *kinds: type[files.WithFields]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        kind = type(value)
        return {"kind": kind.__name__, "fields": files.PartField(kind).put(name, value, arrays)}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        field = files.as_mapping(name, field)
        kind = files.NameField(*self._kinds).get(f"the kind of {name}", field.get("kind"), arrays, thorough=thorough)
        return files.PartField(self._kinds[kind]).get(name, field.get("fields"), arrays, thorough=thorough)


def fields_of_estimator(model: type[files.WithFields] | ModelField) -> files.FieldTable:
    """Return the fields of an estimator with a model of this kind. Before the first fit, only parameters are set."""
    return files.FieldTable(
        parameters=ParametersField(),
        n_features_in_=files.OptionalField(files.NumberField()),
        feature_names_in_=files.OptionalField(files.LabelsField()),
        _model=files.OptionalField(model if isinstance(model, ModelField) else files.PartField(model)),
    )


def read_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters from a file or a journal."""
    if isinstance(parameters.get("class_weight"), list):
        parameters = parameters | {"class_weight": dict(parameters["class_weight"])}
    if isinstance(parameters.get("tree"), list):
        parameters = parameters | {"tree": ContextualMemoryTree(**dict(parameters["tree"]))}
    return parameters


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON. A dict becomes a list of pairs, because JSON has only string keys."""
    if isinstance(value, ContextualMemoryTree):
        value = options_of(value)
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):
        return [[_plain(name, part) for part in pair] for pair in value]
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"{name} must be a number, text or None to be saved, got {value!r:.50}")
    return value
