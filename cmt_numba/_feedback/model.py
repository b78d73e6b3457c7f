"""``FeedbackModel``: what a memory learned from rewards, independent of how its vectors are stored and searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from .._forest import NONE, InvariantError, require, resized, top_k
from .learning import learn_rewards
from .parts import map_queries, score_candidates
from .state import (
    ALL_REWARDED,
    ALL_SHOWN,
    CONSTANT,
    DIAGONAL,
    GAIN,
    MAPPED,
    N_PARTS,
    OFFSET_SQUARES,
    PART_NAMES,
    SHOWN,
    SIMILAR,
    SQUARED_GAIN,
    TRIALS,
    Learned,
    first_precision,
    new_state,
)

WIDEST = 1024
"""Maximum width of queries and keys in the model. Wider and sparse ones are hashed to this width."""

_MOST_CELLS = 1 << 24  # maximum number of numbers in past queries
_SMALLEST = 64
_DEVIATIONS = 2.0  # a model that is worse than static ranking by this number of standard errors is not used
_LARGEST = 1e8  # limit of the absolute values in a file
_NOT_NEGATIVE = ("figures", "n_past", "past_rewards")
_COUNTS = [ALL_SHOWN, ALL_REWARDED, OFFSET_SQUARES]
_ROW_ARRAYS = ("memories", "figures", "past_of", "n_past")
_PLACE_ARRAYS = ("past", "past_rewards", "past_rows")


class Candidates(NamedTuple):
    """Candidates for each query."""

    rows: np.ndarray  # int32 (n, m): the row of each memory in the learned state, or -1
    similarities: np.ndarray  # float64 (n, m): the cosines of query and key; -inf for no candidate
    keys: np.ndarray  # float32 (n, m, width)


class LearnedPart(NamedTuple):
    """A part of the score of a memory."""

    name: str
    weight: float


class ExplainedResult(NamedTuple):
    """A result of a query, explained by the parts of its score.

    Attributes
    ----------
    key : object
        The key or id of the memory.
    score : float
        The score.
    parts : dict of str to float
        The parts of the score by name, in units of the similarity. Parts that are 0 are omitted.
    """

    key: Any
    score: float
    parts: dict[str, float]


class LearnedSummary(NamedTuple):
    """What a model has learned.

    Attributes
    ----------
    parts : list of LearnedPart
        The weight of each part.
    n_rewards : float
        The number of queries with rewards; recent ones count more.
    gain : float
        The mean reward of the first result minus that of the most similar memory. Where one of both was not shown, its
        reward is predicted.
    interval : tuple of float
        The 95 % confidence interval of the gain.
    """

    parts: list[LearnedPart]
    n_rewards: float
    gain: float
    interval: tuple[float, float]


class FeedbackModel:
    """A model of rewards, which ranks the candidates of a query.

    The caller provides the lock and the candidates. Memories are given by ids that are never reused.

    Parameters
    ----------
    n_features : int
        The number of features of keys.
    is_sparse : bool
        Whether keys are sparse.
    """

    def __init__(self, n_features: int, is_sparse: bool) -> None:
        self.n_features, self.is_sparse = n_features, is_sparse
        self.is_hashed = is_sparse or n_features > WIDEST
        width = WIDEST if self.is_hashed else n_features
        self._state = new_state(width)
        self._rows: dict[int, int] = {}
        self._ids: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def width(self) -> int:
        """The width of queries and keys in the model."""
        return int(self._state.map.shape[0])

    @property
    def weights(self) -> np.ndarray:
        """The weights of the parts of scores."""
        return self._state.weights

    @property
    def is_used(self) -> bool:
        """Whether to rank by the model: it has learned, and is not significantly worse than static ranking."""
        trials, gain, squares = self._state.totals[[TRIALS, GAIN, SQUARED_GAIN]].tolist()
        return bool(trials > 0.0 and gain >= -_DEVIATIONS * np.sqrt(squares))

    def prepare(self, X: Any) -> np.ndarray:
        """Return rows scaled to unit length, hashed to the width of the model if needed (Weinberger et al., 2009)."""
        if self.is_hashed:
            X = _hashed(scipy.sparse.csr_array(X), self.width)
        X = X.astype(np.float32, copy=False)
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
        rows: np.ndarray = X / np.maximum(lengths, np.float32(1e-30))
        return rows

    def map(self, queries: np.ndarray) -> np.ndarray:
        """Return the products of queries with the map."""
        mapped = np.empty_like(queries)
        map_queries(self._state.map, queries, mapped)
        return mapped

    def transform(self, queries: np.ndarray, mapped: np.ndarray) -> np.ndarray:
        """Return queries whose products with keys are the parts of scores that do not depend on a memory's rewards.

        Only for keys that are not hashed. ``mapped`` is the result of :meth:`map`.
        """
        similar, by_map, by_feature = self.weights[[SIMILAR, MAPPED, DIAGONAL]].tolist()
        weighted = self._state.diagonal[0] * queries
        further = np.float32(by_map / similar) * mapped + np.float32(by_feature / similar) * weighted
        transformed: np.ndarray = queries + further
        return transformed

    def find_moved(self, queries: np.ndarray, n: int) -> np.ndarray:
        """Return the ids of the ``n`` memories whose moved keys are most similar to each query, or of all if fewer."""
        similarities = queries @ self._state.memories[: len(self), 0].T
        if n < len(self):
            places = np.sort(top_k(similarities, n)[0], axis=1)
        else:
            places = np.tile(np.arange(len(self)), (len(queries), 1))
        own = self._ids
        return np.array([own[place] for place in places.ravel().tolist()], np.int64).reshape(places.shape)

    def _candidates(self, ids: np.ndarray, similarities: np.ndarray, keys: np.ndarray) -> Candidates:
        get = self._rows.get
        rows = np.array([get(i, NONE) for i in ids.ravel().tolist()], np.int32).reshape(ids.shape)
        similarities = np.where(ids == NONE, -np.inf, similarities).astype(np.float64)
        return Candidates(rows, similarities, keys.reshape(*ids.shape, -1))

    def rank(
        self,
        queries: np.ndarray,
        ids: np.ndarray,
        similarities: np.ndarray,
        keys: np.ndarray,
        mapped: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the scores of candidates, shape (n, m); -inf for no candidate.

        Parameters
        ----------
        queries, keys : ndarray
            From :meth:`prepare`; the keys have shape (n * m, width).
        ids : ndarray of int64, shape (n, m)
            The candidates, -1 for none.
        similarities : ndarray of float, shape (n, m)
            The cosines of queries and keys.
        mapped : ndarray, optional
            The result of :meth:`map`. By default, it is computed.

        Returns
        -------
        ndarray of float64, shape (n, m)
            Log-odds of a reward, in units of the similarity: without rewards, the similarity itself.
        """
        scores = np.empty(ids.shape)
        candidates = self._candidates(ids, similarities, keys)
        mapped = self.map(queries) if mapped is None else mapped
        score_candidates(self._state, queries, mapped, candidates, scores, np.empty((0, *ids.shape[1:], N_PARTS)))
        weights = self._state.weights
        scores -= weights[CONSTANT]
        scores /= weights[SIMILAR]
        return scores

    def explain(
        self, query: np.ndarray, ids: np.ndarray, similarities: np.ndarray, keys: np.ndarray
    ) -> list[dict[str, float]]:
        """Return the parts of the score of each candidate of one query, by name, in units of the similarity."""
        parts, weights = np.empty((1, ids.size, N_PARTS)), self._state.weights
        candidates = self._candidates(ids[None], similarities[None], keys)
        score_candidates(self._state, query, self.map(query), candidates, np.empty((1, ids.size)), parts)
        products = parts[0] * weights / weights[SIMILAR]
        products[:, CONSTANT] = 0.0
        return [dict(zip(PART_NAMES, row, strict=True)) for row in products.tolist()]

    def learn(
        self,
        queries: np.ndarray,
        ids: np.ndarray,
        similarities: np.ndarray,
        keys: np.ndarray,
        rewards: np.ndarray,
        is_shared: bool = False,
    ) -> None:
        """Learn from rewards.

        Parameters
        ----------
        queries, ids, similarities, keys
            As for :meth:`rank`. Candidates that were shown come first; others are their competitors.
        rewards : ndarray of float64, shape (n, m)
            The reward of each candidate; NaN if it is unknown.
        is_shared : bool, default False
            Whether the rewards of a row are one outcome of all its memories. It is divided among them by the
            probability that each of them caused it.
        """
        rewards = np.where(ids == NONE, np.nan, rewards).astype(np.float64)
        self._make_room(ids, rewards, keys.reshape(*ids.shape, -1))
        candidates = self._candidates(ids, similarities, keys)
        learn_rewards(self._state, first_precision(), queries, candidates, rewards, is_shared)

    def _make_room(self, ids: np.ndarray, rewards: np.ndarray, keys: np.ndarray) -> None:
        """Give a row to each memory with a reward, and enlarge the arrays."""
        there = ~np.isnan(rewards)
        for memory_id, key in zip(ids[there].tolist(), keys[there], strict=True):
            if memory_id not in self._rows:
                row = self._rows[memory_id] = len(self._ids)
                self._ids.append(memory_id)
                if row >= len(self._state.n_past):
                    self._resize(_ROW_ARRAYS, max(_SMALLEST, 2 * row))
                state = self._state
                state.memories[row, 0], state.memories[row, 1], state.figures[row] = key, 0.0, 0.0
                state.past_of[row], state.n_past[row] = NONE, 0
        size, needed = len(self._state.past_rows), int(self._state.past_end[0]) + int(there.sum()) + 1
        most = _MOST_CELLS // self._state.map.shape[0]
        if size < min(needed, most):
            self._resize(_PLACE_ARRAYS, min(max(_SMALLEST, 2 * needed), most))
            self._state.past_rows[size:] = NONE

    def _resize(self, names: Sequence[str], size: int) -> None:
        state = self._state
        self._state = state._replace(**{name: resized(getattr(state, name), size, fill=0) for name in names})

    def chances(self, scores: np.ndarray) -> np.ndarray:
        """Return the probability of a reward of 1 for scores of :meth:`rank`."""
        odds = scores * self._state.weights[SIMILAR] + self._state.weights[CONSTANT]
        chances: np.ndarray = 1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0)))
        return chances

    def counts(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of rewards of each memory."""
        rows = np.array([self._rows.get(i, NONE) for i in ids.ravel().tolist()], np.int64)
        counts: np.ndarray = np.append(self._state.figures[: len(self), SHOWN], 0.0)[rows].reshape(ids.shape)
        return counts

    def has_any(self, ids: np.ndarray) -> bool:
        """Return whether one of the memories has rewards."""
        return not self._rows.keys().isdisjoint(ids.tolist())

    def forget(self, ids: np.ndarray) -> None:
        """Forget the rewards of memories. Ids without rewards are ignored."""
        for memory_id in ids.tolist():
            row = self._rows.pop(memory_id, -1)
            if row < 0:
                continue
            state, last = self._state, len(self._ids) - 1
            state.past_rows[state.past_rows == row] = NONE
            moved = self._ids.pop()
            if row != last:
                for name in _ROW_ARRAYS:
                    array: np.ndarray = getattr(state, name)
                    array[row] = array[last]
                state.past_rows[state.past_rows == last] = row
                self._rows[moved] = row
                self._ids[row] = moved

    def learned(self) -> LearnedSummary:
        """Return the weights of the parts, and the gain over static ranking."""
        state = self._state
        n, gain, squares = state.totals[[TRIALS, GAIN, SQUARED_GAIN]].tolist()
        mean = gain / max(n, 1.0)
        error = 1.96 * np.sqrt(max(squares / max(n, 1.0) - mean**2, 0.0) / max(n, 1.0))
        parts = [LearnedPart(*part) for part in zip(PART_NAMES, state.weights.tolist(), strict=True)]
        return LearnedSummary(parts, n, mean, (mean - error, mean + error))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the persistent state."""
        state, n = self._state, len(self._ids)
        arrays = state._asdict() | {name: getattr(state, name)[:n] for name in _ROW_ARRAYS}
        return arrays | {"ids": np.array(self._ids, np.int64)}

    @classmethod
    def of_arrays(cls, n_features: int, is_sparse: bool, arrays: dict[str, np.ndarray]) -> Self:
        """Return the model with this state. Raise InvariantError if the state is invalid."""
        self = cls(n_features, is_sparse)
        arrays = dict(arrays)
        ids = arrays.pop("ids")
        n, p, empty = ids.size, arrays["past_rows"].size, self._state
        for name, array in arrays.items():
            like = getattr(empty, name, None)
            if like is None:
                raise InvariantError(f"the model has the unknown array {name}")
            length = n if name in _ROW_ARRAYS else p if name in _PLACE_ARRAYS else len(like)
            require(array.dtype == like.dtype and array.shape == (length, *like.shape[1:]), f"{name} does not fit")
            require(bool((np.abs(array) < _LARGEST).all()), f"{name} must be finite and moderate")
        require(bool((arrays["diagonal"][1] > 0.0).all()), "sums of squares must be positive")
        require(all(bool((arrays[name] >= 0.0).all()) for name in _NOT_NEGATIVE), "counts must not be negative")
        require(bool((arrays["totals"][_COUNTS] > 0.0).all()), "totals must be positive")
        require(bool((arrays["totals"][[TRIALS, SQUARED_GAIN]] >= 0.0).all()), "totals must not be negative")
        require(bool(arrays["weights"][SIMILAR] > 0.0), "the weight of similarity must be positive")
        require(_is_positive_definite(arrays["precision"]), "the precision must be positive definite")
        require(ids.dtype == np.int64 and np.unique(ids).size == n, "ids of the model must be distinct")
        require(bool(((arrays["past_rows"] >= NONE) & (arrays["past_rows"] < n)).all()), "past_rows must be rows")
        require(bool(((arrays["past_of"] >= NONE) & (arrays["past_of"] < p)).all()), "past_of must be places")
        require(0 <= arrays["past_end"][0] < max(p, 1), "past_end must be a place")
        self._state = Learned(**{name: np.array(array) for name, array in arrays.items()})
        self._ids = ids.tolist()
        self._rows = {memory_id: row for row, memory_id in enumerate(self._ids)}
        return self


def _is_positive_definite(matrix: np.ndarray) -> bool:
    return np.allclose(matrix, matrix.T) and bool(np.linalg.eigvalsh(matrix)[0] > 0.0)


def _hashed(X: Any, width: int) -> np.ndarray:
    """Return the rows of a CSR array with each feature added to a cell, with a random sign."""
    hashes = X.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    cells = (hashes >> np.uint64(33)).astype(np.int64) % width
    values = np.where(hashes >> np.uint64(32) & np.uint64(1), X.data, -X.data)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.bincount(rows * width + cells, values, X.shape[0] * width).reshape(-1, width)
