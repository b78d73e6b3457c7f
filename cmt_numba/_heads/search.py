"""Kernels: search for the candidate labels of sparse rows in the head's inverted index.

Candidates depend on the index, but not on the scorers. A single kernel therefore finds the candidates of a batch of
rows, and other kernels score the candidates or learn from them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._jit import by_reference, empty, inner, kernel, release
from .._postings import Questions, keep_best_labels, meet_labels

_FOUND = np.float32(-1e30)  # sum of labels that are already found, so low that posting lists cannot select them again
_LABELS_AT_ONCE = 1 << 15  # labels whose data fit into the second-level cache
_ROWS_AT_ONCE = 1024


class SearchEffort(NamedTuple):
    """Limits of the search for a row's candidates in the index."""

    n_listed: int  # labels from the index to score
    n_met: int  # labels to find in the index, at least n_listed, not all of which are scored
    n_further: int = 0  # entries of the index to read after n_met labels have been found


class FoundLabels(NamedTuple):
    """The distinct candidate labels of some rows, concatenated.

    The labels of entry ``i`` belong to row ``rows[i]`` and end at ``ends[i]``. The first ``n_common`` are common
    labels.
    """

    rows: np.ndarray  # int64 (entries,): row of each entry
    ends: np.ndarray  # int64 (entries,): end of each entry's labels
    n_met: np.ndarray  # int64 (entries,): number of labels found, not all of which are candidates
    labels: np.ndarray  # int64: concatenated labels
    scores: np.ndarray  # float32: buffer for the score of each label
    n_common: int
    max_labels: int  # maximum number of labels of a row


def entries_of(found: FoundLabels, first: int, stop: int) -> FoundLabels:
    """Return a view of entries ``first:stop`` that shares its label and score arrays with ``found``."""
    a, b = (int(found.ends[i - 1]) if i > 0 else 0 for i in (first, stop))
    return found._replace(
        rows=found.rows[first:stop],
        ends=found.ends[first:stop] - a,
        n_met=found.n_met[first:stop],
        labels=found.labels[a:b],
        scores=found.scores[a:b],
    )


@inner
def _find_labels(postings, always, effort, x, priorities, sums, labels):
    """Write a row's candidate labels, those in ``always`` first; return the numbers of candidates and of labels found.

    The other candidates are the best labels in the index.
    """
    n_always = always.size
    for i in range(n_always):
        labels[i] = always[i]
        sums[always[i]] = _FOUND
    n_met = n_always
    if postings.labels.size > 0:
        n_met = meet_labels(postings, priorities, x, sums, labels, n_always, effort.n_further)
    n_found = n_always + keep_best_labels(labels[n_always:n_met], sums, effort.n_listed)
    for i in range(n_met):
        sums[labels[i]] = 0.0
    return n_found, n_met


class _Asked(NamedTuple):
    rows: kernels.Rows
    effort: SearchEffort


@kernel
def find_labels(postings, always, asked, found, sums):
    """Find the candidate labels of one row of ``found`` after another, while there is room.

    ``always`` are candidates of every row. ``sums``, float32 (labels,), is a buffer of zeros. During the search of a
    row it holds the partial scores of the labels found. Afterwards it is reset to 0. Writes only ``ends``, ``n_met``
    and ``labels`` of ``found``. Returns the number of rows done, at least one.
    """
    postings = by_reference(postings)
    asked = by_reference(asked)
    found = by_reference(found)
    priorities = empty(kernels.longest_row(asked.rows, 0, asked.rows.offsets.size - 1), np.float32)
    ends, n_met, labels, end = found.ends, found.n_met, found.labels, 0
    n_done = 0
    for i in range(found.rows.size):
        if labels.size - end < found.max_labels:
            break
        x, places = kernels.row_of(asked.rows, found.rows[i]), labels[end : end + found.max_labels]
        n_found, n_met[i] = _find_labels(postings, always, asked.effort, x, priorities, sums, places)
        end += n_found
        ends[i] = end
        n_done += 1
    release(priorities)
    return n_done


def always_found(head: Any) -> np.ndarray:
    """Return the labels that are candidates of every row: common labels, then those that the index does not list."""
    common, n_labels = head.common.labels, int(head.models.counters[0, linear.MODELS_END])
    unlisted = np.arange(head.postings.n_labels, n_labels)
    return np.concatenate([common, unlisted[~np.isin(unlisted, common)]]) if unlisted.size > 0 else common


def candidates_of(
    head: Any,
    questions: Questions,
    order: np.ndarray,
    effort: SearchEffort,
    *,
    rows_at_once: int = _ROWS_AT_ONCE,
    labels_at_once: int = _LABELS_AT_ONCE,
) -> Iterator[FoundLabels]:
    """Yield the candidate labels of the rows in ``order``, in batches of at most ``labels_at_once`` labels or one row.

    Each step overwrites the arrays of the previous step.
    """
    postings, always, n_all = head.postings, always_found(head), int(head.models.counters[0, linear.MODELS_END])
    max_labels = min(always.size + effort.n_met, n_all)
    n_rows = min(order.size, rows_at_once)
    n_labels = min(n_rows * max_labels, max(max_labels, labels_at_once))
    ends, n_met = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    labels, scores = np.empty(n_labels, np.int64), np.empty(n_labels, np.float32)
    asked, first = _Asked(questions.rows, effort), 0
    sums = np.zeros(n_all, np.float32)
    while first < order.size:
        rows = order[first : first + n_rows]
        found = FoundLabels(rows, ends, n_met, labels, scores, head.common.labels.size, max_labels)
        n = find_labels(postings, always, asked, found, sums)
        yield found._replace(rows=rows[:n], ends=ends[:n], n_met=n_met[:n])
        first += n
