"""Tests of store filters: matches, invalid filters, and the use of indexes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import store_records

from cmt_numba.store import check_keys, check_payloads, condition_of

FIELDS = ("a", "it's", "Größe", "b.c")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, -2.0, 1.0, 2.0**64, -(2.0**63), 1e20]),
    st.sampled_from(["", "1", "x'y", '["x"]', "x", "\\u0000"]),
)
STORED = st.one_of(  # values that payloads may have but filters may not
    SCALARS,
    st.sampled_from([2**64, 2**64 + 1, 2**64 - 1, -(2**63) - 1, 10**20 - 1, 10**20 + 1]),
    st.sampled_from(["x\0", "x\0y", "\0", "\\\0", "1\0"]),
)
VALUES = st.one_of(STORED, st.lists(st.one_of(STORED, st.lists(SCALARS, max_size=2)), max_size=3))
PAYLOADS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={"a": VALUES, "it's": VALUES, "Größe": VALUES, "b": st.fixed_dictionaries({}, optional={"c": VALUES})},
    ),
)
SOMETHING = SCALARS.filter(lambda value: value is not None)
BOUNDS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, 2.0**64, -(2.0**63), 1e20]), st.sampled_from(["1", "x", ""])
)
LISTS = st.lists(st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=3)
COMPARED = st.one_of(
    SCALARS,
    LISTS,
    st.dictionaries(st.sampled_from(["gt", "ge", "$lt", "lte"]), BOUNDS, min_size=1, max_size=2),
    st.fixed_dictionaries({"in": LISTS}),
    st.fixed_dictionaries({"not in": LISTS}),
    st.fixed_dictionaries({"$nin": LISTS}),
    st.fixed_dictionaries({"startswith": st.sampled_from(["", "x", "x'", "\\", "1"])}),
    st.fixed_dictionaries({"$ne": SCALARS}),
    st.fixed_dictionaries({"contains": SOMETHING}),
    st.fixed_dictionaries({"exists": st.booleans()}),
)
LEAVES = st.dictionaries(st.sampled_from(FIELDS), COMPARED, min_size=1, max_size=2)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=4,
)
MISSING = object()


def equals(value: Any, wanted: Any) -> bool:
    if wanted is None:
        return value is MISSING or value is None
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(equals, value, wanted))
    are_alike = all(isinstance(value, kind) == isinstance(wanted, kind) for kind in (str, bool))
    return not isinstance(value, list) and are_alike and value == wanted


def compares(value: Any, operator: str, wanted: Any) -> bool:
    if operator == "in":
        return any(equals(value, one) for one in wanted)
    if operator in ("not in", "nin"):
        return not any(equals(value, one) for one in wanted)
    if operator == "startswith":
        return isinstance(value, str) and value.startswith(wanted)
    if operator == "ne":
        return not equals(value, wanted)
    if operator == "contains":
        if isinstance(value, str):
            return isinstance(wanted, str) and wanted in value
        return isinstance(value, list) and any(one is not None and equals(one, wanted) for one in value)
    if operator == "exists":
        return (value is not MISSING) == wanted
    if (
        not isinstance(value, str | int | float)
        or isinstance(value, bool)
        or isinstance(value, str) != isinstance(wanted, str)
    ):
        return False
    return {"gt": value > wanted, "ge": value >= wanted, "lt": value < wanted, "le": value <= wanted}[operator]


def matches(payload: Any, where: dict[Any, Any]) -> bool:
    """Return whether a payload matches a filter, in plain Python."""
    for field, wanted in where.items():
        name = field.removeprefix("$")
        if name == "not":
            holds = not matches(payload, wanted)
        elif name in ("and", "or"):
            holds = (all if name == "and" else any)(matches(payload, part) for part in wanted)
        else:
            value = payload
            for step in field.split("."):
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
            tests = wanted if isinstance(wanted, dict) else {"in": [wanted]}
            plain = {"gte": "ge", "lte": "le"}
            holds = all(
                compares(value, plain.get(operator.removeprefix("$"), operator.removeprefix("$")), one)
                for operator, one in tests.items()
            )
        if not holds:
            return False
    return True


def records_of(payloads: list[Any]) -> store_records.Records:
    records = store_records.Records(store_records.MemoryDatabase())
    keys = [f"k{i}" for i in range(len(payloads))]
    nothing = [None] * len(keys)
    records.insert(np.arange(len(keys)), keys, check_payloads(payloads, len(keys)), nothing, nothing)
    return records


@given(st.lists(PAYLOADS, min_size=1, max_size=6), FILTERS)
def test_filters_select_what_plain_python_selects(payloads: list[Any], where: dict[Any, Any]):
    records = records_of(payloads)
    wanted = [i for i, payload in enumerate(payloads) if matches(payload, where)]
    assert records.ids(condition_of(where)).tolist() == wanted
    for field in FIELDS:
        records.create_index(field)
    assert records.ids(condition_of(where)).tolist() == wanted


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ({}, ValueError, "at least one condition"),
        ({"a": {}}, ValueError, "must be followed by a value or an operator"),
        ({"a": {"like": "x"}}, ValueError, "unknown operator 'like'"),
        ({"a": {1}}, TypeError, "compare a field with several values"),
        ({"a": {"startswith": 1}}, TypeError, "followed by a string"),
        ({"a": {"gt": None}}, TypeError, "the bound of a range must be a number"),
        ({"a": {"gt": True}}, TypeError, "the bound of a range must be a number"),
        ({"a": {"in": "abc"}}, TypeError, "list of values"),
        ({"a": {"exists": 1}}, TypeError, "True or False"),
        ({"a": float("nan")}, ValueError, "cannot be compared with nan"),
        ({"a": 2**63}, ValueError, "64 bits"),
        ({"a": "\0"}, ValueError, "not valid text"),
        ({"or": {}}, TypeError, "list of filters"),
        ({"and": []}, TypeError, "list of filters"),
        ({"not": []}, TypeError, "must be a dict"),
        ({'a"b': 1}, ValueError, "quotation marks"),
        ({"a\\b": 1}, ValueError, "quotation marks"),
        ({"a..b": 1}, ValueError, "printable"),
        ({("a", 1): 1}, TypeError, "tuple of strings"),
        ({1: 1}, TypeError, "a field must be"),
        ({(): 1}, ValueError, "must not be empty"),
        ({f"f{i}": i for i in range(600)}, ValueError, "at most 500"),
    ],
)
def test_invalid_filters_are_refused(where: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        condition_of(where)


def test_filters_may_not_be_nested_too_deeply():
    where: dict[str, Any] = {"a": 1}
    for _ in range(40):
        where = {"not": where}
    with pytest.raises(ValueError, match="at most 30 levels deep"):
        condition_of(where)


def test_names_of_fields_cannot_become_sql():
    records = records_of([{"a') OR 1 --": 1}, {"a": 1}, {"and": 3, "x.y": 4}])
    assert records.ids(condition_of({("a') OR 1 --",): 1})).tolist() == [0]
    records.create_index(("a') OR 1 --",))
    assert records.ids(condition_of({("a') OR 1 --",): 1})).tolist() == [0]
    assert records.ids(condition_of({("and",): 3, ("x.y",): 4})).tolist() == [2]
    assert store_records.Records(store_records.MemoryDatabase(records.packed())).fields() == ['$."a\') OR 1 --"']


@pytest.mark.parametrize("wanted", ["x", 3, {"in": ["x", "y"]}, {"in": [1, 2]}, {"ge": 3}, {"lt": "b"}, None])
def test_indexes_are_used(wanted: Any):
    records = records_of([{"a": i} for i in range(20)])
    condition = condition_of({"a": wanted})

    def plan() -> str:
        return str(
            records._database.execute(
                f"EXPLAIN QUERY PLAN SELECT id FROM records WHERE {condition.sql}", condition.values
            )
        )

    assert "USING INDEX" not in plan()
    records.create_index("a")
    records.create_index("a")
    assert "USING INDEX field" in plan()


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ([], ValueError, "at least one"),
        ([True], TypeError, "got True at position 0"),
        ([1, 2.0], TypeError, "got 2.0 at position 1"),
        (["a", 1], TypeError, "all strings or all integers"),
        (np.array([True]), TypeError, "got bool"),
        (np.array([1.5]), TypeError, "got float64"),
        (np.array([[1]]), ValueError, "one-dimensional"),
        (np.ma.masked_array([1, 2], [True, False]), ValueError, "masked"),
        ([b"a"], TypeError, "got b'a'"),
        (b"a", TypeError, "a list of strings"),
        (None, TypeError, "a list of strings"),
        ([None], TypeError, "got None"),
        ([2**63], ValueError, "64 bits"),
        (np.array([2**63], np.uint64), ValueError, "64 bits"),
        (["a", "b", "a"], ValueError, "'a' occurs twice"),
        (["a\0"], ValueError, "null"),
        (["\ud800"], ValueError, "Unicode"),
    ],
)
def test_invalid_keys_are_refused(keys: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        check_keys(keys)


def test_keys_come_in_many_forms():
    assert check_keys("ab") == ["ab"]
    assert check_keys(7) == [7]
    assert check_keys(np.array(["a", "b"])) == ["a", "b"]
    assert check_keys(np.array([3, 4], np.uint16)) == [3, 4]
    assert check_keys({"a": 1, "b": 2}.keys()) == ["a", "b"]
    assert check_keys([np.int8(1), -(2**63), 2**63 - 1]) == [1, -(2**63), 2**63 - 1]
    records = store_records.Records(store_records.MemoryDatabase())
    keys = check_keys([1, -(2**63), 2**63 - 1])
    records.insert(np.arange(3), keys, *[[None] * 3] * 3)
    assert records.find([2**63 - 1, 5, -(2**63)]).tolist() == [2, -1, 1]
    again = store_records.Records(store_records.MemoryDatabase(records.packed()))
    assert again.kind() is int
    assert again.named(np.arange(4)).keys[:3].tolist() == keys
    assert again.named(np.arange(4)).are_there.tolist() == [True, True, True, False]


def test_keys_are_read_in_parts(monkeypatch: pytest.MonkeyPatch):
    records = records_of([{"a": 1}, None, {"b": 2}, None, None])
    records.delete(np.array([1]))
    monkeypatch.setattr("cmt_numba.store._records._AT_ONCE", 2)
    named = store_records.Records(store_records.MemoryDatabase(records.packed())).named(np.arange(6))
    assert named.are_there.tolist() == [True, False, True, True, True, False]
    assert named.keys[named.are_there].tolist() == ["k0", "k2", "k3", "k4"]
    assert ((named.kinds == store_records.WITH) & named.are_there).tolist() == [True, False, True, False, False, False]


@pytest.mark.parametrize(
    ("payloads", "error", "words"),
    [
        ({"a": 1}, TypeError, "got dict"),
        ("ab", TypeError, "got str"),
        ([{}], ValueError, "each of the 2 keys"),
        ([{}, {"a": {1, 2}}], TypeError, "position 1"),
        ([{}, {"a": 1j}], TypeError, "position 1"),
        ([{}, {"a": float("inf")}], ValueError, "position 1"),
        ([{}, {"a": (1, 2)}], TypeError, "lists instead of tuples"),
        ([{1: "a"}, {}], TypeError, "strings as field names"),
        ([{"a": "\ud800"}, {}], ValueError, "position 0"),
    ],
)
def test_invalid_payloads_are_refused(payloads: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        check_payloads(payloads, 2)


def test_forged_databases_are_refused():
    records = records_of([{"a": 1}])
    for statement in (
        "CREATE TABLE other (x)",
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE INDEX other ON records (payload)",
        'CREATE INDEX "field $.""a""" ON records (json_extract(payload, \'$."b"\'))',
        "DROP TABLE facts",
    ):
        database = store_records.MemoryDatabase(records.packed())
        database.execute(statement)
        with pytest.raises(ValueError, match="the tables of a store"):
            store_records.MemoryDatabase(database.serialized())
    with pytest.raises(ValueError, match="damaged"):
        store_records.MemoryDatabase(b"SQLite format 3\0" + bytes(5000))
