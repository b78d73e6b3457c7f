"""Durable estimators, whose changes are on disk before each call returns.

The folder of an estimator (:mod:`cmt_numba.journal`) holds a snapshot, in the format of ``save``, and a journal of
later changes. A journal entry holds the name, version and
arguments of an operation, and the parameters of the estimator. The calibration that a classifier learns on first use is
journaled too. Replaying the journal therefore restores the estimator bit for bit.

``OPERATIONS`` is part of the format: the names and arguments of entries never change their meaning. An operation with a
new meaning gets a new version, and the old version remains.
"""

import json
import math
import secrets
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from .._arrays import WeightedRows
from .._validation import check_integer, label_array, unmasked
from ..journal import Arguments, Entry, ObjectForm, Operation, check_same_option, find_operation, plain_arguments
from ..persistence import NUMBERS, generator_digest
from ..tree import fingerprint, forest_of
from ._fields import _plain, read_parameters
from ._indicators import lists_of_names
from ._labels import check_labels
from ._tree_model import TreeModel
from ._values import as_values

CHECKED = "_checked_parameters"  # attribute of an estimator that holds the values of its parameters at their last check
_CALIBRATION = "calibrate"
_NAMES, _PARAMETERS, _VALUE = "feature_names", "parameters", "logits"
_WEIGHTED = "weighted"  # whether the rows are marked as weighted already
_NUMBERS = frozenset(NUMBERS.values())


_WEIGHTS, _CLASSES = {"weights": "sample_weight"}, {"classes": "classes"}
_FIT = {"keys": "X", "labels": "y", "ids": "example_ids"} | _WEIGHTS
_SCALES = {"scales": "scales"}
_FIT_MANY = {"keys": "X", "labels": "Y"}
_STORE = {"keys": "X", "values": "y"} | _WEIGHTS
OPERATIONS: dict[tuple[str, str, int], Operation] = {
    ("CMTClassifier", "fit", 1): Operation("fit", _FIT | _SCALES),
    ("CMTClassifier", "partial_fit", 1): Operation("partial_fit", _FIT | _CLASSES | _SCALES),
    ("CMTClassifier", "remove", 1): Operation("remove", {"ids": "ids"}),
    ("CMTClassifier", "remove_classes", 1): Operation("remove_classes", {"labels": "labels"}),
    ("CMTMultilabelClassifier", "fit", 1): Operation("fit", _FIT_MANY | _WEIGHTS),
    ("CMTMultilabelClassifier", "partial_fit", 1): Operation("partial_fit", _FIT_MANY | _CLASSES | _WEIGHTS),
    ("CMTRetriever", "fit", 1): Operation("fit", _STORE),
    ("CMTRetriever", "partial_fit", 1): Operation("partial_fit", _STORE),
    ("CMTRetriever", "feedback", 1): Operation("feedback", {"keys": "X", "ids": "ids", "rewards": "rewards"}),
    ("CMTRetriever", "remove", 1): Operation("remove", {"ids": "ids"}),
    ("CMTRetriever", "replace", 1): Operation("replace", {"ids": "ids", "keys": "X"}),
    ("CMTRetriever", "set_values", 1): Operation("set_values", {"ids": "ids", "values": "y"}),
}
_VERSIONS = {(kind, name): version for kind, name, version in sorted(OPERATIONS)}  # latest versions only


class EstimatorFolder(ObjectForm):
    """Adapter between an estimator and its journal."""

    def __init__(self, kind: Any, options: dict[str, Any]) -> None:
        if options.get("random_state") is not None:
            check_integer("random_state", options["random_state"], 0, 2**32 - 1)  # a replay cannot restore generators
        super().__init__(kind, {"random_state": secrets.randbits(31)} | _given(options))
        self.options, self.kind = options, kind._kind
        self.owner._check_parameters()
        self._journaled: np.ndarray | None = None  # the array of the calibration that was journaled last
        self._calibration = math.nan  # its value then
        self._checked: object = None  # the parameters checked last
        self._parameters = ""  # as JSON
        self._stored = self.owner.get_params(deep=False)  # the parameters in the folder when it was read last

    # Changes

    def make(self, method: Callable[..., Any], given: Arguments) -> Any:
        """Call a method of the estimator, and append its entry to the journal."""
        name, estimator = method.__name__, self.owner
        version = _VERSIONS[self.kind, name]
        operation = OPERATIONS[self.kind, name, version]
        journaled, called = {}, {}
        for stored, parameter in operation.parameters.items():
            value = given[parameter]
            value = None if value is None else _plain_argument(estimator, parameter, value, operation)
            journaled[stored] = called[parameter] = value
        if hasattr(given.get("X"), "columns"):
            called["X"] = given["X"]  # the method also needs the feature names of a data frame
        if isinstance(given.get("X"), WeightedRows):
            journaled[_WEIGHTED], called["X"] = True, given["X"]
        journaled[_PARAMETERS] = self._checked_parameters()
        former_names = getattr(estimator, "feature_names_in_", None)
        method(estimator, **called)
        names = getattr(estimator, "feature_names_in_", None)
        if names is not None and (former_names is None or not np.array_equal(names, former_names)):
            journaled[_NAMES] = np.asarray(names, object)
        self.journal.append(Entry(name, journaled, self.fingerprint(), version=version))
        self.enter_notes()
        return estimator

    def _checked_parameters(self) -> str:
        """Return the parameters as JSON. Raise TypeError or ValueError if an entry with them could not be replayed."""
        estimator = self.owner
        estimator._check_parameters()
        checked = vars(estimator)[CHECKED]
        if checked is not self._checked or isinstance(getattr(estimator, "class_weight", None), dict):
            parameters = estimator.get_params(deep=False)
            self._parameters = json.dumps({name: _plain(name, value) for name, value in parameters.items()})
            _check_parameters(type(self.owner), self._parameters)
            self._checked = checked
        return self._parameters

    def enter_notes(self) -> None:
        """Journal the calibration if queries have changed it since the last change."""
        array, value = self._current_calibration()
        if not math.isnan(value) and (array is not self._journaled or value != self._calibration):
            self.journal.note(Entry(_CALIBRATION, {_VALUE: value}, None))
            self._journaled, self._calibration = array, value

    def _current_calibration(self) -> tuple[np.ndarray | None, float]:
        """Return the array of the calibration, which changes with the scores, and its value."""
        array = getattr(vars(self.owner).get("_model"), "calibration", None)
        return array, math.nan if array is None else float(array[0])

    # Files

    def twin(self) -> Any:
        """Return an estimator in memory that shares the state and the lock, with the parameters in the folder."""
        twin = super().twin()
        vars(twin).update(self._stored)
        return twin

    def use(self, made: Any) -> None:
        """Replace the estimator with one read from the folder or, if it is open, only the learned attributes.

        The estimator of a reader also takes over the parameters that the writer has changed, except the given options.
        """
        stored = made.get_params(deep=False)
        if self.is_open:
            changed = {}
            if not self.journal.is_writable:
                changed = {name: value for name, value in stored.items() if value != self._stored[name]}
            followed = {name: value for name, value in changed.items() if name not in self.options}
            self.lock.step(partial(self.owner._take_over, made, **followed))
        else:
            self._set_options(made)
            self.put(made)
        self._stored = stored
        self._journaled, self._calibration = self._current_calibration()

    def _set_options(self, estimator: Any) -> None:
        """Apply the given parameters, or raise ValueError if one contradicts the stored estimator."""
        for name, value in self.options.items():
            kept = getattr(estimator, name)
            fixed = name == "random_state" or (name in estimator._fit_only and estimator.__sklearn_is_fitted__())
            if fixed and value is not None:
                check_same_option(name, value, kept, "estimator")
        estimator.set_params(**_given(self.options))
        estimator._check_parameters()

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        estimator = self.owner if made is None else made
        if (model := vars(estimator).get("_model")) is None:
            return {}
        if self.kind == "CMTRetriever":
            return _fingerprint_of_memories(model) | {"generator": generator_digest(model.orders)}
        if isinstance(model, TreeModel):
            return fingerprint(forest_of(model.tree))
        index = model.index
        return {
            "n_labels": index.n_labels,
            "n_examples": int(index.n_of_label.sum()),
            "biases": zlib.crc32(np.ascontiguousarray(index.head.labels[0, : index.n_labels]["bias"]).tobytes()),
            "gaps": zlib.crc32(index.head.gaps.tobytes()),
            "generator": generator_digest(index.orders),
        }

    # Replaying

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        arguments = dict(entry.arguments)
        if entry.name == _CALIBRATION:
            value = arguments.get(_VALUE)
            if not isinstance(value, float) or not 0.0 < value < np.inf or not hasattr(made._model, "calibration"):
                raise ValueError("its calibration is invalid")
            made._model.calibration[0] = value
            return
        if arguments.pop(_WEIGHTED, False):
            arguments["keys"] = WeightedRows(arguments["keys"])
        operation = find_operation(OPERATIONS, entry.name, entry.version, made._kind)
        names, parameters = arguments.pop(_NAMES, None), arguments.pop(_PARAMETERS, None)
        if not isinstance(parameters, str):
            raise ValueError("its parameters are missing")
        made.set_params(**_check_parameters(type(self.owner), parameters))
        kept = vars(made).pop("feature_names_in_", None)  # rows in entries have no feature names
        operation.call(made, operation.called(arguments))
        if names is not None or (kept is not None and operation.method != "fit"):
            made.feature_names_in_ = kept if names is None else names


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "random_state" or value is not None}


def _check_parameters(kind: Any, parameters: str) -> dict[str, Any]:
    given: dict[str, Any] = read_parameters(json.loads(parameters))
    check_integer("random_state", given.get("random_state"), 0, 2**32 - 1)  # a replay cannot restore generators
    kind(**given)._check_parameters()
    return given


def _fingerprint_of_memories(model: Any) -> dict[str, int]:
    memories, learned = model.memories, []
    if model.learned is not None:
        learned.append(model.learned.model.weights)
    if model.by_value is not None:
        learned.append(model.by_value.map.bias)
    return {
        "n_keys": len(model.index),
        "n_values": int(memories.ids.size),
        "next_value": int(memories.next_id),
        "learned": zlib.crc32(b"".join(part.tobytes() for part in learned)),
    }


def _plain_argument(estimator: Any, name: str, value: Any, operation: Operation) -> Any:
    """Return an argument as it is journaled and passed to the method."""
    if name == "y" and estimator._kind == "CMTRetriever":
        unmasked(name, value)
        n = value.shape[0] if getattr(value, "shape", ()) else len(value)
        if operation.method == "fit" or not estimator.__sklearn_is_fitted__():
            return as_values(value, n)
        return estimator._model.memories.values.accept(value, n)
    if type(value) is np.ndarray and value.ndim > 0 and value.dtype in _NUMBERS:
        return value
    unmasked(name, value)
    if scipy.sparse.issparse(value):
        return scipy.sparse.csr_array(value)
    lists = lists_of_names(value, expected=True) if name == "Y" else None
    if lists is not None:
        rows = np.empty(len(lists), object)
        for i, names in enumerate(lists):  # NumPy would turn lists of equal length into a matrix
            rows[i] = names
        return rows
    if name in ("y", "Y", "classes", "labels"):
        labels = np.atleast_1d(check_labels(name, value))
        if labels.dtype.kind not in "biuf":
            return labels
    if name in ("example_ids", "ids"):
        given = np.atleast_1d(label_array(name, value))
        if given.dtype.kind in "UO":
            return given
    if name == "X":
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            value = value.astype(np.float32)
        name = "rows"  # a name for which any numeric dtype is valid
    return plain_arguments({name: value})[name]
