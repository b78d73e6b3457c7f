"""Learning from queries with known answers and from rewards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._forest import NONE, as_matrix
from ..tree import ContextualMemoryTree
from ._checks import Key
from ._metrics import blocks
from ._query_map import QueryMap, RewardedQueries
from ._results import Results
from ._search import stored_units

_ROWS_IN_A_BLOCK = 256  # number of queries answered between two changes of the trees


class Teachable(Protocol):
    """The store methods that :func:`learn_in_blocks` calls."""

    def query(self, X: Any, k: int = 10) -> Results:
        """Return the nearest memories for each row."""

    def feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        """Learn from rewards of memories."""


def learn_in_blocks(store: Teachable, X: Any, keys: list[Key], n_passes: int) -> float:
    """Teach a store the correct answers to queries, in blocks and in random order.

    Returns
    -------
    float
        The fraction of queries whose first result was correct in the last pass, before the store learned from them.
    """
    draws, n_right = np.random.default_rng(X.shape[0]), 0
    for _ in range(n_passes):
        order, n_right = draws.permutation(X.shape[0]), 0
        for first in range(0, order.size, _ROWS_IN_A_BLOCK):
            block = order[first : first + _ROWS_IN_A_BLOCK]
            own = [keys[i] for i in block]
            answers = store.query(X[block], 1).keys[:, 0]
            n_right += sum(answer == key for answer, key in zip(answers.tolist(), own, strict=True))
            store.feedback(X[block], own, np.ones(len(own)))
    return float(n_right / X.shape[0])


def taught_by(
    tree: ContextualMemoryTree, query_map: QueryMap | None, X: np.ndarray, ids: np.ndarray, rewards: np.ndarray
) -> QueryMap:
    """Return the query map after it has learned from the rewards of memories, given by id (-1 for no memory)."""
    taught, state = query_map or QueryMap.untaught(X.shape[1]), tree._forest.allocated()
    asked, slots = as_matrix(tree._forest.check_rows(X)), tree._forest.slots_of(ids.reshape(-1)).reshape(ids.shape)
    rewards = np.where(slots == NONE, np.nan, rewards)
    for first, stop in blocks(X.shape[0], ids.shape[1] * X.shape[1]):
        some = slots[first:stop]
        there = some != NONE
        shown = np.zeros((*some.shape, X.shape[1]), np.float32)
        shown[there] = stored_units(state, some[there])
        taught = taught.taught(RewardedQueries(asked[first:stop], shown, rewards[first:stop]))
    return taught
