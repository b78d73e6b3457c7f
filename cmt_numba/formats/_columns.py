"""Kinds of table columns, and conversion of columns to numbers and text."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

KINDS = ("number", "category", "text")

_ID_NAME = re.compile(r"(.*[\W_])?(id|uuid|guid|key|index|row|nr|no|unnamed: 0)", re.IGNORECASE)
_MAX_WORDS = 5  # maximum mean number of words per value of a category column
_NO_NUMBER = ("NaN", "nan", "NA", "N/A", "#N/A", "n/a", "NULL", "null", "None", "<NA>")  # missing values as text
_NOT_FINITE = "contains a value that is not finite in float32"


def kinds_of(given: Sequence[str]) -> dict[str, str]:
    """Return a dictionary of column kinds from entries of the form ``column=kind``."""
    kinds = {}
    for entry in given:
        name, equals, kind = entry.rpartition("=")
        if not equals or kind not in KINDS:
            raise ValueError(f"a column kind must be COLUMN=KIND, with one of {', '.join(KINDS)}, got {entry!r}")
        kinds[name] = kind
    return kinds


def is_id(name: str, column: Any) -> bool:
    """Return whether a column has the name of an identifier, and a different integer or word in each row."""
    values = column.dropna()
    if not _ID_NAME.fullmatch(name.strip()) or len(values) < 2 or _has_lists(values):
        return False
    texts = values.map(str)
    is_word = values.dtype.kind in "iu" or bool((texts.str.split().str.len() == 1).all() and values.dtype.kind != "f")
    return is_word and texts.nunique() == len(column)


def kind_of(column: Any) -> str:
    """Return the kind of a column, or "lists" if it contains lists.

    A column of numbers has the kind "number"; missing values may be words such as "NA". Another column has the kind
    "category" if values have on average at most five words and at least two occurrences, or else "text".
    """
    values = column.dropna()
    if _has_lists(values):
        return "lists"
    if values[np.isnan(_as_numbers(values))].isin(_NO_NUMBER).all():
        return "number"
    texts = values.map(str)
    repeated = 2 * texts.nunique() <= len(texts)
    return "category" if repeated and texts.str.split().str.len().mean() <= _MAX_WORDS else "text"


def cells_of(column: Any) -> list[Any]:
    """Return the cells of a column as a list, with tuples for lists, and None for missing values."""
    cells = column.astype(object).where(column.notna(), None).tolist()
    types = set(map(type, cells))
    if dict in types:
        raise ValueError(f"column {column.name!r} contains an object; it must contain text, numbers or lists")
    if types.isdisjoint({list, np.ndarray}):
        return cells
    return [tuple(np.asarray(cell, object).tolist()) if _is_list(cell) else cell for cell in cells]


def convert_column(column: Any, kind: str | None) -> Any:
    """Return a column as float32 without a kind, as float64 if it is a number, or else as a list of str.

    Missing numbers become NaN with the kind "number", and other missing values the empty string.
    """
    if kind in ("category", "text"):
        return ["" if cell is None else str(cell) for cell in cells_of(column)]
    try:
        if kind is None and _has_lists(column):
            return _lists_to_matrix(column)
        numbers = _to_numbers(column)
        if kind == "number":
            return numbers
        if np.isnan(numbers).any():
            raise ValueError("has no value; fill in the value, or exclude the row")
        return numbers.astype(np.float32)
    except ValueError as error:
        raise ValueError(f"column {column.name!r} {error}") from None


def _is_list(value: Any) -> bool:
    return isinstance(value, np.ndarray | list)


def _has_lists(column: Any) -> bool:
    return len(column) > 0 and _is_list(column.iloc[0])


def _as_numbers(column: Any) -> np.ndarray:
    """Return a column as float64. Values that are not numbers become NaN."""
    from pandas import to_numeric

    if column.dtype.kind not in "fiub":
        column = to_numeric(column, errors="coerce")
    return column.to_numpy(np.float64, na_value=np.nan)


def _to_numbers(column: Any) -> np.ndarray:
    """Return a column as float64, with NaN for missing values. All other values must be finite in float32."""
    numbers = _as_numbers(column)
    wrong = column[np.isnan(numbers) & column.notna().to_numpy()]
    wrong = wrong[~wrong.isin(_NO_NUMBER)]
    if len(wrong) > 0:
        raise ValueError(f"contains {wrong.iloc[0]!r}, which is not a number")
    with np.errstate(over="ignore"):
        if np.isinf(numbers.astype(np.float32)).any():
            raise ValueError(_NOT_FINITE)
    return numbers


def _lists_to_matrix(column: Any) -> np.ndarray:
    matrix: Any
    try:
        with np.errstate(over="ignore"):
            matrix = np.array(column.tolist(), np.float32)
    except (ValueError, TypeError, OverflowError):  # lists of other lengths, other values, or too large integers
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise ValueError(f"must contain a list of {len(column.iloc[0])} numbers in every row")
    if not np.isfinite(matrix).all():
        raise ValueError(_NOT_FINITE)
    return matrix
