"""Links between near memories: the recall of searches that follow them, and their validity after all changes."""

import copy
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from hypothesis import given, settings
from hypothesis import strategies as st

import cmt_numba._forest.links
from cmt_numba import ContextualMemoryTree, DurableTree, InvariantError
from cmt_numba._change.workers import Pace

D, K = 8, 5


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def linked(n: int = 60, pace: Pace = Pace(), **options: Any) -> ContextualMemoryTree:  # noqa: B008 - immutable
    tree = ContextualMemoryTree(**({"n_links": 6, "n_trees": 2, "random_state": 0} | options))
    tree._forest.pace = pace
    tree.insert(rows(n))
    return tree


def near(tree: ContextualMemoryTree) -> dict[int, set[int]]:
    """Return the ids that each memory is linked to."""
    ids = tree.ids
    return {
        int(ids[i]): {int(ids[j]) for j in row if j >= 0} for i, row in enumerate(tree._forest.links.near[: ids.size])
    }


def n_without(tree: ContextualMemoryTree) -> int:
    return sum(not others for others in near(tree).values())


def recall(tree: ContextualMemoryTree, Q: np.ndarray, X: np.ndarray, breadth: int) -> float:
    """Return the share of the nearest of all keys ``X`` that a search finds."""
    found, unit = tree.query(Q, K, 1, breadth=breadth), X / np.linalg.norm(X, axis=1, keepdims=True)
    scores = Q / np.linalg.norm(Q, axis=1, keepdims=True) @ unit.T
    scores[:, np.setdiff1d(np.arange(len(X)), tree.ids)] = -2.0
    true = np.argsort(-scores, axis=1)[:, :K]
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, found.ids, axis=1), atol=1e-5)
    assert np.isin(found.ids, tree.ids).all()
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found.ids, true, strict=True)]))


@needs_jit
def test_recall_stays_high_after_all_memories_change():
    n, X = 1500, rows(3000)
    tree = linked(n, n_trees=1, n_links=12)
    Q = rows(200, 7)
    assert recall(tree, Q, X[:n], 5) < recall(tree, Q, X[:n], 20)
    before = recall(tree, Q, X[:n], 20)
    assert before > 0.97
    tree.replace(np.random.default_rng(0).permutation(n), X[n:])
    order = np.argsort(np.random.default_rng(0).permutation(n))
    assert recall(tree, Q, X[n:][order], 20) > before - 0.01
    tree.remove(np.arange(0, n, 2))
    assert recall(tree, Q, X[n:][order], 20) > before - 0.01
    assert n_without(tree) == 0
    tree.check_invariants()


def test_a_search_with_all_candidates_follows_all_links():
    tree = linked(50)
    hits = tree.query(rows(3, 1), 50, breadth=50)
    assert (np.sort(hits.ids) == np.arange(50)).all()
    np.testing.assert_array_equal(hits.scores, tree.query(rows(3, 1), 50, n_probes=1000).scores)
    assert tree.query(rows(1), 4, breadth=1).ids.shape == (1, 4)  # there are at least as many candidates as results


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 30), st.integers(0, 99), st.booleans())
def test_filtered_searches_find_all_that_are_wanted(n_chosen: int, k: int, breadth: int, seed: int, as_mask: bool):
    tree = twin()
    chosen = np.random.default_rng(seed).permutation(60)[:n_chosen]
    among = np.isin(np.arange(60), chosen) if as_mask else chosen
    with pytest.MonkeyPatch.context() as patch:  # otherwise all memories are compared, as there are few
        patch.setattr(cmt_numba._forest.filtering, "WORTH_A_LEAF", 1)
        patch.setattr(cmt_numba._forest.filtering, "WORTH_A_CANDIDATE", 0)
        hits = tree.query(rows(3, seed), k, 1, breadth=breadth, among=among)
        everything = tree.query(rows(3, seed), k, 1, breadth=60, among=among)
    exact = tree.query(rows(3, seed), k, 1000, among=among)
    for found in (hits, everything):
        assert (np.count_nonzero(found.ids >= 0, axis=1) == min(k, n_chosen)).all()
        assert np.isin(found.ids, [-1, *chosen]).all()
        assert all(np.unique(row[row >= 0]).size == min(k, n_chosen) for row in found.ids)
    np.testing.assert_array_equal(everything.scores, exact.scores)


@cache
def twin() -> ContextualMemoryTree:
    return linked(60)


def changes() -> list[Callable[[ContextualMemoryTree], Any]]:
    """Return changes of a tree of at most 40 memories, chosen at random."""
    random = np.random.default_rng(5)

    def some(tree: ContextualMemoryTree) -> np.ndarray:
        return random.choice(tree.ids, min(len(tree), int(random.integers(1, 9))), replace=False)

    def replace(tree: ContextualMemoryTree) -> None:
        ids = some(tree)
        tree.replace(ids, rows(ids.size, int(random.integers(99))))

    kinds: list[Callable[[ContextualMemoryTree], Any]] = [
        lambda tree: tree.insert(rows(int(random.integers(1, 16)), int(random.integers(99)))),
        lambda tree: tree.insert(np.ones((5, D))),  # all equal
        lambda tree: tree.remove(some(tree)) if len(tree) > 0 else None,
        lambda tree: replace(tree) if len(tree) > 0 else None,
        lambda tree: tree.compact(),
        lambda tree: tree.remove(tree.ids) if random.random() < 0.3 else None,
    ]
    return [kinds[i] for i in random.choice(len(kinds), 40, p=[0.35, 0.1, 0.2, 0.2, 0.1, 0.05])]


@pytest.mark.parametrize(("n_links", "keep"), [(1, "all"), (6, "codes")])
def test_links_stay_valid_after_changes(n_links: int, keep: str):
    tree = linked(5, n_links=n_links, keep=keep, max_memories=40)
    for change in changes():
        change(tree)
        tree.check_invariants()
        assert n_links == 1 or n_without(tree) == 0 or len(tree) == 1
    twin = pickle.loads(pickle.dumps(tree))
    assert near(twin) == near(tree)


def test_the_same_seed_gives_the_same_links_on_any_number_of_threads():
    one = linked(90, n_threads=1)
    other = linked(90, Pace(7, 0.0), n_threads=3)  # in steps of other sizes
    assert near(one) == near(other)


def test_links_do_not_change_trees():
    plain, tree = linked(100, n_links=0), linked(100)
    Q = rows(9, 3)
    np.testing.assert_array_equal(plain.query(Q, 3).ids, tree.query(Q, 3).ids)
    kept = plain._contents()
    assert "n_links" not in kept[0]["options"]
    np.testing.assert_array_equal(list(kept[1]), [name for name in tree._contents()[1] if name != "links.near"])
    assert tree.nbytes - plain.nbytes == tree._forest.links.nbytes > 0


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failure_while_linking_leaves_valid_links(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]):
    tree, real, n_calls = linked(pace=Pace(10, 0.0)), cmt_numba._forest.links.link_slots, []

    def fail(*arguments: Any) -> None:
        n_calls.append(1)
        if len(n_calls) % 2 == 0:
            raise error
        real(*arguments)

    monkeypatch.setattr(cmt_numba._forest.links, "link_slots", fail)
    for change in (lambda: tree.insert(rows(40, 1)), lambda: tree.replace(np.arange(40), rows(40, 1))):
        with pytest.raises(error):
            change()
        assert len(tree) == 60
        tree.check_invariants()
    monkeypatch.undo()
    tree.insert(rows(40, 1))
    tree.check_invariants()


def test_damaged_links_are_found():
    whole = linked(30)

    def damaged(damage: Callable[[np.ndarray], None]) -> ContextualMemoryTree:
        tree = copy.copy(whole)
        tree.remove([3])
        damage(tree._forest.links.near)
        return tree

    def at(slot: int, i: int, other: int) -> Callable[[np.ndarray], None]:
        return lambda near: near.__setitem__((slot, i), other)

    for damage, message in (
        (at(0, 0, 0), "with itself"),
        (at(0, 0, 29), "refers to a memory that does not exist"),
        (at(0, 0, -1), "contiguous"),
        (at(29, 0, 1), "unused slot has links"),
        (lambda near: near.__setitem__(0, np.where(near[0] >= 0, near[0, 0], -1)), "two links"),
        (lambda near: near.__setitem__(0, -1), "one of its two"),
    ):
        with pytest.raises(InvariantError, match=message):
            damaged(damage).check_invariants()


@pytest.mark.parametrize("mmap", [False, True])
def test_files_keep_links(tmp_path: Path, mmap: bool):
    tree = linked()
    tree.save(tmp_path / "tree")
    loaded = ContextualMemoryTree.load(tmp_path / "tree", mmap=mmap)
    assert near(loaded) == near(tree)
    for each in (tree, loaded):
        each.insert(rows(10, 1))
        each.remove([2])
        each.check_invariants()
    assert near(loaded) == near(tree)


def test_files_with_wrong_links_are_refused():
    fields, arrays = linked()._contents()
    for damage in (
        {"links.near": arrays["links.near"][:, :3]},
        {"links.near": arrays["links.near"].astype(np.int64)},
        {"links.near": np.roll(arrays["links.near"], 1, axis=0)},
    ):
        with pytest.raises(InvariantError):
            ContextualMemoryTree._made_of(fields, arrays | damage, thorough=True)
    del arrays["links.near"]
    with pytest.raises(InvariantError, match="links must be int32"):
        ContextualMemoryTree._made_of(fields, arrays, thorough=False)


def test_sparse_keys_are_not_linked():
    tree = ContextualMemoryTree(n_links=6, random_state=0)
    tree.insert(scipy.sparse.csr_array(rows(30)))
    assert tree._forest.links.nbytes == 0
    np.testing.assert_array_equal(tree.query(rows(4), 2, breadth=9).ids, tree.query(rows(4), 2).ids)
    tree.remove([1, 2])
    tree.compact()
    twin = pickle.loads(pickle.dumps(tree))
    twin.check_invariants()


def test_breadth_must_fit():
    with pytest.raises(ValueError, match="create the tree with n_links"):
        linked(2, n_links=0).query(rows(1), breadth=5)
    tree = linked(10)
    with pytest.raises(ValueError, match="breadth needs epsilon=0"):
        tree.query(rows(1), breadth=5, epsilon=0.5)
    for breadth in (0, 2.5, "many"):
        with pytest.raises((TypeError, ValueError), match="breadth"):
            tree.query(rows(1), breadth=breadth)


def test_a_durable_tree_restores_its_links(tmp_path: Path):
    with DurableTree(tmp_path / "tree", n_links=6, random_state=0) as tree:
        tree.insert(rows(40))
        tree.snapshot()
        tree.replace([5, 6], rows(2, 1))
        tree.remove([7])
        before = near(tree)
    with DurableTree(tmp_path / "tree") as tree:
        assert near(tree) == before
        tree.check_invariants()
        assert tree.query(rows(1), 3, breadth=10).ids[0, 0] == 0
