"""Tests of policies: published algorithms in plain NumPy, propensities, files, and validation."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import bandits_models, bandits_rules, estimates_of, model_of, slots_of

from cmt_numba.bandits import UCB1, EpsilonGreedy, HybridLinUCB, LinearThompson, LinUCB, Policy, SquareCB

FEATURES = np.random.default_rng(7).normal(size=(5, 2))

CASES: dict[str, Any] = {
    "random": lambda: EpsilonGreedy(5, epsilon=1.0, random_state=0),
    "ucb1": lambda: UCB1(5, random_state=0),
    "epsilon": lambda: EpsilonGreedy(5, epsilon=0.3, decay=0.01, random_state=0),
    "contextual epsilon": lambda: EpsilonGreedy(5, contextual=True, random_state=0),
    "linucb": lambda: LinUCB(5, random_state=0),
    "hybrid": lambda: HybridLinUCB(action_features=FEATURES, random_state=0),
    "hybrid without features": lambda: HybridLinUCB(5, random_state=0),
    "thompson": lambda: LinearThompson(5, random_state=0),
    "squarecb": lambda: SquareCB(5, random_state=0),
}


def contexts(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


def run(policy: Policy, n_rounds: int, seed: int = 0, n_rows: int = 4) -> list[Any]:
    """Let a policy choose and learn, and return its choices."""
    rng, chosen = np.random.default_rng(seed), []
    for _ in range(n_rounds):
        X = rng.normal(size=(n_rows, 3))
        actions, propensities = policy.act(X)
        rewards = (rng.random(n_rows) < 0.2 + 0.6 * (actions == np.argmax(X, axis=1))).astype(float)
        policy.learn(X, actions, rewards, propensities)
        chosen.append((actions.tolist(), propensities.tolist()))
    return chosen


@pytest.fixture(params=CASES)
def policy(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]()


# The algorithms


def test_disjoint_linucb_is_algorithm_1():
    policy = LinUCB(4, alpha=0.7, random_state=0)
    A, b = [np.eye(3)] * 4, [np.zeros(3)] * 4
    rng = np.random.default_rng(1)
    for x in contexts(200):
        inverses = [np.linalg.inv(A[a]) for a in range(4)]
        bounds = [inverses[a] @ b[a] @ x + 0.7 * np.sqrt(x @ inverses[a] @ x) for a in range(4)]
        expected = np.isclose(bounds, np.max(bounds), rtol=0, atol=1e-12)
        np.testing.assert_allclose(policy.probabilities(x[None])[0], expected / expected.sum())
        a = int(policy.act(x[None]).actions[0])
        reward = rng.random()
        A[a], b[a] = A[a] + np.outer(x, x), b[a] + reward * x
        policy.learn(x[None], [a], [reward])


def test_hybrid_linucb_is_algorithm_2():
    """The algorithm as published, with all matrices and their inverses."""
    policy = HybridLinUCB(alpha=0.5, action_features=FEATURES, random_state=0)
    k = 6
    A0, b0 = np.eye(k), np.zeros(k)
    A, B, b = [np.eye(3)] * 5, [np.zeros((3, k))] * 5, [np.zeros(3)] * 5
    rng = np.random.default_rng(1)
    for x in contexts(100):
        I0, bounds = np.linalg.inv(A0), []
        for a in range(5):
            z, I = np.outer(FEATURES[a], x).ravel(), np.linalg.inv(A[a])  # noqa: E741
            theta = I @ (b[a] - B[a] @ I0 @ b0)
            variance = z @ I0 @ z - 2 * z @ I0 @ B[a].T @ I @ x + x @ I @ x + x @ I @ B[a] @ I0 @ B[a].T @ I @ x
            bounds.append(z @ I0 @ b0 + theta @ x + 0.5 * np.sqrt(variance))
        actions = np.arange(5)
        means, variances = estimates_of(policy, x[None], np.zeros(5, np.int64), actions, slots_of(policy, actions))
        np.testing.assert_allclose(means + 0.5 * np.sqrt(variances), bounds, rtol=1e-9)
        a, reward = int(policy.act(x[None]).actions[0]), rng.random()
        z, I = np.outer(FEATURES[a], x).ravel(), np.linalg.inv(A[a])  # noqa: E741
        A0, b0 = A0 + B[a].T @ I @ B[a], b0 + B[a].T @ I @ b[a]
        A[a], B[a], b[a] = A[a] + np.outer(x, x), B[a] + np.outer(x, z), b[a] + reward * x
        I = np.linalg.inv(A[a])  # noqa: E741
        A0, b0 = A0 + np.outer(z, z) - B[a].T @ I @ B[a], b0 + reward * z - B[a].T @ I @ b[a]
        policy.learn(x[None], [a], [reward])


def test_ucb1_is_as_published():
    policy, rng = UCB1(4, random_state=0), np.random.default_rng(1)
    counts, sums = np.zeros(4), np.zeros(4)
    for t in range(100):
        probabilities = policy.probabilities()[0]
        if t < 4:
            assert np.all((probabilities > 0) == (counts == 0))
        else:
            assert probabilities.argmax() == (sums / counts + np.sqrt(2 * np.log(t) / counts)).argmax()
        a, reward = int(policy.act().actions[0]), rng.random()
        policy.learn(None, a, reward)
        counts[a] += 1
        sums[a] += reward


def test_epsilon_greedy_explores_less_over_time():
    policy = EpsilonGreedy(3, epsilon=0.6, decay=0.5, random_state=0)
    policy.learn(np.ones((4, 1)), [0, 1, 1, 2], [0.0, 1.0, 1.0, 0.5])
    np.testing.assert_allclose(policy.probabilities()[0], [0.2 / 3, 0.8 + 0.2 / 3, 0.2 / 3])


def test_squarecb_weighs_by_the_inverse_gap():
    policy = SquareCB(3, gamma=4.0, exponent=0.5, random_state=0)
    policy.learn(np.ones((3, 1)), [0, 1, 2], [2.0, 1.0, 0.0])  # one feature and a ridge of 1: half of each
    gamma = 4.0 * np.sqrt(3)
    others = [1 / (3 + gamma * 0.5), 1 / (3 + gamma)]
    np.testing.assert_allclose(policy.probabilities([[1.0]])[0], [1 - sum(others), *others])


def test_inaccurate_inverses_are_recomputed(monkeypatch: pytest.MonkeyPatch):
    """Contexts are nearly parallel and the ridge is tiny, so that rounding errors are large."""
    rng = np.random.default_rng(0)
    X = np.ones((400, 3)) * 1e3 + rng.normal(size=(400, 3)) * 1e-3
    actions, rewards = rng.integers(0, 2, 400), rng.random(400)
    n_refreshed = []
    refresh = bandits_models.RewardModels._refresh
    monkeypatch.setattr(
        bandits_models.RewardModels, "_refresh", lambda self, slot: (n_refreshed.append(slot), refresh(self, slot))
    )
    policy = LinUCB(2, regularization=1e-4).learn(X, actions, rewards)
    assert n_refreshed
    linear = model_of(policy).linear
    for a in range(2):
        mine = actions == a
        exact = np.linalg.solve(np.eye(3) * 1e-4 + X[mine].T @ X[mine], X[mine].T @ rewards[mine])
        np.testing.assert_allclose(X @ linear.offsets[a], X @ exact, atol=1e-3)


# Of all policies


@settings(max_examples=30)
@given(st.sampled_from(list(CASES)), st.integers(0, 2**32 - 1))
def test_probabilities_sum_to_one_over_the_actions_allowed(name: str, seed: int):
    rng = np.random.default_rng(seed)
    policy = CASES[name]()
    for _ in range(int(rng.integers(0, 4))):
        n = int(rng.integers(1, 6))
        mask = rng.random((n, 5)) < 0.6
        mask[np.arange(n), rng.integers(0, 5, n)] = True
        X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-4, 5)
        mask = None if rng.random() < 0.3 else mask
        probabilities = policy.probabilities(X, mask)
        assert np.all(probabilities >= 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
        assert mask is None or np.all(probabilities[~mask] == 0)
        actions, propensities = policy.act(X, mask)
        np.testing.assert_array_equal(propensities, probabilities[np.arange(n), actions])
        assert np.all(propensities > 0)
        policy.learn(X, actions, rng.random(n), propensities)


def test_draws_follow_the_probabilities():
    offsets = np.arange(0, 300_001, 3)
    probabilities = np.tile([0.2, 0.0, 0.8], 100_000)
    drawn = bandits_rules.draw(probabilities, offsets, np.random.default_rng(0).random(100_000)) - offsets[:-1]
    np.testing.assert_allclose(np.bincount(drawn) / 100_000, [0.2, 0.0, 0.8], atol=0.005)
    assert bandits_rules.draw(np.array([0.1] * 10 + [0.0]), np.array([0, 11]), np.array([1 - 2.0**-53]))[0] < 10


def test_what_is_learned_does_not_depend_on_batches(policy: Policy):
    X, actions, rewards = contexts(40), np.arange(40) % 5, np.random.default_rng(3).random(40)
    one_by_one = copy.deepcopy(policy)
    policy.learn(X, actions, rewards)
    for i in range(40):
        one_by_one.learn(X[i : i + 1], actions[i : i + 1], rewards[i : i + 1])
    np.testing.assert_array_equal(policy.probabilities(X), one_by_one.probabilities(X))


@pytest.mark.parametrize("name", ["linucb", "thompson", "epsilon", "contextual epsilon", "squarecb"])
def test_policies_learn(name: str):
    rng, policy = np.random.default_rng(0), CASES[name]()
    best = np.eye(5)
    earned = []
    for _ in range(300):
        X = best[rng.integers(0, 5, 4)] if name != "epsilon" else best[[2, 2, 2, 2]]
        actions, propensities = policy.act(X)
        rewards = (actions == X.argmax(axis=1)).astype(float)
        policy.learn(X, actions, rewards, propensities)
        earned.append(rewards.mean())
    assert np.mean(earned[-50:]) > 0.7 > np.mean(earned[:2])


# Actions that come and go


def test_actions_may_change_from_row_to_row():
    policy = LinUCB(random_state=0)
    X = contexts(3)
    for actions in (np.array([[7, 2, -1], [9, -1, -1], [1, 7, 2]]), [[7, 2], [9], [1, 7, 2]]):
        chosen = policy.act(X, actions)
        assert chosen.actions[1] == 9
        assert all(a in row for a, row in zip(chosen.actions, [[7, 2], [9], [1, 7, 2]], strict=True))
        np.testing.assert_allclose(chosen.propensities, [1 / 2, 1, 1 / 3])
        np.testing.assert_allclose(policy.probabilities(X, actions)[0], [1 / 2, 1 / 2, 0])
    assert policy.actions.size == 0
    policy.learn(X, [7, 9, 2**31 - 1], [1.0, 0.0, 0.5])
    assert policy.actions.tolist() == [7, 9, 2**31 - 1]
    assert policy.n_rewards == 3


def test_removed_actions_leave_the_others_as_they_are(policy: Policy):
    run(policy, 30)
    X = contexts(20, seed=5)
    others = policy.probabilities(X, [4, 0, 3])
    policy.remove_actions([2, 1])
    assert policy.actions.tolist() == [0, 3, 4]
    if not isinstance(policy, UCB1 | SquareCB | EpsilonGreedy):  # which count all rewards
        np.testing.assert_array_equal(policy.probabilities(X, [4, 0, 3]), others)
    policy.remove_actions([0, 3, 4])
    with pytest.raises(ValueError, match="no actions are known"):
        policy.act(X)


def test_a_re_added_action_starts_afresh():
    policy = LinUCB(3, random_state=0)
    run(policy, 20)
    policy.remove_actions(1).add_actions(1)
    X = contexts(5)
    np.testing.assert_array_equal(
        *(estimates_of(policy, X, np.arange(5), a, slots_of(policy, a)) for a in (np.ones(5, np.int64), np.full(5, 99)))
    )


def test_features_of_new_actions():
    policy = HybridLinUCB(action_features=FEATURES, random_state=0)
    run(policy, 5)
    X = contexts(4)
    with pytest.raises(ValueError, match="add 8 and their features"):
        policy.act(X, [0, 8])
    with pytest.raises(ValueError, match="add 8 and their features"):
        policy.learn(X[:1], [8], [1.0])
    with pytest.raises(ValueError, match="features must be given"):
        policy.add_actions(8)
    with pytest.raises(ValueError, match="2 columns"):
        policy.add_actions(8, [[1.0, 2.0, 3.0]])
    policy.add_actions([8, 6], FEATURES[[3, 1]])
    shared = np.linalg.norm(model_of(policy).linear.shared)
    assert shared > 0  # which new actions have too
    np.testing.assert_allclose(policy.probabilities(X, [0, 8]).sum(axis=1), 1.0)
    policy.remove_actions([0, 1, 2, 3, 4])
    np.testing.assert_array_equal(policy._features[slots_of(policy, np.array([8, 6]))], FEATURES[[3, 1]])
    with pytest.raises(ValueError, match="other actions have no features"):
        HybridLinUCB(3).add_actions(5, [[1.0]])
    with pytest.raises(ValueError, match="action_features must have 3 rows"):
        HybridLinUCB(3, action_features=FEATURES)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3),), "reshape"),
        ((np.ones((0, 3)),), "at least one row"),
        (([[np.nan, 0, 0]],), "finite"),
        (([[1e40, 0, 0]],), "finite and at most"),
        (([["a", "b", "c"]],), "real numbers"),
        ((np.ones((1, 2)),), "3 features"),
        ((np.ones((1, 3)), [0, 0]), "distinct"),
        ((np.ones((1, 3)), [-1, 0]), "between 0"),
        ((np.ones((1, 3)), [0.5]), "integers"),
        ((np.ones((2, 3)), [[0, 1]]), "row for each of the 2"),
        ((np.ones((2, 3)), [[0, 1], [-1, -1]]), "row 1 has none"),
        ((np.ones((2, 3)), [[0, 1], [2, 2]]), "distinct in each row"),
        ((np.ones((2, 3)), [[0, 1], [-2]]), "between 0"),
        ((np.ones((1, 3)), np.zeros((1, 2), bool)), "row 0 has none"),
        ((np.ma.masked_equal([[1.0, 2, 3]], 2), None), "masked"),
        ((np.ones((2, 3)), [0], [1.0]), "one entry for each of the 2 rows"),
        ((np.ones((2, 3)), [0, 1], [1.0]), "rewards must have one entry"),
        ((np.ones((2, 3)), [0, 1], [1.0, np.inf]), "finite"),
        ((np.ones((2, 3)), [0, -1], [1.0, 1.0]), "between 0"),
        ((np.ones((2, 3)), [0, 7.5], [1.0, 1.0]), "integers"),
        ((np.ones((2, 3)), [0, 99], [1.0, 1.0], [0.5, 0.0]), "above 0"),
        ((np.ones((2, 3)), [0, 99], [1.0, 1.0], [0.5]), "propensities must have one entry"),
        ((np.ones((2, 3)), [0, 99], [1.0, 1.0], [0.5, 1.5]), "at most 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_has_changed(arguments: tuple[Any, ...], message: str):
    policy = LinUCB(5, random_state=0)
    run(policy, 3)
    before = pickle.dumps(policy)
    with pytest.raises((TypeError, ValueError), match=message):
        (policy.learn if len(arguments) > 2 else policy.act)(*arguments)
    assert pickle.dumps(policy) == before


def test_other_bad_input():
    policy = LinUCB(3)
    with pytest.raises(ValueError, match="new, but 1"):
        policy.add_actions([5, 1])
    with pytest.raises(KeyError, match="known, got 7"):
        policy.remove_actions([0, 7])
    assert policy.actions.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="TruncatedSVD"):
        policy.act(scipy.sparse.csr_array((1, 10**6)))
    with pytest.raises(ValueError, match="alpha"):
        LinUCB(alpha=-1.0)
    with pytest.raises(ValueError, match="at least one row"):
        UCB1(3).act(np.empty((0, 2)))
    with pytest.raises(TypeError, match="contextual"):
        EpsilonGreedy(contextual="yes")


def test_sparse_contexts_are_as_dense_ones():
    X = contexts(6) * (contexts(6, seed=1) > 0)
    dense, sparse = LinUCB(3, random_state=0), LinUCB(3, random_state=0)
    for policy, rows in ((dense, X), (sparse, scipy.sparse.csr_array(X))):
        policy.learn(rows, [0, 1, 2, 0, 1, 2], np.arange(6))
    np.testing.assert_array_equal(dense.probabilities(X), sparse.probabilities(scipy.sparse.coo_array(X)))


def test_choices_do_not_depend_on_data_drawn_with_the_same_seed():
    logged = np.random.default_rng(0).random(2000) < 0.5
    chosen = EpsilonGreedy(2, epsilon=1.0, random_state=0).act(np.ones((2000, 1))).actions
    assert abs(np.mean(logged == chosen) - 0.5) < 0.05


@pytest.mark.parametrize("n", [1, 3, 30])
def test_single_uniform_numbers_are_those_of_a_batch(n):
    numbers = bandits_rules.uniform_numbers(np.random.default_rng(0), 3, n)
    np.testing.assert_array_equal(numbers, np.random.default_rng(0).random((3, n)))
