"""Estimators in folders: every change is in a journal on disk before the call returns.

A folder is like that of a :class:`~cmt_numba.DurableTree` (:mod:`cmt_numba.journal`): it holds the last snapshot, which
is a file as ``save`` writes it, and a journal of the changes since. An entry holds the name and the version of an
operation, its arguments, and the parameters that the estimator had. What a classifier learns about its certainty when
it is first asked for probabilities is an operation too, and so are the random numbers that queries of a retriever have
drawn, so that replaying the journal gives the same estimator bit for bit.

``OPERATIONS`` is part of the format: names and arguments of entries never change their meaning. An operation with a new
meaning gets a new version, and the old version stays.
"""

from __future__ import annotations

import inspect
import json
import os
import secrets
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._validation import check_integer, unmasked
from ..journal._entries import Entry, count_argument_bytes, plain_arguments
from ..journal._fingerprint import fingerprint
from ..journal._in_folder import READ_ONLY, InFolder
from ..persistence import Contents
from ._draws import queries_drawn, streams_of
from ._files import _plain, estimator_of
from ._indicators import lists_of_names
from ._labels import check_labels
from ._values import as_values

JOURNAL = "_own_journal"
"""The attribute of an estimator in a folder."""

_CALIBRATION, _DRAW = "calibrate", "draw"
_NAMES, _PARAMETERS, _VALUE, _DRAWN = "feature_names", "parameters", "logits", "drawn"
_ANY = frozenset({"n_jobs"})  # options that take effect at the next fit, and may differ from those stored


class Operation(NamedTuple):
    """The operation of an entry."""

    method: str
    parameters: dict[str, str]  # of the method, by the names of arguments in entries


_WEIGHTS, _CLASSES = {"weights": "sample_weight"}, {"classes": "classes"}
_FIT = {"keys": "X", "labels": "y", "ids": "example_ids"} | _WEIGHTS
_FIT_MANY = {"keys": "X", "labels": "Y"}
_STORE = {"keys": "X", "values": "y"} | _WEIGHTS
OPERATIONS: dict[tuple[str, str, int], Operation] = {
    ("CMTClassifier", "fit", 2): Operation("fit", _FIT),
    ("CMTClassifier", "partial_fit", 2): Operation("partial_fit", _FIT | _CLASSES),
    ("CMTClassifier", "remove", 2): Operation("remove", {"ids": "ids"}),
    ("CMTClassifier", "remove_classes", 2): Operation("remove_classes", {"labels": "labels"}),
    ("CMTMultilabelClassifier", "fit", 2): Operation("fit", _FIT_MANY),
    ("CMTMultilabelClassifier", "fit", 3): Operation("fit", _FIT_MANY | _WEIGHTS),
    ("CMTMultilabelClassifier", "partial_fit", 2): Operation("partial_fit", _FIT_MANY | _CLASSES),
    ("CMTMultilabelClassifier", "partial_fit", 3): Operation("partial_fit", _FIT_MANY | _CLASSES | _WEIGHTS),
    ("CMTRetriever", "fit", 2): Operation("fit", _STORE),
    ("CMTRetriever", "partial_fit", 2): Operation("partial_fit", _STORE),
    ("CMTRetriever", "feedback", 2): Operation("feedback", {"keys": "X", "ids": "ids", "rewards": "rewards"}),
    ("CMTRetriever", "remove", 2): Operation("remove", {"ids": "ids"}),
    ("CMTRetriever", "replace", 2): Operation("replace", {"ids": "ids", "keys": "X"}),
    ("CMTRetriever", "set_values", 2): Operation("set_values", {"ids": "ids", "values": "y"}),
}
_VERSIONS = {(kind, name): version for kind, name, version in sorted(OPERATIONS)}  # of the entries that are written


class EstimatorJournal(InFolder):
    """The folder of an estimator.

    Parameters
    ----------
    path : path-like
        The folder.
    kind : type
        The class of the estimator.
    options : dict of str to object
        Its options.
    how : dict of str to object
        ``sync_every``, ``snapshot_bytes``, ``snapshot_seconds`` and ``read_only``.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Any, options: dict[str, Any], how: dict[str, Any]) -> None:
        if options.get("random_state") is not None:
            check_integer("random_state", options["random_state"], 0, 2**32 - 1)  # a generator could not be restored
        self._class, self._options = kind, options
        self.estimator: Any = kind(**({"random_state": secrets.randbits(31)} | _given(options)))
        self.estimator._check_parameters()
        self._kind_of_snapshot = kind._kind
        self._open_folder(path, **how)
        try:
            if self._folder.is_new:
                self._create()
            elif not self._go_through():
                message = (
                    f"{self.path}: replaying the changes since the last snapshot gave another model than before, for "
                    "example because of another processor or another version of a library; all examples are present"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=3)
            self._calibration, self._drawn = self._calibration_now(), self._drawn_now()
            if how["read_only"]:
                self._refusal = READ_ONLY
                self._folder.close()
        except BaseException:
            self._folder.close()
            raise

    @property
    def _lock(self) -> Any:  # type: ignore[override]
        return self.estimator._lock

    # Changes

    def begin(self, model: Any) -> None:
        """Note the random numbers and the calibration of a model that is about to change; None for no model."""
        self._first = None if model is None or self.estimator._kind != "CMTRetriever" else queries_drawn(model.tree)
        self._former_calibration = getattr(model, "calibration", None)

    def note(self, _model: Any) -> None:
        """Note what a change has made of the estimator, before readers can use it."""
        self._noted = _learned_calibration(self._former_calibration)  # no reader learns it from here on
        self._after, self._last = self._fingerprint(), self._drawn_now()

    def change(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a change by calling a method, and journal it."""
        name, estimator = method.__name__, self.estimator
        version = _VERSIONS[estimator._kind, name]
        operation = OPERATIONS[estimator._kind, name, version]
        bound = inspect.signature(method).bind(estimator, *args, **kwargs)
        bound.apply_defaults()  # defaults may change in later versions
        given = bound.arguments
        with self._alone():
            journaled = {
                stored: _plain_argument(estimator, name, given[name], operation)
                for stored, name in operation.parameters.items()
            }
            called = {name: journaled[stored] for stored, name in operation.parameters.items()}
            if hasattr(given.get("X"), "columns"):
                called["X"] = given["X"]  # with the names of its features
            journaled[_PARAMETERS] = _parameters_of(estimator)
            _check_parameters(self._class, journaled[_PARAMETERS])  # an entry that could not be replayed is refused
            count_argument_bytes(journaled)  # raises if an argument cannot be stored
            self._refusal = f"{name} was interrupted, and what is in memory may differ from the journal"
            before, names, started = self._fingerprint(), _names_of(estimator), perf_counter()
            self._noted, self._after, self._first, self._last = np.nan, before, self._drawn, self._drawn
            try:
                estimator._lock.change(partial(method, estimator, **called))
            except (LookupError, TypeError, ValueError, Warning):
                if _without_calibration(self._fingerprint()) == _without_calibration(before):
                    self._refusal = None
                raise
            seconds = perf_counter() - started
            self._enter_calibration(self._noted, before)
            if _names_of(estimator) != names:
                journaled[_NAMES] = np.asarray(_names_of(estimator), object)
            if self._first is not None:
                journaled[_DRAWN] = self._first
            entry = Entry(name, journaled, self._after, journal=self._folder.identity, version=version)
            self._enter(entry, seconds, True)
            self._calibration = np.nan if self._after.get("calibrated") == 0 else self._noted
            self._drawn = self._last
            self._refusal = None
            self._take_snapshot_if_due()
        return estimator

    def check_changeable(self) -> None:
        """Raise JournalError if the estimator cannot be changed."""
        with self._alone():
            pass

    def note_calibration(self) -> None:
        """Journal what the estimator has learned about its certainty."""
        with self._alone():
            self._enter_notes()
            self._sync()

    def _enter_notes(self) -> None:
        def look() -> tuple[float, int | None, dict[str, int]]:
            return self._calibration_now(), self._drawn_now(), self._fingerprint()

        noted, drawn, after = self._lock.read(look)
        self._enter_calibration(noted, after)
        if drawn != self._drawn:
            self._enter(Entry(_DRAW, {_DRAWN: drawn}, after, journal=self._folder.identity), 0.0, False)
            self._drawn = drawn

    def _enter_calibration(self, value: float, after: dict[str, int]) -> None:
        if not np.isnan(value) and value != self._calibration:
            after = after | {"calibrated": 1}
            self._enter(Entry(_CALIBRATION, {_VALUE: value}, after, journal=self._folder.identity), 0.0, False)
            self._calibration = value

    def _calibration_now(self) -> float:
        return _learned_calibration(getattr(vars(self.estimator).get("_model"), "calibration", None))

    def _drawn_now(self) -> int | None:
        """Return the state of the random numbers for queries, which learning goes on from, if queries can explore."""
        estimator = self.estimator
        if estimator._kind != "CMTRetriever" or not hasattr(estimator, "forest_"):
            return None
        return queries_drawn(estimator.forest_)

    # Opening

    def _begin_from(self, restored: Any) -> None:
        self.estimator = restored

    def _go_through(self) -> bool:
        exact = super()._go_through()
        estimator = self.estimator
        for name, value in self._options.items():
            kept = getattr(estimator, name)
            fixed = name == "random_state" or (name in estimator._fit_only and hasattr(estimator, "forest_"))
            if fixed and name not in _ANY and value not in (None, kept):
                raise ValueError(f"{name} must be {kept!r}, as for the model in {self.path}, or omitted, not {value!r}")
        estimator.set_params(**_given(self._options))
        estimator._check_parameters()
        return exact

    def _redo(self, entry: Entry, exact: bool) -> None:
        if entry.journal != self._folder.identity:
            raise ValueError("it is of another journal")
        estimator, arguments = self.estimator, dict(entry.arguments)
        if entry.name == _CALIBRATION:
            value = arguments.get(_VALUE)
            if not isinstance(value, float) or not 0.0 < value < np.inf or not hasattr(estimator._model, "calibration"):
                raise ValueError("it has no valid value")
            estimator._model.calibration[0] = value
            return
        drawn = arguments.pop(_DRAWN, None)
        if drawn is not None and not (type(drawn) is int and 0 <= drawn < 2**64):
            raise ValueError("it has no valid random number")
        if drawn is not None or entry.name == _DRAW:
            self._restore_draws(drawn)
        if entry.name == _DRAW:
            return
        operation = OPERATIONS.get((estimator._kind, entry.name, entry.version))
        if operation is None:
            raise ValueError(f"its operation {entry.name!r:.50} of version {entry.version} is unknown")
        names, parameters = arguments.pop(_NAMES, None), arguments.pop(_PARAMETERS, None)
        if arguments.keys() != operation.parameters.keys() or not isinstance(parameters, str):
            raise ValueError("it has not the arguments of its operation")
        estimator.set_params(**_check_parameters(self._class, parameters))
        kept = vars(estimator).pop("feature_names_in_", None)  # rows in entries have none
        getattr(estimator, operation.method)(
            **{name: arguments[stored] for stored, name in operation.parameters.items()}
        )
        if names is not None or (kept is not None and operation.method != "fit"):
            estimator.feature_names_in_ = kept if names is None else names

    def _restore_draws(self, drawn: int | None) -> None:
        if drawn is None or self._drawn_now() is None:
            raise ValueError("it has no random numbers for queries")
        streams_of(self.estimator.forest_)[-1] = drawn

    # What it is

    def _fingerprint(self) -> dict[str, int]:
        if not hasattr(self.estimator, "forest_"):
            return {}
        model = self.estimator._model
        if self.estimator._kind == "CMTRetriever":
            found = fingerprint(model.tree, with_draws=False) | _told_by_memories(model)
            return found | {"generator": _digest_of(model.orders)}
        index = model.index
        return fingerprint(model.tree) | {
            "n_examples": int(index.n_of_label.sum()),
            "biases": zlib.crc32(np.ascontiguousarray(index.head.nodes[0, : index.n_labels]["bias"]).tobytes()),
            "gaps": zlib.crc32(index.head.gaps.tobytes()),
            "calibrated": int(not np.isnan(self._calibration_now())),
            "generator": _digest_of(index.orders),
        }

    def _has_fingerprint(self, after: dict[str, int]) -> bool:
        return self._fingerprint() == after

    def _contents_of_snapshot(self) -> Contents:
        contents: Contents = self.estimator._contents()
        return contents

    def _made_of_snapshot(self, contents: Contents, *, values: bool = True) -> Any:
        return estimator_of(self._class, contents, thorough=True)


def journal_of(estimator: Any) -> EstimatorJournal | None:
    """Return the journal of an estimator that is kept in a folder."""
    return vars(estimator).get(JOURNAL)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "random_state" or value is not None}


def _names_of(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(names)


def _learned_calibration(kept: np.ndarray | None) -> float:
    return np.nan if kept is None else float(kept[0])


def _without_calibration(found: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in found.items() if name != "calibrated"}  # which readers may have learned


def _parameters_of(estimator: Any) -> str:
    return json.dumps({name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()})


def _check_parameters(kind: Any, parameters: str) -> dict[str, Any]:
    """Return the parameters of an entry. Raises TypeError or ValueError if an estimator cannot have them."""
    given: dict[str, Any] = json.loads(parameters)
    check_integer("random_state", given.get("random_state"), 0, 2**32 - 1)  # a generator could not be restored
    kind(**given)._check_parameters()
    return given


def _digest_of(generator: np.random.Generator) -> int:
    return zlib.crc32(json.dumps(generator.bit_generator.state, default=int, sort_keys=True).encode())


def _told_by_memories(model: Any) -> dict[str, int]:
    """Return what tells a retriever from others, beside its forest."""
    memories, learned = model.memories, [model.worth.means]
    if model.by_value is not None:
        learned.append(model.by_value.map.bias)
    return {
        "n_values": int(memories.ids.size),
        "next_value": int(memories.next_id),
        "learned": zlib.crc32(b"".join(part.tobytes() for part in learned)),
    }


def _plain_values(retriever: Any, y: Any, operation: Operation) -> Any:
    """Return values in the form in which they are both journaled and stored; objects in an array of one axis."""
    n = y.shape[0] if getattr(y, "shape", ()) else len(y)
    if operation.method == "fit" or not hasattr(retriever, "forest_"):
        return as_values(y, n)
    return retriever._model.memories.values.accept(y, n)


def _plain_argument(estimator: Any, name: str, value: Any, operation: Operation) -> Any:
    """Return an argument in the form in which it is both journaled and used."""
    if value is None:
        return None
    unmasked(name, value)
    if name == "y" and estimator._kind == "CMTRetriever":
        return _plain_values(estimator, value, operation)
    if scipy.sparse.issparse(value):
        return scipy.sparse.csr_array(value)
    lists = lists_of_names(value, expected=True) if name == "Y" else None
    if lists is not None:
        rows = np.empty(len(lists), object)
        for i, names in enumerate(lists):  # an assignment at once would take lists of one length for a matrix
            rows[i] = names
        return rows
    if name in ("y", "Y", "classes", "labels"):
        labels = np.atleast_1d(check_labels(name, value))
        if labels.dtype.kind not in "biuf":
            return labels
    if name == "X":
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            value = value.astype(np.float32)
        name = "rows"  # of any type of numbers
    return plain_arguments({name: value})[name]
