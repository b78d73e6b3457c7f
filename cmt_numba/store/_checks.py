"""Checks of keys, payloads and vectors."""

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from typing import Any

import numpy as np

from .._arrays import squares_of_rows
from .._index import METRICS
from .._kernels import square_of_row
from .._validation import OneOf, check_entries, unmasked

Key = str | int

_DEEPEST = 900  # maximum depth of payloads; SQLite reads up to 1,000 levels
_LEAST, _MOST = -(2**63), 2**63 - 1

_OTHER_METRICS = {"ip": "inner_product", "l2": "euclidean"}


def check_keys(keys: Any, *, distinct: bool = True) -> list[Key]:
    """Return one or more keys as a list of str or a list of int; refuse repeated keys if ``distinct``."""
    if type(keys) is int:
        keys = [keys]
    if type(keys) is list and set(map(type, keys)) == {int} and min(keys) >= _LEAST and max(keys) <= _MOST:
        checked = list(keys)  # the most frequent case, much faster than the checks below
    else:
        checked = _check_each(keys)
    if distinct and len(set(checked)) < len(checked):
        seen: set[Key] = set()
        twice = next(key for key in checked if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"keys must be distinct, but {twice!r:.100} occurs twice")
    return checked


def _check_each(keys: Any) -> list[Key]:
    unmasked("keys", keys)
    if isinstance(keys, np.ndarray):
        if keys.ndim > 1:
            raise ValueError(f"keys must be one-dimensional, got shape {keys.shape}")
        if keys.dtype.kind not in "iuUO":
            raise TypeError(f"keys must be strings or integers, got {keys.dtype}")
        keys = np.atleast_1d(keys).tolist()
    if isinstance(keys, str | int | np.integer):
        keys = [keys]
    if isinstance(keys, bytes) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a list of strings or of integers, got {keys!r:.50}")
    checked = [_check_key(key, position) for position, key in enumerate(keys)]
    if not checked:
        raise ValueError("keys must contain at least one key")
    kind = type(checked[0])
    for key in checked:
        if type(key) is not kind:
            raise TypeError(f"keys must be all strings or all integers, got {checked[0]!r:.50} and {key!r:.50}")
    return checked


def _check_string(name: str, value: str, position: int) -> str:
    if "\0" in value:
        raise ValueError(f"{name} must not contain null characters: {value!r:.100} at position {position}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be valid Unicode: {value!r:.100} at position {position}") from error
    return str(value)


def _check_key(key: Any, position: int) -> Key:
    if isinstance(key, str):
        return _check_string("keys", key, position)
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not _LEAST <= key <= _MOST:
            raise ValueError(f"keys must fit into 64 bits: {key} at position {position} does not")
        return int(key)
    raise TypeError(f"keys must be strings or integers, got {key!r:.50} at position {position}")


def check_payloads(payloads: Any, n: int) -> list[str | None]:
    """Return payloads as JSON texts, with None for no payload."""
    if payloads is None:
        return [None] * n
    if n == 1 and isinstance(payloads, dict):
        payloads = [payloads]
    if isinstance(payloads, str | bytes | dict) or not isinstance(payloads, Iterable):
        raise TypeError(f"payloads must be a list with one payload for each key, got {type(payloads).__name__}")
    given = list(payloads)
    check_entries("payloads", len(given), n, "keys")
    return [_check_payload(payload, position) for position, payload in enumerate(given)]


def check_expiries(expires: Any, n: int) -> list[float | None]:
    """Return times of expiry as seconds since 1970, with None for never."""
    if expires is None or isinstance(expires, datetime | timedelta):
        return [_check_expiry(expires)] * n
    if isinstance(expires, str) or not isinstance(expires, Iterable):
        raise TypeError(f"expires must be a timedelta, a datetime or a list of these, got {expires!r:.50}")
    given = list(expires)
    check_entries("expires", len(given), n, "keys")
    return [_check_expiry(one) for one in given]


def as_times(seconds: Iterable[float | None]) -> list[datetime | None]:
    """Return seconds since 1970 as times."""
    return [None if one is None else datetime.fromtimestamp(one, UTC) for one in seconds]


def _check_expiry(expires: Any) -> float | None:
    if expires is None:
        return None
    if isinstance(expires, timedelta):
        return datetime.now(UTC).timestamp() + expires.total_seconds()
    if not isinstance(expires, datetime):
        raise TypeError(f"expires must be a timedelta, a datetime or None for each memory, got {expires!r:.50}")
    if expires.tzinfo is None:
        raise ValueError(f"the time {expires} has no UTC offset: give expires a tzinfo, for example datetime.now(UTC)")
    return expires.timestamp()


def _check_payload(payload: Any, position: int) -> str | None:
    if payload is None:
        return None
    try:
        try:
            text = _as_json(payload)
        except TypeError:
            payload = as_plain(payload)
            text = _as_json(payload)
        text.encode()
        _check_depth(payload, text)
        is_same = json.loads(text) == payload
    except TypeError as error:
        raise TypeError(f"payloads must be JSON, but the one at position {position} is not: {error}") from error
    except (ValueError, RecursionError) as error:  # not finite, not Unicode, nested too deeply
        raise ValueError(f"payloads must be JSON, but the one at position {position} is not: {error}") from error
    if not is_same:
        raise TypeError(
            f"payloads must be JSON, but the one at position {position} is not: use lists instead of tuples, and "
            "strings as field names"
        )
    return text


def _as_json(payload: Any) -> str:
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays in a payload to Python numbers and lists, and dates to ISO 8601 text.

    Times with UTC offsets become UTC, so that the order of texts is that of instants.
    """
    if isinstance(value, dict):
        return {name: as_plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_plain(part) for part in value]
    if isinstance(value, np.datetime64 | date) and value != value:  # also true for NaT of pandas
        raise ValueError("NaT is not a date; use None")
    if isinstance(value, np.datetime64):
        return _text_of_datetime64(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        try:
            value = value.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{value} has no UTC time: {error}") from error
    if isinstance(value, time) and value.tzinfo is not None:
        raise ValueError(f"the time of day {value} has a UTC offset: use a datetime, or a time without offset")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, np.generic | np.ndarray):
        unmasked("values", value)
        if value.dtype.kind == "m":
            raise TypeError(f"{value!r:.50} is a duration: use a number of seconds")
        if isinstance(value, np.generic) or value.dtype.kind not in "OM":
            return value.tolist()
        return as_plain(list(value) if value.ndim > 0 else value[()])
    return value


def _text_of_datetime64(value: np.datetime64) -> str:
    """Return a date or a time as ISO 8601 text. Fractions of a second have 6 digits, or more if they need more."""
    unit = np.datetime_data(value.dtype)[0]
    if not 1 <= int(value.astype("datetime64[Y]").astype(np.int64)) + 1970 <= 9999:
        raise ValueError(f"{value} is not a date between the years 1 and 9999")
    if unit in ("Y", "M", "W", "D"):
        return str(value.astype("datetime64[D]"))
    in_us = value.astype("datetime64[us]")
    if in_us != value:
        return str(value)
    text: str = in_us.item().isoformat()
    return text


def _check_depth(payload: Any, text: str) -> None:
    """Raise ValueError for a payload that is too deeply nested for SQLite."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    level, depth = [payload], -1
    while level:
        level = [part for one in level if isinstance(one, list | dict) for part in _parts(one)]
        depth += 1
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def _parts(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def check_texts(texts: Any, n: int | None = None, *, may_be_missing: bool = False) -> list[str | None]:
    """Return texts as a list of plain strings, ``n`` of them if given. Without texts, all are None."""
    if texts is None:
        return [None] * (n or 0)
    if isinstance(texts, str) and n in (None, 1):
        texts = [texts]
    unmasked("texts", texts)
    if isinstance(texts, str | bytes | dict) or not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) != 1:
        raise TypeError(f"texts must be a list of strings, got {type(texts).__name__}")
    given = list(texts)
    if n is not None:
        check_entries("texts", len(given), n, "keys")
    elif not given:
        raise ValueError("texts must contain at least one text")
    return [_check_text(text, position, may_be_missing) for position, text in enumerate(given)]


def _check_text(text: Any, position: int, may_be_missing: bool) -> str | None:
    if text is None and may_be_missing:
        return None
    if not isinstance(text, str):
        raise TypeError(f"texts must be strings, got {text!r:.50} at position {position}")
    return _check_string("texts", text, position)


def check_one_of(where: Any, keys: Any) -> None:
    """Raise TypeError unless exactly one of ``where`` and ``keys`` is given."""
    if (where is None) == (keys is None):
        raise TypeError(f"pass either where or keys, got {'neither' if where is None else 'both'}")


def check_answers(keys: Any, n_rows: int) -> np.ndarray:
    """Return the keys of rewarded memories as an object array of shape (n_rows, k), with None for no memory."""
    unmasked("keys", keys)
    given = np.asarray(keys, dtype=object)
    if given.shape[:1] != (n_rows,) or given.ndim > 2 or given.size == 0:
        raise ValueError(f"keys must have shape ({n_rows},) or ({n_rows}, k), got {given.shape}")
    return given.reshape(n_rows, -1)


def are_none(keys: np.ndarray) -> np.ndarray:
    """Return a mask of the entries that are None."""
    return np.equal(keys, np.array(None))


class DuplicateKeyError(KeyError, ValueError):
    """Raised by :meth:`MemoryStore.add` if a key is already in the store."""

    __str__ = Exception.__str__  # a KeyError would quote the message


def check_kind(keys: list[Key], kind: type | None) -> None:
    """Raise TypeError unless keys have the type ``kind`` of the stored keys, or no keys are stored (None)."""
    if kind is not None and type(keys[0]) is not kind:
        names = {str: "strings", int: "integers"}
        raise TypeError(f"keys must be {names[kind]} like those in the store, got {keys[0]!r:.50}")


def check_stored(keys: list[Key], ids: np.ndarray) -> None:
    """Raise KeyError if a key is not stored. ``ids`` are the ids of the keys, or -1 if a key is not stored."""
    missing = np.flatnonzero(ids < 0)
    if missing.size > 0:
        raise KeyError(f"keys must be in the store, but {keys[missing[0]]!r:.100} is not")


def check_metric(metric: Any) -> str:
    """Return the name of a metric. Raise TypeError or ValueError if it is unknown."""
    return OneOf(tuple(METRICS)).check(
        "metric", _OTHER_METRICS.get(metric, metric) if isinstance(metric, str) else metric
    )


def check_values(X: Any, metric: str) -> None:
    """Raise ValueError if a row of a float32 array is not finite or, for the cosine, zero."""
    # NumPy would release the interpreter lock, and with several threads, each query would wait to get it back.
    if isinstance(X, np.ndarray) and len(X) == 1 and X.flags.carray and 0.0 < square_of_row(X) < inf:
        return
    squares = squares_of_rows(X)
    bad = np.flatnonzero(~np.isfinite(squares))
    if bad.size > 0:
        raise ValueError(f"X must be finite in float32: row {bad[0]} holds NaN, infinity or a value too large")
    if metric == "cosine" and not squares.all():
        row = np.flatnonzero(squares == 0.0)[0]
        why = "has no cosine; remove the row, or use another metric"
        raise ValueError(f"X must have no rows of zeros: row {row} {why}")
