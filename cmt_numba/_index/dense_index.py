"""``DenseIndex``: stores dense vectors and finds the nearest ones to queries."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._change import share_rows
from .._forest import NONE, InvariantError, require, resized

METRICS = ("cosine", "inner_product", "euclidean")
_SMALLEST = 16  # smallest capacity
_ROWS_AT_ONCE = 1024


class Allowed:
    """The result of :meth:`DenseIndex.allow`: the vectors that a search may return, until the index changes."""

    __slots__ = ("is_allowed", "n", "owner", "version")

    def __init__(self, owner: DenseIndex, version: int, is_allowed: np.ndarray, n: int) -> None:
        self.owner, self.version, self.is_allowed, self.n = owner, version, is_allowed, n


class DenseIndex:
    """An index of dense vectors, which can be added, replaced and removed at any time.

    The caller provides the lock: changes need exclusive access, and searches may run concurrently.

    Parameters
    ----------
    n_features : int
        Number of features of each vector.
    metric : {"cosine", "inner_product", "euclidean"}
        The score of a vector for a query: the cosine, the inner product, or the negative Euclidean distance.
    random_state : int
        Seed of all random choices.
    """

    def __init__(self, n_features: int, metric: str = "cosine", random_state: int = 0) -> None:
        self.n_features, self.metric, self.random_state = n_features, metric, random_state
        self.next_id, self.version, self._n = 0, 0, 0
        self._vectors = np.empty((_SMALLEST, n_features), np.float32)
        self._ids = np.empty(_SMALLEST, np.int64)
        self._slots = np.full(_SMALLEST, NONE)

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> np.ndarray:
        """The ids of all vectors, int64, in no particular order."""
        return self._ids[: self._n].copy()

    @property
    def nbytes(self) -> int:
        """The size in bytes of all arrays."""
        return self._vectors.nbytes + self._ids.nbytes + self._slots.nbytes

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        known = (ids >= 0) & (ids < self.next_id)
        return known & (self._slots[np.where(known, ids, 0)] != NONE)

    def vectors(self, ids: np.ndarray) -> np.ndarray:
        """Return stored vectors as they were given, float32, shape (n, n_features)."""
        vectors: np.ndarray = self._vectors[self._slots[ids]]
        return vectors

    def insert(self, X: np.ndarray) -> np.ndarray:
        """Store vectors and return their ids, which are consecutive and never reused.

        Parameters
        ----------
        X : ndarray of float32, shape (n, n_features)
            Finite vectors, C-contiguous; for the cosine, not zero.
        """
        n = len(X)
        ids = np.arange(self.next_id, self.next_id + n)
        if self._n + n > len(self._ids):
            size = max(self._n + n, 2 * len(self._ids))
            self._vectors, self._ids = resized(self._vectors, size), resized(self._ids, size)
        if self.next_id + n > len(self._slots):
            self._slots = resized(self._slots, max(self.next_id + n, 2 * len(self._slots)), fill=NONE)
        self._vectors[self._n : self._n + n] = X
        self._ids[self._n : self._n + n] = ids
        self._slots[ids] = np.arange(self._n, self._n + n)
        self._n += n
        self.next_id += n
        self.version += 1
        return ids

    def remove(self, ids: np.ndarray) -> None:
        """Remove stored vectors. Ids must be distinct."""
        self._own_vectors()
        for i in ids:
            slot, last = self._slots[i], self._n - 1
            self._vectors[slot] = self._vectors[last]
            self._ids[slot] = self._ids[last]
            self._slots[self._ids[slot]] = slot
            self._slots[i] = NONE
            self._n -= 1
        self.version += 1

    def replace(self, ids: np.ndarray, X: np.ndarray) -> None:
        """Replace stored vectors. Ids must be distinct."""
        self._own_vectors()
        self._vectors[self._slots[ids]] = X
        self.version += 1

    def _own_vectors(self) -> None:
        """Copy vectors from a read-only memory map, so that they can be changed."""
        if not self._vectors.flags.writeable:
            self._vectors = self._vectors.copy()

    def reroute(self, n: int) -> None:
        """Move ``n`` random vectors to the cluster list that fits best by now."""

    def allow(self, ids: np.ndarray) -> Allowed:
        """Return the set of stored vectors that a search may return. It is valid until the next change."""
        is_allowed = np.zeros(self._n, np.bool_)
        is_allowed[self._slots[ids]] = True
        return Allowed(self, self.version, is_allowed, int(np.count_nonzero(is_allowed)))

    def search(
        self,
        Q: np.ndarray,
        k: int,
        target_recall: float = 0.95,
        among: Allowed | None = None,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the scores of the ``k`` best vectors for each query.

        Parameters
        ----------
        Q : ndarray of float32, shape (n_queries, n_features)
            Queries; for the cosine, not zero.
        k : int
            Number of results for each query.
        target_recall : float, default 0.95
            The fraction of the true ``k`` best vectors to find. At 1, the search is exact.
        among : Allowed, optional
            The result of :meth:`allow`. Only these vectors are returned.
        n_threads : int, default 1
            Maximum number of threads.

        Returns
        -------
        ids : ndarray of int64, shape (n_queries, k)
            Best first, equal scores by id. -1 if there are fewer vectors.
        scores : ndarray of float64, shape (n_queries, k)
            The scores; minus infinity if there are fewer vectors.
        """
        if among is not None and (among.owner is not self or among.version != self.version):
            raise ValueError("the set of allowed vectors is of another index or of an earlier version of this one")
        return self._search_exactly(Q, k, among, n_threads)

    def _search_exactly(
        self, Q: np.ndarray, k: int, among: Allowed | None, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        ids, scores = np.full((len(Q), k), NONE), np.full((len(Q), k), -np.inf)
        slots = np.arange(self._n) if among is None else np.flatnonzero(among.is_allowed)
        slots = slots[np.argsort(self._ids[slots])]
        stored = self._vectors[slots].astype(np.float64)

        def answer(first: int, stop: int) -> None:
            for begin in range(first, stop, _ROWS_AT_ONCE):
                some = slice(begin, min(stop, begin + _ROWS_AT_ONCE))
                found = _all_scores(Q[some].astype(np.float64), stored, self.metric)
                best = np.argsort(-found, axis=1, kind="stable")[:, :k]
                ids[some, : best.shape[1]] = self._ids[slots[best]]
                scores[some, : best.shape[1]] = np.take_along_axis(found, best, axis=1)

        share_rows(answer, len(Q), n_threads)
        return ids, scores

    def recall(self, Q: np.ndarray, k: int, target_recall: float) -> float:
        """Return the fraction of the true ``k`` best vectors that a search with this target finds."""
        k = min(k, self._n)
        if k == 0 or len(Q) == 0:
            return 1.0
        found, _ = self.search(Q, k, target_recall)
        best, _ = self._search_exactly(Q, k, None, 1)
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(best, found, strict=True)]))

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the persistent state: arrays, and scalars that JSON can express."""
        facts = {"n_features": self.n_features, "metric": self.metric, "random_state": self.random_state}
        arrays = {"vectors": self._vectors[: self._n], "ids": self._ids[: self._n]}
        return arrays, facts | {"next_id": self.next_id}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with this state. Raise InvariantError if the state is invalid.

        The vectors may be a memory map; they are copied when the index first grows.
        """
        index = cls(facts["n_features"], facts["metric"], facts["random_state"])
        index._vectors, index._ids = arrays["vectors"], arrays["ids"]
        index._n, index.next_id = len(index._ids), facts["next_id"]
        require(
            index._vectors.dtype == np.float32 and index._vectors.shape == (index._n, index.n_features),
            "vectors must be float32 with a row for each id",
        )
        require(index._ids.dtype == np.int64 and index._ids.ndim == 1, "ids must be int64")
        require(bool(((index._ids >= 0) & (index._ids < index.next_id)).all()), "ids must be below next_id")
        index._slots = np.full(max(_SMALLEST, index.next_id), NONE)
        index._slots[index._ids] = np.arange(index._n)
        index.check_invariants()
        return index

    def copy(self) -> Self:
        """Return an independent copy."""
        arrays, facts = self.arrays()
        return type(self).of_arrays({name: array.copy() for name, array in arrays.items()}, facts)

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        slots = self._slots[self._ids[: self._n]]
        if not np.array_equal(slots, np.arange(self._n)):
            raise InvariantError("each id must be stored once")
        require(bool(np.isfinite(self._vectors[: self._n]).all()), "vectors must be finite")


def _all_scores(Q: np.ndarray, V: np.ndarray, metric: str) -> np.ndarray:
    """Return the score of each vector for each query, float64."""
    products: np.ndarray = Q @ V.T
    if metric == "cosine":
        lengths = np.sqrt(np.outer(np.einsum("ij,ij->i", Q, Q), np.einsum("ij,ij->i", V, V)))
        return products / lengths
    if metric == "euclidean":
        squares = np.einsum("ij,ij->i", Q, Q)[:, None] + np.einsum("ij,ij->i", V, V) - 2 * products
        distances: np.ndarray = -np.sqrt(np.maximum(squares, 0.0))
        return distances
    return products
