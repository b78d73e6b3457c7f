"""Kinds of table columns, and conversion of columns to numbers."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._files import CellError

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
    if not _ID_NAME.fullmatch(name.strip()) or len(values) < 2 or is_list(values.iloc[0]):
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
    if len(values) > 0 and is_list(values.iloc[0]):
        return "lists"
    if values[np.isnan(_as_numbers(values))].isin(_NO_NUMBER).all():
        return "number"
    texts = values.map(str)
    repeated = 2 * texts.nunique() <= len(texts)
    return "category" if repeated and texts.str.split().str.len().mean() <= _MAX_WORDS else "text"


def is_list(value: Any) -> bool:
    """Return whether a cell contains a list."""
    return isinstance(value, np.ndarray | list)


def cells_of(column: Any) -> list[Any]:
    """Return the cells of a column as a list, with None for missing values."""
    return column.astype(object).where(column.notna(), None).tolist()


def convert_column(column: Any, kind: str | None) -> Any:
    """Return a column as float32 without a kind, as float64 if it is a number, or else as a list of str.

    Missing numbers become NaN, and other missing values the empty string.
    """
    if kind is None:
        return _from_lists(column) if len(column) > 0 and is_list(column.iloc[0]) else _without_missing(column)
    return _to_floats(column) if kind == "number" else ["" if cell is None else str(cell) for cell in cells_of(column)]


def _as_numbers(column: Any) -> np.ndarray:
    """Return a column as float64. Values that are not numbers become NaN."""
    from pandas import to_numeric

    if column.dtype.kind not in "fiub":
        try:
            column = to_numeric(column, errors="coerce")
        except OverflowError:  # an integer is too large for float64; as text it converts to infinity
            column = to_numeric(column.map(str), errors="coerce")
    return column.to_numpy(np.float64, na_value=np.nan)


def _to_floats(column: Any) -> np.ndarray:
    """Return a column as float64, with NaN for missing values. All other values must be finite in float32."""
    numbers = _as_numbers(column)
    bad = np.flatnonzero(~_are_finite(numbers) & column.notna().to_numpy())
    bad = bad[~column.iloc[bad].isin(_NO_NUMBER).to_numpy()]
    if bad.size > 0:
        is_number = not np.isnan(numbers[bad[0]])
        raise CellError(
            bad[0], _NOT_FINITE if is_number else f"contains {column.iloc[bad[0]]!r}, which is not a number"
        )
    return numbers


def _without_missing(column: Any) -> np.ndarray:
    numbers = _to_floats(column).astype(np.float32)
    missing = np.isnan(numbers)
    if missing.any():
        raise CellError(missing.argmax(), "has no value; fill in the value, or exclude the row")
    return numbers


def _from_lists(column: Any) -> np.ndarray:
    width = len(column.iloc[0])
    rows = []
    for position, cell in enumerate(column):
        try:
            row = np.asarray(cell)
        except (ValueError, OverflowError):  # ragged nested lists, or integers that are too large
            row = np.empty((0, 0))
        if row.shape != (width,) or row.dtype.kind not in "fiu":
            raise CellError(position, f"must contain a list of {width} numbers in every row")
        rows.append(row)
    matrix = np.stack(rows)
    if not (is_finite := _are_finite(matrix).all(axis=1)).all():
        raise CellError(is_finite.argmin(), _NOT_FINITE)
    return matrix.astype(np.float32)


def _are_finite(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.isfinite(numbers.astype(np.float32))
