"""``SequenceMemory`` ranks candidates by the edit distance, learns corrections and removes sequences."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_jit
from failures import failing, interrupted_after
from internals import grams_of, sequences_encoding, sequences_sequence_memory
from threads import Threads

from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree

LETTERS = "abcdef"
EXHAUSTIVE = {"n_candidates": 200, "random_state": 0}


@pytest.fixture(params=["blocks", "n-grams"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Find candidates in blocks or by n-grams."""
    if request.param == "n-grams":
        monkeypatch.setattr(sequences_sequence_memory, "WORD", 0)
    return str(request.param)


def words(rng: np.random.Generator, n: int) -> list[str]:
    return sorted({"".join(rng.choice(list(LETTERS), rng.integers(2, 9))) for _ in range(n)})


def misspelt(word: str, rng: np.random.Generator) -> str:
    i = int(rng.integers(len(word)))
    return word[:i] + str(rng.choice(list(LETTERS))) + word[i + 1 :]


def test_keys_are_runs_of_symbols():
    alphabet = sequences_encoding.Alphabet("abc")
    keys = sequences_sequence_memory.ngram_keys(alphabet.encode("X", ["ab", "ba", "abab", ""]), 2, 16)
    assert keys.shape == (4, 1 << 16)
    assert keys.has_canonical_format
    # 'a', 'b', the end twice, and the runs of two: end-a, ab, b-end
    assert sorted(keys[[0]].data.tolist()) == pytest.approx([1.0, 1.0, *3 * [np.sqrt(2.0)], 2.0])
    both = (keys @ keys.T).toarray()
    assert both[0, 0] == pytest.approx(1 + 1 + 4 + 3 * 2)
    assert both[0, 1] == pytest.approx(1 + 1 + 4)  # the symbols and the ends
    assert both[0, 2] == pytest.approx(2 + 2 + 4 + 2 * (1 + 2 + 1))
    assert both[0, 3] == pytest.approx(4)
    alone = sequences_sequence_memory.ngram_keys(alphabet.encode("X", ["ba"]), 2, 16)
    assert (alone != keys[[1]]).nnz == 0


def test_all_candidates_give_the_exact_neighbours(way: str, rng: np.random.Generator):
    stored = words(rng, 120)
    asked = [misspelt(word, rng) for word in stored[:30]]
    distance = EditDistance(LETTERS, substitution=1.5, transposition=None)
    memory, tree = SequenceMemory(distance, **EXHAUSTIVE), VPTree(distance, random_state=0)
    assert memory.query(asked, 2).ids.tolist() == 30 * [[-1, -1]]
    for part in (stored[:80], stored[80:]):
        np.testing.assert_array_equal(memory.insert(part), tree.insert(part))
    gone = np.arange(0, len(stored), 3)
    for each in (memory, tree):
        each.remove(gone)
    found, expected = memory.query(asked, 4), tree.query(asked, 4)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    np.testing.assert_array_equal(found.n_computed, len(stored) - gone.size)
    np.testing.assert_array_equal(memory.ids, tree.ids)
    assert len(memory) == len(tree)
    assert 1 in memory
    assert 0 not in memory
    assert "1" not in memory


@needs_jit
def test_few_candidates_hold_the_right_word(way: str, rng: np.random.Generator):
    stored = words(rng, 2000)
    answers = rng.permutation(len(stored))[:200]
    asked = [misspelt(stored[i], rng) for i in answers]
    memory = SequenceMemory(EditDistance(LETTERS, substitution=1.5), n_candidates=40, random_state=0)
    memory.insert(stored)
    found = memory.query(asked, 40)
    assert (found.ids == answers[:, None]).any(axis=1).mean() > 0.8
    assert found.n_computed.max() <= 40


def test_a_correction_is_known_at_once(way: str, rng: np.random.Generator):
    stored = words(rng, 60)
    memory = SequenceMemory(EditDistance(LETTERS), **EXHAUSTIVE)
    memory.insert(stored)
    memory.feedback(["fffffffff", "eeeeeeeee", "ddd"], [7, 7, -1], [1.0, 0.5, 0.0])
    memory.feedback(["ccccccccc"], [[3, 7]], [[0.4, 0.2]])  # worth too little
    memory.feedback(["ccccccccc"], [-1], [0.0])  # a query without results
    found = memory.query(["fffffffff", "eeeeeeeee", "ccccccccc"], 2)
    assert found.ids[:2, 0].tolist() == [7, 7]
    assert found.distances[:2, 0].tolist() == [0.0, 0.0]
    assert found.distances[2, 0] > 0.0
    assert found.n_computed.tolist() == 3 * [len(stored) + 2]
    assert (found.ids[:, 0] != found.ids[:, 1]).all()
    memory.remove(np.setdiff1d(memory.ids, [5, 7, 9]))  # which frees the space of the others
    found = memory.query(["fffffffff", stored[5]], 4)
    assert found.ids[:, 0].tolist() == [7, 5]
    assert found.distances[:, 0].tolist() == [0.0, 0.0]
    assert (found.ids[:, 3] == -1).all()
    memory.remove(7)
    assert 7 not in memory.query(["fffffffff"], 2).ids
    assert memory.insert([stored[7]]).tolist() == [len(stored)]
    assert memory.query(["fffffffff"], 3).distances.min() > 0.0


@needs_jit
def test_ngrams_are_indexed_only_for_long_sequences(rng: np.random.Generator):
    stored = words(rng, 300)
    memory = SequenceMemory(EditDistance(LETTERS), **EXHAUSTIVE)
    memory.insert(stored[:100])
    memory.remove(np.arange(0, 100, 3))
    expected = memory.query(stored, 3)
    assert grams_of(memory) is None
    assert memory.insert(["abcde" * 13]).tolist() == [100]
    found = memory.query(stored, 3)
    assert grams_of(memory) is not None
    np.testing.assert_array_equal(found.distances, expected.distances)
    memory.insert(stored[100:])
    assert memory.query(stored[100:]).ids.ravel().tolist() == list(range(101, len(stored) + 1))
    memory.remove(memory.ids[memory.ids >= 20])
    assert memory.query(stored[1:2]).ids.tolist() == [[1]]
    assert grams_of(memory) is None


def test_equal_costs_are_ranked_exactly(rng: np.random.Generator):
    distance = EditDistance(LETTERS)
    stored = words(rng, 500)
    asked = [misspelt(word, rng) for word in stored[::30]]
    memory = SequenceMemory(distance, n_candidates=5)
    for part in (stored[:200], stored[200:250], stored[250:]):  # the last ones are not in blocks yet
        memory.insert(part)
        found, n = memory.query(asked, 5), len(memory)
        positions, lengths = distance.nearest(asked, stored[:n], 5)
        np.testing.assert_array_equal(found.ids, positions)
        np.testing.assert_array_equal(found.distances, lengths)


def test_an_interrupted_insertion(way: str):
    memory = SequenceMemory(EditDistance(LETTERS), **EXHAUSTIVE)
    memory.insert(["aaa", "bbb"])
    with failing("sequences._sequence_memory.SequenceMemory._append", KeyboardInterrupt):
        memory.insert(["ccc"])
    assert memory.ids.tolist() == [0, 1]
    assert sorted(memory.query(["ccc"], 3).ids[0].tolist()) == [-1, 0, 1]
    assert 2 not in memory
    assert memory.insert(["ddd"]).tolist() == [2]
    assert memory.query(["ddd"]).ids.tolist() == [[2]]
    assert memory.query(["ccc"], 3).ids[0].tolist() == [0, 1, 2]


def test_interrupted_and_failed_changes(way: str):
    memory = SequenceMemory(EditDistance(LETTERS), **EXHAUSTIVE)
    memory.insert(["aaa", "bbb", "ccc"])
    memory.query(["aaa"])
    with interrupted_after("sequences._point_store.PointStore.append"):
        memory.insert(["ddd"])
    assert memory.query(["ddd", "aaa"]).ids.tolist() == [[3], [0]]
    with failing("sequences._point_store.PointStore.taken"):
        memory.remove([0, 1, 2])
    assert memory.query(["ddd", "aaa"]).ids.tolist() == [[3], [0]]
    memory.remove([0, 1, 2])
    assert memory.query(["ddd", "aaa"]).ids.tolist() == [[3], [3]]
    if way == "n-grams":
        with interrupted_after("sequences._sequence_memory.GramIndex.remove"):
            memory.remove([3])
        assert len(memory) == 0


@needs_jit
def test_threads_query_copy_and_save_while_another_changes(tmp_path: Path, way: str, rng: np.random.Generator):
    kept, others = words(rng, 200)[::2], words(rng, 200)[1::2]
    memory = SequenceMemory(EditDistance(LETTERS), **EXHAUSTIVE)
    memory.insert(kept)

    def change() -> None:
        ids = memory.insert(others)
        memory.feedback(others[:5], ids[:5], np.ones(5))
        memory.remove(ids)

    with Threads(change):
        for each in 5 * [memory, copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))]:
            assert each.query(kept).ids.ravel().tolist() == list(range(len(kept)))
            memory.save(tmp_path / "memory")
            assert SequenceMemory.load(tmp_path / "memory").query(kept).ids.ravel().tolist() == list(range(len(kept)))


def test_what_cannot_be_used():
    for options, message in [
        ({"n_candidates": 0}, "n_candidates must be"),
        ({"longest_run": 9}, "longest_run must be"),
        ({"n_bits": 30}, "n_bits must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            SequenceMemory(EditDistance(LETTERS), **options)
    with pytest.raises(TypeError, match="distance must be an EditDistance, got str"):
        SequenceMemory("edit")  # type: ignore[arg-type]
    memory = SequenceMemory(EditDistance(LETTERS), n_candidates=5, random_state=0)
    memory.insert(["abc", "bcd"])
    with pytest.raises(ValueError, match="k must be at most n_candidates=5, got 6"):
        memory.query(["abc"], 6)
    with pytest.raises(ValueError, match="not in the alphabet"):
        memory.insert(["xyz"])
    for change in (lambda: memory.remove([0, 2]), lambda: memory.feedback(["abc"], [2], [1.0])):
        with pytest.raises(KeyError, match="2"):
            change()
    with pytest.raises(ValueError, match="rewards"):
        memory.feedback(["abc"], [0], [2.0])
    with pytest.raises(ValueError, match="ids must have one row"):
        memory.feedback(["abc"], [0, 1], [1.0, 1.0])
    assert memory.ids.tolist() == [0, 1]
    assert memory.query(["abc"]).n_computed.tolist() == [2]
