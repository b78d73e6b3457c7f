"""Kernels that score classes by the sums of their texts' features, and train corrections that enforce a margin."""

from typing import NamedTuple

import numpy as np

from .._forest import lower_bound
from .._jit import empty, inner, inner_called, kernel, release, zeros
from ._hash_kernels import weigh_text

N_COMPETITORS = 8  # maximum number of wrong classes that a text holds off
_TINY = np.float32(1e-6)
_NEGLIGIBLE = np.float32(1e-3)  # smaller changes of dual variables are skipped
_NONE = -1


class FeatureLists(NamedTuple):
    """A list for each feature, with spare capacity: an entry for each label whose texts have it, sorted by label."""

    starts: np.ndarray  # int64 (n_features,), position of each list's first entry
    sizes: np.ndarray  # int32 (n_features,), number of entries in each list
    capacities: np.ndarray  # int32 (n_features,), maximum number of entries in each list
    labels: np.ndarray  # int32, label of each entry
    sums: np.ndarray  # float32, total weight of the feature in the label's texts
    corrections: np.ndarray  # float32, learned change of the feature's weight for the label
    end: np.ndarray  # int64 (1,), start of the unused entries


class DualVariables(NamedTuple):
    """The dual variables of the stored texts.

    The corrections of a class are its texts minus the texts that it competes for, each times its dual variable.
    """

    competitors: np.ndarray  # int32 (n_texts, N_COMPETITORS), wrong labels
    weights: np.ndarray  # float32 (n_texts, N_COMPETITORS), dual variable of each competitor, 0 for none
    limits: np.ndarray  # float32 (n_texts,), when last trained: the score above which a wrong class is to be held off


class Lessons(NamedTuple):
    """Stored texts to learn from."""

    labels: np.ndarray  # int64 (n_texts,)
    importance: np.ndarray  # float32 (n_texts,), sample weight of each text
    order: np.ndarray  # int64, positions of the texts to learn from, in this order
    moved: np.ndarray = np.empty(0, np.float32)  # written: how far the dual variables of each text in the order move


class MarginSettings(NamedTuple):
    """The objective of the corrections."""

    margin: float  # wanted lead of the correct class over all others
    slack: float  # how much a unit of a text's dual variables reduces the margin; a larger value trusts texts less


@inner
def _find(postings, column, label):
    """Return the position of the entry of a feature and a label, or -1 if there is none."""
    first = postings.starts[column]
    stop = first + postings.sizes[column]
    at = lower_bound(postings.labels, first, stop, label)
    return at if at < stop and postings.labels[at] == label else -1


@kernel
def add_postings(postings, columns, label):
    """Add a label to the lists of ``columns`` (int32). Return how many were processed before the arrays were full."""
    labels, sums, corrections = postings.labels, postings.sums, postings.corrections
    for i in range(columns.size):
        column = np.int64(columns[i])
        first, size = postings.starts[column], np.int64(postings.sizes[column])
        at = lower_bound(labels, first, first + size, label)
        if at < first + size and labels[at] == label:
            continue
        if size == postings.capacities[column]:
            capacity, end = max(2, 2 * size), postings.end[0]
            if end + capacity > labels.size:
                return i
            for j in range(size):
                labels[end + j], sums[end + j] = labels[first + j], sums[first + j]
                corrections[end + j] = corrections[first + j]
            at += end - first
            first = end
            postings.starts[column] = first
            postings.capacities[column], postings.end[0] = capacity, end + capacity
        for j in range(first + size, at, -1):
            labels[j], sums[j], corrections[j] = labels[j - 1], sums[j - 1], corrections[j - 1]
        labels[at], sums[at], corrections[at] = label, np.float32(0.0), np.float32(0.0)
        postings.sizes[column] += 1
    return columns.size


@inner
def _inverse(square):
    """Return the inverse length of a label's sum."""
    return np.float32(1.0) / np.sqrt(max(_TINY, np.float32(square)))


@inner
def _score(postings, columns, weights, first, stop, offset, inverses, scores):
    """Write the score of each label for a text: the cosine with the label's sum, plus the correction.

    The text's features are ``columns[first:stop]``. The weight of ``columns[i]`` is ``weights[i - offset]``.
    """
    scores[:] = np.float32(0.0)
    for i in range(first, stop):
        weight = weights[i - offset]
        if weight > 0.0:
            begin = postings.starts[columns[i]]
            for j in range(begin, begin + postings.sizes[columns[i]]):
                label = postings.labels[j]
                scores[label] += weight * (inverses[label] * postings.sums[j] + postings.corrections[j])


@kernel
def score_labels(postings, squares, texts, scores):
    """Write the score of each label for each text (float32)."""
    inverses = empty(squares.size, np.float32)
    for label in range(squares.size):
        inverses[label] = _inverse(squares[label])
    for text in range(scores.shape[0]):
        first, stop = texts.starts[text], texts.starts[text + 1]
        _score(postings, texts.columns, texts.weights, first, stop, 0, inverses, scores[text])
    release(inverses)


@kernel
def score_texts(postings, squares, hashed, stored, lessons, label, members, scores):
    """Write the score of a label (float32) for each of the stored texts in the order, with their weights in the sums.

    ``members`` are texts of the label (int64), whose features count.
    """
    inverse, row = _inverse(squares[label]), zeros(postings.starts.size, np.float32)
    for i in range(members.size):
        for at in range(hashed.starts[members[i]], hashed.starts[members[i] + 1]):
            entry = _find(postings, np.int64(hashed.columns[at]), label)
            if entry >= 0:
                row[hashed.columns[at]] = inverse * postings.sums[entry] + postings.corrections[entry]
    for i in range(lessons.order.size):
        text, score = lessons.order[i], np.float32(0.0)
        for at in range(hashed.starts[text], hashed.starts[text + 1]):
            score += stored[at] * row[hashed.columns[at]]
        scores[i] = score / max(_TINY, lessons.importance[text])
    release(row)


@inner
def _find_all(postings, hashed, text, label, found, offset):
    """Write the position of the entry of a label for each feature of a text, or -1, to ``found[offset:]``."""
    first = hashed.starts[text]
    for i in range(hashed.starts[text + 1] - first):
        found[offset + i] = _find(postings, np.int64(hashed.columns[first + i]), label)


@inner_called
def _refresh(postings, squares, hashed, stored, duals, text, label, importance, weights, found):
    """Update a text's weights in the sum of its label and in the corrections. Return the squared length of ``weights``.

    The weight in the sum is ``importance`` times that in the text. A feature without an entry for the label gets
    weight 0. Writes to ``found`` the positions of the label's entries, then those of each competitor's entries.
    """
    first, size = hashed.starts[text], hashed.starts[text + 1] - hashed.starts[text]
    _find_all(postings, hashed, text, label, found, 0)
    used, length, square = np.float32(0.0), np.float32(0.0), squares[label]
    for j in range(N_COMPETITORS):
        if duals.weights[text, j] > 0.0:
            used += duals.weights[text, j]
            _find_all(postings, hashed, text, np.int64(duals.competitors[text, j]), found, (j + 1) * size)
    for i in range(size):
        at, former = found[i], stored[first + i]
        if at < 0:
            weights[i] = np.float32(0.0)
        change = importance * weights[i] - former
        if change != 0.0:
            square += change * (np.float64(2.0) * postings.sums[at] + change)
            postings.sums[at] += change
            stored[first + i] = former + change
            if used > 0.0:
                change /= importance
                postings.corrections[at] += used * change
                for j in range(N_COMPETITORS):
                    if duals.weights[text, j] > 0.0 and found[(j + 1) * size + i] >= 0:
                        postings.corrections[found[(j + 1) * size + i]] -= duals.weights[text, j] * change
        length += weights[i] * weights[i]
    squares[label] = max(0.0, square)
    return length


@inner_called
def _move(postings, duals, text, entry, weights, found, change):
    """Change a text's dual variable and the corrections of its label and of the competitor."""
    size = weights.size
    duals.weights[text, entry] += change
    for i in range(size):
        if found[i] >= 0:
            postings.corrections[found[i]] += change * weights[i]
        if found[(entry + 1) * size + i] >= 0:
            postings.corrections[found[(entry + 1) * size + i]] -= change * weights[i]


@inner_called
def _hold_off(postings, duals, text, label, entry, weights, found, length, scores, margin, slack):
    """Change a text's dual variable in closed form, so that its label leads a competitor by the margin minus the slack.

    Return the absolute change.
    """
    size, competitor = weights.size, np.int64(duals.competitors[text, entry])
    used, common = np.float32(0.0), np.float32(0.0)
    for j in range(N_COMPETITORS):
        used += duals.weights[text, j]
    lack = margin - scores[label] + scores[competitor] - slack * used
    if np.abs(lack) < _NEGLIGIBLE * slack or (lack < 0.0 and duals.weights[text, entry] == 0.0):
        return np.float32(0.0)
    for i in range(size):
        if found[(entry + 1) * size + i] >= 0:
            common += weights[i] * weights[i]
    change = max(lack / (length + common + slack), -duals.weights[text, entry])
    if np.abs(change) < _NEGLIGIBLE:
        return np.float32(0.0)
    _move(postings, duals, text, entry, weights, found, change)
    scores[label] += change * length
    scores[competitor] -= change * common
    return np.abs(change)


@inner
def _without_itself(postings, squares, label, weights, found, length, share):
    """Return the change of a text's score if the text were not in the sum of its label."""
    product = np.float32(0.0)
    for i in range(weights.size):
        if found[i] >= 0:
            product += weights[i] * postings.sums[found[i]]
    square = np.float32(squares[label])
    others = square + share * (share * length - np.float32(2.0) * product)
    return (product - share * length) * _inverse(others) - product * _inverse(square)


@inner
def _entry_for(duals, text, competitor):
    """Return the entry of a competitor of a text, or else the entry with the smallest dual variable."""
    smallest = 0
    for j in range(N_COMPETITORS):
        if duals.weights[text, j] > 0.0 and duals.competitors[text, j] == competitor:
            return j
        if duals.weights[text, j] < duals.weights[text, smallest]:
            smallest = j
    return smallest


@inner
def _longest_of(hashed, order):
    longest = 0
    for place in range(order.size):
        longest = max(longest, hashed.starts[order[place] + 1] - hashed.starts[order[place]])
    return longest


@kernel
def refresh_texts(postings, squares, hashed, stored, duals, lessons, weighing):
    """Update the weights of texts in the sums and corrections, without learning.

    A text of which all features get weight 0 leaves the sums, and its dual variables become 0.
    """
    longest = _longest_of(hashed, lessons.order)
    weights, found = empty(longest, np.float32), empty((1 + N_COMPETITORS) * longest, np.int64)
    for place in range(lessons.order.size):
        text = lessons.order[place]
        size, importance = hashed.starts[text + 1] - hashed.starts[text], lessons.importance[text]
        weigh_text(hashed, text, weighing, weights)
        label = lessons.labels[text]
        if _refresh(postings, squares, hashed, stored, duals, text, label, importance, weights[:size], found) == 0.0:
            duals.weights[text] = np.float32(0.0)
    release((weights, found))


@kernel
def learn_margins(postings, squares, hashed, stored, duals, lessons, weighing, settings):
    """Learn from stored texts by ascent in the dual of Crammer and Singer (2001), with squared slack.

    Each text is scored without its own contribution to the sum of its class, as if it were new. Then the best wrong
    class and the text's competitors are held off. Corrections only change existing entries, so no list grows.

    Writes ``postings``, ``squares``, ``stored`` (float32, each text's weights in the sums), ``duals``, and
    ``lessons.moved``.
    """
    labels, importance, order, moved = lessons.labels, lessons.importance, lessons.order, lessons.moved
    longest, n_labels = _longest_of(hashed, order), squares.size
    weights, found = empty(longest, np.float32), empty((1 + N_COMPETITORS) * longest, np.int64)
    inverses, scores = empty(n_labels, np.float32), empty(n_labels, np.float32)
    for label in range(n_labels):
        inverses[label] = _inverse(squares[label])
    for place in range(order.size):
        text, moved[place] = order[place], np.float32(0.0)
        label, first, stop = labels[text], hashed.starts[text], hashed.starts[text + 1]
        weigh_text(hashed, text, weighing, weights)
        own, share = weights[: stop - first], importance[text]
        length = _refresh(postings, squares, hashed, stored, duals, text, label, share, own, found)
        inverses[label] = _inverse(squares[label])
        if length == 0.0 or share == 0.0 or n_labels < 2:
            continue
        _score(postings, hashed.columns, weights, first, stop, first, inverses, scores)
        scores[label] += _without_itself(postings, squares, label, own, found, length, share)
        best = _NONE
        for other in range(n_labels):
            if other != label and (best < 0 or scores[other] > scores[best]):
                best = other
        margin, slack = np.float32(settings.margin), np.float32(settings.slack) / share
        entry = _entry_for(duals, text, best)
        if duals.weights[text, entry] == 0.0 or duals.competitors[text, entry] != best:
            if duals.weights[text, entry] > 0.0:  # all entries are used
                _move(postings, duals, text, entry, own, found, -duals.weights[text, entry])
            duals.competitors[text, entry] = best
            _find_all(postings, hashed, text, best, found, (entry + 1) * own.size)
        moved[place] += _hold_off(postings, duals, text, label, entry, own, found, length, scores, margin, slack)
        for j in range(N_COMPETITORS):
            if j != entry and duals.weights[text, j] > 0.0:
                moved[place] += _hold_off(postings, duals, text, label, j, own, found, length, scores, margin, slack)
        duals.limits[text] = scores[label] - margin + slack * duals.weights[text].sum()
    release((weights, found, inverses, scores))
