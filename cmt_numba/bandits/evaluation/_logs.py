"""Logs of decisions, and functions that read them from files."""

import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse

from ..._display import warn
from ..._validation import check_entries
from .. import _checks as checks

_SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".csv", ".csv.gz")


@dataclass(frozen=True, repr=False)
class Log:
    """A log of decisions in chronological order.

    Parameters
    ----------
    actions : array-like of int or str, shape (n,)
        The chosen actions, as numbers or names. Names are converted to numbers.
    rewards : array-like, shape (n,)
        The reward of each decision.
    contexts : array-like or sparse matrix, shape (n, n_features), optional
        The context of each decision.
    propensities : array-like, shape (n,), optional
        The probability with which each action was chosen.
    allowed : array-like, optional
        The allowed actions of all rows or of each row, as in :meth:`~cmt_numba.bandits.Policy.act`. By default, all
        actions in the log are allowed.
    times : array-like, shape (n,), optional
        The time of each decision, in ascending order.
    arms : sequence, optional
        The names of actions 0, 1, 2, ... By default, the sorted names in ``actions`` and ``allowed``.
    """

    actions: Any
    rewards: Any
    contexts: Any = None
    propensities: Any = None
    allowed: Any = None
    times: Any = None
    arms: Any = None

    _has_sorted_arms: bool = field(default=False, init=False)  # whether the user did not set the order of actions

    def __post_init__(self) -> None:
        if self.arms is None and _are_names(self.actions):
            object.__setattr__(self, "_has_sorted_arms", self.allowed is None)
            others = [] if self.allowed is None else [np.ravel(row) for row in _as_rows(self.allowed)]
            names = np.unique(np.concatenate([np.ravel(self.actions), *others]).astype(str))
            object.__setattr__(self, "arms", tuple(names.tolist()))
        if self.arms is not None:
            object.__setattr__(self, "arms", tuple(self.arms))
            object.__setattr__(self, "actions", self.numbers_of(self.actions))
            if self.allowed is not None and np.ndim(self.allowed) < 2 and not any(np.ndim(row) for row in self.allowed):
                object.__setattr__(self, "allowed", self.numbers_of(self.allowed))
            elif self.allowed is not None:
                object.__setattr__(self, "allowed", [self.numbers_of(row) for row in self.allowed])
        actions = checks.check_actions(self.actions)
        n = actions.size
        columns: dict[str, Any] = {"actions": actions, "rewards": checks.check_rewards(self.rewards, n)}
        if self.contexts is not None:
            columns["contexts"] = check_log_contexts(self.contexts)
            if columns["contexts"].shape[0] != n:
                raise ValueError(f"contexts must have {n} rows, one per action, got {columns['contexts'].shape[0]}")
        if self.propensities is not None:
            columns["propensities"] = checks.check_propensities(self.propensities, n)
        if self.times is not None:
            columns["times"] = checks.numbers("times", self.times, 1)
            if columns["times"].size != n or np.any(np.diff(columns["times"]) < 0):
                raise ValueError(f"times must have {n} entries, one for each row, in ascending order")
        columns["allowed"] = np.unique(actions) if self.allowed is None else self.allowed
        vars(self).update(columns)
        choices = self.choices()
        rows = np.repeat(np.arange(n), np.diff(choices.offsets))
        found = np.zeros(n, np.bool_)
        found[rows[choices.actions == actions[rows]]] = True
        if not np.all(found):
            row = int(np.argmin(found))
            raise ValueError(f"allowed must contain the logged actions, but row {row} does not allow {actions[row]}")

    def __len__(self) -> int:
        return int(self.actions.size)

    def __repr__(self) -> str:
        n_actions = np.unique(self.choices().actions).size
        parts = [f"{len(self):,} rows", f"{n_actions:,} actions"]
        if self.contexts is not None:
            parts.append(f"{self.contexts.shape[1]:,} features")
        parts.append(f"mean reward {self.rewards.mean():.4g}")
        parts += [f"with {name}" for name in ("propensities", "times") if getattr(self, name) is not None]
        return f"Log({', '.join(parts)})"

    def numbers_of(self, actions: Any) -> np.ndarray:
        """Convert action names to numbers. Numbers are returned unchanged."""
        if not _are_names(actions):
            return np.asarray(actions)
        places = {str(name): i for i, name in enumerate(self.arms or ())}
        unknown = [name for name in np.ravel(actions) if str(name) not in places]
        if unknown:
            raise ValueError(f"actions must be integers or names in arms, got {unknown[0]!r:.40}")
        return np.array([places[str(name)] for name in np.ravel(actions)], np.int64)

    def choices(self) -> checks.Choices:
        """Return the allowed actions of each row."""
        return checks.check_choices(self.allowed, len(self))

    def take(self, rows: Any) -> "Log":
        """Return a log of the rows selected by a slice, a mask or an array of indices."""
        for_all = not self._is_by_row()
        parts = {name: getattr(self, name) for name in ("contexts", "propensities", "times")}
        parts = {name: None if part is None else part[rows] for name, part in parts.items()}
        if for_all or isinstance(self.allowed, np.ndarray):
            allowed = self.allowed if for_all else self.allowed[rows]
        else:
            allowed = [self.allowed[i] for i in np.arange(len(self))[rows]]
        taken = Log(self.actions[rows], self.rewards[rows], allowed=allowed, arms=self.arms, **parts)
        object.__setattr__(taken, "_has_sorted_arms", self._has_sorted_arms)
        return taken

    def allowed_between(self, first: int, stop: int) -> Any:
        """Return the allowed actions of rows ``first:stop`` in a format that ``act`` accepts."""
        return self.allowed[first:stop] if self._is_by_row() else self.allowed

    def allowed_names_between(self, first: int, stop: int) -> list[list[str]]:
        """Return the names of the actions that each of the rows ``first:stop`` allows."""
        choices = self.choices().part(first, stop)
        names = [self.arms[action] for action in choices.actions.tolist()]
        return [names[a:b] for a, b in pairwise(choices.offsets.tolist())]

    def with_columns(self, name: str, table: Any, first: int = 0, stop: int | None = None) -> np.ndarray:
        """Return a value for each of the allowed actions of rows ``first:stop``: float64, shape (n, k).

        A data frame or a mapping has a column for each action, by its name or number. Arrays correspond to ``allowed``.
        """
        if not isinstance(table, Mapping) and not hasattr(table, "columns"):
            array = checks.numbers(name, table, 2)
            if self._has_sorted_arms and array.shape[1] == len(self.arms):
                shown = ", ".join(self.arms[:5]) + (", ..." if len(self.arms) > 5 else "")
                warn(
                    f"the columns of the array {name} are read in the order of the sorted names: {shown}. Pass a data "
                    "frame or a dict with a column for each name, or pass arms to Log, which sets their order",
                    UserWarning,
                )
            return array
        choices = self.choices().part(first, len(self) if stop is None else stop)
        known, places = np.unique(choices.actions, return_inverse=True)
        keys = known.tolist() if self.arms is None else [self.arms[action] for action in known]
        missing = [key for key in keys if key not in table]
        if missing:
            raise ValueError(f"{name} must have a column for each allowed action, but {missing[0]!r} is missing")
        columns = checks.numbers(name, np.column_stack([table[key] for key in keys]), 2)
        check_entries(name, columns.shape[0], choices.shape[0], "rows")
        answer = np.zeros(choices.shape)
        rows = np.repeat(np.arange(choices.shape[0]), choices.sizes)
        answer.reshape(-1)[choices.places - first * choices.shape[1]] = columns[rows, places]
        return answer

    def _is_by_row(self) -> bool:
        return np.ndim(self.allowed[0]) == 1

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        action: str = "action",
        reward: str = "reward",
        propensity: str | None = None,
        context: str | Sequence[str] | None = None,
        allowed: str | None = None,
        time: str | None = None,
    ) -> Self:
        """Create a log from a data frame.

        Parameters
        ----------
        frame : DataFrame
            Data frame with one row per decision.
        action, reward : str
            Names of the columns of actions and rewards.
        propensity, time : str, optional
            Names of the columns of propensities and times.
        context : str or sequence of str, optional
            Names of numeric columns that form the contexts, or the name of one column of lists of numbers.
        allowed : str, optional
            Name of a column that contains a list of allowed actions in each row.
        """
        named = [action, reward, propensity, allowed, time, *([context] if isinstance(context, str) else context or [])]
        for name in named:
            if name is not None and name not in frame.columns:
                raise KeyError(f"frame must have the column {name!r}, but has {', '.join(map(repr, frame.columns))}")

        def column(name: str | None) -> Any:
            return None if name is None else np.asarray(frame[name])

        contexts = None
        if context is not None and len(context) == 1 and len(frame) > 0 and np.ndim(frame[context[0]].iloc[0]) == 1:
            context = context[0]  # a column of lists
        if isinstance(context, str):
            contexts = _lists(context, frame[context])
        elif context is not None:
            contexts = np.column_stack([_numbers(name, frame[name]) for name in context])
        sets = None if allowed is None else [np.asarray(row) for row in frame[allowed]]
        if sets is not None and any(row.ndim != 1 for row in sets):
            raise TypeError(f"the column {allowed!r} must contain a list of allowed actions in each row")
        return cls(
            actions=column(action),
            rewards=column(reward),
            contexts=contexts,
            propensities=column(propensity),
            allowed=sets,
            times=column(time),
        )


def check_log_contexts(contexts: Any) -> Any:
    """Convert contexts to a float64 array, or to a CSR array if they are sparse."""
    if not scipy.sparse.issparse(contexts):
        return checks.check_contexts(contexts, None)
    rows = scipy.sparse.csr_array(contexts)
    checks.numbers("contexts", rows.data, 1)
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError(f"contexts must have at least one row and one feature, got shape {rows.shape}")
    rows = scipy.sparse.csr_array((rows.data.astype(np.float64), rows.indices, rows.indptr), rows.shape)
    rows.sum_duplicates()
    return rows


def _numbers(name: str, column: Any) -> np.ndarray:
    try:
        return np.asarray(column, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the column {name!r} of contexts must contain numbers: {error}; encode categories as numeric columns, for "
            "example with pandas.get_dummies"
        ) from error


def _lists(name: str, column: Any) -> np.ndarray:
    rows = [_numbers(name, row) for row in column]
    if len({row.shape for row in rows}) > 1:
        raise ValueError(f"the column {name!r} of contexts must contain lists of the same length")
    return np.array(rows)


def _are_names(actions: Any) -> bool:
    return np.asarray(actions).dtype.kind in "UO" and all(isinstance(name, str) for name in np.ravel(actions))


def _as_rows(allowed: Any) -> list[Any]:
    """Return allowed actions as a list of rows, with a single row if all rows of the log allow the same actions."""
    rows = list(allowed)
    return rows if any(np.ndim(row) for row in rows) else [rows]


def number_names(actions: Any, names: list[str]) -> Any:
    """Return allowed actions with numbers instead of names. Unknown names are appended to ``names``."""
    rows = _as_rows(actions)
    if not isinstance(next(iter(np.ravel(rows[0])), None), str):
        return actions
    numbers = {name: i for i, name in enumerate(names)}
    numbered = [[numbers.setdefault(str(name), len(numbers)) for name in row] for row in rows]
    names.extend(list(numbers)[len(names) :])
    return numbered if any(np.ndim(row) for row in actions) else numbered[0]


def read_log(path: Any, **columns: Any) -> Log:
    """Read a log from a Parquet, CSV or JSONL file, recognized by its suffix, or from a data frame.

    CSV and JSONL files may be gzipped. Column names are passed to :meth:`Log.from_frame`.
    """
    if hasattr(path, "columns"):
        return Log.from_frame(path, **columns)
    name = Path(path).name.lower()
    if not name.endswith(_SUFFIXES):
        raise ValueError(f"{os.fspath(path)}: the suffix must be one of {', '.join(_SUFFIXES)}")
    pandas = import_module("pandas")
    read = pandas.read_parquet if name.endswith(".parquet") else pandas.read_csv
    read = partial(pandas.read_json, lines=True) if ".jsonl" in name else read
    try:
        return Log.from_frame(read(path), **columns)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = "is damaged or incomplete and cannot be decompressed; use a complete copy"
        raise ValueError(f"{os.fspath(path)}: {reason}") from error
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{os.fspath(path)}: {error}") from error
