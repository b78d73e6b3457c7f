"""Updates of dense keys from rewards.

The key under which a memory was inserted may not be the best one for finding it. Rewards for the memories found for a
row therefore move their keys: keys with high rewards move towards the row, and keys with low rewards away from it
(relevance feedback on stored vectors: Brauen, 1971, in The SMART Retrieval System; learning vector quantization:
Kohonen, 1995).

Let ``p`` be the softmax of the scores of a row's memories, and ``r`` their rewards minus the lowest reward. Each key
moves by ``p * r / sum(p * r) - p`` times the row. This step is the gradient of ``log(sum(p * r))`` with respect to the
key's score. With rewards of 0 and 1 this is neighbourhood components analysis (Goldberger et al., 2005). No key moves
if one memory has both the highest reward and by far the highest score. The step of a key is at most the learning rate,
regardless of the number of rows.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_fastmath, kernel, release
from .constants import NONE
from .rows import dot, row_of

_ROWS_TOGETHER = 16  # number of rows whose moves of keys are applied together
_STEEPNESS = 20.0  # inverse temperature of the softmax
_MIN_CHANCE = 1e-30  # lower bound on divisors; probabilities are lower only if scores differ by more than 3
_TINY = np.float32(1e-6)  # a moved key shorter than this has cancelled out, and keeps its old value


class _Steps(NamedTuple):
    """The steps of the keys that a few rows move."""

    found: np.ndarray  # int64: positions of the memories in ``KeyMoves.slots``
    place: np.ndarray  # int64 (memories,): position of each memory in ``found``, or NONE
    values: np.ndarray  # float32 (room for ``found``, n_features): the step of each key
    weighted: np.ndarray  # float32 (n_features,): the current row times the weights of the scorer
    pulls: np.ndarray  # float64 (k,): the factor of the row in each key's step


class KeyMoves(NamedTuple):
    """Memories whose keys rows may move."""

    slots: np.ndarray  # int64: slots of the distinct memories
    of_rows: np.ndarray  # int64 (rows, k): position in ``slots`` of each row's memories, or NONE
    rewards: np.ndarray  # float32 (rows, k): the reward of each of these


def moves_of(slots: np.ndarray, rewards: np.ndarray) -> KeyMoves:
    """Return the moves of the memories in some slots, shape (rows, k), where NONE stands for no memory."""
    there = slots != NONE
    distinct, at = np.unique(slots[there], return_inverse=True)
    of_rows = np.full(slots.shape, NONE, np.int64)
    of_rows[there] = at.reshape(-1)
    return KeyMoves(distinct, of_rows, rewards)


@inner
def _find_pulls(keys, moves, row, least, most, weighted, pulls):
    """Write the multiple of a row by which to move each of its memories' keys."""
    d, best, total, rewarded = weighted.size, -np.inf, 0.0, 0.0
    for j in range(pulls.size):
        pulls[j] = -np.inf
        if moves.of_rows[row, j] != NONE:
            start = moves.slots[moves.of_rows[row, j]] * d
            pulls[j] = _STEEPNESS * np.float64(dot(weighted, 0, keys.values, start, d))
            best = max(best, pulls[j])
    for j in range(pulls.size):
        pulls[j] = np.exp(pulls[j] - best)
        total += pulls[j]
    for j in range(pulls.size):
        pulls[j] /= total
        if moves.of_rows[row, j] != NONE:
            rewarded += pulls[j] * np.float64(moves.rewards[row, j] - least)
    for j in range(pulls.size):
        if moves.of_rows[row, j] != NONE:
            share = pulls[j] * np.float64(moves.rewards[row, j] - least) / max(rewarded, _MIN_CHANCE)
            pulls[j] = np.float64(most - least) * (share - pulls[j])


@inner
def _add_steps(keys, theta, moves, row, x, steps, n):
    """Add the steps of a row to those of ``n`` keys; return the new number of keys."""
    most, least = np.float32(0.0), np.float32(1.0)
    for j in range(steps.pulls.size):
        if moves.of_rows[row, j] != NONE:
            most, least = max(most, moves.rewards[row, j]), min(least, moves.rewards[row, j])
    if most <= least:  # a row with equal rewards has no preference
        return n
    for i in range(steps.weighted.size):
        weight = np.float32(1.0) + theta[i] if theta.size > 0 else np.float32(1.0)
        steps.weighted[i] = x.values[x.a + i] * weight
    _find_pulls(keys, moves, row, least, most, steps.weighted, steps.pulls)
    for j in range(steps.pulls.size):
        memory = moves.of_rows[row, j]
        if memory != NONE:
            if steps.place[memory] == NONE:
                steps.place[memory], steps.found[n] = n, memory
                steps.values[n] = np.float32(0.0)
                n += 1
            step, pull = steps.values[steps.place[memory]], np.float32(steps.pulls[j])
            for i in range(step.size):
                step[i] += pull * x.values[x.a + i]
    return n


@inner_fastmath
def _take_step(keys, slot, step, rate):
    """Add ``rate`` times a step of length 1 or less to a key, and scale the key to unit length.

    A key of zeros does not change, because scaling would lengthen the step.
    """
    d = step.size
    key = keys.values[slot * d : (slot + 1) * d]
    squares, of_key = np.float32(0.0), np.float32(0.0)
    for i in range(d):
        squares += step[i] * step[i]
        of_key += key[i] * key[i]
    factor, squares = rate / max(np.sqrt(squares), np.float32(1.0)), np.float32(0.0)
    for i in range(d):
        step[i] = key[i] + factor * step[i]
        squares += step[i] * step[i]
    length = np.sqrt(squares)
    if length > _TINY and of_key > np.float32(0.0):
        for i in range(d):
            key[i] = step[i] / length


@kernel
def move_keys(view, rows, moves, rate):
    """Move dense keys by up to ``rate`` towards and away from rows. Sixteen rows move keys together."""
    forest = by_reference(view)
    keys, n_rows = forest.keys, rows.offsets.size - 1
    most = min(_ROWS_TOGETHER * moves.of_rows.shape[1], moves.slots.size)
    steps = _Steps(
        empty(most, np.int64),
        empty(moves.slots.size, np.int64),
        empty((most, rows.n_features), np.float32),
        empty(rows.n_features, np.float32),
        empty(moves.of_rows.shape[1], np.float64),
    )
    steps.place[:] = NONE
    for first in range(0, n_rows, _ROWS_TOGETHER):
        n = 0
        for row in range(first, min(first + _ROWS_TOGETHER, n_rows)):
            n = _add_steps(keys, forest.scorer.theta, moves, row, row_of(rows, row), steps, n)
        for j in range(n):
            _take_step(keys, moves.slots[steps.found[j]], steps.values[j], np.float32(rate))
            steps.place[steps.found[j]] = NONE
    release(steps)
