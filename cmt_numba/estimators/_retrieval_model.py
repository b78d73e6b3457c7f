"""Model of a retriever: memories with values, and a forest that finds them by key or by value.

In a search by key, the forest holds the memories' keys. In a search by value, it holds distinct values, and a query
searches for the value predicted from its key.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from .._change import share_rows, with_progress
from .._engine import Forest, insert_rows, query_forest, remove_ids, replace_rows, roll_back, teach_rows, update_rows
from .._forest import NONE, WORTH_KEEPING, Hits, Rows, no_hits, require, rescaled
from .._heads import (
    Expectation,
    ExpectationParameters,
    enter_rows,
    expect_rows,
    learn_expectations,
    learn_rewards,
    new_expectation,
)
from .._validation import MOST_WANTED, check_jobs, check_rows
from ..tree import ContextualMemoryTree
from ._input import filled
from ._memories import FURTHER, OWN, FurtherKeyWorth, Memories
from ._values import Components, DistinctVectors, ValueStore, digests_of, digests_of_keys

_KEY_TREES, _VALUE_TREES = 4, 1
_VALUE_LEAVES = 4  # leaves searched per tree; more than one, because a predicted value seldom equals a stored one
_SURE_MARGIN, _SURE_MARGIN_OF_KEYS = 0.2, 0.75  # new rows have smaller margins than the rows that trained the routers
_SPARE_ANSWERS = 8  # additional hits, because several keys may belong to one memory
_ROWS_AT_FIRST, _MOST_ROWS = 32, 512  # number of rows in the first and in the largest block when learning from rewards


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


class ValueExpectation:
    """A linear map from keys to the components of values, learned by ridge regression.

    Attributes
    ----------
    components : Components
        The basis of values.
    map : Expectation
        The map from a key to its expected value.
    """

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


class RetrievalModel:
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
        Numbers of the values in the forest or, in a search by key, of the further keys.
    worth : FurtherKeyWorth
        The weight of similarity to further keys.
    """

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
        self.worth = FurtherKeyWorth.first()

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

    @classmethod
    def of_attributes(cls, known: dict[str, Any]) -> RetrievalModel:
        """Return the model from the attributes in a file or pickle."""
        by_value = None
        if known["search_"] == "value":
            for name in ("_components", "expectation_"):
                require(name in known, f"{name} is missing")
            by_value = ValueExpectation(known["_components"], known["expectation_"])
        model = cls(known["forest_"], known["_orders"], known["_memories"], by_value, sparse=known["_sparse"])
        model.distinct, model.worth = known["_distinct"], known.get("_worth", model.worth)
        return model

    def attributes(self) -> dict[str, Any]:
        """Return the attributes for a file or pickle."""
        by_value = self.by_value
        learned = {} if by_value is None else {"_components": by_value.components, "expectation_": by_value.map}
        return learned | {
            "search_": self.search,
            "forest_": self.tree,
            "_orders": self.orders,
            "_sparse": self.sparse,
            "_memories": self.memories,
            "_distinct": self.distinct,
            "_worth": self.worth,
        }

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
        replace_rows(self.forest, self.memories.entries_of(ids), rescaled(rows))

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
            self._learn_ranking(rows, ids, rewards, options)
            return
        of_rows, rank = np.nonzero(ids != NONE)
        if of_rows.size == 0:
            return
        found, rewards = ids[of_rows, rank], rewards[of_rows, rank]
        self.by_value.learn_rewards(rows, of_rows, self.memories.values_of(found), rewards, options)
        best = rewards >= WORTH_KEEPING
        if np.any(best):
            expected = self._as_rows(self._expected(rows)[of_rows[best]])
            teach_rows(self.forest, expected, self.memories.entries_of(found)[best])

    def _learn_ranking(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray, options: RetrievalOptions) -> None:
        """Learn from rewards in blocks of rows. Each block tests the further keys that earlier blocks added."""
        first, n = 0, _ROWS_AT_FIRST
        while first < rows.n_rows:
            some = slice(first, first + n)
            block = rescaled(rows.take(np.arange(rows.n_rows)[some]))
            self._learn_ranking_of_block(block, ids[some], rewards[some], options)
            first, n = first + n, min(2 * n, _MOST_ROWS)

    def _learn_ranking_of_block(
        self, rows: Rows, ids: np.ndarray, rewards: np.ndarray, options: RetrievalOptions
    ) -> None:
        worth = np.where(ids == NONE, 0.0, rewards)
        best = worth.argmax(axis=1)
        right = np.where(worth.max(axis=1) >= WORTH_KEEPING, ids[np.arange(best.size), best], NONE)
        self._weigh_keys(rows, ids, right, options)
        hits = no_hits(*ids.shape)._replace(ids=self.memories.entries_of(ids))
        update_rows(self.forest, rows, hits, rewards)
        kept = np.flatnonzero(right != NONE)
        if kept.size > 0:
            owners, keys = right[kept], rows.take(kept)
            entries = self._insert_distinct(digests_of_keys(keys, owners), keys, options.verbose)
            self.memories = self.memories.with_keys(entries, owners)

    def _weigh_keys(self, rows: Rows, ids: np.ndarray, right: np.ndarray, options: RetrievalOptions) -> None:
        """Learn the weight of further keys, from the nearest own key and the nearest further key of each row.

        A row without a correct memory counts only if the key's memory was shown, because that memory is then known to
        be wrong.
        """
        hits, owners, further = self._search_keys(rows, 1, options)
        for kind, of_kind in ((OWN, ~further & (owners != NONE)), (FURTHER, further)):
            there = of_kind.any(axis=1)
            at = np.flatnonzero(there), of_kind.argmax(axis=1)[there]
            owner, wanted = owners[at], right[there]
            known = (wanted != NONE) | (ids[there] == owner[:, None]).any(axis=1)
            self.worth = self.worth.seen(kind, hits.scores[at][known], (owner == wanted)[known])

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
        hits, owners, further = self._search_keys(rescaled(rows), k, options)
        if not further.any():
            return hits._replace(ids=owners[:, :k], scores=hits.scores[:, :k])
        scores = np.where(further, self.worth.in_terms_of_own(hits.scores), hits.scores)
        order = np.argsort(-scores, axis=1, kind="stable")
        ids, scores = (np.take_along_axis(part, order, axis=1) for part in (owners, scores))
        return _each_once(hits._replace(ids=ids, scores=scores), k)

    def _search_keys(self, rows: Rows, k: int, options: RetrievalOptions) -> tuple[Hits, np.ndarray, np.ndarray]:
        """Search for the keys of the ``k`` best memories; return hits, the keys' owners, and a mask of further keys."""
        memories = self.memories
        several = memories.keys.size > memories.ids.size  # at least one memory has several keys
        wanted = min(2 * k + _SPARE_ANSWERS, max(MOST_WANTED, self.forest.n_memories)) if several else k
        hits: Hits = query_forest(self.forest, rows, wanted, options.n_probes)
        owners = memories.owners_of(hits.ids)
        further = (owners != NONE) & (memories.entries_of(owners) != hits.ids)
        short = np.flatnonzero(np.sum((owners != NONE) & ~further, axis=1) < min(k, memories.ids.size))
        if not several or short.size == 0:
            return hits, owners, further
        # Further keys may crowd out own keys, so search again among own keys only.
        own = query_forest(self.forest, rows.take(short), k, options.n_probes, among=memories.own_entries)
        more = no_hits(rows.n_rows, k)
        more.ids[short], more.scores[short] = own.ids, own.scores
        hits = hits._replace(ids=np.hstack([hits.ids, more.ids]), scores=np.hstack([hits.scores, more.scores]))
        further = np.hstack([further, np.zeros(more.ids.shape, np.bool_)])
        return hits, np.hstack([owners, memories.owners_of(more.ids)]), further

    def _expected(self, rows: Rows) -> np.ndarray:
        assert self.by_value is not None
        return self.by_value.expect(rows, self.forest.threads_for(rows.n_rows))

    def _as_rows(self, vectors: np.ndarray) -> Rows:
        """Return values, stored or expected, as rows for the forest."""
        return check_rows(vectors, n_threads=self.forest.most_threads())


def _each_once(hits: Hits, k: int) -> Hits:
    """Return the first ``k`` distinct memories of each row."""
    once = no_hits(hits.ids.shape[0], k)
    for row, (ids, scores) in enumerate(zip(hits.ids, hits.scores, strict=True)):
        _, first = np.unique(ids[ids != NONE], return_index=True)
        first = np.sort(first)[:k]
        once.ids[row, : first.size], once.scores[row, : first.size] = ids[first], scores[first]
    return once
