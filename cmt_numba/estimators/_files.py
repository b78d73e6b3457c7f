"""Estimators in files and pickles.

A file has the parameters of an estimator as JSON, and the fields of its model (``FIELDS`` of the model's class).
"""

from functools import partial
from typing import Any

import numpy as np

from .. import persistence as files
from .._forest import writeable
from ._checks import check_model
from ._classification_model import ClassificationModel
from ._multilabel_model import MultilabelModel
from ._retrieval_model import RetrievalModel

_MODELS: dict[str, Any] = {
    "CMTClassifier": ClassificationModel,
    "CMTMultilabelClassifier": MultilabelModel,
    "CMTRetriever": RetrievalModel,
}
LEARNED = frozenset({"n_features_in_", "feature_names_in_", "_model"})
"""Learned attributes of an estimator. Other attributes are parameters, or set by the user."""

_NAMES = files.OptionalField(files.LabelsField())
_WIDTH = files.NumberField()


def pickled_model(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields and copies of the arrays of a model for a pickle."""
    arrays = files.PickledArrays()
    fields = model.FIELDS.put("", model, arrays)
    return fields, {name: array.copy() for name, array in arrays.items()}


def unpickled_model(kind: str, fields: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the model of an estimator from the fields and the arrays in a pickle."""
    given = files.PickledArrays({name: writeable(array) for name, array in arrays.items()})
    model = _MODELS[kind]
    return model._of_fields(model.FIELDS.get("", fields, given, thorough=False))


def estimator_contents(estimator: Any) -> files.Contents:
    """Return the contents of a file for an estimator."""
    arrays: dict[str, np.ndarray] = {}
    given = estimator.get_params(deep=False).items()
    fields: dict[str, Any] = {"parameters": {name: _plain(name, value) for name, value in given}}
    if estimator.__sklearn_is_fitted__():
        names = getattr(estimator, "feature_names_in_", None)
        fields["n_features"] = _WIDTH.put("n_features", estimator.n_features_in_, arrays)
        fields["feature_names"] = _NAMES.put("feature_names", names, arrays)
        fields["model"] = estimator._model.FIELDS.put("", estimator._model, arrays)
    return files.Contents(estimator._kind, fields, arrays)


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


def estimator_of(kind: type, contents: files.Contents, *, thorough: bool) -> Any:
    """Return the estimator of class ``kind`` from the contents of a file."""
    fields, arrays = contents.fields, contents.arrays
    parameters = files.take(fields, "parameters", dict)
    for name, value in parameters.items():
        _plain(name, value)
    estimator: Any = kind(**read_parameters(parameters))
    estimator._check_parameters()
    if "model" not in fields:
        return estimator  # was saved unfitted
    estimator.n_features_in_ = _WIDTH.get("n_features", fields.get("n_features"), arrays, thorough=thorough)
    names = _NAMES.get("feature_names", fields.get("feature_names"), arrays, thorough=thorough)
    if names is not None:
        estimator.feature_names_in_ = names
    model = _MODELS[contents.kind]
    estimator._model = model._of_fields(model.FIELDS.get("", fields["model"], arrays, thorough=thorough))
    check_model(estimator, thorough=thorough)
    return estimator


def estimator_field(kind: Any) -> files.ContentsField:
    """Return a field that holds an estimator within another object."""
    return files.ContentsField(kind._kind, estimator_contents, partial(estimator_of, kind))
