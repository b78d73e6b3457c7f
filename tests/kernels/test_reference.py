"""The kernels against the plain-Python reference, step by step."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import engine_room, forest_of, forest_room, kernels_room, prove, state_of
from numba import njit
from reference import Forest, Leaf, Node, Place, SplitMix64

from cmt_numba import ContextualMemoryTree, Hits
from cmt_numba._forest import EVICTIONS
from cmt_numba._kernels import LEFT, NONE, RIGHT, draw_word
from cmt_numba._linear import find_cell

SCORER_LOSSES = ("contrast", "regression")

N_FEATURES = 6
N_SPARSE_FEATURES = 40

SIDES = {LEFT: "L", RIGHT: "R"}
"""A place is named by the sides on the way to it: the root is "", its left child "L", that one's right child "LR"."""

OPTIONS = [
    {
        "n_trees": n_trees,
        "router_loss": loss,
        "scorer_loss": scorer_loss,
        "leaf_multiplier": multiplier,
        "n_reroutes": n_reroutes,
    }
    for (n_trees, loss, multiplier, n_reroutes), scorer_loss in zip(
        (
            (1, "squared", 1.0, 0),
            (3, "squared", 4.0, 3),
            (1, "logistic", 4.0, 3),
            (3, "logistic", 1.0, 0),
            (3, "squared", 1.0, 3),
            (1, "logistic", 4.0, 0),
        ),
        itertools.cycle(SCORER_LOSSES),  # in turn: routers and scorer do not meet
        strict=False,
    )
]
"""Each value of each option together with each value of each other."""


def name_of(options: dict[str, object]) -> str:
    return "-".join(f"{value}" for value in options.values())


def dense_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, N_FEATURES))


def sparse_rows(rng: np.random.Generator, n: int) -> scipy.sparse.csr_array:
    """Return rows of 1 to 9 features: many pairs of rows have none in common, and so equal scores of 0."""
    rows = np.zeros((n, N_SPARSE_FEATURES))
    for row in rows:
        present = rng.choice(N_SPARSE_FEATURES, rng.integers(1, 10), replace=False)
        row[present] = rng.normal(size=present.size)
    return scipy.sparse.csr_array(rows)


MAKERS = {"dense": dense_rows, "sparse": sparse_rows}


def places_of(tree: ContextualMemoryTree, t: int) -> dict[str, int]:
    """Return all places of a tree by name, each before those below it."""
    state = state_of(tree)
    places = {}
    waiting = [("", int(state.counters[t, forest_room.state.ROOT]))]
    while waiting:
        name, place = waiting.pop()
        places[name] = place
        if place >= 0:
            waiting += [(name + SIDES[side], int(state.nodes["child"][t, place, side])) for side in SIDES]
    return places


def shape_of(tree: ContextualMemoryTree, t: int) -> dict[str, tuple[int, ...]]:
    """Return the ids in each leaf, in order, and each node's counts: left, right, examples and mistakes."""
    state = state_of(tree)
    shape = {}
    for name, place in places_of(tree, t).items():
        if place >= 0:
            node = state.nodes[t, place]
            shape[name] = (*map(int, node["below"]), int(node["examples"]), int(node["mistakes"]))
        else:
            slots = state.members[t, ~place, : state.leaves["size"][t, ~place]]
            shape[name] = tuple(map(int, state.keys.ids[slots]))
    return shape


@njit
def cell_in_kernel(models: Any, t: int, node: int, feature: int) -> int:
    """Return what only kernels can ask for."""
    return find_cell(models, t, node, feature)


def routers_of(tree: ContextualMemoryTree, t: int) -> dict[str, np.ndarray]:
    """Return each node's router: a row of weights and a row of AdaGrad accumulators, the bias last."""
    routers = {}
    state, d = state_of(tree), tree.n_features
    for name, node in places_of(tree, t).items():
        if node < 0:
            continue
        record = state.nodes[t, node]
        router = np.zeros((2, d + 1))
        router[:, d] = record["bias"], record["bias_square"]
        if not state.parameters.sparse:
            router[:, :d] = state.weights.dense[t, node * 2 * d : (node + 1) * 2 * d].reshape(2, d)
        elif record["table_bits"] > 0:
            for feature in range(d):
                cell = cell_in_kernel(state.models, t, node, feature)
                if cell >= 0:
                    router[:, feature] = state.weights.table[["weight", "square"]][t, cell].tolist()
        routers[name] = router
    return routers


def reference_places(root: Place) -> dict[str, Place]:
    """Return all places below a root of the reference by name."""
    places = {"": root}
    if isinstance(root, Node):
        for side, letter in SIDES.items():
            places |= {letter + name: place for name, place in reference_places(root.children[side]).items()}
    return places


def reference_shape(root: Place) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(memory.id for memory in place.members)
        if isinstance(place, Leaf)
        else (*place.below, place.examples, place.mistakes)
        for name, place in reference_places(root).items()
    }


def reference_routers(root: Place, n_features: int) -> dict[str, np.ndarray]:
    return {
        name: np.array(
            [
                [weights.get(feature, 0.0) for feature in range(n_features)] + [bias]
                for weights, bias in ((place.weights, place.bias), (place.squares, place.bias_square))
            ]
        )
        for name, place in reference_places(root).items()
        if isinstance(place, Node)
    }


def assert_same_trees(tree: ContextualMemoryTree, other: ContextualMemoryTree) -> None:
    """Check that two forests have grown the same, weight by weight up to rounding."""
    assert tree.ids.tolist() == other.ids.tolist()
    assert state_of(tree).streams.tolist() == state_of(other).streams.tolist()
    for t in range(state_of(tree).parameters.n_trees):
        assert shape_of(tree, t) == shape_of(other, t)
        routers, other_routers = routers_of(tree, t), routers_of(other, t)
        for name, router in routers.items():
            np.testing.assert_allclose(router, other_routers[name], rtol=1e-3, atol=1e-4, err_msg=name)


class Pair:
    """The kernels and the reference, doing the same and compared after every step."""

    def __init__(self, **options: object) -> None:
        self.tree = ContextualMemoryTree(random_state=7, **options)
        prove(self.tree)
        self.forest = Forest(random_state=7, **options)

    def check(self) -> None:
        """Check that both have the same memories, trees, routers, scorer and random streams."""
        tree, forest = self.tree, self.forest
        tree.check_invariants()
        assert tree.ids.tolist() == [memory.id for memory in forest.memories]
        if isinstance(forest_of(tree).eviction, forest_room.eviction.LeastRecentlyReturned):
            order = state_of(tree).keys.ids[forest_of(tree).eviction.order(state_of(tree))]
            assert order.tolist() == [memory.id for memory in forest.returned]
        streams = [*(of_tree.stream.state for of_tree in forest.trees), forest.query_stream.state]
        assert state_of(tree).streams.tolist() == streams
        for t, of_tree in enumerate(forest.trees):
            assert shape_of(tree, t) == reference_shape(of_tree.root)
            routers = routers_of(tree, t)
            for name, expected in reference_routers(of_tree.root, tree.n_features).items():
                np.testing.assert_allclose(routers[name], expected, rtol=1e-3, atol=1e-4, err_msg=f"tree {t}, {name}")
        scorer = state_of(tree).scorer
        for array, weights in ((scorer.theta, forest.theta), (scorer.squares, forest.theta_squares)):
            expected = [weights.get(feature, 0.0) for feature in range(array.size)]
            np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-4)

    def insert(self, X: object) -> np.ndarray:
        ids = self.tree.insert(X)
        assert ids.tolist() == self.forest.insert(X)
        self.check()
        return ids

    def remove(self, ids: list[int]) -> None:
        self.tree.remove(ids)
        self.forest.remove(ids)
        self.check()

    def replace(self, ids: list[int], X: object) -> None:
        self.tree.replace(ids, X)
        self.forest.replace(ids, X)
        self.check()

    def reroute(self, n: int) -> None:
        self.tree.reroute(n)
        self.forest.reroute(n)
        self.check()

    def query(self, X: object, **how: object) -> tuple[Hits, list]:
        """Query both, compare the answers, and return both."""
        hits = self.tree.query(X, **how)
        answers = self.forest.query(X, **how)
        names = [
            {place: name for name, place in places_of(self.tree, t).items()} for t in range(len(self.forest.trees))
        ]
        nodes = {place: name for of_tree in self.forest.trees for name, place in reference_places(of_tree.root).items()}
        explored = hits.exploration
        for row, answer in enumerate(answers):
            n_found = len(answer.ids)
            n_missing = hits.ids.shape[1] - n_found
            assert hits.ids[row].tolist() == answer.ids + [-1] * n_missing
            np.testing.assert_allclose(hits.scores[row], answer.scores + [-np.inf] * n_missing, rtol=1e-4, atol=1e-5)
            record, t, node = answer.record, explored.tree[row], explored.node[row]
            assert t == (NONE if record.tree is None else self.forest.trees.index(record.tree))
            assert explored.side[row] == record.side
            np.testing.assert_equal(explored.probability[row], np.float32(record.probability))
            if record.node is None:
                assert node == NONE
            else:
                assert names[t][node] == nodes[record.node]
                assert explored.generation[row] == state_of(self.tree).nodes["generation"][t, node]
        self.check()
        return hits, answers

    def update(self, X: object, hits: Hits, answers: list, rewards: np.ndarray) -> None:
        """Update both. Rewards are below 1 and for all memories: others teach routers or need a runner-up."""
        if self.forest.scorer_loss == "contrast":
            given, rewards = rewards.reshape(len(rewards), -1), np.zeros(hits.ids.shape)
            rewards[:, : given.shape[1]] = 0.9 * given
            if rewards.shape[1] == 1:
                return
        self.tree.update(X, hits, rewards, key_learning_rate=0.0)
        self.forest.update(X, answers, rewards)
        self.check()


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("options", OPTIONS, ids=name_of)
def test_life_of_a_forest(form, options):
    rng = np.random.default_rng(18)
    rows, pair = MAKERS[form], Pair(**options)
    for n in (1, 2, 30, 27):
        pair.insert(rows(rng, n))
    queries = rows(rng, 8)
    for k, n_probes in itertools.product((1, 3), (None, 1, 2, 5, 1000)):
        pair.query(queries, k=k, n_probes=n_probes)
    for k, epsilon, n_columns in ((1, 0.0, 1), (3, 0.5, 1), (3, 0.5, 3), (2, 1.0, 2)):
        queries = rows(rng, 10)
        hits, answers = pair.query(queries, k=k, epsilon=epsilon)
        rewards = rng.random((10, n_columns))
        pair.update(queries, hits, answers, rewards[:, 0] if n_columns == 1 else rewards)
    for n in (0, 10):
        pair.reroute(n)

    # Rewards for memories and nodes that have gone since.
    queries = rows(rng, 10)
    hits, answers = pair.query(queries, k=2, epsilon=0.7)
    pair.remove(list(dict.fromkeys(memory_id for answer in answers for memory_id in answer.ids))[:8])
    pair.remove([pair.forest.memories[-1].id])
    pair.remove(rng.permutation(pair.tree.ids)[:35].tolist())
    pair.update(queries, hits, answers, rng.random((10, 2)))

    pair.insert(rows(rng, 15))  # into freed nodes, leaves and slots
    pair.update(queries, hits, answers, rng.random((10, 2)))
    pair.query(rows(rng, 5), k=3, n_probes=4, epsilon=0.5)
    pair.remove(pair.tree.ids.tolist())
    pair.query(rows(rng, 2), k=2, epsilon=0.5)
    pair.reroute(3)
    pair.insert(rows(rng, 4))
    pair.query(rows(rng, 2), k=5)


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("options", OPTIONS[::2], ids=name_of)
def test_replacing(form, options):
    """Keys replaced one by one, in batches, and all of them; among memories that come and go."""
    rng = np.random.default_rng(23)
    rows, pair = MAKERS[form], Pair(**options)
    pair.insert(rows(rng, 50))
    for ids in ([7], [49, 0, 20], rng.permutation(50).tolist()):
        pair.replace(ids, rows(rng, len(ids)))
        pair.query(rows(rng, 5), k=3, n_probes=4)
    pair.remove(rng.permutation(50)[:20].tolist())
    pair.replace(pair.tree.ids[5:].tolist(), rows(rng, 25))
    pair.insert(rows(rng, 15))
    pair.query(rows(rng, 5), k=3, n_probes=4, epsilon=0.5)
    pair.remove(pair.tree.ids[1:].tolist())
    pair.replace(pair.tree.ids.tolist(), rows(rng, 1))
    pair.query(rows(rng, 2), k=2)


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("form", MAKERS)
def test_bounded_memory(form, eviction):
    """Memories that go to make room for others: of single rows, of batches, and of more rows than there is room for."""
    rng = np.random.default_rng(24)
    rows, pair = MAKERS[form], Pair(n_trees=2, max_memories=40, eviction=eviction, leaf_multiplier=1.0, n_reroutes=2)
    for n in (1, 30, 9, 1, 1, 4, 12, 60):
        pair.insert(rows(rng, n))
        pair.query(rows(rng, 6), k=3, n_probes=4, epsilon=0.3)
    pair.replace(pair.tree.ids[::5].tolist(), rows(rng, 8))
    pair.remove(rng.permutation(pair.tree.ids)[:15].tolist())
    pair.insert(rows(rng, 20))
    hits, answers = pair.query(rows(rng, 10), k=2, n_probes=5)
    pair.update(rows(rng, 10), hits, answers, rng.random((10, 2)))
    pair.insert(rows(rng, 3))
    pair.remove(pair.tree.ids.tolist())
    pair.insert(rows(rng, 50))


@pytest.mark.parametrize(("form", "rate"), [("dense", 0.02), ("sparse", 0.5)])
@pytest.mark.parametrize("scorer_loss", SCORER_LOSSES)
def test_rewards_of_many_memories(scorer_loss, form, rate):
    """Rewards that differ, that are equal, that are too few to compare, and of memories that have gone."""
    rng = np.random.default_rng(21)
    rows, pair = MAKERS[form], Pair(scorer_loss=scorer_loss, scorer_learning_rate=rate, n_reroutes=0)
    pair.insert(rows(rng, 40))
    for rewards_of in (
        lambda shape: rng.random(shape),
        lambda shape: rng.integers(0, 3, shape) / 2,
        lambda shape: rng.integers(0, 2, shape),
        lambda shape: np.ones(shape),
        lambda shape: np.eye(*shape),
    ):
        queries = rows(rng, 12)
        hits, answers = pair.query(queries, k=6, n_probes=4)
        pair.update(queries, hits, answers, rewards_of(hits.ids.shape))
    pair.update(queries, hits, answers, np.arange(12) % 2)
    pair.remove(hits.ids[::2, 0].tolist()[:1])
    pair.update(queries, hits, answers, rewards_of(hits.ids.shape))
    pair.remove(pair.tree.ids[:-1].tolist())
    pair.update(queries, hits, answers, rewards_of(hits.ids.shape))
    pair.query(rows(rng, 5), k=6)


@pytest.mark.parametrize("scorer_loss", SCORER_LOSSES)
def test_scorer_of_wide_keys(scorer_loss):
    """Among so many features that queries are looked up in a table, the scorer learns what it learns among few."""
    rng = np.random.default_rng(22)
    X, queries = sparse_rows(rng, 40), sparse_rows(rng, 15)
    rewards = rng.random((15, 4))
    n_many = kernels_room.probes._WIDEST_DIRECT + 1
    places = np.sort(rng.choice(n_many, N_SPARSE_FEATURES, replace=False))
    learned = []
    for features, width in (
        (np.arange(N_SPARSE_FEATURES), N_SPARSE_FEATURES),
        (places, n_many),
    ):
        keys, asked = (
            scipy.sparse.csr_array((rows.data, features[rows.indices], rows.indptr), (rows.shape[0], width))
            for rows in (X, queries)
        )
        tree = ContextualMemoryTree(scorer_loss=scorer_loss, leaf_multiplier=100.0, random_state=7)
        prove(tree)
        tree.insert(keys)
        for _ in range(3):
            tree.update(asked, tree.query(asked, k=4), rewards)
        learned.append(state_of(tree).scorer.theta[features])
    assert np.count_nonzero(learned[0]) > N_SPARSE_FEATURES / 3
    np.testing.assert_allclose(*learned, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("form", MAKERS)
def test_balance_and_rates(form, alpha):
    """Other strengths of balance and other rates than the defaults, with which some nodes lean to one side."""
    rng = np.random.default_rng(4)
    rows = MAKERS[form]
    pair = Pair(alpha=alpha, leaf_multiplier=1.5, n_reroutes=1, router_learning_rate=0.3, scorer_learning_rate=0.9)
    pair.insert(rows(rng, 60))
    queries = rows(rng, 10)
    hits, answers = pair.query(queries, k=2, epsilon=0.5)
    pair.update(queries, hits, answers, rng.random((10, 2)))
    pair.query(queries, k=2, n_probes=3)  # more would be unlike the queries, with scores of 0


@pytest.mark.parametrize("router_loss", engine_room.forest.ROUTER_LOSSES)
@pytest.mark.parametrize("form", MAKERS)
def test_equal_keys(form, router_loss):
    """No router can part equal keys, so leaves of them are halved; their scores tie, so a hash orders them.

    A key with a single feature has margins that float32 and float64 both hold exactly where it matters.
    """
    rng = np.random.default_rng(5)
    rows = MAKERS[form]
    width = rows(rng, 1).shape[1]
    twins = np.eye(1, width)
    pair = Pair(leaf_multiplier=1.0, n_reroutes=0, router_loss=router_loss)
    pair.insert(np.repeat(twins, 9, axis=0) if form == "dense" else scipy.sparse.csr_array(np.repeat(twins, 9, axis=0)))
    nodes = [place for place in reference_places(pair.forest.trees[0].root).values() if isinstance(place, Node)]
    assert nodes
    assert all(min(node.below) > 0 for node in nodes)
    hits, _ = pair.query(twins, k=9, n_probes=100)
    assert sorted(hits.ids[0].tolist()) == list(range(9))
    assert len(set(hits.scores[0].tolist())) == 1
    pair.insert(rows(rng, 10))
    pair.query(twins, k=4)


def test_leaf_of_one():
    """A leaf may hold a single memory, and a split then leaves one side empty for the memory that comes."""
    pair = Pair(leaf_multiplier=0.5, n_reroutes=2, n_trees=2)
    rng = np.random.default_rng(6)
    for _ in range(12):
        pair.insert(dense_rows(rng, 1))
    hits, _ = pair.query(dense_rows(rng, 5), k=2, n_probes=3)
    assert (hits.ids >= 0).all()


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("lengths", [[1] * 70, [3, 40, 27]], ids=["one by one", "batches"])
def test_calls_leave_no_trace(form, lengths):
    """Inserting in one call or in many, each with arrays growing at other moments, gives the very same trees."""
    X = MAKERS[form](np.random.default_rng(10), 70)
    whole, parts = (ContextualMemoryTree(2, leaf_multiplier=1.0, n_reroutes=2, random_state=11) for _ in range(2))
    whole.insert(X)
    first = 0
    for length in lengths:
        ids = parts.insert(X[first : first + length])
        assert ids.tolist() == list(range(first, first + length))
        first += length
    parts.check_invariants()
    assert_same_trees(whole, parts)
    for t in range(2):
        routers = routers_of(parts, t)
        for name, router in routers_of(whole, t).items():
            np.testing.assert_array_equal(router, routers[name])


def test_growing_routers_find_all_their_features():
    """A sparse router that meets ever more features moves into ever larger tables and keeps its weights."""
    rng = np.random.default_rng(12)
    pair = Pair(leaf_multiplier=1.0, n_reroutes=1)
    X = np.zeros((40, 300))
    for row in X:
        row[rng.choice(300, 12, replace=False)] = rng.normal(size=12)
    pair.insert(scipy.sparse.csr_array(X[:10]))
    few = int(state_of(pair.tree).nodes["table_used"][0].max())
    pair.insert(scipy.sparse.csr_array(X[10:]))
    assert int(state_of(pair.tree).nodes["table_used"][0].max()) > 2 * few
    pair.remove(list(range(30)))
    pair.insert(scipy.sparse.csr_array(X[:20]))  # into freed tables
    pair.query(scipy.sparse.csr_array(X[::4]), k=2, n_probes=2)


def test_random_stream():
    """The words that SplitMix64 is known to give, from the kernel and from the reference."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    streams = np.array([1234567], np.uint64)
    assert [int(draw_word(streams, 0)) for _ in known] == known
    stream = SplitMix64(1234567)
    assert [stream.word() for _ in known] == known
