"""Trees with a bounded number of memories."""

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF, needs_jit
from failures import failing
from internals import forest_of, forest_room, state_of
from test_tree import assert_holds

from cmt_numba import ContextualMemoryTree, InvariantError


def bounded(most: int, eviction: str, **options: Any) -> ContextualMemoryTree:
    return ContextualMemoryTree(max_memories=most, eviction=eviction, leaf_multiplier=1.0, random_state=0, **options)


@pytest.mark.parametrize("eviction", forest_room.EVICTIONS)
@pytest.mark.parametrize("lengths", [[1] * 60, [25, 10, 25], [60], [50, 10]], ids=["one by one", "some", "all", "full"])
def test_the_number_of_memories_stays_bounded(
    monkeypatch: pytest.MonkeyPatch, keys: Any, eviction: str, lengths: list[int]
):
    tree, sizes = bounded(50, eviction), []
    real = forest_room.insert_slots

    def counted(*arguments: Any) -> int:
        sizes.append(arguments[2])
        return int(real(*arguments))

    monkeypatch.setattr(forest_room, "insert_slots", counted)
    first = 0
    for length in lengths:
        ids = tree.insert(keys[first : first + length])
        np.testing.assert_array_equal(ids, np.arange(first, first + length))
        first += length
        tree.check_invariants()
    assert len(tree) == max(sizes) == 50
    assert_holds(tree, tree.ids, keys[tree.ids])


@pytest.mark.parametrize("eviction", forest_room.EVICTIONS)
def test_the_same_on_any_number_of_threads(keys: Any, eviction: str):
    trees = [bounded(120, eviction, n_trees=3, n_threads=n) for n in (1, 2)]
    for tree in trees:
        tree.insert(keys)
        tree.query(keys, 3, epsilon=0.3)
        tree.insert(keys[:70])
        tree.insert(keys[:1])
    np.testing.assert_array_equal(*(tree.ids for tree in trees))
    np.testing.assert_array_equal(*(state_of(tree).leaf_of[:, :120] for tree in trees))
    np.testing.assert_array_equal(*(tree.query(keys, 3, epsilon=0.2).ids for tree in trees))


def test_nbytes_includes_the_eviction_order(dense_keys: np.ndarray):
    sizes = {}
    for eviction in forest_room.EVICTIONS:
        tree = bounded(200, eviction)
        tree.insert(dense_keys[:200])
        sizes[eviction] = tree.nbytes
    assert sizes["oldest"] == sizes["random"]
    assert sizes["least_recently_returned"] == sizes["oldest"] + 200 * 8 + 24
    assert forest_of(ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)).eviction.nbytes == 0


@needs_jit
@pytest.mark.parametrize("eviction", forest_room.EVICTIONS)
def test_memory_stays_bounded(eviction: str):
    tree = bounded(500, eviction)
    keys = np.random.default_rng(0).normal(size=(20_000, 8))
    used = []
    for first in range(0, 20_000, 250):
        tree.insert(keys[first : first + 250])
        tree.query(keys[first : first + 50])
        used.append(tree.nbytes)
    assert max(used[40:]) <= 1.02 * max(used[4:40])
    tree.check_invariants()


@needs_jit
@pytest.mark.parametrize("eviction", forest_room.EVICTIONS)
@pytest.mark.parametrize(("n", "error"), [(1, MemoryError), (2, MemoryError), (2, KeyboardInterrupt)])
def test_a_failed_insert_loses_only_evicted_memories(n: int, error: type[BaseException], eviction: str):
    """None of the batch is left, and of the earlier memories all except those that had to make room."""
    keys = np.random.default_rng(0).normal(size=(3000, 6))
    tree = bounded(1000, eviction, n_trees=2, n_threads=2)
    tree.insert(keys[:300])
    tree.insert(keys[300:600])
    with failing("_forest.with_more", error, n):
        tree.insert(keys[1000:3000])
    assert tree.ids.max(initial=0) < 600
    tree.check_invariants()
    assert_holds(tree, tree.ids, keys[tree.ids])
    first = tree.insert(keys[600:1600])[0]
    assert first >= 600
    assert_holds(tree, tree.ids, keys[np.where(tree.ids < 600, tree.ids, tree.ids - first + 600)])


def test_memories_missing_from_the_order_are_evicted_last(dense_keys: np.ndarray):
    """If an insert and its rollback are both interrupted, some memories are missing from the eviction order."""
    tree = bounded(50, "least_recently_returned")
    tree.insert(dense_keys[:50])
    tree.query(dense_keys[:10], n_probes=EVERY_LEAF)
    forest_of(tree).eviction.taken_back(48)
    tree.remove([30, 49])  # a listed one and an unlisted one
    tree.check_invariants()
    tree.insert(dense_keys[50:60])
    tree.check_invariants()
    assert set(tree.ids.tolist()) == {*range(10), *range(18, 60)} - {30, 49}


def test_errors_in_an_eviction_order_are_found(dense_keys: np.ndarray):
    tree = bounded(50, "least_recently_returned")
    tree.insert(dense_keys[:20])
    policy = forest_of(tree).eviction
    assert isinstance(policy, forest_room.eviction.LeastRecentlyReturned)
    sound = policy.recency
    for name, index, value, reason in (
        ("after", 3, 2, "does not list every"),
        ("after", 3, 2**30, "refers to a memory that does not exist"),
        ("after", 3, -5, "refers to a memory that does not exist"),
        ("before", 3, 7, "inconsistent between its two directions"),
        ("totals", forest_room.eviction.LAST, 3, "inconsistent between its two directions"),
        ("totals", forest_room.eviction.LENGTH, 19, "does not list every"),
    ):
        policy.recency = pickle.loads(pickle.dumps(sound))
        getattr(policy.recency, name)[index] = value
        with pytest.raises(InvariantError, match=reason):
            tree.check_invariants()
    policy.recency = sound._replace(before=sound.before.astype(np.int64))
    with pytest.raises(InvariantError, match="before must be of dtype int32"):
        tree.check_invariants()
    policy.recency = sound
    tree.check_invariants()
    forest_of(tree).options["max_memories"] = 19
    with pytest.raises(InvariantError, match="the number of memories, 20, exceeds max_memories=19"):
        tree.check_invariants()


def test_one_progress_bar_for_all_parts(capsys: pytest.CaptureFixture[str], dense_keys: np.ndarray):
    trees = [bounded(40, "oldest") for _ in range(2)]
    for tree, progress in zip(trees, (False, True), strict=True):
        tree.insert(dense_keys, progress=progress)
        shown = capsys.readouterr().err
        assert ("300/300" in shown) is progress
        assert "5/5" not in shown
    np.testing.assert_array_equal(*(tree.ids for tree in trees))


def test_unusable_rows_evict_nothing(dense_keys: np.ndarray):
    tree = bounded(20, "oldest")
    tree.insert(dense_keys[:20])
    with pytest.raises(ValueError, match="X must be finite"):
        tree.insert(np.full((3, 8), np.nan))
    assert_holds(tree, np.arange(20), dense_keys[:20])
