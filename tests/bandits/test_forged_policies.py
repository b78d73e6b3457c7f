"""Files with a wrong array or field and a valid checksum are refused, or contain a policy that works."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from forged import check_forgeries

from cmt_numba.bandits import (
    UCB1,
    ArgmaxRegressor,
    CMTBandit,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    SquareCB,
    load_policy,
)
from cmt_numba.bandits.evaluation import Log

APART = ("by_context.tree.",)  # parts whose files have tests of their own
ALIKE = (
    "ids",
    "model.",
    "state.",
    "feedback.t",
    "feedback.figures",
    "feedback.weights",
    "options",
    "gen",
)
"""Parts of a sparse bandit that are those of a dense one, whose file is much smaller."""
N, WIDTH = 12, 3
CONTEXTS = np.random.default_rng(0).normal(size=(N, WIDTH))
RNG = np.random.default_rng(3)
ACTIONS, REWARDS = np.arange(N) % 4, (np.arange(N) % 3 == 0).astype(float)
FEATURES = np.random.default_rng(1).normal(size=(4, 2))


def learned(policy: Any) -> Any:
    return policy.learn(CONTEXTS, ACTIONS, REWARDS).remove_actions(2)


def bandit(contexts: Any) -> CMTBandit:
    made = CMTBandit(n_candidates=2, n_tried=1, n_bits=4, n_trees=1, epsilon=0.1, random_state=0)
    made.add_actions(np.arange(6), contexts[:6])
    made.reward(made.act(contexts).ids[::2], REWARDS[::2])
    return made


POLICIES: dict[str, Callable[[], Any]] = {
    "random": lambda: EpsilonGreedy(4, epsilon=1.0, random_state=0),
    "ucb1": lambda: learned(UCB1(4, random_state=0)),
    "epsilon": lambda: learned(EpsilonGreedy(4)),
    "contextual epsilon": lambda: learned(EpsilonGreedy(4, contextual=True, decay=0.1)),
    "linucb": lambda: learned(LinUCB(4, random_state=0)),
    "hybrid": lambda: learned(HybridLinUCB(4)),
    "featured": lambda: learned(HybridLinUCB(action_features=FEATURES)),
    "thompson": lambda: learned(LinearThompson(4)),
    "squarecb": lambda: learned(SquareCB(4)),
    "new": lambda: LinUCB(4),
    "argmax": lambda: ArgmaxRegressor(support="contexts").fit(Log(ACTIONS, REWARDS, CONTEXTS, np.full(N, 0.25))),
    "bandit": lambda: bandit(CONTEXTS),
    "sparse bandit": lambda: bandit(scipy.sparse.random_array((N, 8), density=0.5, format="csr", random_state=RNG)),
}


def use(policy: Any) -> None:
    """Use a policy, and check that its probabilities sum to 1."""
    width = policy._width if isinstance(policy, ArgmaxRegressor) else policy.n_features or WIDTH
    contexts: Any = np.random.default_rng(2).normal(size=(5, width))
    if isinstance(policy, CMTBandit) and policy._sparse:
        contexts = scipy.sparse.csr_array(contexts)
    if isinstance(policy, ArgmaxRegressor):
        known: Any = policy._known
    else:
        known = policy.actions
        if known.size == 0:
            policy.add_actions([0, 1])
            known = policy.actions
    if isinstance(policy, HybridLinUCB):
        contexts *= 1e-12  # their products with features that a file may hold are not too large
    for _ in range(2):
        probabilities = policy.probabilities(contexts)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
        assert (probabilities >= 0.0).all()
        chosen = policy.act(contexts)
        assert np.isin(chosen.actions, known).all()
        if isinstance(policy, ArgmaxRegressor):
            break
        if isinstance(policy, CMTBandit):
            policy.reward(list(policy._pending._decisions), np.linspace(0.0, 1.0, policy.n_pending))
        policy.learn(contexts, chosen.actions, np.linspace(0.0, 1.0, 5))
        policy.remove_actions(known[:1])
        known = policy.actions
        if known.size == 0:
            break


@needs_jit
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", POLICIES)
def test_forged_policies_are_refused_or_work(name: str, tmp_path: Path):
    apart = APART + ALIKE if name == "sparse bandit" else APART
    POLICIES[name]().save(tmp_path / "policy")
    check_forgeries((tmp_path / "policy").read_bytes(), load_policy, use, tmp_path / "forged", apart)
