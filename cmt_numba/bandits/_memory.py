"""The memory of a bandit: action keys, rewarded contexts, and decisions that wait for a reward."""

from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from .._engine import insert_rows
from .._feedback import score_sparse
from .._forest import UNRESTRICTED, query_rows
from .._kernels import NO_ROOM, NONE, GrowingColumns, Query, Rows, as_matrix, require, top_k
from .._postings import Digest, LabelAnswers, all_of, label_bounds, list_by_feature, rank_listed
from ..estimators import TREE, looked_up, places_in
from ..persistence import ArrayField, FieldTable, FlagField, NumberField, TupleField, WithFields
from ..tree import ContextualMemoryTree, forest_of
from ._checks import MAX_ACTIONS
from ._reward_kernels import ActionKeyTable, ProposedActions, RewardState

_EMPTY = np.empty(0, np.int32)
_NO_SEED = np.uint64(0)  # unused, because these queries do not explore
_SHARE_OF_INDEX = 8  # the index is rebuilt if new keys exceed 1 / 8 of the indexed keys


def _check_unit_rows(name: str, rows: Rows) -> None:
    """Raise InvariantError unless rows are valid and have norm 1 or 0."""
    values, indices, offsets, n_features, sparse = rows
    require(offsets.size > 0 and offsets[0] == 0, f"offsets of {name} must start at 0")
    lengths = np.diff(offsets)
    require(np.all((lengths >= 0) & (lengths <= n_features)), f"rows of {name} must have up to {n_features} values")
    require(offsets[-1] == values.size, f"offsets of {name} must match the number of values")
    if sparse:
        require(indices.size == values.size, f"indices and values of {name} must have the same length")
        require(np.all((indices >= 0) & (indices < n_features)), f"indices of {name} must be below {n_features}")
        rises = np.diff(indices.astype(np.int64), prepend=-1) > 0
        rises[offsets[:-1][lengths > 0]] = True
        require(rises.all(), f"indices of {name} must be in ascending order in each row")
    else:
        require(n_features > 0 or lengths.size == 0, f"rows of {name} must have features")
        require(np.all(lengths == n_features) and indices.size == 0, f"dense rows of {name} must have all values")
    squares = np.add.reduceat(np.append(values.astype(np.float64) ** 2, 0.0), offsets[:-1]) * (lengths > 0)
    require(np.all(squares < 1.01), f"rows of {name} must have norm 1 or 0")


_ROWS = TupleField(
    Rows,
    _check_unit_rows,
    values=ArrayField(np.float32),
    indices=ArrayField(np.int32),
    offsets=ArrayField(np.int64),
    n_features=NumberField(0, 2**31 - 1),
    sparse=FlagField(),
)


def joined_rows(parts: list[Rows], n_features: int, sparse: bool) -> Rows:
    """Concatenate rows."""
    lengths = [np.diff(part.offsets) for part in parts]
    return Rows(
        np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)]),
        np.concatenate([_EMPTY, *(part.indices for part in parts)]),
        np.concatenate([[0], np.cumsum(np.concatenate([_EMPTY, *lengths]))]).astype(np.int64),
        n_features,
        sparse,
    )


class ActionKeys(WithFields):
    """Action keys, and searches for the keys that match a context.

    If keys and contexts have the same features, this is the index of a :class:`~cmt_numba._feedback.LearnedSearch`,
    with actions as ids. The key of an action without a key is zero.
    """

    FIELDS = FieldTable(actions=ArrayField(np.int64), rows=_ROWS, n_indexed=NumberField())
    _index: Any  # of the first ``n_indexed`` keys; None until the next search
    metric = "inner_product"  # not "cosine", by which an action with the context as its key always comes first

    def __init__(self) -> None:
        none = np.empty(0, np.int64)
        self._set(none, Rows(np.empty(0, np.float32), _EMPTY, np.zeros(1, np.int64), 0, False))

    def _set(self, actions: np.ndarray, rows: Rows) -> None:
        self._replace(actions, rows)
        self._index_first(actions.size)

    def _index_first(self, n: int) -> None:
        """Let the next search build an index of the first ``n`` keys. Later keys are scanned."""
        self.n_indexed, self._index = n, None

    def _replace(self, actions: np.ndarray, rows: Rows) -> None:
        places = np.argsort(actions)
        self.table = ActionKeyTable(rows, actions[places], places)
        self.actions = actions
        self._all = np.arange(actions.size)
        offsets = np.append(rows.offsets, rows.offsets[-1])
        values = rows.values if rows.sparse else np.append(rows.values, np.zeros(rows.n_features, np.float32))
        self._matrix = as_matrix(rows._replace(values=values, offsets=offsets))  # the last row is zero
        self._folded: Any = None

    def __len__(self) -> int:
        return int(self.actions.size)

    @property
    def rows(self) -> Rows:
        """The keys in insertion order."""
        return self.table.rows

    @property
    def n_features(self) -> int:
        """The number of features of keys."""
        return self.rows.n_features

    @property
    def ids(self) -> np.ndarray:
        """The actions with keys, in insertion order."""
        return self.actions

    def store(self, rows: Rows, actions: np.ndarray) -> None:
        """Store the keys of actions that have none yet."""
        parts = [self.rows, rows] if len(self) > 0 else [rows]
        self._replace(np.concatenate([self.actions, actions]), joined_rows(parts, rows.n_features, rows.sparse))
        if len(self) - self.n_indexed > self.n_indexed // _SHARE_OF_INDEX:
            self._index_first(len(self))

    def forget(self, actions: np.ndarray) -> None:
        """Remove the keys of actions."""
        gone = np.isin(self.actions, actions)
        if gone.any():
            self._set(self.actions[~gone], self.rows.take(np.flatnonzero(~gone)))

    def vectors(self, actions: np.ndarray) -> Any:
        """Return the keys of actions, as an array or CSR array."""
        ordered, places = np.append(self.table.ordered, NONE), np.append(self.table.places, len(self))
        found = np.searchsorted(self.table.ordered, actions)
        return self._matrix[np.where(ordered[found] == actions, places[found], len(self))]

    def scores(self, Q: Any, actions: np.ndarray) -> np.ndarray:
        """Return the products of sparse contexts with the keys of actions, shape (n, m)."""
        return score_sparse(self.metric, Q, self.vectors(actions.reshape(-1)))

    def search(
        self, Q: Any, k: int, _target_recall: float = 1.0, among: np.ndarray | None = None, _n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` actions, padded with -1, whose keys match each context best, and their products."""
        if among is not None:
            return _best(Q @ self.vectors(among).T, among, k)
        if not self.rows.sparse:
            return _best(Q @ self._matrix[:-1].T, self.actions, k)
        hits, n = np.full((Q.shape[0], k), NONE, np.int64), self.n_indexed
        scores = np.full(hits.shape, -np.inf, np.float32)
        self._rank(Q, hits[:, : min(k, n)], scores[:, : min(k, n)])
        missed = np.flatnonzero((hits == NONE).all(axis=1))
        if missed.size > 0:
            hits[missed], scores[missed] = _best(Q[missed] @ self._matrix[:n].T, self._all[:n], k)
        if n < len(self):
            later, of_later = _best(Q @ self._matrix[n:-1].T, self._all[n:], k)
            hits, scores = np.concatenate([hits, later], axis=1), np.concatenate([scores, of_later], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            hits, scores = (np.take_along_axis(part, order, axis=1) for part in (hits, scores))
        return np.append(self.actions, NONE)[hits], scores

    def _rank(self, Q: Any, hits: np.ndarray, scores: np.ndarray) -> None:
        """Write the indexed keys that are most similar to each row, and their scores."""
        if self._index is None:
            keys = self.rows.take(np.arange(self.n_indexed))
            digest = Digest(keys.offsets, keys.indices, keys.values)
            postings = list_by_feature(digest, np.ones(keys.values.size, np.bool_), keys.n_features)
            self._index = postings, digest, label_bounds(postings, np.zeros(self.n_indexed, np.float32))
        rows = Rows(Q.data, Q.indices, Q.indptr.astype(np.int64, copy=False), self.n_features, True)
        counts, shape = np.empty((2, rows.n_rows), np.int64), hits.shape
        answers = LabelAnswers(np.full(shape, NONE, np.int64), np.empty(shape, np.float32), *counts)
        rank_listed(*self._index, all_of(rows), answers)
        hits[:] = answers[0]
        scores[:] = np.where(hits == NONE, -np.inf, answers[1])

    def propose(self, state: RewardState, rows: Rows, k: int) -> ProposedActions:
        """Return the ``k`` actions whose keys have the largest mapped reward for each row."""
        k = min(k, len(self))
        hits = np.full((rows.n_rows, k), NONE, np.int64)
        if k > 0:
            _, d, width = state.map.shape
            if self._folded is None:
                self._folded = _folded(as_matrix(self.rows), width)
            mapped = _folded(as_matrix(rows), d) @ state.map[0]
            hits[:] = _best((self._folded @ mapped.T).T, self._all, k)[0]
        return ProposedActions(self._all, self.actions, hits)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        keys, actions, rows, n_indexed = cls(), values["actions"], values["rows"], values["n_indexed"]
        require(rows.n_rows == actions.size, "every key must have an action")
        require(np.unique(actions).size == actions.size, "every action must have at most one key")
        require(n_indexed <= actions.size, "the index of keys must hold stored keys")
        keys._set(actions, rows)
        keys._index_first(n_indexed)
        return keys


def _best(scores: Any, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids with the ``k`` largest scores of each row, largest first, and the scores. Missing ids are NONE."""
    if scipy.sparse.issparse(scores):
        scores = scores.toarray()
    n, m = len(scores), min(k, ids.size)
    found, values = np.full((n, k), NONE, np.int64), np.full((n, k), -np.inf, np.float32)
    if m > 0:
        places, values[:, :m] = top_k(scores, m)
        found[:, :m] = ids[places]
    return found, values


def _folded(X: Any, width: int) -> Any:
    """Return rows with the sums of the features that have the same index modulo ``width``."""
    n, n_features = X.shape
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array((X.data, X.indices % width, X.indptr), (n, width))
    padded = np.pad(X, ((0, 0), (0, -n_features % width)))
    return np.ascontiguousarray(padded.reshape(n, -1, width).sum(axis=1))


class ContextMemory(WithFields):
    """Up to ``max_waiting`` contexts in which actions were rewarded, inserted into trees before the next search."""

    FIELDS = FieldTable(tree=TREE, max_waiting=NumberField(1), _ids=ArrayField(np.int64), actions=ArrayField(np.int64))

    def __init__(self, tree: ContextualMemoryTree, max_waiting: int) -> None:
        self.tree, self.max_waiting = tree, max_waiting
        self._waiting: list[tuple[Rows, np.ndarray]] = []
        self._n_waiting = 0
        # ids of memories, in ascending order, and their actions; evicted memories may be included
        self._columns = GrowingColumns(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def _ids(self) -> np.ndarray:
        return self._columns.columns[0]

    @property
    def actions(self) -> np.ndarray:
        """The action of each memory."""
        return self._columns.columns[1]

    def store(self, rows: Rows, actions: np.ndarray) -> None:
        """Queue contexts in which actions were rewarded."""
        self._waiting.append((rows, actions))
        self._n_waiting += actions.size
        while self._n_waiting - self._waiting[0][1].size >= self.max_waiting:
            self._n_waiting -= self._waiting.pop(0)[1].size

    def settle(self) -> None:
        """Insert queued contexts into the trees."""
        if self._waiting:
            self.tree._lock.change(self._insert_waiting)

    def _insert_waiting(self) -> None:
        if not self._waiting:  # another reader has inserted them
            return
        parts = [rows for rows, _ in self._waiting]
        rows = joined_rows(parts, parts[0].n_features, parts[0].sparse)
        actions = np.concatenate([of_part for _, of_part in self._waiting])
        ids = insert_rows(forest_of(self.tree), rows)
        self._columns = self._columns.appended(ids, actions)
        self._waiting, self._n_waiting = [], 0
        if len(self._columns) > 2 * self.tree.n_memories:
            self._keep(np.isin(self._ids, self.tree.ids))

    def propose(
        self, rows: Rows, k: int, n_probes: int | None, room: np.ndarray = NO_ROOM
    ) -> tuple[ProposedActions, np.ndarray]:
        """Return the ``k`` best memories of each row and their scores. ``room`` comes from ``room_for_probe``."""
        self.settle()
        state = forest_of(self.tree).fitting_state(rows)
        shape = (rows.n_rows, 0 if state is None else min(k, self.tree.n_memories))
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        if state is not None and shape[1] > 0:
            # Call the kernel directly, because the overhead of the tree's own method exceeds the search time of a
            # single row. No lock is needed: only the bandit changes the tree, and never during a search.
            ids.fill(NONE)
            scores.fill(-np.inf)
            query = Query(rows, 0, rows.n_rows, n_probes or state.parameters.n_trees, 0.0, _NO_SEED, room)
            query_rows(forest_of(self.tree).view(state), query, UNRESTRICTED, ids, scores)
        return ProposedActions(self._ids, self.actions, ids), scores

    def actions_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the action of each memory, or NONE where the id is NONE."""
        return looked_up(self.actions, places_in(self._ids, ids))

    def forget(self, actions: np.ndarray) -> None:
        """Remove all contexts of actions."""
        self.settle()
        gone = np.isin(self.actions, actions)
        stored = self._ids[gone & np.isin(self._ids, self.tree.ids)]
        if stored.size > 0:
            self.tree.remove(stored)
        self._keep(~gone)

    def _keep(self, kept: np.ndarray) -> None:
        self._columns = GrowingColumns(self._ids[kept], self.actions[kept])

    def _packed(self) -> Any:
        self.settle()
        return self

    @property
    def form(self) -> tuple[int, bool] | None:
        """The number of features of contexts, and whether they are sparse; None before the first context."""
        state = forest_of(self.tree).state
        return None if state is None else (state.parameters.n_features, bool(state.parameters.sparse))

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        memory, ids, actions = cls(values["tree"], values["max_waiting"]), values["_ids"], values["actions"]
        require(ids.size == actions.size, "rewarded contexts must have an action for each memory")
        ascending = bool(np.all(ids >= 0)) and bool(np.all(ids[1:] > ids[:-1]))
        require(ascending, "the ids of rewarded contexts must be non-negative and in ascending order")
        require(np.all(np.isin(memory.tree.ids, ids)), "rewarded contexts must have an action for each memory")
        memory._columns = GrowingColumns(ids, actions)
        return memory


class _Decision(NamedTuple):
    values: np.ndarray  # float32, values of the context
    indices: np.ndarray  # int32, empty if the context is dense
    action: int


class Pending(WithFields):
    """Decisions that wait for a reward. Beyond ``max_decisions`` decisions, the oldest are forgotten."""

    FIELDS = FieldTable(
        max_decisions=NumberField(1),
        next_id=NumberField(0, 2**62),
        ids=ArrayField(np.int64),
        actions=ArrayField(np.int64, bounds=(0, MAX_ACTIONS)),
        rows=_ROWS,
    )
    form: tuple[int, bool] | None = None  # the number of features of contexts, and whether they are sparse

    def __init__(self, max_decisions: int) -> None:
        self.max_decisions = max_decisions
        self._decisions: dict[int, _Decision] = {}
        self.next_id = 0

    def __len__(self) -> int:
        return len(self._decisions)

    def enter(self, rows: Rows, actions: np.ndarray) -> np.ndarray:
        """Store a decision for each row, and return the new ids."""
        first_id, n, self.form = self.next_id, actions.size, (rows.n_features, rows.sparse)
        first = max(0, n - self.max_decisions)
        while len(self._decisions) + n - first > self.max_decisions:
            del self._decisions[next(iter(self._decisions))]
        self.next_id += n
        for i, action in enumerate(actions[first:].tolist(), first):
            self._decisions[first_id + i] = _decision_of(rows, i, action)
        return np.arange(first_id, self.next_id)

    def correct(self, ids: np.ndarray, actions: np.ndarray) -> None:
        """Change the actions of pending decisions."""
        for i, action in zip(ids.tolist(), actions.tolist(), strict=True):
            if i in self._decisions:
                self._decisions[i] = self._decisions[i]._replace(action=action)

    def unknown(self, ids: list[int]) -> list[int]:
        """Return the ids without a pending decision."""
        return [i for i in ids if i not in self._decisions]

    def take(self, ids: list[int]) -> tuple[Rows, np.ndarray]:
        """Return the contexts and actions of pending decisions."""
        decisions = [self._decisions[i] for i in ids]
        actions = np.array([decision.action for decision in decisions], np.int64)
        # The form is not known after loading no decisions, and equal states must give equal files.
        return _rows_of(decisions, *((self.form if decisions else None) or (0, False))), actions

    def drop(self, ids: list[int]) -> None:
        """Remove decisions by id."""
        for i in ids:
            del self._decisions[i]

    def forget(self, actions: np.ndarray) -> None:
        """Remove all decisions for the given actions."""
        gone = set(actions.tolist())
        self._decisions = {i: decision for i, decision in self._decisions.items() if decision.action not in gone}

    def _packed(self) -> Any:
        ids, (rows, actions) = np.array(list(self._decisions), np.int64), self.take(list(self._decisions))
        return SimpleNamespace(
            max_decisions=self.max_decisions, next_id=self.next_id, ids=ids, actions=actions, rows=rows
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        pending, ids, actions, rows = cls(values["max_decisions"]), values["ids"], values["actions"], values["rows"]
        pending.next_id, pending.form = values["next_id"], (rows.n_features, rows.sparse) if ids.size > 0 else None
        require(ids.size <= pending.max_decisions, "there must be at most max_pending decisions")
        ascend = np.all(np.diff(ids) > 0) and np.all((ids >= 0) & (ids < pending.next_id))
        require(ascend, "ids must be in ascending order")
        require(rows.n_rows == ids.size == actions.size, "every decision must have a context")
        for i, (decision, action) in enumerate(zip(ids.tolist(), actions.tolist(), strict=True)):
            pending._decisions[decision] = _decision_of(rows, i, action)
        return pending


def _decision_of(rows: Rows, i: int, action: int) -> _Decision:
    span = slice(rows.offsets[i], rows.offsets[i + 1])
    return _Decision(rows.values[span].copy(), rows.indices[span].copy() if rows.sparse else _EMPTY, action)


def _rows_of(decisions: list[_Decision], n_features: int, sparse: bool) -> Rows:
    lengths = [decision.values.size for decision in decisions]
    values = np.concatenate([np.empty(0, np.float32), *(decision.values for decision in decisions)])
    indices = np.concatenate([_EMPTY, *(decision.indices for decision in decisions)])
    return Rows(values, indices, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), n_features, sparse)
