"""The rest of the public interface, and failures in the middle of an operation."""

import weakref
from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF, needs_jit, text_like
from failures import failing
from internals import forest_of, forest_room, kernels_room, linear_room, prove, state_of

from cmt_numba import ContextualMemoryTree


def test_empty():
    tree = ContextualMemoryTree(n_trees=2)
    assert len(tree) == tree.n_memories == tree.depth == tree.nbytes == 0
    assert tree.n_features is None
    assert tree.ids.shape == (0,)
    assert tree.ids.dtype == np.int64
    assert 0 not in tree
    tree.check_invariants()
    tree.reroute(3)
    hits = tree.query(np.ones((3, 4)), k=2, epsilon=1.0)
    np.testing.assert_array_equal(hits.ids, np.full((3, 2), -1))
    np.testing.assert_array_equal(hits.scores, np.full((3, 2), -np.inf))
    np.testing.assert_array_equal(hits.exploration.tree, [-1] * 3)
    tree.update(np.ones((3, 4)), hits, np.zeros(3))
    assert tree.learn(np.ones((3, 4)), lambda rows, ids: np.ones(ids.shape)) == 0.0
    assert len(tree) == 0


def test_contents(dense_keys: np.ndarray):
    tree = ContextualMemoryTree(random_state=0)
    ids = tree.insert(dense_keys)
    np.testing.assert_array_equal(ids, np.arange(300))
    assert ids.dtype == np.int64
    assert len(tree) == tree.n_memories == 300
    assert tree.n_features == 8
    assert tree.depth >= 3
    assert tree.nbytes > dense_keys.nbytes
    assert 299 in tree
    assert np.int32(0) in tree
    for absent in (300, -1, 2**70, 1.0, "1", None, True):
        assert absent not in tree
    tree.remove([0, 5])
    assert 0 not in tree
    assert 5 not in tree
    assert set(tree.ids.tolist()) == set(range(300)) - {0, 5}
    held = tree.ids
    held[:] = -7  # this is a copy
    tree.check_invariants()
    np.testing.assert_array_equal(tree.insert(dense_keys[:2]), [300, 301])


def test_repr(dense_keys: np.ndarray):
    tree = ContextualMemoryTree(2, alpha=0.5, router_loss="logistic", scorer_loss="regression")
    assert repr(tree).startswith("ContextualMemoryTree(n_trees=2, alpha=0.5, leaf_multiplier=4.0, n_reroutes=5, ")
    assert "router_loss='logistic'" in repr(tree)
    assert "scorer_loss='regression'" in repr(tree)
    assert repr(tree).endswith("with 0 memories")
    tree.insert(dense_keys[:7])
    assert repr(tree).endswith("with 7 memories")


@pytest.mark.parametrize("n_rows", [1, 7, 250])
def test_progress(capsys: pytest.CaptureFixture[str], dense_keys: np.ndarray, n_rows: int):
    """A progress bar writes to the standard error and changes nothing else."""
    trees = [ContextualMemoryTree(n_trees=2, random_state=0) for _ in range(2)]
    shown: list[str] = []
    answers = []
    for tree, progress in zip(trees, (False, True), strict=True):
        prove(tree)
        tree.insert(dense_keys[:n_rows], progress=progress)
        shown.append(capsys.readouterr().err)
        hits = tree.query(dense_keys[:n_rows], k=2, epsilon=0.5, progress=progress)
        shown.append(capsys.readouterr().err)
        tree.update(dense_keys[:n_rows], hits, np.ones(n_rows), progress=progress)
        shown.append(capsys.readouterr().err)
        tree.reroute(n_rows, progress=progress)
        shown.append(capsys.readouterr().err)
        tree.replace(np.arange(n_rows), -dense_keys[:n_rows], progress=progress)
        shown.append(capsys.readouterr().err)
        answers.append(tree.query(dense_keys, k=3))
    assert shown[:5] == [""] * 5
    for text, unit in zip(shown[5:], ("insert", "query", "update", "reroute", "replace"), strict=True):
        assert f"{n_rows}/{n_rows}" in text
        assert unit in text
    np.testing.assert_array_equal(answers[0].ids, answers[1].ids)
    np.testing.assert_array_equal(answers[0].scores, answers[1].scores)


# Failures in the middle of an operation


def assert_holds(tree: ContextualMemoryTree, ids: np.ndarray, keys: Any) -> None:
    """Check that a tree holds these memories, finds each of them, and holds no others."""
    tree.check_invariants()
    assert set(tree.ids.tolist()) == set(ids.tolist())
    hits = tree.query(keys, n_probes=EVERY_LEAF)
    same = np.asarray(hits.ids[:, 0] == ids)
    np.testing.assert_allclose(hits.scores[~same], 1.0, rtol=1e-5)  # equal keys are interchangeable
    assert np.mean(same) > 0.99


FAILURES = [(n, error) for n in (1, 2, 3) for error in (MemoryError, KeyboardInterrupt)]


@needs_jit
@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n", "error"), FAILURES)
def test_failing_insert(n: int, error: type[BaseException], sparse: bool, n_trees: int):
    """An insert that fails leaves the memories stored before, and none of its own."""
    keys = text_like(2000, 400, 12, seed=3)
    keys = keys if sparse else keys[:, :16].toarray() + np.random.default_rng(0).normal(size=(2000, 16))
    tree = ContextualMemoryTree(n_trees=n_trees, leaf_multiplier=1.0, n_reroutes=2, n_threads=2, random_state=0)
    ids = tree.insert(keys[:100])
    with failing("_forest.with_more", error, n):
        tree.insert(keys[100:])
    assert_holds(tree, ids, keys[:100])
    later = tree.insert(keys[100:200])
    assert later.min() > ids.max()
    assert_holds(tree, np.concatenate([ids, later]), keys[:200])
    tree.remove(ids)
    assert_holds(tree, later, keys[100:200])


@needs_jit
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("n", [1, 2])
def test_failing_first_insert(n: int, error: type[BaseException]):
    keys = np.random.default_rng(0).normal(size=(1000, 6))
    tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
    with failing("_forest.with_more", error, n):
        tree.insert(keys)
    tree.check_invariants()
    assert len(tree) == 0
    assert tree.query(keys[:1]).ids.tolist() == [[-1]]
    assert_holds(tree, tree.insert(keys), keys)


def drop_spare_room(tree: ContextualMemoryTree) -> None:
    """Remove the spare room of a tree's arrays, so that the next split or new feature needs more."""
    state = state_of(tree)
    cells, leaves = (
        int(state.counters[:, end].max()) for end in (linear_room.TABLES_END, forest_room.state.LEAVES_END)
    )
    forest_of(tree).state = state._replace(
        weights=state.weights._replace(table=kernels_room.resized(state.weights.table, cells, 1)),
        leaves=kernels_room.resized(state.leaves, leaves, 1),
        members=kernels_room.resized(state.members, leaves, 1),
    )


@needs_jit
@pytest.mark.parametrize("operation", ["reroute", "update"])
@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize(("n", "error"), [(1, MemoryError), (2, MemoryError), (1, KeyboardInterrupt)])
def test_failing_reroutes(n: int, error: type[BaseException], n_trees: int, operation: str):
    """Memories that are being moved when memory runs out are put back."""
    keys = text_like(1500, 2000, 12, seed=4)
    tree = ContextualMemoryTree(n_trees=n_trees, leaf_multiplier=1.0, n_reroutes=0, n_threads=2, random_state=0)
    ids = tree.insert(keys[:1000])
    prove(tree)
    queries = keys[1000:]
    hits = tree.query(queries, epsilon=1.0)
    # Lower the limit, as many removals would: leaves are too full now and split at the next insert.
    forest_of(tree).state = state_of(tree)._replace(
        parameters=state_of(tree).parameters._replace(n_reroutes=20, leaf_multiplier=0.3)
    )
    drop_spare_room(tree)
    with failing("_forest.with_more", error, n):
        tree.update(queries, hits, np.ones(500)) if operation == "update" else tree.reroute(10_000)
    assert_holds(tree, ids, keys[:1000])
    tree.update(queries, hits, np.ones(500))
    later = tree.insert(queries)
    assert set(tree.ids.tolist()) == set(ids.tolist()) | set(later.tolist())
    tree.check_invariants()


@needs_jit
def test_failing_thread(monkeypatch: pytest.MonkeyPatch):
    """An interrupt while several threads grow trees leaves the same memories in all trees."""
    keys = np.random.default_rng(0).normal(size=(3000, 6))
    tree = ContextualMemoryTree(n_trees=3, n_threads=2, random_state=0)
    ids = tree.insert(keys[:200])
    real = forest_room.insert_slots

    def interrupted(*arguments: Any) -> int:
        if arguments[1].first == 1:
            raise KeyboardInterrupt
        return int(real(*arguments))

    with monkeypatch.context() as patch:
        patch.setattr(forest_room, "insert_slots", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tree.insert(keys[200:])
    assert_holds(tree, ids, keys[:200])


def test_ids_in_order_leave_gaps():
    """Removing an id from the slot table visits the entries up to the next gap, so runs must be short."""
    tree = ContextualMemoryTree(n_reroutes=0, random_state=0)
    for n in (300, 3000, 30_000):
        tree.insert(np.ones((n - len(tree), 1)))
        gaps = np.flatnonzero(state_of(tree).keys.slot_table == kernels_room.NONE)
        assert gaps.size > 0
        assert np.diff(gaps).max() < 50


def test_queries_keep_no_arrays_that_have_grown():
    """The view of a tree for kernels is made once, and replaced when the tree has other arrays."""
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(X[:20])
    assert tree.query(X[:1]).ids.shape == (1, 1)
    former = weakref.ref(state_of(tree).keys.values)
    tree.insert(X[20:])
    assert former() is None
    before = tree.query(X[:20], 3, n_probes=EVERY_LEAF)
    prove(tree)
    tree.update(X[:20], before, np.linspace(0.0, 1.0, 60).reshape(20, 3))
    assert np.abs(tree.query(X[:20], 3, n_probes=EVERY_LEAF).scores - before.scores).max() > 0.0


def test_search_views_are_renewed_only_when_arrays_grow(dense_keys: np.ndarray):
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(dense_keys)
    tree.insert(dense_keys[:1])  # may need more room
    state = state_of(tree)
    tree.insert(dense_keys[1:2])
    assert state_of(tree) is state


def test_plot_shows_leaves_and_routers():
    pytest.importorskip("matplotlib")
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    assert len(tree.plot().axes) == 3  # of an empty tree, too
    tree.insert(np.random.default_rng(0).normal(size=(300, 8)))
    depths, sizes, routers = tree.plot().axes
    assert sum(bar.get_height() for bar in depths.patches) == sum(bar.get_height() for bar in sizes.patches)
    assert sum(bar.get_height() for bar in depths.patches) == tree.leaves().size.size
    (line,) = routers.lines
    assert line.get_xdata().size == tree.depth
    assert ((line.get_ydata() > 0.5) & (line.get_ydata() <= 1.0)).all()
