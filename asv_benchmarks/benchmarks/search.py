"""Queries: time, memory and recall."""

from time import process_time

import numpy as np

from cmt_numba import ContextualMemoryTree
from cmt_numba.metrics import recall_at

from .keys import FORMS
from .trees import DIALLED, NEIGHBOURS, SIZES, Grown, WithTrees, read_grown

_SINGLE = 100  # rows queried one at a time


class Query(WithTrees):
    """Query a single tree, with one leaf per query, on one thread."""

    params = (FORMS, SIZES)
    param_names = ("form", "memories")
    timer = process_time

    def setup(self, form: str, n: int) -> None:
        """Load a tree and compile all kernels."""
        self.grown = read_grown(form, n)
        self.tree = self.grown.tree
        self.tree.query(self.grown.queries[:1])

    def time_batch_of_1000(self, form: str, n: int) -> None:
        """Query all rows in one batch."""
        self.tree.query(self.grown.queries)

    def time_100_single_rows(self, form: str, n: int) -> None:
        """Query rows one at a time."""
        for i in range(_SINGLE):
            self.tree.query(self.grown.queries[[i]])

    def peakmem_batch_of_1000(self, form: str, n: int) -> None:
        """Query all rows in one batch. The peak includes the tree."""
        self.tree.query(self.grown.queries)

    def track_bytes_per_memory(self, form: str, n: int) -> float:
        """Return the bytes that the tree allocates per memory, key included."""
        return self.tree.nbytes / n

    track_bytes_per_memory.unit = "bytes"  # type: ignore[attr-defined]

    def track_error(self, form: str, n: int) -> float:
        """Return the fraction of queries that did not find their key."""
        return _error(self.tree, self.grown, None)

    def track_self_consistency(self, form: str, n: int) -> float:
        """Return the fraction of keys that find themselves."""
        return _self_consistency(self.tree, self.grown, None)

    def track_recall_at_10(self, form: str, n: int) -> float:
        """Return the fraction of the ten nearest keys that were found."""
        return _recall(self.tree, self.grown, None)


class Dials(WithTrees):
    """Query 100,000 memories with more leaves and more trees, on one thread."""

    params = (FORMS, [1, 4], [1, 4, 16])
    param_names = ("form", "trees", "leaves of each tree")
    timer = process_time

    def setup(self, form: str, n_trees: int, n_leaves: int) -> None:
        """Load a forest and compile all kernels."""
        self.grown = read_grown(form, DIALLED, n_trees)
        self.tree = self.grown.tree
        self.n_probes = n_trees * n_leaves
        self.tree.query(self.grown.queries[:1])

    def time_batch_of_1000(self, form: str, n_trees: int, n_leaves: int) -> None:
        """Query all rows in one batch."""
        self.tree.query(self.grown.queries, n_probes=self.n_probes)

    def track_error(self, form: str, n_trees: int, n_leaves: int) -> float:
        """Return the fraction of queries that did not find their key. Exact search finds nearly all."""
        return _error(self.tree, self.grown, self.n_probes)

    def track_self_consistency(self, form: str, n_trees: int, n_leaves: int) -> float:
        """Return the fraction of keys that find themselves."""
        return _self_consistency(self.tree, self.grown, self.n_probes)

    def track_recall_at_10(self, form: str, n_trees: int, n_leaves: int) -> float:
        """Return the fraction of the ten nearest keys that were found."""
        return _recall(self.tree, self.grown, self.n_probes)


class Threads(WithTrees):
    """Query 100,000 memories in four trees, on one thread and on two."""

    params = (FORMS, [1, 2])
    param_names = ("form", "threads")

    def setup(self, form: str, n_threads: int) -> None:
        """Load a forest and compile all kernels."""
        self.grown = read_grown(form, DIALLED, 4, n_threads)
        self.grown.tree.query(self.grown.queries[:1])

    def time_batch_of_1000(self, form: str, n_threads: int) -> None:
        """Query all rows in one batch."""
        self.grown.tree.query(self.grown.queries)

    def time_100_single_rows(self, form: str, n_threads: int) -> None:
        """Query rows one at a time, where a second thread cannot help and must not slow down the first."""
        for i in range(_SINGLE):
            self.grown.tree.query(self.grown.queries[[i]])


def _error(tree: ContextualMemoryTree, grown: Grown, n_probes: int | None) -> float:
    hits = tree.query(grown.queries, n_probes=n_probes)
    return float(np.mean(hits.ids[:, 0] != grown.answers))


def _self_consistency(tree: ContextualMemoryTree, grown: Grown, n_probes: int | None) -> float:
    hits = tree.query(grown.some_keys, n_probes=n_probes)
    return float(np.mean(hits.ids[:, 0] == grown.ids[: hits.ids.shape[0]]))


def _recall(tree: ContextualMemoryTree, grown: Grown, n_probes: int | None) -> float:
    queries = grown.queries[: grown.neighbours.shape[0]]
    return recall_at(tree.query(queries, k=NEIGHBOURS, n_probes=n_probes).ids, grown.neighbours, NEIGHBOURS)
