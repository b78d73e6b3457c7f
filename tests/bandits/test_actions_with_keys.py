"""Actions whose keys have the features of contexts, which the feedback model scores."""

import copy
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import keys_of
from sklearn.preprocessing import normalize

from cmt_numba.bandits import CMTBandit

N_TOPICS, N_EACH, WIDTH = 30, 4, 24


def topics(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return keys with their topics, and contexts with their topics. Contexts are only somewhat similar to keys."""
    rng = np.random.default_rng(seed)
    centers, habits = rng.normal(size=(2, N_TOPICS, WIDTH))
    of_keys, of_contexts = np.repeat(np.arange(N_TOPICS), N_EACH), rng.integers(0, N_TOPICS, 2000)
    keys = centers[of_keys] + 1.5 * rng.normal(size=(of_keys.size, WIDTH))
    contexts = (centers + habits)[of_contexts] + rng.normal(size=(of_contexts.size, WIDTH))
    return normalize(keys), of_keys, normalize(contexts), of_contexts


def in_form(X: np.ndarray, sparse: bool) -> Any:
    return scipy.sparse.csr_array(X) if sparse else X


@pytest.mark.parametrize(("sparse", "noise"), [(False, 0.0), (True, 0.1)])
def test_rewards_raise_the_reward_far_above_that_of_similarity(sparse: bool, noise: float):
    keys, of_keys, contexts, wanted = topics(0)
    rng, rewards = np.random.default_rng(1), np.zeros(wanted.size)
    bandit = CMTBandit(n_candidates=16, random_state=0).add_actions(np.arange(of_keys.size), in_form(keys, sparse))
    for first in range(0, wanted.size, 20):
        rows = slice(first, first + 20)
        decisions = bandit.act(in_form(contexts[rows], sparse))
        rewards[rows] = of_keys[decisions.actions] == wanted[rows]
        flipped = rng.random(20) < noise
        bandit.reward(decisions.ids, np.where(flipped, 1.0 - rewards[rows], rewards[rows]))
    static = of_keys[(contexts @ keys.T).argmax(axis=1)] == wanted
    assert static.mean() < 0.7
    assert rewards[:400].mean() > static[:400].mean() - 0.05
    assert rewards[-400:].mean() > 0.85


def test_what_was_learned_is_summarised():
    keys, of_keys, contexts, wanted = topics(0)
    bandit = CMTBandit(random_state=0).add_actions(np.arange(of_keys.size), keys)
    bandit.learn(contexts[:200], of_keys.searchsorted(wanted[:200]), np.arange(200) % 2)
    summary = bandit.learned()
    assert summary == copy.deepcopy(bandit).learned()
    assert summary is not None
    assert {part.name for part in summary.parts} >= {"similarity", "moved key"}
    assert CMTBandit(3, random_state=0).learned() is None


def test_an_action_without_a_key_gets_one_from_its_first_reward():
    keys, of_keys, contexts, wanted = topics(0)
    kept = np.flatnonzero(of_keys > 0)
    bandit = CMTBandit(n_candidates=16, random_state=0).add_actions(kept, keys[kept])
    bandit.add_actions(500)
    own = contexts[wanted == 0]
    decisions = [bandit.act(own[[0]]).actions[0] for _ in range(len(kept) + 1)]
    assert 500 not in decisions  # it has neither a key nor a reward yet
    bandit.learn(own[:5], np.full(5, 500), np.ones(5))
    assert len(keys_of(bandit)) == kept.size + 1
    assert np.mean(bandit.act(own[5:45]).actions == 500) > 0.8
    bandit.remove_actions(500)
    assert len(keys_of(bandit)) == kept.size
    assert not np.any(bandit.act(own[5:45]).actions == 500)


def test_late_actions_are_chosen_in_contexts_like_their_keys():
    keys, of_keys, contexts, wanted = topics(0)
    is_late = of_keys >= N_TOPICS - 5
    bandit = CMTBandit(n_candidates=16, random_state=0).add_actions(np.flatnonzero(~is_late), keys[~is_late])
    early = np.flatnonzero(wanted < N_TOPICS - 5)
    for rows in np.array_split(early[:1200], 60):
        decisions = bandit.act(contexts[rows])
        bandit.reward(decisions.ids, (of_keys[decisions.actions] == wanted[rows]).astype(float))
    before = np.mean(of_keys[bandit.act(contexts[early[1200:]]).actions] == wanted[early[1200:]])
    bandit.add_actions(np.flatnonzero(is_late), keys[is_late])
    after = np.mean(of_keys[bandit.act(contexts[early[1200:]]).actions] == wanted[early[1200:]])
    late = contexts[wanted >= N_TOPICS - 5]
    static = np.mean(is_late[(late @ keys.T).argmax(axis=1)])
    assert after > before - 0.05
    assert np.mean(is_late[bandit.act(late).actions]) > static - 0.15


def test_one_row_may_allow_more_actions_than_are_compared():
    keys, of_keys, contexts, _ = topics(0)
    rng = np.random.default_rng(2)
    further = normalize(rng.normal(size=(2500, WIDTH)))
    bandit = CMTBandit(n_candidates=4, random_state=0).add_actions(np.arange(2620), np.vstack([keys, further]))
    allowed = [np.arange(of_keys.size, 2620), np.arange(5)]
    chosen = bandit.act(contexts[:2], allowed).actions
    assert chosen[0] == of_keys.size + (further @ contexts[0]).argmax()
    assert chosen[1] == (keys[:5] @ contexts[1]).argmax()
