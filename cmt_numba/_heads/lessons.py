"""Training of a head on rows with labels, from shortlists of candidates."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._change import Workers, in_own_thread, spans
from .._forest import DONE
from .candidates import NO_ANSWERS, score_found
from .label_scorers import Head, with_more_cells
from .products import all_scorers, blocks_of_scores
from .search import FoundLabels, Questions, candidates_of, entries_of
from .shortlists import shorten, shortlist_best, shortlisted

_ROWS_AT_ONCE = 1024


class CandidateSearch(NamedTuple):
    """Settings of a search for candidates. Without trees, all labels are scored."""

    trees: Any
    routers: Any
    effort: Any
    n_threads: int = 1


class HeadLesson(NamedTuple):
    """Rows to learn, with their order, labels and shortlists."""

    questions: Questions
    order: np.ndarray  # int64: rows in the order of learning
    labels: np.ndarray  # int64 (rows,): correct label of each row
    shortlists: np.ndarray  # int32 (rows, 1 + others): the correct label of each row, then other candidates
    searching: bool  # whether to search for candidates instead of using the shortlists


def find_shortlists(
    search: CandidateSearch, head: Head, lesson: HeadLesson, rows: np.ndarray, run: Workers
) -> np.ndarray | None:
    """Write the shortlists of rows in several threads; return scores like :func:`shorten`, or None for all labels."""
    if search.trees is None:
        every, order = lesson.questions.rows, rows
        if rows.size == every.n_rows:
            order = np.arange(every.n_rows)
        else:
            every = every.take(rows)
        for first, scores in blocks_of_scores(all_scorers(head), every):
            shortlist_best(scores, order[first : first + scores.shape[0]], lesson.shortlists)
        return None
    scores = np.empty((rows.size, lesson.shortlists.shape[1]), np.float32)

    def find(part: tuple[int, int]) -> None:
        order, scorers, (first, _) = rows[slice(*part)], head.scorers, part
        for found in candidates_of(search.trees, search.routers, scorers, lesson.questions, order, search.effort):
            score_found(scorers, lesson.questions.rows, found, NO_ANSWERS)
            scores[first : first + found.rows.size] = shorten(found, lesson.shortlists)
            first += found.rows.size

    run(find, spans(rows.size, -(-rows.size // search.n_threads)))
    return scores


def learn_in_turn(
    search: CandidateSearch, head: Head, lesson: HeadLesson, learn: Callable[[Head, FoundLabels, np.ndarray], int]
) -> Head:
    """Train a head with ``learn`` on one row after another; return the head, or a larger head if tables were full.

    ``learn`` takes the head, rows with candidates, and a one-element array ``at``. It scores the candidates, increments
    ``at[0]`` after each row, and returns DONE or TABLES_FULL.
    """
    at = np.zeros(1, np.int64)
    while at[0] < lesson.order.size:
        for found in _candidates(search, head, lesson, lesson.order[at[0] :]):
            before = int(at[0])
            status = learn(head, found, at)
            if lesson.searching and search.trees is not None:
                shorten(entries_of(found, 0, int(at[0]) - before), lesson.shortlists)
            if status != DONE:
                head = with_more_cells(head)
                break
    return head


def _candidates(search: CandidateSearch, head: Head, lesson: HeadLesson, order: np.ndarray) -> Iterator[FoundLabels]:
    if lesson.searching and search.trees is not None:
        yield from candidates_of(search.trees, search.routers, head.scorers, lesson.questions, order, search.effort)
        return
    for first, stop in spans(order.size, _ROWS_AT_ONCE):
        block = order[first:stop]
        if lesson.searching:
            find_shortlists(search, head, lesson, block, in_own_thread)
        yield shortlisted(lesson.shortlists, block)
