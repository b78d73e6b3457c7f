"""Kernels: search for the candidate labels of rows.

Candidates depend on the trees and the head's index, but not on the scorers. A single kernel therefore finds the
candidates of a batch of rows, and other kernels score the candidates or learn from them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import _forest as forests
from .._jit import by_reference, empty, inner, inner_allocating, kernel, release
from .inverted_index import keep_best_labels, lists_any, meet_labels

_FOUND = np.float32(-1e30)  # sum of labels that are already found, so low that posting lists cannot select them again
_LABELS_AT_ONCE = 1 << 15  # labels whose data fit into the second-level cache
_ROWS_AT_ONCE = 1024


class Questions(NamedTuple):
    """Rows ``first:stop`` to classify, once as routers read them and once as the head reads them."""

    routed: forests.Rows
    rows: forests.Rows
    first: int
    stop: int


def all_of(routed: forests.Rows, rows: forests.Rows) -> Questions:
    """Return queries for all rows."""
    return Questions(routed, rows, 0, rows.n_rows)


class SearchEffort(NamedTuple):
    """Limits of the search for a row's candidates."""

    n_leaves: int  # leaves to reach in all trees together
    n_labels: int  # labels to score, including common labels
    n_listed: int  # labels from the head's index to score
    n_met: int  # labels to find in leaves and index, at least n_labels, not all of which are scored
    n_further: int = 0  # entries of the index to read after n_met labels have been found
    leaves_last: bool = False  # whether to search leaves only for rows without labels in the index


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
    most: int  # maximum number of labels of a row


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


class _CandidateRoom(NamedTuple):
    """Buffers for searching one row after another."""

    frontiers: forests.Frontier  # one frontier
    priorities: np.ndarray  # float32 (longest row,): priority of each feature's list


@inner_allocating
def _new_room(trees, rows):
    longest = forests.longest_row(rows, 0, rows.offsets.size - 1)
    return _CandidateRoom(forests.new_frontiers(trees, 1), empty(longest, np.float32))


@inner
def _reach_labels(trees, routers, room, sums, routed, n_leaves, labels, n_found):
    """Append labels of the leaves that a row reaches, best first, until ``labels`` is full; return their number."""
    frontier = forests.frontier_at(room.frontiers, 0)
    forests.begin_search(frontier)
    patience = min(labels.size, forests.patience_of(trees))
    while n_found < labels.size:
        t, leaf = forests.reach_next(trees, routers, frontier, routed, n_leaves, patience)
        if leaf == forests.NONE:
            break
        for j in range(trees.leaves[t, leaf]["size"]):
            label = np.int64(trees.members[t, leaf, j])
            if n_found < labels.size and sums[label] == 0.0:
                sums[label] = _FOUND
                labels[n_found] = label
                n_found += 1
    return n_found


@inner
def _find_labels(trees, routers, postings, common, asked, row, room, sums, labels):
    """Write a row's candidate labels, common labels first; return the numbers of candidates and of labels found.

    The other candidates come from the leaves that the row reaches, and from the best labels in the index.
    """
    effort = asked.effort
    most = min(labels.size, effort.n_labels)
    n_common = min(common.size, most)
    listed = False
    if routers.sparse:
        listed = postings.labels.size > 0
    for i in range(n_common):
        labels[i] = common[i]
        sums[common[i]] = _FOUND
    n_found = n_met = n_common
    if n_common < most:
        half_way = n_common + (most - n_common + 1) // 2  # leaves and index share the remaining room equally
        reachable, routed = labels[: half_way if listed else most], forests.row_of(asked.routed, row)
        n_leaves = effort.n_leaves
        if routers.sparse and listed and effort.leaves_last and lists_any(postings, forests.row_of(asked.rows, row)):
            n_leaves = 0
        n_found = n_met = _reach_labels(trees, routers, room, sums, routed, n_leaves, reachable, n_common)
        if routers.sparse and listed and n_found < most:
            n_reached, x = n_found, forests.row_of(asked.rows, row)
            n_met = meet_labels(postings, room.priorities, x, sums, labels, n_reached, effort.n_further)
            n_found += keep_best_labels(labels[n_reached:n_met], sums, min(effort.n_listed, most - n_reached))
    for i in range(n_met):
        sums[labels[i]] = 0.0
    return n_found, n_met


class _Asked(NamedTuple):
    routed: forests.Rows
    rows: forests.Rows
    effort: SearchEffort


@kernel
def find_labels(trees, routers, postings, common, asked, found, sums):
    """Find the candidate labels of one row of ``found`` after another, while there is room.

    ``sums``, float32 (labels,), is a buffer of zeros. During the search of a row it holds the partial scores of the
    labels found. Afterwards it is reset to 0. Writes only ``ends``, ``n_met`` and ``labels`` of ``found``. Returns the
    number of rows done, at least one.
    """
    trees = by_reference(trees)
    routers = by_reference(routers)
    postings = by_reference(postings)
    asked = by_reference(asked)
    found = by_reference(found)
    room = _new_room(trees, asked.rows)
    ends, n_met, labels, end = found.ends, found.n_met, found.labels, 0
    n_done = 0
    for i in range(found.rows.size):
        if labels.size - end < found.most:
            break
        places = labels[end : end + found.most]
        n_found, n_met[i] = _find_labels(trees, routers, postings, common, asked, found.rows[i], room, sums, places)
        end += n_found
        ends[i] = end
        n_done += 1
    release(room)
    return n_done


def candidates_of(
    trees: Any,
    routers: Any,
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
    postings, common = head.postings, head.common.labels
    most = min(effort.n_met, int(trees.counters[0, forests.COUNT]))
    n_common = min(common.size, effort.n_labels)
    if postings.labels.size == 0:
        most = min(most, effort.n_leaves * trees.members.shape[2] + common.size)
    n_rows = min(order.size, rows_at_once)
    n_labels = min(n_rows * most, max(most, labels_at_once))
    ends, n_met = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    labels, scores = np.empty(n_labels, np.int64), np.empty(n_labels, np.float32)
    asked, first = _Asked(questions.routed, questions.rows, effort), 0
    sums = np.zeros(int(trees.counters[0, forests.COUNT]), np.float32)
    while first < order.size:
        rows = order[first : first + n_rows]
        found = FoundLabels(rows, ends, n_met, labels, scores, n_common, most)
        n = find_labels(trees, routers, postings, common, asked, found, sums)
        yield found._replace(rows=rows[:n], ends=ends[:n], n_met=n_met[:n])
        first += n
