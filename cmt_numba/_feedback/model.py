"""``FeedbackModel``: what a memory learned from rewards, independent of how its vectors are stored and searched."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from .._jit import held
from .._kernels import NONE, InvariantError, find_slots, require, resized
from . import state as states
from .learning import RewardKind, learn_rewards
from .moved import MovedCodes, code_all_moved, drop_code, map_queries, no_codes, with_rows
from .parts import FIRST_SLOPE, LEAST_DEVIATION, LEAST_SLOPE, rank_stored, score_candidates
from .query_map import code_map
from .rows import MemoryTable, hash_rows, new_table, read_keys, scale_rows

_MOST_CELLS = 1 << 24  # maximum number of numbers in past queries
_SMALLEST = 64
_TURNS = 4.0  # number of control groups while the number of rewarded queries doubles
_LARGEST_CONTROL, _CONTROL_OF_ONE = 1.0 / 32.0, 0.5  # share of the control group: at most, and times sqrt(queries)
_LEAST_LEARNED = 0.5  # a model with a smaller share ranks no query: rewards have proved nothing
_SHRUNK_BY = 0.25  # number of errors of 0 in the mean errors of expected rewards
_LARGEST, _LARGEST_EVIDENCE = 1e8, 100.0  # limits of the absolute values in a file
_GOLDEN = 2654435769  # multiples of it, modulo 2^32, are evenly spread
_NO_IDS = np.empty((0, 0), np.int64)
_NO_FIRSTS = np.empty((0, 2), np.int64)
_NO_PARTS = np.empty((0, 0, states.N_PARTS))
_NOT_NEGATIVE = ("n_past", "past_scales")
_ROW_ARRAYS = ("ids", "moved", "figures", "past_of", "n_past")
_PLACE_ARRAYS = ("past", "past_scales", "past_advantages", "past_rows")
_DERIVED = ("map_codes", "map_scales")


class ModelArrays(NamedTuple):
    """The arrays of a model, for kernels."""

    learned: states.Learned
    table: MemoryTable
    codes: MovedCodes


class Candidates(NamedTuple):
    """Candidates for each query."""

    ids: np.ndarray  # int64 (n, m): -1 for no candidate
    similarities: np.ndarray  # float64 (n, m): the cosines of query and key, NaN if unknown
    keys: np.ndarray  # float32 (n, m, width)

    @classmethod
    def of(cls, ids: np.ndarray, similarities: np.ndarray, keys: np.ndarray) -> Self:
        """Return candidates whose similarities kernels may change."""
        return cls(np.ascontiguousarray(ids), np.array(similarities, np.float64), keys.reshape(*ids.shape, -1))


class MappedQueries(NamedTuple):
    """Queries multiplied with the map, and the candidates by moved keys."""

    queries: np.ndarray  # float32 (n, width)
    hashes: np.ndarray  # int64 (n,)
    mapped: np.ndarray  # float32 (n, folded): the products
    transformed: np.ndarray  # float32 (n, width): queries whose nearest keys are candidates, unless keys are hashed
    cosines: np.ndarray  # float32 (n,): of each query and its transformed query, unless keys are hashed
    moved: np.ndarray  # int64 (n, m): the ids of memories whose moved keys are nearest to each query, or -1


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
        The weight of each part in the expected reward.
    n_rewards : float
        The number of queries with rewards.
    gain : float
        The mean reward of the first result minus that of static ranking. It compares rewards that were seen: of queries
        for which both rankings put different memories first, some are ranked statically.
    interval : tuple of float
        The 95 % confidence interval of the gain.
    share : float
        The share of queries that are ranked by the model: the probability that it predicts rewards better than
        similarity, place and query alone, 0 below a half. Unless the gain is not measured, it is at most 31 in 32 or,
        after ``n`` rewarded queries, ``1 - 0.5 / sqrt(n)``. The other queries, chosen by a hash, are ranked statically.
    reason : str
        Why the model ranks this share of queries.
    """

    parts: list[LearnedPart]
    n_rewards: float
    gain: float
    interval: tuple[float, float]
    share: float
    reason: str


class FeedbackModel:
    """A model of rewards, which ranks the candidates of a query.

    The caller provides the lock and the candidates. Memories are given by ids that are never reused.
    """

    def __init__(self, n_features: int, is_sparse: bool, measures_gain: bool = True) -> None:
        self.n_features, self.is_sparse, self.measures_gain = n_features, is_sparse, measures_gain
        self.is_hashed = is_sparse or n_features > states.WIDEST
        width = states.HASHED if self.is_hashed else n_features
        self._codes = no_codes(width)
        self._n = 0
        self._set_state(states.new_state(width))

    def _set_state(self, state: states.Learned) -> None:
        """Set the arrays, and enlarge those that follow from them."""
        self._state, self._codes = state, with_rows(self._codes, len(state.ids))
        self._hold()
        self._set_share()

    def _hold(self) -> None:
        """Enter the memories into a table, and describe the arrays to kernels."""
        self._table = new_table(self._state.ids, self._n)
        self._held = held(ModelArrays(self._state, self._table, self._codes))

    def _set_share(self) -> None:
        """Note which queries to rank by the model."""
        n_queries = float(self._state.totals[states.QUERIES])
        over_static, over_mean, within_static, within_mean = self._state.totals[states.EVIDENCE].tolist()
        share = 1.0 / (1.0 + math.exp(-min(over_static, within_static)) + math.exp(-min(over_mean, within_mean)))
        self._turn = int(_TURNS * math.log2(1.0 + n_queries))
        if share >= 1.0 - _LARGEST_CONTROL:
            n_at_turn = 2.0 ** (self._turn / _TURNS)
            control = min(_CONTROL_OF_ONE / math.sqrt(n_at_turn), _LARGEST_CONTROL)
            share = min(share, 1.0 - control) if self.measures_gain else 1.0
        self._share = share if share >= _LEAST_LEARNED and n_queries > 0.0 else 0.0

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> np.ndarray:
        """The ids of memories with rewards, in no particular order."""
        return self._state.ids[: self._n].copy()

    @property
    def width(self) -> int:
        """The width of queries and keys in the model."""
        return int(self._state.moved.shape[1])

    @property
    def weights(self) -> np.ndarray:
        """The weights of the parts of scores."""
        return self._state.weights[states.LEARNED]

    @property
    def share(self) -> float:
        """The share of queries to rank by the model: the probability that it is better than static ranking."""
        return self._share

    @property
    def is_used(self) -> bool:
        """Whether to rank any query by the model."""
        return self._share > 0.0

    def is_chosen(self, queries: np.ndarray) -> np.ndarray:
        """Return whether to rank each query by the model."""
        return np.array(self.are_chosen(self.hashes(queries)), np.bool_)

    def are_chosen(self, hashes: np.ndarray) -> list[bool]:
        """Return whether to rank each query by the model. Others are chosen when rewards have grown by a fifth.

        If the control group never changed, repeated queries would make it small.
        """
        least, shift = self._share * 2.0**32, self._turn * _GOLDEN
        return [(value + shift) % (1 << 32) < least for value in hashes.tolist()]

    def hashes(self, queries: np.ndarray) -> np.ndarray:
        """Return a hash of each query."""
        hashes, nothing = np.empty(len(queries), np.int64), queries[:0]
        map_queries(self._held, queries, hashes, nothing, nothing, nothing.reshape(-1), _NO_IDS)
        return hashes

    def read_keys(self, index: Any, ids: np.ndarray) -> np.ndarray:
        """Return the vectors of memories in a dense index, scaled to unit length."""
        keys = np.empty((ids.size, self.width), np.float32)
        read_keys(index.held, ids.reshape(-1), keys)
        return keys

    def prepare(self, X: Any, *, in_place: bool = False) -> np.ndarray:
        """Return rows of unit length, hashed to the model's width (Weinberger et al., 2009), in place if allowed."""
        if self.is_hashed:
            X, rows = scipy.sparse.csr_array(X), np.empty((X.shape[0], self.width), np.float32)
            hash_rows(X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False), rows)
        else:
            rows = X if in_place else np.array(X, np.float32)
        scale_rows(rows)
        return rows

    def map(self, queries: np.ndarray, n_moved: int = 0) -> MappedQueries:
        """Return the products of queries with the map, and the ids of about ``n_moved`` memories."""
        n, width = queries.shape
        found = MappedQueries(
            queries,
            np.empty(n, np.int64),
            np.empty((n, len(self._state.map)), np.float32),
            np.empty((n, width), np.float32),
            np.empty(n, np.float32),
            np.empty((n, min(n_moved, len(self))), np.int64),
        )
        map_queries(self._held, *found)
        return found

    def rank(
        self, queries: np.ndarray, ids: np.ndarray, similarities: np.ndarray, keys: np.ndarray, mapped: np.ndarray
    ) -> np.ndarray:
        """Return the scores of candidates, float64 (n, m), in units of the similarity.

        ``queries`` and ``keys``, the latter of shape (n * m, width), are results of :meth:`prepare`, and ``mapped`` are
        products of queries with the map. ``ids``, int64 (n, m), are -1 for no candidate, whose score is -inf.
        ``similarities``, of the same shape, are cosines, or NaN if unknown, for keys that are not hashed.
        """
        scores, candidates = np.empty(ids.shape), Candidates.of(ids, similarities, keys)
        score_candidates(self._held, queries, mapped, candidates, scores, _NO_PARTS)
        return scores

    def rank_stored(
        self,
        index: Any,
        mapped: MappedQueries,
        parts: Sequence[np.ndarray],
        rows: tuple[int, int],
        best_scores: np.ndarray,
        best_ids: np.ndarray,
    ) -> None:
        """Write the scores and ids of the best candidates for a range of queries. Their keys are in a dense index.

        The candidates are those of two or three arrays of ids of shape (n, m), some of which may be equal.
        """
        first, second, third = parts if len(parts) == 3 else (*parts, np.empty((len(best_ids), 0), np.int64))
        queries = mapped.queries, mapped.mapped
        rank_stored(self._held, index.held, queries, (first, second, third), *rows, best_scores, best_ids)

    def explain(
        self, query: np.ndarray, ids: np.ndarray, similarities: np.ndarray, keys: np.ndarray
    ) -> list[dict[str, float]]:
        """Return the parts of the score of each candidate of one query, by name, in units of the similarity."""
        parts, scores = np.empty((1, ids.size, states.N_PARTS)), np.empty((1, ids.size))
        mapped, candidates = self.map(query).mapped, Candidates.of(ids[None], similarities[None], keys)
        score_candidates(self._held, query, mapped, candidates, scores, parts)
        products = parts[0] * self.weights / self._slope
        products[:, : states.N_STATIC] = 0.0
        products[:, states.SIMILAR] = candidates.similarities[0]
        return [dict(zip(states.PART_NAMES, row, strict=True)) for row in products.tolist()]

    @property
    def _slope(self) -> float:
        squares, n = self._state.totals[[states.SQUARES, states.N_SQUARES]].tolist()
        deviation = max(math.sqrt(squares / n), LEAST_DEVIATION)
        least = LEAST_SLOPE + FIRST_SLOPE / float(self._state.precision[states.LEARNED, states.SIMILAR, states.SIMILAR])
        return max(float(self.weights[states.SIMILAR]), least * deviation)

    def learn(
        self,
        queries: np.ndarray,
        ids: np.ndarray,
        similarities: np.ndarray,
        keys: np.ndarray,
        rewards: np.ndarray,
        is_shared: bool = False,
        may_be_chosen: bool = True,
        firsts: np.ndarray | None = None,
    ) -> None:
        """Learn from the rewards of candidates, float64 (n, m); NaN if unknown.

        Other arguments are those of :meth:`rank`. Candidates that were shown come first; others are their competitors.
        With ``is_shared``, the rewards of a row are one outcome of all its memories, which counts once.
        If all rewards of a row are good, and each ranking in use puts several other memories first, these are known
        answers: the first of the others counts as unrewarded. It does not with ``may_be_chosen=False``, because the
        memories were ranked in another way. Then ``firsts``, int64 (n, 2), are the columns of the first candidates
        without and with what was learned.
        """
        rewards = np.where(ids == NONE, np.nan, rewards).astype(np.float64)
        n_passed = len(ids)  # in each row, one memory may count as unrewarded
        self._make_room(int(np.count_nonzero(rewards == rewards)) + n_passed, ids)
        candidates = Candidates.of(ids, similarities, keys)
        firsts = _NO_FIRSTS if firsts is None else firsts
        kind = RewardKind(bool(is_shared), bool(may_be_chosen), self.share, self.is_chosen(queries), firsts)
        self._n = learn_rewards(self._held, self._n, queries, candidates, rewards, kind)
        self._set_share()

    def _make_room(self, n_rewards: int, ids: np.ndarray) -> None:
        """Enlarge the arrays for further rewards of some memories."""
        if len(self._state.ids) < self._n + n_rewards:
            n_new = min(n_rewards, int((self._find(ids) == NONE).sum()))
            if len(self._state.ids) < self._n + n_new:
                self._resize(_ROW_ARRAYS, max(_SMALLEST, 2 * (self._n + n_new)))
        places = len(self._state.past_rows)
        needed, most = int(self._state.ends[states.PAST]) + n_rewards + 1, _MOST_CELLS // self.width
        if places < min(needed, most):
            self._resize(_PLACE_ARRAYS, min(max(_SMALLEST, 2 * needed), most))
            self._state.past_rows[places:] = NONE

    def _resize(self, names: Sequence[str], size: int) -> None:
        state = self._state
        self._set_state(state._replace(**{name: resized(getattr(state, name), size, fill=0) for name in names}))

    def expected_rewards(self, scores: np.ndarray, similarities: np.ndarray) -> np.ndarray:
        """Return the expected rewards for scores of :meth:`rank`, arrays of shape (n, m).

        They have the order of the scores, so they may be below 0 or above 1.
        """
        best = similarities.max(axis=1, keepdims=True)
        weights = self.weights
        expected: np.ndarray = weights[states.CONSTANT] + weights[states.BEST] * best + self._slope * (scores - best)
        return expected

    def counts(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of rewards of each memory."""
        return np.append(self._state.figures[: self._n, states.SHOWN], 0.0)[self._find(ids)]

    @property
    def mean_reward(self) -> float:
        """The mean of all rewards of memories that are stored, shrunk towards 0.5."""
        sums = self._state.figures[: self._n].sum(axis=0)
        return float((sums[states.REWARDED] + 0.5) / (sums[states.SHOWN] + 1.0))

    def has_any(self, ids: np.ndarray) -> bool:
        """Return whether one of the memories has rewards."""
        return bool((self._find(ids) != NONE).any())

    def _find(self, ids: np.ndarray) -> np.ndarray:
        """Return the row of each memory, -1 for none."""
        rows = np.empty(ids.shape, np.int64)
        find_slots(self._table, ids.reshape(-1), rows.reshape(-1))
        return rows

    def forget(self, ids: np.ndarray) -> None:
        """Forget the rewards of memories. Ids without rewards are ignored."""
        rows, state = self._find(ids), self._state
        rows = rows[rows != NONE]
        if rows.size == 0:
            return
        for row in -np.sort(-rows):  # so that the last row is never one that remains to be forgotten
            self._n -= 1
            last = self._n
            state.past_rows[state.past_rows == row] = NONE
            drop_code(self._held, row, last)
            if row != last:
                for name in _ROW_ARRAYS:
                    array: np.ndarray = getattr(state, name)
                    array[row] = array[last]
                state.past_rows[state.past_rows == last] = row
        self._hold()

    def learned(self) -> LearnedSummary:
        """Return the weights of the parts, and the gain over static ranking."""
        state, share = self._state, self.share
        gain, error = share * np.array(self._gain_of_learned())
        parts = [LearnedPart(*part) for part in zip(states.PART_NAMES, self.weights.tolist(), strict=True)]
        interval = float(gain - 1.96 * error), float(gain + 1.96 * error)
        n = float(state.totals[states.QUERIES])
        return LearnedSummary(parts, n, float(gain), interval, share, self._reason(share))

    def _gain_of_learned(self) -> tuple[float, float]:
        """Return the gain of the learned over the static ranking, and its standard error.

        The rankings differ only for queries with different first results. For these, it is the gain that the learned
        model expects plus the difference of the mean errors of what it expects for both.
        """
        (weights, squared, sums, squares), totals = self._state.outcomes.T, self._state.totals
        n_recent = max(float(totals[states.RECENT_QUERIES]), 1.0)
        apart, square, lift = totals[[states.APART, states.SQUARED_LIFT, states.LIFT]] / n_recent
        weights = np.maximum(weights, 1e-12)
        n = weights**2 / np.maximum(squared, 1e-12)  # the number of errors of equal weights that are as certain
        variance = ((n * squares / weights).sum() + 0.5) / (n.sum() + 1.0)
        of_static, of_learned = n * sums / weights / (n + _SHRUNK_BY)
        error = apart**2 * variance * (1.0 / (n + 1.0)).sum() + (square - lift**2) / n_recent
        return lift + apart * (of_learned - of_static), math.sqrt(error)

    def _reason(self, share: float) -> str:
        if share >= 1.0 - _LARGEST_CONTROL:
            return "the learned parts predict rewards better than similarity, place and query alone"
        if share > 0.0:
            return "it is not certain that the learned parts predict rewards better than similarity alone"
        return "not used: the learned parts predict rewards no better than similarity, place and query alone"

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the persistent state."""
        state = self._state
        rows = {name: getattr(state, name)[: len(self)] for name in _ROW_ARRAYS}
        return {name: array for name, array in (state._asdict() | rows).items() if name not in _DERIVED}

    @classmethod
    def of_arrays(
        cls, n_features: int, is_sparse: bool, arrays: dict[str, np.ndarray], measures_gain: bool = True
    ) -> Self:
        """Return the model with this state. Raise InvariantError if the state is invalid."""
        self = cls(n_features, is_sparse, measures_gain)
        ids = arrays["ids"]
        n, p, empty = ids.size, arrays["past_rows"].size, self._state
        for name, array in arrays.items():
            like = getattr(empty, name, None)
            if like is None or name in _DERIVED:
                raise InvariantError(f"the model has the unknown array {name}")
            length = n if name in _ROW_ARRAYS else p if name in _PLACE_ARRAYS else len(like)
            require(array.dtype == like.dtype and array.shape == (length, *like.shape[1:]), f"{name} does not fit")
            limit = _LARGEST if array.dtype.kind == "f" else np.inf
            require(bool((np.abs(array) < limit).all()), f"{name} must be finite and moderate")
        require(bool((arrays["diagonal"][1] > 0.0).all()), "sums of squares must be positive")
        require(all(bool((arrays[name] >= 0.0).all()) for name in _NOT_NEGATIVE), "counts must not be negative")
        totals = arrays["totals"]
        require(bool((totals[states.REWARDS : states.LIFT] >= 0.0).all()), "totals must not be negative")
        require(bool((totals[[states.N_SQUARES, states.N_REWARDS]] > 0.0).all()), "totals must be positive")
        are_counts = arrays["outcomes"][:, [states.WEIGHT, states.SQUARED_WEIGHT, states.SUM_OF_SQUARES]] >= 0.0
        require(bool(are_counts.all()), "counts must not be negative")
        evidence = totals[states.EVIDENCE]
        require(bool((np.abs(evidence) < _LARGEST_EVIDENCE).all()), "the evidence is out of its range")
        require(all(map(_is_positive_definite, arrays["precision"])), "the precision must be positive definite")
        require(np.unique(ids).size == n, "ids of the model must be distinct")
        require(bool(((arrays["past_rows"] >= NONE) & (arrays["past_rows"] < n)).all()), "past_rows must be rows")
        require(bool(((arrays["past_of"] >= NONE) & (arrays["past_of"] < p)).all()), "past_of must be places")
        place, n_recent = arrays["ends"].tolist()
        require(
            0 <= place < max(p, 1) and 0 <= n_recent < states.N_RECENT,
            "ends must be a place and a number of recent steps",
        )
        self._n = n
        self._set_state(empty._replace(**{name: np.array(array) for name, array in arrays.items()}))
        code_map(self._held)
        code_all_moved(self._held, n)
        return self


def _is_positive_definite(matrix: np.ndarray) -> bool:
    return np.allclose(matrix, matrix.T) and bool(np.linalg.eigvalsh(matrix)[0] > 0.0)
