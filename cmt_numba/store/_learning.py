"""Learning from queries with known answers and from rewards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ._checks import Key
from ._results import Results

_ROWS_IN_A_BLOCK = 256  # number of queries answered between two changes of the store


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
