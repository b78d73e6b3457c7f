"""``LearnedSearch``: searches an index, and ranks the candidates by a feedback model."""

from collections import OrderedDict
from typing import Any, Self

import numpy as np
import scipy.sparse

from .._arrays import squares_of_rows
from .._change import share_rows
from .._index import DenseIndex
from .._kernels import MOST_FEATURES, NONE, require
from .model import FeedbackModel, MappedQueries
from .parts import select_best
from .rows import drop_repeated

_N_COMPETITORS = 10  # number of candidates with which rewarded memories are compared
_CELLS_AT_ONCE = 1 << 21  # numbers in the keys of candidates that are ranked together
_N_HASHED = 32  # number of the most similar memories that are candidates, if keys are hashed
_N_TRANSFORMED, _N_MOVED = 16, 16  # number of candidates by transformed queries and by moved keys
_SLACK = 1e-4  # bound on the error of cosines
_N_SAMPLES = 256
_MOST_KEPT = 64  # number of queries whose candidates are kept until their rewards are known
_LARGEST_KEPT = 16  # number of queries of a search whose candidates are kept
_HALF, _FLATTER = 0.5, 4.1  # similarities of words grow more slowly above this one, so that they remain below 1
_SHORTEST, _LONGEST = 1e-30, 1e35  # limits of lengths, so that scaled queries are finite in float32
_FAR, _STEEPEST = 4.0, 400.0  # similarities below 1 - 4 become logarithms; largest exponent
_NEARLY_EXACT = 1.0 - 1e-4  # inner products above this similarity do not mean that query and key are equal


class LearnedSearch:
    """What a memory has learned from rewards, and the searches that use it.

    The index is passed to each method. It has ``n_features``, ``metric``, ``ids``, and the methods ``search`` and
    ``vectors``; an index of sparse vectors also has ``scores``. The caller provides the lock.
    """

    def __init__(self, index: Any, is_sparse: bool, measures_gain: bool = True) -> None:
        scale = np.ones(1) if index.metric == "cosine" else _typical_length(index)
        self._begin(FeedbackModel(index.n_features, is_sparse, measures_gain), scale)

    def _begin(self, model: FeedbackModel, scale: np.ndarray) -> None:
        self.model, self._scale = model, scale
        # The hashes of recent queries, the latest last -> parts of their candidates, their row, version of the index
        self._kept: OrderedDict[int, tuple[list[np.ndarray], int, int | None]] = OrderedDict()

    # Searches

    def search(
        self,
        index: Any,
        Q: Any,
        k: int,
        target_recall: float,
        among: Any,
        n_threads: int,
        mapped: MappedQueries | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and scores of the ``k`` best memories for each query, by what was learned."""
        if not self.model.is_used:
            return index.search(Q, k, target_recall, among, n_threads)
        mapped = self.map(Q) if mapped is None else mapped
        chosen = self.model.are_chosen(mapped.hashes)
        if all(chosen):
            return self._search(index, Q, mapped, k, target_recall, among, n_threads)
        if not any(chosen):
            return index.search(Q, k, target_recall, among, n_threads)
        rows = np.array(chosen)
        ids, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
        ids[~rows], scores[~rows] = index.search(Q[~rows], k, target_recall, among, n_threads)
        own = MappedQueries(*(array[rows] for array in mapped))
        ids[rows], scores[rows] = self._search(index, Q[rows], own, k, target_recall, among, n_threads)
        return ids, scores

    def _search(
        self, index: Any, Q: Any, mapped: MappedQueries, k: int, target_recall: float, among: Any, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        parts = self._candidates(index, Q, mapped, k, target_recall, among, n_threads)
        if among is None:
            self._keep(index, mapped, parts[-2:])
        n = len(mapped.queries)
        ids, scores = np.empty((n, k), np.int64), np.empty((n, k))
        if _has_keys(index, self.model):

            def rank(first: int, stop: int) -> None:
                self.model.rank_stored(index, mapped, parts, (first, stop), scores, ids)

            share_rows(rank, n, n_threads)
            return ids, scores
        candidates = join_candidates(0, *parts)
        if candidates.shape[1] == 0:  # a filter allows no memory
            return np.full((n, k), NONE), np.full((n, k), -np.inf)
        size = max(1, _CELLS_AT_ONCE // (candidates.shape[1] * self.model.width))

        def rank_some(first: int, stop: int) -> None:
            for start in range(first, stop, size):
                rows = slice(start, min(start + size, stop))
                own = candidates[rows]
                ranked = self._rank(index, Q[rows], mapped.queries[rows], mapped.mapped[rows], own)
                select_best(ranked, own, scores[rows], ids[rows])
                scores[rows] = self._as_scores(index, Q[rows], scores[rows])

        share_rows(rank_some, n, n_threads)
        return ids, scores

    def map(self, Q: Any) -> MappedQueries:
        """Return queries in the forms that the model needs."""
        return self.model.map(self.model.prepare(Q), _N_MOVED)

    def similarities(self, index: Any, Q: Any, mapped: MappedQueries, ids: np.ndarray) -> np.ndarray:
        """Return the learned similarities of candidates, shape (n, m); -inf for the id -1."""
        similar, size = np.empty(ids.shape), max(1, _CELLS_AT_ONCE // (ids.shape[1] * self.model.width))
        for start in range(0, len(ids), size):
            rows = slice(start, start + size)
            similar[rows] = self._rank(index, Q[rows], mapped.queries[rows], mapped.mapped[rows], ids[rows])
        return similar

    def _rank(self, index: Any, Q: Any, queries: np.ndarray, mapped: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return self.model.rank(queries, ids, *self._described(index, Q, ids), mapped)

    def candidates(self, index: Any, Q: Any, k: int, target_recall: float = 1.0) -> np.ndarray:
        """Return the ids of candidates for each query: int64, shape (n, at least k), -1 for none."""
        if not self.model.is_used:
            return index.search(Q, k, target_recall)[0]
        return join_candidates(0, *self._candidates(index, Q, self.map(Q), k, target_recall))

    def competitors(self, index: Any, Q: Any, mapped: MappedQueries, target_recall: float) -> list[np.ndarray]:
        """Return the ids of memories with which rewarded ones are compared, in parts: int64, -1 for none."""
        return [part[:, :_N_COMPETITORS] for part in self._candidates(index, Q, mapped, 0, target_recall)]

    def expected_rewards(self, index: Any, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the expected reward of each candidate, shape (n, m)."""
        queries = self.model.prepare(Q)
        similarities, keys = self._described(index, Q, ids)
        if np.isnan(similarities).any():
            similarities = np.einsum("ijk,ik->ij", keys.reshape(*ids.shape, -1), queries, dtype=np.float64)
            similarities[ids == NONE] = -np.inf
        scores, chosen = similarities.copy(), self.model.is_chosen(queries)
        if chosen.any():
            own = keys.reshape(*ids.shape, -1)[chosen].reshape(-1, keys.shape[1])
            mapped = self.model.map(queries[chosen]).mapped
            scores[chosen] = self.model.rank(queries[chosen], ids[chosen], similarities[chosen], own, mapped)
        return self.model.expected_rewards(scores, similarities)

    def explain(self, index: Any, Q: Any, ids: np.ndarray, target_recall: float) -> list[dict[str, float]] | None:
        """Return the parts of the similarity of each result of one query that are not 0, by name.

        Return None if the model does not rank this query.
        """
        mapped = self.map(Q)
        if not all(self.model.are_chosen(mapped.hashes)):
            return None
        others = join_candidates(0, *self._candidates(index, Q, mapped, ids.size, target_recall))[0]
        candidates = np.append(ids, others[~np.isin(others, ids)])  # because parts depend on other candidates
        similarities, keys = self._described(index, Q, candidates[None])
        explained = self.model.explain(mapped.queries, candidates, similarities[0], keys)[: ids.size]
        return [{name: value for name, value in parts.items() if value != 0.0} for parts in explained]

    def _candidates(
        self,
        index: Any,
        Q: Any,
        mapped: MappedQueries,
        k: int,
        target_recall: float,
        among: Any = None,
        n_threads: int = 1,
    ) -> list[np.ndarray]:
        """Return the ids of candidates: int64, -1 for none, in parts.

        The parts are the most similar memories, if needed, those that are most similar to the transformed query, and
        those whose moved keys are most similar. They include the memory with the very key of the query, if there is
        one: with the cosine, it is among the memories that are most similar to the transformed query if the last of
        these is less similar to it than the query is. Otherwise, the most similar memories are needed. If ``k`` is 0,
        the candidates are competitors of rewarded memories, and need not include that memory.
        """
        moved = mapped.moved
        if among is not None:
            moved[~index.allows(among, moved.reshape(-1)).reshape(moved.shape)] = NONE
        if self.model.is_hashed or not self.model.is_used:
            most = max(k, _N_HASHED) if k > 0 else _N_COMPETITORS
            return [index.search(Q, most, target_recall, among, n_threads)[0], moved]
        wanted, most = _scaled_like(Q, mapped.transformed, index), max(k, _N_TRANSFORMED) if k > 0 else _N_COMPETITORS
        others, scores = index.search(wanted, most, target_recall, among, n_threads)
        last = zip(scores[:, -1].tolist(), mapped.cosines.tolist(), strict=True)
        are_less = [score < cosine - _SLACK for score, cosine in last]  # for one query, faster than a generator
        if k == 0 or (index.metric == "cosine" and all(are_less)):
            return [others, moved]
        return [index.search(Q, k, target_recall, among, n_threads)[0], others, moved]

    def _described(self, index: Any, Q: Any, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the similarities of candidates, NaN if the model computes them, and their keys for the model."""
        if _has_keys(index, self.model):
            return np.full(ids.shape, np.nan), self.model.read_keys(index, ids)
        missing = ids == NONE
        if missing.any():
            if missing.all():
                return np.full(ids.shape, -np.inf), np.zeros((ids.size, self.model.width), np.float32)
            ids = np.where(missing, ids[~missing][0], ids)
        vectors = index.vectors(ids.reshape(-1))
        if index.metric == "cosine" and not self.model.is_hashed:
            return np.full(ids.shape, np.nan), self.model.prepare(vectors, in_place=True)
        scores = index.scores(Q, ids) if self.model.is_sparse else _scores(index.metric, Q, vectors)
        if index.metric == "inner_product":
            scores = _flattened(np.minimum(scores / (self._scale * _lengths(Q)[:, None]), _NEARLY_EXACT))
        elif index.metric == "euclidean":
            scores = _flattened(1.0 - np.square(scores / self._scale) / 2.0)
        elif index.metric == "words":
            scores = np.minimum(scores, _HALF + (scores - _HALF) / _FLATTER)
        return scores, self.model.prepare(vectors, in_place=True)

    def _as_scores(self, index: Any, Q: Any, ranked: np.ndarray) -> np.ndarray:
        """Return learned similarities as scores of the metric."""
        if index.metric == "inner_product":
            ranked = _steepened(ranked) * (self._scale * _lengths(Q)[:, None])
        elif index.metric == "euclidean":
            squares = 2.0 * (1.0 - _steepened(ranked))  # negative above the similarity of the key of the query
            ranked = -self._scale * np.sign(squares) * np.sqrt(np.abs(squares))
        elif index.metric == "words":
            ranked = np.maximum(ranked, _HALF + (ranked - _HALF) * _FLATTER)
        return ranked

    # Changes

    def _keep(self, index: Any, mapped: MappedQueries, parts: list[np.ndarray]) -> None:
        """Keep candidates until the rewards of their queries are known. Other threads may do so at the same time."""
        if len(mapped.hashes) > _LARGEST_KEPT:
            return
        kept, version = self._kept, getattr(index, "version", None)
        for row, name in enumerate(mapped.hashes.tolist()):
            kept.pop(name, None)
            kept[name] = parts, row, version
        while len(kept) > _MOST_KEPT:
            kept.popitem(last=False)

    def with_competitors(self, index: Any, Q: Any, ids: np.ndarray, target_recall: float) -> np.ndarray:
        """Return ids with further candidates for each query, with which rewarded memories are compared.

        They are not searched again for recent queries. Callers that repeat a change must therefore record the ids.
        """
        queries = self.model.prepare(Q)
        others = np.full((len(queries), 2 * _N_COMPETITORS), NONE)
        kept = [self._kept.pop(name, None) for name in self.model.hashes(queries).tolist()]
        for row, found in enumerate(kept):
            if found is None:
                mapped = self.model.map(queries, _N_MOVED)
                return join_candidates(ids.shape[1], ids, *self.competitors(index, Q, mapped, target_recall))
            parts, place, version = found
            own = np.concatenate([part[place, :_N_COMPETITORS] for part in parts])
            if version is None or version != index.version:
                own[~index.contains(own)] = NONE
            others[row, : own.size] = own
        return join_candidates(ids.shape[1], ids, others)

    def feedback(
        self,
        index: Any,
        Q: Any,
        ids: np.ndarray,
        rewards: np.ndarray,
        *,
        is_shared: bool = False,
        may_be_chosen: bool = True,
        target_recall: float = 1.0,
    ) -> None:
        """Learn from rewards of shown memories, arrays of shape (n, k), compared with further candidates."""
        competitors = self.competitors(index, Q, self.map(Q), target_recall)
        candidates = join_candidates(ids.shape[1], ids, *competitors)
        known = np.full(candidates.shape, np.nan)
        known[:, : ids.shape[1]] = rewards
        self.learn(index, Q, candidates, known, is_shared=is_shared, may_be_chosen=may_be_chosen)

    def learn(
        self,
        index: Any,
        Q: Any,
        ids: np.ndarray,
        rewards: np.ndarray,
        *,
        is_shared: bool = False,
        may_be_chosen: bool = True,
        firsts: np.ndarray | None = None,
    ) -> None:
        """Learn from rewards of memories, arrays of shape (n, m). NaN stands for an unknown reward.

        With ``is_shared``, the rewards of a row are one outcome of all its memories. ``may_be_chosen`` and ``firsts``
        are those of :meth:`FeedbackModel.learn`.
        """
        size = max(1, _CELLS_AT_ONCE // (ids.shape[1] * self.model.width))
        for start in range(0, len(ids), size):
            rows = slice(start, start + size)
            own, queries = ids[rows], self.model.prepare(Q[rows])
            described = self._described(index, Q[rows], own)
            own_firsts = None if firsts is None else firsts[rows]
            self.model.learn(queries, own, *described, rewards[rows], is_shared, may_be_chosen, own_firsts)

    # Files

    @property
    def form(self) -> tuple[int, bool]:
        """The number of features of vectors, and whether they are sparse."""
        return self.model.n_features, self.model.is_sparse

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the persistent state: arrays, and the form of the vectors."""
        model = self.model
        form = {"n_features": model.n_features, "is_sparse": model.is_sparse, "measures_gain": model.measures_gain}
        return model.arrays() | {"scale": self._scale}, form

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], form: dict[str, Any]) -> Self:
        """Return the state with these arrays. Raise InvariantError if they are invalid."""
        self, arrays = cls.__new__(cls), dict(arrays)
        n_features, is_sparse, scale = form["n_features"], form["is_sparse"], arrays.pop("scale")
        require(type(n_features) is int and 0 < n_features <= MOST_FEATURES, "n_features must be a positive integer")
        for name in ("is_sparse", "measures_gain"):
            require(type(form[name]) is bool, f"{name} must be true or false")
        require(scale.dtype == np.float64 and scale.shape == (1,) and bool(0 < scale[0] < np.inf), "scale must be > 0")
        model = FeedbackModel.of_arrays(n_features, is_sparse, arrays, form["measures_gain"])
        self._begin(model, scale.copy())
        return self


def join_candidates(n_shown: int, *parts: np.ndarray) -> np.ndarray:
    """Return the ids of each row in the order of the parts, each one once; the first ``n_shown`` columns are kept."""
    ids = np.concatenate(parts, axis=1)
    return np.ascontiguousarray(ids[:, : drop_repeated(ids, n_shown)])


def _has_keys(index: Any, model: FeedbackModel) -> bool:
    """Return whether the index has the keys of a model, apart from their lengths."""
    return isinstance(index, DenseIndex) and index.metric == "cosine" and not model.is_hashed


def _scaled_like(Q: np.ndarray, queries: np.ndarray, index: Any) -> np.ndarray:
    """Return queries scaled by the lengths of ``Q``, which matter unless the metric is the cosine."""
    if index.metric == "cosine":
        return queries
    return queries * np.minimum(_lengths(Q), _LONGEST)[:, None].astype(np.float32)


class WithOthers:
    """An index with further ``vectors``, whose ``ids`` are below -1 and ascend. Searches do not return them."""

    def __init__(self, index: Any, ids: np.ndarray, vectors: Any) -> None:
        self.n_features, self.metric, self.search = index.n_features, index.metric, index.search
        self._index, self._ids, self._vectors = index, ids, vectors

    def vectors(self, ids: np.ndarray) -> Any:
        """Return vectors, of this index or further ones."""
        own = ids >= 0
        order = np.argsort(np.concatenate([np.flatnonzero(own), np.flatnonzero(~own)]))
        parts = self._index.vectors(ids[own]), self._vectors[np.searchsorted(self._ids, ids[~own])]
        return (
            np.concatenate(parts)[order]
            if isinstance(parts[0], np.ndarray)
            else scipy.sparse.vstack(parts, "csr")[order]
        )

    def scores(self, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the scores of sparse vectors for each query, arrays of shape (n, m)."""
        return score_sparse(self.metric, Q, self.vectors(ids.reshape(-1)))


def score_sparse(metric: str, Q: Any, vectors: Any) -> np.ndarray:
    """Return the scores of sparse candidates, shape (n, m), in the order of the rows of ``vectors``."""
    n, m = Q.shape[0], vectors.shape[0] // Q.shape[0]
    scores: np.ndarray = vectors.multiply(Q[np.repeat(np.arange(n), m)].astype(np.float64)).sum(axis=1).reshape(n, m)
    lengths, of_queries = _lengths(vectors).reshape(n, m), _lengths(Q)[:, None]
    if metric == "cosine":
        scores = scores / (lengths * of_queries)
    elif metric == "euclidean":
        scores = -np.sqrt(np.maximum(np.square(lengths) + np.square(of_queries) - 2.0 * scores, 0.0))
    return scores


def _typical_length(index: Any) -> np.ndarray:
    """Return the root mean square of the lengths of some stored vectors, for distances around their mean."""
    ids = np.sort(index.ids)
    if ids.size == 0:  # an empty shard learns from the rewards of other shards
        return np.ones(1)
    X = index.vectors(ids[:: max(1, ids.size // _N_SAMPLES)])
    square = np.square(_lengths(X)).mean()
    if index.metric == "euclidean":
        around_mean = square - np.square(X.mean(axis=0, dtype=np.float64)).sum()
        square = around_mean if around_mean > 1e-12 * square else square  # all vectors may be equal
    return np.sqrt([square])


def _flattened(similarities: np.ndarray) -> np.ndarray:
    """Replace similarities below a limit by logarithms, so that sums of squares of the model stay finite."""
    apart = 1.0 - similarities
    return np.where(apart > _FAR, 1.0 - _FAR * (1.0 + np.log(np.maximum(apart, _FAR) / _FAR)), similarities)


def _steepened(flattened: np.ndarray) -> np.ndarray:
    """Invert :func:`_flattened`."""
    apart = 1.0 - flattened
    steep = 1.0 - _FAR * np.exp(np.clip(apart / _FAR - 1.0, 0.0, _STEEPEST))
    return np.where((apart > _FAR) & (apart < np.inf), steep, flattened)


def _lengths(Q: Any) -> np.ndarray:
    return np.maximum(np.sqrt(squares_of_rows(Q)), _SHORTEST)


def _scores(metric: str, Q: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the scores of dense candidates, shape (n, m)."""
    X = vectors.reshape(len(Q), -1, Q.shape[1])
    if metric == "euclidean":
        X = X - Q[:, None]
        distances: np.ndarray = np.sqrt(np.einsum("ijk,ijk->ij", X, X, dtype=np.float64))
        return -distances
    scores: np.ndarray = np.einsum("ijk,ik->ij", X, Q, dtype=np.float64)
    if metric == "cosine":
        scores /= _lengths(Q)[:, None] * _lengths(vectors).reshape(scores.shape)
    return scores
