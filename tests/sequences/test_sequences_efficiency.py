"""Learned accuracy and efficiency, similar symbols, both directions, and powers of distances."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba.sequences import EditDistance, VPTree
from cmt_numba.sequences._costs import ASKED, STORED, Costs, features_of, pooled
from cmt_numba.sequences._encoding import Alphabet
from cmt_numba.sequences._learning import paths, tally
from cmt_numba.sequences._vantage import distances_between, greatest_power

LETTERS = "abcd"


def words_of(rng: np.random.Generator, n: int, least: int = 0) -> list[str]:
    return ["".join(rng.choice(list(LETTERS), rng.integers(least, 8))) for _ in range(n)]


def costs_of(rng: np.random.Generator, both: bool = False) -> Costs:
    pairs = rng.uniform(0.5, 1.0, (5, 5)).astype(np.float32)
    pairs = pairs if both else (pairs + pairs.T) / 2
    np.fill_diagonal(pairs, 0.0)
    return Costs(pairs, np.empty((0, 0), np.float32), np.ones((2, 5, 0), np.float32), both)


def with_costs(rng: np.random.Generator, **options: Any) -> EditDistance:
    distance = EditDistance(LETTERS, **options)
    distance.pairwise(["a"], ["b"])
    distance.costs_ = costs_of(rng, not distance.symmetric).pairs
    return distance


@pytest.mark.parametrize("both", [False, True])
def test_gradients_of_the_efficiency(both: bool, rng: np.random.Generator):
    """They are the derivatives of the losses while best alignments stay the same."""
    alphabet = Alphabet(LETTERS)
    targets, queries = (alphabet.encode("X", words_of(rng, n, 4)) for n in (40, 12))
    costs, answers, power, unit = costs_of(rng, both), rng.integers(40, size=12), 1.5, 2.0
    ways = paths(costs.points(targets, STORED), np.random.default_rng(0)).take(answers)

    def margins(costs: Costs) -> Any:
        asked, stored = costs.points(queries, ASKED), costs.points(targets, STORED)
        borders = distances_between(costs.points(targets, ASKED), stored, ways.vantages, ways.borders)
        lengths = distances_between(asked, stored, ways.owners, ways.vantages)
        right = distances_between(asked, stored, np.arange(12), answers)
        return ways._replace(lengths=borders).margins(lengths, right, power, unit)

    def loss(costs: Costs) -> float:
        return float(ways.weights @ np.log1p(np.exp(-margins(costs)[0])))

    before, slopes = margins(costs)
    weights = slopes * ways.weights / (1.0 + np.exp(before))
    tallies = tally(costs, targets, targets, ways.pulls_of_borders(weights))
    tallies += [one for pulls in ways.pulls(weights, answers) for one in tally(costs, queries, targets, pulls)]
    for i, j in ((0, 1), (2, 3), (3, 1)):
        moved = []
        for step in (2e-4, -2e-4):
            pairs = costs.pairs.copy()
            pairs[i, j] += step
            moved.append(loss(costs._replace(pairs=pairs)))
        expected = sum(one.counts.pairs[i, j] for one in tallies)
        assert (moved[0] - moved[1]) / 4e-4 == pytest.approx(expected, rel=0.03, abs=0.01)


@needs_jit
def test_learning_for_efficiency(rng: np.random.Generator):
    words = sorted(set(words_of(rng, 90, 5)))
    answers = rng.integers(len(words), size=60)
    queries = [words[answer].replace("a", "b")[1:] for answer in answers]
    options: dict[str, Any] = {"n_rounds": 3, "random_state": 0}
    accurate = EditDistance(LETTERS, **options).fit(words, queries, answers)
    assert accurate.pruned_ == []
    both = EditDistance(LETTERS, n_efficient_rounds=6, efficiency=0.9, **options).fit(words, queries, answers)
    assert both.errors_[:3] == accurate.errors_
    assert len(both.errors_) == 9
    assert len(both.pruned_) == 6
    assert max(both.pruned_) > both.pruned_[0]
    np.testing.assert_array_equal(both.costs_, both.costs_.T)


def test_both_directions(tmp_path: Path, rng: np.random.Generator):
    distance = with_costs(rng, symmetric=False, both_directions=True, transposition=None)
    one_way = EditDistance(LETTERS, symmetric=False, transposition=None)
    one_way.pairwise(["a"], ["b"])
    one_way.costs_ = distance.costs_
    words = words_of(rng, 40)
    there = one_way.pairwise(words, words)
    assert (there != there.T).any()
    np.testing.assert_array_equal(distance.pairwise(words, words), np.minimum(there, there.T))
    for x, y in pairwise(words):
        found = distance.align(x, y)
        assert found.distance == distance.paired([x], [y])[0]
        assert "".join(a for a, _ in found.steps if a is not None) == x
        assert "".join(b for _, b in found.steps if b is not None) == y
    tree = VPTree(distance, leaf_size=2, tolerance=0.0, random_state=0)
    for some in (words[:25], words[25:], ["", ""]):
        tree.insert(some)
    tree.remove([3, 40])
    tree.save(tmp_path / "tree")
    loaded = VPTree.load(tmp_path / "tree")
    assert loaded.tolerance == 0.0
    others = words_of(rng, 20)
    stored = [*words[:3], *words[4:], ""]
    for one in (tree, loaded):
        np.testing.assert_array_equal(
            one.query(words[4:9], 39).distances, np.sort(distance.pairwise(words[4:9], stored))[:, :39]
        )
        assert (one.query(others).distances[:, 0] == distance.nearest(others, stored)[1][:, 0]).mean() > 0.9
    learned = EditDistance(LETTERS, symmetric=False, both_directions=True, n_rounds=2, n_efficient_rounds=2)
    words = sorted(set(words))
    learned.fit(words, [word[1:] for word in words], np.arange(len(words)))
    learned.save(tmp_path / "distance")
    again = EditDistance.load(tmp_path / "distance")
    assert (again.errors_, again.pruned_) == (learned.errors_, learned.pruned_)
    np.testing.assert_array_equal(again.pairwise(words, words), learned.pairwise(words, words))


def test_powers_of_distances():
    triangles = np.array([[3.0, 1.0, 1.0], [4.0, 1.0, 1.0], [5.0, 4.0, 0.5]])
    assert greatest_power(triangles[:, :1], 0.0) == pytest.approx(2.0, rel=1e-4)
    assert greatest_power(triangles, 0.0) == pytest.approx(0.5, rel=1e-4)
    assert greatest_power(triangles, 0.34) == pytest.approx(2.0, rel=1e-4)
    assert greatest_power(triangles[:, :0], 0.0) == 1.0


@needs_jit
@pytest.mark.parametrize("metric", ["euclidean", "exchanges"])
def test_trees_with_a_tolerance(metric: str, rng: np.random.Generator):
    X, asked, any_metric = rng.normal(size=(400, 3)), rng.normal(size=(60, 3)), "euclidean"
    if metric == "exchanges":
        X, asked = words_of(rng, 400, 5), words_of(rng, 60, 5)
        any_metric = with_costs(rng, transposition=0.6, contextual=True)
    computed, right = [], []
    for tolerance in (0.0, 0.05):
        tree = VPTree(any_metric, tolerance=tolerance, random_state=0)
        tree.insert(X)
        power, found = tree.power_, tree.query(asked)
        assert power == tree.power_
        if metric == "euclidean":
            exact = np.linalg.norm(asked[:, None] - X, axis=2).min(axis=1)
            assert power > 1.0
        else:
            exact = any_metric.nearest(asked, X)[1][:, 0]
        computed.append(found.n_computed.mean())
        right.append(np.mean(found.distances[:, 0] <= exact + 1e-4))
    assert right[0] > 0.95
    assert right[1] > 0.7
    assert computed[1] < computed[0]


def test_similar_symbols_are_learned_together():
    symbols = [(first, second) for first in range(4) for second in range(3)]
    features = features_of(tuple(symbols))
    assert (features[-1] < features[:-1].min(axis=0)).all()
    gradient = np.zeros((13, 13))
    gradient[0, 3], gradient[3, 6] = 2.0, 3.0  # the first numbers differ by one, the second ones are the same
    gradient[0, 2], gradient[4, 9] = -1.0, -5.0
    found = pooled(gradient, features)
    assert found[6, 9] > 0.0 > found[1, 11]
    assert not pooled(np.zeros((13, 13)), features).any()
    rng = np.random.default_rng(0)
    targets = [[symbols[i] for i in rng.integers(12, size=6)] for _ in range(50)]
    answers = rng.integers(50, size=40)
    queries = [[((first + 1) % 4, second) for first, second in targets[answer]] for answer in answers]
    options: dict[str, Any] = {"n_rounds": 5, "learning_rate": 0.5, "random_state": 0}
    errors = []
    for featured in (False, True):
        distance = EditDistance(symbols, featured=featured, **options).fit(targets, queries[:10], answers[:10])
        errors.append(np.mean(distance.nearest(queries[10:], targets)[0][:, 0] != answers[10:]))
    assert errors[1] < errors[0] - 0.1
    np.testing.assert_array_equal(distance.costs_, distance.costs_.T)


def test_what_is_refused():
    words = ["ab", "cd"], ["a"], [0]
    for options, message in [
        ({"both_directions": True}, "both_directions requires symmetric=False"),
        (
            {"symmetric": False, "n_efficient_rounds": 1},
            "n_efficient_rounds requires symmetric=True or both_directions",
        ),
        ({"featured": True}, "symbols must be finite numbers"),
        ({"efficiency": 0.0}, "efficiency must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            EditDistance(**options).fit(*words)
    with pytest.raises(ValueError, match="symbols must be finite numbers"):
        features_of(((1, 2), (3,)))
    with pytest.raises(ValueError, match="tolerance must be"):
        VPTree(tolerance=-0.1)
