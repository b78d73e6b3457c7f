"""Memories that learn from rewards: those of this package, Vowpal Wabbit's, and simple rivals in NumPy.

``start(keys)`` stores memories, ``insert(keys)`` adds more; ids are 0, 1, 2, ... ``query(Q, k)`` returns ids of shape
(n, k), -1 for none. ``learn(Q, ids, rewards)`` receives the rewards of returned memories.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize

from cmt_numba import MemoryStore


def _unit(X: Any) -> np.ndarray:
    rows: np.ndarray = normalize(X.toarray() if scipy.sparse.issparse(X) else X).astype(np.float32)
    return rows


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


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
        for query, own, given in zip(_unit(Q), ids, rewards, strict=True):
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
        for memory, reward in zip(ids.ravel(), rewards.ravel(), strict=True):
            self.values[memory] += 0.1 * (reward - self.values[memory])


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
        for line, memory, reward in zip(self._lines(Q), ids[:, 0], rewards[:, 0], strict=True):
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


_MEMORY_TREE = "--memory_tree 4096 --max_number_of_labels 100000 --learn_at_leaf --leaf_example_multiplier 8"
LEARNERS: dict[str, Callable[[], Any]] = {
    "static": Static,
    "MemoryStore": Store,
    "Rocchio": Rocchio,
    "value per memory": ValuePerMemory,
    "VW --emt": partial(Vowpal, "--emt"),
    "VW --memory_tree": partial(Vowpal, _MEMORY_TREE),
}
"""Functions that make a learner, by name."""

ONE_AT_A_TIME = {"VW --emt", "VW --memory_tree"}
"""Learners that return one memory."""
