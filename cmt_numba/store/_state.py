"""``StoreState``: the vectors of a store, with everything else that is not in its database."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from .. import _index as dense_index
from .._feedback import LearnedSearch
from .._forest import NONE, InvariantError, require
from .._validation import OneOf, check_integer, check_seed
from ..persistence import as_part, of_part, take
from ._checks import check_metric, check_values
from ._eviction import POLICIES, EvictionOrder
from ._sparse_index import SparseIndex

ROWS_IN_A_STEP = 256
"""Number of dense rows to write in a few milliseconds, for which queries wait."""

ROWS_LEARNED_IN_PLACE = 16
"""Number of rows with rewards to learn in a few milliseconds, for which queries wait."""

_MOST_NOTES = 1 << 16  # number of queries whose results wait for the next change; the oldest are dropped
KINDS: dict[str, Any] = {"dense": dense_index.DenseIndex, "sparse": SparseIndex}
"""The indexes by the form of their vectors."""


class StoreOptions(NamedTuple):
    """Options of a new store. A folder and a file keep them."""

    metric: str = "cosine"
    max_items: int | None = None
    eviction: str = "least_recently_returned"
    seed: int = 0

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return the options that a user has given. Raise TypeError or ValueError if one is invalid."""
        options = {name: value for name, value in given.items() if value is not None and name in cls._fields[:-1]}
        if "metric" in options:
            options["metric"] = check_metric(options["metric"])
        if "max_items" in options:
            options["max_items"] = check_integer("max_items", options["max_items"], 1)
        if "eviction" in options:
            options["eviction"] = OneOf(tuple(POLICIES)).check("eviction", options["eviction"])
        return cls(**options, seed=int(check_seed(given.get("random_state")).generate_state(1)[0]))


def _at_once(work: Callable[[], Any]) -> Any:
    return work()


class StoreState:
    """The vectors of a store, the order of eviction, and what the store has learned.

    The methods below ``Operations`` are the operations that a journal records and repeats. They divide many rows into
    steps; for few rows, the caller must prevent reads.

    Parameters
    ----------
    options : StoreOptions
        The options.

    Attributes
    ----------
    index : DenseIndex, SparseIndex or None
        The vectors by id; None before the first insert.
    feedback : LearnedSearch or None
        What the store has learned from rewards; None if there were none.
    step : callable
        Calls a function that changes the state, while no thread reads it.
    """

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.index: Any = None
        self.feedback: LearnedSearch | None = None
        bounded = options.max_items is not None
        self.eviction = (POLICIES[options.eviction] if bounded else EvictionOrder)(options.seed)
        self.step: Callable[[Callable[[], Any]], Any] = _at_once
        self.results: deque[np.ndarray] = deque(maxlen=_MOST_NOTES)  # ids returned by queries since the last change

    def __len__(self) -> int:
        return 0 if self.index is None else len(self.index)

    @property
    def form(self) -> str | None:
        """The form of the vectors: "dense", "sparse", or None before the first insert."""
        if self.index is None:
            return None
        return "sparse" if isinstance(self.index, SparseIndex) else "dense"

    @property
    def next_id(self) -> int:
        """The id of the next memory."""
        return 0 if self.index is None else self.index.next_id

    def search(self, Q: Any, k: int, target_recall: float, among: Any, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and scores of the best ``k`` memories for each query, by what the store has learned."""
        learned = self.feedback
        if learned is None:
            found: tuple[np.ndarray, np.ndarray] = self.index.search(Q, k, target_recall, among, n_threads)
            return found
        return learned.search(self.index, Q, k, target_recall, among, n_threads)

    def with_competitors(
        self, X: Any, ids: np.ndarray, rewards: np.ndarray, target_recall: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of shown memories and of other candidates, with their rewards, NaN if unknown."""
        learned = self.feedback or LearnedSearch(self.index, self.form == "sparse")
        candidates = learned.with_competitors(self.index, X, ids, target_recall)
        every = np.full(candidates.shape, np.nan, np.float32)
        every[:, : ids.shape[1]] = rewards
        return candidates, every

    def note_results(self) -> None:
        """Apply the results of queries since the last change, on which the next eviction depends."""
        self.note_returned(self.take_results())

    def take_results(self) -> np.ndarray:
        """Return the ids that queries have returned since the last call, the best of each row last."""
        found = [self.results.popleft()[:, ::-1].reshape(-1) for _ in range(len(self.results))]
        return np.concatenate([np.empty(0, np.int64), *found])

    def forget_from(self, first: int, index: Any) -> None:
        """Undo an insert of ids from ``first`` on, before which the state had the given index."""
        if index is not None:
            new = np.arange(first, index.next_id)
            self.remove(new[index.contains(new)])
        self.index = index

    def to_evict(self, n_new: int) -> np.ndarray:
        """Return the ids of the memories to remove after the insert of ``n_new`` others, which may be among them."""
        most = self.options.max_items
        n = 0 if most is None else len(self) + n_new - most
        if n <= 0:
            return np.empty(0, np.int64)
        n_old = min(n, len(self))
        old = self.eviction.choose(self.index, n_old) if n_old > 0 else np.empty(0, np.int64)
        return np.concatenate([old, np.arange(self.next_id, self.next_id + n - n_old)])

    # Operations

    def insert(self, X: Any) -> np.ndarray:
        """Insert vectors and return their ids, which are consecutive."""
        if self.index is None:
            kind = KINDS["dense" if isinstance(X, np.ndarray) else "sparse"]
            self.index = kind(X.shape[1], self.options.metric, self.options.seed)
        first = self.index.next_id
        if X.shape[0] <= ROWS_IN_A_STEP:
            self.index.insert(X)
        else:
            self._in_steps(X, lambda rows: self.index.insert(X[rows]))
        ids = np.arange(first, first + X.shape[0])
        self.eviction.returned(ids)
        return ids

    def _in_steps(self, X: Any, write: Callable[[slice], Any]) -> None:
        """Call ``write`` for spans of the rows of ``X``, each in a step."""
        n_rows = X.shape[0]
        size = ROWS_IN_A_STEP if isinstance(X, np.ndarray) else n_rows  # a sparse index is faster with all at once
        for start in range(0, n_rows, size):
            self.step(partial(write, slice(start, start + size)))

    def replace(self, ids: np.ndarray, X: Any) -> None:
        """Replace vectors. Ids must be distinct."""
        if ids.size <= ROWS_IN_A_STEP:
            self.index.replace(ids, X)
        else:
            self._in_steps(X, lambda rows: self.index.replace(ids[rows], X[rows]))
        self.eviction.returned(ids)
        if self.feedback is not None and self.feedback.model.has_any(ids):
            learned = self.feedback.copy()  # so that the change can be undone
            learned.model.forget(ids)
            self.feedback = learned

    def remove(self, ids: np.ndarray) -> None:
        """Remove vectors. Ids must be distinct."""
        self.index.remove(ids)
        self.eviction.removed(ids)
        if self.feedback is not None:
            self.feedback.model.forget(ids)

    def learn(self, X: Any, ids: np.ndarray, rewards: np.ndarray, is_shared: bool) -> None:
        """Learn from the rewards of memories, arrays of shape (n, k). An id of -1 stands for no memory.

        Few rows are learned in place. For more, queries use a copy until it has learned them.
        """
        learned = self.feedback
        if learned is None:
            learned = LearnedSearch(self.index, self.form == "sparse")
        elif len(ids) > ROWS_LEARNED_IN_PLACE:
            learned = learned.copy()
        learned.learn(self.index, X, ids, rewards, is_shared=is_shared)
        self.feedback = learned

    def note_returned(self, ids: np.ndarray) -> None:
        """Record the ids that queries have returned. Ignore removed memories."""
        if self.index is not None:
            self.eviction.returned(ids[self.index.contains(ids)])

    # Files

    def contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the state as fields and arrays for a file."""
        arrays, facts = self.eviction.arrays(), None
        if self.index is not None:
            own, facts = self.index.arrays()
            arrays = arrays | as_part("index", own)
        if self.feedback is not None:
            arrays = arrays | as_part("feedback", self.feedback.arrays())
        return {"options": self.options._asdict(), "form": self.form, "index": facts}, arrays

    @classmethod
    def of_contents(cls, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Return the state with these contents. Raise InvariantError, TypeError or ValueError if they are invalid."""
        given = take(fields, "options", dict)
        if set(given) != set(StoreOptions._fields):
            raise ValueError("its options must be " + ", ".join(StoreOptions._fields))
        checked = StoreOptions.of(given)._replace(seed=check_integer("seed", given["seed"], 0, 2**32 - 1))
        state = cls(checked)
        form = take(fields, "form", str, type(None))
        if form is not None:
            if form not in KINDS:
                raise ValueError(f"its vectors have the unknown form {form!r:.50}")
            facts = take(fields, "index", dict)
            try:
                state.index = KINDS[form].of_arrays(of_part("index", arrays), facts)
                if learned := of_part("feedback", arrays):
                    state.feedback = LearnedSearch.of_arrays(state.index.n_features, form == "sparse", learned)
            except KeyError as error:
                raise InvariantError(f"the index lacks {error}") from error
            require(state.index.metric == checked.metric, "the index must have the metric of the store")
        state.eviction.restore(arrays, np.empty(0, np.int64) if state.index is None else state.index.ids)
        return state


def check_operation(state: StoreState, name: str, arguments: dict[str, Any]) -> None:
    """Raise an error unless an operation from a journal can be applied to a state."""
    X: Any = arguments.get("X")
    ids: Any = arguments.get("ids")
    if name in ("insert", "replace", "learn"):
        form = "dense" if isinstance(X, np.ndarray) else "sparse"
        if X is None or X.ndim != 2 or X.dtype != np.float32 or state.form not in (None, form):
            raise ValueError("its vectors do not fit the store")
        if state.index is not None and X.shape[1] != state.index.n_features:
            raise ValueError(f"its vectors have {X.shape[1]} features instead of {state.index.n_features}")
        check_values(X, state.options.metric)
    if name == "learn":
        rewards = arguments.get("rewards")
        if ids is None or ids.dtype != np.int64 or ids.ndim != 2 or len(ids) != X.shape[0]:
            raise ValueError("its ids do not fit its queries")
        if rewards is None or rewards.shape != ids.shape or ((rewards < 0.0) | (rewards > 1.0)).any():
            raise ValueError("its rewards must be between 0 and 1, or NaN")
        if state.index is None or not state.index.contains(ids[ids != NONE]).all():
            raise ValueError("its ids are not stored")
    elif name != "insert" and (ids is None or ids.dtype != np.int64 or ids.ndim != 1):
        raise ValueError("its ids are not integers")
    if name in ("replace", "remove"):
        if state.index is None or not state.index.contains(ids).all() or np.unique(ids).size < ids.size:
            raise ValueError("its ids are not those of different memories")
        if name == "replace" and X.shape[0] != ids.size:
            raise ValueError("it does not have a vector for each id")
