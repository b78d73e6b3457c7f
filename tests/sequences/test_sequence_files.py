"""Edit distances, trees and memories of sequences in files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba.sequences import EditDistance, VPTree

LETTERS = "abcd"


def words_of(rng: np.random.Generator, n: int) -> list[str]:
    return ["".join(rng.choice(list(LETTERS), rng.integers(0, 7))) for _ in range(n)]


def learned(rng: np.random.Generator, **options: Any) -> EditDistance:
    words = sorted(set(words_of(rng, 30)))
    distance = EditDistance(LETTERS, n_rounds=2, random_state=0, **options)
    return distance.fit(words, [word[1:] + "a" for word in words], np.arange(len(words)))


def test_symbols_of_many_kinds(tmp_path: Path):
    symbols = [("c", 1), ("c", (2, None)), 3, 4.5, "é", True, None]
    EditDistance(symbols).save(tmp_path / "distance")
    loaded = EditDistance.load(tmp_path / "distance")
    assert loaded.symbols_ == tuple(symbols)
    assert loaded.pairwise([[("c", 1), 3]], [[3]]).tolist() == [[1.0]]
    with pytest.raises(TypeError, match="symbols must be strings, numbers"):
        EditDistance([frozenset("a")]).save(tmp_path / "another")
    assert not (tmp_path / "another").exists()


def test_trees_go_on_with_the_costs_that_they_were_built_with(tmp_path: Path, rng: np.random.Generator):
    metric, points = learned(rng), words_of(rng, 90)
    tree = VPTree(metric, leaf_size=3, random_state=0)
    tree.insert(points[:60])
    metric.costs_ = 2.0 * metric.costs_
    tree.save(tmp_path / "tree")
    loaded = VPTree.load(tmp_path / "tree")
    for _ in range(2):
        for one, other in zip(loaded.query(points[60:], 3)[:2], tree.query(points[60:], 3)[:2], strict=True):
            np.testing.assert_array_equal(one, other)
        for each in (loaded, tree):
            each.rebuild()
