"""The reward model of CMTBandit agrees with a plain implementation of its formulas."""

import numpy as np
import scipy.sparse
from internals import bandits_reward_kernels, compared_actions, rows_of

from cmt_numba.bandits import CMTBandit

N_ACTIONS, N_FEATURES, RIDGE = 5, 6, 0.1


class PlainModel:
    """The model without a hash table, and without keys."""

    def __init__(self) -> None:
        shape = N_ACTIONS, N_FEATURES
        self.value, self.value_precision = np.zeros(shape), np.full(shape, RIDGE)
        self.choice, self.choice_precision = np.zeros(shape), np.full(shape, RIDGE)
        self.counts, self.sums = np.zeros(N_ACTIONS), np.zeros(N_ACTIONS)
        self.matrix, self.target = (
            np.eye(bandits_reward_kernels.N_PREDICTIONS) * bandits_reward_kernels.STACK_RIDGE,
            np.zeros(bandits_reward_kernels.N_PREDICTIONS),
        )

    def predict(self, x: np.ndarray) -> np.ndarray:
        predictions = np.zeros((N_ACTIONS, bandits_reward_kernels.N_PREDICTIONS))
        predictions[:, bandits_reward_kernels.EXPECTED_VALUE] = self.value @ x
        predictions[:, bandits_reward_kernels.MEAN] = self.sums / (1 + self.counts)
        predictions[:, bandits_reward_kernels.NOVELTY] = 1 / np.sqrt(1 + self.counts)
        predictions[:, bandits_reward_kernels.CONSTANT] = 1
        logits = self.choice @ x
        predictions[:, bandits_reward_kernels.PROBABILITY] = (
            np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        )
        return predictions

    @property
    def weights(self) -> np.ndarray:
        weights: np.ndarray = bandits_reward_kernels.PRIOR + np.linalg.solve(self.matrix, self.target)
        return weights

    def means(self, X: np.ndarray) -> np.ndarray:
        return np.concatenate([self.predict(x) @ self.weights for x in X])

    def learn(self, x: np.ndarray, action: int, reward: float) -> None:
        predictions, weights = self.predict(x), self.weights
        own, p = predictions[action], predictions[:, bandits_reward_kernels.PROBABILITY]
        others = np.delete(weights * own, bandits_reward_kernels.EXPECTED_VALUE).sum()
        self.matrix += np.outer(own, own)
        self.target += (reward - bandits_reward_kernels.PRIOR @ own) * own
        variance = x / self.value_precision[action] @ x
        step = (reward - others - own[bandits_reward_kernels.EXPECTED_VALUE]) / (1 + variance)
        self.value[action] += step * x / self.value_precision[action]
        self.value_precision[action] += x * x
        right, wrong = -p, p * p[action] / max(1 - p[action], 0.02)
        right[action], wrong[action] = 1 - p[action], -p[action]
        gradients = reward * right + (1 - reward) * wrong
        for a in np.flatnonzero(np.abs(gradients) >= 1e-3):
            curvature = max(p[a] * (1 - p[a]), 1e-4) * (1.0 if a == action else reward)
            step = gradients[a] / (1 + curvature * (x / self.choice_precision[a] @ x))
            self.choice[a] += step * x / self.choice_precision[a]
            self.choice_precision[a] += curvature * x * x
        self.counts[action] += 1
        self.sums[action] += reward


def unit_rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.random((n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.6)
    rows[:, 0] += 0.1
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_sparse_rows_are_learned_as_by_a_plain_implementation():
    X, rng = unit_rows(60, 1), np.random.default_rng(2)
    bandit, plain = CMTBandit(N_ACTIONS, n_bits=16, random_state=0), PlainModel()
    actions, rewards = rng.integers(0, N_ACTIONS, 60), rng.random(60).round()
    sparse = scipy.sparse.csr_array(X)
    bandit.learn(sparse, actions, rewards)
    for x, action, reward in zip(X.astype(float), actions, rewards, strict=True):
        plain.learn(x, action, reward)
    found = compared_actions(bandit, rows_of(bandit, sparse), None)
    np.testing.assert_allclose(found.means, plain.means(X.astype(float)), atol=1e-4)


def test_dense_contexts_are_learned_as_sparse_ones():
    X, rng = unit_rows(40, 1), np.random.default_rng(2)
    actions, rewards = rng.integers(0, N_ACTIONS, 40), rng.random(40)
    means = []
    for rows in (X, scipy.sparse.csr_array(X)):
        bandit = CMTBandit(N_ACTIONS, n_bits=16, random_state=0).learn(rows, actions, rewards)
        means.append(compared_actions(bandit, rows_of(bandit, rows), None).means)
    np.testing.assert_allclose(*means, atol=1e-5)
