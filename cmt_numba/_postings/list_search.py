"""Kernels: exact search for the best labels of a row in the inverted index, without trees.

Posting lists are sorted by descending weight. A search first reads the lists that can add most to a score relative to
their length. The unread lists bound the score of labels that have not been found. Once this bound is below the score of
the best label found, no other label can be the best (MaxScore; Turtle and Flood, 1995). Of the labels found, only those
that may still be the best are scored in full.

The lists read last are long, and most of their weights are far below the heaviest weight. Each label therefore has a
tighter bound: the largest ratio, over all long lists, of its weight to the heaviest weight of the list.

The bounds hold only if the index lists all weights.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, kernel, release, zeros
from .._kernels import NONE, Probe, Rows, aim_probe, gathered_dot, longest_row, new_probe, row_of, value_of
from .lists import RUN, Postings, add_to_met, keep_best_labels, meet_list, next_list

_MOST_LISTS = 64  # maximum number of lists read for a row
_SHARE_MET = 0.5  # before reading a list longer than this fraction of the labels found, score the best labels
_ENTRIES_IN_A_LABEL = 24  # break-even point: looking up a label takes about as long as reading this many entries
_ROUNDING = np.float32(1e-5)  # rounding error, relative to the sum of all bounds
_LABELS_IN_A_ROW = 12  # break-even point: one random access takes about as long as reading this many sums in sequence
_BLOCK = 64  # number of labels whose sums are compared together
_LONG_LISTS = 64  # a list is long if it has more than 1/64 of all labels


class Questions(NamedTuple):
    """Rows ``first:stop`` to classify."""

    rows: Rows
    first: int
    stop: int


def all_of(rows: Rows) -> Questions:
    """Return queries for all rows."""
    return Questions(rows, 0, rows.n_rows)


class LabelAnswers(NamedTuple):
    """The best labels of each row."""

    labels: np.ndarray  # int64 (rows, k): best first, padded with NONE
    scores: np.ndarray  # float32 (rows, k): score of each label
    n_scored: np.ndarray  # int64 (rows,): number of labels scored with all of their weights
    n_met: np.ndarray  # int64 (rows,): number of labels found, including common labels


class LabelBounds(NamedTuple):
    """Bounds on the scores of labels."""

    biases: np.ndarray  # float32 (labels,): bias of each label
    highest: np.float32  # the largest bias
    # float32 (labels,): the largest ratio, over all long lists, of the label's weight to the heaviest weight
    shares: np.ndarray
    excluded: np.ndarray  # bool (labels,): whether a search must not find the label; empty if it may find all


def label_bounds(postings: Postings, biases: np.ndarray) -> LabelBounds:
    """Return score bounds for the labels of an index, given their biases. No label is excluded."""
    lengths = np.diff(postings.offsets)
    of_long = np.repeat(lengths * _LONG_LISTS > biases.size, lengths)
    heaviest = np.repeat(postings.weights[postings.offsets[:-1][lengths > 0]], lengths[lengths > 0])[of_long]
    shares = np.zeros(biases.size, np.float32)
    np.maximum.at(shares, postings.labels[of_long], postings.weights[of_long] / heaviest)
    return LabelBounds(biases, biases.max(initial=np.float32(-np.inf)), shares, np.empty(0, np.bool_))


class _Rest(NamedTuple):
    """Bounds on the sums that unread entries can add to a label's score."""

    short: np.float32  # from short lists and from partly read lists
    long: np.float32  # from unread long lists, for a label with the heaviest weight in each


class _IndexRoom(NamedTuple):
    """Buffers for searching one row after another."""

    bounds: np.ndarray  # float32 (longest row,): bound on the score that each feature's list can add
    priorities: np.ndarray  # float32 (longest row,): priority of each feature's list; 0 once read
    # float32 (labels,): partial score of each label; 0 if it has not been found, and minus infinity if it is excluded
    sums: np.ndarray
    labels: np.ndarray  # int64 (labels + RUN,): labels found
    kept: np.ndarray  # int64 (labels + RUN,): found labels that may be among the best
    scores: np.ndarray  # float32 (labels + RUN,): full scores of the first kept labels
    probe: Probe  # probe for the current row
    n_scored: np.ndarray  # int64 (1,): number of labels scored in full for the row


@inner
def _clear_sums(sums, excluded):
    sums[:] = np.float32(0.0)
    for label in range(excluded.size):
        if excluded[label]:
            sums[label] = np.float32(-np.inf)


@inner_allocating
def _new_room(rows, n_labels):
    longest = longest_row(rows, 0, rows.offsets.size - 1)
    return _IndexRoom(
        empty(longest, np.float32),
        empty(longest, np.float32),
        empty(n_labels, np.float32),
        empty(n_labels + RUN, np.int64),
        empty(n_labels + RUN, np.int64),
        empty(n_labels + RUN, np.float32),
        new_probe(rows, 0, rows.offsets.size - 1),
        zeros(1, np.int64),
    )


@inner
def _is_long(length, n_labels):
    return length * _LONG_LISTS > n_labels


@inner
def _set_bounds(postings, room, x):
    """Write each list's bound, which is at least 0, and its priority; return the sums of the bounds."""
    bounds, priorities = room.bounds, room.priorities
    short, long = np.float32(0.0), np.float32(0.0)
    for i in range(x.b - x.a):
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        first = postings.offsets[feature]
        length = postings.offsets[feature + 1] - first
        bounds[i] = max(np.float32(0.0), value * postings.weights[first]) if length > 0 else np.float32(0.0)
        priorities[i] = bounds[i] / np.float32(max(1, length))
        if _is_long(length, room.sums.size):
            long += bounds[i]
        else:
            short += bounds[i]
    return _Rest(short + _ROUNDING * (short + long), long)


@inner
def _without(rest, bound, unread, is_long):
    """Return the bounds after reading a list whose unread entries can add ``unread``."""
    if is_long:
        return _Rest(rest.short + unread, rest.long - bound)
    return _Rest(rest.short + unread - bound, rest.long)


@inner
def _score(digest, biases, room, label):
    probe = room.probe
    room.n_scored[0] += 1
    a, b = digest.offsets[label], digest.offsets[label + 1]
    if probe.features.size == 0:
        return biases[label] + gathered_dot(probe.values, digest.features[a:b], digest.weights[a:b])
    total = biases[label]
    for i in range(a, b):
        total += value_of(probe, np.int64(digest.features[i])) * digest.weights[i]
    return total


@inner
def _score_best(digest, biases, labels, room, n):
    """Move the ``n`` labels with the largest sums to the front and score them; return their number."""
    n_kept = keep_best_labels(labels, room.sums, n)
    for i in range(n_kept):
        room.scores[i] = _score(digest, biases, room, labels[i])
    return n_kept


@inner
def _score_of_rank(scores, n, k):
    """Return the ``k``-th highest of ``n`` scores, or minus infinity if there are fewer."""
    for i in range(n):
        n_above = n_alike = np.int64(0)
        for j in range(n):
            n_above += np.int64(scores[j] > scores[i])
            n_alike += np.int64(scores[j] == scores[i])
        if n_above < k <= n_above + n_alike:
            return scores[i]
    return np.float32(-np.inf)


@inner
def _keep(labels, sums, shares, lowest, rest, kept):
    """Write the labels whose scores may reach ``lowest`` to ``kept``, maybe the same array; return their number."""
    n_kept, least = np.int64(0), lowest - rest.short
    for i in range(labels.size):
        label = labels[i]
        kept[n_kept] = label
        n_kept += np.int64(sums[label] + shares[label] * rest.long >= least)  # branchless
    return n_kept


@inner
def _is_worth_all(room, n):
    """Return whether reading all sums in sequence is faster than reading the sums of ``n`` labels."""
    return n * _LABELS_IN_A_ROW > room.sums.size


@inner
def _any_from(sums, lowest):
    n_from = np.int32(0)
    for i in range(sums.size):
        n_from = np.int32(n_from + np.int32(sums[i] >= lowest))
    return n_from > 0


@inner
def _label_of_largest(sums):
    best, largest = np.int64(0), sums[0]
    for first in range(0, sums.size, _BLOCK):
        some = sums[first : first + _BLOCK]
        if _any_from(some, largest):
            for i in range(some.size):
                if some[i] > largest:
                    best, largest = np.int64(first + i), some[i]
    return best


@inner
def _go_through_lists(postings, digest, of_labels, room, x, k):
    """Read lists until all labels that may be among the ``k`` best are found, and write these labels to ``room.kept``.

    Returns the numbers of labels found and kept, and bounds on the sums that unread entries can add.
    """
    biases, highest, shares = of_labels.biases, of_labels.highest, of_labels.shares
    rest = _set_bounds(postings, room, x)
    cost_of_a_label = digest.features.size // biases.size + _ENTRIES_IN_A_LABEL
    lowest, n_found, meeting = np.float32(-np.inf), np.int64(0), True
    candidates = room.labels[:0]  # at first all labels found, later the kept labels
    for _ in range(_MOST_LISTS):
        i = next_list(room.priorities, x.b - x.a)
        if i == NONE:
            break
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        entry, end = postings.offsets[feature], postings.offsets[feature + 1]
        if candidates.size >= k and end - entry > _SHARE_MET * candidates.size:
            if k == 1 and _is_worth_all(room, candidates.size):
                lowest = max(lowest, _score(digest, biases, room, _label_of_largest(room.sums)))
            else:
                n_scored = _score_best(digest, biases, candidates, room, k)
                lowest = max(lowest, _score_of_rank(room.scores, n_scored, k))
        meeting = meeting and rest.short + rest.long + highest >= lowest
        if not meeting:
            candidates = room.kept[: _keep(candidates, room.sums, shares, lowest - highest, rest, room.kept)]
            if candidates.size * cost_of_a_label <= end - entry:
                break
        is_long, unread = _is_long(end - entry, biases.size), np.float32(0.0)
        room.priorities[i] = 0.0
        if meeting:
            least = lowest - highest - (rest.short + rest.long - room.bounds[i])
            n_found, entry = meet_list(postings, entry, end, value, least, room.sums, room.labels, n_found)
            candidates = room.labels[:n_found]
            if entry < end:
                unread = value * postings.weights[entry]
        else:
            add_to_met(postings, entry, end, value, room.sums)
        rest = _without(rest, room.bounds[i], unread, is_long)
    return n_found, _keep(candidates, room.sums, shares, lowest - highest, rest, room.kept), rest


@inner
def _write_best(room, n, row, answers):
    """Write the labels with the highest of ``n`` scores, best first. Ties go to the lowest label."""
    labels, scores = answers.labels, answers.scores
    for rank in range(min(labels.shape[1], n)):
        best = rank
        for i in range(rank + 1, n):
            alike = room.scores[i] == room.scores[best]
            if room.scores[i] > room.scores[best] or (alike and room.kept[i] < room.kept[best]):
                best = i
        label, score = room.kept[best], room.scores[best]
        room.kept[best], room.scores[best] = room.kept[rank], room.scores[rank]
        room.kept[rank], room.scores[rank] = label, score
        labels[row, rank], scores[row, rank] = label, score


@inner
def _rank_row(postings, digest, of_labels, questions, room, row, answers):
    x, k, biases, shares = row_of(questions.rows, row), answers.labels.shape[1], of_labels.biases, of_labels.shares
    aim_probe(room.probe, x)
    room.n_scored[0] = 0
    n_found, n_kept, rest = _go_through_lists(postings, digest, of_labels, room, x, k)
    n_scored = _score_best(digest, biases, room.kept[:n_kept], room, k)
    lowest = _score_of_rank(room.scores, n_scored, k)
    for i in range(n_scored, n_kept):
        label = room.kept[i]
        if room.sums[label] + biases[label] + rest.short + shares[label] * rest.long >= lowest:
            room.kept[i], room.kept[n_scored] = room.kept[n_scored], label
            room.scores[n_scored] = _score(digest, biases, room, label)
            if k == 1:
                lowest = max(lowest, room.scores[n_scored])
            n_scored += 1
    _write_best(room, n_scored, row, answers)
    if _is_worth_all(room, n_found):
        _clear_sums(room.sums, of_labels.excluded)
    else:
        for i in range(n_found):
            room.sums[room.labels[i]] = 0.0
    answers.n_scored[row] = room.n_scored[0]
    answers.n_met[row] = n_found


@kernel
def rank_listed(postings, digest, of_labels, questions, answers):
    """Write the best labels of rows ``first:stop``, and the numbers of labels scored and found.

    The index must list all weights of ``digest``. ``of_labels`` holds the bounds of its labels. Writes only
    ``answers``. If too few labels are found, the remaining entries do not change.
    """
    postings = by_reference(postings)
    digest = by_reference(digest)
    room = _new_room(questions.rows, of_labels.biases.size)
    _clear_sums(room.sums, of_labels.excluded)
    for row in range(questions.first, questions.stop):
        _rank_row(postings, digest, of_labels, questions, room, row, answers)
    release(room)
