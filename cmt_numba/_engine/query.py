"""Queries (QUERY, Algorithm 2)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .._change import TimedSteps, map_threads, progress_bar, spans
from .._jit import keeping_interpreter
from .filters import Filter
from .forest import Forest

_ROWS_AT_ONCE = 64  # maximum number of rows that one thread answers in a single read


def query_forest(
    forest: Forest,
    rows: kernels.Rows,
    k: int = 1,
    n_leaves: int | None = None,
    *,
    epsilon: float = 0.0,
    among: Filter | None = None,
    progress: bool = False,
) -> kernels.ShownHits:
    """Return the best ``k`` memories for each row, among all memories or those that pass the filter ``among``.

    Rows explore with probability ``epsilon``. Call :func:`note_returned` to notify the eviction policy.
    """
    n_leaves = forest.n_trees if n_leaves is None else n_leaves
    hits = kernels.no_hits(rows.n_rows, k)
    propensities: Callable[[], np.ndarray] = partial(kernels.certain, hits.ids)
    if among is not None:
        forest.lock.read(partial(search_among, forest, rows, n_leaves, among, hits, progress=progress))
    elif forest.n_memories > 0:
        word = np.uint64(draw_seed(forest) if epsilon > 0.0 else 0)
        if epsilon > 0.0:
            propensities = partial(_propensities, forest, rows, hits.ids, n_leaves, epsilon, forest.lock.n_steps)
        search(forest, rows, n_leaves, hits, epsilon=epsilon, word=word, progress=progress)
    return kernels.ShownHits.of(hits, propensities)


def draw_seed(forest: Forest) -> int:
    """Draw 64 bits from the random stream for queries. In a folder the draw is journaled."""
    return forest.draw_word() if forest.journal is None else forest.journal.draw_word()


def note_returned(forest: Forest, ids: np.ndarray) -> None:
    """Notify the eviction policy, and the journal, of ids that a query has returned: (n, k), best first."""
    if forest.journal is None:
        enter_returned(forest, ids)
    elif forest.eviction.minds_queries:
        forest.journal.note_returned(ids)


def enter_returned(forest: Forest, ids: np.ndarray) -> None:
    """Notify the eviction policy like :func:`note_returned`, without a journal."""

    def note() -> None:
        if forest.state is not None:
            with forest.lock.instant:
                forest.eviction.returned(forest.state, ids)

    if forest.eviction.minds_queries:
        forest.lock.read(note)


def search(
    forest: Forest,
    rows: kernels.Rows,
    n_leaves: int,
    hits: kernels.Hits,
    *,
    epsilon: float = 0.0,
    word: Any = np.uint64(0),  # noqa: B008
    progress: bool = False,
) -> None:
    """Write the best memories for rows to ``hits``. Other threads may change the forest between steps."""

    def answer(first: int, stop: int) -> None:
        state = forest.fitting_state(rows)
        if state is None:
            return
        view = forest.view(state)
        query = kernels.Query(rows, first, stop, n_leaves, epsilon, word)
        forests.query_rows(view, query, forests.UNRESTRICTED, hits.ids, hits.scores)
        if epsilon > 0.0:
            forests.explore_rows(view, query, hits)

    n_rows = rows.n_rows
    if n_rows <= _ROWS_AT_ONCE and not progress:
        forest.lock.read(partial(answer, 0, n_rows))
        return
    n_threads = forest.threads_for(n_rows)
    forest.lock.let_in()  # within a change, the worker threads would wait otherwise
    with keeping_interpreter(n_rows), progress_bar(n_rows, "query", progress) as report:

        def answer_in_steps(span: tuple[int, int]) -> None:
            steps = TimedSteps(*span, forest.pace)
            for first, stop in steps:
                forest.lock.read(partial(steps.take, answer, first, stop))
                report(stop - first)

        map_threads(answer_in_steps, spans(n_rows, -(-n_rows // n_threads)), n_threads)


def search_among(
    forest: Forest, rows: kernels.Rows, n_leaves: int, among: Filter, hits: kernels.Hits, *, progress: bool = False
) -> None:
    """Write the best memories in ``among`` for each row to ``hits``. Call this within a read of the forest."""
    state = forest.fitting_state(rows)
    chosen = among.slots(forest.slots_of, forest.lock.n_steps)
    if state is None or chosen.size == 0:
        return
    view, n_threads = forest.view(state), forest.threads_for(rows.n_rows)
    few = forests.are_few(chosen, n_leaves)
    restriction = forests.UNRESTRICTED if few else among.restriction(state)
    with progress_bar(rows.n_rows, "query", progress) as report:

        def answer(span: tuple[int, int]) -> None:
            query = kernels.Query(rows, *span, n_leaves, 0.0, np.uint64(0))
            if few:
                forests.score_slots(view, query, chosen, hits.ids, hits.scores)
            else:
                forests.query_rows(view, query, restriction, hits.ids, hits.scores)
            report(span[1] - span[0])

        map_threads(answer, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)


def _propensities(
    forest: Forest, rows: kernels.Rows, ids: np.ndarray, n_leaves: int, epsilon: float, n_steps: int
) -> np.ndarray:
    """Return the probability that a query shows each memory. Raises RuntimeError if the trees have changed."""
    shown = np.zeros(ids.shape)

    def find(first: int, stop: int) -> None:
        state = forest.fitting_state(rows)
        if state is None or forest.lock.n_steps != n_steps:
            raise RuntimeError("the trees have changed since the query: read propensities before changing them")
        view = forest.view(state)
        query, best = kernels.Query(rows, first, stop, n_leaves, 0.0, np.uint64(0)), kernels.no_hits(*ids.shape)
        forests.query_rows(view, query, forests.UNRESTRICTED, best.ids, best.scores)
        shown[first:stop] = (1.0 - epsilon) * kernels.are_among(ids[first:stop], best.ids[first:stop])
        forests.add_explored(view, query._replace(epsilon=epsilon), ids, shown)

    steps = TimedSteps(0, rows.n_rows, forest.pace)
    for first, stop in steps:
        forest.lock.read(partial(steps.take, find, first, stop))
    return shown
