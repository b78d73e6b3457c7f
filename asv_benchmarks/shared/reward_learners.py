"""Memories that learn from rewards: those of this package, Vowpal Wabbit's, and simple rivals in NumPy.

``start(keys)`` stores memories, ``insert(keys)`` adds more; ids are 0, 1, 2, ... ``query(Q, k)`` returns ids of shape
(n, k), -1 for none. ``learn(Q, ids, rewards)`` receives the rewards of returned memories, or one for each query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from cmt_numba import CMTRetriever, MemoryStore


def _unit(X: Any) -> np.ndarray:
    rows: np.ndarray = normalize(X.toarray() if scipy.sparse.issparse(X) else X).astype(np.float32)
    return rows


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def _of_each(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return rewards of shape (n, k)."""
    return np.broadcast_to(rewards[:, None] if rewards.ndim == 1 else rewards, ids.shape)


class Static:
    """The most similar memories."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.keys = _unit(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        self.keys = np.vstack([self.keys, _unit(keys)])

    def scores(self, Q: np.ndarray) -> np.ndarray:
        """Return the score of each memory for each query."""
        return Q @ self.keys.T

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        return _best(self.scores(_unit(Q)), k)

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn nothing."""


class Rocchio(Static):
    """A rewarded query pulls the key of its memory towards itself, an unrewarded one pushes it away."""

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        for query, own, given in zip(_unit(Q), ids, _of_each(rewards, ids), strict=True):
            for memory, reward in zip(own, given, strict=True):
                moved = self.keys[memory] + (0.3 * reward - 0.1 * (1 - reward)) * query
                self.keys[memory] = moved / max(np.linalg.norm(moved), 1e-6)


class ValuePerMemory(Static):
    """Similarity plus a value for each memory, an average of its rewards, for the 50 most similar memories."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        super().start(keys)
        self.values = np.full(len(self.keys), 0.5)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        super().insert(keys)
        self.values = np.append(self.values, np.full(keys.shape[0], 0.5))

    def scores(self, Q: np.ndarray) -> np.ndarray:
        """Return the score of each memory for each query."""
        similar = Q @ self.keys.T
        least = np.partition(similar, -50, axis=1)[:, -50:-49]
        return np.where(similar >= least, similar + 0.3 * self.values, -np.inf)

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        for memory, reward in zip(ids.ravel(), _of_each(rewards, ids).ravel(), strict=True):
            self.values[memory] += 0.1 * (reward - self.values[memory])


class Refitted(Rocchio):
    """Logistic regression on features of the 40 best candidates, fitted again every 200 queries.

    The features are the similarity, its distance from the best, the gain by Rocchio's method, the mean reward and the
    numbers of good and bad trials for similar queries, and the mean reward and the number of trials of the memory.
    """

    def start(self, keys: Any) -> None:
        """Store memories."""
        super().start(keys)
        self.first, self.model, self.n_waiting = self.keys.copy(), None, 0
        self.queries, self.ids, self.given = np.zeros((0, keys.shape[1]), np.float32), np.zeros(0, int), np.zeros(0)
        self.rows, self.rewards = [], []  # type: ignore[var-annotated]

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        super().insert(keys)
        self.first = np.vstack([self.first, _unit(keys)])

    def _features(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        similar, m = Q @ self.first.T, len(self.first)
        moved, near = Q @ self.keys.T - similar, np.exp(12 * (Q @ self.queries.T - 1))
        owners = scipy.sparse.csr_array(
            (np.ones(self.ids.size), (np.arange(self.ids.size), self.ids)), (self.ids.size, m)
        )
        won, lost = (near * self.given) @ owners, (near * (1 - self.given)) @ owners
        mean, shown = (self.given.sum() + 1) / (self.given.size + 2), np.bincount(self.ids, minlength=m)
        values = (np.bincount(self.ids, self.given, m) + 3 * mean) / (shown + 3) - mean
        votes = (won + 0.1 * mean) / (won + lost + 0.1) - mean
        best = _best(similar + np.maximum(moved, 0) + 0.3 * votes, 40)
        alone = [values, 0.2 * np.log1p(shown)]
        parts = [similar, similar - similar.max(axis=1, keepdims=True), moved, votes, np.log1p(won), np.log1p(lost)]
        columns = [np.take_along_axis(part, best, 1) for part in parts] + [part[best] for part in alone]
        return best, np.stack(columns, axis=2)

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        best, features = self._features(_unit(Q))
        scores = features[:, :, 0] if self.model is None else features @ self.model
        return np.take_along_axis(best, _best(scores, k), 1)

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        if len(ids) == 0:
            return
        given, (best, features) = _of_each(rewards, ids), self._features(_unit(Q))
        row, column, place = np.nonzero(ids[:, :, None] == best[:, None])
        self.rows.append(features[row, place])
        self.rewards.append(given[row, column])
        super().learn(Q, ids, rewards)
        self.queries = np.vstack([self.queries, np.repeat(_unit(Q), ids.shape[1], axis=0)])
        self.ids, self.given = np.append(self.ids, ids), np.append(self.given, given)
        self.n_waiting += len(ids)
        y = np.concatenate(self.rewards)
        if self.n_waiting >= 200 and np.ptp(y) > 0:
            self.n_waiting, rows, weights = 0, np.concatenate(self.rows), np.append(y, 1 - y)
            known = weights > 0
            labels = np.repeat([1, 0], y.size)[known]
            model = LogisticRegression(C=10, max_iter=200).fit(np.vstack([rows, rows])[known], labels, weights[known])
            self.model = np.append(max(model.coef_[0, 0], 0.1), model.coef_[0, 1:])


class Vowpal:
    """A memory of Vowpal Wabbit that is taught each key and each rewarded query. It returns one memory."""

    def __init__(self, options: str) -> None:
        import vowpalwabbit

        self.vw, self.n = vowpalwabbit.Workspace(f"{options} --quiet --random_seed 1"), 0

    def _lines(self, X: Any) -> list[str]:
        X = normalize(scipy.sparse.csr_array(X))
        parts = (slice(*span) for span in zip(X.indptr[:-1], X.indptr[1:], strict=True))
        cells = (zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True) for part in parts)
        return ["|x " + " ".join(f"{i}:{x:.4f}" for i, x in row) for row in cells]

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.insert(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        for line in self._lines(keys):
            self.n += 1
            self.vw.learn(f"{self.n} {line}")

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        ids = np.full((Q.shape[0], k), -1)
        ids[:, 0] = [int(self.vw.predict(line)) - 1 for line in self._lines(Q)]
        return np.where(ids < self.n, ids, -1)

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        for line, memory, reward in zip(self._lines(Q), ids[:, 0], _of_each(rewards, ids)[:, 0], strict=True):
            if reward > 0.5 and memory >= 0:
                self.vw.learn(f"{memory + 1} {line}")


class Store:
    """A ``MemoryStore``."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.store = MemoryStore(random_state=0)
        self.insert(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        first = len(self.store)
        self.store.add(np.arange(first, first + keys.shape[0]), keys)

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        return np.asarray(self.store.query(Q, k).keys).astype(np.int64)

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        self.store.feedback(Q, ids, rewards)


class Retriever:
    """A ``CMTRetriever``."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.retriever = CMTRetriever(random_state=0).fit(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        self.retriever.partial_fit(keys)

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        return self.retriever.query(Q, k).ids

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories."""
        self.retriever.feedback(Q, ids, rewards)


_MEMORY_TREE = "--memory_tree 4096 --max_number_of_labels 100000 --learn_at_leaf --leaf_example_multiplier 8"
LEARNERS: dict[str, Callable[[], Any]] = {
    "static": Static,
    "MemoryStore": Store,
    "CMTRetriever": Retriever,
    "Rocchio": Rocchio,
    "value per memory": ValuePerMemory,
    "refitted regression": Refitted,
    "VW --emt": partial(Vowpal, "--emt"),
    "VW --memory_tree": partial(Vowpal, _MEMORY_TREE),
}
"""Functions that make a learner, by name."""

ONE_AT_A_TIME = {"VW --emt", "VW --memory_tree"}
"""Learners that return one memory."""
