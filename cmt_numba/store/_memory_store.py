"""``MemoryStore``: vectors with keys and payloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np

from .._engine import Filter, note_returned
from .._forest import NONE, InvariantError, no_hits, require, rewarded_memories
from .._jit import keeps_interpreter
from .._validation import (
    check_integer,
    check_passes,
    check_real,
    check_rewards,
    check_wanted,
)
from ..journal import Durability
from ._checks import (
    Key,
    are_none,
    check_answers,
    check_keys,
    check_one_for_each_row,
    check_one_of,
    check_payloads,
    check_stored,
)
from ._contents import StoreContents
from ._filters import FilterCache, PreparedFilter, prepare_filter
from ._learning import learn_in_blocks, taught_by
from ._metrics import check_lengths
from ._query_map import WIDEST
from ._records import WITH
from ._results import Item, Items, Payloads, Results, read_payload
from ._search import Effort, NearestMemories, StoreSearch
from ._writing import set_fields, write_memories

_VECTORS_CHECKED_AT_ONCE = 10_000
_N_COMPETITORS = 9  # if only one memory is rewarded, this many other results count with reward 0
_MOST_TRIES = 5  # number of attempts of a query while memories are added or deleted


class MemoryStore:
    """A vector store with user-defined keys, payloads and filters. It can change at any time and learns from rewards.

    A store lives in memory or in a folder. In a folder, each change is on disk before the call returns, and keys,
    payloads and vectors change together or not at all. Opening a folder maps the vectors and reads them on demand.

    Up to 4,096 vectors, or candidates of a filter, are searched exactly. Larger stores are searched through trees and
    along links between near vectors, or in cluster lists, with the effort that ``target_recall`` requires.

    Any number of threads may use a store. Changes are made one at a time, in steps. Queries run between the steps and
    may see part of a change.

    Parameters
    ----------
    path : path-like, optional
        The folder of a store, an empty folder, or a folder to create in an existing one. By default the store is in
        memory.
    metric : {"cosine", "inner_product", "euclidean"}, optional
        The score: "cosine" (the default) for texts and other vectors whose direction counts, "inner_product" for
        vectors trained for it, "euclidean" for coordinates and measurements. A folder keeps its metric.
    max_items : int, optional
        Maximum number of memories. Adding to a full store evicts memories together with their keys and payloads.
    eviction : {"least_recently_returned", "oldest", "random"}, optional
        Policy that chooses the memories to evict.
    target_recall : float in (0, 1], default 0.95
        The fraction of the nearest vectors that queries find on average. With 1, queries are compared with all vectors.
    n_trees : int, optional
        Number of trees: 1 by default, or 4 without links. More trees take more memory and time to build. Without
        links, a store with more trees reaches the same recall with fewer leaves.
    n_links : int, optional
        Maximum number of links from a dense vector to near vectors; 24 by default. Searches follow the links. With 0,
        changes are faster and searches slower. A folder keeps its value.
    keep : {"all", "codes"}, optional
        What to keep of dense vectors: "all" (the default) keeps the vectors and their 8-bit codes; "codes" keeps only
        the codes, in a quarter of the memory. Searches and :meth:`get` then use the decoded vectors, whose directions
        differ by about 0.5 % from the originals. A folder keeps its value.
    learning_rate : float, optional
        Learning rate of the scorer (``scorer_learning_rate`` of the tree), which re-ranks results; 0.01 by default.
        With 0.1, sparse vectors learn more, but dense ones with few features may lose most of their accuracy.
    n_threads : int, optional
        Number of threads that share a batch.
    random_state : int or numpy.random.SeedSequence, optional
        Seed of a new store.
    sync_every : int, default 1
        The number of changes after which to wait for the disk.
    snapshot_bytes, snapshot_seconds : optional
        The size and the replay time at which a snapshot replaces the journal; see :class:`~cmt_numba.DurableTree`.
    read_only : bool, default False
        Open a folder for queries only, for example because the disk is full.

    Raises
    ------
    cmt_numba.journal.AlreadyOpenError
        If the folder is already open.
    cmt_numba.persistence.FileFormatError
        If the folder is damaged or does not hold a store.
    OSError
        If the folder cannot be read or written.
    TypeError, ValueError
        If an option is invalid or differs from the option of the store in the folder.

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
        n_trees: int | None = None,
        n_links: int | None = None,
        keep: str | None = None,
        learning_rate: float | None = None,
        n_threads: int | None = None,
        random_state: int | np.random.SeedSequence | None = None,
        sync_every: int = 1,
        snapshot_bytes: int = 1 << 26,
        snapshot_seconds: float = 10.0,
        read_only: bool = False,
    ) -> None:
        given: dict[str, Any] = {"max_memories": max_items, "eviction": eviction, "n_trees": n_trees}
        given |= {
            "n_links": n_links,
            "keep": keep,
            "scorer_learning_rate": learning_rate,
            "n_threads": n_threads,
            "random_state": random_state,
        }
        options = {name: value for name, value in given.items() if value is not None}
        durability = Durability(sync_every, snapshot_bytes, snapshot_seconds)
        if read_only and path is None:
            raise ValueError("read_only requires a store in a folder: pass its path")
        check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        self._begin(StoreContents(path, metric, options, durability, bool(read_only)), target_recall)

    def _begin(self, contents: StoreContents, target_recall: float) -> None:
        self._target_recall = check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        self._contents = contents
        self._filters = FilterCache()

    # Changes

    @keeps_interpreter
    def add(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add new memories.

        Parameters
        ----------
        keys : list of str or of int, length n
            New keys: all strings or all 64-bit integers.
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            The vectors, or a single one.
        payloads : list, length n, optional
            JSON values, with None for no payload. NumPy numbers and arrays become Python numbers and lists. Dates and
            times become ISO 8601 text, also in filters. For a single key, a dict may be given without a list.

        Raises
        ------
        DuplicateKeyError
            If a key is already in the store. This exception is both a KeyError and a ValueError.
        TypeError, ValueError
            If an argument is invalid, or if a vector has length 0 and the metric is the cosine.
        cmt_numba.journal.JournalError
            If the change cannot be written.
        MemoryError
            If memory runs out.

        After an error nothing has changed.
        """
        self._contents.change(partial(write_memories, self._contents, keys, X, payloads, False))

    @keeps_interpreter
    def upsert(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add memories, or replace the vectors and payloads of keys that are already in the store.

        Parameters
        ----------
        keys, X, payloads
            As for :meth:`add`, but keys may already be in the store. Without ``payloads``, replaced memories lose
            theirs.

        Raises
        ------
        TypeError, ValueError, cmt_numba.journal.JournalError
            As for :meth:`add`. Nothing has changed then.
        MemoryError
            If memory runs out. A store in memory may then have replaced some vectors together with their payloads.
        """
        self._contents.change(partial(write_memories, self._contents, keys, X, payloads, True))

    @keeps_interpreter
    def delete(self, keys: Any = None, *, where: Any = None) -> int:
        """Delete memories by keys or by a filter, and return their number.

        Parameters
        ----------
        keys : str, int or list of them, optional
            Distinct keys.
        where : dict, callable or PreparedFilter, optional
            A filter as for :meth:`query`, instead of keys.

        Raises
        ------
        KeyError
            If a key is not stored. Nothing has been deleted then.
        TypeError, ValueError
            If an argument is invalid, a key is repeated, or both or neither argument is given.
        cmt_numba.journal.JournalError
            If the change cannot be written. Nothing has been deleted then.
        """
        check_one_of(where, keys)
        contents = self._contents

        def delete() -> int:
            if where is None:
                ids = contents.records.find(checked)
                check_stored(checked, ids)
            else:
                among = self._filters.find(where, contents)
                ids = np.empty(0, np.int64) if among is None else among.ids
            if ids.size > 0:
                contents.remove(ids)
            return ids.size

        checked = [] if keys is None else check_keys(keys)
        return contents.change(delete)

    def update_payload(self, keys: Any, fields: Any) -> None:
        """Set fields of payloads. Other fields and the vectors do not change.

        Parameters
        ----------
        keys : str, int or list of them
            Distinct keys.
        fields : dict or list of dict
            The fields to set and their values: one dict for all keys, or a list with one dict for each key.

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If an argument is invalid, or a payload is not a dict.
        cmt_numba.journal.JournalError
            If the change cannot be written.

        After an error nothing has changed.
        """
        checked, contents = check_keys(keys), self._contents
        each = [fields] * len(checked) if isinstance(fields, dict) else fields
        texts = check_payloads(each, len(checked))
        given = [read_payload(text) for text in texts]
        if not all(isinstance(own, dict) for own in given):
            raise TypeError(f"fields must be a dict, or one dict for each key, got {fields!r:.50}")

        contents.change(partial(set_fields, contents, checked, given))

    def create_index(self, field: Any) -> None:
        """Create an index on a payload field. Filters on the field then need not read all payloads.

        Parameters
        ----------
        field : str or tuple of str
            The field, written as in filters.
        """
        contents = self._contents
        contents.change(lambda: contents.records.create_index(field))
        contents.sync()

    def compact(self) -> None:
        """Sort memories into the order in which searches read them. This speeds up queries after many changes."""
        contents = self._contents
        contents.change(lambda: contents.tree.compact(copies=contents.tree._forest.options["n_links"] == 0))

    # Queries

    @keeps_interpreter
    def query(
        self,
        X: Any,
        k: int = 10,
        where: Any = None,
        target_recall: float | None = None,
        *,
        n_probes: int | None = None,
    ) -> Results:
        """Return the nearest memories for each row.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            The queries, or a single one.
        k : int, default 10
            Number of memories to return for each row.
        where : dict, callable, list of keys or PreparedFilter, optional
            A filter that selects the candidates: conditions on payload fields (see :mod:`cmt_numba.store`), a function
            that takes a payload and returns a bool, a list of keys, or a filter made by :meth:`filter`.
        target_recall : float in (0, 1], optional
            The fraction of the nearest memories to find on average; by default the target of the store.
        n_probes : int, optional
            Number of leaves to search, instead of a target recall. No links are followed then.

        Returns
        -------
        Results
            Keys, scores and payloads. The results of a single query have one row.

        Raises
        ------
        KeyError
            If ``where`` lists a key that is not stored.
        TypeError, ValueError
            If an argument is invalid.
        """
        X, contents = self._contents.check_form(X), self._contents
        tree = contents.search.tree
        k = check_wanted("k", k, tree._forest.n_memories)
        target = self._target_recall
        if target_recall is not None:
            target = check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        probes = None if n_probes is None else check_integer("n_probes", n_probes, 1)
        among = None if where is None else self._filters.find(where, contents)
        for _ in range(_MOST_TRIES):
            version = contents.version
            found = contents.read_consistently(partial(self._find, X, k, among, target, probes))
            results, is_complete = self._results(found, k, version)
            if is_complete:
                break
        if tree._forest.eviction.minds_queries:
            note_returned(tree._forest, found.ids)
        if contents.efforts.under_way:
            contents.efforts.measure_part(X.shape[0])
        return results

    def calibrate(self, k: int = 10, where: Any = None, target_recall: float | None = None) -> Effort:
        """Measure and return the search effort that a target recall requires.

        Without this call, queries measure the effort in small parts, and search more than necessary until the
        measurement is complete. The effort is saved with the store. It is measured again when the number of memories
        has doubled or halved.

        Parameters
        ----------
        k, where, target_recall
            As for :meth:`query`.
        """
        contents = self._contents
        contents.check_open()
        k = check_wanted("k", k, len(self))
        target = self._target_recall
        if target_recall is not None:
            target = check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        among = self._filters.find(where, contents)
        n = len(self) if among is None else among.ids.size
        return contents.efforts.measure(contents.search, min(k, n), target, among)

    def _find(
        self, X: Any, k: int, among: Filter | None, target: float, n_probes: int | None, search: StoreSearch
    ) -> NearestMemories:
        """Return the best memories. There are fewer than ``k`` columns if there are fewer memories."""
        Q, rows = search.prepared(X)
        forest = search.tree._forest
        for _ in range(_MOST_TRIES):
            n = forest.n_memories if among is None else among.ids.size
            if k > n and among is None:
                next_id, n = forest.next_id, forest.n_memories
            effort = self._contents.efforts.of(search, min(k, n), target, among) if n_probes is None else n_probes
            found = search.find(Q, rows, min(k, n), n, among, effort)
            if k <= n or among is not None or forest.next_id == next_id:
                break  # otherwise results may lack memories added during the query
        return found

    def _results(self, found: NearestMemories, k: int, version: int) -> tuple[Results, bool]:
        """Return results in ``k`` columns, and whether all memories found are still stored.

        ``version`` is the version of the store before the search.
        """
        contents, (ids, scores) = self._contents, found
        records = contents.search.records
        named, is_complete = records.named(ids), True
        keys, kinds = named.keys, named.kinds
        if ids.shape[1] < k or not named.are_all_there():
            there = named.are_there
            is_complete = bool(np.array_equal(there, ids != NONE))
            keys, ids, scores, kinds = _aligned(there, k, keys, ids, scores, kinds)
        if not named.may_have_payloads():
            return Results(keys, scores, None), is_complete
        payloads = Payloads(records.payloads, ids)
        contents.unread.add(payloads)
        if version % 2 == 1 or version != contents.version:
            texts = payloads.read()
            torn = (kinds == WITH) & are_none(texts)
            if torn.any():  # deleted after their keys were looked up
                keys, scores, texts = _aligned((ids != NONE) & ~torn, k, keys, scores, texts)
                return Results(keys, scores, texts), False
        return Results(keys, scores, payloads), is_complete

    def filter(self, where: Any = None, *, keys: Any = None) -> PreparedFilter:
        """Prepare a filter for the ``where`` of many queries.

        Parameters
        ----------
        where : dict, optional
            Conditions on payload fields.
        keys : list of keys, optional
            The keys of the candidates. Memories deleted later are no longer candidates.

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If an argument is invalid, or both or neither is given.
        """
        self._contents.check_open()
        return prepare_filter(where, keys, self._contents)

    @keeps_interpreter
    def get(self, keys: Any) -> Items:
        """Return the vectors and payloads of memories.

        Parameters
        ----------
        keys : str, int or list of them, length n
            The keys. A single key counts as a list of one.

        Returns
        -------
        Items
            Keys, vectors of shape (n, n_features) and payloads.

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If an argument is not a key.
        """
        checked, contents = check_keys(keys, distinct=False), self._contents
        items, are_exact = contents.read_consistently(partial(self._read, checked))
        if not are_exact:  # some vectors changed during the call
            items, are_exact = contents.alone(lambda: contents.read_consistently(partial(self._read, checked)))
            require(are_exact, "some vectors differ from those that were added")
        return items

    def __getitem__(self, key: Key) -> Item:
        if not isinstance(key, str | int | np.integer):
            raise TypeError(f"store[key] takes a single key, got {key!r:.50}; use get for several keys")
        return self.get(key).first()

    def _read(self, keys: list[Key], search: StoreSearch) -> tuple[Items, bool]:
        """Return memories, and whether all vectors are exactly those that were added."""
        ids = search.records.find(keys)
        check_stored(keys, ids)
        distinct = ids if ids.size == 1 else np.unique(ids)
        vectors, found, exact = search.read(distinct)
        if len(found) < distinct.size:
            check_stored(keys, np.where(np.isin(ids, vectors.ids), ids, NONE))
        at = vectors.ids.searchsorted(ids)
        return Items(keys, vectors.rows[at], [read_payload(found[i].payload) for i in at.tolist()]), exact

    # Learning

    @keeps_interpreter
    def feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        """Learn from rewards of results, or from correct answers.

        The scorer learns to rank memories with high rewards first, and the trees learn to route queries to memories
        with reward 1. With the cosine metric and at most 512 features, a linear map of dense queries is learned as
        well. A quarter of the queries is held out, and the map is used only if it improves the results of these
        queries.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            The queries.
        keys : array-like of keys, shape (n,) or (n, k)
            The key of one memory for each row, or the keys of several, such as ``results.keys``, with None for no
            memory. With one column, other results of the query count with reward 0.
        rewards : array-like of float, the shape of ``keys``
            Rewards in [0, 1].

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If an argument is invalid.
        cmt_numba.journal.JournalError
            If the change cannot be written.

        After an error nothing has been learned.
        """
        self._contents.change(partial(self._feedback, X, keys, rewards))

    def _feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        X, contents = self._check_vectors(X), self._contents
        given = check_answers(keys, X.shape[0])
        there = ~are_none(given)
        ids = np.full(given.shape, NONE, np.int64)
        if there.any():
            checked = check_keys(given[there].tolist(), distinct=False)
            found = contents.records.find(checked)
            check_stored(checked, found)
            ids[there] = found
        rewards = np.broadcast_to(check_rewards(rewards, ids), ids.shape)
        rewards = np.where(ids == NONE, np.float32(0.0), rewards)
        if (ids != NONE).any():
            self._learn(X, ids, rewards)

    def _learn(self, X: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of memories, within a change. An id of -1 stands for no memory."""
        contents = self._contents
        search, tree, space = contents.search, contents.tree, contents.space
        if ids.shape[1] == 1:
            others = self._find(X, _N_COMPETITORS, None, self._target_recall, None, search).ids
            others = np.where((others == ids) | (ids == NONE) | (rewards == 0.0), NONE, others)
            ids = np.concatenate([ids, others], axis=1)
            rewards = np.concatenate([rewards, np.zeros(others.shape, np.float32)], axis=1)
        asked = space.queries(space.mapped(X))
        hits = no_hits(*ids.shape)._replace(ids=ids)
        tree.update(asked, hits, rewards)
        rows, best = rewarded_memories(hits, np.full(X.shape[0], NONE), rewards)
        if rows.size > 0:
            tree.teach(asked[rows], best)
        if space.metric == "cosine" and isinstance(X, np.ndarray) and X.shape[1] <= WIDEST:
            contents.set_query_map(taught_by(tree, space.query_map, X, ids, rewards))

    def learn(self, X: Any, keys: Any, *, n_passes: int = 1) -> float:
        """Learn from queries with known answers, in blocks and in random order.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Queries similar to those expected later.
        keys : list of keys, length n
            The key of the correct memory for each query.
        n_passes : int, default 1
            Number of passes over the queries.

        Returns
        -------
        float
            The share of queries whose first result was correct in the last pass, before the store learned from them.

        Raises
        ------
        KeyError, TypeError, ValueError, cmt_numba.journal.JournalError
            As for :meth:`feedback`.
        """
        X = self._check_vectors(X)
        checked, n_passes = check_keys(keys, distinct=False), check_passes("n_passes", n_passes, 1)
        check_one_for_each_row(checked, X.shape[0])
        check_stored(checked, self._contents.records.find(checked))
        return learn_in_blocks(self, X, checked, n_passes)

    # Contents

    @property
    def metric(self) -> str:
        """The metric."""
        return self._contents.metric

    @property
    def path(self) -> str | None:
        """The folder, or None for a store in memory."""
        path = self._contents.path
        return None if path is None else os.fspath(path)

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, or None before the first vector is added."""
        search = self._contents.search
        width = search.tree.n_features
        return None if width is None else width - search.space.n_more

    @property
    def max_items(self) -> int | None:
        """The maximum number of memories."""
        most: int | None = self._contents.tree._forest.options["max_memories"]
        return most

    @property
    def recall(self) -> tuple[Effort, ...]:
        """The measured recalls and search efforts so far."""
        return self._contents.efforts.known()

    def __len__(self) -> int:
        return self._contents.tree.n_memories

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = check_keys(key)
        except ValueError:
            return False
        self._contents.check_open()
        return bool(self._contents.records.find(checked)[0] >= 0)

    def __iter__(self) -> Iterator[Key]:
        last = -1
        self._contents.check_open()
        while found := self._contents.records.after(last):
            yield from (key for _, key, _ in found)
            last = found[-1][0]

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else f"in {self.path}"
        return f"MemoryStore({place}, metric={self.metric!r}) with {len(self)} memories"

    def check_invariants(self) -> None:
        """Check that vectors, keys and payloads belong together, and that no file is damaged.

        Unlike opening a folder, this reads all vectors.

        Raises
        ------
        cmt_numba.InvariantError
            If keys, payloads and vectors do not match, or an invariant of the trees is violated.
        cmt_numba.persistence.FileFormatError
            If a file is damaged.
        OSError
            If a file cannot be read.
        """
        self._contents.alone(self._check_everything)

    def _check_everything(self) -> None:
        contents = self._contents
        contents.check_open()
        contents.tree.check_invariants()
        require(contents.records.are_indexed(), "the index of keys does not match the keys")
        try:
            contents.check(thorough=True)
        except ValueError as error:
            raise InvariantError(str(error)) from error
        ids = np.sort(contents.tree.ids)
        for first in range(0, ids.size, _VECTORS_CHECKED_AT_ONCE):
            exact = contents.search.read(ids[first : first + _VECTORS_CHECKED_AT_ONCE])[2]
            require(exact, "some vectors differ from those that were added")

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to one file for :meth:`load`. An existing file is replaced atomically.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        self._contents.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False, *, target_recall: float = 0.95) -> Self:
        """Load a store from a file into memory.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Whether to map vectors and trees instead of reading them. Map only files that you trust.
        target_recall : float in (0, 1], default 0.95
            As for the constructor.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, was written by a later version, or does not hold a store.
        OSError
            If the file cannot be read.
        """
        store = cls.__new__(cls)
        check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        store._begin(StoreContents.of_file(path, mmap=mmap), target_recall)
        return store

    def sync(self) -> None:
        """Wait until all changes are on disk. With ``sync_every=1`` they already are."""
        self._contents.sync()

    def close(self) -> None:
        """Write all changes to disk and close the store. A closed store cannot be used."""
        self._contents.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"contents": self._contents.copy(), "target_recall": self._target_recall}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(StoreContents.read(state["contents"], thorough=False), state["target_recall"])

    # Arguments

    def _check_vectors(self, X: Any) -> Any:
        """Return checked vectors as float32, dense or sparse like the stored vectors."""
        X = self._contents.check_form(X)
        check_lengths(X, self.metric)
        return X


def _aligned(there: np.ndarray, k: int, keys: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return keys and other arrays of results in ``k`` columns, with the existing entries of each row first."""
    n, width = there.shape
    order = np.argsort(~there, axis=1, kind="stable")
    there = np.take_along_axis(there, order, axis=1)
    nothing = {"O": None, "i": NONE, "f": -np.inf}
    parts = []
    for part in (keys.astype(object), *others):
        aligned = np.full((n, k), nothing[part.dtype.kind], part.dtype)
        aligned[:, :width][there] = np.take_along_axis(part, order, axis=1)[there]
        parts.append(aligned)
    return parts
