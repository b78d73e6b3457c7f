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
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse

from .._change import ReadWriteLock
from .._validation import check_integer, unmasked
from ..journal import (
    CURRENT,
    Arguments,
    Durability,
    Entry,
    Journal,
    Operation,
    count_argument_bytes,
    find_operation,
    fingerprint,
    plain_arguments,
)
from ..persistence import Contents
from ._aside import queries_drawn, streams_of
from ._files import _plain, estimator_of
from ._indicators import lists_of_names
from ._labels import check_labels
from ._values import as_values

FORM = "_own_form"
"""The attribute of an estimator in a folder that says how it is kept there."""

_CALIBRATION, _DRAW = "calibrate", "draw"
_NAMES, _PARAMETERS, _VALUE, _DRAWN = "feature_names", "parameters", "logits", "drawn"
_ANY = frozenset({"n_jobs"})  # options that take effect at the next fit, and may differ from those stored


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


class _EstimatorForm:
    """How an estimator is kept in a folder: its operations, and what queries learn or draw.

    Attributes
    ----------
    estimator : SavableEstimator
        The estimator in use.
    """

    unread: frozenset[str] = frozenset()

    def __init__(self, kind: Any, options: dict[str, Any]) -> None:
        if options.get("random_state") is not None:
            check_integer("random_state", options["random_state"], 0, 2**32 - 1)  # a generator could not be restored
        self._class, self._options, self.kind = kind, options, kind._kind
        self.journal: Journal | None = None  # None until the folder is open
        self.estimator: Any = kind(**({"random_state": secrets.randbits(31)} | _given(options)))
        self.estimator._check_all_parameters()
        self._calibration: float = np.nan  # what the journal has of what queries learn
        self._drawn: int | None = None  # and of what they draw

    @property
    def lock(self) -> ReadWriteLock:
        lock: ReadWriteLock = self.estimator._lock
        return lock

    # Changes

    def change(
        self, method: Callable[..., Any], args: Any, kwargs: Any, make: Callable[[Callable[[Any], Any], Any], Any]
    ) -> Any:
        """Call a method of the estimator as a journaled change.

        ``make`` has a function of the estimator to be changed be one change, and calls another one at its end.
        """
        assert self.journal is not None
        name, estimator = method.__name__, self.estimator
        version = _VERSIONS[estimator._kind, name]
        operation = OPERATIONS[estimator._kind, name, version]
        bound = inspect.signature(method).bind(estimator, *args, **kwargs)
        bound.apply_defaults()  # defaults may change in later versions
        given = bound.arguments

        def make_with_entry() -> tuple[Any, Entry]:
            journaled = {
                stored: _plain_argument(estimator, name, given[name], operation)
                for stored, name in operation.parameters.items()
            }
            called = operation.called(journaled)
            if hasattr(given.get("X"), "columns"):
                called["X"] = given["X"]  # with the names of its features
            journaled[_PARAMETERS] = _parameters_of(estimator)
            _check_parameters(self._class, journaled[_PARAMETERS])  # an entry that could not be replayed is refused
            count_argument_bytes(journaled)  # raises if an argument cannot be stored
            names, before = _names_of(estimator), self.fingerprint()
            calibration, after = np.nan, before
            first = last = self._drawn
            learned: np.ndarray | None = None

            def work(target: Any) -> None:
                nonlocal learned, first
                first, learned = _drawn_by(target), vars(target).get("_calibration")
                method(target, **called)

            def look(target: Any) -> None:
                nonlocal calibration, after, last
                calibration = _learned_calibration(learned)  # no reader learns it from here on
                after, last = self.fingerprint(target), _drawn_by(target)

            make(work, look)
            self._enter_calibration(calibration, before)
            if _names_of(estimator) != names:
                journaled[_NAMES] = np.asarray(_names_of(estimator), object)
            if first is not None:
                journaled[_DRAWN] = first
            self._calibration, self._drawn = np.nan if after.get("calibrated") == 0 else calibration, last
            return estimator, self._entry(name, journaled, after, version)

        return self.journal.change(make_with_entry)

    def _entry(self, name: str, arguments: Arguments, after: dict[str, int], version: int = CURRENT) -> Entry:
        assert self.journal is not None
        return Entry(name, arguments, after, journal=self.journal.identity, version=version)

    def enter_notes(self) -> None:
        def look() -> tuple[float, int | None, dict[str, int]]:
            return _calibration_of(self.estimator), _drawn_by(self.estimator), self.fingerprint()

        calibration, drawn, after = self.lock.read(look)
        self._enter_calibration(calibration, after)
        if drawn != self._drawn:
            assert self.journal is not None
            self.journal.note(self._entry(_DRAW, {_DRAWN: drawn}, after))
            self._drawn = drawn

    def _enter_calibration(self, value: float, after: dict[str, int]) -> None:
        if not np.isnan(value) and value != self._calibration:
            assert self.journal is not None
            self.journal.note(self._entry(_CALIBRATION, {_VALUE: value}, after | {"calibrated": 1}))
            self._calibration = value

    def _take_note(self) -> None:
        """Note that the journal has all that queries have learned and drawn."""
        self._calibration, self._drawn = _calibration_of(self.estimator), _drawn_by(self.estimator)

    def mark(self) -> Any:
        return _without_calibration(self.fingerprint())

    def is_changed(self, mark: Any, error: BaseException) -> bool:
        """Return whether the estimator has changed. Arguments are checked first, but within the step of a change."""
        is_refusal = isinstance(error, LookupError | TypeError | ValueError | Warning)
        return not is_refusal or _without_calibration(self.fingerprint()) != mark

    # Files

    def contents(self) -> Contents:
        contents: Contents = self.estimator._contents()
        return contents

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        return estimator_of(self._class, contents, thorough=True)

    def use(self, made: Any) -> None:
        if self.journal is None:
            self._check_options(made)
            self.estimator = made
        else:
            self.lock.change(partial(self.lock.step, partial(self.estimator._become, made)))
        self._take_note()

    def _check_options(self, estimator: Any) -> None:
        """Set the options that were given, or raise ValueError if they do not fit the estimator in the folder."""
        for name, value in self._options.items():
            kept = getattr(estimator, name)
            fixed = name == "random_state" or (name in estimator._fit_only and hasattr(estimator, "forest_"))
            if fixed and name not in _ANY and value not in (None, kept):
                raise ValueError(f"{name} must be {kept!r}, as for the model in the folder, or omitted, not {value!r}")
        estimator.set_params(**_given(self._options))
        estimator._check_all_parameters()

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        estimator = self.estimator if made is None else made
        if not hasattr(estimator, "forest_"):
            return {}
        orders = json.dumps(estimator._orders.bit_generator.state, default=int, sort_keys=True)
        found = {"generator": zlib.crc32(orders.encode())}
        if estimator._kind == "CMTRetriever":
            return fingerprint(estimator.forest_, with_draws=False) | found | _told_by_memories(estimator)
        n_labels = int(estimator.forest_.n_memories)
        return (
            fingerprint(estimator.forest_)
            | {
                "n_examples": int(estimator._n_of_label.sum()),
                "biases": zlib.crc32(np.ascontiguousarray(estimator.head_.nodes[0, :n_labels]["bias"]).tobytes()),
                "gaps": zlib.crc32(estimator.head_.gaps.tobytes()),
                "calibrated": int(not np.isnan(_calibration_of(estimator))),
            }
            | found
        )

    def has_fingerprint(self, made: Any, after: dict[str, int]) -> bool:
        return self.fingerprint(made) == after

    # Replaying

    def recover(self, replay_all: Callable[[], tuple[Any, bool]]) -> tuple[Any, bool]:
        return replay_all()

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        arguments = dict(entry.arguments)
        if entry.name == _CALIBRATION:
            value = arguments.get(_VALUE)
            if not isinstance(value, float) or not 0.0 < value < np.inf or not hasattr(made, "_calibrated"):
                raise ValueError("it has no valid value")
            made._calibrated()[0] = value
            return
        drawn = arguments.pop(_DRAWN, None)
        if drawn is not None or entry.name == _DRAW:
            if type(drawn) is not int or not 0 <= drawn < 2**64 or _drawn_by(made) is None:
                raise ValueError("it has no valid random number")
            streams_of(made.forest_)[-1] = drawn
        if entry.name == _DRAW:
            return
        operation = find_operation(OPERATIONS, entry.name, entry.version, made._kind)
        names, parameters = arguments.pop(_NAMES, None), arguments.pop(_PARAMETERS, None)
        if not isinstance(parameters, str):
            raise ValueError("it has no parameters")
        made.set_params(**_check_parameters(self._class, parameters))
        kept = vars(made).pop("feature_names_in_", None)  # rows in entries have none
        operation.call(made, operation.called(arguments))
        if names is not None or (kept is not None and operation.method != "fit"):
            made.feature_names_in_ = kept if names is None else names


class KeptInFolder:
    """The methods of an estimator that may be kept in a folder."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        sync_every: int = 1,
        snapshot_bytes: int = 1 << 26,
        snapshot_seconds: float = 10.0,
        read_only: bool = False,
        **options: Any,
    ) -> Self:
        """Return the estimator in a folder, whose changes survive a crash.

        Every change is on disk before the call returns: ``fit``, ``partial_fit``, ``remove``, ``remove_classes``,
        ``calibrate``, ``feedback``, ``replace`` and ``set_values``, as far as the class has them. A change that fails
        half-way or is interrupted changes nothing: the estimator is read again from the folder, which takes about as
        long as opening it. It can be used in a ``with`` statement, and its copies are in
        memory. Values of a retriever must be such as ``save`` can write; others are refused, and nothing has changed
        then. Random numbers that its queries draw are on disk with the next change, and at the latest when it is
        closed.

        Parameters
        ----------
        path : path-like
            The folder: empty, or that of such an estimator. If it does not exist, it is created with access for its
            owner only; its parent must exist.
        sync_every : int, default 1
            The number of changes after which to wait for the disk. With more than 1, a crash of the machine may lose
            up to ``sync_every - 1`` of the last changes; a crash of the process loses none.
        snapshot_bytes : int, default 2**26
            The size of the journal, in bytes, above which a snapshot replaces it; at least the size of the last one.
        snapshot_seconds : float, default 10.0
            The total time of the changes in the journal, in seconds, above which a snapshot replaces it; at least 4
            times the time of the last one. Opening the folder takes about this long.
        read_only : bool, default False
            Open an existing estimator for answers and write nothing, for example if the disk is full or cannot be
            written. Changes are not possible. The folder is not locked: other processes may open it afterwards, and
            their changes are not seen. A folder that is open for changes cannot be opened.
        **options
            Options of the class. In an existing folder they replace those stored, like ``set_params``, and are stored
            with the next change. Those that only count when it first learns must be those stored or be omitted.
            ``random_state`` must be an int or None, for which a number is drawn once.

        Returns
        -------
        estimator
            The estimator.

        Raises
        ------
        cmt_numba.journal.AlreadyOpenError
            If the folder is already open in this or another process.
        cmt_numba.persistence.FileFormatError
            If the folder is damaged, of a later version, or not that of such an estimator.
        OSError
            If the folder cannot be read or written.
        TypeError, ValueError
            If an option cannot be used.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> folder = tempfile.TemporaryDirectory()
        >>> with CMTClassifier.open(folder.name, random_state=0) as classifier:
        ...     _ = classifier.partial_fit(np.eye(3), ["a", "b", "c"]).remove_classes(["c"])
        >>> with CMTClassifier.open(folder.name) as classifier:
        ...     classifier.predict(np.eye(3)[:2]).tolist()
        ['a', 'b']
        >>> folder.cleanup()
        """
        form, durability = _EstimatorForm(cls, options), Durability(sync_every, snapshot_bytes, snapshot_seconds)
        form.journal = Journal(path, form, durability, read_only=bool(read_only))
        estimator: Self = form.estimator
        vars(estimator)[FORM] = form
        return estimator

    def checkpoint(self) -> None:
        """Replace the journal by a snapshot, so that the folder opens faster.

        That happens by itself when the journal gets long. Take one before the folder is opened by another version of a
        library or on another kind of processor.

        Raises
        ------
        JournalError
            If the estimator is closed, or could not be written.
        ValueError
            If it is not in a folder.
        """
        journal = journal_of(self)
        if journal is None:
            raise ValueError(f"there is no folder: make the estimator by {type(self).__name__}.open, or call save")
        journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, if there is one. Then it still answers, but cannot change."""
        journal = journal_of(self)
        if journal is not None:
            journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def form_of(estimator: Any) -> _EstimatorForm | None:
    """Return how an estimator is kept in its folder; None if it is in none."""
    return vars(estimator).get(FORM)


def journal_of(estimator: Any) -> Journal | None:
    """Return the journal of an estimator that is kept in a folder."""
    form = form_of(estimator)
    return None if form is None else form.journal


def _calibration_of(estimator: Any) -> float:
    return _learned_calibration(vars(estimator).get("_calibration"))


def _drawn_by(estimator: Any) -> int | None:
    """Return the state of the random numbers for queries, which learning goes on from, if queries can explore."""
    if estimator._kind != "CMTRetriever" or not hasattr(estimator, "forest_"):
        return None
    return queries_drawn(estimator.forest_)


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
    kind(**given)._check_all_parameters()
    return given


def _told_by_memories(retriever: Any) -> dict[str, int]:
    """Return what tells a retriever from others, beside its forest."""
    memories, learned = retriever._memories, [retriever._worth.means]
    if retriever.search_ == "value":
        learned.append(retriever.expectation_.bias)
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
    return retriever._memories.values.accept(y, n)


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
