"""Queries: time, and how good the answers are."""

import numpy as np

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, make_data


class Query:
    """Ask a tree or a forest of 100,000 memories; exact search would find nearly every answer."""

    params = (FORMS, [1, 4], [1, 4])
    param_names = ("form", "trees", "leaves of each tree")

    def setup(self, form: str, n_trees: int, n_leaves: int) -> None:
        """Grow a tree and have everything compiled."""
        self.data = make_data(form, 100_000)
        self.tree = ContextualMemoryTree(n_trees, random_state=0)
        self.ids = self.tree.insert(self.data.keys)
        self.n_probes = n_trees * n_leaves
        self.tree.query(self.data.queries[:1])

    def time_batch_of_1000(self, form: str, n_trees: int, n_leaves: int) -> None:
        """Ask all at once, on all threads."""
        self.tree.query(self.data.queries, n_probes=self.n_probes)

    def time_100_single_rows(self, form: str, n_trees: int, n_leaves: int) -> None:
        """Ask one row after another."""
        for i in range(100):
            self.tree.query(self.data.queries[[i]], n_probes=self.n_probes)

    def track_error(self, form: str, n_trees: int, n_leaves: int) -> float:
        """Return the share of queries whose key was not found."""
        hits = self.tree.query(self.data.queries, n_probes=self.n_probes)
        return float(np.mean(hits.ids[:, 0] != self.data.answers))

    def track_self_consistency(self, form: str, n_trees: int, n_leaves: int) -> float:
        """Return the share of keys that find themselves."""
        hits = self.tree.query(self.data.keys[:10_000], n_probes=self.n_probes)
        return float(np.mean(hits.ids[:, 0] == self.ids[:10_000]))
