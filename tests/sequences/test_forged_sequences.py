"""Forged files of distances and trees, with valid checksums, are refused or load objects that work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from forged import check_forgeries

from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree

WORDS = ["abc", "bca", "", "aab", "cc", "abcabc", "ba", "b", "cab"]
ROWS = np.random.default_rng(0).normal(size=(9, 2))


def learned(**options: Any) -> EditDistance:
    return EditDistance("abc", n_rounds=1, random_state=0, **options).fit(WORDS, WORDS[::-1], np.arange(9))


def tree(points: Any, *args: Any, **options: Any) -> VPTree:
    made = VPTree(*args, leaf_size=2, random_state=0, **options)
    made.insert(points)
    made.remove([1])
    return made


def memory(distance: EditDistance) -> SequenceMemory:
    made = SequenceMemory(distance, n_bits=8, random_state=0)
    made.insert(WORDS)
    made.feedback(["abba", "c"], [0, 4], [1.0, 1.0])
    made.remove([1])
    return made


THINGS: dict[str, Callable[[], Any]] = {
    "plain": lambda: EditDistance("abc"),
    "learned": lambda: learned(transposition=1.0, gap_opening=0.5),
    "directed": lambda: learned(symmetric=False, local=0.5),
    "numbers": lambda: EditDistance([(1, 2.0), (3, 4.0), "c"]),
    "euclidean": lambda: tree(ROWS),
    "angular": lambda: tree(ROWS, "angular", tolerance=0.05),
    "words": lambda: tree(WORDS, EditDistance("abc")),
    "learned words": lambda: tree(WORDS, learned(), tolerance=0.05),
    "empty": lambda: VPTree(random_state=0),
    "memory": lambda: memory(learned(symmetric=False)),
}


def use(thing: Any) -> None:
    """Use a distance, a tree or a memory as users do."""
    distance = thing if isinstance(thing, EditDistance) else getattr(thing, "distance", getattr(thing, "metric", None))
    if isinstance(distance, EditDistance):
        symbols = distance.symbols_
        points: Any = [[], [symbols[0]], [symbols[-1], symbols[0]], list(symbols)[:4]]
        if distance is thing:
            lengths = distance.pairwise(points, points)
            assert (lengths >= 0.0).all()
            assert np.isfinite(lengths).all()
            assert distance.align(points[1], points[2]).distance >= 0.0
            if distance.symmetric:
                tree(points, distance, tolerance=0.1)
            return
    else:
        width = thing._stored().rows.shape[1] if thing._store is not None else 2
        points = np.random.default_rng(1).normal(size=(4, width))
    for _ in range(2):
        found = thing.query(points, min(5, getattr(thing, "n_candidates", 5)))
        assert (np.isin(found.ids, thing.ids) | (found.ids == -1)).all()
        assert np.isfinite(found.distances[found.ids >= 0]).all()
        ids = thing.insert(points)
        if isinstance(thing, SequenceMemory):
            thing.feedback(points, ids, [1.0, 0.0, 1.0, 0.5])
        elif isinstance(thing, VPTree):
            thing.rebuild()
        thing.remove(thing.ids[::2])


@needs_jit
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", THINGS)
def test_forged_files_are_refused_or_work(name: str, tmp_path: Path):
    thing = THINGS[name]()
    thing.save(tmp_path / "file")
    # Distances are tested by themselves; the trees of a memory are those of a retriever, which has tests of its own.
    check_forgeries(
        (tmp_path / "file").read_bytes(),
        type(thing).load,
        use,
        tmp_path / "forged",
        ("retriever", "distance", "metric."),
    )
