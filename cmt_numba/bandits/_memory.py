"""What proposes actions in logarithmic time: a tree over keys, each of which leads to an action."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._engine import insert_rows, teach_rows
from .._forest.allocation import resized
from .._forest.filtering import UNRESTRICTED
from .._forest.hits import NO_ROOM, Query
from .._forest.invariants.errors import require
from .._forest.rows import Rows
from .._forest.search import query_rows
from .._forest.state import NONE
from ..estimators._files import _Tree as TreeInFiles
from ..persistence._columns import read_array
from ..tree import ContextualMemoryTree
from ._choosing import Proposed
from ._models import Arrays

_TREE = TreeInFiles()
_NO_SEED = np.uint64(0)  # of rows that do not explore


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
        """Take other memories: their ids, which ascend, and actions. Some may be gone from a bounded tree."""
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

    def propose(self, rows: Rows, k: int, n_probes: int | None, room: np.ndarray = NO_ROOM) -> Proposed:
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
        return Proposed(self._ids, self._actions, ids, scores)

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
        fields, arrays = _TREE.put(name, self.tree)
        return fields, arrays | {f"{name} ids": self._ids, f"{name} actions": self._actions}

    def restore(self, name: str, field: Any, arrays: Arrays, known: np.ndarray) -> None:
        """Take what a file holds. Raises an error if it is no memory of the known actions."""
        self.tree = _TREE.get(name, field, arrays, thorough=True)
        ids, actions = (read_array(f"{name} {part}", arrays, np.int64) for part in ("ids", "actions"))
        require(ids.size == actions.size, f"{name} must have an action for each memory")
        ascending = bool(np.all(ids >= 0)) and bool(np.all(ids[1:] > ids[:-1]))
        require(ascending, f"the ids of {name} must ascend from 0 on")
        require(bool(np.all(np.isin(actions, known))), f"the actions of {name} must be known")
        require(bool(np.all(np.isin(self.tree.ids, ids))), f"{name} must have an action for each memory of the tree")
        self._set(ids, actions)
