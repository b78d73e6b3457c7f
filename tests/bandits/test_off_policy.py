"""Off-policy evaluation: formulas in plain NumPy, expectations by enumeration, coverage, replay, and log files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import bandits_checks, bandits_estimators
from scipy.stats import binom

from cmt_numba.bandits import EpsilonGreedy, LinUCB
from cmt_numba.bandits.evaluation import (
    Log,
    direct_method,
    doubly_robust,
    estimate_propensities,
    estimate_rewards,
    evaluate,
    inverse_propensity,
    read_log,
    replay,
    self_normalized,
    self_normalized_doubly_robust,
    switch,
    target_probabilities,
)

N, K = 400, 4


def distribution(rng: np.random.Generator, n: int = N, k: int = K) -> np.ndarray:
    return rng.dirichlet(np.ones(k), n) * 0.9 + 0.1 / k


class World:
    """Contexts, the rewards of all actions, a logging policy and a policy to evaluate."""

    def __init__(self, seed: int = 0, n: int = N) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, 3))
        self.mean = 1 / (1 + np.exp(-self.X @ rng.normal(size=(3, K))))
        self.logging, self.target = distribution(rng, n), distribution(rng, n)
        self.actions = (rng.random(n)[:, None] > self.logging.cumsum(axis=1)).sum(axis=1)
        self.rows = np.arange(n)
        self.rewards = (rng.random(n) < self.mean[self.rows, self.actions]).astype(float)
        self.propensities = self.logging[self.rows, self.actions]
        self.model = np.clip(self.mean + 0.1 * rng.normal(size=self.mean.shape), 0, 1)
        self.value = float((self.target * self.mean).sum(axis=1).mean())

    def log(self) -> Log:
        return Log(self.actions, self.rewards, self.X, self.propensities, allowed=np.arange(K))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_estimators_are_their_formulas(world: World):
    found = evaluate(world.target, world.log(), expected=world.model, tau=0.2, threshold=3.0)
    chosen = world.target[world.rows, world.actions]
    r, q, base = world.rewards, world.model[world.rows, world.actions], (world.target * world.model).sum(axis=1)
    w, unclipped = chosen / np.maximum(world.propensities, 0.2), chosen / world.propensities
    expected = {
        "ips": (w * r).mean(),
        "snips": (w * r).sum() / w.sum(),
        "dm": base.mean(),
        "dr": (base + w * (r - q)).mean(),
        "sndr": base.mean() + (w * (r - q)).sum() / w.sum(),
        "switch": (base + unclipped * (unclipped <= 3.0) * (r - q)).mean(),
    }
    assert {name: estimate.value for name, estimate in found.estimates.items()} == pytest.approx(expected, rel=1e-12)
    assert found.effective_sample_size == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.mean_weight == pytest.approx(w.mean())
    assert found.logged == r.mean()
    assert found.clipped == pytest.approx(np.mean(world.propensities < 0.2))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_inverse_propensity_and_doubly_robust_are_unbiased(seed: int):
    """Expectations sum over all actions with their probabilities."""
    rng = np.random.default_rng(seed)
    logging, target = distribution(rng, 5), distribution(rng, 5)
    mean, model = rng.random((5, K)), rng.random((5, K))
    base = (target * model).sum(axis=1)
    expectations = np.zeros(2)
    for a in range(K):
        arguments = (mean[:, a], logging[:, a], target[:, a])
        ips, dr = inverse_propensity(*arguments), doubly_robust(*arguments, model[:, a], base)
        expectations += [(logging[:, a] * ips.terms).mean(), (logging[:, a] * dr.terms).mean()]
    np.testing.assert_allclose(expectations, (target * mean).sum(axis=1).mean(), rtol=1e-12)


def test_clipping_underestimates_and_bounds_what_a_row_contributes(world: World):
    chosen = world.target[world.rows, world.actions]
    values = []
    for tau in (0.0, 0.1, 0.3, 1.0):
        estimate = inverse_propensity(world.rewards, world.propensities, chosen, tau=tau)
        values.append(estimate.value)
        assert estimate.bounds is not None
        assert np.all((estimate.terms >= estimate.bounds[0]) & (estimate.terms <= estimate.bounds[1]))
    assert values == sorted(values, reverse=True)
    assert inverse_propensity([1.0], [0.01], [0.5], tau=0.05).bounds == (0.0, 1.0 / 0.05)


@pytest.mark.parametrize("method", ["betting", "bernstein", "chernoff", "bootstrap", "normal"])
@pytest.mark.parametrize("name", ["ips", "snips", "dr", "sndr", "switch"])
def test_intervals_cover_the_value(name: str, method: str):
    estimate = evaluate(World().target, World().log(), expected=World().model).estimates[name]
    if not estimate.has_interval(method):
        with pytest.raises(ValueError, match='use method="bootstrap"'):
            estimate.interval(method)
        return
    n_covered, n_worlds = 0, 40
    for seed in range(n_worlds):
        world = World(seed)
        threshold = 1e9  # no bias
        found = evaluate(world.target, world.log(), expected=world.model, threshold=threshold).estimates[name]
        low, high = found.interval(method, confidence=0.9, n_resamples=100)
        assert method == "betting" or low <= found.value <= high
        n_covered += low <= world.value <= high
    least = {"betting": 0.9, "bernstein": 1.0, "chernoff": 1.0}.get(method, 0.75)
    assert n_covered >= least * n_worlds


@pytest.mark.parametrize("method", ["normal", "bootstrap", "bernstein", "chernoff"])
def test_intervals_of_biased_estimates_allow_for_their_bias(method: str):
    rng = np.random.default_rng(0)
    rewards = (rng.random(300) < 0.6).astype(float)
    propensities = rng.choice([0.02, 0.5], 300)
    log = Log(np.zeros(300, int), rewards, np.ones((300, 1)), propensities, [0, 1])
    found = evaluate(np.full((300, 2), 0.5), log, expected=np.full((300, 2), 0.1), threshold=2.0).estimates
    robust = found["dr"].interval(method)
    for name in ("dm", "switch"):
        low, high = found[name].interval(method)
        assert low <= min(robust[0], found[name].value)
        assert high == pytest.approx(max(robust[1], found[name].value))


def test_intervals_stay_in_the_range_of_rewards():
    """They are also narrow if propensities are tiny."""
    rng = np.random.default_rng(0)
    propensities = np.where(rng.random(2000) < 0.01, 0.002, 0.5)
    rewards, target = (rng.random(2000) < 0.3).astype(float), propensities
    for estimate in (
        inverse_propensity(rewards, propensities, target),
        self_normalized(rewards, propensities, target, reward_range=(0, 1)),
    ):
        low, high = estimate.interval("betting")
        assert 0.2 < low < rewards.mean() < high < 0.4
        assert estimate.interval("bernstein")[1] < 0.6
    without_range = self_normalized(rewards, propensities, target)
    for method in ("betting", "bernstein"):
        with pytest.raises(ValueError, match=f"{method}.* requires reward_range.*self_normalized"):
            without_range.interval(method)
    with pytest.raises(ValueError, match=r"chernoff.* not valid"):
        without_range.interval("chernoff")
    rare = inverse_propensity(np.append(np.zeros(9), 1.0), np.full(10, 0.01), np.full(10, 0.9))
    for method in ("betting", "bernstein", "chernoff", "normal", "bootstrap"):
        low, high = rare.interval(method)
        assert 0.0 <= low <= high <= 1.0


def test_confidence_sequences_shrink_around_the_mean():
    rewards = (np.random.default_rng(1).random(3000) < 0.6).astype(float)
    bounds = inverse_propensity(rewards, np.ones(3000), np.ones(3000)).confidence_sequence(0.9)
    assert bounds.shape == (3000, 2)
    assert (np.diff(bounds[:, 0]) >= 0.0).all()
    assert (np.diff(bounds[:, 1]) <= 0.0).all()
    assert ((bounds[:, 0] <= 0.6) & (bounds[:, 1] >= 0.6)).all()
    assert bounds[-1, 1] - bounds[-1, 0] < 0.1


def test_switch_tunes_its_threshold():
    """It uses a good model in rows with large weights, and no bad model."""
    rng = np.random.default_rng(2)
    n = 4000
    propensities = np.where(rng.random(n) < 0.5, 0.5, 0.002)
    weighted = rng.random(n) < propensities / propensities.max()
    rewards, target = (rng.random(n) < 0.5).astype(float), np.where(weighted, propensities.max(), 0.0)
    good, bad = np.full(n, 0.5), np.full(n, 0.0)
    tuned, whole = (
        switch(rewards, propensities, target, good, good),
        doubly_robust(rewards, propensities, target, good, good),
    )
    assert tuned.terms.std() < 0.2 * whole.terms.std()
    assert tuned.value == pytest.approx(0.5, abs=0.05)
    assert switch(rewards, np.full(n, 0.5), np.full(n, 0.5), bad, bad).value == pytest.approx(rewards.mean())


def test_several_policies_are_compared(world: World, tmp_path: Path):
    log = world.log()
    found = evaluate(
        {"target": world.target, "random": EpsilonGreedy(K, epsilon=1.0, random_state=0)}, log, expected=world.model
    )
    one = evaluate(world.target, log, expected=world.model)
    table = found.to_pandas()
    assert table.shape == (12, 6)
    np.testing.assert_array_equal(table.loc["target"].to_numpy(), one.to_pandas().to_numpy())
    assert table.loc[("target", "snips"), "estimated_policy_value"] == found["target"].estimates["snips"].value
    assert table.loc[("random", "dm"), "betting (lower)"] != table.loc[("random", "dm"), "betting (lower)"]
    assert "snips" in str(one)
    assert "random" in str(found)
    found.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0
    with pytest.raises(ValueError, match="at least one policy"):
        evaluate({}, log)


def test_policies_may_be_functions_and_actions_may_have_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"action": ["b", "a", "b", "c"], "reward": [1.0, 0.0, 1.0, 0.0], "x": range(4), "p": 0.5})
    log = read_log(frame, propensity="p", context=["x"])
    assert log.arms == ("a", "b", "c")
    assert log.actions.tolist() == [1, 0, 1, 2]
    assert log.take([1, 3]).arms == log.arms
    expected = evaluate({"a": [0.0] * 4, "b": [1.0] * 4, "c": [0.0] * 4}, log).estimates["ips"].value
    for policy in (lambda X: np.full(len(X), "b"), lambda X: np.ones(len(X), int)):
        assert evaluate(policy, log).estimates["ips"].value == expected
    by_row = Log(["b", "a"], [1, 0], None, [0.5, 0.5], [["b", "a"], ["a", "z"]])
    assert by_row.arms == ("a", "b", "z")
    assert target_probabilities(lambda X: ["b", "z"], by_row).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    for policy, message in (
        (lambda X: np.full(len(X), "q"), "names in arms"),
        (lambda X: [9] * len(X), "allowed"),
        (lambda X: [1], "must return 4 actions"),
        (lambda X: np.ones((len(X), 2)), "probabilities of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(policy, log)


def test_probabilities_of_named_actions_are_given_by_name():
    """Sorted names are in another order than most arrays: sku-10 comes before sku-2."""
    pandas = pytest.importorskip("pandas")
    names = [f"sku-{i}" for i in range(12)]
    rng = np.random.default_rng(0)
    actions = rng.integers(12, size=600)
    wanted = rng.integers(12, size=600)
    probabilities = np.full((600, 12), 0.02)
    probabilities[np.arange(600), wanted] = 0.78
    rewards, propensities = (actions == wanted).astype(float), np.full(600, 1 / 12)
    numbered = Log(actions, rewards, propensities=propensities, allowed=np.arange(12))
    expected = evaluate(probabilities, numbered).estimates["snips"].value
    log = Log([names[a] for a in actions], rewards, propensities=propensities)
    frame = pandas.DataFrame(probabilities, columns=names)
    ordered = Log([names[a] for a in actions], rewards, propensities=propensities, arms=names)
    for policy, of in (
        (frame, log),
        (frame[names[::-1]], log),
        (dict(zip(names, probabilities.T, strict=True)), log),
        (lambda X: frame, log),
        (probabilities, ordered),
        (dict(enumerate(probabilities.T)), numbered),
    ):
        assert evaluate(policy, of).estimates["snips"].value == pytest.approx(expected)
    model = np.full((600, 12), 0.5)
    by_name = evaluate(frame, log, expected=pandas.DataFrame(model, columns=names))
    assert by_name.estimates["dm"].value == pytest.approx(0.5)
    for policy in (probabilities, lambda X: probabilities):
        with pytest.warns(UserWarning, match="order of the sorted names: sku-0, sku-1, sku-10, sku-11, sku-2, ..."):
            assert evaluate(policy, log).estimates["snips"].value < expected - 0.3
    with pytest.raises(ValueError, match="'sku-10' is missing"):
        evaluate(frame.drop(columns="sku-10"), log)
    with pytest.raises(ValueError, match="policy must have one entry for each of the 600 rows"):
        evaluate({name: [1 / 12] for name in names}, log)


def test_a_biased_model_is_reported(world: World):
    advice = evaluate(world.target, world.log(), expected=np.zeros_like(world.model)).advice
    assert any("model is biased" in line for line in advice)


def test_chernoff_bound_is_that_of_coins():
    """Its ends have the relative entropy of the error probability, and cover the binomial tails."""
    values = np.repeat([0.0, 1.0], [93, 7])
    low, high = bandits_estimators.chernoff(values, 0.0, 1.0, 0.95)
    for end in (low, high):
        assert 100 * bandits_estimators.relative_entropy(0.07, end) == pytest.approx(np.log(2 / 0.05), rel=1e-9)
    assert binom.sf(6, 100, low) < 0.025
    assert binom.cdf(7, 100, high) < 0.025
    assert bandits_estimators.chernoff(np.zeros(10), 0.0, 5.0, 0.95)[0] == 0.0
    assert bandits_estimators.chernoff(np.zeros(10), 0.0, 5.0, 0.95)[1] == pytest.approx(5 * (1 - 0.025 ** (1 / 10)))
    assert bandits_estimators.chernoff(np.ones(10), 0.0, 1.0, 0.95) == pytest.approx((0.025 ** (1 / 10), 1.0))


def test_intervals_scale_with_rewards(world: World):
    chosen = world.target[world.rows, world.actions]
    small = inverse_propensity(world.rewards, world.propensities, chosen)
    large = inverse_propensity(world.rewards * 50, world.propensities, chosen, reward_range=(0, 50))
    for method in ("betting", "bernstein", "chernoff", "normal", "bootstrap"):
        np.testing.assert_allclose(large.interval(method), np.multiply(small.interval(method), 50), rtol=1e-6)


# Advice


def test_advice_where_a_log_does_not_support_a_policy(world: World):
    larger = World(1, 4000)
    assert evaluate(larger.target, larger.log()).advice == []
    zero = np.zeros((4000, K))
    zero[np.arange(4000), (larger.actions + 1) % K] = 1.0
    assert "never chooses" in evaluate(zero, larger.log()).advice[0]
    # The log never chooses the first action, which the policy prefers.
    kept = larger.log().take(larger.actions != 0)
    logging = larger.logging[larger.actions != 0]
    kept = Log(kept.actions, kept.rewards, kept.contexts, kept.propensities / (1 - logging[:, 0]), allowed=np.arange(K))
    prefers = np.tile([0.7, 0.1, 0.1, 0.1], (len(kept), 1))
    assert "the mean weight is 0.29, not 1: about 71 %" in evaluate(prefers, kept).advice[0]
    few = evaluate(world.target[:50], world.log().take(slice(0, 50)))
    assert "effective sample size of the 50 rows" in few.advice[0]
    assert "propensities below tau" in evaluate(larger.target, larger.log(), tau=0.5).advice[-1]
    assert "too small" in evaluate(larger.target, larger.log(), propensities=larger.propensities / 2).advice[0]


# Replay


def test_replay_of_a_uniform_log_finds_the_value():
    """With a fixed choice, the kept rows are those with this action."""
    rng = np.random.default_rng(0)
    log = Log(rng.integers(0, 4, 8000), rng.random(8000), allowed=np.arange(4))
    log = Log(log.actions, (log.rewards < 0.2 * log.actions).astype(float), allowed=np.arange(4))
    policy = EpsilonGreedy(4, epsilon=0.0, random_state=0).learn(np.ones((1, 1)), [3], [1.0])
    kept = replay(policy, log, learn=False)
    np.testing.assert_array_equal(kept.rows, np.flatnonzero(log.actions == 3))
    assert kept.n_seen == 8000
    assert kept.value == pytest.approx(0.6, abs=0.05)
    low, high = kept.estimate().interval("chernoff")
    assert low < 0.6 < high
    np.testing.assert_array_equal(replay(policy, log, learn=False, n_rewards=10).rows, kept.rows[:10])


class Recorder:
    """A policy that chooses the number of rewards it has learned, modulo 4."""

    def __init__(self) -> None:
        self.learned: list[Any] = []

    def act(self, contexts: Any, actions: Any) -> Any:
        n = len(contexts)
        return np.full(n, len(self.learned) % 4), np.ones(n)

    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        self.learned.append((contexts.item(), actions.item(), rewards.item()))


class Constant:
    """A policy that always chooses the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, contexts: Any, actions: Any) -> Any:
        return np.full(len(contexts), self.action), np.ones(len(contexts))

    def learn(self, *arguments: Any) -> None:
        pass


def test_replay_learns_row_by_row():
    """The policy has learned from all kept rows before, and from no others (Algorithm 3)."""
    rng = np.random.default_rng(0)
    actions, rewards, contexts = rng.integers(0, 4, 500), rng.random(500), np.arange(500.0)[:, None]
    policy = Recorder()
    kept = replay(policy, Log(actions, rewards, contexts))
    expected = []
    for i in range(500):
        if actions[i] == len(expected) % 4:
            expected.append(i)
    assert kept.rows.tolist() == expected
    assert [row for row, _, _ in policy.learned] == expected
    np.testing.assert_array_equal(kept.rewards, rewards[expected])
    shorter = replay(Recorder(), Log(actions, rewards, contexts), n_rewards=7)
    assert shorter.rows.tolist() == expected[:7]
    assert shorter.n_seen == expected[6] + 1


def test_replay_drops_rows_where_the_log_was_not_uniform():
    rng = np.random.default_rng(0)
    logging = np.array([0.7, 0.1, 0.1, 0.1])
    actions = rng.choice(4, 10_000, p=logging)
    log = Log(actions, rng.random(10_000), propensities=logging[actions])
    kept = replay(EpsilonGreedy(4, epsilon=1.0, random_state=0), log, learn=False)
    np.testing.assert_allclose(np.bincount(log.actions[kept.rows]) / kept.rows.size, 0.25, atol=0.03)
    assert replay(EpsilonGreedy(random_state=0), Log([5], [1.0], allowed=[[5]])).value == 1.0
    assert np.isnan(replay(Recorder(), Log([5], [1.0])).value)
    with pytest.raises(ValueError, match="never chose the logged action"):
        replay(Recorder(), Log([5], [1.0])).estimate()


def test_replay_says_why_it_could_not_use_rows():
    rng = np.random.default_rng(0)
    propensities = np.where(np.arange(2000) == 7, 1e-6, 0.97)
    log = Log(np.zeros(2000, int), rng.random(2000), propensities=propensities, allowed=np.arange(3))
    found = replay(EpsilonGreedy(3, random_state=0), log)
    assert "the log is not uniform: with propensities from 1e-06 to 0.97, only" in str(found)
    with pytest.raises(ValueError, match="use evaluate, which weights rows instead of dropping them; the policy never"):
        replay(Constant(2), log).estimate()
    uniform = Log(np.zeros(2000, int), rng.random(2000), propensities=np.full(2000, 1 / 3), allowed=np.arange(3))
    assert replay(EpsilonGreedy(3, epsilon=1.0, random_state=0), uniform, learn=False).advice == []


def test_replay_uses_the_actions_allowed_in_each_row():
    allowed = [[0, 1], [2], [3, 1, 0], [2, 0]] * 50
    rng = np.random.default_rng(0)
    actions = [int(rng.choice(row)) for row in allowed]
    log = Log(actions, np.ones(200), rng.normal(size=(200, 2)), allowed=allowed)
    kept = replay(LinUCB(random_state=0), log)
    assert set(np.flatnonzero(np.arange(200) % 4 == 1)) <= set(kept.rows.tolist())  # where nothing is to choose
    part = log.take(slice(1, 4))
    assert part.allowed == [[2], [3, 1, 0], [2, 0]]
    probabilities = target_probabilities(EpsilonGreedy(4), part)
    np.testing.assert_allclose(probabilities, [[1, 0, 0], [1 / 3] * 3, [1 / 2, 1 / 2, 0]])


# Propensities and rewards that are estimated


@pytest.mark.parametrize("method", ["ridge", "logistic", "frequency"])
def test_propensities_are_estimated(method: str):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (4000, 2)).astype(float)
    logging = np.where(X[:, :1] > 0, [[0.6, 0.3, 0.1]], [[0.2, 0.3, 0.5]])
    actions = (rng.random(4000)[:, None] > logging.cumsum(axis=1)).sum(axis=1)
    truth = logging[np.arange(4000), actions]
    estimated = estimate_propensities(Log(actions, np.zeros(4000), X), method)
    if method == "frequency":
        truth = np.array([0.4, 0.3, 0.3])[actions]
    np.testing.assert_allclose(estimated, truth, atol=0.06)


def test_propensities_are_estimated_for_each_set_of_allowed_actions():
    allowed = [[0, 1]] * 100 + [[1, 2]] * 100
    actions = np.array([0, 1, 1, 1] * 25 + [1, 2] * 50)
    log = Log(actions, np.zeros(200), np.ones((200, 1)), allowed=allowed)
    expected = np.where(np.arange(200) < 100, np.where(actions == 0, 0.25, 0.75), 0.5)
    for method in ("frequency", "ridge"):
        np.testing.assert_allclose(estimate_propensities(log, method), expected, atol=0.01)
    alone = Log([3] * 5, np.zeros(5), np.ones((5, 1)))
    np.testing.assert_array_equal(estimate_propensities(alone, "logistic"), 1.0)


def test_rewards_are_estimated_by_models_of_other_rows(world: World):
    from sklearn.linear_model import Ridge

    log = world.log()
    linear = estimate_rewards(log)
    assert np.mean((linear - world.mean) ** 2) < 0.03
    by_regressor = estimate_rewards(log, regressor=Ridge())
    assert by_regressor.shape == linear.shape
    assert np.mean((by_regressor - world.mean) ** 2) < 0.1
    # A row's own reward has no influence on what is expected of it.
    folds = bandits_checks.generator_of(0, "folds").permutation(N) % 2
    changed = Log(log.actions, np.where(folds == 0, 1 - log.rewards, log.rewards), log.contexts, allowed=log.allowed)
    np.testing.assert_array_equal(estimate_rewards(changed)[folds == 0], linear[folds == 0])
    assert np.any(estimate_rewards(changed)[folds == 1] != linear[folds == 1])
    within = estimate_rewards(log, n_folds=1)
    X, a = np.column_stack([log.contexts, np.ones(N)]), 2
    mine = log.actions == a
    weights = np.linalg.solve(np.eye(4) + X[mine].T @ X[mine], X[mine].T @ log.rewards[mine])
    np.testing.assert_allclose(within[:, a], X @ weights, rtol=1e-8)


def test_expected_rewards_follow_masks(world: World):
    mask = np.ones((N, K), bool)
    mask[world.rows, (world.actions + 1) % K] = False
    log = Log(world.actions, world.rewards, world.X, allowed=mask)
    expected = estimate_rewards(log)
    assert np.all(expected[~mask] == 0)
    assert np.all(expected[mask] != 0)


# Logs and files


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv", "csv.gz"])
def test_logs_are_read_from_files(suffix: str, world: World, tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(world.X, columns=["a", "b", "c"])
    frame["action"], frame["clicked"], frame["p"] = world.actions, world.rewards, world.propensities
    path = tmp_path / f"log.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        frame.to_csv(path)
    columns: dict[str, Any] = {"reward": "clicked", "propensity": "p", "context": ["a", "b", "c"]}
    log = read_log(path, **columns)
    np.testing.assert_array_equal(log.actions, world.actions)
    np.testing.assert_allclose(log.contexts, world.X, rtol=1e-9)
    with pytest.raises(KeyError, match="the column 'x'"):
        read_log(path, reward="clicked", context=["x"])


def test_logs_have_lists_of_allowed_actions_and_contexts(tmp_path: Path):
    pytest.importorskip("pandas")
    path = tmp_path / "log.jsonl"
    rows = [
        {"action": 3, "reward": 1, "context": [0.5, 1.0], "allowed": [3, 4], "t": 1},
        {"action": 2, "reward": 0, "context": [0.25, 2.0], "allowed": [1, 2, 7], "t": 5},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log = read_log(path, context="context", allowed="allowed", time="t")
    assert log.contexts.tolist() == [[0.5, 1.0], [0.25, 2.0]]
    assert [row.tolist() for row in log.allowed] == [[3, 4], [1, 2, 7]]
    assert log.times.tolist() == [1.0, 5.0]
    with pytest.raises(TypeError, match=r"log\.jsonl: the column 't' must contain a list"):
        read_log(path, allowed="t")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"actions": [0, 1], "rewards": [1.0]}, "rewards must have one entry"),
        ({"actions": [], "rewards": []}, "at least one action"),
        ({"actions": [0, 1], "rewards": [0, 1], "contexts": [[1.0]]}, "contexts must have 2 rows"),
        ({"actions": [0, 1], "rewards": [0, 1], "propensities": [0.5, 0.0]}, "above 0"),
        ({"actions": [0, 1], "rewards": [0, 1], "times": [2, 1]}, "ascending order"),
        ({"actions": [0, 1], "rewards": [0, 1], "allowed": [[0, 2], [0, 2]]}, "row 1 does not allow 1"),
        ({"actions": [0, 1], "rewards": [0, np.nan]}, "finite"),
    ],
)
def test_bad_logs_are_refused(columns: dict[str, Any], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        Log(**columns)


def test_other_bad_input(world: World, tmp_path: Path):
    log = world.log()
    without = Log(world.actions, world.rewards)
    for call, message in (
        (lambda: evaluate(world.target, without), "propensities must be given"),
        (lambda: evaluate(world.target[:, :2], log), "of shape"),
        (lambda: evaluate(world.target * 0.5, log), "sum to 1"),
        (lambda: evaluate(world.target * 3.0 - 0.5, log), "at least 0 that sum to 1"),
        (lambda: evaluate(world.target, log, expected=world.model[:3]), "expected must have shape"),
        (lambda: evaluate(world.target, log, tau=2.0), "tau must be"),
        (lambda: evaluate(world.target, log, reward_range=(0, 0.5)), "reward_range"),
        (lambda: evaluate(world.target, log, reward_range=(1, 0)), "reward_range"),
        (lambda: inverse_propensity([1.0], [0.0], [0.5]), "set tau"),
        (lambda: inverse_propensity([1.0], [0.5, 0.5], [0.5]), "same length"),
        (lambda: inverse_propensity([1.0], [0.5], [1.5]), "between 0 and 1"),
        (lambda: self_normalized([1.0, 1.0], [0.5], [0.5]), "rewards must have one"),
        (lambda: doubly_robust([1.0], [0.5], [0.5], [1.0, 2.0], [1.0]), "expected must have one entry"),
        (
            lambda: self_normalized_doubly_robust([1.0], [0.5], [0.5], [1.0], []),
            "expected_of_target must have one entry",
        ),
        (lambda: switch([1.0], [0.5], [0.5], [1.0], [1.0], threshold=-1.0), "threshold"),
        (lambda: direct_method([]), "at least one"),
        (lambda: direct_method([0.5]).interval(), "two rows"),
        (lambda: direct_method([0.5, 0.6]).interval("guess"), "method must be one of"),
        (lambda: estimate_propensities(without), "log must have contexts"),
        (lambda: estimate_rewards(without), "log must have contexts"),
        (lambda: read_log(tmp_path / "log.txt"), "suffix must be"),
        (lambda: replay(EpsilonGreedy(4), log, n_rewards=0), "n_rewards"),
        (lambda: replay(EpsilonGreedy(4, random_state=0), log).estimate((1.0, 1.0)), "reward_range must be less"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_a_log_of_one_row_has_estimates_without_intervals():
    log = Log([0], [1.0], propensities=[0.5], allowed=[0, 1])
    found = evaluate([[0.25, 0.75]], log, expected=[[0.5, 0.5]])
    assert {name: estimate.value for name, estimate in found.estimates.items()} == {
        "ips": 0.5,
        "snips": 1.0,
        "dm": 0.5,
        "dr": 0.75,
        "sndr": 1.0,
        "switch": 0.75,
    }
    assert "0.7500" in str(found)
    assert found.to_pandas().iloc[:, 2:].isna().all(axis=None)


def test_tiny_propensities_and_certain_intervals_are_refused():
    rewards, target = np.array([0.0, 1.0, 1.0]), np.full(3, 0.5)
    tiny = np.array([0.5, 1e-200, 0.5])
    with pytest.raises(ValueError, match=r"above 1e-100, got 1e-200 in row 1: set tau"):
        inverse_propensity(rewards, tiny, target)
    found = inverse_propensity(rewards, tiny, target, tau=0.1)
    assert found.effective_sample_size > 0.0
    assert switch(rewards, tiny, target, target, target, threshold=10.0).effective_sample_size == pytest.approx(2.0)
    for method in ("bernstein", "chernoff", "bootstrap", "normal"):
        with pytest.raises(ValueError, match="confidence must be below 1"):
            found.interval(method, confidence=1.0)


def test_results_are_printed_without_their_arrays(world: World):
    log = world.log()
    assert str(log) == f"Log(400 rows, 4 actions, 3 features, mean reward {log.rewards.mean():.4g}, with propensities)"
    assert str(Log(["a", "b"], [0, 1])) == "Log(2 rows, 2 actions, mean reward 0.5)"
    uniform = Log(world.actions, world.rewards, allowed=np.arange(K))
    result = replay(EpsilonGreedy(epsilon=1.0, random_state=0), uniform)
    assert str(result) == f"Replay(value {result.value:.4g}, from {result.rows.size} of 400 rows)"
    estimate = inverse_propensity(world.rewards, world.propensities, world.propensities)
    assert str(estimate) == f"Estimate(inverse propensity, value {estimate.value:.4g}, from 400 rows)"
