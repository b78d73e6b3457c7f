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

NumPy and SciPy compute all sums in loops whose results do not depend on the number of threads.
"""

import numpy as np
import scipy.sparse

from .key_store import stored_rows
from .rows import Rows, as_matrix
from .state import NONE, State

_STEEPNESS = 20.0  # inverse temperature of the softmax
_LEAST_CHANCE = 1e-30  # lower bound on divisors; probabilities are lower only if scores differ by more than 3
_TINY = np.float32(1e-6)  # a moved key shorter than this has cancelled out, and keeps its old value


def moved_keys(
    state: State, rows: Rows, slots: np.ndarray, rewards: np.ndarray, rate: float
) -> tuple[np.ndarray, Rows]:
    """Return the slots of memories that rewards move by up to ``rate``, ascending, and their new unit-length keys."""
    there = slots != NONE
    most = np.where(there, rewards, 0.0).max(axis=1, initial=0.0)
    least = np.where(there, rewards, 1.0).min(axis=1, initial=1.0)
    some = np.flatnonzero(most > least)  # a row with equal rewards has no preference
    asked, there, worth = as_matrix(rows.take(some)), there[some], (most - least)[some, None]
    moved, which = np.unique(slots[some][there], return_inverse=True)
    at = np.zeros(there.shape, np.int64)
    at[there] = which.reshape(-1)
    keys = as_matrix(stored_rows(state, moved))
    chances = _chances(_scores(state, asked, keys, at), there)
    shares = chances * np.where(there, rewards[some] - least[some, None], 0.0)
    pulls = worth * (shares / np.maximum(shares.sum(axis=1, keepdims=True), _LEAST_CHANCE) - chances)
    row, column = np.nonzero(there)
    shape = moved.size, some.size
    steps = scipy.sparse.csr_array((pulls[row, column].astype(np.float32), (at[row, column], row)), shape) @ asked
    changed = keys + steps * (np.float32(rate) / np.maximum(_lengths(steps), np.float32(1.0)))
    lengths = _lengths(changed)
    changed = np.where(lengths > _TINY, changed / np.maximum(lengths, _TINY), keys)
    return moved, rows._replace(values=changed.reshape(-1), offsets=np.arange(moved.size + 1) * rows.n_features)


def _lengths(rows: np.ndarray) -> np.ndarray:
    """Return the Euclidean lengths of rows, shape (n, 1)."""
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]


def _scores(state: State, asked: np.ndarray, keys: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the score of key ``at[i, j]`` for row ``i``, shape (n, k)."""
    theta, scores = state.scorer.theta, np.empty(at.shape)
    weighted = asked if theta.size == 0 else asked * (np.float32(1.0) + theta)
    for column in range(at.shape[1]):
        scores[:, column] = np.einsum("ij,ij->i", weighted, keys[at[:, column]])
    return scores


def _chances(scores: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the softmax of each row of ``scores`` where ``there`` is true, and 0 elsewhere."""
    logits = np.where(there, _STEEPNESS * scores, -np.inf)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.finfo(np.float64).max))
    return chances / np.maximum(chances.sum(axis=1, keepdims=True), _LEAST_CHANCE)
