"""Similar symbols, asymmetric distances, and powers of distances."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba.sequences import EditDistance, VPTree
from cmt_numba.sequences._costs import features_of, pooled
from cmt_numba.sequences._vp_tree import greatest_power

LETTERS = "abcd"


def words_of(rng: np.random.Generator, n: int, least: int = 0) -> list[str]:
    return ["".join(rng.choice(list(LETTERS), rng.integers(least, 8))) for _ in range(n)]


def with_costs(rng: np.random.Generator, **options: Any) -> EditDistance:
    distance = EditDistance(LETTERS, **options)
    distance.pairwise(["a"], ["b"])
    pairs = rng.uniform(0.5, 1.0, (5, 5))
    pairs = (pairs + pairs.T) / 2 if distance.symmetric else pairs
    np.fill_diagonal(pairs, 0.0)
    distance.costs_ = pairs
    return distance


def test_distances_that_depend_on_the_direction(rng: np.random.Generator):
    distance, words = with_costs(rng, symmetric=False, transposition=None), words_of(rng, 40)
    there = distance.pairwise(words, words)
    assert (there != there.T).any()
    for x, y in pairwise(words):
        found = distance.align(x, y)
        assert found.distance == distance.paired([x], [y])[0]
        assert "".join(a for a, _ in found.steps if a is not None) == x
        assert "".join(b for _, b in found.steps if b is not None) == y


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
        any_metric = with_costs(rng, transposition=0.6)
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
    with pytest.raises(ValueError, match="symbols must be finite numbers"):
        EditDistance(featured=True).fit(["ab", "cd"], ["a"], [0])
    with pytest.raises(ValueError, match="symbols must be finite numbers"):
        features_of(((1, 2), (3,)))
    with pytest.raises(ValueError, match="tolerance must be"):
        VPTree(tolerance=-0.1)
