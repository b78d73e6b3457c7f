"""Model of a retriever: memories with values, and a forest that finds them by key or by value.

In a search by key, the forest holds the memories' keys. In a search by value, it holds distinct values, and a query
searches for the value predicted from its key.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from .. import persistence as files
from .._change import share_rows, with_progress
from .._engine import Forest, insert_rows, query_forest, remove_ids, replace_rows, roll_back, teach_rows
from .._feedback import LearnedSearch
from .._forest import NONE, WORTH_KEEPING, Hits, Rows, as_matrix, no_hits, rescaled
from .._heads import (
    Expectation,
    ExpectationParameters,
    enter_rows,
    expect_rows,
    learn_expectations,
    learn_rewards,
    new_expectation,
)
from .._validation import check_jobs, check_rows
from ..tree import ContextualMemoryTree
from ._fields import ComponentsField, DistinctField, LearnedField, MemoriesField, TreeField
from ._input import filled
from ._key_index import KeyIndex
from ._memories import Memories
from ._values import Components, DistinctVectors, ValueStore, digests_of

_KEY_TREES, _VALUE_TREES = 4, 1
_VALUE_LEAVES = 4  # leaves searched per tree; more than one, because a predicted value seldom equals a stored one
_SURE_MARGIN, _SURE_MARGIN_OF_KEYS = 0.2, 0.75  # new rows have smaller margins than the rows that trained the routers


class RetrievalOptions(Protocol):
    """Parameters of a retriever that the model depends on."""

    search: str | None
    n_trees: int | None
    n_probes: int | None
    n_components: int
    regularization: float
    n_value_passes: int
    n_router_passes: int
    leaf_multiplier: float
    alpha: float
    n_reroutes: int
    n_jobs: int | None
    random_state: Any
    verbose: bool


class ValueExpectation(files.WithFields):
    """A linear map from keys to the components of values, learned by ridge regression.

    Attributes
    ----------
    components : Components
        The basis of values.
    map : Expectation
        The map from a key to its expected value.
    """

    FIELDS = files.FieldTable(
        components=ComponentsField(), map=files.StructureField(Expectation, files.trim_expectation)
    )

    def __init__(self, components: Components, learned: Expectation) -> None:
        self.components, self.map = components, learned

    def copied(self) -> ValueExpectation:
        """Return a copy that can learn without changing this expectation."""
        return ValueExpectation(self.components, copy.deepcopy(self.map))

    def expect(self, rows: Rows, n_threads: int) -> np.ndarray:
        """Return the expected values of rows as vectors of the forest; the part outside the components is 0."""
        expected = np.zeros((rows.n_rows, self.components.n_components), np.float32)

        def expect(first: int, stop: int) -> None:
            expect_rows(self.map, rows, first, stop, expected)

        share_rows(expect, rows.n_rows, n_threads)
        return np.pad(expected, ((0, 0), (0, 1)))

    def learn_values(
        self,
        rows: Rows,
        vectors: np.ndarray,
        weights: np.ndarray | None,
        orders: np.random.Generator,
        options: RetrievalOptions,
    ) -> None:
        """Learn the values of rows, which are given as vectors of the forest."""
        self.map = enter_rows(self.map, rows)
        targets = np.ascontiguousarray(vectors[:, :-1])
        duals = np.zeros_like(targets)
        softnesses = np.float32(options.regularization) / filled(weights, rows.n_rows)
        for _ in with_progress(range(options.n_value_passes), "pass", options.verbose):
            learn_expectations(self.map, rows, orders.permutation(rows.n_rows), targets, duals, softnesses)

    def learn_rewards(
        self, rows: Rows, of_rows: np.ndarray, values: Any, rewards: np.ndarray, options: RetrievalOptions
    ) -> None:
        """Learn to predict ``rewards[i]``, the reward of value ``i`` for row ``of_rows[i]``."""
        self.map = enter_rows(self.map, rows)
        vectors = np.ascontiguousarray(self.components.reduced(values)[:, :-1])
        learn_rewards(self.map, rows, of_rows, vectors, rewards, float(options.regularization))


class RetrievalModel(files.WithFields):
    """The memories of a retriever, and the forest that finds them.

    Attributes
    ----------
    tree : ContextualMemoryTree
        The trees, over keys or over distinct values.
    memories : Memories
        The tables of memories, keys and values.
    orders : numpy.random.Generator
        Generator of the order in which rows are learned.
    sparse : bool
        Whether keys are sparse.
    by_value : ValueExpectation or None
        The map from keys to expected values; None in a search by key.
    distinct : DistinctVectors
        Numbers of the values in the forest. Not used in a search by key.
    learned : LearnedSearch or None
        What a search by key has learned from rewards; None if there were none.
    """

    FIELDS = files.FieldTable(
        tree=TreeField(),
        memories=MemoriesField(),
        orders=files.GeneratorField(),
        sparse=files.FlagField(),
        by_value=files.OptionalField(files.PartField(ValueExpectation)),
        distinct=DistinctField(),
        learned=files.OptionalField(LearnedField()),
    )

    def __init__(
        self,
        tree: ContextualMemoryTree,
        orders: np.random.Generator,
        memories: Memories,
        by_value: ValueExpectation | None,
        *,
        sparse: bool,
    ) -> None:
        self.tree, self.orders, self.memories, self.by_value = tree, orders, memories, by_value
        self.sparse = sparse
        self.distinct = DistinctVectors()
        self.learned: LearnedSearch | None = None

    @classmethod
    def new(cls, options: RetrievalOptions, rows: Rows, values: Any) -> RetrievalModel:
        """Return an empty model for keys and values like these."""
        searches_values = options.search == "value" if options.search else values.ndim == 2
        seed = check_random_state(options.random_state).randint(2**31)
        tree = ContextualMemoryTree(
            options.n_trees or (_VALUE_TREES if searches_values else _KEY_TREES),
            options.alpha,
            options.leaf_multiplier,
            options.n_reroutes,
            sure_margin=_SURE_MARGIN if searches_values else _SURE_MARGIN_OF_KEYS,
            n_threads=check_jobs(options.n_jobs),
            random_state=seed,
        )
        memories, by_value = Memories.none(ValueStore(values[:0])), None
        if searches_values:
            components = Components(values, options.n_components, seed)
            parameters = ExpectationParameters(rows.n_features, rows.sparse)
            by_value = ValueExpectation(components, new_expectation(parameters, components.n_components))
        return cls(tree, np.random.default_rng(seed), memories, by_value, sparse=rows.sparse)

    @property
    def forest(self) -> Forest:
        """The forest."""
        return self.tree._forest

    @property
    def search(self) -> str:
        """Whether search is by "key" or by "value"."""
        return "key" if self.by_value is None else "value"

    def copied(self) -> RetrievalModel:
        """Return a copy that can learn without changing this model."""
        other = copy.copy(self)
        other.tree, other.distinct, other.orders = self.tree._twin(), self.distinct.copied(), copy.deepcopy(self.orders)
        other.by_value = None if self.by_value is None else self.by_value.copied()
        other.learned = None if self.learned is None else self.learned.copy()
        return other

    def roll_back(self) -> None:
        """After a failed change, remove the keys that the tables do not contain."""
        roll_back(self.forest)
        self._forget_keys(np.setdiff1d(self.tree.ids, self.memories.keys))
        self.distinct = self.distinct.only(self.memories.keys)

    def prepare_like(self, _former: RetrievalModel, _options: RetrievalOptions) -> None:
        """Do nothing: queries need no caches."""

    def has_much_due(self, _n_rows: int, _options: RetrievalOptions) -> bool:
        """Return False: learning rows never entails much additional work."""
        return False

    # Changes

    def store(
        self, rows: Rows, values: Any, weights: np.ndarray | None, options: RetrievalOptions, *, afresh: bool
    ) -> None:
        """Store memories, and learn from them."""
        if self.by_value is None:
            entries = insert_rows(self.forest, rescaled(rows), options.verbose)
            self.memories = self.memories.with_more(values, entries)
            return
        vectors = self.by_value.components.reduced(values)
        entries = self._insert_distinct(digests_of(vectors), self._as_rows(vectors), options.verbose)
        self.memories = self.memories.with_more(values, entries)
        self.by_value.learn_values(rows, vectors, weights, self.orders, options)
        if options.n_router_passes > 0:
            expected = self._as_rows(self._expected(rows))
            teach_rows(self.forest, expected, entries, options.n_router_passes, afresh, options.verbose)

    def remove(self, ids: np.ndarray) -> None:
        """Remove memories with all their keys and values."""
        self._set_memories(self.memories.without(ids, shared=self.by_value is not None))

    def replace(self, ids: np.ndarray, rows: Rows) -> None:
        """Replace the keys of memories."""
        entries = self.memories.entries_of(ids)
        replace_rows(self.forest, entries, rescaled(rows))
        if self.learned is not None:
            self.learned.model.forget(entries)

    def set_values(self, ids: np.ndarray, values: Any) -> None:
        """Replace the values of memories."""
        entries = None
        if self.by_value is not None:
            vectors = self.by_value.components.reduced(values)
            entries = self._insert_distinct(digests_of(vectors), self._as_rows(vectors))
        self._set_memories(self.memories.with_values(ids, values, entries))

    def learn_rewards(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray, options: RetrievalOptions) -> None:
        """Learn from the rewards of retrieved memories. Ids may be NONE."""
        if self.by_value is None:
            entries, index = self.memories.entries_of(ids), KeyIndex(self.forest, options.n_probes)
            known = np.where(ids == NONE, np.nan, rewards)
            if not np.isnan(known).all():
                learned = self.learned or LearnedSearch(index, self.sparse)
                learned.feedback(index, as_matrix(rows), entries, known, is_shared=rewards.shape != ids.shape)
                self.learned = learned
            return
        rewards = np.broadcast_to(rewards, ids.shape)
        of_rows, rank = np.nonzero((ids != NONE) & ~np.isnan(rewards))
        if of_rows.size == 0:
            return
        found, rewards = ids[of_rows, rank], rewards[of_rows, rank]
        self.by_value.learn_rewards(rows, of_rows, self.memories.values_of(found), rewards, options)
        best = rewards >= WORTH_KEEPING
        if np.any(best):
            expected = self._as_rows(self._expected(rows)[of_rows[best]])
            teach_rows(self.forest, expected, self.memories.entries_of(found)[best])

    def _insert_distinct(self, digests: list[bytes], keys: Rows, verbose: bool = False) -> np.ndarray:
        """Insert the keys whose digests are new; return the forest entries of all keys.

        New entries become permanent when the tables refer to them.
        """
        first = self.forest.next_id
        entries = self.distinct.number(digests, first)
        new, of_rows = np.unique(entries, return_index=True)
        of_rows = of_rows[new >= first]
        if of_rows.size > 0:
            insert_rows(self.forest, keys.take(of_rows), verbose)
        return entries

    def _set_memories(self, memories: Memories) -> None:
        """Replace the tables, and remove from the forest the keys that only the old tables contain."""
        gone = np.setdiff1d(self.memories.keys, memories.keys)
        self.memories = memories
        self._forget_keys(gone)

    def _forget_keys(self, keys: np.ndarray) -> None:
        """Remove keys from the forest."""
        self.distinct.forget(keys)
        if self.learned is not None:
            self.learned.model.forget(keys)
        if keys.size > 0:
            remove_ids(self.forest, keys)

    # Queries

    def best_memories(self, rows: Rows, k: int, options: RetrievalOptions) -> Hits:
        """Return the ``k`` best memories of each row, and their scores."""
        memories = self.memories
        if self.by_value is not None:
            expected = self._expected(rows)
            n_leaves = options.n_probes or _VALUE_LEAVES * (options.n_trees or _VALUE_TREES)
            hits: Hits = query_forest(self.forest, self._as_rows(expected), k, n_leaves)
            lengths = np.linalg.norm(expected, axis=1)[:, None].astype(np.float32)
            scores = np.where(hits.ids == NONE, hits.scores, np.clip(hits.scores * lengths, 0.0, 1.0))
            return hits._replace(ids=memories.owners_of(hits.ids), scores=scores)
        if self.learned is None or self.forest.n_memories == 0:
            hits = query_forest(self.forest, rescaled(rows), k, options.n_probes)
            return hits._replace(ids=memories.owners_of(hits.ids))
        index = KeyIndex(self.forest, options.n_probes)
        ids, scores = self.learned.search(index, as_matrix(rows), k, 1.0, None, self.forest.threads_for(rows.n_rows))
        return no_hits(rows.n_rows, k)._replace(ids=memories.owners_of(ids), scores=scores.astype(np.float32))

    def explain(
        self, rows: Rows, ids: np.ndarray, scores: np.ndarray, options: RetrievalOptions
    ) -> list[dict[str, float]]:
        """Return the parts of the scores of the memories found for one row, by name."""
        if self.learned is None or not self.learned.model.is_used or ids.size == 0:
            return [{"similarity": score} for score in scores.tolist()]
        index = KeyIndex(self.forest, options.n_probes)
        return self.learned.explain(index, as_matrix(rows), self.memories.entries_of(ids), 1.0)

    def _expected(self, rows: Rows) -> np.ndarray:
        assert self.by_value is not None
        return self.by_value.expect(rows, self.forest.threads_for(rows.n_rows))

    def _as_rows(self, vectors: np.ndarray) -> Rows:
        """Return values, stored or expected, as rows for the forest."""
        return check_rows(vectors, n_threads=self.forest.most_threads())
