"""The memory of a bandit: keys of actions in trees, and decisions that wait for a reward."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._engine import insert_rows, teach_rows
from .._forest import NO_ROOM, NONE, UNRESTRICTED, Query, Rows, query_rows, require, resized
from ..persistence import as_part, of_part, read_array
from ..tree import ContextualMemoryTree
from ._candidate_kernels import N_SCORES, ProposedMemories
from ._checks import MOST_ACTIONS
from ._models import Arrays, checked

_EMPTY = np.empty(0, np.int32)
_LARGEST_SCORE = 1e9  # in files: more than a scorer gives to a key of length 1
_NO_SEED = np.uint64(0)  # for rows that do not explore


class ActionMemory:
    """A tree whose memories stand for actions.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The tree, empty.
    """

    def __init__(self, tree: ContextualMemoryTree) -> None:
        self.tree = tree
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    def _set(self, ids: np.ndarray, actions: np.ndarray) -> None:
        """Replace the memories by others: ids, which ascend, and actions. A bounded tree may have evicted some."""
        self._n = ids.size
        self._of_ids, self._of_actions = ids, actions
        self._by_action: np.ndarray | None = None  # places in the order of actions

    @property
    def _ids(self) -> np.ndarray:
        return self._of_ids[: self._n]

    @property
    def _actions(self) -> np.ndarray:
        return self._of_actions[: self._n]

    def store(self, rows: Rows, actions: np.ndarray) -> None:
        """Store keys of actions."""
        n = self._n + rows.n_rows
        if n > self._of_ids.size:
            self._of_ids, self._of_actions = (resized(array, 2 * n, 0) for array in (self._of_ids, self._of_actions))
        self._of_ids[self._n : n], self._of_actions[self._n : n] = insert_rows(self.tree._forest, rows), actions
        self._n, self._by_action = n, None
        if n > 2 * self.tree.n_memories:
            self._keep(np.isin(self._ids, self.tree.ids))

    def propose(self, rows: Rows, k: int, n_probes: int | None, room: np.ndarray = NO_ROOM) -> ProposedMemories:
        """Return the ``k`` best memories of each row. See ``room_for_probe``."""
        state = self.tree._forest.fitting_state(rows)
        shape = (rows.n_rows, 0 if state is None else min(k, self.tree.n_memories))
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        if state is not None and shape[1] > 0:
            # The kernel is called as the tree's own method does: for a single row its steps, threads and progress bar
            # take longer than the search. Only the bandit changes the tree, and it does not while it proposes.
            ids.fill(NONE)
            scores.fill(-np.inf)
            query = Query(rows, 0, rows.n_rows, n_probes or state.parameters.n_trees, 0.0, _NO_SEED, room)
            query_rows(self.tree._forest.view(state), query, UNRESTRICTED, ids, scores)
        return ProposedMemories(self._ids, self._actions, ids, scores)

    def scores_of(self, rows: Rows, actions: np.ndarray, k: int, n_probes: int | None) -> np.ndarray:
        """Return the best score of an action among the ``k`` best memories of each row, 0 if it is not among them."""
        proposed = self.propose(rows, k, n_probes)
        found = proposed.hits != NONE
        places = np.minimum(np.searchsorted(proposed.ids, proposed.hits), self._n - 1)
        same = found & (proposed.actions[places] == actions[:, None]) if proposed.hits.size else found
        result: np.ndarray = np.where(same, proposed.scores, np.float32(0)).max(axis=1, initial=0.0)
        return result.astype(np.float64)

    def teach(self, rows: Rows, actions: np.ndarray) -> None:
        """Train the routers to lead rows to the first key of an action; rows of actions without a key are left out."""
        if self._n == 0:
            return
        if self._by_action is None:
            self._by_action = np.argsort(self._actions, kind="stable")
        places = np.searchsorted(self._actions, actions, sorter=self._by_action)
        places = self._by_action[np.minimum(places, self._n - 1)]
        known = self._actions[places] == actions
        if np.any(known):
            teach_rows(self.tree._forest, rows.take(np.flatnonzero(known)), self._ids[places[known]])

    def forget(self, actions: np.ndarray) -> None:
        """Remove all keys of actions."""
        gone = np.isin(self._actions, actions)
        stored = self._ids[gone & np.isin(self._ids, self.tree.ids)]
        if stored.size > 0:
            self.tree.remove(stored)
        self._keep(~gone)

    def _keep(self, kept: np.ndarray) -> None:
        self._set(self._ids[kept], self._actions[kept])

    def put(self, name: str) -> tuple[Any, Arrays]:
        """Return the JSON and the arrays for a file."""
        fields, arrays = self.tree._contents()
        return fields, as_part(name, arrays) | {f"{name} ids": self._ids, f"{name} actions": self._actions}

    def restore(self, name: str, field: Any, arrays: Arrays, known: np.ndarray) -> None:
        """Restore the memory of a file. Raises an error if it is no memory of the known actions."""
        require(type(field) is dict, f"{name} must be a mapping")
        self.tree = ContextualMemoryTree._made_of(field, of_part(name, arrays), thorough=True)
        ids, actions = (read_array(f"{name} {part}", arrays, np.int64) for part in ("ids", "actions"))
        require(ids.size == actions.size, f"{name} must have an action for each memory")
        ascending = bool(np.all(ids >= 0)) and bool(np.all(ids[1:] > ids[:-1]))
        require(ascending, f"the ids of {name} must ascend from 0 on")
        require(bool(np.all(np.isin(actions, known))), f"the actions of {name} must be known")
        require(bool(np.all(np.isin(self.tree.ids, ids))), f"{name} must have an action for each memory of the tree")
        self._set(ids, actions)


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
        """Return those ids that are not pending."""
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
        """Restore the decisions of a file. Raises InvariantError or ValueError if it holds none."""
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
