"""Estimators in files and pickles.

A file has the parameters of an estimator as JSON, and the fields of its model (``FIELDS`` of the model's class).
"""

from typing import Any

import numpy as np

from .. import persistence as files
from .._forest import writeable

LEARNED = frozenset({"n_features_in_", "feature_names_in_", "_model"})
"""Learned attributes of an estimator. Other attributes are parameters, or set by the user."""


def pickled_model(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields and copies of the arrays of a model for a pickle."""
    arrays = files.PickledArrays()
    fields = model.FIELDS.put("", model, arrays)
    return fields, {name: array.copy() for name, array in arrays.items()}


def unpickled_model(model: Any, fields: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the model of class ``model`` from the fields and the arrays in a pickle."""
    given = files.PickledArrays({name: writeable(array) for name, array in arrays.items()})
    return model._of_fields(model.FIELDS.get("", fields, given, thorough=False))


class ParametersField:
    """The parameters of an estimator."""

    def put(self, name: str, value: Any, arrays: files.Arrays) -> dict[str, Any]:
        return {key: _plain(key, parameter) for key, parameter in value.items()}

    def get(self, name: str, field: Any, arrays: files.Arrays, *, thorough: bool) -> dict[str, Any]:
        return read_parameters(self.put(name, files.as_mapping(name, field), arrays))


def fields_of_estimator(model: type[files.WithFields]) -> files.FieldTable:
    """Return the fields of an estimator with a model of this class. Before the first fit, only parameters are set."""
    return files.FieldTable(
        parameters=ParametersField(),
        n_features_in_=files.OptionalField(files.NumberField()),
        feature_names_in_=files.OptionalField(files.LabelsField()),
        _model=files.OptionalField(files.PartField(model)),
    )


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
