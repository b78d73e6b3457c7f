"""``MemoryStore``: vectors and texts with keys and payloads."""

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, Self, Unpack

import numba
import numpy as np

from .._change import Closeable
from .._encoder import load_encoder
from .._feedback import ExplainedResult, LearnedSummary
from .._jit import keeps_interpreter
from .._kernels import NONE
from .._postings import WordStatistics
from .._validation import check_integer, check_real, check_wanted
from .._words import Tokenizer
from ..journal import Durability, FolderOptions
from . import _checks as checks
from ._contents import StoreContents, check_fields
from ._encoding import encode_stored, read_queries, refuse_texts
from ._filters import FilterCache, PreparedFilter, check_filter, warn_if_mistaken
from ._hybrid_search import search
from ._results import Item, Items, Results, read_payload
from ._where import check_listing
from ._word_vectors import rows_of_words


class MemoryStore(Closeable):
    """A store of vectors and texts with keys, payloads and filters. It can change at any time and learns from rewards.

    A store lives in memory or in a folder. In a folder, each change is on disk before the call returns, and keys,
    payloads, texts and vectors change together or not at all. Opening a folder maps the vectors and reads them on
    demand.

    Dense vectors are searched in lists of similar vectors, with the effort that ``target_recall`` requires. Few dense
    vectors, and sparse vectors, are searched exactly. Texts are searched by their words (BM25), exactly. A memory has a
    vector, a text or both.

    Any number of threads may use a store. Changes are made one at a time, in steps. Queries run between the steps and
    may see part of a change.

    Parameters
    ----------
    path : path-like, optional
        The folder of a store, an empty folder, or a folder to create in an existing one. By default the store is in
        memory.
    metric : {"cosine", "inner_product", "euclidean"}, optional
        The score: "cosine" (the default) for texts and other vectors whose direction counts, "inner_product" ("ip") for
        vectors trained for it, "euclidean" ("l2") for coordinates and measurements. A folder keeps its metric.
    max_items : int, optional
        Maximum number of memories. Adding to a full store evicts memories together with their keys and payloads.
    eviction : {"least_useful", "least_recently_returned", "oldest", "random"}, optional
        Policy that chooses the memories to evict. With "least_useful" (the default), a memory is useful if queries
        return it, and more so if it earns rewards; a reward of 0 takes a return back, and what is long ago counts less.
    target_recall : float in (0, 1], default 0.95
        The fraction of the nearest vectors that queries find on average. With 1, queries are compared with all vectors.
    n_threads : int, optional
        Number of threads that share a batch.
    random_state : int or numpy.random.SeedSequence, optional
        Seed of a new store.
    encoder : "use", callable or object with ``encode``, optional
        Computes the vectors of texts: a function that takes a list of texts and returns an array of shape (n,
        n_features), or an object with the method ``encode``, or ``encode_document`` and ``encode_query``. "use" is the
        Universal Sentence Encoder (the extra ``use``). Texts are then sufficient. It is not saved with the store.
    tokenizer : callable, optional
        Returns the words of a text, for example without stop words or with a stemmer. A store keeps only its name: pass
        it again when you open the store. By default, words are found in any script, with prefixes for other endings.
    measure_gain : bool, default True
        Rank some queries by similarity alone, chosen by a hash, so that ``learned`` can say what rewards gain: 1 in 32,
        and from 256 rewarded queries on, 1 in ``2 * sqrt(n)`` after ``n`` of them. With False, all queries are ranked
        by rewards once these are proved to help, and the gain is only known for the time before.
    sync_every, snapshot_bytes, snapshot_seconds, refresh_every, timeout : optional
        When to wait for the disk, when a snapshot replaces the journal, when a read-only store follows its writer, and
        how long to wait for another writer; see :meth:`~cmt_numba.CMTClassifier.open`.
    read_only : bool, default False
        Open a folder for queries only, while this or another process may change it.

    Examples
    --------
    >>> store = MemoryStore(random_state=0)
    >>> store.add(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], [{"color": "red"}, {"color": "blue"}])
    >>> store.query([[0.9, 0.1]], 1).keys
    array([['a']], dtype=object)
    >>> store.query([[0.9, 0.1]], 1, where={"color": "blue"}).payloads
    [[{'color': 'blue'}]]
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        *,
        max_items: int | None = None,
        eviction: str | None = None,
        target_recall: float = 0.95,
        n_threads: int | None = None,
        random_state: int | np.random.SeedSequence | None = None,
        encoder: Any = None,
        tokenizer: Tokenizer | None = None,
        measure_gain: bool | None = None,
        **folder_options: Unpack[FolderOptions],
    ) -> None:
        given: dict[str, Any] = {"metric": metric, "max_items": max_items, "eviction": eviction}
        given |= {"tokenizer": tokenizer, "measure_gain": measure_gain, "random_state": random_state}
        if unknown := [name for name in folder_options if name not in Durability._fields]:
            raise TypeError(f"MemoryStore has no option {unknown[0]!r}")
        durability = Durability(**folder_options)
        if durability.read_only and path is None:
            raise ValueError("read_only requires a store in a folder: pass its path")
        if n_threads is not None:
            n_threads = check_integer("n_threads", n_threads, 1)
        check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        encoder = load_encoder(encoder)
        self._begin(StoreContents(path, given, durability), target_recall, n_threads, encoder)

    def _begin(
        self, contents: StoreContents, target_recall: float, n_threads: int | None = None, encoder: Any = None
    ) -> None:
        self._target_recall = check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        self._n_threads = n_threads or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self._contents, self._encoder = contents, encoder
        self._filters = FilterCache()

    # Changes

    @keeps_interpreter
    def add(self, keys: Any, X: Any = None, payloads: Any = None, texts: Any = None, *, expires: Any = None) -> None:
        """Add new memories.

        Parameters
        ----------
        keys : list of str or of int, length n
            New keys: all strings or all 64-bit integers.
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            The vectors, or a single one. Without vectors, the encoder computes them from the texts. Without an encoder,
            the memories have only texts.
        payloads : list, length n, optional
            JSON values, with None for no payload. NumPy numbers and arrays become Python numbers and lists. Dates and
            times become ISO 8601 text, also in filters, and times with a UTC offset become UTC. For a single key, a
            dict may be given without a list.
        texts : list of str, length n, optional
            Texts with at least one word. With vectors, None stands for no text.
        expires : timedelta or datetime, or a list of these, optional
            When memories expire: after some time from now, or at a time with a UTC offset. In a list, None stands for
            never. Expired memories are no longer found, counted or listed. The next change deletes them.

        Raises
        ------
        DuplicateKeyError
            If a key is already in the store. This exception is both a KeyError and a ValueError.
        """
        X, texts = self._encoded(X, texts)
        self._contents.write(keys, X, payloads, texts, expires, replace=False)

    @keeps_interpreter
    def upsert(self, keys: Any, X: Any = None, payloads: Any = None, texts: Any = None, *, expires: Any = None) -> None:
        """Add memories, or replace the vectors, payloads and texts of keys that are already in the store.

        The arguments are those of :meth:`add`. Replaced memories lose what is not given.
        """
        X, texts = self._encoded(X, texts)
        self._contents.write(keys, X, payloads, texts, expires, replace=True)

    def _encoded(self, X: Any, texts: Any) -> tuple[Any, Any]:
        """Return the vectors and the texts of memories. The encoder computes vectors if only texts are given."""
        refuse_texts(X)
        if self._encoder is None or X is not None or texts is None:
            return X, texts
        texts = checks.check_texts(texts)
        return encode_stored(self._encoder, "encode_document", texts, self.n_features), texts

    @keeps_interpreter
    def delete(self, keys: Any = None, *, where: Any = None) -> int:
        """Delete memories by distinct keys or by a filter, as in :meth:`query`, and return their number."""
        checks.check_one_of(where, keys)
        contents = self._contents

        def delete() -> int:
            if where is None:
                ids = contents.records.find(checked)
                checks.check_stored(checked, ids)
            else:
                among = self._filters.find(where, contents)
                ids = np.empty(0, np.int64) if among is None else among.ids
            if ids.size > 0:
                contents.remove(ids)
            return ids.size

        checked = [] if keys is None else checks.check_keys(keys)
        return contents.change(delete)

    def update_payload(self, keys: Any, fields: Any) -> None:
        """Set fields of payloads. Other fields, vectors and texts do not change.

        ``fields`` is one dict for all keys, or a list with one dict for each of the distinct keys.
        """
        checked = checks.check_keys(keys)
        self._contents.set_fields(checked, check_fields(fields, len(checked)))

    def create_index(self, field: Any) -> None:
        """Create an index on a payload field. Filters on the field then need not read all payloads.

        ``field`` is written as in filters.
        """
        contents = self._contents
        contents.change(lambda: contents.records.create_index(field))
        contents.sync()

    # Queries

    @keeps_interpreter
    def query(
        self,
        X: Any = None,
        k: int = 10,
        where: Any = None,
        target_recall: float | None = None,
        texts: Any = None,
        min_score: float | None = None,
        fuzzy: bool = False,
    ) -> Results:
        """Return the best memories for each row, by vectors, by the words of texts, or by both.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            The queries, or a single one. Without vectors, the encoder computes them from the texts, or only the words
            are searched.
        k : int, default 10
            Number of memories to return for each row.
        where : dict, callable, list of keys or PreparedFilter, optional
            A filter that selects the candidates: conditions on payload fields (see :mod:`cmt_numba.store`), a function
            that takes a payload and returns a bool, a list of keys, or a filter made by :meth:`filter`.
        target_recall : float in (0, 1], optional
            The fraction of the nearest memories to find on average; by default the target of the store.
        texts : str or list of str, length n, optional
            The texts of the queries.
        min_score : float, optional
            Memories with a lower score are left out of the results.
        fuzzy : bool, default False
            Whether to replace words that are in no stored text by the nearest word that is: with at most one edit, or
            two from 6 letters on. An edit inserts, deletes or replaces a letter, or exchanges two neighbours. Words
            with digits are not replaced. The first such query reads all texts.

        Returns
        -------
        Results
            Keys, scores, payloads and texts. The results of a single query have one row. Without texts, scores are
            those of the metric, and memories without a vector are not found. Without vectors, scores are those of BM25
            plus the learned effect of rewards, and memories that share no word with the query are only found if they
            have earned rewards. With both, the score is ``exp(c) - 1 + exp(s) - 1``, where ``c`` is the cosine and
            ``s`` the score of BM25 divided by that of a text of mean length with each word of the query once; what a
            memory lacks counts 0.
        """
        X, words = self._read(X, texts, fuzzy=fuzzy)
        return self._query(X, words, k, where, target_recall, min_score=min_score)

    def _read(self, X: Any, texts: Any, *, fuzzy: bool = False) -> tuple[Any, list[Counter[int]] | None]:
        if texts is None and not fuzzy and isinstance(X, np.ndarray):  # the most frequent case
            return X, None
        contents = self._contents
        tokenizer = None if texts is None else contents.tokenizer
        find_near = (lambda words: [contents.shared(lambda: contents.near_words(words))]) if fuzzy else None
        return read_queries(X, texts, self._encoder, self.n_features, tokenizer, find_near)

    def _query(
        self,
        X: Any,
        words: list[Counter[int]] | None,
        k: int,
        where: Any,
        target_recall: float | None,
        statistics: WordStatistics | None = None,
        min_score: float | None = None,
    ) -> Results:
        """Answer queries. In a shard, ``statistics`` are those of the texts in all shards."""
        contents = self._contents
        k, target = check_wanted("k", k, len(contents.state)), self._target(target_recall)
        lowest = None if min_score is None else check_real("min_score", min_score, -np.inf, np.inf)

        def answer() -> Results:
            among = self._filters.find(where, contents)
            state, records = contents.state, contents.records
            Q = None if X is None else contents.check_vectors(X, words)
            n_rows = len(words) if Q is None else Q.shape[0]  # type: ignore[arg-type]
            if len(state) == 0:
                nothing = np.full((n_rows, k), None, object)
                return Results(nothing, np.full(nothing.shape, -np.inf))
            allowed = None if among is None else among.allowed(contents)
            ids, scores = search(state, Q, words, k, target, allowed, min(self._n_threads, n_rows), statistics)
            if lowest is not None:
                are_low = scores < lowest
                ids, scores = np.where(are_low, NONE, ids), np.where(are_low, -np.inf, scores)
            if state.eviction.minds_queries:
                state.results.append(ids)
            named = records.named(ids)
            keys = named.keys
            if not named.are_all_there():
                keys = np.where(named.are_there, keys.astype(object), np.array(None, object))
            unread = contents.unread_columns
            payloads = unread.add(records.payloads, ids) if named.may_have_payloads() else None
            texts = unread.add(records.texts, ids) if len(state.texts) > 0 else None
            return Results(keys, scores, payloads, texts)

        return contents.shared(answer)

    def _target(self, target_recall: float | None) -> float:
        if target_recall is None:
            return self._target_recall
        return check_real("target_recall", target_recall, 0.0, 1.0, above=True)

    def recall(self, X: Any, k: int = 10, target_recall: float | None = None) -> float:
        """Measure the fraction of the ``k`` nearest memories that :meth:`query` finds for the queries ``X``.

        The search effort is measured on stored vectors, on points halfway between them, and on some of the latest
        queries. Queries of another kind may find fewer of the nearest memories than ``target_recall``. This method
        compares its queries with all memories.
        """
        contents = self._contents
        k, target = check_wanted("k", k, len(contents.state)), self._target(target_recall)

        def measure() -> float:
            index, Q = contents.state.index, contents.check_vectors(X)
            return 1.0 if index is None else float(index.recall(Q, k, target))

        return contents.shared(measure)

    @property
    def recall_seen(self) -> float | None:
        """The mean recall of the latest 256 checked queries since the store was opened, or None without any.

        About one query for dense vectors in 1,000 is checked by a comparison with all memories. Checked queries also
        correct the search effort: it suits the queries of the store, not only its memories.
        """
        return self._contents.shared(lambda: getattr(self._contents.state.index, "recall_seen", None))

    def count(self, where: Any = None) -> int:
        """Return the number of memories, or of those that a filter ``where`` selects, as in :meth:`query`."""
        found = self._contents.shared(partial(self._filters.find, where, self._contents))
        return len(self) if found is None else found.ids.size

    def filter(self, where: Any = None, *, keys: Any = None) -> PreparedFilter:
        """Prepare a filter for the ``where`` of many queries, also to other stores.

        Parameters
        ----------
        where : dict, optional
            Conditions on payload fields.
        keys : list of keys, optional
            The keys of the candidates. Keys that are not stored at the time of a query are ignored.
        """
        contents, prepared = self._contents, check_filter(where, keys)

        def check() -> None:
            if prepared.condition is None:
                checks.check_stored(prepared.keys, contents.records.find(prepared.keys))
            else:
                ids = self._filters.find(prepared, contents).ids  # type: ignore[union-attr]
                warn_if_mistaken(prepared.condition, ids.size == 0, contents.records)

        contents.shared(check)
        return prepared

    @keeps_interpreter
    def get(
        self, keys: Any = None, *, where: Any = None, order_by: Any = None, limit: int | None = None, offset: int = 0
    ) -> Items:
        """Return memories by keys, or list those that a filter selects, without a query.

        Parameters
        ----------
        keys : key or list of keys, optional
            The keys, all of which must be stored. A single key counts as a list of one. Without keys, memories are
            listed.
        where : dict, callable or PreparedFilter, optional
            The memories to list, as in :meth:`query`; by default all.
        order_by : str or tuple of str, optional
            A payload field, written as in filters, "$key" or "$added", the order of insertion (the default). A leading
            minus, as in "-year", reverses the order. Memories without the field come last.
        limit : int, optional
            Maximum number of memories to list.
        offset : int, default 0
            Number of memories to skip. To read many memories page by page, :meth:`pages` is faster.
        """
        contents = self._contents
        order, descending, limit, offset = check_listing(keys, where, order_by, limit, offset)
        if keys is not None:
            checked = checks.check_keys(keys, distinct=False)

            def read() -> Items:
                ids = contents.records.find(checked)
                checks.check_stored(checked, ids)
                return self._items(ids, checked)

            return contents.shared(read)

        def listed() -> Items:
            among = self._filters.find(where, contents)
            if among is None or order != "id":
                ids = None if among is None else among.ids
                return self._items(contents.records.ordered(ids, order, descending, limit, offset))
            ids = among.ids[::-1] if descending else among.ids
            return self._items(ids[offset : None if limit is None else offset + limit])

        return contents.shared(listed)

    def pages(self, where: Any = None, *, size: int = 1000) -> Iterator[Items]:
        """Iterate over all memories, or those that a filter selects, in pages of ``size`` in the order of insertion.

        The store may change meanwhile: each page shows it at the time the page is read, without memories that were
        added after the first page.
        """
        last, size, stop = -1, check_integer("size", size, 1), self._contents.state.next_id
        while (found := self._page(last, stop, where, size))[1].keys:
            last, items = found
            yield items

    def _page(self, last: int, stop: int, where: Any, size: int) -> tuple[int, Items]:
        """Return the last id of the next page after an id and before ``stop``, and its memories; none at the end."""
        contents = self._contents

        def read() -> tuple[int, Items]:
            among = self._filters.find(where, contents)
            if among is None:
                ids = np.array([memory_id for memory_id, _, _ in contents.records.after(last, size)], np.int64)
            else:
                ids = among.ids[among.ids.searchsorted(last + 1) :][:size]
            ids = ids[ids < stop]
            return int(ids.max(initial=-1)), self._items(ids)

        return contents.shared(read)

    def _items(self, ids: np.ndarray, keys: list[checks.Key] | None = None) -> Items:
        """Return the memories with some ids. The caller holds the lock for reading."""
        records, listed = self._contents.records, ids.tolist()
        given, texts, expiries = records.payloads(listed), records.texts(listed), records.expiries(listed)
        payloads = [read_payload(given.get(memory_id)) for memory_id in listed]
        keys = records.keys(ids) if keys is None else keys
        vectors, own_texts = self._contents.state.vectors(ids), [texts.get(memory_id) for memory_id in listed]
        expires = checks.as_times(map(expiries.get, listed)) if expiries else None
        return Items(keys, vectors, payloads, own_texts, expires)

    def __getitem__(self, key: checks.Key) -> Item:
        if not isinstance(key, str | int | np.integer):
            raise TypeError(f"store[key] takes a single key, got {key!r:.50}; use get for several keys")
        return self.get(key).first()

    # Learning

    @keeps_interpreter
    def feedback(self, X: Any, keys: Any, rewards: Any, *, texts: Any = None) -> None:
        """Learn from rewards of results, or from known answers.

        Later queries rank memories that earn rewards higher, also for similar queries.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,), or None
            The queries. With None, the encoder computes them from ``texts``, or the store learns from their words.
        keys : array-like of keys, shape (n,) or (n, k)
            The keys of the memories that were shown for each query, such as ``results.keys``, or of the right memory.
            None stands for no memory. With ``max_items``, keys that are not in the store are ignored, because their
            memories may have been evicted.
        rewards : array-like of float, shape (n,) or the shape of ``keys``
            Rewards in [0, 1], or NaN if unknown. With one reward for several memories, it is their common outcome, and
            counts once.
        texts : str or list of str, optional
            The texts of the queries. With vectors, the store also learns how much words count compared with vectors.

        Notes
        -----
        Rewards of queries with vectors teach nothing about memories without vectors, and do not affect queries by words
        alone. Rewards of queries by words alone only affect such queries.
        """
        X, words = self._read(X, texts)
        self._contents.learn(X, words, keys, rewards, self._target_recall)

    def learned(self) -> LearnedSummary | None:
        """Return the weights of the parts of scores and the gain over ranking by similarity; None without rewards.

        For queries with vectors and texts, the gain compares the ranking by both with and without these parts.
        """

        def summary() -> LearnedSummary | None:
            state = self._contents.state
            feedback = state.feedback or state.text_feedback
            return None if feedback is None else feedback.model.learned()

        return self._contents.shared(summary)

    def explain(self, X: Any = None, k: int = 10, *, texts: Any = None, fuzzy: bool = False) -> list[ExplainedResult]:
        """Explain the results of one query by the parts of their scores.

        The arguments are those of :meth:`query`. Each result, best first, has its key, its score and the parts of the
        score. With the cosine, their sum is the score, apart from the advantage of a memory with the key of the query.
        The only part is the similarity if the query is not ranked by rewards; see :meth:`learned`.
        """
        X, words = self._read(X, texts, fuzzy=fuzzy)

        def explain() -> list[ExplainedResult]:
            contents = self._contents
            Q = None if X is None else contents.check_vectors(X, words)
            if (len(words) if Q is None else Q.shape[0]) != 1:  # type: ignore[arg-type]
                raise ValueError("explain takes a single query")
            found, state = self._query(Q, words, k, None, None)[0], contents.state
            ids = contents.records.find([result.key for result in found])
            parts = [{"similarity": result.score} for result in found]
            has_learned = state.text_feedback is not None if Q is None else state.feedback is not None
            if has_learned and ids.size > 0:
                index, learned = state.learner(Q is None)
                queries = rows_of_words([state.texts.weigh(words[0])]) if Q is None else Q  # type: ignore[index]
                ids = np.where(index.contains(ids), ids, NONE)
                parts = learned.explain(index, queries, ids, self._target_recall) or parts
            return [ExplainedResult(result.key, result.score, own) for result, own in zip(found, parts, strict=True)]

        return self._contents.alone(explain)

    # Contents

    @property
    def metric(self) -> str:
        """The metric."""
        return self._contents.state.options.metric

    @property
    def path(self) -> str | None:
        """The folder, or None for a store in memory."""
        return self._contents.path

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, or None before the first vector is added."""
        index = self._contents.state.index
        return None if index is None else index.n_features

    @property
    def max_items(self) -> int | None:
        """The maximum number of memories."""
        return self._contents.state.options.max_items

    def __len__(self) -> int:
        return self._contents.n_memories

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = checks.check_keys(key)
        except ValueError:
            return False
        contents = self._contents
        return bool(contents.shared(lambda: contents.records.find(checked))[0] >= 0)

    def __iter__(self) -> Iterator[checks.Key]:
        contents, last = self._contents, -1
        while found := contents.shared(partial(contents.records.after, last)):
            yield from (key for _, key, _ in found)
            last = found[-1][0]

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else f"in {self.path}"
        return f"MemoryStore({place}, metric={self.metric!r}) with {len(self)} memories"

    def check_invariants(self) -> None:
        """Check that vectors, keys and payloads belong together, and that no file is damaged.

        Unlike opening a folder, this reads all vectors.
        """
        self._contents.alone(self._contents.check_everything)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to one file for :meth:`load`. An existing file is replaced atomically."""
        self._contents.save(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store in a folder, where its changes survive a crash; the options are those of the constructor."""
        return cls(path, **options)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        mmap: bool = False,
        *,
        target_recall: float = 0.95,
        encoder: Any = None,
        tokenizer: Tokenizer | None = None,
    ) -> Self:
        """Load a store from a file into memory.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Whether to map vectors instead of reading them. Map only files that you trust.
        target_recall, encoder, tokenizer
            As for the constructor.
        """
        store = cls.__new__(cls)
        check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        encoder = load_encoder(encoder)
        store._begin(StoreContents.of_file(path, tokenizer, mmap=mmap), target_recall, encoder=encoder)
        return store

    def refresh(self) -> bool:
        """Bring a read-only store to the last change of its writer. Return whether it has changed."""
        self._contents.check_open()
        return self._contents.journal is not None and self._contents.journal.refresh()

    def sync(self) -> None:
        """Wait until all changes are on disk. With ``sync_every=1`` they already are."""
        self._contents.sync()

    def close(self) -> None:
        """Write all changes to disk and close the store. A closed store cannot be used."""
        self._contents.close()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "contents": self._contents.copy(),
            "target_recall": self._target_recall,
            "tokenizer": self._contents.tokenizer,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(StoreContents.read(state["contents"], state["tokenizer"], thorough=False), state["target_recall"])
