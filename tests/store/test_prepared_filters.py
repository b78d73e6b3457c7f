"""Tests of prepared filters, and of warnings about likely mistakes."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from cmt_numba import MemoryStore
from cmt_numba.store import PreparedFilter

N, D = 400, 16


def drawn(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def filled(**options: object) -> MemoryStore:
    store = MemoryStore(random_state=0, **options)
    store.add([f"k{i}" for i in range(N)], drawn(N), [{"n": i, "tags": [i % 3], "color": "red"} for i in range(N)])
    return store


def test_prepared_filters_select_what_they_describe():
    store, Q = filled(), drawn(5, 1)
    keys = [f"k{i}" for i in range(0, N, 7)]
    by_keys, by_field = store.filter(keys=keys), store.filter({"n": {"lt": 50}})
    assert isinstance(by_keys, PreparedFilter)
    for prepared, where in ((by_keys, keys), (by_field, {"n": {"lt": 50}})):
        expected = store.query(Q, 8, where=where)
        for _ in range(3):
            found = store.query(Q, 8, where=prepared)
            np.testing.assert_array_equal(found.keys, expected.keys)
            np.testing.assert_array_equal(found.scores, expected.scores)


def test_prepared_filters_follow_changes():
    store, Q = filled(), drawn(1, 1)
    by_keys, by_field = store.filter(keys=["k1", "k2", "k3"]), store.filter({"n": {"lt": 3}})
    store.delete(["k2"])
    store.upsert(["k9", "k1"], drawn(2, 2), [{"n": 0}, {"n": 100}])
    assert sorted(store.query(Q, 3, where=by_keys).keys[0, :2]) == ["k1", "k3"]
    assert store.query(Q, 3, where=by_keys).keys[0, 2] is None
    assert sorted(store.query(Q, 2, where=by_field).keys[0]) == ["k0", "k9"]


def test_filters_need_conditions_or_known_keys():
    store = filled()
    with pytest.raises(TypeError, match="either where or keys"):
        store.filter()
    with pytest.raises(TypeError, match="either where or keys"):
        store.filter({"n": 1}, keys=["k1"])
    with pytest.raises(KeyError, match="but 'x' is not"):
        store.filter(keys=["k1", "x"])
    with pytest.raises(ValueError, match="unknown operator"):
        store.filter({"n": {"like": 1}})


def test_a_list_of_keys_that_was_changed_is_read_again():
    store, Q, keys = filled(), drawn(1, 1), ["k1", "k2"]
    assert sorted(store.query(Q, 2, where=keys).keys[0]) == ["k1", "k2"]
    keys[0] = "k5"
    assert sorted(store.query(Q, 2, where=keys).keys[0]) == ["k2", "k5"]
    keys.append("unknown")
    with pytest.raises(KeyError, match="unknown"):
        store.query(Q, 2, where=keys)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"nn": 1}, "no payload has the field 'nn'; known fields: color, n, tags"),
        ({"or": [{"n": 1}, {"a.b": {"ge": 2}}]}, "no payload has the field 'a.b'"),
        ({"tags": 1}, "'tags' contains lists"),
        ({"n": {"contains": 77}}, "'n' is of type integer, not a list"),
        ({"n": "1"}, "'n' is of type integer, but is compared with the text '1'"),
        ({"n": {"gt": "1"}}, "'n' is of type integer, but is compared with the text '1'"),
        ({"n": {"in": ["1", "2"]}}, "'n' is of type integer, but is compared with the text '1'"),
        ({"color": 1}, "'color' is of type text, but is compared with the number 1"),
    ],
)
def test_suspicious_filters_warn(where: dict, words: str):
    store = filled()
    with pytest.warns(UserWarning, match=words):
        store.query(drawn(1), 1, where=where)
    with pytest.warns(UserWarning, match=words):
        store.filter(where)


def test_valid_empty_filters_do_not_warn():
    store = filled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for where in (
            {"n": -1},
            {"nn": {"exists": False}},
            {"nn": None},
            {"tags": {"contains": 9}},
            {"n": {"in": ["a", -1]}},
            {"n": True},
        ):
            store.query(drawn(1), 1, where=where)


def tagged(tags: list[str]) -> dict[str, list]:
    return {"keys": list(range(8)), "X": np.eye(8, dtype=np.float32), "payloads": [{"tag": tag} for tag in tags]}


def found(store: MemoryStore, where: PreparedFilter) -> set[str]:
    answers = store.query(np.ones(8), 8, where=where)[0]
    return {answer.payload["tag"] for answer in answers}


def test_prepared_filters_hold_for_other_stores_too():
    one, other, few = MemoryStore(random_state=0), MemoryStore(random_state=0), MemoryStore(random_state=0)
    one.add(**tagged(["old"] * 4 + ["new"] * 4))
    other.add(**tagged(["new"] * 4 + ["old"] * 4))
    few.add(range(2), np.eye(8)[:2])
    prepared, by_keys = one.filter({"tag": "old"}), one.filter(keys=[1, 5])
    for store in (one, other, one, other):
        assert found(store, prepared) == {"old"}
    assert other.delete(where=prepared) == 4
    assert sorted(other) == [0, 1, 2, 3]
    assert few.query(np.ones(8), 3, where=by_keys).keys.tolist() == [[1, None, None]]


def test_prepared_filters_hold_after_reopening(tmp_path: Path):
    with MemoryStore(tmp_path / "store", random_state=0) as store:
        store.add(**tagged(["old"] * 4 + ["new"] * 4))
        prepared = store.filter({"tag": "old"})
        assert found(store, prepared) == {"old"}
    with MemoryStore(tmp_path / "store") as store:
        store.update_payload(list(range(4)), {"tag": "new"})
        store.update_payload(list(range(4, 8)), {"tag": "old"})
        assert found(store, prepared) == {"old"}
        assert store.delete(where=prepared) == 4
        assert sorted(store) == [0, 1, 2, 3]
