"""Memories that learn from rewards: those of this package, and simple rivals in NumPy.

``start(keys)`` stores memories, ``insert(keys)`` adds more; ids are 0, 1, 2, ... ``query(Q, k)`` returns ids of shape
(n, k), -1 for none. ``learn(Q, ids, rewards)`` receives the rewards of returned memories, or one for each query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize

from cmt_numba import CMTRetriever, ContextualMemoryTree, MemoryStore
from cmt_numba.bandits import CMTBandit


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


class Store:
    """A ``MemoryStore``."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.store: Any = MemoryStore(random_state=0)
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


class Shards(Store):
    """A ``ShardedStore`` of two shards."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        from cmt_numba.distributed import ShardedStore  # slow to import

        self.store = ShardedStore(2, random_state=0)
        self.insert(keys)


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


class Bandit:
    """A ``CMTBandit`` whose actions are memories: it returns one for each query."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.bandit = CMTBandit(random_state=0)
        self.insert(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        first = self.bandit.actions.size
        self.bandit.add_actions(np.arange(first, first + keys.shape[0]), keys)

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the chosen actions."""
        assert k == 1, "a bandit returns one memory: pass --k 1"
        return self.bandit.act(Q).actions[:, None]

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of chosen actions."""
        self.bandit.learn(Q, ids.ravel(), rewards.ravel())


class Tree:
    """A ``ContextualMemoryTree``, which learns by UPDATE of the paper."""

    def start(self, keys: Any) -> None:
        """Store memories."""
        self.tree = ContextualMemoryTree(n_trees=4, random_state=0)
        self.insert(keys)

    def insert(self, keys: Any) -> None:
        """Store more memories."""
        self.tree.insert(keys)

    def query(self, Q: Any, k: int) -> np.ndarray:
        """Return the ids of the best memories."""
        self.hits = self.tree.query(Q, k)
        return self.hits.ids

    def learn(self, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of returned memories, if all queries have some."""
        if len(ids) == len(self.hits.ids):
            self.tree.update(Q, self.hits, rewards)


LEARNERS: dict[str, Callable[[], Any]] = {
    "static": Static,
    "MemoryStore": Store,
    "ShardedStore": Shards,
    "CMTRetriever": Retriever,
    "CMTBandit": Bandit,
    "ContextualMemoryTree": Tree,
    "Rocchio": Rocchio,
    "value per memory": ValuePerMemory,
}
"""Functions that make a learner, by name."""
