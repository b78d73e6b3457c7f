"""Moving dense keys by rewards.

The best key for a memory may differ from the one that it was inserted with. So rewards for the memories found for a
row move their keys: those with high rewards towards the row, the others away from it (relevance feedback on stored
vectors: Brauen, 1971, in The SMART Retrieval System; learning vector quantization: Kohonen, 1995).

With ``p`` the softmax of the scores of a row's memories, and ``r`` their rewards minus the lowest one, each key
takes a step of ``p * r / sum(p * r) - p`` times the row: the gradient of ``log(sum(p * r))`` by its score. For rewards
of 0 and 1 this is neighbourhood components analysis (Goldberger et al., 2005). Nothing moves if the highest score is
far ahead and has the highest reward. A key moves by at most the rate, whatever the number of rows in a batch.

Sums are computed by loops of NumPy and SciPy that do not depend on threads.
"""

import numpy as np
import scipy.sparse

from .key_store import stored_rows
from .rows import Rows, as_matrix
from .state import NONE, State

_STEEPNESS = 20.0  # steepness of the softmax, per unit of the score
_LEAST_CHANCE = 1e-30  # reached only if scores differ by more than 3, which is rare
_TINY = np.float32(1e-6)  # below the length of any moved key, unless it cancels out


def moved_keys(
    state: State, rows: Rows, slots: np.ndarray, rewards: np.ndarray, rate: float
) -> tuple[np.ndarray, Rows]:
    """Return the memories that move, and their new keys of unit length.

    Parameters
    ----------
    state : State
        The state, with dense keys.
    rows : Rows
        The rows of the query.
    slots : ndarray of int64, shape (n, k)
        The memories found for each, NONE where there is none.
    rewards : ndarray of float32, shape (n, k)
        Their rewards.
    rate : float
        The longest step of a key, whose length is 1.

    Returns
    -------
    tuple of (ndarray of int64, Rows)
        Slots in ascending order, and their keys.
    """
    there = slots != NONE
    most = np.where(there, rewards, 0.0).max(axis=1, initial=0.0)
    least = np.where(there, rewards, 1.0).min(axis=1, initial=1.0)
    some = np.flatnonzero(most > least)  # other rows do not compare memories
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
    """Return the lengths of rows, as a column."""
    lengths: np.ndarray = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return lengths


def _scores(state: State, asked: np.ndarray, keys: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the scores of each row's memories, whose keys are at the positions ``at``."""
    theta, scores = state.scorer.theta, np.empty(at.shape)
    weighted = asked if theta.size == 0 else asked * (np.float32(1.0) + theta)
    for column in range(at.shape[1]):
        scores[:, column] = np.einsum("ij,ij->i", weighted, keys[at[:, column]])
    return scores


def _chances(scores: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the softmax of the scores of each row."""
    logits = np.where(there, _STEEPNESS * scores, -np.inf)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.finfo(np.float64).max))
    shares: np.ndarray = chances / np.maximum(chances.sum(axis=1, keepdims=True), _LEAST_CHANCE)
    return shares
