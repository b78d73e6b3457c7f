"""The kinds of a table's columns: number, category or text."""

import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ._text import FormatError

KINDS = ("number", "category", "text")

_ID_NAME = re.compile(r"(.*[\W_])?(id|uuid|guid|key|index|row|nr|no|unnamed: 0)", re.IGNORECASE)
_MOST_WORDS = 5  # maximum mean number of words per value of a category column


def kinds_of(given: Sequence[str]) -> dict[str, str]:
    """Return a dictionary of column kinds from entries of the form ``column=kind``."""
    kinds = {}
    for entry in given:
        name, equals, kind = entry.rpartition("=")
        if not equals or kind not in KINDS:
            raise ValueError(f"a column kind must be COLUMN=KIND, with one of {', '.join(KINDS)}, got {entry!r}")
        kinds[name] = kind
    return kinds


class KindsOfColumns:
    """Detection of column kinds. Kinds given by the caller take precedence.

    A column of numbers has the kind ``number``. The first frame that contains another value decides the kind of any
    other column: ``category`` if values have on average at most five words and at least two occurrences in this frame,
    or else ``text``. Columns such as "id" with a different value in each row are identifiers, not features.

    - ``given``: known kinds as ``column=kind``.
    - ``unknown``: the columns without a given kind.
    """

    def __init__(self, path: Path, columns: Sequence[str], given: Sequence[str]) -> None:
        self._path, self._columns, self._kinds = path, columns, kinds_of(given)
        self._any_given = bool(given)
        self._are_ids: dict[str, bool] = {}  # by column, decided by the first frame
        for name in self._kinds:
            if name not in columns:
                shown = ", ".join(map(repr, columns))
                raise FormatError(path, f"kinds must name feature columns, which are {shown}, got {name!r}")
        self.unknown = [name for name in columns if name not in self._kinds]

    def look_at(self, frame: Any) -> None:
        """Update the kinds of the unknown columns from more rows."""
        for name in self.unknown:
            if name not in self._are_ids:
                self._are_ids[name] = _is_id(name, frame[name])
            if self._kinds.get(name, "number") == "number":
                self._kinds[name] = _kind_of(frame[name])

    def ids(self) -> tuple[str, ...]:
        """Return the columns without a given kind that seem to identify rows, unless there are no other columns."""
        ids = tuple(name for name, is_id in self._are_ids.items() if is_id)
        return ids if len(ids) < len(self._columns) else ()

    def found(self) -> tuple[str, ...] | None:
        """Return the kinds of all columns as ``column=kind``, or None if a column contains lists of numbers."""
        lists = [name for name in self._columns if self._kinds[name] == "lists"]
        if lists and self._any_given:
            raise FormatError(self._path, f"column {lists[0]!r} contains lists; omit kinds, or ignore the column")
        ids = self.ids()
        return None if lists else tuple(f"{name}={self._kinds[name]}" for name in self._columns if name not in ids)


def _is_id(name: str, column: Any) -> bool:
    """Return whether a column has the name of an identifier, and a different integer or word in each row."""
    values = column.dropna()
    if not _ID_NAME.fullmatch(name.strip()) or len(values) < 2 or isinstance(values.iloc[0], np.ndarray):
        return False
    texts = values.map(str)
    is_word = values.dtype.kind in "iu" or bool((texts.str.split().str.len() == 1).all() and values.dtype.kind != "f")
    return is_word and texts.nunique() == len(column)


def _kind_of(column: Any) -> str:
    values = column.dropna()
    if len(values) > 0 and isinstance(values.iloc[0], np.ndarray):
        return "lists"
    if not np.isnan(as_numbers(values)).any():
        return "number"
    texts = values.map(str)
    repeated = 2 * texts.nunique() <= len(texts)
    return "category" if repeated and texts.str.split().str.len().mean() <= _MOST_WORDS else "text"


def as_numbers(column: Any) -> np.ndarray:
    """Return a column as float64. Values that are not numbers become NaN."""
    if column.dtype.kind not in "fiub":
        to_numeric = partial(import_module("pandas").to_numeric, errors="coerce")
        try:
            column = to_numeric(column)
        except OverflowError:  # an integer is too large for float64; as text it converts to infinity
            column = to_numeric(column.map(str))
    return column.to_numpy(np.float64, na_value=np.nan)
