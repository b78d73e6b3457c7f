"""A forest over memories with values: what a retriever does with rows that are validated."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._concurrency.workers import share_rows, with_progress
from .._engine import insert_rows, query_forest, remove_ids, roll_back, teach_rows, update_rows
from .._forest.hits import WORTH_KEEPING, Hits, no_hits
from .._forest.rows import Rows, rescaled
from .._forest.state import NONE
from .._heads.ridge import (
    Expectation,
    ExpectationParameters,
    enter_rows,
    expect_rows,
    learn_expectations,
    learn_rewards,
    new_expectation,
)
from .._validation import (
    MOST_WANTED,
    check_jobs,
    check_rows,
)
from ..tree import ContextualMemoryTree
from ._base import SavableEstimator
from ._durable import KeptInFolder
from ._further_keys import FURTHER, OWN, Worth
from ._memories import Memories
from ._values import (
    Components,
    DistinctVectors,
    ValueStore,
    digests_of,
    digests_of_keys,
)
from ._weights import filled

_KEY_TREES, _VALUE_TREES = 4, 1
_VALUE_LEAVES = 4  # searched for each tree: what is expected is seldom quite what is there
_SURE_MARGIN = 0.2  # taught routers answer new rows with less than what they were taught
_SPARE_ANSWERS = 8  # asked for beyond those wanted, because several keys may lead to one memory
_ROWS_AT_FIRST, _MOST_ROWS = 32, 512  # that rewards are learned for at once


class MemoryForest(KeptInFolder, SavableEstimator, BaseEstimator):
    """Memories with values, and a forest that finds them by their keys or by their values.

    Searching by key, the forest holds the keys of memories. Searching by value, it holds distinct values, and an
    expectation of the value of each query is looked up in it.
    """

    _worth = Worth.first()  # files of earlier versions have none

    def _new_forest(self, seed: int, *, by_value: bool) -> ContextualMemoryTree:
        return ContextualMemoryTree(
            self.n_trees or (_VALUE_TREES if by_value else _KEY_TREES),
            self.alpha,
            self.leaf_multiplier,
            self.n_reroutes,
            sure_margin=_SURE_MARGIN if by_value else 0.75,
            n_threads=check_jobs(self.n_jobs),
            random_state=seed,
        )

    def _start(self, rows: Rows, values: Any) -> None:
        """Make an empty forest for keys and values like these, and choose how to search it."""
        self.search_ = self.search or ("value" if values.ndim == 2 else "key")
        seed = check_random_state(self.random_state).randint(2**31)
        self.forest_ = self._new_forest(seed, by_value=self.search_ == "value")
        self._orders = np.random.default_rng(seed)
        self._sparse = rows.sparse
        self._memories = Memories.none(ValueStore(values[:0]))
        self._distinct = DistinctVectors()  # values, where they are searched, else further keys
        self._worth = Worth.first()
        if self.search_ == "value":
            self._components = Components(values, self.n_components, seed)
            parameters = ExpectationParameters(rows.n_features, rows.sparse)
            self.expectation_: Expectation = new_expectation(parameters, self._components.n_components)

    def _store(self, rows: Rows, values: Any, weights: np.ndarray | None, *, afresh: bool) -> None:
        """Store memories, and learn from them."""
        if self.search_ == "value":
            vectors = self._components.reduced(values)
            entries = self._insert_distinct(digests_of(vectors), self._forest_rows(vectors))
            self._memories = self._memories.with_more(values, entries)
            self._learn_values(rows, vectors, entries, weights, afresh=afresh)
        else:
            self._memories = self._memories.with_more(
                values, insert_rows(self.forest_._forest, rescaled(rows), self.verbose)
            )

    def _forest_rows(self, vectors: np.ndarray) -> Rows:
        """Return values, or expectations of them, as rows for the forest."""
        return check_rows(vectors, n_threads=self.forest_._forest.most_threads())

    def _insert_distinct(self, digests: list[bytes], keys: Rows) -> np.ndarray:
        """Insert those keys into the forest that are not there, by their digests, and return what each is there.

        They are there when the tables name them.
        """
        first = self.forest_._forest.next_id
        entries = self._distinct.number(digests, first)
        new, of_rows = np.unique(entries, return_index=True)
        of_rows = of_rows[new >= first]
        if of_rows.size > 0:
            insert_rows(self.forest_._forest, keys.take(of_rows), self.verbose)
        return entries

    def _recover(self) -> None:
        roll_back(self.forest_._forest)
        self._forget_keys(np.setdiff1d(self.forest_.ids, self._memories.keys))
        self._distinct = self._distinct.only(self._memories.keys)

    def _forget_keys(self, keys: np.ndarray) -> None:
        """Take out of the forest what the tables do not name any more."""
        self._distinct.forget(keys)
        if keys.size > 0:
            remove_ids(self.forest_._forest, keys)

    def _set_memories(self, memories: Memories) -> None:
        """Have other tables, and forget what is in the forest and in the old ones, but not in these."""
        gone = np.setdiff1d(self._memories.keys, memories.keys)
        self._memories = memories
        self._forget_keys(gone)

    def _learn_values(
        self, rows: Rows, vectors: np.ndarray, entries: np.ndarray, weights: np.ndarray | None, *, afresh: bool
    ) -> None:
        self.expectation_ = enter_rows(self.expectation_, rows)
        targets = np.ascontiguousarray(vectors[:, :-1])
        duals = np.zeros_like(targets)
        softnesses = np.float32(self.regularization) / filled(weights, rows.n_rows)
        for _ in with_progress(range(self.n_value_passes), "pass", self.verbose):
            order = self._orders.permutation(rows.n_rows)
            learn_expectations(self.expectation_, rows, order, targets, duals, softnesses)
        if self.n_router_passes > 0:
            expected = self._forest_rows(self._expected(rows))
            teach_rows(self.forest_._forest, expected, entries, self.n_router_passes, afresh, self.verbose)

    def _learn_rewards(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray) -> None:
        pairs, rank = np.nonzero(ids != NONE)
        if pairs.size == 0:
            return
        self.expectation_ = enter_rows(self.expectation_, rows)
        found = ids[pairs, rank]
        vectors = np.ascontiguousarray(self._components.reduced(self._memories.values_of(found))[:, :-1])
        learn_rewards(self.expectation_, rows, pairs, vectors, rewards[pairs, rank], float(self.regularization))
        entries = self._memories.entries_of(found)
        best = rewards[pairs, rank] >= WORTH_KEEPING
        if np.any(best):
            expected = self._forest_rows(self._expected(rows)[pairs[best]])
            teach_rows(self.forest_._forest, expected, entries[best])

    def _learn_ranking(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from rewards, some rows after the other: each shows what the keys that came of others are worth."""
        first, n = 0, _ROWS_AT_FIRST
        while first < rows.n_rows:
            some = slice(first, first + n)
            self._learn_some(rescaled(rows.take(np.arange(rows.n_rows)[some])), ids[some], rewards[some])
            first, n = first + n, min(2 * n, _MOST_ROWS)

    def _learn_some(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray) -> None:
        worth = np.where(ids == NONE, 0.0, rewards)
        best = worth.argmax(axis=1)
        right = np.where(worth.max(axis=1) >= WORTH_KEEPING, ids[np.arange(best.size), best], NONE)
        self._weigh_keys(rows, ids, right)
        hits = no_hits(*ids.shape)._replace(ids=self._memories.entries_of(ids))
        update_rows(self.forest_._forest, rows, hits, rewards)
        kept = np.flatnonzero(right != NONE)
        if kept.size > 0:
            owners, keys = right[kept], rows.take(kept)
            entries = self._insert_distinct(digests_of_keys(keys, owners), keys)
            self._memories = self._memories.with_keys(entries, owners)

    def _weigh_keys(self, rows: Rows, ids: np.ndarray, right: np.ndarray) -> None:
        """Learn from the nearest own and further key of each row what further keys are worth.

        A memory is right or, if it was shown and another one or none is, wrong.
        """
        hits, owners, further = self._found(rows, 1)
        for kind, of_kind in ((OWN, ~further & (owners != NONE)), (FURTHER, further)):
            there = of_kind.any(axis=1)
            at = np.flatnonzero(there), of_kind.argmax(axis=1)[there]
            owner, asked = owners[at], right[there]
            known = (asked != NONE) | (ids[there] == owner[:, None]).any(axis=1)
            self._worth = self._worth.seen(kind, hits.scores[at][known], (owner == asked)[known])

    def _found(self, rows: Rows, k: int) -> tuple[Hits, np.ndarray, np.ndarray]:
        """Return what the forest finds for the ``k`` best memories, what these are, and which keys are further ones."""
        memories = self._memories
        several = memories.keys.size > memories.ids.size  # keys of some memory
        wanted = min(2 * k + _SPARE_ANSWERS, max(MOST_WANTED, self.forest_.n_memories)) if several else k
        hits: Hits = query_forest(self.forest_._forest, rows, wanted, self.n_probes)
        owners = memories.owners_of(hits.ids)
        further = (owners != NONE) & (memories.entries_of(owners) != hits.ids)
        short = np.flatnonzero(np.sum((owners != NONE) & ~further, axis=1) < min(k, memories.ids.size))
        if not several or short.size == 0:
            return hits, owners, further
        # Among very many further keys there may be no other that would be worth more.
        own = query_forest(self.forest_._forest, rows.take(short), k, self.n_probes, among=memories.own_entries)
        more = no_hits(rows.n_rows, k)
        more.ids[short], more.scores[short] = own.ids, own.scores
        hits = hits._replace(ids=np.hstack([hits.ids, more.ids]), scores=np.hstack([hits.scores, more.scores]))
        further = np.hstack([further, np.zeros(more.ids.shape, np.bool_)])
        return hits, np.hstack([owners, memories.owners_of(more.ids)]), further

    def _best(self, rows: Rows, k: int) -> Hits:
        memories = self._memories
        if self.search_ == "value":
            expected = self._expected(rows)
            n_leaves = self.n_probes or _VALUE_LEAVES * (self.n_trees or _VALUE_TREES)
            hits: Hits = query_forest(self.forest_._forest, self._forest_rows(expected), k, n_leaves)
            lengths = np.linalg.norm(expected, axis=1)[:, None].astype(np.float32)
            scores = np.where(hits.ids == NONE, hits.scores, np.clip(hits.scores * lengths, 0.0, 1.0))
            return hits._replace(ids=memories.owners_of(hits.ids), scores=scores)
        hits, owners, further = self._found(rescaled(rows), k)
        if not further.any():
            return hits._replace(ids=owners[:, :k], scores=hits.scores[:, :k])
        scores = np.where(further, self._worth.in_terms_of_own(hits.scores), hits.scores)
        order = np.argsort(-scores, axis=1, kind="stable")
        ids, scores = (np.take_along_axis(part, order, axis=1) for part in (owners, scores))
        return _each_once(hits._replace(ids=ids, scores=scores), k)

    def _expected(self, rows: Rows) -> np.ndarray:
        """Return what to expect of rows, in the terms of the forest: nothing of what the components leave out."""
        expected = np.zeros((rows.n_rows, self._components.n_components), np.float32)

        def expect(first: int, stop: int) -> None:
            expect_rows(self.expectation_, rows, first, stop, expected)

        share_rows(expect, rows.n_rows, self.forest_._forest.threads_for(rows.n_rows))
        return np.pad(expected, ((0, 0), (0, 1)))


def _each_once(hits: Hits, k: int) -> Hits:
    """Return the first ``k`` different memories of each row."""
    once = no_hits(hits.ids.shape[0], k)
    for row, (ids, scores) in enumerate(zip(hits.ids, hits.scores, strict=True)):
        _, first = np.unique(ids[ids != NONE], return_index=True)
        first = np.sort(first)[:k]
        once.ids[row, : first.size], once.scores[row, : first.size] = ids[first], scores[first]
    return once
