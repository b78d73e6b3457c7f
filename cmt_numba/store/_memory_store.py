"""``MemoryStore``: vectors with keys and payloads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from .._concurrency.workers import spans
from .._forest.hits import no_hits, rewarded_memories
from .._forest.state import NONE
from .._validation import check_passes, check_rewards
from ._checks import (
    DuplicateKeyError,
    are_none,
    check_answers,
    check_keys,
    check_kind,
    check_one_for_each_row,
    check_payloads,
    check_stored,
)
from ._kept import Keeper, changes
from ._learning import learn_in_blocks, taught_by
from ._metrics import METRICS, check_lengths
from ._query_map import WIDEST
from ._querying import Searchable
from ._search import keys_of
from ._trees import Kept, replace_keys

_CELLS_REPLACED_AT_ONCE = 1 << 22  # of vectors, which takes about ten milliseconds: queries wait meanwhile
_N_COMPETITORS = 9  # of a memory that was rewarded alone


class MemoryStore(Searchable):
    """A store of vectors with keys of your own and payloads: search, filters, changes at any time, and learning.

    A store lives in memory or in a folder. In a folder each change is on disk before the call returns; keys, payloads
    and vectors change together or not at all. Opening a folder maps the vectors, and reads them when they are needed.

    Stores of up to 4,096 vectors, and filters with so few candidates, are searched exactly. Larger ones are searched
    through Contextual Memory Trees and along links between near vectors, as far as ``target_recall`` needs.

    Any number of threads may use a store. Changes are made one after the other; queries are answered meanwhile and see
    a change come step by step.

    Parameters
    ----------
    path : path-like, optional
        The folder: empty, or that of a store. If it does not exist, it is created; its parent must exist. By default
        the store is in memory.
    metric : {"cosine", "inner_product", "euclidean"}, optional
        What to rank by: "cosine" (the default) for texts and other vectors of which the direction counts,
        "inner_product" for vectors that were trained for it, "euclidean" for coordinates and measurements. A store in a
        folder keeps its metric.
    max_items : int, optional
        Maximum number of memories. Adding to a full store evicts memories, with their keys and payloads.
    eviction : {"least_recently_returned", "oldest", "random"}, optional
        Which memories are evicted.
    target_recall : float in (0, 1], default 0.95
        The share of the nearest vectors that queries find on average. 1 compares with everything.
    n_trees : int, optional
        Number of trees; by default 2, or 4 without links. More take more memory and time to build. Where vectors are
        not linked, they find as much by searching less.
    n_links : int, optional
        With how many near ones each dense vector is linked at most; 24 by default. Searches without filters follow the
        links. With 0 there are none: changes are faster then, and searches slower. Stores in folders keep theirs.
    keep : {"all", "codes"}, optional
        What to keep of dense vectors: "all" (the default) keeps them and their 8-bit codes, "codes" the codes alone, in
        a quarter of the room. All goes by what the codes stand for then, which is also what :meth:`get` returns: the
        directions of vectors differ by about 0.5 % from what was added. Stores in folders keep theirs.
    learning_rate : float, optional
        How strongly rewards change the order of answers (``scorer_learning_rate`` of the tree); 0.01 by default. With
        0.1 sparse vectors learn more, but dense ones with few features may lose most of their right answers.
    n_threads : int, optional
        Number of threads for batches.
    random_state : int or numpy.random.SeedSequence, optional
        Seed of a new store.
    sync_every : int, default 1
        The number of changes after which to wait for the disk.
    snapshot_bytes, snapshot_seconds : optional
        When a snapshot replaces the journal: see :class:`~cmt_numba.DurableTree`.
    read_only : bool, default False
        Open a folder for queries only, for example if its disk is full.

    Raises
    ------
    cmt_numba.journal.AlreadyOpenError
        If the folder is already open.
    cmt_numba.persistence.FileFormatError
        If the folder is damaged or not that of a store.
    OSError
        If the folder cannot be read or written.
    TypeError, ValueError
        If an option is not valid or differs from that of the store in the folder.

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
        how = {"sync_every": sync_every, "snapshot_bytes": snapshot_bytes, "snapshot_seconds": snapshot_seconds}
        self._set_target(target_recall)
        if read_only and path is None:
            raise ValueError("read_only is for a store in a folder: give its path")
        self._keep(Keeper(path, metric, options, how | {"read_only": bool(read_only)}))

    # Changes

    def add(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add new memories.

        Parameters
        ----------
        keys : list of str or of int, length n
            Their keys: all strings or all integers of 64 bits, none in the store yet.
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Their vectors.
        payloads : list, length n, optional
            What belongs to them, as JSON has it; None for nothing.

        Raises
        ------
        DuplicateKeyError
            If a key is in the store already. It is a KeyError and a ValueError.
        TypeError, ValueError
            If an argument is not valid, or a vector has the length 0 and the metric is the cosine.
        cmt_numba.journal.JournalError
            If the change could not be written.
        MemoryError
            If memory runs out.

        Nothing has changed after any of these.
        """
        self._write(keys, X, payloads, replace=False)

    def upsert(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add memories, and replace the vectors and payloads of those whose keys are in the store.

        Parameters
        ----------
        keys, X, payloads
            As for :meth:`add`, but keys may be in the store. Their payloads are replaced too, also by nothing.

        Raises
        ------
        TypeError, ValueError, cmt_numba.journal.JournalError
            As for :meth:`add`; nothing has changed then.
        MemoryError
            If memory runs out. In memory some memories may have been replaced then, each with its payload.
        """
        self._write(keys, X, payloads, replace=True)

    @changes
    def _write(self, keys: Any, X: Any, payloads: Any, *, replace: bool) -> None:
        checked = check_keys(keys)
        self._keeper.check_open()
        X = self._check_form(X)
        check_lengths(X, self.metric)
        check_one_for_each_row(checked, X.shape[0])
        texts = check_payloads(payloads, len(checked))
        records = self._records()
        ids = records.find(checked)
        old, new = (ids >= 0).nonzero()[0], (ids < 0).nonzero()[0]
        if old.size == 0:
            check_kind(checked, records.kind())
        if old.size > 0 and not replace:
            message = f"keys must not be in the store: {checked[old[0]]!r:.100} is; use upsert to replace it"
            raise DuplicateKeyError(message)
        self._make_room(X)

        def write(kept: Kept, commit: Callable[..., None]) -> None:
            space = self._keeper.space
            vectors, lost = keys_of(kept.tree, space, X)
            n_cells = vectors.size if isinstance(vectors, np.ndarray) else vectors.nnz
            for start, stop in spans(old.size, max(1, _CELLS_REPLACED_AT_ONCE * len(checked) // max(1, n_cells))):
                some, more = old[start:stop], stop < old.size or new.size > 0
                kept.records.update(ids[some], [texts[i] for i in some], lost.of(some))
                replace_keys(kept, ids[some], vectors[some], partial(commit, more))
            if new.size > 0:
                first = kept.tree._forest.next_id
                own, text = [checked[i] for i in new], [texts[i] for i in new]
                kept.records.insert(np.arange(first, first + new.size), own, text, lost.of(new))
                kept.records.delete(kept.insert(vectors[new]))
                commit()

        self._keeper.change(write)

    def _make_room(self, X: Any) -> None:
        """Give all memories other keys if there is no room for new vectors among the present ones."""
        keeper = self._keeper
        space = keeper.space
        if space.n_more == 0:
            return
        admitting = space.admits(X, len(self)) if space.bound > 0.0 else None
        if admitting is space:
            return

        def rekey(kept: Kept, commit: Callable[..., None]) -> None:
            if admitting is not None:
                keeper.set_space(admitting)
                return
            ids, every = np.sort(kept.tree.ids), X
            if ids.size > 0:
                vectors = keeper.search.read(ids)[0].rows
                stack = scipy.sparse.vstack if scipy.sparse.issparse(X) else np.concatenate
                every = stack([vectors, X])
            keeper.set_space(METRICS[space.metric].fitted(every))
            self._efforts.forget()
            if ids.size > 0:
                keys, lost = keys_of(kept.tree, keeper.space, vectors)
                kept.records.update_vectors(ids, lost)
                replace_keys(kept, ids, keys, commit)

        self._keeper.rekey(rekey)

    @changes
    def delete(self, keys: Any) -> None:
        """Delete memories.

        Parameters
        ----------
        keys : str, int or list of them
            Their keys, each named once.

        Raises
        ------
        KeyError
            If a key is not stored; nothing has been deleted then.
        TypeError, ValueError
            If these are not distinct keys.
        cmt_numba.journal.JournalError
            If the change could not be written; nothing has been deleted then.
        """
        checked = check_keys(keys)
        ids = self._records().find(checked)
        check_stored(checked, ids)

        def delete(kept: Kept, commit: Callable[..., None]) -> None:
            kept.tree.remove(ids)
            kept.records.delete(ids)
            commit()

        self._keeper.change(delete)

    def create_index(self, field: Any) -> None:
        """Create an index on a field of payloads, so that filters on it need not look at all of them.

        Parameters
        ----------
        field : str or tuple of str
            The field, as in filters.
        """
        with self._keeper.writing:
            self._keeper.change(lambda kept, commit: kept.records.create_index(field))
            self._keeper.sync()

    def compact(self) -> None:
        """Store memories in the order in which searches read them, for faster queries after many changes."""
        self._keeper.change(lambda kept, commit: kept.tree.compact(copies=kept.tree._forest.options["n_links"] == 0))

    # Learning

    @changes
    def feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        """Learn from rewards of what was returned, or of what was right.

        The scorer learns to rank memories of a row with high rewards before those with low ones, and the trees learn
        the way to memories with the reward 1. Of dense queries with at most 512 features a linear map is learned, if
        the metric is the cosine. A quarter of the queries teach nothing: queries are mapped only if it helps these.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            The queries.
        keys : array-like of keys, shape (n,) or (n, k)
            One memory of each row, or several, such as ``results.keys``; None for no memory. Where there is only one
            with a reward above 0, others that the query finds count as worth nothing.
        rewards : array-like of float, the shape of ``keys``
            Rewards in [0, 1].

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If an argument is not valid.
        cmt_numba.journal.JournalError
            If the change could not be written.

        Nothing has been learned after any of these.
        """
        X = self._check_vectors(X)
        given = check_answers(keys, X.shape[0])
        there = ~are_none(given)
        ids = np.full(given.shape, NONE, np.int64)
        if there.any():
            checked = check_keys(given[there].tolist(), distinct=False)
            found = self._records().find(checked)
            check_stored(checked, found)
            ids[there] = found
        self._learn(X, ids, check_rewards(rewards, ids))

    def _learn(self, X: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of memories, -1 for none."""
        rewards = np.where(ids == NONE, np.float32(0.0), np.broadcast_to(rewards, ids.shape))
        if not (ids != NONE).any():
            return

        def learn(kept: Kept, commit: Callable[..., None]) -> None:
            search, all_ids, all_rewards = self._keeper.search, ids, rewards
            if ids.shape[1] == 1:
                others = self._find(search, X, _N_COMPETITORS, None, self._target_recall, None).ids
                others = np.where((others == ids) | (ids == NONE) | (rewards == 0.0), NONE, others)
                all_ids = np.concatenate([ids, others], axis=1)
                all_rewards = np.concatenate([rewards, np.zeros(others.shape, np.float32)], axis=1)
            space = search.space
            asked = space.queries(space.mapped(X))
            hits = no_hits(*all_ids.shape)._replace(ids=all_ids)
            kept.tree.update(asked, hits, all_rewards)
            rows, best = rewarded_memories(hits, np.full(X.shape[0], NONE), all_rewards)
            if rows.size > 0:
                kept.tree.teach(asked[rows], best)
            if space.metric == "cosine" and isinstance(X, np.ndarray) and X.shape[1] <= WIDEST:
                self._keeper.set_query_map(taught_by(kept.tree, space.query_map, X, all_ids, all_rewards))

        self._keeper.change(learn)

    def learn(self, X: Any, keys: Any, *, n_passes: int = 1) -> float:
        """Learn from queries whose right answers are known, in blocks and in a random order.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Queries like those to come.
        keys : list of keys, length n
            The key of the memory that each is to find.
        n_passes : int, default 1
            How often to go through them.

        Returns
        -------
        float
            The share of the queries whose first answer was right in the last pass, before they taught anything.

        Raises
        ------
        KeyError, TypeError, ValueError, cmt_numba.journal.JournalError
            As for :meth:`feedback`.
        """
        X = self._check_vectors(X)
        checked, n_passes = check_keys(keys, distinct=False), check_passes("n_passes", n_passes, 1)
        check_one_for_each_row(checked, X.shape[0])
        check_stored(checked, self._records().find(checked))
        return learn_in_blocks(self, X, checked, n_passes)
