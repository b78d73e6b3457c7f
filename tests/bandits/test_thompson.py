"""Under Thompson sampling, the probability of an action is that of having the largest score."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr

from cmt_numba.bandits import LinearThompson


def policy_with(means, n_rewards, scale=1.0):
    """Return a policy, and the posterior means and deviations in the context [1.0]."""
    policy = LinearThompson(len(means), scale=scale, random_state=0)
    for action, (mean, n) in enumerate(zip(means, n_rewards, strict=True)):
        if n > 0:
            policy.learn(np.ones((n, 1)), np.full(n, action), np.full(n, mean))
    precisions = 1.0 + np.array(n_rewards)
    return policy, np.array(means) * n_rewards / precisions, scale / np.sqrt(precisions)


def probabilities_of(means, deviations):
    """Compute the probabilities by adaptive quadrature."""
    answer = []
    for i, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
        others = np.arange(means.size) != i

        def integrand(x, mean=mean, deviation=deviation, others=others):
            below = log_ndtr((x - means[others]) / deviations[others]).sum()
            return np.exp(below - 0.5 * ((x - mean) / deviation) ** 2) / deviation / np.sqrt(2.0 * np.pi)

        edges = np.sort(np.concatenate([means + j * deviations for j in (-8, -4, -2, 0, 2, 4, 8)]))
        edges = edges[(edges >= mean - 9 * deviation) & (edges <= mean + 9 * deviation)]
        answer.append(sum(quad(integrand, a, b)[0] for a, b in pairwise(edges)))
    return np.array(answer)


@pytest.mark.parametrize("n_rewards", [(1, 1), (0, 3000), (3000, 10), (100_000, 0)])
@pytest.mark.parametrize("gap", [0.0, 0.02, 0.5])
def test_two_actions_have_the_exact_probabilities(n_rewards, gap):
    policy, means, deviations = policy_with((0.5, 0.5 + gap), n_rewards)
    first = ndtr((means[0] - means[1]) / np.hypot(*deviations))
    np.testing.assert_allclose(policy.probabilities([[1.0]]), [[first, 1.0 - first]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_rewards", [(1000, 1000, 0), (100_000, 90_000, 0), (5, 50_000, 700, 0, 20), (0, 0, 0)])
def test_deviations_of_very_different_size_keep_their_probabilities(n_rewards):
    means = (0.5, 0.51, 0.49, 0.3, 0.7)[: len(n_rewards)]
    policy, means, deviations = policy_with(means, n_rewards)
    found = policy.probabilities([[1.0]])[0]
    np.testing.assert_allclose(found, probabilities_of(means, deviations), rtol=0, atol=1e-8)


def test_many_equal_actions_share_the_probability():
    found = LinearThompson(3000).probabilities([[1.0, -2.0]])[0]
    np.testing.assert_allclose(found, 1.0 / 3000, rtol=1e-9)


@pytest.mark.parametrize("size", [1e-12, 1e9])
def test_the_unit_of_rewards_changes_nothing(size):
    rewards, contexts = np.array([0.4, 0.5, 0.6]), np.ones((3, 1))
    plain = LinearThompson(4, scale=0.3).learn(contexts, [0, 1, 2], rewards)
    other = LinearThompson(4, scale=0.3 * size).learn(contexts, [0, 1, 2], rewards * size)
    np.testing.assert_allclose(other.probabilities([[1.0]]), plain.probabilities([[1.0]]), rtol=1e-6)


def test_without_deviations_the_best_actions_share_the_probability():
    policy = LinearThompson(4, scale=0.0).learn(np.ones((3, 1)), [0, 1, 2], [0.2, 0.7, 0.7])
    np.testing.assert_allclose(policy.probabilities([[1.0]]), [[0.0, 0.5, 0.5, 0.0]], rtol=0, atol=1e-9)
