"""``KeyIndex``: the forest of a retriever as an index for learned searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._engine import Forest, query_forest
from .._feedback import score_sparse
from .._forest import NONE, as_matrix, find_slots, rescaled, stored_rows
from .._validation import check_rows


class KeyIndex:
    """The keys in a forest, by their ids in it, as an index for :class:`~cmt_numba._feedback.LearnedSearch`.

    Parameters
    ----------
    forest : Forest
        The forest.
    n_probes : int or None
        The number of leaves to search.
    """

    metric = "cosine"

    def __init__(self, forest: Forest, n_probes: int | None) -> None:
        state = forest.allocated()
        self._forest, self._n_probes = forest, n_probes
        self.n_features, self.is_sparse = state.parameters.n_features, state.parameters.sparse
        self.next_id = forest.next_id

    def search(
        self, Q: Any, k: int, target_recall: float = 1.0, among: None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the scores of the best ``k`` keys for each query. Ignore the other arguments."""
        hits = query_forest(self._forest, rescaled(check_rows(Q, sparse=self.is_sparse)), k, self._n_probes)
        return hits.ids.copy(), hits.scores.astype(np.float64)

    def vectors(self, ids: np.ndarray) -> Any:
        """Return keys, scaled to unit length, as an array or a CSR array."""
        slots, state = np.full(ids.size, NONE), self._forest.allocated()
        find_slots(state.keys, ids, slots)
        return as_matrix(stored_rows(state, slots))

    def scores(self, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the cosines of sparse keys and queries, arrays of shape (n, m)."""
        return score_sparse(self.metric, Q, self.vectors(ids.reshape(-1)))
