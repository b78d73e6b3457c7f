"""Insert, update, remove and reroute memories: time and memory."""

from time import process_time

import numpy as np

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, make_data
from .trees import SIZES, WithTrees, read_grown

_CHANGED = 500  # memories or rows per call


class Insert:
    """Insert all keys into an empty tree, in one call on one thread."""

    params = (FORMS, SIZES)
    param_names = ("form", "memories")
    timer = process_time
    number = 1

    def setup(self, form: str, n: int) -> None:
        """Make the keys and compile all kernels."""
        self.keys = make_data(form, n).keys
        self.insert(self.keys[:100])

    def insert(self, keys: np.ndarray) -> ContextualMemoryTree:
        """Return a tree that holds the keys."""
        tree = ContextualMemoryTree(n_threads=1, random_state=0)
        tree.insert(keys)
        return tree

    def time_insert(self, form: str, n: int) -> None:
        """Insert all keys."""
        self.insert(self.keys)

    def peakmem_insert(self, form: str, n: int) -> None:
        """Insert all keys."""
        self.insert(self.keys)


class Change(WithTrees):
    """Change a tree of many memories, on one thread."""

    params = (FORMS, SIZES)
    param_names = ("form", "memories")
    timer = process_time
    number = 1  # each run changes the tree, so each run loads its own

    def setup(self, form: str, n: int) -> None:
        """Load a tree, compile all kernels, and run the query that the update learns from."""
        grown = read_grown(form, n)
        self.tree, self.ids, self.keys, self.queries = grown.tree, grown.ids, grown.some_keys, grown.queries[:_CHANGED]
        self.tree.remove(self.ids[:1])
        self.tree.reroute(1)
        self.hits = self.tree.query(self.queries, k=3, epsilon=0.5)
        self.rewards = (self.hits.ids == grown.answers[:_CHANGED, None]).astype(np.float32)
        self.tree.update(self.queries[:100], self.hits[:100], self.rewards[:100])  # the tree learns from these at once

    def time_insert_500(self, form: str, n: int) -> None:
        """Insert 500 memories in one call."""
        self.tree.insert(self.queries)

    def time_remove_500(self, form: str, n: int) -> None:
        """Remove 500 memories in one call."""
        self.tree.remove(self.ids[1 : _CHANGED + 1])

    def time_reroute_500(self, form: str, n: int) -> None:
        """Reroute 500 memories in one call."""
        self.tree.reroute(_CHANGED)

    def time_update_500(self, form: str, n: int) -> None:
        """Update from the rewards of a batch of queries, half of which explored."""
        self.tree.update(self.queries, self.hits, self.rewards)

    def time_100_single_steps(self, form: str, n: int) -> None:
        """Remove one memory and insert another, 100 times."""
        for i in range(1, 101):
            self.tree.remove(self.ids[i])
            self.tree.insert(self.keys[[i]])
