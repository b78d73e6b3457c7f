"""``StoreState``: the vectors and words of a store, with everything else that is not in its database."""

from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from .. import _index as dense_index
from .. import persistence as files
from .._feedback import LearnedSearch, WithOthers
from .._kernels import NONE, require
from .._postings import SparseIndex, TextIndex, WeighedWords
from .._validation import OneOf, check_integer, check_seed
from .._words import N_WORDS, check_tokenizer, check_words, count_words, name_of_tokenizer
from ._checks import METRICS, check_metric, check_values
from ._eviction import POLICIES, EvictionOrder
from ._word_vectors import WordVectors, full_scores, rows_of_words

_MOST_NOTES = 1 << 16  # number of queries whose results wait for the next change; the oldest are dropped
KINDS: dict[str, Any] = {"dense": dense_index.DenseIndex, "sparse": SparseIndex}  # indexes by the form of their vectors


class StoreOptions(NamedTuple):
    """Options of a new store. A folder and a file keep them."""

    metric: str = "cosine"
    max_items: int | None = None
    eviction: str = "least_useful"
    tokenizer: str | None = None  # its name
    measure_gain: bool = True
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
        if not isinstance(options.get("measure_gain", True), bool):
            raise TypeError(f"measure_gain must be True or False, got {options['measure_gain']!r}")
        options["tokenizer"] = name_of_tokenizer(check_tokenizer(given.get("tokenizer")))
        return cls(**options, seed=int(check_seed(given.get("random_state")).generate_state(1)[0]))


class AllowedMemories(NamedTuple):
    """The memories that a search may return, until the next change."""

    vectors: Any
    texts: Any


class StoreState(files.WithFields):
    """The vectors and words of a store, the order of eviction, and what the store has learned.

    A memory has a vector, a text or both.

    The methods below ``Operations`` are the operations that a journal records and repeats. The caller must prevent
    reads.
    """

    _kind = "MemoryStore"
    FIELDS = files.FieldTable(
        options=files.TupleField(
            StoreOptions,
            metric=files.NameField(*METRICS),
            max_items=files.OptionalField(files.NumberField(1)),
            eviction=files.NameField(*POLICIES),
            tokenizer=files.OptionalField(files.TextField()),
            measure_gain=files.FlagField(),
            seed=files.NumberField(0, 2**32 - 1),
        ),
        index=files.OptionalField(files.VariantField(**KINDS)),
        texts=files.VariantField(words=TextIndex),
        next_id=files.NumberField(),
        feedback=files.OptionalField(files.VariantField(learned=LearnedSearch)),
        text_feedback=files.OptionalField(files.VariantField(learned=LearnedSearch)),
        part_weights=files.ArrayField(np.float64, n_axes=2),
        eviction=files.NamedArraysField(),
    )

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.index: Any = None  # vectors by id; None before the first vector
        self.texts = TextIndex()  # words of texts by id
        self.next_id = self._n_memories = 0  # id of the next memory
        # what the store has learned from rewards of queries with vectors; None if there were none
        self.feedback: LearnedSearch | None = None
        # what the store has learned from rewards of queries with texts alone; None if there were none
        self.text_feedback: LearnedSearch | None = None
        # float64 (2, 3), weights of the parts of scores in hybrid searches, and the sums of their squared gradients
        self.part_weights = np.stack([np.full(3, 10.0), np.zeros(3)])
        bounded = options.max_items is not None
        self.eviction = (POLICIES[options.eviction] if bounded else EvictionOrder)(options.seed, options.max_items or 0)
        self.results: deque[np.ndarray] = deque(maxlen=_MOST_NOTES)  # ids returned by queries since the last change

    def __len__(self) -> int:
        return self._n_memories

    @property
    def ids(self) -> np.ndarray:
        """The ids of all memories, in no particular order."""
        vectors = np.empty(0, np.int64) if self.index is None else self.index.ids
        if len(self.texts) == 0:
            return vectors
        ids = np.sort(np.concatenate([vectors, self.texts.ids]))
        return ids[np.diff(ids, prepend=NONE) > 0]  # several times faster than np.union1d

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        return self.have_vectors(ids) | self.texts.contains(ids)

    def have_vectors(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored with a vector."""
        return np.zeros(ids.shape, np.bool_) if self.index is None else self.index.contains(ids)

    @property
    def form(self) -> str | None:
        """The form of the vectors: "dense", "sparse", or None before the first insert."""
        if self.index is None:
            return None
        return "sparse" if isinstance(self.index, SparseIndex) else "dense"

    def vectors(self, ids: np.ndarray) -> Any:
        """Return the vectors of memories: NaN or, if sparse, zeros for those without one; None if there are none."""
        if self.index is None:
            return None
        there = self.have_vectors(ids)
        if there.all():
            return self.index.vectors(ids)
        if not there.any():
            return None
        found, n = self.index.vectors(ids[there]), int(there.sum())
        if self.form == "sparse":
            return (
                scipy.sparse.csr_array((np.ones(n, np.float32), (there.nonzero()[0], np.arange(n))), (ids.size, n))
                @ found
            )
        vectors = np.full((ids.size, found.shape[1]), np.nan, np.float32)
        vectors[there] = found
        return vectors

    def allow(self, ids: np.ndarray) -> AllowedMemories:
        """Return the set of memories that a search may return. Ignore ids that are not stored."""
        vectors = None if self.index is None else self.index.allow(ids[self.index.contains(ids)])
        return AllowedMemories(vectors, self.texts.allow(ids) if len(self.texts) > 0 else None)

    def search(
        self, Q: Any, k: int, target_recall: float, among: Any, n_threads: int, mapped: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and scores of the best ``k`` memories for each query, by what the store has learned.

        ``mapped`` is the result of :meth:`LearnedSearch.map` for the queries, if it is known.
        """
        learned = self.feedback
        if learned is None:
            return self.index.search(Q, k, target_recall, among, n_threads)
        return learned.search(self.index, Q, k, target_recall, among, n_threads, mapped)

    def search_texts(
        self, queries: list[WeighedWords], k: int, among: Any, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and scores of the best ``k`` memories for each query, by words and what was learned."""
        if self.text_feedback is None:
            return self.texts.search(queries, k, among, n_threads)
        index = WordVectors(self.texts)
        ids, scores = self.text_feedback.search(index, rows_of_words(queries), k, 1.0, among, n_threads)
        are_empty = [query.words.size == 0 for query in queries]
        ids[are_empty], scores[are_empty] = NONE, -np.inf
        return ids, scores * full_scores(queries)

    def learner(self, by_words: bool) -> tuple[Any, LearnedSearch]:
        """Return the index, of vectors or of words, from which rewards are learned, and what was learned so far."""
        index = WordVectors(self.texts) if by_words else self.index
        learned = self.text_feedback if by_words else self.feedback
        return index, learned or LearnedSearch(index, by_words or self.form == "sparse", self.options.measure_gain)

    def vectors_of_texts(self, texts: list[str]) -> Any:
        """Return the vectors of other texts for :meth:`learn` with ``by_words``."""
        return WordVectors(self.texts).of_words(count_words(texts))

    def take_results(self) -> np.ndarray:
        """Return the ids that queries have returned since the last call, the best of each row last."""
        found = [self.results.popleft()[:, ::-1].reshape(-1) for _ in range(len(self.results))]
        return np.concatenate([np.empty(0, np.int64), *found])

    def forget_from(self, first: int, n: int, index: Any) -> None:
        """Undo an insert of ids from ``first`` on, before which the state had ``n`` memories and the given index."""
        new = np.arange(first, self.next_id)
        self.texts.remove(new)
        if index is not None:
            self._remove_vectors(new)
        self.index, self._n_memories = index, n
        self.eviction.removed(new)

    def parts_of(self, ids: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        """Return which memories have vectors, these vectors, and the words of all, None if there are no texts."""
        if len(self.texts) == 0:
            return np.ones(ids.size, np.bool_), self.index.vectors(ids), None
        there = self.have_vectors(ids)
        return there, self.index.vectors(ids[there]) if there.any() else None, self.texts.vectors(ids)

    def put_back(self, ids: np.ndarray, index: Any, there: np.ndarray, vectors: Any, words: Any) -> None:
        """Undo a replacement, before which the state had the given index and :meth:`parts_of` returned these parts."""
        self._remove_vectors(ids[~there])
        if vectors is not None:
            missing = ~self.have_vectors(ids[there])
            if missing.any():
                self.index.insert(vectors[missing], ids[there][missing])
            self.index.replace(ids[there], vectors)
        self.index = index
        self.texts.remove(ids)
        if words is not None:
            self.texts.insert(ids, words)

    def to_evict(self, n_new: int) -> np.ndarray:
        """Return the ids of the memories to remove after the insert of ``n_new`` others, which may be among them."""
        most = self.options.max_items
        n = 0 if most is None else len(self) + n_new - most
        if n <= 0:
            return np.empty(0, np.int64)
        n_old = min(n, len(self))
        old = self.eviction.choose(self, n_old) if n_old > 0 else np.empty(0, np.int64)
        return np.concatenate([old, np.arange(self.next_id, self.next_id + n - n_old)])

    # Operations

    def insert(self, X: Any = None, words: Any = None) -> np.ndarray:
        """Insert memories with vectors, with words, or with both, and return their ids, which are consecutive."""
        n = words.shape[0] if X is None else X.shape[0]
        ids = np.arange(self.next_id, self.next_id + n)
        self.next_id += n
        self._n_memories += n
        if X is not None:
            self._insert_vectors(ids, X)
        if words is not None:
            self.texts.insert(ids, words)
        self.eviction.returned(ids)
        return ids

    def _insert_vectors(self, ids: np.ndarray, X: Any) -> None:
        if self.index is None:
            kind = KINDS["dense" if isinstance(X, np.ndarray) else "sparse"]
            self.index = kind(X.shape[1], self.options.metric, self.options.seed)
        self.index.insert(X, ids)

    def replace(self, ids: np.ndarray, X: Any = None, words: Any = None) -> None:
        """Replace the vectors and words of memories. Ids must be distinct."""
        self.texts.remove(ids)
        if X is None:
            self._remove_vectors(ids)
        else:
            self._set_vectors(ids, X)
        if words is not None:
            self.texts.insert(ids, words)
        self.eviction.returned(ids)

    def _set_vectors(self, ids: np.ndarray, X: Any) -> None:
        there = self.have_vectors(ids)
        if there.all():
            self.index.replace(ids, X)
        else:
            self._insert_vectors(ids[~there], X[~there])
            self.index.replace(ids[there], X[there])

    def has_learned(self, ids: np.ndarray) -> bool:
        """Return whether rewards of any of these memories were learned."""
        return any(learned.model.has_any(ids) for learned in (self.feedback, self.text_feedback) if learned is not None)

    def forget(self, ids: np.ndarray) -> None:
        """Forget the rewards of memories."""
        for learned in (self.feedback, self.text_feedback):
            if learned is not None:
                learned.model.forget(ids)

    def _remove_vectors(self, ids: np.ndarray) -> None:
        there = self.have_vectors(ids)
        if there.any():
            self.index.remove(ids[there])

    def update(self, ids: np.ndarray) -> None:
        """Note new payloads, which are not in the state."""

    def remove(self, ids: np.ndarray) -> None:
        """Remove memories. Ids must be distinct."""
        self._remove_vectors(ids)
        self.texts.remove(ids)
        self._n_memories -= ids.size
        self.eviction.removed(ids)
        self.forget(ids)

    def learn(
        self,
        X: Any,
        ids: np.ndarray,
        rewards: np.ndarray,
        is_shared: bool,
        others: np.ndarray,
        vectors: Any,
        weights: np.ndarray | None,
        firsts: np.ndarray | None,
        by_words: bool,
    ) -> None:
        """Learn from the rewards of memories, arrays of shape (n, k). An id of -1 stands for no memory.

        With ``by_words``, queries are results of :func:`rows_of_words`. Memories of other shards have the ids
        ``others``, which are below -1 and ascending, and are passed as vectors. For a hybrid search, ``weights`` are
        the new weights of the parts of scores, and ``firsts``, int64 (n, 2), the columns of ``ids`` with the first
        results without and with what was learned; otherwise both are None.
        """
        index, learned = self.learner(by_words)
        if others.size > 0:
            index = WithOthers(index, others, vectors)
        learned.learn(index, X, ids, rewards, is_shared=is_shared, may_be_chosen=weights is None, firsts=firsts)
        if by_words:
            self.text_feedback = learned
        else:
            self.feedback = learned
        if weights is not None:
            self.part_weights = weights
        self.eviction.rewarded(ids, rewards)

    def note_returned(self, ids: np.ndarray) -> None:
        """Record the ids that queries have returned. Ignore removed memories."""
        self.eviction.returned(ids[self.contains(ids)])

    # Files

    def _packed(self) -> Any:
        return SimpleNamespace(**vars(self) | {"eviction": self.eviction.arrays()})

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        state, evictions = cls(values["options"]), values.pop("eviction")
        vars(state).update(values)
        index, learned, by_words, ids = state.index, state.feedback, state.text_feedback, state.ids
        require(index is None or index.metric == state.options.metric, "the index must have the metric of the store")
        form = None if index is None else (index.n_features, state.form == "sparse")
        require(learned is None or learned.form == form, "feedback must be for the vectors of the store")
        require(by_words is None or by_words.form == (N_WORDS, True), "text_feedback must be for words")
        check_weights(state.part_weights)
        state._n_memories = ids.size
        require(state.next_id > ids.max(initial=-1), "the next id must be above all others")
        are_plain = all(array.dtype == np.int64 and array.ndim == 1 for array in evictions.values())
        require(are_plain, "arrays of eviction must be int64 with one dimension")
        state.eviction.restore(evictions, ids, state.next_id)
        return state


def check_weights(weights: np.ndarray) -> None:
    """Raise InvariantError unless these are weights of parts."""
    sound = weights.dtype == np.float64 and weights.shape == (2, 3) and bool(np.isfinite(weights).all())
    require(sound and (weights[0] > 0.0).all() and (weights[1] >= 0.0).all(), "weights of parts must be positive")


def check_operation(state: StoreState, name: str, arguments: dict[str, Any]) -> None:
    """Raise an error unless an operation from a journal can be applied to a state."""
    X: Any = arguments.get("X")
    ids: Any = arguments.get("ids")
    words = arguments.get("words")
    if name in ("insert", "replace") and words is not None:
        check_words(words, X.shape[0] if X is not None else ids.size if ids is not None else words.shape[0])
    by_words = arguments.get("by_words", False)
    if by_words is True:
        is_csr = scipy.sparse.issparse(X) and X.format == "csr" and X.dtype == np.float32 and X.shape[1] == N_WORDS
        if not is_csr or not X.has_canonical_format or not np.isfinite(X.data).all() or (X.data < 0.0).any():
            raise ValueError("its words are invalid")
    elif name in ("insert", "replace", "learn") and (name == "learn" or X is not None or words is None):
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
        others, vectors = arguments.get("others"), arguments.get("vectors")
        if others is None or others.dtype != np.int64 or not (np.diff(others) > 0).all() or (others >= NONE).any():
            raise ValueError("the ids of other shards are invalid")
        if vectors is None or type(vectors) is not type(X) or vectors.shape != (others.size, X.shape[1]):
            raise ValueError("the vectors of other shards do not fit")
        if by_words and not vectors.has_canonical_format:
            raise ValueError("the words of other shards must ascend")
        known = ids[(ids != NONE) & ~np.isin(ids, others)]
        if not (state.texts.contains(known) if by_words else state.have_vectors(known)).all():
            raise ValueError("its ids are not stored")
        if arguments.get("weights") is not None:
            check_weights(arguments["weights"])
            firsts = arguments.get("firsts")
            if firsts is None or firsts.dtype != np.int64 or firsts.shape != (len(ids), 2):
                raise ValueError("its first results do not fit its queries")
            if (firsts < 0).any() or (firsts >= ids.shape[1]).any():
                raise ValueError("its first results are not among its memories")
        if type(arguments.get("is_shared")) is not bool or type(by_words) is not bool:
            raise ValueError("is_shared and by_words must be true or false")
    elif name != "insert" and (ids is None or ids.dtype != np.int64 or ids.ndim != 1):
        raise ValueError("its ids are not integers")
    if name in ("replace", "remove", "update"):
        if not state.contains(ids).all() or np.unique(ids).size < ids.size:
            raise ValueError("its ids are not those of different memories")
        if name == "replace" and X is not None and X.shape[0] != ids.size:
            raise ValueError("it does not have a vector for each id")
