"""Kernels: evidence that rewards depend on the memories that receive them.

Users may reward all memories alike, or at random. The null hypothesis is that no reward can be predicted from its
memory. Two predictors are tested against it before each reward is learned: the score of the memory, and the mean of its
earlier rewards. Rewards and predictors count as differences: from the other memories of the row or, if the row has a
single reward, from recent means. The score of a single memory is compared with that of the second memory.

The test is a Bayes factor with a normal prior for each predictor (Robbins, 1970): if a predictor explains a sum of
squares of ``z**2`` noise variances of ``n`` rewards, and with the right sign, the logarithm of its factor is
``z**2 / 2 * n / (n + n0) - log(1 + n / n0) / 2``. Sums fade over the latest thousand rewards, so a signal that explains
less than about 1 % of the variance is as good as chance.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, kernel, release
from .._kernels import NONE, find_slot, new_probe, row_of, score
from .scorer import aim_weighted_probe

N_GROUPS = 1024  # memories whose ids are equal modulo this number share a mean reward
# Entries of ``Evidence.sums``. Those from MEANS on are recent means of single rewards.
COUNT, SQUARES, PRODUCTS, PREDICTOR_SQUARES, N_SINGLE, MEANS, N_SUMS = 0, 1, 2, 4, 6, 7, 10
_REWARD, _SCORE, _MEMORY = range(3)  # rows of the table of a row's memories

_PRIOR_ODDS = 1 / 20  # odds that rewards depend on memories
_EQUIVALENT = 10.0  # n0: weight of the prior, in rewards
_FADE = 1.0 - 1.0 / 1000
_RECENT = 100.0  # number of single rewards in recent means
_MAX_VARIANCE = 0.25  # of a reward in [0, 1]
_TINY = 1e-300  # sums may have faded to 0


class Evidence(NamedTuple):
    """Sums over rewards."""

    sums: np.ndarray  # float64 (N_SUMS,): entries COUNT to MEANS
    groups: np.ndarray  # float64 (N_GROUPS, 2): sum of rewards minus means, and their number


@inner
def _compare(table, n, sums, is_single):
    """Subtract from each row of the table its mean, or for a single reward the recent mean."""
    if is_single:
        sums[N_SINGLE] += 1.0
    for j in range(3):
        mean = 0.0
        if is_single:
            sums[MEANS + j] += (table[j, 0] - sums[MEANS + j]) / min(sums[N_SINGLE], _RECENT)
            mean = sums[MEANS + j]
        else:
            for i in range(n):
                mean += table[j, i] / n
        for i in range(n):
            table[j, i] -= mean


@inner
def _add(table, n, freedom, evidence, of_row):
    """Add the memories of a row to the sums."""
    sums, groups, fade = evidence.sums, evidence.groups, _FADE**freedom
    for j in range(N_SINGLE):
        sums[j] *= fade
    sums[COUNT] += freedom
    for i in range(n):
        advantage = table[_REWARD, i]
        sums[SQUARES] += advantage * advantage
        for j in range(2):
            sums[PRODUCTS + j] += advantage * table[_SCORE + j, i]
            sums[PREDICTOR_SQUARES + j] += table[_SCORE + j, i] * table[_SCORE + j, i]
        groups[of_row[i], 0] += advantage
        groups[of_row[i], 1] += 1.0


@inner
def _log_odds(sums):
    """Return the logarithm of the odds that rewards depend on memories."""
    n, explained = sums[COUNT], 0.0
    variance = (sums[SQUARES] + _MAX_VARIANCE) / (n + 1.0)
    for j in range(2):
        if sums[PRODUCTS + j] > 0.0:
            explained += sums[PRODUCTS + j] ** 2 / (sums[PREDICTOR_SQUARES + j] * variance + _TINY)
    factor = 0.5 * explained * n / (n + _EQUIVALENT) - np.log(1.0 + n / _EQUIVALENT)
    return factor + np.log(_PRIOR_ODDS)


@kernel
def weigh_rewards(view, evidence, feedback):
    """Add rewards to the evidence, and return the logarithm of the odds that rewards depend on memories.

    If rows have a single reward, their second hit is the memory to compare the score with.
    """
    forest = by_reference(view)
    keys, hits, rewards = forest.keys, feedback.hits, feedback.rewards
    n_rows, k = rewards.shape
    probe = new_probe(feedback.rows, 0, n_rows)
    table, of_row = empty((3, k), np.float64), empty(k, np.int64)
    for row in range(n_rows):
        aim_weighted_probe(probe, row_of(feedback.rows, row), forest.scorer)
        n = 0
        for i in range(k):
            slot = find_slot(keys, hits.ids[row, i])
            if slot != NONE:
                of_row[n] = hits.ids[row, i] % N_GROUPS
                group = evidence.groups[of_row[n]]
                table[_REWARD, n], table[_MEMORY, n] = rewards[row, i], group[0] / (group[1] + 1.0)
                table[_SCORE, n] = score(keys, probe, slot)
                n += 1
        if k == 1 and n == 1:
            second = find_slot(keys, hits.ids[row, 1]) if hits.ids.shape[1] > 1 else NONE
            if second != NONE:
                table[_SCORE, 0] -= np.float64(score(keys, probe, second))
            else:
                table[_SCORE, 0] = evidence.sums[MEANS + _SCORE]
        if n == k == 1 or n > 1:
            _compare(table, n, evidence.sums, k == 1)
            _add(table, n, max(1, n - 1), evidence, of_row)
    release((probe, table, of_row))
    return _log_odds(evidence.sums)
