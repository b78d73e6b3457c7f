"""Translation of payload filters into SQL conditions.

The docstring of :mod:`cmt_numba.store` lists the operators.

Values are bound as parameters. Field names are quoted in the text of the statement, because SQLite could not use
indexes on them otherwise. Names that cannot be quoted are refused.
"""

import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from .._validation import check_integer
from ._checks import as_plain

_RANGES = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_OTHER_NAMES = {"gte": "ge", "lte": "le", "nin": "not in"}
_OPERATORS = {*_RANGES, "eq", "ne", "in", "not in", "contains", "startswith", "exists"}
_COMBINE = ("and", "or", "not")
_DEEPEST = 30  # keeps expressions below SQLite's maximum depth of 1,000
_MOST_PARTS = 500


class ComparedField(NamedTuple):
    """A field of a condition, to find likely mistakes."""

    path: str
    is_list: bool  # whether elements of a list are compared
    value: Any  # a value it is compared with; None if values are both texts and numbers
    is_time: bool = False  # whether the value was given as a time


class Condition(NamedTuple):
    """An SQL condition with the values of its parameters. It evaluates to 0 or 1, never to null."""

    sql: str
    values: tuple[Any, ...] = ()
    n_parts: int = 1  # number of comparisons
    fields: tuple[ComparedField, ...] = ()


def condition_of(where: Any) -> Condition:
    """Return a filter as a condition on the rows of the table ``records``."""
    condition = _filter(where, _DEEPEST)
    if condition.n_parts > _MOST_PARTS:
        raise ValueError(f"where must have at most {_MOST_PARTS} comparisons, got {condition.n_parts}; use 'in'")
    return condition


def field_path(field: Any) -> str:
    """Return a field as a path for SQLite's JSON functions, quoted as an SQL string."""
    steps = field.split(".") if isinstance(field, str) else field
    if not isinstance(steps, Iterable) or not all(isinstance(step, str) for step in steps):
        raise TypeError(f"a field must be a string or a tuple of strings, got {field!r:.50}")
    steps = list(steps)
    for step in steps:
        if not step.isprintable() or '"' in step or "\\" in step or not step:
            raise ValueError(f"a field name must be printable, without quotation marks and backslashes: {field!r:.50}")
    if not steps:
        raise ValueError("a field name must not be empty")
    path = "$" + "".join(f'."{step}"' for step in steps)
    return "'" + path.replace("'", "''") + "'"


def extract(path: str) -> str:
    """Return the SQL expression for the value of a field. Indexes use the same expression."""
    return f"json_extract(payload, {path})"


class ListOptions(NamedTuple):
    """The order and the number of memories to list."""

    order: str  # an SQL expression
    descending: bool
    limit: int | None
    offset: int


def check_listing(keys: Any, where: Any, order_by: Any, limit: Any, offset: Any) -> ListOptions:
    """Return the order and the number of memories to list. Raise an error if there are keys and other arguments."""
    if keys is not None and (where is not None or order_by is not None or limit is not None or offset != 0):
        raise TypeError("get takes either keys, or where, order_by, limit and offset")
    descending = isinstance(order_by, str) and order_by.startswith("-")
    field = order_by[1:] if descending else order_by
    own = {None: "id", "$added": "id", "$key": "key"}
    order = own[field] if field is None or field in ("$added", "$key") else extract(field_path(field))
    limit = None if limit is None else check_integer("limit", limit, 0)
    return ListOptions(order, descending, limit, check_integer("offset", offset, 0))


def _filter(where: Any, depth: int) -> Condition:
    if not isinstance(where, dict):
        raise TypeError(f"where must be a dict such as {{'color': 'red'}}, got {where!r:.50}")
    if depth == 0:
        raise ValueError(f"where must be nested at most {_DEEPEST} levels deep")
    if not where:
        raise ValueError("where must contain at least one condition, got {}")
    return _joined(" AND ", [_item(field, wanted, depth) for field, wanted in where.items()])


def _joined(by: str, conditions: list[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    values = tuple(value for condition in conditions for value in condition.values)
    n_parts = sum(condition.n_parts for condition in conditions)
    fields = tuple(dict.fromkeys(field for condition in conditions for field in condition.fields))
    return Condition("(" + by.join(condition.sql for condition in conditions) + ")", values, n_parts, fields)


def _item(field: Any, wanted: Any, depth: int) -> Condition:
    name = field.removeprefix("$") if isinstance(field, str) else None
    if name in _COMBINE:
        if name == "not":
            return _negated(_filter(wanted, depth - 1))
        if not isinstance(wanted, list | tuple) or not wanted:
            raise TypeError(f"{field!r} must be followed by a list of filters, got {wanted!r:.50}")
        parts = [_filter(part, depth - 1) for part in wanted]
        return _joined(f" {name.upper()} ", parts)  # type: ignore[union-attr]
    path = field_path(field)
    if not isinstance(wanted, dict):
        return _compared(path, "eq", wanted)
    if not wanted:
        raise ValueError(f"the field {field!r:.50} must be followed by a value or an operator, got {{}}")
    return _joined(" AND ", [_compared(path, operator, value) for operator, value in wanted.items()])


def _negated(condition: Condition) -> Condition:
    return condition._replace(sql=f"(NOT {condition.sql})")


def _compared(path: str, operator: Any, value: Any) -> Condition:
    name = operator.removeprefix("$") if isinstance(operator, str) else ""
    name = _OTHER_NAMES.get(name, name)
    if name not in _OPERATORS:
        raise ValueError(f"unknown operator {operator!r:.50} in where: use one of {', '.join(sorted(_OPERATORS))}")
    if name in _RANGES:
        bound = as_plain(value)
        fields = (ComparedField(path, False, bound, isinstance(value, datetime | np.datetime64)),)
        return _in_range(path, _RANGES[name], bound)._replace(fields=fields)
    simple: dict[str, Callable[[str, Any], Condition]] = {
        "eq": _equal,
        "ne": lambda path, value: _negated(_equal(path, value)),
        "in": _one_of,
        "not in": lambda path, values: _negated(_one_of(path, values)),
        "startswith": _starting,
        "contains": _containing,
        "exists": _existing,
    }
    condition = simple[name](path, value)
    is_asked = name != "exists" and value is not None  # otherwise a missing field may be intended
    if not is_asked:
        return condition
    values = list(value) if name in ("in", "not in") else [value]
    are_lists = [isinstance(one, list | tuple | np.ndarray) for one in values]
    is_list = name == "contains" or (bool(values) and all(are_lists))
    are_alike = (
        len({isinstance(one, str) for one in values}) == 1
        and not any(are_lists)
        and not any(one is None for one in values)
    )
    shown = as_plain(values[0]) if are_alike else None
    is_time = are_alike and isinstance(values[0], datetime | np.datetime64)
    return condition._replace(fields=(ComparedField(path, is_list, shown, is_time),))


def _equal(path: str, value: Any) -> Condition:
    if value is None:
        return Condition(f"({extract(path)} IS NULL)")
    kind = f"json_type(payload, {path})"
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, list | tuple):
        elements = [_equal(f"{path[:-1]}[{i}]'", one) for i, one in enumerate(value)]
        length = f"({kind} IS 'array' AND json_array_length(payload, {path}) IS {len(value)})"
        return _joined(" AND ", [Condition(length), *elements])
    return _is_value(extract(path), kind, path, _scalar(value))


def _is_value(found: str, kind: str, path: str, value: str | int | float) -> Condition:
    if isinstance(value, str):  # lists and objects are also extracted as text
        return Condition(f"({found} IS ? AND {kind} IS 'text' AND NOT {_has_nul(path)})", (value,))
    if isinstance(value, bool):
        return Condition(f"({found} IS ? AND {kind} IS '{'true' if value else 'false'}')", (int(value),))
    if not _is_large(value):
        return Condition(f"({found} IS ? AND ({kind} IN ('integer', 'real')) IS 1)", (value,))
    is_rounded = f"{kind} IS 'integer' AND typeof({found}) IS 'real'"
    return Condition(f"({found} IS ? AND ({is_rounded}) <= ({_json(path)} IS ?))", (value, _as_json(value)))


def _in_range(path: str, sign: str, bound: Any) -> Condition:
    if isinstance(bound, bool) or bound is None:
        raise TypeError(f"the bound of a range must be a number or a string, got {bound!r}")
    bound = _scalar(bound)
    kinds = "('text')" if isinstance(bound, str) else "('integer', 'real')"
    # The type of a missing field is null, but a condition must not be null: coalesce replaces it with ''.
    kind, found = f"coalesce(json_type(payload, {path}), '')", extract(path)
    values: tuple[Any, ...] = ()
    if isinstance(bound, str):  # SQLite compares only the text before a null character
        if_equal = {">": _has_nul(path), ">=": "1", "<": "0", "<=": f"NOT {_has_nul(path)}"}[sign]
    elif _is_large(bound):
        is_rounded, text = f"{kind} IS 'integer' AND typeof({found}) IS 'real'", _as_json(bound)
        by_digits = sign if bound > 0 else sign.translate(str.maketrans("<>", "><"))
        if_equal = f"iif({is_rounded}, (length({_json(path)}), {_json(path)}) {by_digits} (?, ?), {len(sign) - 1})"
        values = len(text), text
    else:
        return Condition(f"({kind} IN {kinds} AND {found} {sign} ?)", (bound,))
    in_range = f"{found} {sign[0]}= ? AND ({found} <> ? OR {if_equal})"
    return Condition(f"({kind} IN {kinds} AND {in_range})", (bound, bound, *values))


def _one_of(path: str, values: Any) -> Condition:
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise TypeError(f"'in' must be followed by a list of values, got {values!r:.50}")
    wanted = [value if value is None or isinstance(value, list | tuple) else _scalar(value) for value in values]
    texts = [value for value in wanted if isinstance(value, str)]
    numbers = [value for value in wanted if _is_small_number(value)]
    others = [value for value in wanted if not isinstance(value, str) and not _is_small_number(value)]
    parts = [_equal(path, value) for value in others]
    are_texts, are_numbers = f"IS 'text' AND NOT {_has_nul(path)}", "IN ('integer', 'real')"
    for some, kinds in ((texts, are_texts), (numbers, are_numbers)):
        if some:
            among = f"{extract(path)} IN (SELECT value FROM json_each(?))"
            is_kind = f"coalesce(json_type(payload, {path}), '') {kinds}"
            parts.append(Condition(f"({among} AND {is_kind})", (json.dumps(some),)))
    return _joined(" OR ", parts) if parts else Condition("0")


def _containing(path: str, value: Any) -> Condition:
    value = _scalar(value)
    kinds = {str: "('text')", bool: "('true', 'false')"}.get(type(value), "('integer', 'real')")
    one = _is_value("e.value", "e.type", f"{path} || '[' || e.key || ']'", value)
    elements = f"SELECT 1 FROM json_each(payload, {path}) AS e WHERE e.type IN {kinds} AND {one.sql}"
    kind = f"coalesce(json_type(payload, {path}), '')"
    in_list = f"{kind} IS 'array' AND EXISTS ({elements})"
    if not isinstance(value, str):
        return Condition(f"({in_list})", one.values)
    return Condition(f"({in_list} OR {kind} IS 'text' AND instr({extract(path)}, ?) > 0)", (*one.values, value))


def _starting(path: str, value: Any) -> Condition:
    if not isinstance(value, str):
        raise TypeError(f"'startswith' must be followed by a string, got {value!r:.50}")
    value = _scalar(value)
    kind = f"coalesce(json_type(payload, {path}), '')"
    return Condition(f"({kind} IS 'text' AND substr({extract(path)}, 1, length(?)) = ?)", (value, value))


def _json(path: str) -> str:
    """Return the SQL expression for a JSON list that contains the value at a path twice.

    Unlike extracted numbers, JSON lists keep all digits of integers.
    """
    return f"json_extract(payload, {path}, {path})"


def _as_json(value: float) -> str:
    return f"[{int(value)},{int(value)}]"


def _has_nul(path: str) -> str:
    r"""Return the condition that a text contains a null character. SQLite may ignore the rest of such a text.

    In JSON, a null character is \u0000. Pairs of backslashes are removed first, because each stands for a backslash.
    """
    return rf"(instr(replace({_json(path)}, '\\', ''), '\u0000') > 0)"


def _is_large(value: float) -> bool:
    """Return whether SQLite may round an integer of more than 64 bits to this number."""
    return abs(value) >= 2**63


def _is_small_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not _is_large(value)


def _existing(path: str, value: Any) -> Condition:
    if not isinstance(value, bool):
        raise TypeError(f"'exists' must be followed by True or False, got {value!r:.50}")
    return Condition(f"(json_type(payload, {path}) IS {'NOT ' if value else ''}NULL)")


def _scalar(value: Any) -> str | int | float:
    """Return a value that both SQLite and JSON accept."""
    value = as_plain(value)
    if isinstance(value, list | tuple | set):
        raise TypeError(f"write {{'in': [...]}} to compare a field with several values, got {value!r:.50}")
    if not isinstance(value, str | int | float):
        raise TypeError(f"a field can be compared with strings, numbers and bools, got {value!r:.50}")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"a field cannot be compared with {value!r:.50}: it is not valid text")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a field cannot be compared with {value}; use a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"a field can be compared only with integers that fit into 64 bits, got {value}")
    return value if isinstance(value, bool | float) else int(value)
