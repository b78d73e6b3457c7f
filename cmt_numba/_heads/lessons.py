"""Training of a head on rows with labels, from shortlists of candidates."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .._change import Workers, in_own_thread, spans
from .._kernels import Rows
from .._linear import DONE
from .._postings import Questions
from .candidates import NO_ANSWERS, score_found
from .label_scorers import Head, with_more_cells
from .products import AllScorers, all_scorers, blocks_of_scores
from .search import FoundLabels, SearchEffort, candidates_of, entries_of
from .shortlists import shorten, shortlist_best, shortlist_nearest, shortlisted

_ROWS_AT_ONCE = 1024


class CandidateSearch(NamedTuple):
    """Settings of a search for candidates."""

    effort: SearchEffort | None  # effort in the inverted index, or None to score all labels
    # function that returns the nearest labels of some rows, int64 (rows, k), for very many dense labels
    nearest: Callable[[Rows, int], np.ndarray] | None = None
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
    effort = search.effort
    if effort is None:
        every = lesson.questions.rows
        some = every if rows.size == every.n_rows else every.take(rows)
        order = np.arange(every.n_rows) if rows.size == every.n_rows else rows
        if search.nearest is not None:
            shortlist_nearest(search.nearest(some, lesson.shortlists.shape[1]), order, lesson.shortlists)
        else:
            shortlist_all(all_scorers(head), some, order, lesson.shortlists)
        return None
    scores = np.empty((rows.size, lesson.shortlists.shape[1]), np.float32)

    def find(part: tuple[int, int]) -> None:
        order, scorers, (first, _) = rows[slice(*part)], head.scorers, part
        for found in candidates_of(scorers, lesson.questions, order, effort):
            score_found(scorers, lesson.questions.rows, found, NO_ANSWERS)
            scores[first : first + found.rows.size] = shorten(found, lesson.shortlists)
            first += found.rows.size

    run(find, spans(rows.size, -(-rows.size // search.n_threads)))
    return scores


def shortlist_all(scorers: AllScorers, rows: Rows, at: np.ndarray, shortlists: np.ndarray) -> None:
    """Write the best of all labels for each row to the shortlist number ``at[i]``."""
    for first, scores in blocks_of_scores(scorers, rows):
        shortlist_best(scores, at[first : first + scores.shape[0]], shortlists)


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
            if lesson.searching and search.effort is not None:
                shorten(entries_of(found, 0, int(at[0]) - before), lesson.shortlists)
            if status != DONE:
                head = with_more_cells(head)
                break
    return head


def _candidates(search: CandidateSearch, head: Head, lesson: HeadLesson, order: np.ndarray) -> Iterator[FoundLabels]:
    if lesson.searching and search.effort is not None:
        yield from candidates_of(head.scorers, lesson.questions, order, search.effort)
        return
    for first, stop in spans(order.size, _ROWS_AT_ONCE):
        block = order[first:stop]
        if lesson.searching:
            find_shortlists(search, head, lesson, block, in_own_thread)
        yield shortlisted(lesson.shortlists, block)
