"""Shards that learn from the rewards of each other's memories, as stores in one process."""

from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORM_OF

from cmt_numba import MemoryStore
from cmt_numba.distributed._results import mean_summary, merge_explained, merge_results
from cmt_numba.distributed._store_access import learn_from_all, query, rewarded, statistics_of
from cmt_numba.store._words import hash_words

N, WIDTH = 60, 16


@pytest.mark.parametrize("form", FORM_OF)
def test_two_shards_learn_like_one_store(form: str, tmp_path: Path):
    rng, to = np.random.default_rng(0), FORM_OF[form]
    keys = rng.normal(size=(N, WIDTH)).astype(np.float32)
    one = MemoryStore(random_state=0)
    one.add(np.arange(N), to(keys))
    shards = [MemoryStore(tmp_path / f"{i}", random_state=i) for i in range(2)]
    for i, shard in enumerate(shards):
        shard.add(np.arange(i, N, 2), to(keys[i::2]))

    def ask(n: int) -> tuple[Any, np.ndarray]:  # half of the features are noise
        wanted = rng.integers(0, N, n)
        rows = keys[wanted].copy()
        rows[:, WIDTH // 2 :] = rng.normal(size=(n, WIDTH // 2))
        return to(rows), wanted

    def found(Q: Any, k: int) -> np.ndarray:
        return merge_results([shard.query(Q, k) for shard in shards], k).keys.astype(np.int64)

    Q, wanted = ask(400)
    before = np.mean(one.query(Q, 1).keys[:, 0] == wanted)
    for _ in range(25):
        asked, right = ask(20)
        shown = one.query(asked, 3).keys
        one.feedback(asked, shown, (shown == right[:, None]).astype(float))
        shown = found(asked, 3)
        known = np.unique(shown).tolist()
        for shard in shards:
            rewards = (shown == right[:, None]).astype(float)
            learn_from_all(shard, asked, None, shown, rewards, (known, to(keys)[known]), None)
    after = np.mean(one.query(Q, 1).keys[:, 0] == wanted)
    shared = np.mean(found(Q, 1)[:, 0] == wanted)
    assert after > before + 0.1
    assert shared > after - 0.05
    for i in range(5):
        explained = merge_explained([shard.explain(Q[[i]], 4) for shard in shards], 4)
        assert [result.key for result in explained] == found(Q[[i]], 4)[0].tolist()
        assert all(result.parts["similarity"] < 1.0 for result in explained)
    learned = [shard.learned() for shard in shards]
    mean = mean_summary([summary for summary in learned if summary is not None])
    assert mean is not None
    assert 0.0 < mean.gain == pytest.approx(np.mean([summary.gain for summary in learned if summary is not None]))
    assert [part.name for part in mean.parts][:1] == ["similarity"]
    for i, shard in enumerate(shards):
        expected = shard.query(Q[:20], 5)
        shard.close()
        with MemoryStore(tmp_path / f"{i}") as again:
            np.testing.assert_array_equal(again.query(Q[:20], 5).keys, expected.keys)
            again.check_invariants()


@pytest.mark.parametrize("form", FORM_OF)
def test_only_stored_memories_of_a_kind_are_rewarded(form: str):
    X = FORM_OF[form](np.eye(4, dtype=np.float32))
    bounded, unbounded = MemoryStore(max_items=3, random_state=0), MemoryStore(random_state=0)
    for store in (bounded, unbounded):
        store.add(["a"], X[:1], texts="red")
        store.add(["b", "c"], X[1:3])
        store.add(["d"], texts="blue")  # evicts "a" from the bounded store
    keys, vectors = rewarded(bounded, ["a", "b", "c", "d"], False)
    assert keys == ["b", "c"]
    assert (vectors != X[1:3]).sum() == 0
    assert rewarded(bounded, ["a", "b", "d"], True) == (["d"], ["blue"])
    assert rewarded(bounded, ["a", "d"], False) == ([], None)
    assert rewarded(unbounded, ["d", "a"], True) == (["d", "a"], ["blue", "red"])
    with pytest.raises(KeyError, match="nobody"):
        rewarded(unbounded, ["a", "nobody"], False)


def test_shards_learn_by_texts_alone(tmp_path: Path):
    rng = np.random.default_rng(0)
    notes = [f"w{i % 7} w{i % 11} note{i}" for i in range(N)]
    one = MemoryStore(random_state=0)
    one.add(np.arange(N), texts=notes)
    shards = [MemoryStore(tmp_path / f"{i}", random_state=i) for i in range(2)]
    shards.append(MemoryStore(random_state=0))  # has no texts, and learns nothing
    for i, shard in enumerate(shards[:2]):
        shard.add(np.arange(i, N, 2), texts=notes[i::2])

    def ask(n: int) -> tuple[list[str], np.ndarray]:
        wanted = rng.integers(0, N, n)
        return [f"w{i % 7} w{(i * 3) % 11} problem{i % 20}" for i in wanted], wanted

    def statistics_of_all(words: Any) -> Any:
        distinct = list(set[int]().union(*words))
        return reduce(or_, [statistics_of(shard, distinct) for shard in shards])

    def found(texts: list[str], k: int) -> Any:
        words = [hash_words(text) for text in texts]
        statistics = statistics_of_all(words)
        return merge_results([query(shard, None, words, k, None, None, statistics) for shard in shards], k)

    queries, wanted = ask(300)
    before = np.mean(one.query(texts=queries, k=1).keys[:, 0] == wanted)
    np.testing.assert_allclose(found(queries, 3).scores, one.query(texts=queries, k=3).scores, rtol=1e-6)
    for _ in range(20):
        asked, right = ask(20)
        shown = one.query(texts=asked, k=3).keys
        one.feedback(None, shown, (shown == right[:, None]).astype(float), texts=asked)
        shown, words = found(asked, 3).keys, [hash_words(text) for text in asked]
        known = sorted({int(key) for key in shown.ravel() if key is not None})
        others = known, [notes[key] for key in known]
        for shard in shards:
            rewards = (shown == right[:, None]).astype(float)
            learn_from_all(shard, None, words, shown, rewards, others, statistics_of_all(words))
    after = np.mean(one.query(texts=queries, k=1).keys[:, 0] == wanted)
    shared = np.mean(found(queries, 1).keys[:, 0] == wanted)
    assert after > before + 0.1
    assert shared > after - 0.05
    for i, shard in enumerate(shards[:2]):
        expected = shard.query(texts=queries[:20], k=5)
        shard.close()
        with MemoryStore(tmp_path / f"{i}") as again:
            np.testing.assert_array_equal(again.query(texts=queries[:20], k=5).scores, expected.scores)
