"""Kernels: the best labels of a row out of the inverted index alone, without a search of trees.

Lists are gone through one after the other, those that can add most for their length first, and within a list the
heaviest weights come first. What the rest can add to any label bounds what labels can score that were not met. As soon
as that is less than the score of the best label met, no further label need be met (MaxScore; Turtle and Flood, 1995).
Of the labels met only those are scored in full that may still be the best. In the lists that are left then, which are
long, most labels stand far below the heaviest: texts of many words, for instance, weigh each of them less. How heavy a
label's weights are at most, as shares of the heaviest of their lists, bounds what these can add to it.

The bounds hold where the index lists all weights.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, Probe, aim_probe, gathered_dot, longest_row, new_probe, row_of, value_of
from .._jit import by_reference, empty, inner, inner_allocating, inner_merged, kernel, release, zeros
from .inverted_index import Postings, add_to_met, keep_best_labels, next_list

_MOST_LISTS = 64  # that a row goes through
_RUN = 128  # entries of a list after which it is decided whether to go on
_SHARE_MET = 0.5  # a list that is longer than this share of the labels met is worth a look at the best of them
_ENTRIES_IN_A_LABEL = 24  # of lists are read in the time that it takes to find a label's weights
_ROUNDING = np.float32(1e-5)  # of the sum of all bounds
_LABELS_IN_A_ROW = 12  # are looked at in the time that it takes to look at one of a list
_BLOCK = 64  # labels whose sums are compared together
_LONG_LISTS = 64  # times the length of a long list are more than all labels


class LabelBounds(NamedTuple):
    """What bounds the scores of labels beside the index."""

    biases: np.ndarray  # float32 (labels,)
    highest: np.float32  # of the biases
    # float32 (labels,): the largest share that a label's weight in a long list is of the heaviest weight there
    shares: np.ndarray


def label_bounds(postings: Postings, biases: np.ndarray) -> LabelBounds:
    """Return the bounds of labels that an index lists, with these biases."""
    lengths = np.diff(postings.offsets)
    of_long = np.repeat(lengths * _LONG_LISTS > biases.size, lengths)
    heaviest = np.repeat(postings.weights[postings.offsets[:-1][lengths > 0]], lengths[lengths > 0])[of_long]
    shares = np.zeros(biases.size, np.float32)
    np.maximum.at(shares, postings.labels[of_long], postings.weights[of_long] / heaviest)
    return LabelBounds(biases, biases.max(initial=np.float32(-np.inf)), shares)


class _Rest(NamedTuple):
    """What lists can add at most to a label's score that have not been gone through, or not to their ends."""

    short: np.float32  # the short lists, and the ends of all
    long: np.float32  # the others, to a label that is the heaviest in each of them


class _IndexRoom(NamedTuple):
    """Room for the search of one row after the other."""

    bounds: np.ndarray  # float32 (longest row,): what the list of each of the row's features can add at most
    priorities: np.ndarray  # float32 (longest row,): of those lists; 0 once they have been gone through
    sums: np.ndarray  # float32 (labels,): what the index says of each label met; 0 for others
    labels: np.ndarray  # int64 (labels + _RUN,): those met
    kept: np.ndarray  # int64 (labels + _RUN,): of those met, the ones that may be among the best
    scores: np.ndarray  # float32 (labels + _RUN,): of those kept that are scored in full, which come first
    probe: Probe  # aimed at the row
    n_scored: np.ndarray  # int64 (1,): how often a label has been scored for the row


@inner_allocating
def _new_room(rows, n_labels):
    longest = longest_row(rows, 0, rows.offsets.size - 1)
    return _IndexRoom(
        empty(longest, np.float32),
        empty(longest, np.float32),
        zeros(n_labels, np.float32),
        empty(n_labels + _RUN, np.int64),
        empty(n_labels + _RUN, np.int64),
        empty(n_labels + _RUN, np.float32),
        new_probe(rows, 0, rows.offsets.size - 1),
        zeros(1, np.int64),
    )


@inner
def _is_long(length, n_labels):
    return length * _LONG_LISTS > n_labels


@inner_merged
def _set_bounds(postings, room, x):
    """Write what each list can add at most, 0 for those that cannot add anything, and return what all can."""
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
    """Return what is left once a list has been gone through, but for ``unread``, which its end can add."""
    if is_long:
        return _Rest(rest.short + unread, rest.long - bound)
    return _Rest(rest.short + unread - bound, rest.long)


@inner
def _meet(postings, entry, end, value, least, room, n_found):
    """Add a list's entries to the sums of their labels as long as they add more than ``least``.

    Returns how many labels have been met, and the entry that it got to.
    """
    sums, labels = room.sums, room.labels
    while entry < end and n_found < labels.size and value * postings.weights[entry] > least:
        run_end = min(end, entry + min(_RUN, labels.size - n_found))
        for i in range(entry, run_end):
            label = np.int64(postings.labels[i])
            total = sums[label]
            labels[n_found] = label
            n_found += np.int64(total == 0.0)
            sums[label] = total + value * postings.weights[i]
        entry = run_end
    return n_found, entry


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
    """Put those ``n`` of some labels first that have the greatest sums, and score them; return how many they are."""
    n_kept = keep_best_labels(labels, room.sums, n)
    for i in range(n_kept):
        room.scores[i] = _score(digest, biases, room, labels[i])
    return n_kept


@inner
def _score_of_rank(scores, n, k):
    """Return the ``k``-th highest of ``n`` scores, minus infinity if they are fewer."""
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
    """Write the labels that may reach a score to ``kept``, which may be the same array; return their number."""
    n_kept, least = np.int64(0), lowest - rest.short
    for i in range(labels.size):
        label = labels[i]
        kept[n_kept] = label
        n_kept += np.int64(sums[label] + shares[label] * rest.long >= least)  # no branch: it would be mispredicted
    return n_kept


@inner
def _is_worth_all(room, n):
    """Return whether going through all sums, one behind the other, is faster than through those of ``n`` labels."""
    return n * _LABELS_IN_A_ROW > room.sums.size


@inner
def _any_from(sums, lowest):
    n_from = np.int32(0)
    for i in range(sums.size):
        n_from = np.int32(n_from + np.int32(sums[i] >= lowest))
    return n_from > 0


@inner
def _label_of_largest(sums):
    """Return the label of the largest of all sums, which is above 0."""
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
    """Meet all labels that may be among the ``k`` best, and keep those that still may be.

    Returns how many have been met, how many are kept, and what the lists can add at most to their sums.
    """
    biases, highest, shares = of_labels.biases, of_labels.highest, of_labels.shares
    rest = _set_bounds(postings, room, x)
    cost_of_a_label = digest.features.size // biases.size + _ENTRIES_IN_A_LABEL
    lowest, n_found, meeting = np.float32(-np.inf), np.int64(0), True
    candidates = room.labels[:0]  # those met as long as labels are met, then those kept
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
            n_found, entry = _meet(postings, entry, end, value, least, room, n_found)
            candidates = room.labels[:n_found]
            if entry < end:
                unread = value * postings.weights[entry]
        else:
            add_to_met(postings, entry, end, value, room.sums)
        rest = _without(rest, room.bounds[i], unread, is_long)
    return n_found, _keep(candidates, room.sums, shares, lowest - highest, rest, room.kept), rest


@inner
def _write_best(room, n, row, answers):
    """Write the labels of the highest of ``n`` scores, the best first; of labels of one score the first comes first."""
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
        room.sums[:] = 0.0
    else:
        for i in range(n_found):
            room.sums[room.labels[i]] = 0.0
    answers.n_scored[row] = room.n_scored[0]
    answers.n_met[row] = n_found


@kernel
def rank_listed(postings, digest, of_labels, questions, answers):
    """Write the best labels that the index lists for the rows ``first .. stop``, how many were scored and how many met.

    ``digest`` and ``of_labels``, the bounds of labels, are of the scorers all of whose weights the index lists.

    Writes ``answers`` and nothing else; where fewer labels were met than are wanted, the rest is left as it is.
    """
    postings = by_reference(postings)
    digest = by_reference(digest)
    room = _new_room(questions.rows, of_labels.biases.size)
    for row in range(questions.first, questions.stop):
        _rank_row(postings, digest, of_labels, questions, room, row, answers)
    release(room)
