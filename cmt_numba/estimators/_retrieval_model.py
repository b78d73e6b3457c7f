"""Model of a retriever: memories with values, and an index that finds them by key or by value.

In a search by key, the index holds the memories' keys. In a search by value, it holds distinct values, and a query
searches for the value predicted from its key.
"""

import copy
from typing import Any, Protocol

import numba
import numpy as np
from sklearn.utils import check_random_state

from .. import _heads as heads
from .. import persistence as files
from .._change import share_rows, spans, with_progress
from .._feedback import LearnedSearch
from .._forest import NONE, Hits, Rows, as_matrix, no_hits
from .._index import DenseIndex
from .._sparse_index import SparseIndex
from .._validation import check_jobs
from ._fields import INDEX, LEARNED, ComponentsField, DistinctField, MemoriesField
from ._input import Factors, filled
from ._memories import Memories
from ._values import Components, DistinctVectors, ValueStore, digests_of

_ROWS_WORTH_A_THREAD = 64  # with fewer rows, starting a thread takes longer than the time it saves
_ROWS_AT_ONCE = 4096  # number of dense keys between checks for interrupts


class RetrievalOptions(Protocol):
    """Parameters of a retriever that the model depends on."""

    search: str | None
    target_recall: float
    n_components: int
    regularization: float
    n_value_passes: int
    n_jobs: int | None
    random_state: Any
    verbose: bool


class ValueExpectation(files.WithFields):
    """A linear map from keys to ``components`` of values, learned by ridge regression."""

    FIELDS = files.FieldTable(
        components=ComponentsField(), map=files.StructureField(heads.Expectation, files.trim_expectation)
    )

    def __init__(self, components: Components, learned: heads.Expectation) -> None:
        self.components, self.map = components, learned

    def copied(self) -> "ValueExpectation":
        return ValueExpectation(self.components, copy.deepcopy(self.map))

    def expect(self, rows: Rows, n_threads: int) -> np.ndarray:
        """Return the expected values of rows as vectors of the index; the part outside the components is 0."""
        expected = np.zeros((rows.n_rows, self.components.n_components), np.float32)

        def expect(first: int, stop: int) -> None:
            heads.expect_rows(self.map, rows, first, stop, expected)

        share_rows(expect, rows.n_rows, n_threads)
        return np.pad(expected, ((0, 0), (0, 1)))

    def learn_values(
        self, rows: Rows, vectors: np.ndarray, weights: Factors, orders: np.random.Generator, options: RetrievalOptions
    ) -> None:
        """Learn the values of rows, which are given as vectors of the index."""
        self.map = heads.enter_rows(self.map, rows)
        targets = np.ascontiguousarray(vectors[:, :-1])
        duals = np.zeros_like(targets)
        softnesses = np.float32(options.regularization) / filled(weights, rows.n_rows)
        for _ in with_progress(range(options.n_value_passes), "pass", options.verbose):
            heads.learn_expectations(self.map, rows, orders.permutation(rows.n_rows), targets, duals, softnesses)

    def learn_rewards(
        self, rows: Rows, of_rows: np.ndarray, values: Any, rewards: np.ndarray, options: RetrievalOptions
    ) -> None:
        """Learn to predict ``rewards[i]``, the reward of value ``i`` for row ``of_rows[i]``."""
        self.map = heads.enter_rows(self.map, rows)
        vectors = np.ascontiguousarray(self.components.reduced(values)[:, :-1])
        of_rows = np.ascontiguousarray(of_rows)  # a strided array would compile the kernel again
        heads.learn_rewards(self.map, rows, of_rows, vectors, rewards, float(options.regularization))


class RetrievalModel(files.WithFields):
    """The memories of a retriever, and the index that finds them. A new model suits keys and values like the given."""

    FIELDS = files.FieldTable(
        index=INDEX,  # keys of memories, or distinct values, by their entries in the tables
        memories=MemoriesField(),  # tables of memories, keys and values
        orders=files.GeneratorField(),  # generator of the order in which rows are learned
        sparse=files.FlagField(),  # whether keys are sparse
        # map from keys to expected values; None in a search by key
        by_value=files.OptionalField(files.PartField(ValueExpectation)),
        distinct=DistinctField(),  # numbers of the values in the index. Not used in a search by key.
        # what a search by key has learned from rewards; None if there were none
        learned=files.OptionalField(LEARNED),
    )

    def __init__(self, options: RetrievalOptions, rows: Rows, values: Any) -> None:
        seed = check_random_state(options.random_state).randint(2**31)
        self.index: Any = None
        self.memories, self.orders = Memories.none(ValueStore(values[:0])), np.random.default_rng(seed)
        self.by_value: ValueExpectation | None = None
        self.sparse = rows.sparse
        self.distinct = DistinctVectors()
        self.learned: LearnedSearch | None = None
        if options.search == "value" if options.search else values.ndim == 2:
            components = Components(values, options.n_components, seed)
            parameters = heads.ExpectationParameters(rows.n_features, rows.sparse)
            expectation = heads.new_expectation(parameters, components.n_components)
            self.by_value = ValueExpectation(components, expectation)
            self.index = DenseIndex(components.n_components + 1, "cosine", seed)
        else:
            self.index = (SparseIndex if rows.sparse else DenseIndex)(rows.n_features, "cosine", seed)

    @property
    def search(self) -> str:
        """Whether search is by "key" or by "value"."""
        return "key" if self.by_value is None else "value"

    def copied(self) -> "RetrievalModel":
        other = copy.copy(self)
        other.index, other.distinct = self.index.copy(), self.distinct.copied()
        other.orders = copy.deepcopy(self.orders)
        other.by_value = None if self.by_value is None else self.by_value.copied()
        other.learned = None if self.learned is None else self.learned.copy()
        return other

    def roll_back(self) -> None:
        """After a failed change, remove the keys that the tables do not contain."""
        self._forget_keys(np.setdiff1d(self.index.ids, self.memories.keys))
        self.distinct.forget(np.setdiff1d(self.distinct.as_arrays()[0], self.memories.keys))

    def prepare_like(self, _former: "RetrievalModel", _options: RetrievalOptions) -> None:
        """Do nothing: queries need no caches."""

    def has_much_due(self, _n_rows: int, _options: RetrievalOptions) -> bool:
        """Return False: learning rows never entails much additional work."""
        return False

    # Changes

    def store(self, rows: Rows, values: Any, weights: Factors, options: RetrievalOptions) -> None:
        """Store memories, and learn from them."""
        if self.by_value is None:
            entries = self.memories.next_id + np.arange(rows.n_rows)
            self._insert(entries, as_matrix(rows), options.verbose)
            self.memories = self.memories.with_more(values, entries)
            return
        vectors = self.by_value.components.reduced(values)
        self.memories = self.memories.with_more(values, self._insert_distinct(vectors, options.verbose))
        self.by_value.learn_values(rows, vectors, weights, self.orders, options)

    def remove(self, ids: np.ndarray) -> None:
        self._set_memories(self.memories.without(ids, shared=self.by_value is not None))

    def replace(self, ids: np.ndarray, rows: Rows) -> None:
        entries = self.memories.entries_of(ids)
        self.index.replace(entries, as_matrix(rows))
        if self.learned is not None:
            self.learned.model.forget(entries)

    def set_values(self, ids: np.ndarray, values: Any) -> None:
        entries = None
        if self.by_value is not None:
            entries = self._insert_distinct(self.by_value.components.reduced(values))
        self._set_memories(self.memories.with_values(ids, values, entries))

    def learn_rewards(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray, options: RetrievalOptions) -> None:
        """Learn from the rewards of retrieved memories. Ids may be NONE."""
        if self.by_value is None:
            known, is_shared = np.where(ids == NONE, np.nan, rewards), rewards.shape != ids.shape
            if not np.isnan(known).all():
                learned = self.learned or LearnedSearch(self.index, self.sparse)
                entries, target = self.memories.entries_of(ids), options.target_recall
                learned.feedback(self.index, as_matrix(rows), entries, known, is_shared=is_shared, target_recall=target)
                self.learned = learned
            return
        rewards = np.broadcast_to(rewards, ids.shape)
        of_rows, rank = np.nonzero((ids != NONE) & ~np.isnan(rewards))
        if of_rows.size > 0:
            values = self.memories.values_of(ids[of_rows, rank])
            self.by_value.learn_rewards(rows, of_rows, values, rewards[of_rows, rank], options)

    def _insert(self, entries: np.ndarray, keys: Any, verbose: bool) -> None:
        size = keys.shape[0] if self.sparse and self.by_value is None else _ROWS_AT_ONCE
        for start, stop in with_progress(list(spans(keys.shape[0], max(1, size))), "insert", verbose):
            self.index.insert(keys[start:stop], entries[start:stop])

    def _insert_distinct(self, vectors: np.ndarray, verbose: bool = False) -> np.ndarray:
        """Insert new values; return the entries of all, which the tables make permanent."""
        first = int(self.memories.keys.max(initial=NONE)) + 1
        entries = self.distinct.number(digests_of(vectors), first)
        new, of_rows = np.unique(entries, return_index=True)
        of_rows = of_rows[new >= first]
        self._insert(entries[of_rows], vectors[of_rows], verbose)
        return entries

    def _set_memories(self, memories: Memories) -> None:
        """Replace the tables, and remove from the index the keys that only the old tables contain."""
        gone = np.setdiff1d(self.memories.keys, memories.keys)
        self.memories = memories
        self._forget_keys(gone)

    def _forget_keys(self, keys: np.ndarray) -> None:
        self.distinct.forget(keys)
        if self.learned is not None:
            self.learned.model.forget(keys)
        if keys.size > 0:
            self.index.remove(keys)

    # Queries

    def best_memories(self, rows: Rows, k: int, options: RetrievalOptions) -> Hits:
        """Return the ``k`` best memories of each row, and their scores."""
        n_threads, target = _threads(options, rows.n_rows), options.target_recall
        if self.by_value is not None:
            expected = self.by_value.expect(rows, n_threads)
            ids, scores = self.index.search(expected, k, target, n_threads=n_threads)
            lengths = np.linalg.norm(expected, axis=1)[:, None]
            scores = np.where(ids == NONE, scores, np.clip(scores * lengths, 0.0, 1.0))
        elif self.learned is None or len(self.index) == 0:
            ids, scores = self.index.search(as_matrix(rows), k, target, n_threads=n_threads)
        else:
            ids, scores = self.learned.search(self.index, as_matrix(rows), k, target, None, n_threads)
        return no_hits(rows.n_rows, k)._replace(ids=self.memories.owners_of(ids), scores=scores.astype(np.float32))

    def explain(
        self, rows: Rows, ids: np.ndarray, scores: np.ndarray, options: RetrievalOptions
    ) -> list[dict[str, float]]:
        """Return the parts of the scores of the memories found for one row, by name."""
        parts = None
        if self.learned is not None and ids.size > 0:
            entries = self.memories.entries_of(ids)
            parts = self.learned.explain(self.index, as_matrix(rows), entries, options.target_recall)
        return parts or [{"similarity": score} for score in scores.tolist()]


def _threads(options: RetrievalOptions, n_rows: int) -> int:
    most = check_jobs(options.n_jobs) or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    return max(1, min(most, n_rows // _ROWS_WORTH_A_THREAD))
