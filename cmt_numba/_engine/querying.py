"""Queries of a forest: see :mod:`.forest`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._concurrency.workers import Steps, map_threads, progress_bar, spans
from .._forest.exploration import explore_rows
from .._forest.filtering import UNRESTRICTED, are_few, least_left, score_slots
from .._forest.hits import Hits, Query, ShownHits, are_among, certain, no_hits
from .._forest.link_search import ALL, NO_SLOTS, query_links
from .._forest.propensities import add_explored
from .._forest.rows import Rows
from .._forest.search import query_rows
from .._forest.state import NONE, State
from .driver import Driver
from .filters import Filter
from .scanning import scan_dense

_ROWS_AT_ONCE = 64  # so few that dividing them among steps or threads costs more than it saves


class Queried(Driver):
    """A forest that answers validated rows."""

    def _query_rows(
        self,
        rows: Rows,
        k: int = 1,
        n_leaves: int | None = None,
        epsilon: float = 0.0,
        among: Filter | None = None,
        progress: bool = False,
        breadth: int = 0,
    ) -> ShownHits:
        """Return the best ``k`` memories for each row, of all memories or of those in ``among``."""
        n_leaves = self._options["n_trees"] if n_leaves is None else n_leaves
        hits = no_hits(rows.n_rows, k)
        find: Callable[[], np.ndarray] = partial(certain, hits.ids)
        if among is not None:
            self._lock.read(partial(self._answer_fully_among, rows, n_leaves, among, progress, hits, breadth))
        elif self.n_memories > 0:
            seed = np.uint64(self._draw_word() if epsilon > 0.0 else 0)
            if epsilon > 0.0:
                find = partial(self._find_propensities, rows, hits.ids, n_leaves, epsilon, self._lock.n_steps)
            self._answer(rows, n_leaves, epsilon, seed, progress, hits, breadth)
        self._note_returned(hits.ids)
        return ShownHits.of(hits, find)

    def _find_propensities(
        self, rows: Rows, ids: np.ndarray, n_leaves: int, epsilon: float, n_steps: int
    ) -> np.ndarray:
        """Return the probability that a query shows each memory in ``ids``, if there have been no further steps."""
        shown = np.zeros(ids.shape)

        def find(first: int, stop: int) -> None:
            state = self._fitting_state(rows)
            if state is None or self._lock.n_steps != n_steps:
                raise RuntimeError("the trees have changed since the query: read propensities before they change")
            searched = self._searched(state)
            query, best = Query(rows, first, stop, n_leaves, 0.0, np.uint64(0)), no_hits(*ids.shape)
            query_rows(searched, query, UNRESTRICTED, best.ids, best.scores)
            shown[first:stop] = (1.0 - epsilon) * are_among(ids[first:stop], best.ids[first:stop])
            add_explored(searched, query._replace(epsilon=epsilon), ids, shown)

        steps = Steps(0, rows.n_rows, self._pace)
        for first, stop in steps:
            self._lock.read(partial(steps.take, find, first, stop))
        return shown

    def _fitting_state(self, rows: Rows) -> State | None:
        """Return the state if its keys have the form and the width of the rows, else None.

        A first insert that failed since the rows were validated has left no state, and the next one may have made a
        state for keys of another width.
        """
        state = self._the_state
        if state is None:
            return None
        parameters = state.parameters
        return state if parameters.n_features == rows.n_features and parameters.sparse == rows.sparse else None

    def _answer(
        self,
        rows: Rows,
        n_leaves: int,
        epsilon: float,
        seed: np.uint64,
        progress: bool,
        hits: Hits,
        breadth: int = 0,
        left_out: np.ndarray | None = None,
    ) -> None:
        """Write the answers to rows. Changes may come in between. Links are followed if the ``breadth`` is above 0.

        Along links, ``left_out`` are the ids of memories that the search for each row does not go to.
        """
        n_rows = rows.n_rows

        def answer(first: int = 0, stop: int = n_rows) -> None:
            state = self._fitting_state(rows)
            if state is None:
                return
            searched = self._searched(state)
            if breadth > 0 and self._links.are_there:
                self._follow_links(searched, rows, first, stop, (n_leaves, breadth, 0), ALL, left_out, hits)
                return
            query = Query(rows, first, stop, n_leaves, epsilon, seed)
            query_rows(searched, query, UNRESTRICTED, hits.ids, hits.scores)
            if epsilon > 0.0:
                explore_rows(searched, query, hits)

        if n_rows <= _ROWS_AT_ONCE and not progress:
            self._lock.read(answer)
            return
        n_threads = self._threads_for(n_rows)
        self._lock.let_in()  # a change that asks would wait for its own threads
        with progress_bar(n_rows, "query", progress) as report:

            def answer_in_steps(span: tuple[int, int]) -> None:
                steps = Steps(*span, self._pace)
                for first, stop in steps:
                    self._lock.read(partial(steps.take, answer, first, stop))
                    report(stop - first)

            map_threads(answer_in_steps, spans(n_rows, -(-n_rows // n_threads)), n_threads)

    def _follow_links(
        self,
        searched: Any,
        rows: Rows,
        first: int,
        stop: int,
        reach: tuple[int, int, int],
        chosen: np.ndarray,
        left_out: np.ndarray | None,
        hits: Hits,
    ) -> None:
        """Write the answers to the rows ``first .. stop`` along the links."""
        avoided = NO_SLOTS if left_out is None else self._slots(left_out[first:stop])
        values, ids, scores = rows.values, hits.ids, hits.scores
        if stop - first < ids.shape[0]:
            values = values[first * rows.n_features : stop * rows.n_features]
            ids, scores = ids[first:stop], scores[first:stop]
        query_links(searched, self._links.near, values, reach, chosen, avoided, ids, scores)

    def _answer_fully_among(
        self, rows: Rows, n_leaves: int, among: Filter, progress: bool, hits: Hits, breadth: int
    ) -> None:
        """Write the answers to rows like :meth:`_answer_among`, and compare all candidates where links lead to few."""
        self._answer_among(rows, n_leaves, among, progress, hits, breadth)
        wanted = min(hits.ids.shape[1], among.slots(self._slots, self._lock.n_steps).size)
        if breadth > 0 and self._links.are_there and wanted > 0:
            short = np.flatnonzero(hits.ids[:, wanted - 1] == NONE)
            if short.size > 0:
                others = scan_dense(self, rows.take(short), hits.ids.shape[1], among)
                hits.ids[short], hits.scores[short] = others.ids, others.scores

    def _answer_among(
        self,
        rows: Rows,
        n_leaves: int,
        among: Filter,
        progress: bool,
        hits: Hits,
        breadth: int = 0,
        left_out: np.ndarray | None = None,
    ) -> None:
        """Write the answers to rows, filtered by ``among``, while nothing changes.

        Where links lead to fewer candidates than chance would have it, rows are not answered.
        """
        state = self._fitting_state(rows)
        chosen = among.slots(self._slots, self._lock.n_steps)
        if state is None or chosen.size == 0:
            return
        searched = self._searched(state)
        n_threads = self._threads_for(rows.n_rows)
        breadth = breadth if self._links.are_there else 0
        few = are_few(chosen, n_leaves, breadth)
        linked = breadth > 0 and not few
        restriction = UNRESTRICTED if few or linked else among.restriction(state)
        mask, least = ALL, 0
        if linked:
            mask, breadth = among.mask(state), max(breadth, hits.ids.shape[1])
            least = max(hits.ids.shape[1], least_left(breadth, chosen.size / self.n_memories))
            least = min(least, chosen.size)
        with progress_bar(rows.n_rows, "query", progress) as report:

            def answer(span: tuple[int, int]) -> None:
                query = Query(rows, span[0], span[1], n_leaves, 0.0, np.uint64(0))
                if few:
                    score_slots(searched, query, chosen, hits.ids, hits.scores)
                elif linked:
                    self._follow_links(searched, rows, *span, (n_leaves, breadth, least), mask, left_out, hits)
                else:
                    query_rows(searched, query, restriction, hits.ids, hits.scores)
                report(span[1] - span[0])

            map_threads(answer, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)

    def _note_returned(self, ids: np.ndarray) -> None:
        """Tell the eviction policy which memories were returned: all that a query may change."""
        if self._eviction.minds_queries:
            self._enter_returned(ids)

    def _enter_returned(self, ids: np.ndarray) -> None:
        def enter() -> None:
            if self._state is not None:
                with self._lock.instant:
                    self._eviction.returned(self._state, ids)

        self._lock.read(enter)
