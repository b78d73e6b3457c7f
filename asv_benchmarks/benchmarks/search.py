"""Queries: time, memory and recall."""

from time import process_time

import numpy as np

from cmt_numba.metrics import recall_at

from .keys import FORMS
from .trees import NEIGHBOURS, SIZES, WithTrees, read_grown

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
        return float(np.mean(self.tree.query(self.grown.queries).ids[:, 0] != self.grown.answers))

    def track_self_consistency(self, form: str, n: int) -> float:
        """Return the fraction of keys that find themselves."""
        found = self.tree.query(self.grown.some_keys).ids[:, 0]
        return float(np.mean(found == self.grown.ids[: found.size]))

    def track_recall_at_10(self, form: str, n: int) -> float:
        """Return the fraction of the ten nearest keys that were found."""
        found = self.tree.query(self.grown.queries[: self.grown.neighbours.shape[0]], k=NEIGHBOURS).ids
        return recall_at(found, self.grown.neighbours, NEIGHBOURS)
