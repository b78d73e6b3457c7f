"""Inserting, removing and rerouting memories: time and memory."""

import numpy as np

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, make_data


class Insert:
    """Insert all keys into an empty tree, in one call and on one thread."""

    params = (FORMS, [1_000, 10_000, 100_000], [1, 4])
    param_names = ("form", "memories", "trees")

    def setup(self, form: str, n: int, n_trees: int) -> None:
        """Make the keys and have everything compiled."""
        self.keys = make_data(form, n).keys
        self.insert(self.keys[:100], n_trees)

    def insert(self, keys: np.ndarray, n_trees: int) -> ContextualMemoryTree:
        """Return a tree of the keys."""
        tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
        tree.insert(keys)
        return tree

    def time_insert(self, form: str, n: int, n_trees: int) -> None:
        """Insert everything."""
        self.insert(self.keys, n_trees)

    def peakmem_insert(self, form: str, n: int, n_trees: int) -> None:
        """Insert everything."""
        self.insert(self.keys, n_trees)

    def track_bytes_per_memory(self, form: str, n: int, n_trees: int) -> float:
        """Return what the tree allocates for each memory, key included."""
        return self.insert(self.keys, n_trees).nbytes / n

    track_bytes_per_memory.unit = "bytes"  # type: ignore[attr-defined]


class Change:
    """Change a tree that holds many memories, on one thread."""

    params = (FORMS, [10_000, 100_000])
    param_names = ("form", "memories")
    number = 1  # each run changes the tree, so each has a tree of its own

    def setup(self, form: str, n: int) -> None:
        """Grow a tree."""
        self.data = make_data(form, n)
        self.tree = ContextualMemoryTree(n_threads=1, random_state=0)
        self.ids = self.tree.insert(self.data.keys)
        self.tree.remove(self.ids[:1])
        self.tree.reroute(1)
        self.hits = self.tree.query(self.data.queries, k=3, epsilon=0.5)
        self.rewards = (self.hits.ids == self.data.answers[:, None]).astype(np.float32)
        self.tree.update(self.data.queries[:1], self.tree.query(self.data.queries[:1]), [1.0])

    def time_remove_1000(self, form: str, n: int) -> None:
        """Remove memories in one call."""
        self.tree.remove(self.ids[1:1001])

    def time_reroute_1000(self, form: str, n: int) -> None:
        """Reroute memories in one call."""
        self.tree.reroute(1000)

    def time_update_1000(self, form: str, n: int) -> None:
        """Learn from the rewards of a batch of queries, half of which explored."""
        self.tree.update(self.data.queries, self.hits, self.rewards)

    def time_100_single_steps(self, form: str, n: int) -> None:
        """Remove one memory and insert another, again and again."""
        for i in range(1, 101):
            self.tree.remove(self.ids[i])
            self.tree.insert(self.data.keys[[i]])
