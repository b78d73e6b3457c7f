"""The properties that the paper proves or claims, on seeded random data: balance, depth, self-consistency, learning."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import EVERY_LEAF, needs_jit, text_like
from internals import state_of

from cmt_numba import ContextualMemoryTree
from cmt_numba._forest.state import LEAVES_END, NODES_END, REROUTES_LEFT, TABLES_END

pytestmark = needs_jit


def dense_rows(n: int, n_features: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_features)).astype(np.float32)


def rows_of(kind: str, n: int, seed: int = 0) -> Any:
    return dense_rows(n, seed=seed) if kind == "dense" else text_like(n, 5000, 12, seed)


def grown(X: Any, **options: Any) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(**{"random_state": 0} | options)
    tree.insert(X)
    return tree


def self_consistency(tree: ContextualMemoryTree, X: Any) -> float:
    """Return the share of stored memories that a query with their own key returns."""
    return float(np.mean(tree.query(X).ids[:, 0] == np.arange(X.shape[0])))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("alpha", [0.5, 0.9, 1.0])
def test_balance(kind: str, alpha: float):
    """Each child of a node holds at least 1 / K of its memories (Theorem 3.3)."""
    tree = grown(rows_of(kind, 8000), alpha=alpha, n_reroutes=0)
    state = state_of(tree)
    end = state.counters[0, NODES_END]
    below, examples = state.nodes["below"][0, :end], state.nodes["examples"][0, :end]
    progressive_error = state.nodes["mistakes"][0, :end] / examples
    numerator = 1 + math.exp((1 - alpha) / alpha)
    denominator = (1 - progressive_error) - numerator / examples
    # These include the examples that trained the router in a split, a few hundred at most.
    enough = (examples >= 2000) & (denominator > 0)
    assert enough.sum() >= 3
    least = below[enough].sum(axis=1) * denominator[enough] / numerator
    assert np.all(below[enough].min(axis=1) >= least - 1)  # counts are integers


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_depth_grows_with_log_n(kind: str):
    X = rows_of(kind, 16_000)
    tree = ContextualMemoryTree(n_reroutes=0, random_state=0)
    for n in (500, 1000, 2000, 4000, 8000, 16_000):
        tree.insert(X[tree.n_memories : n])
        # A balanced tree of leaves of 4 log2(n) memories has log2(n) - log2(4 log2(n)) levels, 5 to 6 fewer than this.
        assert math.log2(n / (4 * math.log2(n))) <= tree.depth <= math.log2(n) - 1


@pytest.mark.parametrize("leaf_multiplier", [0.1, 1.0, 4.0])
def test_leaf_bound(leaf_multiplier: float):
    X = dense_rows(3000)
    tree = grown(X, leaf_multiplier=leaf_multiplier, n_trees=2, n_reroutes=2)
    sizes = state_of(tree).leaves["size"]
    for t in range(2):
        assert sizes[t, : state_of(tree).counters[t, LEAVES_END]].max() <= max(1, leaf_multiplier * math.log2(3000))
    tree.check_invariants()


def test_reroutes_raise_self_consistency():
    X = dense_rows(4000)
    trees = [grown(X, n_reroutes=d) for d in (0, 5, 20)]
    rates = [self_consistency(tree, X) for tree in trees]
    assert rates[0] + 0.05 < rates[1] < rates[2]
    trees[0].reroute(4000)
    after = self_consistency(trees[0], X)
    trees[0].reroute(12_000)
    assert rates[0] < after < self_consistency(trees[0], X)


def test_self_consistency_of_text():
    X = text_like(4000, 20_000, 15, seed=3)
    slow = {"router_learning_rate": 0.1}  # at the default rate routers leave nothing for reroutes to repair
    rates = [self_consistency(grown(X, n_reroutes=d, **slow), X) for d in (0, 5, 20)]
    assert rates[0] < rates[1] <= rates[2]
    assert self_consistency(grown(X, n_reroutes=20), X) > 0.97


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_constant_space_per_memory(kind: str):
    per_memory = []
    for n in (2000, 32_000):
        X = rows_of(kind, n)
        key_bytes = X.nbytes if kind == "dense" else X.data.nbytes + X.indices.nbytes
        per_memory.append((grown(X, n_reroutes=0).nbytes - key_bytes) / n)
    assert max(per_memory) <= 1.3 * min(per_memory)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_churn_keeps_space(kind: str):
    """A tree of 1,000 memories that are replaced continually stays bounded and never reuses an id."""
    X = rows_of(kind, 5000)
    tree = grown(X[:1000], n_reroutes=1)
    before = tree.nbytes
    held = list(range(1000))
    rng = np.random.default_rng(0)
    for row in range(1000, 5000):
        place = int(rng.integers(1000))
        tree.remove(held[place])
        (new,) = tree.insert(X[row : row + 1])
        assert new == row
        held[place] = int(new)
    tree.check_invariants()
    assert set(tree.ids.tolist()) == set(held)
    assert tree.nbytes <= 1.75 * before
    assert np.mean(tree.query(X[held], n_probes=EVERY_LEAF).ids[:, 0] == held) > 0.999


def arrays_of(tree: ContextualMemoryTree) -> list[bytes]:
    """Return the bytes in use of the arrays of a tree's shape and routers."""
    state = state_of(tree)
    nodes, n = state.counters[:, NODES_END].max(), tree.n_memories
    return [
        state.counters[:, [*range(TABLES_END), REROUTES_LEFT]].tobytes(),  # others depend on when tables have grown
        state.nodes["child"][:, :nodes].tobytes(),
        state.nodes["below"][:, :nodes].tobytes(),
        state.nodes["bias"][:, :nodes].tobytes(),
        state.leaf_of[:, :n].tobytes(),
        state.scorer.theta.tobytes(),
        state.streams.tobytes(),
    ]


def everything(X: Any, queries: Any, **options: Any) -> tuple[ContextualMemoryTree, list[np.ndarray]]:
    """Apply all operations to a new forest; return it and all answers."""
    tree = grown(X, **{"n_trees": 3, "n_reroutes": 2} | options)
    hits = tree.query(queries, k=3, epsilon=0.5)
    tree.update(queries, hits, (hits.ids % 3 == 0).astype(np.float32))
    tree.remove(np.arange(0, X.shape[0], 7))
    tree.replace(np.arange(1, X.shape[0], 7), X[: len(range(1, X.shape[0], 7))])
    tree.reroute(100)
    later = tree.query(queries, k=5, n_probes=7, epsilon=0.3)
    return tree, [hits.ids, hits.scores, *hits.exploration, later.ids, later.scores, *later.exploration]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_seeds_and_threads(kind: str):
    """The same seed gives the same trees and answers on any number of threads, another seed gives others."""
    X, queries = rows_of(kind, 2000), rows_of(kind, 500, seed=9)
    tree, answers = everything(X, queries, n_threads=1)
    for n_threads in (1, 2, 3):
        twin, same = everything(X, queries, n_threads=n_threads)
        assert arrays_of(tree) == arrays_of(twin)
        for first, second in zip(answers, same, strict=True):
            np.testing.assert_array_equal(first, second)
    other, different = everything(X, queries, n_threads=1, random_state=1)
    assert arrays_of(tree)[4] != arrays_of(other)[4]
    assert np.any(answers[0] != different[0])
    assert np.any(answers[2] != different[2])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_more_probes_find_more(kind: str, n_trees: int):
    X, queries = rows_of(kind, 4000), rows_of(kind, 300, seed=9)
    tree = grown(X, n_trees=n_trees, n_reroutes=1)
    unit = [rows / np.sqrt((rows * rows).sum(axis=1)).reshape(-1, 1) for rows in (queries, X)]
    cosines = unit[0] @ unit[1].T
    cosines = cosines.toarray() if scipy.sparse.issparse(cosines) else cosines
    exact = cosines.max(axis=1)
    recalls, worst = [], np.full(300, -np.inf)
    for n_probes in (3, 6, 12, 24, 48, EVERY_LEAF):
        found = tree.query(queries, n_probes=n_probes).scores[:, 0]
        assert np.all(found >= worst)  # a search of more leaves includes those of a smaller search
        worst = found
        recalls.append(np.mean(found >= exact - 1e-5))
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[3] < recalls[-1] == 1.0
    np.testing.assert_allclose(worst, exact, atol=1e-5)


# Exploration


def path_of(tree: ContextualMemoryTree, t: int, x: np.ndarray) -> list[int]:
    """Return the internal nodes on the path of a unit-length dense key."""
    state, d = state_of(tree), x.size
    place, nodes = int(state.counters[t, 0]), []
    while place >= 0:
        nodes.append(place)
        weights = state.weights.dense[t, place * 2 * d : (place * 2 + 1) * d]
        margin = state.nodes["bias"][t, place] + weights @ x
        place = int(state.nodes["child"][t, place, int(margin > 0)])
    return nodes


@pytest.mark.parametrize("n_trees", [1, 3])
def test_exploration_records(n_trees: int):
    """Every row explores at epsilon 1: a tree, then a node of the path or the leaf, then a side, all uniformly."""
    tree = grown(dense_rows(3000), n_trees=n_trees, n_reroutes=0)
    queries = np.repeat(dense_rows(3, seed=9), 4000, axis=0)
    hits = tree.query(queries, k=2, epsilon=1.0)
    record = hits.exploration
    assert record.tree.min() == 0
    assert record.tree.max() == n_trees - 1
    at_node = record.node >= 0
    assert np.all(record.node[~at_node] == -1)
    assert np.all(record.side[~at_node] == -1)
    assert np.all(np.isnan(record.probability[~at_node]))
    assert set(record.side[at_node].tolist()) == {0, 1}
    assert np.all(record.probability[at_node] == 0.5)
    assert np.all(hits.ids >= 0)
    n = int(at_node.sum())
    assert abs(record.side[at_node].mean() - 0.5) < 4 * 0.5 / math.sqrt(n)
    for i in range(3):
        x = queries[4000 * i] / np.linalg.norm(queries[4000 * i])
        rows = slice(4000 * i, 4000 * (i + 1))
        for t in range(n_trees):
            path = path_of(tree, t, x)
            drawn = record.node[rows][record.tree[rows] == t]
            assert abs(drawn.size - 4000 / n_trees) < 4 * math.sqrt(4000 / n_trees) + 1
            assert set(drawn.tolist()) == {*path, -1}
            counts = np.array([np.sum(drawn == place) for place in (*path, -1)])
            expected = drawn.size / counts.size
            chi_square = np.sum((counts - expected) ** 2) / expected
            freedom = counts.size - 1
            assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 4


def test_exploration_frequency():
    tree = grown(dense_rows(500))
    queries = dense_rows(10_000, seed=9)
    plain = tree.query(queries)
    assert np.all(plain.exploration.tree == -1)
    assert np.all(plain.exploration.node == -1)
    for epsilon in (0.05, 0.3, 0.9):
        hits = tree.query(queries, epsilon=epsilon)
        explored = hits.exploration.tree >= 0
        assert abs(explored.mean() - epsilon) < 4 * math.sqrt(epsilon * (1 - epsilon) / 10_000)
        np.testing.assert_array_equal(hits.ids[~explored], plain.ids[~explored])
        assert np.any(hits.ids[explored] != plain.ids[explored])
    first, second = (tree.query(queries, epsilon=0.5).exploration.tree for _ in range(2))
    assert np.any(first != second)  # each query draws anew


def test_leaf_draws_are_uniform():
    """A row that explores its leaf gets distinct memories, all with the same probability."""
    tree = grown(dense_rows(12, 4), leaf_multiplier=4.0)
    assert tree.depth == 0
    hits = tree.query(np.ones((6000, 4)), k=3, epsilon=1.0)
    assert all(len(set(row)) == 3 for row in hits.ids.tolist())
    counts = np.bincount(hits.ids.reshape(-1), minlength=12)
    assert np.all(np.abs(counts - 1500) < 5 * math.sqrt(1500 * 0.75))


def test_stale_records_are_ignored():
    X, queries = dense_rows(1000), dense_rows(200, seed=9)
    tree = grown(X, n_reroutes=0)
    hits = tree.query(queries, epsilon=1.0)
    inner = (hits.exploration.node >= 0) & (
        hits.ids[:, 0] != 0
    )  # memory 0 is still stored, so its rewards would train routers
    tree.remove(np.arange(1000)[1:])
    assert tree.depth == 0
    hits_inner = hits._replace(
        ids=hits.ids[inner],
        scores=hits.scores[inner],
        exploration=type(hits.exploration)(*(column[inner] for column in hits.exploration)),
    )
    tree.update(queries[inner], hits_inner, np.ones(int(inner.sum())))
    tree.check_invariants()
    # The same rows now hold other nodes, and the records of the old nodes must not train these.
    tree.insert(X)
    before = arrays_of(tree)[1:5], state_of(tree).weights.dense.copy()
    tree.update(queries[inner], hits_inner, np.ones(int(inner.sum())))
    assert arrays_of(tree)[1:5] == before[0]
    np.testing.assert_array_equal(state_of(tree).weights.dense, before[1])
    fresh = tree.query(queries, epsilon=1.0)
    tree.update(queries, fresh, np.ones(200))
    assert arrays_of(tree)[3] != before[0][2]


# Learning from rewards


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_rewards_move_the_scorer(kind: Any):
    """Of two memories that are equally similar to a query, the rewarded one then comes first."""
    tree = ContextualMemoryTree(n_reroutes=0, scorer_loss="regression", random_state=0)
    tree.insert(kind([[1.0, 0.0, 0.1], [0.0, 1.0, 0.0]]))
    query = kind([[1.0, 1.05, 0.0]])
    assert tree.query(query, k=2).ids.tolist() == [[1, 0]]
    for _ in range(10):
        hits = tree.query(query, k=2)
        tree.update(query, hits, (hits.ids == 0).astype(float))
    after = tree.query(query, k=2)
    assert after.ids.tolist() == [[0, 1]]
    assert after.scores[0, 0] > 0.75
    assert after.scores[0, 1] < 0.6


def ranks_of_right(tree: ContextualMemoryTree, queries: Any) -> np.ndarray:
    """Return the rank of the memory with the number of each query."""
    hits = tree.query(queries, k=tree.n_memories, n_probes=EVERY_LEAF)
    return np.argmax(hits.ids == np.arange(tree.n_memories)[:, np.newaxis], axis=1)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("scorer_loss", ["ranking", "mira"])
def test_rewards_raise_the_right_memory(scorer_loss: str, kind: Any):
    """If half of the features are noise, a scorer that has learned this makes fewer errors.

    This also holds for unseen queries, and for memories inserted later.
    """
    rng = np.random.default_rng(0)
    own = rng.random((100, 20)) * (rng.random((100, 20)) < 0.3)

    def seen(memories: slice) -> Any:
        noise = rng.random(own[memories].shape) * (rng.random(own[memories].shape) < 0.3)
        return kind(np.hstack([own[memories], noise]))

    everything, first = slice(None), slice(50)
    tree = grown(seen(first), n_reroutes=0, scorer_loss=scorer_loss)
    keys, queries = seen(everything), seen(everything)
    for _ in range(5):
        taught = seen(first)
        hits = tree.query(taught, k=20, n_probes=EVERY_LEAF)
        tree.update(taught, hits, hits.ids == np.arange(50)[:, np.newaxis])
    theta = state_of(tree).scorer.theta
    assert theta.min() >= -1.0
    assert theta[:20].mean() > theta[20:].mean() + 0.1
    tree.insert(keys[50:])
    ranks = ranks_of_right(tree, queries)
    state_of(tree).scorer.theta[:] = 0.0
    cosine_ranks = ranks_of_right(tree, queries)
    for some in (first, slice(50, None)):
        assert np.mean(cosine_ranks[some] > 0) > 0.2
        assert np.mean(ranks[some] > 0) < 0.7 * np.mean(cosine_ranks[some] > 0)
        assert ranks[some].mean() < 0.7 * cosine_ranks[some].mean()


@pytest.mark.filterwarnings("ignore:this update changes nothing")
@pytest.mark.parametrize("scorer_loss", ["ranking", "mira"])
def test_rewards_without_a_comparison(scorer_loss: str):
    """The reward of a single memory, or equal rewards, compare nothing and so teach nothing."""
    X, queries = dense_rows(300), dense_rows(20, seed=9)
    tree = grown(X, scorer_loss=scorer_loss)
    for k, reward in ((5, 0.0), (5, 0.7)):
        hits = tree.query(queries, k=k)
        tree.update(queries, hits, np.full(hits.ids.shape, reward))
    tree.update(queries, tree.query(queries), np.ones(20))
    tree.update(queries, tree.query(queries, k=5), np.arange(20) % 2)  # of the first memories only
    assert not np.any(state_of(tree).scorer.theta)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_mira_orders_a_pair_in_one_step(kind: Any):
    """An uncapped step of MIRA makes the gap between the scores exactly as wide as required."""
    tree = grown(kind([[1.0, 0.0, 0.1], [0.0, 1.0, 0.0]]), n_reroutes=0, scorer_loss="mira", scorer_learning_rate=10)
    query = kind([[1.0, 1.05, 0.0]])
    hits = tree.query(query, k=2)
    assert hits.ids.tolist() == [[1, 0]]
    tree.update(query, hits, [[0.0, 0.5]], key_learning_rate=0.0)
    after = tree.query(query, k=2)
    assert after.ids.tolist() == [[0, 1]]
    assert after.scores[0, 0] - after.scores[0, 1] == pytest.approx(0.1, rel=1e-3)
    theta = state_of(tree).scorer.theta.copy()
    tree.update(query, after, [[0.5, 0.0]], key_learning_rate=0.0)
    np.testing.assert_allclose(state_of(tree).scorer.theta, theta, atol=1e-5)


def test_scorer_and_routers_learn_from_separate_rewards():
    """Rewards of rows that explored a node do not change the scorer, and other rewards do not change routers."""
    X, queries = dense_rows(1000), dense_rows(300, seed=9)
    tree = grown(X, n_reroutes=0, scorer_loss="regression")
    routers = state_of(tree).nodes["bias"].copy(), state_of(tree).weights.dense.copy()
    tree.update(queries, tree.query(queries), np.full(300, 0.5))
    np.testing.assert_array_equal(state_of(tree).nodes["bias"], routers[0])
    np.testing.assert_array_equal(state_of(tree).weights.dense, routers[1])
    theta = state_of(tree).scorer.theta.copy()
    assert np.any(theta != 0)
    hits = tree.query(queries, epsilon=1.0)
    rows = np.flatnonzero(hits.exploration.node >= 0)
    inner = type(hits)(hits.ids[rows], hits.scores[rows], type(hits.exploration)(*(c[rows] for c in hits.exploration)))
    tree.update(queries[rows], inner, np.ones(rows.size))
    np.testing.assert_array_equal(state_of(tree).scorer.theta, theta)
    assert np.any(state_of(tree).weights.dense != routers[1])


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("side", [0, 1])
def test_rewards_move_routers(side: int, kind: Any):
    """Rewarding one side of the root for a query sends that query there."""
    X = dense_rows(1000, 8)
    tree = grown(kind(X), n_reroutes=0, alpha=0.5)
    root = int(state_of(tree).counters[0, 0])
    # The side of a memory is that of a query routed to its leaf.
    members = [set(np.flatnonzero(on_side(tree, root, s)).tolist()) for s in (0, 1)]
    assert min(map(len, members)) > 100
    queries = dense_rows(40, 8, seed=9)

    def share_sent() -> float:
        return float(
            np.mean([memory_id in members[side] for memory_id in tree.query(kind(queries)).ids[:, 0].tolist()])
        )

    before = share_sent()
    for _ in range(30):
        hits = tree.query(kind(queries), epsilon=1.0)
        record = hits.exploration
        rows = np.flatnonzero((record.node == root) & (record.side == side))
        if rows.size:
            chosen = type(hits)(hits.ids[rows], hits.scores[rows], type(record)(*(column[rows] for column in record)))
            tree.update(kind(queries[rows]), chosen, np.ones(rows.size))
    assert before < 0.9
    assert share_sent() > 0.95


def on_side(tree: ContextualMemoryTree, root: int, side: int) -> np.ndarray:
    """Return which memories are below one side of the root."""
    state = state_of(tree)
    result = np.zeros(tree.n_memories, bool)
    stack = [int(state.nodes["child"][0, root, side])]
    while stack:
        place = stack.pop()
        if place >= 0:
            stack += state.nodes["child"][0, place].tolist()
        else:
            result[state.members[0, ~place, : state.leaves["size"][0, ~place]]] = True
    return result
