"""Queries of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._engine import Filter
from .._forest.rows import Rows
from .._forest.state import NONE
from .._validation import check_integer, check_real, check_wanted
from ._checks import are_none, check_keys, check_stored
from ._holder import Holder
from ._key_table import WITH
from ._metrics import check_directions
from ._recall import compares_all
from ._results import Payloads, Results, read_payload
from ._search import Found, Search
from ._where import condition_of

_MOST_FILTERS = 64  # that are kept
_NO_ROWS = np.empty(0, np.int64)
_MOST_TRIES = 5  # of a query, where memories are added or deleted meanwhile


class Searchable(Holder):
    """The part of :class:`~cmt_numba.MemoryStore` that answers queries."""

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
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Queries.
        k : int, default 10
            Memories to return for each row.
        where : dict, callable or list of keys, optional
            Filter: conditions on the fields of payloads (see :mod:`cmt_numba.store`), a function that is given each
            payload and returns whether its memory is a candidate, or the keys of the candidates.
        target_recall : float in (0, 1], optional
            The share of the nearest memories to find on average; that of the store by default.
        n_probes : int, optional
            Leaves of the trees to search, instead of what the recall needs. No links are followed then.

        Returns
        -------
        Results
            Keys, scores and payloads.

        Raises
        ------
        KeyError
            If ``where`` lists a key that is not stored.
        TypeError, ValueError
            If an argument is not valid.
        """
        X = self._check_form(X)
        k = check_wanted("k", k, len(self))
        target = self._target_recall
        if target_recall is not None:
            target = check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        probes = None if n_probes is None else check_integer("n_probes", n_probes, 1)
        among = self._filter(where)
        for _ in range(_MOST_TRIES):
            version = self._keeper.version
            found = self._read(lambda search: self._find(search, X, k, among, target, probes))
            results, is_complete = self._results(found, k, version)
            if is_complete:
                break
        self._keeper.kept.tree._note_returned(found.ids)
        return results

    def _find(self, search: Search, X: Any, k: int, among: Filter | None, target: float, n_probes: int | None) -> Found:
        """Return the best memories, in as many columns as there are memories, or ``k``."""
        tree, Q = search.tree, search.space.mapped(X)
        rows = search.rows_of(Q)
        if search.space.metric == "cosine":
            _check_directions(rows)
        for _ in range(_MOST_TRIES):
            next_id = tree._forest.next_id
            n = tree.n_memories if among is None else among.ids.size
            found = self._find_of(search, Q, rows, k if k <= n else n, n, among, target, n_probes)
            if k <= n or among is not None or tree._forest.next_id == next_id:
                break  # otherwise memories that were added may have taken the few places of those that there were
        return found

    def _find_of(
        self,
        search: Search,
        Q: Any,
        rows: Rows,
        k: int,
        n: int,
        among: Filter | None,
        target: float,
        n_probes: int | None,
    ) -> Found:
        """Return the best ``k`` of ``n`` candidates for queries, which are given as rows of the tree too."""
        if k == 0:
            return Found(np.empty((rows.n_rows, 0), np.int64), np.empty((rows.n_rows, 0), np.float32))
        breadth = 0
        if n_probes is None:
            effort = self._efforts.of(search, k, target, among)
            if compares_all(effort, n, rows.n_rows, sparse=rows.sparse):
                return search.nearest(Q, rows, k, among)
            n_probes, breadth = effort.n_probes or 1, effort.breadth
        found = search.near(Q, rows, k, n_probes, among, breadth)
        short = _short_rows(found.ids, k)
        if short.size > 0:
            found.ids[short], found.scores[short] = search.nearest(Q[short], rows.take(short), k, among)
        return found

    def _results(self, found: Found, k: int, version: int) -> tuple[Results, bool]:
        """Return what was found with keys and payloads, in ``k`` columns, and whether all of it is still stored.

        ``version`` is that of the store before the search.
        """
        records, (ids, scores) = self._records(), found
        named, is_complete = records.named(ids), True
        keys, kinds = named.keys, named.kinds
        if ids.shape[1] < k or not named.are_all_there():
            there = named.are_there
            is_complete = bool(np.array_equal(there, ids != NONE))
            keys, ids, scores, kinds = _aligned(there, k, keys, ids, scores, kinds)
        if not named.may_have_payloads():
            return Results(keys, scores, None), is_complete
        payloads = Payloads(records.payloads, ids)
        self._keeper.unread.add(payloads)
        if version % 2 == 1 or version != self._keeper.version:
            texts = payloads.read()
            torn = (kinds == WITH) & are_none(texts)
            if torn.any():  # these were deleted after their keys had been looked up
                keys, scores, texts = _aligned((ids != NONE) & ~torn, k, keys, scores, texts)
                return Results(keys, scores, texts), False
        return Results(keys, scores, payloads), is_complete

    def _filter(self, where: Any) -> Filter | None:
        """Return a filter, from before if nothing has changed since."""
        if where is None:
            return None
        records, version = self._records(), self._keeper.version
        if callable(where):
            return Filter(self._ids_where(where))
        if isinstance(where, dict):
            condition = condition_of(where)
            return self._kept_filter(version, condition, lambda: records.ids(condition))

        def made() -> Filter:
            checked = check_keys(where, distinct=False)

            def find() -> np.ndarray:
                ids = records.find(checked)
                check_stored(checked, ids)
                return np.unique(ids)

            return self._kept_filter(version, tuple(checked), find)

        return made() if version % 2 == 1 else self._remembered.of(where, version, made)

    def _kept_filter(self, version: int, name: Any, find: Callable[[], np.ndarray]) -> Filter:
        before, filters = self._filters
        if before != version or version % 2 == 1 or len(filters) >= _MOST_FILTERS:
            filters = {}
        if name not in filters:
            filters[name] = Filter(find())
            if version == self._keeper.version:
                self._filters = version, filters
        return filters[name]

    def _ids_where(self, where: Callable[[Any], Any]) -> np.ndarray:
        last, ids = -1, []
        while found := self._records().after(last):
            ids += [memory_id for memory_id, _, payload in found if where(read_payload(payload))]
            last = found[-1][0]
        return np.array(ids, np.int64)


def _short_rows(ids: np.ndarray, k: int) -> np.ndarray:
    """Return the rows in which fewer than ``k`` memories were found."""
    if len(ids) == 1 and ids.item(k - 1) != NONE:  # in a tenth of the time
        return _NO_ROWS
    return np.flatnonzero(ids[:, k - 1] == NONE)


def _check_directions(rows: Rows) -> None:
    """Raise ValueError if a row is zero."""
    if rows.sparse:
        check_directions(np.diff(rows.offsets) > 0)
    elif rows.n_rows == 1 and rows.values.item(0) != 0.0:
        return
    elif np.count_nonzero(rows.values[:: rows.n_features]) < rows.n_rows:  # seldom
        check_directions(np.asarray(rows.values.reshape(rows.n_rows, -1).any(axis=1)))


def _aligned(there: np.ndarray, k: int, keys: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return what is there in each row, moved together, and in ``k`` columns: keys, ids, scores, kinds or texts."""
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
