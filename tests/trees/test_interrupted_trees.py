"""Changes interrupted at any line of the library leave a usable tree."""

import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF, needs_jit
from internals import forest_of, forest_room
from interruptions import Lines

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

N = 24


def rows(first: int, stop: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(100, 4))[first:stop]


def grown(options: dict[str, Any]) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(leaf_multiplier=1.0, n_reroutes=1, n_threads=1, random_state=0, **options)
    tree.insert(rows(0, N))
    tree.query(rows(0, 5), 2)
    return tree


def learn(tree: ContextualMemoryTree) -> None:
    labels = np.arange(100) % 3
    tree.learn(rows(0, 6), LabelEquality(labels, labels), k=2)


CHANGES: dict[str, Callable[[ContextualMemoryTree], Any]] = {
    "insert": lambda tree: tree.insert(rows(30, 38)),
    "remove": lambda tree: tree.remove([0, N - 1, 7]),
    "replace": lambda tree: tree.replace([3, 9], rows(40, 42)),
    "update": lambda tree: tree.update(rows(0, 4), tree.query(rows(0, 4), 2, epsilon=0.5), np.full((4, 2), 0.5)),
    "learn": learn,
    "reroute": lambda tree: tree.reroute(3),
    "rebuild": lambda tree: tree.rebuild(np.arange(10), np.arange(10) // 2),
    "compact": lambda tree: tree.compact(),
    "query": lambda tree: tree.query(rows(0, 4), 2),
    "query among": lambda tree: tree.query(rows(0, 4), 2, among=[2, 3]),
}

TREES: dict[str, dict[str, Any]] = {
    "plain": {"n_trees": 2},
    **{eviction: {"max_memories": N, "eviction": eviction} for eviction in forest_room.EVICTIONS},
}

CASES = [
    *(("plain", change) for change in CHANGES),
    *((eviction, "insert") for eviction in forest_room.EVICTIONS),
    *(("least_recently_returned", change) for change in ("query", "query among", "remove", "replace", "compact")),
]
"""All changes, and those that evict memories or change the order in which memories were returned."""


@needs_jit
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_interrupt_at_any_line(tmp_path: Path, kind: str, change: str):
    """Each line is interrupted on its first and on its last execution."""
    tree = grown(TREES[kind])
    before = pickle.dumps(tree)
    CHANGES[change](pickle.loads(before))  # compile all kernels
    lines = Lines()
    lines.run(lambda: CHANGES[change](tree))
    stops = sorted({number for numbers in lines.places.values() for number in (numbers[0], numbers[-1])})
    assert len(stops) > 10
    for turn, stop in enumerate(stops):
        tree = pickle.loads(before)
        with pytest.raises(KeyboardInterrupt):
            Lines(stop).run(lambda: CHANGES[change](tree))  # noqa: B023
        check_usable(tree, change, tmp_path / "tree.cmt" if turn % 10 == 0 else None)


@needs_jit
def test_second_interrupt_waits_until_the_first_is_undone(monkeypatch: pytest.MonkeyPatch):
    tree, undo = grown({"n_trees": 2}), forest_room.undo_moves

    def grow(*_: Any) -> Any:
        raise KeyboardInterrupt

    def undo_interrupted(view: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        undo(view)

    monkeypatch.setattr(forest_room, "with_more", grow)
    monkeypatch.setattr(forest_room, "undo_moves", undo_interrupted)
    with pytest.raises(KeyboardInterrupt):
        tree.insert(np.random.default_rng(6).normal(size=(500, 4)))
    monkeypatch.undo()
    assert len(tree) == N
    check_usable(tree, "insert", None)


def check_usable(tree: ContextualMemoryTree, change: str, path: Path | None) -> None:
    tree.check_invariants()
    may_go = {"insert": 8 if forest_of(tree).options["max_memories"] else 0, "remove": 3}.get(change, 0)
    assert len(tree) >= N - may_go
    if path is not None:
        tree.save(path)
        tree = ContextualMemoryTree.load(path)
        tree.check_invariants()
    ids = tree.insert(rows(50, 53))
    assert set(tree.query(rows(50, 53), n_probes=EVERY_LEAF).ids[:, 0].tolist()) == set(ids.tolist())
    tree.remove(ids[0])
    tree.check_invariants()
