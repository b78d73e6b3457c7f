"""Model of a retriever: memories with values, and an index that finds them by key or by value.

In a search by key, the index holds the memories' keys. In a search by value, it holds distinct values, and a query
searches for the value predicted from its key.
"""

import copy
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from .. import _heads as heads
from .. import persistence as files
from .._change import share_rows, spans, with_progress
from .._feedback import LearnedSearch
from .._index import DenseIndex
from .._kernels import NONE, Hits, Rows, as_matrix, no_hits, require, with_room
from .._postings import SparseIndex
from ._fields import INDEX, LEARNED
from ._input import Factors, filled
from ._label_index import threads_for
from ._memories import Memories
from ._values import Components, ValueStore

_DIGEST_SIZE = 16  # size in bytes of the digest of a value
_ROWS_AT_ONCE = 4096  # number of dense keys between checks for interrupts


class ValueExpectation(files.WithFields):
    """A linear map from keys to ``components`` of values, learned by ridge regression.

    If keys are sparse, only ``features`` that have occurred have weights, in order of arrival.
    """

    FIELDS = files.FieldTable(
        components=files.TupleField(
            Components,
            basis=files.OptionalField(files.ArrayField(np.float32, n_axes=2)),
            n_components=files.NumberField(),
        ),
        weights=files.ArrayField(np.float32, n_axes=2),
        bias=files.ArrayField(np.float32),
        features=files.OptionalField(files.ArrayField(np.int32)),
    )

    def __init__(self, components: Components, weights: Any, bias: np.ndarray, features: np.ndarray | None) -> None:
        self.components, self.map = components, heads.Expectation(weights, bias)
        self._features: np.ndarray | None = None
        self._table = np.full(2, NONE, np.int32)  # hash table of the places of features
        if features is not None:
            require(np.unique(features).size == features.size, "the features of the map must be distinct")
            self._append(features[:0], features)

    @classmethod
    def new(cls, components: Components, n_features: int, sparse: bool) -> Self:
        """Return a map that predicts the zero vector."""
        weights = np.zeros((0 if sparse else n_features, components.n_components), np.float32)
        return cls(components, weights, weights.sum(axis=0), np.empty(0, np.int32) if sparse else None)

    def _append(self, known: np.ndarray, features: np.ndarray) -> None:
        first, self._features = known.size, np.append(known, features)
        if 2 * self._features.size > self._table.size:
            first, self._table = 0, np.full(1 << (2 * self._features.size).bit_length(), NONE, np.int32)
        heads.enter_features(self._table, self._features, first)

    def _places_of(self, features: np.ndarray) -> np.ndarray:
        places = np.empty(features.size, np.int32)
        heads.find_features(self._table, self._features, features, places)
        return places

    def _placed(self, rows: Rows) -> Rows:
        """Return rows with the places of their features as indices."""
        return rows._replace(indices=self._places_of(rows.indices)) if rows.sparse else rows

    def _entered(self, rows: Rows) -> Rows:
        """Give every feature of the rows a place, and return the rows with these places as indices."""
        if self._features is not None:
            features, n = np.unique(rows.indices), self._features.size
            features = features[self._places_of(features) == NONE]
            self.map = self.map._replace(weights=with_room(self.map.weights, n, features.size, fill=0.0))
            self._append(self._features, features)
        return self._placed(rows)

    def expect(self, rows: Rows, n_threads: int) -> np.ndarray:
        """Return the expected values of rows as vectors of the index; the part outside the components is 0."""
        expected, placed = np.zeros((rows.n_rows, self.components.n_components), np.float32), self._placed(rows)

        def expect(first: int, stop: int) -> None:
            heads.expect_rows(self.map, placed, first, stop, expected)

        share_rows(expect, rows.n_rows, n_threads)
        return np.pad(expected, ((0, 0), (0, 1)))

    def learn_values(
        self, rows: Rows, vectors: np.ndarray, weights: Factors, orders: np.random.Generator, options: Any
    ) -> None:
        """Learn the values of rows, which are given as vectors of the index."""
        placed, targets = self._entered(rows), np.ascontiguousarray(vectors[:, :-1])
        duals = np.zeros_like(targets)
        softnesses = np.float32(options.regularization) / filled(weights, rows.n_rows)
        for _ in with_progress(range(options.n_value_passes), "pass", options.verbose):
            heads.learn_expectations(self.map, placed, orders.permutation(rows.n_rows), targets, duals, softnesses)

    def learn_rewards(self, rows: Rows, of_rows: np.ndarray, values: Any, rewards: np.ndarray, penalty: float) -> None:
        """Learn to predict ``rewards[i]``, the reward of value ``i`` for row ``of_rows[i]``."""
        placed = self._entered(rows)
        vectors = np.ascontiguousarray(self.components.reduced(values)[:, :-1])
        of_rows = np.ascontiguousarray(of_rows)  # a strided array would compile the kernel again
        heads.learn_rewards(self.map, placed, of_rows, vectors, rewards, penalty)

    def _packed(self) -> Any:
        (weights, bias), features = self.map, self._features
        weights = weights if features is None else weights[: features.size]
        return SimpleNamespace(components=self.components, weights=weights, bias=bias, features=features)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        return cls(**values)

    def check(self, n_features: int, sparse: bool, thorough: bool) -> None:
        """Raise InvariantError unless this is a map from keys with so many features."""
        (basis, n_components), (weights, bias), features = self.components, self.map, self._features
        require(sparse == (features is not None), "the map and the keys must both be sparse or both be dense")
        n_places = n_features if features is None else features.size
        require(len(weights) >= n_places, "each feature of the map must have weights")
        require(weights.shape[1] == n_components == bias.size, "the map must have one output for each component")
        require(basis is None or basis.shape[1] == n_components, "the basis must have a vector for each component")
        if thorough:
            arrays = (basis, weights, bias)
            require(all(np.isfinite(array).all() for array in arrays if array is not None), "the map must be finite")
            known = features is None or ((features >= 0) & (features < n_features)).all()
            require(bool(known), "the map has a feature that does not exist")


class RetrievalModel(files.WithFields):
    """The memories of a retriever, and the index that finds them. A new model suits keys and values like the given.

    The ``options`` of all methods are the parameters of the retriever.
    """

    FIELDS = files.FieldTable(
        index=INDEX,  # keys of memories, or distinct values, by their entries in the tables
        memories=files.PartField(Memories),
        orders=files.GeneratorField(),  # generator of the order in which rows are learned
        sparse=files.FlagField(),  # whether keys are sparse
        # map from keys to expected values; None in a search by key
        by_value=files.OptionalField(files.PartField(ValueExpectation)),
        # what a search by key has learned from rewards; None if there were none
        learned=files.OptionalField(LEARNED),
    )
    _numbers: dict[bytes, int] | None = None  # in a search by value, the entry of each digest; None if not read yet

    def __init__(self, options: Any, rows: Rows, values: Any) -> None:
        seed = check_random_state(options.random_state).randint(2**31)
        self.orders, self.sparse = np.random.default_rng(seed), rows.sparse
        self.by_value: ValueExpectation | None = None
        self.learned: LearnedSearch | None = None
        if options.search == "value" if options.search else values.ndim == 2:
            components = Components.of(values, options.n_components, seed)
            self.by_value = ValueExpectation.new(components, rows.n_features, rows.sparse)
            self.index: Any = DenseIndex(components.n_components + 1, "cosine", seed)
        else:
            self.index = (SparseIndex if rows.sparse else DenseIndex)(rows.n_features, "cosine", seed)
        self.memories = Memories.none(ValueStore(values[:0]), 0 if self.by_value is None else _DIGEST_SIZE)

    def copied(self) -> Self:
        other = copy.copy(self)  # tables are immutable
        other.index, other.orders = self.index.copy(), copy.deepcopy(self.orders)
        other.by_value, other._numbers = copy.deepcopy(self.by_value), None
        other.learned = None if self.learned is None else LearnedSearch.of_arrays(*self.learned.arrays())
        return other

    def roll_back(self) -> None:
        """After a failed change, remove the keys that the tables do not contain."""
        self._numbers = None
        self._forget(np.setdiff1d(self.index.ids, self.memories.keys))

    def prepare_like(self, _former: "RetrievalModel", _options: Any) -> None:
        """Do nothing: queries need no caches."""

    def has_much_due(self, _n_rows: int, _options: Any) -> bool:
        """Return False: learning rows never entails much additional work."""
        return False

    # Changes

    def store(self, rows: Rows, values: Any, weights: Factors, options: Any) -> None:
        """Store memories, and learn from them."""
        if self.by_value is None:
            entries = self.memories.next_id + np.arange(rows.n_rows)
            self._insert(entries, as_matrix(rows), options.verbose)
            self.memories = self.memories.with_more(values, entries, np.empty((entries.size, 0), np.uint8))
            return
        vectors = self.by_value.components.reduced(values)
        self.memories = self.memories.with_more(values, *self._insert_distinct(vectors, options.verbose))
        self.by_value.learn_values(rows, vectors, weights, self.orders, options)

    def remove(self, ids: np.ndarray) -> None:
        self._set_memories(self.memories.without(ids))

    def replace(self, ids: np.ndarray, rows: Rows) -> None:
        entries = self.memories.entries_of(ids)
        self.index.replace(entries, as_matrix(rows))
        if self.learned is not None:
            self.learned.model.forget(entries)

    def set_values(self, ids: np.ndarray, values: Any) -> None:
        if self.by_value is None:
            entries = self.memories.entries_of(ids), np.empty((ids.size, 0), np.uint8)
        else:
            entries = self._insert_distinct(self.by_value.components.reduced(values))
        self._set_memories(self.memories.with_values(ids, values, *entries))

    def learn_rewards(self, rows: Rows, ids: np.ndarray, rewards: np.ndarray, options: Any) -> None:
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
            values, penalty = self.memories.values_of(ids[of_rows, rank]), float(options.regularization)
            self.by_value.learn_rewards(rows, of_rows, values, rewards[of_rows, rank], penalty)

    def _insert(self, entries: np.ndarray, keys: Any, verbose: bool) -> None:
        size = keys.shape[0] if isinstance(self.index, SparseIndex) else _ROWS_AT_ONCE
        for start, stop in with_progress(list(spans(keys.shape[0], max(1, size))), "insert", verbose):
            self.index.insert(keys[start:stop], entries[start:stop])

    def _insert_distinct(self, vectors: np.ndarray, verbose: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Insert new values; return the entries and digests of all, which the tables make permanent."""
        if self._numbers is None:
            self._numbers = self.memories.numbered()
        first = following = int(self.memories.keys.max(initial=NONE)) + 1
        digests = [blake2b(vector.tobytes(), digest_size=_DIGEST_SIZE).digest() for vector in vectors]
        entries = np.empty(len(digests), np.int64)
        for i, digest in enumerate(digests):
            entries[i] = self._numbers.setdefault(digest, following)
            following += int(entries[i] == following)
        new, of_rows = np.unique(entries, return_index=True)
        of_rows = of_rows[new >= first]
        self._insert(entries[of_rows], vectors[of_rows], verbose)
        return entries, np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST_SIZE)

    def _set_memories(self, memories: Memories) -> None:
        """Replace the tables, and remove from the index the keys that only the old tables contain."""
        is_gone = np.isin(self.memories.keys, memories.keys, assume_unique=True, invert=True)
        keys, digests = self.memories.keys[is_gone], self.memories.index.columns[2][is_gone]
        self.memories = memories
        if self._numbers:
            for digest in map(bytes, digests):
                self._numbers.pop(digest, None)
        self._forget(keys)

    def _forget(self, keys: np.ndarray) -> None:
        if self.learned is not None:
            self.learned.model.forget(keys)
        if keys.size > 0:
            self.index.remove(keys)

    # Queries

    def best_memories(self, rows: Rows, k: int, options: Any) -> Hits:
        """Return the ``k`` best memories of each row, and their scores."""
        n_threads, target = threads_for(rows.n_rows, options), options.target_recall
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

    def explain(self, rows: Rows, ids: np.ndarray, scores: np.ndarray, target: float) -> list[dict[str, float]]:
        """Return the parts of the scores of the memories found for one row, by name."""
        parts = None
        if self.learned is not None and ids.size > 0:
            parts = self.learned.explain(self.index, as_matrix(rows), self.memories.entries_of(ids), target)
        return parts or [{"similarity": score} for score in scores.tolist()]
