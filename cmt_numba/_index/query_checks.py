"""Queries whose recall is checked now and then."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import NamedTuple

import numpy as np

_ROWS_PER_CHECK = 1024.0  # one of so many searched rows is checked, so that this takes about a hundredth of the time
_ROW_OF_BATCH = 0.25  # what a row of a batch counts, because its search takes less time
_AT_ONCE = 8  # number of queries that are checked together
_GOLDEN = 0.618034  # multiples of it, modulo 1, are evenly spread
_LATEST = 256  # number of checked queries that count


class CheckedQuery(NamedTuple):
    """A query to check."""

    x: np.ndarray
    k: int
    target_recall: float


class QueryChecks:
    """The queries to check next, and the recall of the latest checks. Threads may use it at the same time."""

    def __init__(self) -> None:
        self._n_rows = 0.0
        self._begin = 0.0  # the place of the first checked row in its batch, from 0 to 1
        self._waiting: list[CheckedQuery] = []
        self._taking = Lock()
        self._recalls: deque[float] = deque(maxlen=_LATEST)

    @property
    def recall(self) -> float | None:
        """The mean recall of the latest checks, or None before the first one."""
        recalls = list(self._recalls)
        return sum(recalls) / len(recalls) if recalls else None

    def add(self, recalls: list[float]) -> None:
        """Note the recall of checked queries."""
        self._recalls.extend(recalls)

    def due(self, Q: np.ndarray, k: int, target_recall: float, together: bool) -> list[CheckedQuery]:
        """Count searched rows, and return queries to check now; most of the time there are none."""
        self._n_rows += len(Q) * _ROW_OF_BATCH if together else len(Q)
        if self._n_rows < _ROWS_PER_CHECK:
            return []
        n = min(int(self._n_rows / _ROWS_PER_CHECK), _AT_ONCE, len(Q))
        self._n_rows %= _ROWS_PER_CHECK
        self._begin = (self._begin + _GOLDEN) % 1.0
        rows = (len(Q) * ((self._begin + np.arange(n) / n) % 1.0)).astype(int)
        chosen = [CheckedQuery(Q[i].copy(), k, target_recall) for i in rows]
        with self._taking:
            self._waiting.extend(chosen)
            if len(self._waiting) < _AT_ONCE:
                return []
            waiting, self._waiting = self._waiting, []
        return waiting
