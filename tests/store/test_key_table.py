"""Comparison of a store's table of keys with a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from internals import store_records as records


@given(st.lists(st.tuples(st.sampled_from(["append", "mark", "delete"]), st.integers(0, 2**16)), max_size=25))
def test_a_table_of_keys_is_a_dict(changes: list[tuple[str, int]]):
    table, expected, next_id = records.KeyTable(), {}, 0
    for kind, seed in changes:
        random = np.random.default_rng(seed)
        some = random.permutation(np.array(list(expected), np.int64))[: random.integers(12)]
        given = random.random(some.size) < 0.5
        if kind == "append":
            new = next_id + np.cumsum(random.integers(1, 3, random.integers(1, 9)))
            given, next_id = random.random(new.size) < 0.5, int(new[-1]) + 1
            table.append(new, [f"k{i}" for i in new], np.where(given, records.WITH, records.WITHOUT))
            expected |= {int(i): (f"k{i}", bool(has)) for i, has in zip(new, given, strict=True)}
        elif kind == "mark":
            table.mark(some, np.where(given, records.WITH, records.WITHOUT))
            expected |= {int(i): (f"k{i}", bool(has)) for i, has in zip(some, given, strict=True)}
        else:
            table.delete(some)
            expected = {i: record for i, record in expected.items() if i not in some}
        named = table.find(np.arange(-1, next_id + 2))
        columns = named.ids, named.keys, named.are_there, named.kinds == records.WITH
        found = zip(*(column.tolist() for column in columns), strict=True)
        assert {i: (key, has) for i, key, there, has in found if there} == expected
        assert table.kind is (str if expected else None)


def test_ids_may_begin_anywhere_and_be_asked_in_any_shape():
    for first in (0, 7):
        table = records.KeyTable()
        table.append(
            np.arange(first, first + 3), [10, 11, 12], np.array([records.WITH, records.WITHOUT, records.WITH], np.int8)
        )
        for ids in (np.array([[first + 2, first], [-1, first + 3]]), np.array([[first + 1], [first - 1]])):
            named = table.find(ids)
            keys, are_there, has_payload = named.keys, named.are_there, named.kinds == records.WITH
            assert named.are_all_there() == are_there.all()
            assert named.may_have_payloads() or not has_payload[are_there].any()
            assert np.array_equal(are_there, (ids >= first) & (ids < first + 3))
            assert np.array_equal(keys[are_there], ids[are_there] - first + 10)
            assert np.array_equal(has_payload[are_there], (ids[are_there] - first) % 2 == 0)
        table.delete(np.array([first + 1]))
        assert table.find(np.arange(first, first + 3)).are_there.tolist() == [True, False, True]
