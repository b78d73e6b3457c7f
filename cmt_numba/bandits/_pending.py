"""Decisions whose rewards have not come yet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._forest.invariants.errors import require
from .._forest.rows import Rows
from ..persistence._columns import read_array
from ._checks import MOST_ACTIONS
from ._choosing import N_SCORES
from ._models import Arrays, checked

_EMPTY = np.empty(0, np.int32)
_LARGEST_SCORE = 1e9  # in files: more than a scorer gives to a key of length 1


class _Decision(NamedTuple):
    values: np.ndarray  # of the context, float32
    indices: np.ndarray  # int32, empty if it is dense
    action: int
    scores: tuple[float, ...]


class Pending:
    """Decisions by their ids, which ascend. Beyond ``most`` of them the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._decisions: dict[int, _Decision] = {}
        self.next_id = 0

    def __len__(self) -> int:
        return len(self._decisions)

    def enter(self, rows: Rows, actions: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return the ids of new decisions, one for each row."""
        ids = np.arange(self.next_id, self.next_id + actions.size)
        first = max(0, actions.size - self._most)
        while len(self._decisions) + actions.size - first > self._most:
            del self._decisions[next(iter(self._decisions))]
        self.next_id += actions.size
        for i in range(first, actions.size):
            span = slice(rows.offsets[i], rows.offsets[i + 1])
            indices = rows.indices[span].copy() if rows.sparse else _EMPTY
            self._decisions[int(ids[i])] = _Decision(
                rows.values[span].copy(), indices, int(actions[i]), tuple(scores[i].tolist())
            )
        return ids

    def unknown(self, ids: np.ndarray) -> list[int]:
        """Return the ids of no pending decision."""
        return [int(i) for i in ids if int(i) not in self._decisions]

    def take(self, ids: np.ndarray, n_features: int, sparse: bool) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Return the contexts, actions and scores of decisions."""
        decisions = [self._decisions[int(i)] for i in ids]
        return (
            _joined(decisions, n_features, sparse),
            np.array([decision.action for decision in decisions], np.int64),
            np.array([decision.scores for decision in decisions]).reshape(-1, N_SCORES),
        )

    def drop(self, ids: np.ndarray) -> None:
        """Forget decisions."""
        for i in ids:
            del self._decisions[int(i)]

    def forget(self, actions: np.ndarray) -> None:
        """Forget the decisions for actions."""
        gone = set(actions.tolist())
        self._decisions = {i: decision for i, decision in self._decisions.items() if decision.action not in gone}

    def put(self) -> tuple[int, Arrays]:
        """Return the next id and the arrays for a file."""
        decisions = list(self._decisions.values())
        rows = _joined(decisions, 0, True)
        return self.next_id, {
            "pending.ids": np.array(list(self._decisions), np.int64),
            "pending.values": rows.values,
            "pending.indices": rows.indices,
            "pending.lengths": np.diff(rows.offsets),
            "pending.actions": np.array([decision.action for decision in decisions], np.int64),
            "pending.scores": np.array([decision.scores for decision in decisions]).reshape(-1, N_SCORES),
        }

    def restore(self, next_id: int, arrays: Arrays, n_features: int, sparse: bool) -> None:
        """Take what a file holds. Raises InvariantError or ValueError if these are not decisions."""
        ids, lengths, actions = (
            read_array(f"pending.{name}", arrays, np.int64) for name in ("ids", "lengths", "actions")
        )
        values = read_array("pending.values", arrays, np.float32)
        indices = read_array("pending.indices", arrays, np.int32)
        scores = checked(arrays, "pending.scores", (ids.size, N_SCORES), np.dtype(np.float64), _LARGEST_SCORE)
        require(ids.size <= self._most, "there must not be more decisions than max_pending")
        require(bool(np.all(np.diff(ids) > 0)) and bool(np.all((ids >= 0) & (ids < next_id))), "ids must ascend")
        require(lengths.size == ids.size == actions.size, "there must be a context for each decision")
        require(bool(np.all((lengths >= 0) & (lengths <= n_features))), "contexts must not be too long")
        require(int(lengths.sum()) == values.size, "contexts must have as many values as they are long")
        require(bool(np.all((actions >= 0) & (actions <= MOST_ACTIONS))), "actions must be in range")
        ends = np.cumsum(lengths)
        if sparse:
            require(indices.size == values.size, "contexts must have as many indices as values")
            require(bool(np.all((indices >= 0) & (indices < n_features))), "indices must be in range")
            rises = np.diff(indices.astype(np.int64), prepend=-1) > 0
            rises[(ends - lengths)[lengths > 0]] = True
            require(bool(rises.all()), "the indices of a context must ascend")
        else:
            require(n_features > 0 or ids.size == 0, "contexts must have features")
            require(bool(np.all(lengths == n_features)) and indices.size == 0, "contexts must be of full length")
        squares = np.add.reduceat(np.append(values.astype(np.float64) ** 2, 0.0), ends - lengths) * (lengths > 0)
        require(bool(np.all(squares < 1.01)), "contexts must have length 1, or 0")
        for i in range(ids.size):
            span = slice(int(ends[i] - lengths[i]), int(ends[i]))
            self._decisions[int(ids[i])] = _Decision(
                values[span].copy(),
                indices[span].copy() if sparse else _EMPTY,
                int(actions[i]),
                tuple(scores[i].tolist()),
            )
        self.next_id = next_id


def _joined(decisions: list[_Decision], n_features: int, sparse: bool) -> Rows:
    lengths = [decision.values.size for decision in decisions]
    values = np.concatenate([np.empty(0, np.float32), *(decision.values for decision in decisions)])
    indices = np.concatenate([_EMPTY, *(decision.indices for decision in decisions)])
    return Rows(values, indices, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), n_features, sparse)
