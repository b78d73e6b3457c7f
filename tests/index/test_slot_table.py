"""The slots of ids, compared with a dict."""

import numpy as np
import pytest
from internals import contents_of

from cmt_numba import MemoryStore
from cmt_numba._arrays import SlotTable


@pytest.mark.parametrize("seed", range(20))
def test_a_slot_table_is_like_a_dict(seed: int):
    random, table, known, next_id = np.random.default_rng(seed), SlotTable(), {}, 0
    for _ in range(60):
        kind = random.choice(["new", "remove", "old", "keep"])
        ids = np.empty(0, np.int64)
        if kind == "new":
            n = int(random.integers(1, 20))
            ids, next_id = random.permutation(np.arange(next_id, next_id + n)), next_id + n + int(random.integers(3))
        elif kind == "old":
            ids = random.choice(next_id, min(next_id, 6), replace=False) if next_id > 0 else ids
        elif kind == "remove":
            ids = random.choice(list(known), min(len(known), 5), replace=False) if known else ids
            table.set(ids, -1)
            known = {key: slot for key, slot in known.items() if key not in ids}
            continue
        elif random.random() < 0.3:
            table.keep(np.array(list(known), np.int64), np.array(list(known.values()), np.int64))
        slots = random.integers(0, 1000, ids.size)
        if ids.size > 0:
            table.set(ids, slots)
        known |= dict(zip(ids.tolist(), slots.tolist(), strict=True))
        asked = random.integers(-2, next_id + 5, (3, 4))
        assert table.find(asked).tolist() == [[known.get(key, -1) for key in row] for row in asked.tolist()]
        assert table.count() == len(known)


def test_memory_is_proportional_to_what_is_stored():
    store = MemoryStore(random_state=0, max_items=300, eviction="oldest")
    for first in range(0, 6000, 300):
        store.add(range(first, first + 300), texts=["some words"] * 300)
    assert contents_of(store).state.texts._slots.nbytes < 16 * 4 * 300
    store.check_invariants()
