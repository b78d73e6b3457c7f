"""Tests of CMTBandit: candidates, propensities, delayed rewards, learning, files, and validation."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from conftest import text_like
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import bandits_checks, by_context_of, compared_actions, inner_state, keys_of, rooms_of, rows_of

from cmt_numba.bandits import CMTBandit

N_ACTIONS, N_FEATURES = 30, 60


def keys(sparse: bool = True, n: int = N_ACTIONS) -> Any:
    rows = text_like(n, N_FEATURES, 8, seed=5)
    rows = scipy.sparse.csr_array(rows.multiply(1 / scipy.sparse.linalg.norm(rows, axis=1)[:, None]).astype(np.float32))
    return rows if sparse else rows.toarray()


def bandit_of(sparse: bool = True, with_keys: bool = True, **options: Any) -> CMTBandit:
    bandit = CMTBandit(**{"n_candidates": 4, "n_bits": 12, "n_trees": 2, "random_state": 0} | options)
    return bandit.add_actions(np.arange(N_ACTIONS), keys(sparse) if with_keys else None)


def run(bandit: CMTBandit, n_rounds: int, seed: int = 0, sparse: bool = True, n_rows: int = 3) -> list[Any]:
    """Act on noisy keys, reward the action whose key it is, and return the choices."""
    rng, chosen = np.random.default_rng(seed), []
    for _ in range(n_rounds):
        wanted = rng.integers(0, N_ACTIONS, n_rows)
        X = keys()[wanted].toarray() + 0.2 * (rng.random((n_rows, N_FEATURES)) < 0.05)
        decisions = bandit.act(scipy.sparse.csr_array(X) if sparse else X)
        right = decisions.actions == wanted
        bandit.reward(decisions.ids, right.astype(float))
        chosen.append((decisions.actions.tolist(), decisions.propensities.tolist(), right.mean()))
    return chosen


@pytest.fixture(scope="module")
def experienced() -> CMTBandit:
    bandit = bandit_of(epsilon=0.1, exploration="thompson", beta=1.0)
    run(bandit, 30)
    return bandit


@pytest.fixture(scope="module")
def without_keys() -> CMTBandit:
    bandit = bandit_of(with_keys=False, epsilon=0.1, exploration="thompson")
    run(bandit, 60)
    return bandit


# Candidates


@pytest.mark.parametrize("sparse", [True, False])
def test_candidates_are_the_actions_with_the_most_similar_keys(sparse: bool):
    bandit = CMTBandit(n_candidates=8, n_bits=10, random_state=0).add_actions(np.arange(200), keys(sparse, 200))
    similarities = keys(n=200).toarray()[:12] @ keys(n=200).toarray().T
    found = compared_actions(bandit, rows_of(bandit, keys(sparse, 200)[:12]), None)
    for i in range(12):
        own = found.actions[slice(*found.offsets[i : i + 2])]
        assert own.size == 8
        np.testing.assert_allclose(np.sort(similarities[i, own]), np.sort(similarities[i])[-8:], atol=1e-6)


def test_rewarded_contexts_propose_actions_without_keys(without_keys: CMTBandit):
    bandit = copy.deepcopy(without_keys)
    rows = rows_of(bandit, keys()[:12])
    found = compared_actions(bandit, rows, None)
    by_context, _ = by_context_of(bandit).propose(rows, 2, None)
    for i in range(12):
        tried = bandit.actions[(bandit._turn + np.arange(4)) % N_ACTIONS].tolist()
        rewarded = by_context_of(bandit).actions_of(by_context.hits[i]).tolist()
        assert found.actions[slice(*found.offsets[i : i + 2])].tolist() == sorted({*tried, *rewarded} - {-1})


def test_all_actions_offered_are_candidates(experienced: CMTBandit):
    choices = bandits_checks.check_choices([np.arange(i, i + 18) for i in range(12)], 12)
    found = compared_actions(experienced, rows_of(experienced, keys()[:12]), choices)
    np.testing.assert_array_equal(found.actions, choices.actions)


def test_keys_added_one_by_one_are_found():
    whole, grown = (CMTBandit(n_candidates=4, n_bits=10, random_state=0) for _ in range(2))
    whole.add_actions(np.arange(60), keys(n=60))
    for i in range(60):
        grown.add_actions(i, keys(n=60)[[i]])
        if i > 30:
            grown.probabilities(keys(n=60)[:1])
    np.testing.assert_array_equal(grown.probabilities(keys(n=60)), whole.probabilities(keys(n=60)))


def test_a_reward_of_zero_lowers_the_action():
    bandit, x = bandit_of(), keys()[[4]]
    before = compared_actions(bandit, rows_of(bandit, x), None)
    assert bandit.act(x).actions.tolist() == [4]
    for _ in range(4):
        bandit.learn(x, [4], [0.0])
    after = compared_actions(bandit, rows_of(bandit, x), None)
    assert after.means[after.actions == 4] < 0.5 * before.means[before.actions == 4]


def test_an_action_that_earns_less_than_others_is_replaced():
    bandit = bandit_of()
    bandit.learn(keys()[[4]], [4], [0.0])
    for _ in range(8):
        bandit.learn(keys()[:12], np.arange(12), np.arange(12) != 4)
    learned = bandit.learned()
    assert learned is not None
    assert learned.share > 0.5
    assert bandit.act(keys()[[4]]).actions.tolist() != [4]


def test_rewards_that_are_always_zero_change_no_choice(rng: np.random.Generator):
    bandit = bandit_of(beta=0.0)
    X = keys()[rng.integers(0, N_ACTIONS, 400)] + 0.7 * keys()[rng.integers(0, N_ACTIONS, 400)]
    first = bandit.act(X).actions
    bandit.learn(X, first, np.zeros(400))
    assert np.mean(bandit.act(X).actions == first) > 0.95  # rounding may exchange equally similar keys


@pytest.mark.parametrize("sparse", [True, False])
def test_keys_may_have_features_of_their_own(sparse: bool):
    rng = np.random.default_rng(0)
    users, items = (np.eye(n)[rng.integers(0, n, m)] for n, m in ((4, 1200), (3, 40)))
    likes = np.array([0, 1, 2, 0])  # which kind of item a kind of user wants
    X, Y = (scipy.sparse.csr_array(rows) if sparse else rows for rows in (users, items))
    bandit = CMTBandit(n_candidates=4, n_bits=12, random_state=0).add_actions(np.arange(40), Y)
    rewards = np.zeros(1200)
    for i in range(0, 1200, 10):
        span = slice(i, i + 10)
        decisions = bandit.act(X[span])
        rewards[span] = items[decisions.actions, likes[users[span].argmax(axis=1)]]
        bandit.reward(decisions.ids, rewards[span])
    assert rewards[-600:].mean() > 0.9


@pytest.mark.parametrize("name", ["experienced", "without_keys"])
def test_rows_one_by_one_have_the_probabilities_of_a_batch(name: str, request: pytest.FixtureRequest):
    bandit = copy.deepcopy(request.getfixturevalue(name))
    whole = bandit.probabilities(keys())
    for _ in range(2):
        np.testing.assert_array_equal(
            np.concatenate([bandit.probabilities(keys()[[i]]) for i in range(12)]), whole[:12]
        )
    assert len(rooms_of(bandit)) == (name == "without_keys")
    assert not any(room.any() for room in rooms_of(bandit))


# Propensities


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_probabilities_sum_to_one_over_the_actions_allowed(experienced: CMTBandit, seed: int):
    rng = np.random.default_rng(seed)
    bandit = copy.deepcopy(experienced)
    n = int(rng.integers(1, 6))
    X = keys()[rng.integers(0, N_ACTIONS, n)]
    mask = rng.random((n, N_ACTIONS)) < rng.choice([0.05, 0.2, 0.9])
    mask[np.arange(n), rng.integers(0, N_ACTIONS, n)] = True
    lists = [np.flatnonzero(row) for row in mask]
    some = rng.permutation(N_ACTIONS)[: int(rng.integers(1, N_ACTIONS + 1))]
    for actions in (None, mask, lists, some):
        probabilities = bandit.probabilities(X, actions)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
        assert np.all(probabilities >= 0)
        chosen, propensities = copy.deepcopy(bandit).act(X, actions)
        if actions is mask:
            assert np.all(mask[np.arange(n), chosen])
            assert np.all(probabilities[~mask] == 0)
        if actions is None or actions is mask:
            np.testing.assert_array_equal(propensities, probabilities[np.arange(n), chosen])
        elif actions is some:
            columns = np.argmax(some[None, :] == chosen[:, None], axis=1)
            np.testing.assert_array_equal(propensities, probabilities[np.arange(n), columns])
    listed = bandit.probabilities(X, lists)  # which says the same as the mask
    filled = np.arange(listed.shape[1]) < np.array([len(row) for row in lists])[:, None]
    np.testing.assert_array_equal(listed[filled], bandit.probabilities(X, mask)[mask])


def test_actions_are_chosen_as_often_as_their_propensities_say(experienced: CMTBandit):
    x = scipy.sparse.csr_array(keys()[:12].sum(axis=0)[None])  # many actions suit it
    X = scipy.sparse.csr_array(scipy.sparse.vstack([x] * 1500))
    probabilities = experienced.probabilities(x)[0]
    assert np.count_nonzero(probabilities > 0.02) > 1
    actions = copy.deepcopy(experienced).act(X).actions
    np.testing.assert_allclose(np.bincount(actions, minlength=N_ACTIONS) / 1500, probabilities, atol=0.04)


def test_looking_at_probabilities_changes_nothing(experienced: CMTBandit):
    before = pickle.dumps(experienced)
    experienced.probabilities(keys())
    assert pickle.dumps(experienced) == before


# Learning


@pytest.mark.parametrize(("sparse", "exploration"), [(True, "ucb"), (False, "thompson")])
def test_it_learns_with_keys_and_without(sparse: bool, exploration: str):
    with_keys = run(bandit_of(sparse, exploration=exploration), 60, sparse=sparse)
    assert np.mean([share for _, _, share in with_keys[-20:]]) > (0.8 if exploration == "ucb" else 0.5)
    without = run(bandit_of(sparse, with_keys=False, exploration=exploration), 250, sparse=sparse)
    assert np.mean([share for _, _, share in without[:20]]) < 0.15
    assert np.mean([share for _, _, share in without[-100:]]) > 0.25


def test_rewards_may_come_late_and_in_any_order():
    now, late = bandit_of(), bandit_of()
    X, rewards = keys(), np.random.default_rng(0).random(N_ACTIONS)
    decisions, same = now.act(X), late.act(X)
    assert late.n_pending == N_ACTIONS
    now.reward(decisions.ids, rewards)
    for _ in range(3):
        late.act(X[:5])  # other decisions meanwhile
    late.reward(same.ids, rewards)
    assert (now.n_pending, late.n_pending) == (0, 15)
    assert now.n_rewards == late.n_rewards == N_ACTIONS
    np.testing.assert_array_equal(inner_state(now).matrix, inner_state(late).matrix)
    np.testing.assert_array_equal(inner_state(now).cells, inner_state(late).cells)
    order = np.random.default_rng(1).permutation(10)
    shuffled = late.act(X[:10])
    late.reward(shuffled.ids[order], rewards[order])


def test_learning_from_a_log_is_as_learning_from_decisions():
    decided, logged = bandit_of(), bandit_of()
    X, rewards = keys(), np.random.default_rng(0).random(N_ACTIONS)
    decisions = decided.act(X)
    decided.reward(decisions.ids, rewards)
    logged.learn(X, decisions.actions, rewards, decisions.propensities)
    np.testing.assert_array_equal(inner_state(logged).matrix, inner_state(decided).matrix)
    np.testing.assert_array_equal(inner_state(logged).cells, inner_state(decided).cells)


def test_a_rewarded_context_proposes_its_action():
    bandit = CMTBandit(n_candidates=4, n_tried=1, n_trees=1, n_bits=10, random_state=0).add_actions(np.arange(5000))
    x = keys()[[0]]
    bandit.learn(x, [4321], [1.0])
    candidates = compared_actions(bandit, rows_of(bandit, x), None)
    assert 4321 in candidates.actions
    assert candidates.actions.size <= 5
    assert bandit.act(x).actions.tolist() == [4321]


def test_all_actions_are_tried_in_turn():
    bandit = CMTBandit(n_candidates=2, n_tried=3, n_bits=10, random_state=0).add_actions(np.arange(100, 112))
    seen = set()
    for _ in range(4):
        seen |= set(compared_actions(bandit, rows_of(bandit, keys()[:1]), None).actions.tolist())
        bandit.act(keys()[:1])
    assert seen == set(range(100, 112))


def test_memory_is_bounded():
    bandit = bandit_of(with_keys=False, max_memories=20, max_pending=10)
    X = np.random.default_rng(0).normal(size=(60, N_FEATURES)) ** 2
    bandit.learn(scipy.sparse.csr_array(X), np.arange(60) % N_ACTIONS, np.ones(60))
    by_context_of(bandit).settle()
    assert by_context_of(bandit).tree.n_memories == 20
    for i in range(25):
        bandit.learn(scipy.sparse.csr_array(X[i : i + 1][:, ::-1]), [i % N_ACTIONS], [1.0])
    assert by_context_of(bandit)._ids.size <= 41
    ids = bandit.act(scipy.sparse.csr_array(X[:30])).ids
    assert bandit.n_pending == 10
    bandit.reward(ids[20:], np.ones(10))
    with pytest.raises(KeyError, match=f"but {ids[19]}"):
        bandit.reward(ids[19], [1.0])


# Actions that come and go


def test_removed_actions_are_never_chosen_again(experienced: CMTBandit):
    bandit = copy.deepcopy(experienced)
    decisions = bandit.act(keys())
    gone = np.unique(decisions.actions)[:5]
    bandit.remove_actions(gone)
    assert not np.isin(bandit.act(keys()).actions, gone).any()
    assert bandit.probabilities(keys()).shape == (N_ACTIONS, N_ACTIONS - 5)
    assert len(keys_of(bandit)) == N_ACTIONS - 5
    with pytest.raises(KeyError, match="await a reward"):
        bandit.reward(decisions.ids[decisions.actions == gone[0]], np.ones(np.sum(decisions.actions == gone[0])))
    bandit.add_actions(gone, keys()[gone])
    np.testing.assert_allclose(bandit.probabilities(keys()).sum(axis=1), 1.0)


def test_actions_may_be_new():
    bandit = CMTBandit(n_bits=10, random_state=0)
    decisions = bandit.act(np.eye(3), [[7, 9], [8, -1], [1, 2]])
    assert decisions.actions[1] == 8
    bandit.reward(decisions.ids, [1.0, 0.0, 0.5])
    assert set(decisions.actions.tolist()) == set(bandit.actions.tolist())
    actions, propensities = decisions
    assert actions is decisions.actions
    assert propensities is decisions.propensities
    copied = pickle.loads(pickle.dumps(decisions))
    np.testing.assert_array_equal(copied.ids, decisions.ids)


# Bad input


def test_bad_input_is_refused_before_anything_has_changed(experienced: CMTBandit):
    bandit = copy.deepcopy(experienced)
    ids = bandit.act(keys()[:2]).ids
    before, x = pickle.dumps(bandit), keys()[:1]
    for call, message in (
        (lambda: bandit.act(np.ones((1, 3))), "60 features"),
        (lambda: bandit.act(np.full((1, N_FEATURES), np.nan)), "finite"),
        (lambda: bandit.act(x, [[]]), "row 0 has none|at least one"),
        (lambda: bandit.act(x, [1, 1]), "distinct"),
        (lambda: bandit.act(), "X must"),
        (lambda: bandit.reward(ids, [1.0]), "one entry for each"),
        (lambda: bandit.reward(ids, [1.0, 1.5]), "between 0 and 1"),
        (lambda: bandit.reward([ids[0], ids[0]], [1.0, 1.0]), "distinct"),
        (lambda: bandit.reward([0.5], [1.0]), "integers"),
        (lambda: bandit.reward([10**9], [1.0]), "await a reward"),
        (lambda: bandit.learn(x, [1], [-0.5]), "between 0 and 1"),
        (lambda: bandit.learn(x, [1, 2], [0.5]), "one entry for each"),
        (lambda: bandit.learn(x, [99], [0.5], [0.0]), "above 0"),
        (lambda: bandit.add_actions(3), "new, but 3"),
        (lambda: bandit.add_actions([50, 51], x), "one entry for each"),
        (lambda: bandit.remove_actions([1, 77]), "known, got 77"),
    ):
        with pytest.raises((KeyError, TypeError, ValueError), match=message):
            call()
        assert pickle.dumps(bandit) == before
    with pytest.raises(ValueError, match="no actions are known"):
        CMTBandit(n_bits=4).act(np.ones((1, 2)))
    with pytest.raises(ValueError, match="exploration"):
        CMTBandit(exploration="guess")
