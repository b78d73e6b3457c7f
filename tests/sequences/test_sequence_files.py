"""Edit distances, trees and memories of sequences in files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import InvariantError
from cmt_numba.persistence import FileFormatError
from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree

LETTERS = "abcd"


def words_of(rng: np.random.Generator, n: int) -> list[str]:
    return ["".join(rng.choice(list(LETTERS), rng.integers(0, 7))) for _ in range(n)]


def learned(rng: np.random.Generator, **options: Any) -> EditDistance:
    words = sorted(set(words_of(rng, 30)))
    distance = EditDistance(LETTERS, n_rounds=2, random_state=0, **options)
    return distance.fit(words, [word[1:] + "a" for word in words], np.arange(len(words)))


def same(mine: Any, other: Any) -> None:
    for one, another in zip(mine, other, strict=True):
        np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize(
    "options",
    [
        {"transposition": 0.5, "gap_opening": 0.5},
        {"symmetric": False, "insertion": np.float64(2.0), "local": 0.5},
    ],
)
def test_distances(options: dict[str, Any], tmp_path: Path, rng: np.random.Generator):
    distance, words = learned(rng, **options), words_of(rng, 20)
    distance.save(tmp_path / "distance")
    loaded = EditDistance.load(tmp_path / "distance")
    np.testing.assert_array_equal(loaded.pairwise(words, words), distance.pairwise(words, words))
    assert loaded.errors_ == distance.errors_
    assert loaded.symbols_ == distance.symbols_
    before, after = distance.get_params(), loaded.get_params()
    assert {name for name in before if before[name] != after[name]} <= {"alphabet", "random_state"}


def test_symbols_of_many_kinds(tmp_path: Path):
    symbols = [("c", 1), ("c", (2, None)), 3, 4.5, "é", True, None]
    EditDistance(symbols).save(tmp_path / "distance")
    loaded = EditDistance.load(tmp_path / "distance")
    assert loaded.symbols_ == tuple(symbols)
    assert loaded.pairwise([[("c", 1), 3]], [[3]]).tolist() == [[1.0]]
    with pytest.raises(TypeError, match="symbols must be strings, numbers"):
        EditDistance([frozenset("a")]).save(tmp_path / "another")
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize("kind", ["words", "euclidean", "angular"])
def test_trees(kind: str, tmp_path: Path, rng: np.random.Generator):
    metric = learned(rng) if kind == "words" else kind
    points: Any = words_of(rng, 90) if kind == "words" else rng.normal(size=(90, 3))
    tree = VPTree(metric, leaf_size=3, random_state=0)
    for stop in (0, 60):
        if stop:
            tree.insert(points[:stop])
            tree.remove([3, 10, 40])
        tree.save(tmp_path / "tree")
        loaded = VPTree.load(tmp_path / "tree")
        same(loaded.query(points[60:], 3)[:2], tree.query(points[60:], 3)[:2])
    if kind == "words":
        metric.costs_ = 2.0 * metric.costs_
        tree.save(tmp_path / "tree")
        loaded = VPTree.load(tmp_path / "tree")  # goes on with the costs that it was built with
        same(loaded.query(points[60:], 3)[:2], tree.query(points[60:], 3)[:2])
        for one in (loaded, tree):
            one.rebuild()
    assert loaded.insert(points[60:]).tolist() == tree.insert(points[60:]).tolist() == list(range(60, 90))
    same(loaded.query(points, 3)[:2], tree.query(points, 3)[:2])
    assert len(loaded) == 87


def test_memories(tmp_path: Path, rng: np.random.Generator):
    words = sorted(set(words_of(rng, 120)))
    memory = SequenceMemory(learned(rng, transposition=1.0), n_candidates=10, random_state=0)
    for stop in (0, 50):
        if stop:
            memory.insert(words[:stop])
            memory.remove([0, 7])
            memory.feedback(["ddddd", "aa"], [4, 9], [1.0, 1.0])
        memory.save(tmp_path / "memory")
        loaded = SequenceMemory.load(tmp_path / "memory")
        assert len(loaded) == len(memory)
        same(loaded.query([*words, "ddddd"], 3), memory.query([*words, "ddddd"], 3))
    same([loaded.insert(words[50:])], [memory.insert(words[50:])])
    for one in (loaded, memory):
        one.remove(4)
    same(loaded.query(words, 3), memory.query(words, 3))


def test_invalid_contents_are_refused(tmp_path: Path, rng: np.random.Generator):
    distance = learned(rng, transposition=1.0)
    tree, memory = VPTree(learned(rng), random_state=0), SequenceMemory(distance, random_state=0)
    tree.insert(["ab", "cd", "", "abc"])
    memory.insert(["ab", "cd", "", "abc"])
    memory.feedback(["ba"], [0], [1.0])
    changes: list[tuple[Any, str, Any]] = [
        (distance, "costs.pairs", lambda pairs: pairs[1:]),
        (distance, "costs.pairs", lambda pairs: pairs + np.float32(1.0)),
        (distance, "costs.pairs", lambda pairs: pairs * np.float32(np.nan)),
        (distance, "costs.pairs", np.triu),
        (distance, "costs.swaps", lambda swaps: swaps[:2, :2]),
        (distance, "costs.swaps", lambda swaps: -swaps),
        (distance, "costs.openings", lambda openings: np.full(1, 1.0, np.float32)),
        (distance, "costs.openings", lambda openings: np.array([1.0, 2.0], np.float32)),
        (distance, "costs.ends", lambda ends: np.array([-1.0], np.float32)),
        (distance, "alphabet", lambda alphabet: alphabet[:-1]),
        (tree, "ids", lambda ids: ids[::-1].copy()),
        (tree, "ids", lambda ids: ids + 1),
        (tree, "ids", lambda ids: ids[1:]),
        (tree, "sequences.symbols", lambda symbols: symbols + np.int32(2)),
        (tree, "sequences.offsets", lambda offsets: offsets[::-1].copy()),
        (tree, "costs.pairs", lambda pairs: pairs[:0]),
        (memory, "owners", lambda owners: owners + 9),
        (memory, "owners", lambda owners: owners - 9),
        (memory, "owners", lambda owners: owners[1:]),
    ]
    for saved, name, change in changes:
        contents = saved._contents()
        contents.arrays[name] = change(contents.arrays[name])
        with pytest.raises((InvariantError, ValueError), match=r"must|not valid"):
            type(saved)._made_of(contents)
    (tmp_path / "nothing").write_bytes(b"nothing")
    distance.save(tmp_path / "distance")
    for kind in (EditDistance, VPTree, SequenceMemory):
        with pytest.raises(FileFormatError):
            kind.load(tmp_path / "nothing")
    with pytest.raises(FileFormatError, match="got 'EditDistance'"):
        VPTree.load(tmp_path / "distance")
