"""The probabilities with which exploring queries return memories."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from internals import engine_room, forest_of, lock_of, prove

from cmt_numba import ContextualMemoryTree, Hits, ShownHits

N, WIDTH, EPSILON = 120, 6, 0.4


def keys(n: int, seed: int, sparse: bool) -> np.ndarray | scipy.sparse.csr_array:
    """Return random keys."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, WIDTH)) * (rng.random((n, WIDTH)) < 0.7)
    rows[:, 0] += 0.1
    return scipy.sparse.csr_array(rows) if sparse else rows


def grown(sparse: bool, n_trees: int) -> ContextualMemoryTree:
    """Return a forest with several nodes on each path."""
    tree = ContextualMemoryTree(n_trees, leaf_multiplier=1.0, n_reroutes=1, random_state=3)
    tree.insert(keys(N, 0, sparse))
    return tree


@pytest.mark.parametrize(("sparse", "n_trees", "k"), [(False, 1, 1), (True, 2, 3)])
def test_propensities_are_frequencies_of_memories(sparse: bool, n_trees: int, k: int) -> None:
    tree, row, n_asked = grown(sparse, n_trees), keys(1, 5, sparse), 400
    many = scipy.sparse.vstack([row] * n_asked) if sparse else np.repeat(row, n_asked, axis=0)
    hits = tree.query(many, k, epsilon=EPSILON)
    shown = np.unique(hits.ids[hits.ids >= 0], return_counts=True)
    found = {}  # each memory that exploration may return, with its propensity
    for ids, propensities in zip(hits.ids[:200], hits.propensities, strict=False):
        for memory, propensity in zip(ids, propensities, strict=True):
            assert found.setdefault(memory, propensity) == propensity  # the same in all rows
    assert len(found) > 5
    for memory, count in zip(*shown, strict=True):
        if memory in found:
            deviation = np.sqrt(n_asked * found[memory] * (1 - found[memory]))
            assert abs(count - n_asked * found[memory]) <= 5 * deviation + 1e-9, memory


@pytest.mark.parametrize("sparse", [False, True])
def test_propensities_of_all_memories_sum_to_one(sparse: bool) -> None:
    tree, asked = grown(sparse, 3), keys(2, 6, sparse)
    for epsilon in (0.3, 1.0):
        for row in (asked[[0]], asked[[1]]):
            rows = forest_of(tree).check_rows(scipy.sparse.vstack([row] * N) if sparse else np.repeat(row, N, axis=0))
            each = engine_room.query._propensities(
                forest_of(tree), rows, np.arange(N)[:, None], 3, epsilon, lock_of(tree).n_steps
            )
            assert np.sum(each) == pytest.approx(1.0, abs=1e-9)


def test_without_exploration_propensities_are_one() -> None:
    tree = grown(False, 1)
    hits = tree.query(keys(3, 7, False), k=50)
    np.testing.assert_array_equal(hits.propensities, hits.ids >= 0)
    assert hits.propensities.dtype == np.float64
    among = tree.query(keys(3, 7, False), k=2, among=[5, 6])
    np.testing.assert_array_equal(among.propensities, np.ones((3, 2)))
    empty = ContextualMemoryTree().query(np.ones((2, 3)), k=2, epsilon=0.5)
    np.testing.assert_array_equal(empty.propensities, np.zeros((2, 2)))


def test_asking_for_propensities_changes_nothing() -> None:
    tree = grown(False, 2)
    other = copy.deepcopy(tree)
    asked = keys(20, 8, False)
    np.testing.assert_array_less(0.0, tree.query(asked, epsilon=0.5).propensities)
    other.query(asked, epsilon=0.5)
    np.testing.assert_array_equal(tree.query(asked, epsilon=0.5).ids, other.query(asked, epsilon=0.5).ids)


def test_propensities_belong_to_the_queried_trees() -> None:
    tree, asked = grown(False, 1), keys(5, 9, False)
    early, late = (tree.query(asked, k=2, epsilon=0.5) for _ in range(2))
    known = early.propensities
    prove(tree)
    tree.update(asked, early, np.ones(5))
    assert early.propensities is known
    with pytest.raises(RuntimeError, match="the trees have changed since the query"):
        _ = late.propensities
    with pytest.raises(RuntimeError, match="before the hits are changed"):
        _ = early._replace(ids=early.ids[::-1]).propensities


def test_pickles_hold_propensities_that_are_known() -> None:
    hits = grown(False, 1).query(keys(5, 9, False), epsilon=0.5)
    unread = pickle.loads(pickle.dumps(hits))
    np.testing.assert_array_equal(unread.ids, hits.ids)
    with pytest.raises(RuntimeError, match="before the hits are changed"):
        _ = unread.propensities
    np.testing.assert_array_equal(copy.deepcopy(hits).ids, hits.ids)
    known = hits.propensities
    again = pickle.loads(pickle.dumps(hits))
    assert isinstance(again, ShownHits)
    np.testing.assert_array_equal(again.propensities, known)


def test_hits_are_rows() -> None:
    asked = keys(40, 9, False)
    tree, twin = grown(False, 2), grown(False, 2)
    hits = tree.query(asked, k=2, epsilon=0.6)
    few = np.arange(40) % 3 == 0
    for rows in (slice(3, 9), few, np.flatnonzero(few), [5], []):
        some = hits[rows]
        np.testing.assert_array_equal(some.ids, hits.ids[rows])
        np.testing.assert_array_equal(some.exploration.node, hits.exploration.node[rows])
        np.testing.assert_array_equal(some.propensities, hits.propensities[rows])
    assert len(hits) == len(list(hits)) == 40
    assert [row.ids.tolist() for row in hits] == hits.ids[:, None].tolist()
    np.testing.assert_array_equal(hits[-1].scores, hits.scores[-1:])
    for wrong, error in ((40, IndexError), ((0, 1), TypeError)):
        with pytest.raises(error):
            hits[wrong]
    tree.update(asked[few], hits[few], np.ones((14, 2)))
    twin.query(asked, k=2, epsilon=0.6)  # draws the same random numbers
    twin.update(asked[few], Hits(hits.ids[few], hits.scores[few], hits[few].exploration), np.ones((14, 2)))
    np.testing.assert_array_equal(tree.query(asked).scores, twin.query(asked).scores)
    tree.update(asked[7:8], hits[7], [0.5])


def test_hits_record_the_exploration() -> None:
    hits = grown(False, 2).query(keys(60, 9, False), epsilon=0.6)
    for row, node in enumerate(hits.exploration.node):
        explored = hits.explored(row)
        assert explored == hits[row].explored(0)
        if hits.exploration.tree[row] < 0:
            assert explored is None
        elif node < 0:
            assert explored == (hits.exploration.tree[row], None, None, None)
        else:
            assert explored == (hits.exploration.tree[row], node, ("left", "right")[hits.exploration.side[row]], 0.5)
    assert len({hits.explored(row) is None for row in range(60)}) == 2


def test_durable_trees_know_propensities(tmp_path: Path) -> None:
    with ContextualMemoryTree.open(tmp_path / "tree", leaf_multiplier=1.0, random_state=3) as tree:
        tree.insert(keys(N, 0, False))
        hits = tree.query(keys(5, 9, False), k=2, epsilon=0.5)
        assert np.all((hits.propensities > 0) == (hits.ids >= 0))
