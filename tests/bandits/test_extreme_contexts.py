"""Policies stay valid for contexts and rewards of any accepted magnitude."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba.bandits import CMTBandit, EpsilonGreedy, HybridLinUCB, LinearThompson, LinUCB, SquareCB, load_policy

FEATURES = np.random.default_rng(1).normal(size=(3, 2))
POLICIES = {
    "epsilon": lambda: EpsilonGreedy(3, contextual=True),
    "linucb": lambda: LinUCB(3, alpha=1e9),
    "small ridge": lambda: LinUCB(3, regularization=1e-9),
    "thompson": lambda: LinearThompson(3),
    "squarecb": lambda: SquareCB(3, gamma=1e9),
    "hybrid": lambda: HybridLinUCB(3),
    "featured": lambda: HybridLinUCB(action_features=FEATURES * 1e4),
    "bandit": lambda: CMTBandit(3, n_bits=5, exploration="thompson"),
}


def contexts_of(kind: str, largest: float, rng: np.random.Generator) -> np.ndarray:
    rows = rng.uniform(-1.0, 1.0, (20, 4))
    if kind == "mixed":
        return rows * 10.0 ** rng.uniform(-30.0, np.log10(largest), rows.shape)
    return np.full((20, 4), largest) if kind == "equal" else rows * (1e-30 if kind == "small" else largest)


@needs_jit
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", ["large", "small", "mixed", "equal"])
def test_probabilities_and_files_hold_at_any_magnitude(name: str, kind: str, tmp_path: Path):
    largest = 1e15 if name in ("hybrid", "featured") else 1e30
    rewards = (1.0,) if name == "bandit" else (-1e30, 1.0, 1e30)
    for reward in rewards:
        policy, rng = POLICIES[name](), np.random.default_rng(0)
        for _ in range(4):
            contexts = contexts_of(kind, largest, rng)
            probabilities = policy.probabilities(contexts)
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
            assert (probabilities >= 0.0).all()
            policy.learn(contexts, policy.act(contexts).actions, reward * rng.uniform(size=20))
        policy.save(tmp_path / "policy")
        again, decision = load_policy(tmp_path / "policy").act(contexts), policy.act(contexts)
        np.testing.assert_array_equal(again.actions, decision.actions)
        np.testing.assert_array_equal(again.propensities, decision.propensities)


def test_contexts_and_rewards_that_are_too_large_are_refused():
    for value, policy in itertools.product((1e31, np.inf, np.nan), (LinUCB(2), HybridLinUCB(2))):
        with pytest.raises(ValueError, match=r"contexts must be finite and at most 1e\+30"):
            policy.act([[value]])
        with pytest.raises(ValueError, match=r"rewards must be finite and at most 1e\+30"):
            policy.learn([[1.0]], [0], [value])
        assert policy.n_rewards == 0
    with pytest.raises(ValueError, match=r"at most 1e\+20, got 1e\+25: scale contexts"):
        HybridLinUCB(2).act([[1e25]])
