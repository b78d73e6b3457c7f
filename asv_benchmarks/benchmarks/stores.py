"""Stores: time and memory to add, query, filter and learn from feedback, and recall."""

import pickle
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cmt_numba import MemoryStore
from cmt_numba.metrics import recall_at

from .keys import Data, exact_neighbours, make_clustered, make_questions

SIZES = (1_000, 100_000)
RECALLS = (0.95,)
K = 10
_FEATURES = 128
_QUERIES = 500
_ASKED_EXACTLY = 200
_SINGLE = 100  # rows queried one at a time
_POPULAR = 25  # memories that questions ask for
_RATED = 250  # rated queries, and as many others
_SHARE = 20  # 1 of this many memories passes the filter


def make_clusters(n: int) -> Data:
    """Return the vectors and queries of all benchmarks of stores."""
    return make_clustered(n, _QUERIES, _FEATURES)


def fill(data: Data) -> Any:
    """Return a store of the vectors, with a payload to filter by."""
    store = MemoryStore(random_state=0)
    n = data.keys.shape[0]
    store.add(np.arange(n), data.keys, payloads=[{"group": i % _SHARE} for i in range(n)])
    return store


class Add:
    """Add all vectors with payloads to an empty store, in one call or one at a time."""

    params = (SIZES,)
    param_names = ("memories",)
    number = 1
    timer = process_time

    def setup(self, n: int) -> None:
        """Make the vectors and compile all kernels."""
        self.data = make_clusters(n)
        self.store = fill(make_clusters(300))

    def time_add(self, n: int) -> None:
        """Add all vectors in one call."""
        fill(self.data)

    def time_add_100_single_rows(self, n: int) -> None:
        """Add vectors one at a time to a small store."""
        for i in range(_SINGLE):
            self.store.upsert([i], self.data.keys[[i]])

    def peakmem_add(self, n: int) -> None:
        """Add all vectors in one call."""
        fill(self.data)


class WithStores:
    """Base class of the benchmarks of filled stores, which run in the folder that contains the stores."""

    timeout = 900
    timer = process_time
    where: Any = None

    def setup_cache(self) -> None:
        """Fill all stores."""
        for n in SIZES:
            with _path(n).open("wb") as file:
                pickle.dump(fill(make_clusters(n)), file, pickle.HIGHEST_PROTOCOL)

    def load(self, n: int) -> None:
        """Read a store and make its queries."""
        self.data = make_clusters(n)
        with _path(n).open("rb") as file:
            self.store = pickle.load(file)

    def query(self, rows: np.ndarray, recall: float) -> np.ndarray:
        """Return the keys of the nearest memories."""
        return self.store.query(rows, k=K, where=self.where, target_recall=recall).keys

    def recall(self, recall: float) -> float:
        """Return the fraction of the nearest memories that were found."""
        stored = np.arange(self.data.keys.shape[0]) if self.where is None else np.arange(0, len(self.store), _SHARE)
        rows = self.data.queries[:_ASKED_EXACTLY]
        exact = stored[exact_neighbours(self.data.keys[stored], rows, K)]
        return recall_at(self.query(rows, recall), exact, K)


class Query(WithStores):
    """Query a store at a target recall, on one thread."""

    params = (SIZES, RECALLS)
    param_names = ("memories", "target recall")

    def setup(self, n: int, recall: float) -> None:
        """Load a store, choose its search effort, and compile all kernels."""
        self.load(n)
        self.query(self.data.queries, recall)
        self.query(self.data.queries[:1], recall)

    def time_batch_of_500(self, n: int, recall: float) -> None:
        """Query all rows in one batch."""
        self.query(self.data.queries, recall)

    def time_100_single_rows(self, n: int, recall: float) -> None:
        """Query rows one at a time."""
        for i in range(_SINGLE):
            self.query(self.data.queries[[i]], recall)

    def peakmem_batch_of_500(self, n: int, recall: float) -> None:
        """Query all rows in one batch. The peak includes the store."""
        self.query(self.data.queries, recall)

    def track_recall(self, n: int, recall: float) -> float:
        """Return the fraction of the ten nearest memories that were found."""
        return self.recall(recall)


class QueryFiltered(Query):
    """Query a store for the 5 % of its memories that match a filter."""

    where = {"group": 0}  # noqa: RUF012


class Feedback(WithStores):
    """Learn from rewards which of 25 popular memories to return."""

    params = (SIZES,)
    param_names = ("memories",)
    number = 1  # each run changes the store, so each run loads its own

    def setup(self, n: int) -> None:
        """Load a store, prepare the queries, and compile all kernels."""
        self.load(n)
        self.queries, self.answers = make_questions(self.data.keys, _POPULAR, 2 * _RATED)
        self.reward(1)
        self.error()
        self.load(n)

    def reward(self, n_rows: int) -> None:
        """Reward the right memory of the first queries."""
        self.store.feedback(self.queries[:n_rows], self.answers[:n_rows], np.ones(n_rows))

    def error(self) -> float:
        """Return the fraction of the other queries whose first memory is not the right one."""
        found = self.query(self.queries[_RATED:], RECALLS[0])
        return float(np.mean(found[:, 0] != self.answers[_RATED:]))

    def time_reward_250(self, n: int) -> None:
        """Reward the right memories of 250 queries in one call."""
        self.reward(_RATED)

    def time_reward_100_single_rows(self, n: int) -> None:
        """Reward the right memory of one query at a time."""
        for _ in range(_SINGLE):
            self.reward(1)

    def track_error_before(self, n: int) -> float:
        """Return the error before any feedback."""
        return self.error()

    def track_error_after(self, n: int) -> float:
        """Return the error after feedback on other queries."""
        self.reward(_RATED)
        return self.error()


def _path(n: int) -> Path:
    return Path(f"store-{n}.pickle")
