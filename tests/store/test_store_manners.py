"""Tests of single vectors, items by key, NumPy values and dates in payloads, and changes of payloads."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from internals import contents_of

from cmt_numba import MemoryStore
from cmt_numba.journal import JournalError

HOUR = timedelta(hours=1)


def vectors(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)


def test_a_single_vector_needs_no_reshaping():
    X, store = vectors(20), MemoryStore(random_state=0)
    store.add("first", X[0], {"n": 0})
    store.upsert("second", X[1].tolist())
    store.add(["third"], [X[2]])
    assert store.query(X[1], 1).keys.tolist() == [["second"]]
    assert store.query(X[0].tolist(), 1).payloads == [[{"n": 0}]]
    store.feedback(X[2], ["third"], [1.0])
    with pytest.raises(ValueError, match="must have 5 features"):
        store.query(X[0, :4], 1)
    with pytest.raises(TypeError, match="one payload for each key"):
        store.add(["a", "b"], X[3:5], {"n": 0})


@pytest.mark.parametrize("sparse", [False, True])
def test_a_memory_is_read_by_its_key(sparse: bool):
    X, store = vectors(4), MemoryStore(random_state=0)
    store.add(range(4), scipy.sparse.csr_array(X) if sparse else X, [{"n": i} for i in range(4)])
    item = store[2]
    assert (item.key, item.payload) == (2, {"n": 2})
    vector = item.vector.toarray()[0] if sparse else item.vector
    np.testing.assert_array_equal(vector, X[2])
    with pytest.raises(KeyError, match="but 9 is not"):
        store[9]
    with pytest.raises(TypeError, match="takes a single key"):
        store[1, 2]


def test_payloads_may_have_numbers_of_numpy_and_dates():
    store = MemoryStore(random_state=0)
    payload = {
        "count": np.int64(3),
        "share": np.float32(0.5),
        "flag": np.bool_(True),
        "parts": np.arange(3),
        "day": date(2020, 5, 17),
        "at": datetime(2020, 5, 17, 12, tzinfo=UTC),
        "days": np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"),
        "nested": [{"second": np.datetime64("2020-01-01T10:00:00")}],
    }
    store.add("a", vectors(1), payload)
    assert store["a"].payload == {
        "count": 3,
        "share": 0.5,
        "flag": True,
        "parts": [0, 1, 2],
        "day": "2020-05-17",
        "at": "2020-05-17T12:00:00+00:00",
        "days": ["2020-01-01", "2021-01-01"],
        "nested": [{"second": "2020-01-01T10:00:00"}],
    }
    for where in ({"day": date(2020, 5, 17)}, {"day": {"gt": np.datetime64("2020-05-16")}}, {"count": np.int8(3)}):
        assert store.query(vectors(1), 1, where=where).keys.tolist() == [["a"]]
    for wrong in (
        *(np.datetime64("NaT", "s"), pd.NaT, np.float32("nan"), object(), 1j),
        *(np.datetime64("-0001-01-01"), np.datetime64("20000-01-01"), np.timedelta64(5, "ns"), np.ma.masked),
        *(np.ma.array([1, 2], mask=[0, 1]), time(12, tzinfo=UTC), datetime.min.replace(tzinfo=timezone(HOUR))),
    ):
        with pytest.raises((TypeError, ValueError), match="payloads must be JSON"):
            store.upsert("a", vectors(1), {"a": wrong})


def test_times_are_compared_as_instants():
    store = MemoryStore(random_state=0)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + i * HOUR / 4 for i in range(-8, 8)]
    zones = [timezone(i * HOUR) for i in (2, 0, -5)]
    store.add(range(16), vectors(16), [{"at": at.astimezone(zones[i % 3])} for i, at in enumerate(times)])
    bound = start.astimezone(timezone(9 * HOUR))
    for operator, expected in (("ge", range(8, 16)), ("lt", range(8)), ("eq", [8])):
        assert sorted(store.filter({"at": {operator: bound}}).ids(contents_of(store).records)) == list(expected)
    assert store.count({"at": {"in": [at.astimezone(zones[1]) for at in times[:3]]}}) == 3
    with pytest.warns(UserWarning, match="contains times with UTC offsets, but is compared with the time .* without"):
        store.count({"at": {"ge": datetime(2026, 1, 1)}})
    assert store.count({"at": {"ge": date(2027, 1, 1)}}) == 0  # without a warning
    store.add(16, vectors(1), {"at": np.datetime64("2026-01-01T00:00:00")})
    with pytest.warns(UserWarning, match="contains times without UTC offsets, but is compared with the time .* with"):
        store.count({"at": {"lt": start}})


def test_times_keep_nanoseconds():
    store, base = MemoryStore(random_state=0), np.datetime64("2026-01-01T00:00:00", "ns")
    steps = [0, 1, 999, 1000, 1001, 10**9]
    times = base + np.array(steps)
    store.add(range(6), vectors(6), [{"at": at, "all": times} for at in times])
    assert store[0].payload["all"] == [store[i].payload["at"] for i in range(6)]
    assert store[3].payload["at"] == "2026-01-01T00:00:00.000001"
    for i, at in enumerate(times):
        assert store.count({"at": {"le": at}}) == i + 1


def test_a_changed_list_of_keys_is_checked_again():
    store, where = MemoryStore(random_state=0), [1]
    store.add([1, 2], vectors(2))
    assert store.count(where) == 1
    where[0] = True
    with pytest.raises(TypeError, match="keys must be strings or integers, got True"):
        store.count(where)


def test_texts_and_filters_in_the_wrong_place_are_named():
    store = MemoryStore(random_state=0)
    store.add(["a"], vectors(1), texts=["how to parse xml"])
    for call in (
        lambda: store.query("how to parse xml", 3),
        lambda: store.query(["how to parse xml"]),
        lambda: store.add("b", "how to parse xml"),
    ):
        with pytest.raises(TypeError, match="got the text 'how to parse xml': pass it as texts="):
            call()
    with pytest.raises(TypeError, match=r"where must be a dict such as .*, got 'year > 2020'"):
        store.count("year > 2020")
    with pytest.raises(ValueError, match=r"where must contain at least one condition, got \{\}"):
        store.delete(where={})
    encoded = MemoryStore(encoder=lambda texts: np.array([[float(bool(text))] for text in texts]))
    encoded.add("a", texts="a")
    with pytest.raises(ValueError, match="texts must contain words, got '' at position 0"):
        encoded.query(texts="")


@pytest.mark.parametrize("in_folder", [False, True])
def test_fields_of_payloads_are_set(in_folder: bool, tmp_path: Path):
    path = tmp_path / "store" if in_folder else None
    store = MemoryStore(path, random_state=0)
    store.add(["a", "b", "c"], vectors(3), [{"n": 1, "m": 2}, None, "text"])
    before = store.query(vectors(1), 3)
    store.update_payload(["a", "b"], {"n": 5})
    store.update_payload("b", [{"when": date(2020, 1, 1)}])
    assert before[0][0].payload == {"n": 1, "m": 2}  # the payload at the time of the query
    if path is not None:
        store.close()
        store = MemoryStore(path)
    assert store.get(["a", "b"]).payloads == [{"n": 5, "m": 2}, {"n": 5, "when": "2020-01-01"}]
    assert store.query(vectors(1), 3, where={"n": 5}).keys[0, :2].tolist() == ["a", "b"]
    for keys, fields, error in (
        (["a", "c"], {"n": 6}, TypeError),
        (["a", "x"], {"n": 6}, KeyError),
        ("a", "n", TypeError),
    ):
        with pytest.raises(error):
            store.update_payload(keys, fields)
    assert store["a"].payload == {"n": 5, "m": 2}
    store.check_invariants()
    store.close()


@pytest.mark.parametrize("in_folder", [False, True])
def test_memories_are_deleted_by_a_filter(in_folder: bool, tmp_path: Path):
    store = MemoryStore(tmp_path / "store" if in_folder else None, random_state=0)
    store.add(range(10), vectors(10), [{"n": i % 3} for i in range(10)])
    assert store.delete(where={"n": 1}) == 3
    assert store.delete(where=store.filter({"n": 1})) == 0
    assert store.delete(where=lambda payload: payload["n"] == 2) == 3
    assert sorted(store) == [0, 3, 6, 9]
    assert store.delete(0) == 1
    for arguments in ({}, {"keys": [3], "where": {"n": 0}}):
        with pytest.raises(TypeError, match="either where or keys"):
            store.delete(**arguments)
    store.check_invariants()
    store.close()
    with pytest.raises(JournalError, match="closed"):
        store.delete(where={"n": 0})
