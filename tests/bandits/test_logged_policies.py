"""Policies learned from logs: hindsight, and the best supported action."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from scipy.special import expit
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from cmt_numba.bandits import ArgmaxRegressor, CMTBandit, EpsilonGreedy, LinUCB
from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate, replay

K = 6
FEATURES = np.random.default_rng(1).normal(size=(K, 2))
TASTE = np.random.default_rng(2).normal(size=(3, 2)) * 2


def log_of(n: int, seed: int, exponent: float = 0.0) -> Log:
    """Return a log in which actions with larger numbers are more frequent, if the exponent is not 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    chances = np.arange(1, K + 1) ** exponent / np.sum(np.arange(1, K + 1) ** exponent)
    actions = rng.choice(K, n, p=chances)
    wanted = expit((X @ TASTE * FEATURES[actions]).sum(axis=1))
    return Log(actions, rng.random(n) < wanted, X, chances[actions], np.arange(K))


def mean_reward(policy: Any, log: Log) -> float:
    wanted = expit(log.contexts @ TASTE @ FEATURES.T)
    return float((policy.probabilities(log.contexts, np.arange(K)) * wanted).sum(axis=1).mean())


# Hindsight


def test_a_greedy_policy_earns_the_best_mean_of_its_own_log():
    log = log_of(600, 0)
    policy = EpsilonGreedy(epsilon=0.0, random_state=0).learn(None, log.actions, log.rewards)
    means = [log.rewards[log.actions == a].mean() for a in range(K)]
    assert replay(policy, log, learn=False).value == pytest.approx(max(means))


# Regression on a log


def test_the_default_is_a_weighted_ridge_regression_for_each_action():
    log, x = log_of(300, 4, exponent=2.0), np.random.default_rng(0).normal(size=(5, 3))
    policy = ArgmaxRegressor(method="regression", tau=0.05, regularization=1.0, random_state=0).fit(log)
    weights = 1 / np.maximum(log.propensities, 0.05)
    for a in range(K):
        own = log.actions == a
        X = np.column_stack([log.contexts, np.ones(300)])
        model = Ridge(alpha=1.0, fit_intercept=False)
        model.fit(X[own], log.rewards[own], sample_weight=weights[own] / weights.mean())
        exact = np.column_stack([x, np.ones(5)]) @ model.coef_
        np.testing.assert_allclose(policy.expected(x, np.full(5, a)), exact, atol=1e-8)


@pytest.mark.parametrize(
    "options",
    [{}, {"regressor": DecisionTreeRegressor(max_depth=8, random_state=0)}, {"pair_features": None}],
    ids=["ridge", "tree", "pairs"],
)
def test_a_learned_policy_is_better_than_the_one_that_made_the_log(options: dict[str, Any]):
    if "pair_features" in options:
        options["pair_features"] = lambda X, a: (X[:, :, None] * FEATURES[a][:, None, :]).reshape(len(X), -1)
    log, later = log_of(1500, 5, exponent=1.0), log_of(500, 6)
    policy = ArgmaxRegressor(random_state=0, **options).fit(log)
    assert mean_reward(policy, later) > log.rewards.mean() + 0.06
    probabilities = policy.probabilities(later.contexts)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    actions, propensities = policy.act(later.contexts)
    np.testing.assert_array_equal(propensities, probabilities[np.arange(500), actions])
    assert evaluate(policy, later).estimates["snips"].value == pytest.approx(mean_reward(policy, later), abs=0.1)


def log_of_classes(n: int, seed: int, *, good: bool) -> tuple[Log, np.ndarray]:
    """Return a log with one right action for each context, and the right actions."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(K, size=n)
    X = np.eye(K)[wanted] + rng.normal(size=(n, K)) * 0.5
    chances = np.full((n, K), 0.4 / K)
    chances[np.arange(n), X.argmax(axis=1) if good else (wanted + 1) % K] += 0.6
    actions = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    return Log(actions, actions == wanted, X, chances[np.arange(n), actions], np.arange(K)), wanted


@needs_jit
@pytest.mark.parametrize("good", [False, True])
def test_the_way_to_learn_is_chosen_by_held_out_value(good: bool):
    log, _ = log_of_classes(600, 1, good=good)
    later, wanted = log_of_classes(500, 2, good=good)
    right = {}
    for method in ("auto", "classification", "regression"):
        policy = ArgmaxRegressor(method=method, random_state=0).fit(log)
        right[method] = np.mean(policy.act(later.contexts).actions == wanted)
    assert right["auto"] >= max(right.values()) - 0.04
    assert right["auto"] > log.rewards.mean() + 0.05
    auto = ArgmaxRegressor(random_state=0).fit(log)
    assert len(auto.values_) == 4
    assert (auto.method_, auto.tau_) in auto.values_


@needs_jit
def test_sparse_contexts_are_learned_as_dense_ones(tmp_path: Path):
    dense, _ = log_of_classes(300, 3, good=True)
    contexts = np.where(np.abs(dense.contexts) > 0.4, dense.contexts, 0.0)
    columns = {"propensities": dense.propensities, "allowed": np.arange(K + 1)}
    logs = [Log(dense.actions, dense.rewards, X, **columns) for X in (contexts, scipy.sparse.csr_array(contexts))]
    learned = [ArgmaxRegressor(method="regression", random_state=0).fit(log) for log in logs]
    actions = np.arange(300) % (K + 1)
    expected = [policy.expected(log.contexts, actions) for policy, log in zip(learned, logs, strict=True)]
    np.testing.assert_allclose(expected[1], expected[0], atol=1e-8)
    np.testing.assert_allclose(estimate_rewards(logs[1]), estimate_rewards(logs[0]), atol=1e-8)
    np.testing.assert_array_equal(*(policy.act(contexts).actions for policy in learned))
    learned[1].save(tmp_path / "policy.cmt")
    loaded = ArgmaxRegressor.load(tmp_path / "policy.cmt")
    np.testing.assert_array_equal(loaded.act(contexts).actions, learned[1].act(contexts).actions)
    np.testing.assert_array_equal(loaded.expected(contexts, actions), expected[1])


def test_only_supported_actions_are_chosen():
    contexts = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    log = Log([0, 1, 1, 2], [0, 0.2, 0.9, 1.0], contexts, np.full(4, 0.5), np.arange(5))
    asked, allowed = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.arange(5)
    chosen = {}
    for support in ("contexts", "actions", "all"):
        policy = ArgmaxRegressor(support=support, pair_features=lambda X, a: a[:, None], random_state=0).fit(log)
        chosen[support] = policy.act(asked, allowed).actions.tolist()  # expected rewards rise with the action
    assert chosen == {"contexts": [1, 2, 2], "actions": [2, 2, 2], "all": [4, 4, 4]}
    policy = ArgmaxRegressor(support="contexts", random_state=0).fit(log)
    assert policy.act(asked, [3, 4]).actions.size == 3  # none is supported: all are as good
    ragged = policy.probabilities(asked, [[0, 3], [1, 2, 3], [4]])
    assert ragged[0].tolist() == [1.0, 0.0, 0.0]
    assert ragged[2].tolist() == [1.0, 0.0, 0.0]


def test_a_warm_start_teaches_what_the_regression_expects():
    log = log_of(1000, 7)
    learned = ArgmaxRegressor(random_state=0).fit(log)
    warm = learned.warm_start(LinUCB(K, alpha=0.0, random_state=0), log.contexts)
    later = log_of(300, 8)
    assert mean_reward(warm, later) > mean_reward(LinUCB(K, random_state=0), later) + 0.05


def test_a_policy_of_a_log_with_names_chooses_names(tmp_path: Path):
    """The same names have other numbers in a log with other actions, so policies pass names."""
    numbered = log_of(1000, 7)
    names = np.array([f"sku-{i}" for i in (3, 10, 2, 1, 20, 0)])
    columns = {"contexts": numbered.contexts, "propensities": numbered.propensities}
    log = Log(names[numbered.actions], numbered.rewards, **columns)
    policy, expected = (ArgmaxRegressor(random_state=0).fit(of) for of in (log, numbered))
    chosen = names[expected.act(numbered.contexts).actions]
    assert policy.act(log.contexts).actions.tolist() == chosen.tolist()
    assert set(policy.act(log.contexts, ["sku-3", "sku-1"]).actions) == {"sku-3", "sku-1"}
    assert policy.act(log.contexts[:2], [["sku-1"], ["new", "sku-2"]]).actions.tolist() == ["sku-1", "sku-2"]
    np.testing.assert_allclose(
        policy.expected(log.contexts, log.actions), policy.expected(log.contexts, names[numbered.actions])
    )
    policy.save(tmp_path / "policy.cmt")
    assert ArgmaxRegressor.load(tmp_path / "policy.cmt").act(log.contexts[:5]).actions.tolist() == chosen[:5].tolist()
    more = Log(
        [*names[numbered.actions], "a"],
        [*log.rewards, 0],
        np.vstack([log.contexts, np.ones((1, 3))]),
        [*log.propensities, 0.5],
    )
    value = evaluate(expected, numbered).estimates["ips"].value
    assert evaluate(policy, log).estimates["ips"].value == pytest.approx(value)
    assert evaluate(policy, more).estimates["ips"].value == pytest.approx(value * 1000 / 1001)
    for of in (log, more):
        rows = replay(policy, of, learn=False).rows
        np.testing.assert_array_equal(rows[rows < 1000], np.flatnonzero(names[numbered.actions] == chosen))
    learned = policy.warm_start(LinUCB(K, alpha=0.0, random_state=0), log.contexts)
    assert learned.n_rewards == 1000


def test_decisions_can_be_copied():
    decision = CMTBandit(3, random_state=0).act(np.eye(3))
    actions, propensities = decision
    for copied in (pickle.loads(pickle.dumps(decision)), replace(decision, actions=actions)):
        assert copied.ids.tolist() == decision.ids.tolist()
        assert copied.propensities.tolist() == propensities.tolist()


def test_bad_input():
    policy = ArgmaxRegressor(random_state=0)
    with pytest.raises(ValueError, match="call fit"):
        policy.act(np.ones((1, 3)))
    with pytest.raises(ValueError, match="propensities"):
        policy.fit(Log([0, 1], [0, 1], np.ones((2, 3))))
    with pytest.raises(ValueError, match="support"):
        ArgmaxRegressor(support="some")
    with pytest.raises(TypeError, match="pair_features"):
        ArgmaxRegressor(pair_features=3)  # type: ignore[arg-type]
    policy.fit(log_of(20, 0))
    with pytest.raises(ValueError, match="3 features"):
        policy.act(np.ones((1, 2)))


def products(contexts: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return features of pairs."""
    return contexts * (1.0 + actions[:, None])


@pytest.mark.parametrize(
    "options", [{"regressor": Ridge()}, {"pair_features": products}], ids=["regressor", "features of pairs"]
)
def test_pickles_go_on_as_the_one_pickled(options: dict[str, Any]):
    log = log_of(300, 0)
    learned = ArgmaxRegressor(**options, random_state=0)
    with pytest.raises(ValueError, match="call fit"):
        pickle.loads(pickle.dumps(learned)).act(log.contexts)
    learned.fit(log)
    again = pickle.loads(pickle.dumps(learned))
    actions = np.arange(len(log)) % 9  # some are not in the log
    np.testing.assert_array_equal(again.expected(log.contexts, actions), learned.expected(log.contexts, actions))
    np.testing.assert_array_equal(again.act(log.contexts).actions, learned.act(log.contexts).actions)


def test_a_policy_is_saved_when_it_has_learned_without_functions_of_users(tmp_path: Path):
    path, log = tmp_path / "policy.cmt", log_of(300, 0)
    with pytest.raises(ValueError, match="call fit"):
        ArgmaxRegressor().save(path)
    ArgmaxRegressor().fit(log).save(path)
    for options in ({"regressor": Ridge()}, {"pair_features": products}):
        with pytest.raises(TypeError, match="pickle it instead"):
            ArgmaxRegressor(**options).fit(log).save(path)
    ArgmaxRegressor.load(path)  # still the file before
