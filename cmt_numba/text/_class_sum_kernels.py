"""Kernels that score classes by the sums of their texts' features, and train corrections that enforce a margin."""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_called, kernel, release, zeros
from .._kernels import lower_bound
from ._hash_kernels import weigh_text
from ._skipgram import add_to_row, dot

N_COMPETITORS = 8  # maximum number of wrong classes that a text holds off
_TINY = np.float32(1e-6)
_NEGLIGIBLE = np.float32(1e-3)  # smaller changes of dual variables are skipped
CONSTANT = np.float32(0.3)  # the square of a constant feature that all texts have, which gives each label a bias
_SLIGHT = np.float32(0.02)  # relative changes of weights that are too small to update sums
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


class _Entries(NamedTuple):
    """Where the lists of a text's features have an entry for a label: its own, then its competitors."""

    places: np.ndarray  # int64 (1 + N_COMPETITORS, room), position of each feature's entry, or -1
    is_known: np.ndarray  # bool (1 + N_COMPETITORS,), whether the positions were written


class VectorSums(NamedTuple):
    """The vectors of the stored texts, their part in the sums and corrections, and the part of the constant feature.

    The constant feature is not in the sums, so labels with many texts get a higher bias only if texts show it.
    """

    of_texts: np.ndarray  # float32 (n_texts, d)
    sums: np.ndarray  # float32 (n_labels, d)
    corrections: np.ndarray  # float32 (n_labels, d)
    biases: np.ndarray  # float32 (n_labels,)


class Sums(NamedTuple):
    """The sums of all labels."""

    postings: FeatureLists
    squares: np.ndarray  # float64 (n_labels,): the squared length of each label's sum
    vectors: VectorSums


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
    share: float  # weight of the vectors of texts next to their features; 0 for no vectors


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
def _score(postings, columns, weights, first, stop, offset, vectors, vector, inverses, scores):
    """Write the score of each label for a text: the cosine with the label's sum, plus the correction.

    The text's features are ``columns[first:stop]``. The weight of ``columns[i]`` is ``weights[i - offset]``. The text
    also has a vector.
    """
    for label in range(scores.size):
        scores[label] = vectors.biases[label]
    for i in range(first, stop):
        weight = weights[i - offset]
        if weight > 0.0:
            begin = postings.starts[columns[i]]
            for j in range(begin, begin + postings.sizes[columns[i]]):
                label = postings.labels[j]
                scores[label] += weight * (inverses[label] * postings.sums[j] + postings.corrections[j])
    for label in range(scores.size if vector.size > 0 else 0):
        scores[label] += inverses[label] * dot(vectors.sums, label, vector) + dot(vectors.corrections, label, vector)


@kernel
def score_labels(postings, squares, vectors, texts, scores):
    """Write the score of each label for each text (float32), whose vectors are ``vectors.of_texts``."""
    inverses = empty(squares.size, np.float32)
    for label in range(squares.size):
        inverses[label] = _inverse(squares[label])
    for text in range(scores.shape[0]):
        first, stop = texts.starts[text], texts.starts[text + 1]
        vector = vectors.of_texts[text]
        _score(postings, texts.columns, texts.weights, first, stop, 0, vectors, vector, inverses, scores[text])
    release(inverses)


@kernel
def measure_violations(sums, hashed, stored, duals, lessons, label, members, violations):
    """Write how far the score of a label (float32) is from the limit of each of the stored texts in the order.

    Below the limit, only texts that hold the label off count, and others get a negative number. Texts of the label get
    -1. ``stored`` are the texts' weights in the sums, and ``members`` are texts of the label (int64), whose features
    count.
    """
    postings, squares, vectors = sums
    inverse, row = _inverse(squares[label]), zeros(postings.starts.size, np.float32)
    for i in range(members.size):
        for at in range(hashed.starts[members[i]], hashed.starts[members[i] + 1]):
            entry = _find(postings, np.int64(hashed.columns[at]), label)
            if entry >= 0:
                row[hashed.columns[at]] = inverse * postings.sums[entry] + postings.corrections[entry]
    for i in range(lessons.order.size):
        text, score = lessons.order[i], np.float32(0.0)
        if lessons.labels[text] == label:
            violations[i] = np.float32(-1.0)
            continue
        for at in range(hashed.starts[text], hashed.starts[text + 1]):
            score += stored[at] * row[hashed.columns[at]]
        score /= max(_TINY, lessons.importance[text])
        vector = vectors.of_texts[text]
        score += inverse * dot(vectors.sums, label, vector) + dot(vectors.corrections, label, vector)
        violations[i] = score + vectors.biases[label] - duals.limits[text]
        for j in range(N_COMPETITORS):
            if duals.weights[text, j] > 0.0 and duals.competitors[text, j] == label:
                violations[i] = np.abs(violations[i])
    release(row)


@inner_allocating
def _new_entries(longest):
    return _Entries(empty((1 + N_COMPETITORS, longest), np.int64), empty(1 + N_COMPETITORS, np.bool_))


@inner
def _find_all(postings, hashed, text, label, entries, row):
    """Write the position of the entry of a label for each feature of a text, or -1, to a row of ``entries``."""
    first = hashed.starts[text]
    if not entries.is_known[row]:
        for i in range(hashed.starts[text + 1] - first):
            entries.places[row, i] = _find(postings, np.int64(hashed.columns[first + i]), label)
        entries.is_known[row] = True


@inner
def _move_vector(vectors, text, label, competitor, change):
    vectors.biases[label] += change * CONSTANT
    vectors.biases[competitor] -= change * CONSTANT
    add_to_row(vectors.corrections, label, vectors.of_texts[text], change)
    add_to_row(vectors.corrections, competitor, vectors.of_texts[text], -change)


@inner_called
def _refresh(postings, squares, vectors, hashed, stored, duals, text, label, importance, weights, entries):
    """Update a text's weights in the sum of its label and in the corrections. Return the text's squared length.

    The weight in the sum is ``importance`` times that in the text. A feature without an entry for the label gets
    weight 0. If all weights have hardly changed, they stay, and ``weights`` becomes what they are in the sum. The
    text's vector is in the sum if and only if one of its weights is. Writes to ``entries`` those of the label.
    """
    first, length, is_same, was_in = hashed.starts[text], np.float32(0.0), True, False
    entries.is_known[:] = False
    _find_all(postings, hashed, text, label, entries, 0)
    found = entries.places[0]
    for i in range(weights.size):
        former = stored[first + i]
        if found[i] < 0:
            weights[i] = np.float32(0.0)
        was_in |= former != 0.0
        is_same &= np.abs(importance * weights[i] - former) <= _SLIGHT * former
        length += weights[i] * weights[i]
    if is_same:
        for i in range(weights.size if importance > 0.0 else 0):
            weights[i] = stored[first + i] / importance
    else:
        _update(postings, squares, hashed, stored, duals, text, label, importance, weights, entries)
    if was_in != (length > 0.0):
        sign, vector = np.float32(-1.0 if was_in else 1.0), vectors.of_texts[text]
        change = sign * importance
        product = np.float64(2.0) * dot(vectors.sums, label, vector) + change * dot(vectors.of_texts, text, vector)
        squares[label] = max(0.0, squares[label] + change * product)
        add_to_row(vectors.sums, label, vector, change)
        for j in range(N_COMPETITORS):
            if duals.weights[text, j] > 0.0:
                _move_vector(vectors, text, label, np.int64(duals.competitors[text, j]), sign * duals.weights[text, j])
    return length + dot(vectors.of_texts, text, vectors.of_texts[text]) if length > 0.0 else length


@inner
def _update(postings, squares, hashed, stored, duals, text, label, importance, weights, entries):
    """Change the weights of a text's features in the sum of its label and in the corrections."""
    first, found, used, square = hashed.starts[text], entries.places[0], np.float32(0.0), squares[label]
    for j in range(N_COMPETITORS):
        if duals.weights[text, j] > 0.0:
            used += duals.weights[text, j]
            _find_all(postings, hashed, text, np.int64(duals.competitors[text, j]), entries, j + 1)
    for i in range(weights.size):
        at, change = found[i], importance * weights[i] - stored[first + i]
        if change == 0.0 or at < 0:  # a forged file may lack the entry
            continue
        square += change * (np.float64(2.0) * postings.sums[at] + change)
        postings.sums[at] += change
        stored[first + i] += change
        if used > 0.0:
            change /= importance
            postings.corrections[at] += used * change
            for j in range(N_COMPETITORS):
                if duals.weights[text, j] > 0.0 and entries.places[j + 1, i] >= 0:
                    postings.corrections[entries.places[j + 1, i]] -= duals.weights[text, j] * change
    squares[label] = max(0.0, square)


@inner_called
def _move(postings, vectors, hashed, duals, text, label, entry, weights, entries, change):
    """Change a text's dual variable and the corrections of its label and of the competitor."""
    competitor = np.int64(duals.competitors[text, entry])
    own, theirs = entries.places[0], entries.places[entry + 1]
    _find_all(postings, hashed, text, competitor, entries, entry + 1)
    duals.weights[text, entry] += change
    for i in range(weights.size):
        if own[i] >= 0:
            postings.corrections[own[i]] += change * weights[i]
        if theirs[i] >= 0:
            postings.corrections[theirs[i]] -= change * weights[i]
    _move_vector(vectors, text, label, competitor, change)


@inner_called
def _hold_off(postings, vectors, hashed, duals, text, label, entry, weights, entries, length, scores, margin, slack):
    """Change a text's dual variable in closed form, so that its label leads a competitor by the margin minus the slack.

    Return the absolute change.
    """
    competitor, used = np.int64(duals.competitors[text, entry]), np.float32(0.0)
    for j in range(N_COMPETITORS):
        used += duals.weights[text, j]
    lack = margin - scores[label] + scores[competitor] - slack * used
    if np.abs(lack) < _NEGLIGIBLE * (length + slack) or (lack < 0.0 and duals.weights[text, entry] == 0.0):
        return np.float32(0.0)
    _find_all(postings, hashed, text, competitor, entries, entry + 1)
    theirs, common = entries.places[entry + 1], dot(vectors.of_texts, text, vectors.of_texts[text])
    for i in range(weights.size):
        if theirs[i] >= 0:
            common += weights[i] * weights[i]
    change = max(lack / (length + common + 2 * CONSTANT + slack), -duals.weights[text, entry])
    if np.abs(change) < _NEGLIGIBLE:
        return np.float32(0.0)
    _move(postings, vectors, hashed, duals, text, label, entry, weights, entries, change)
    scores[label] += change * (length + CONSTANT)
    scores[competitor] -= change * (common + CONSTANT)
    return np.abs(change)


@inner
def _without_itself(postings, squares, vectors, vector, label, weights, found, length, share):
    """Return the change of a text's score if the text were not in the sum of its label."""
    product = dot(vectors.sums, label, vector)
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
def refresh_texts(postings, squares, vectors, hashed, stored, duals, lessons, weighing):
    """Update the weights of texts in the sums and corrections, without learning.

    A text of which all features get weight 0 leaves the sums, and its dual variables become 0.
    """
    longest = _longest_of(hashed, lessons.order)
    weights, entries = empty(longest, np.float32), _new_entries(longest)
    for place in range(lessons.order.size):
        text = lessons.order[place]
        size, importance = hashed.starts[text + 1] - hashed.starts[text], lessons.importance[text]
        weigh_text(hashed, text, weighing, weights)
        label = lessons.labels[text]
        own = weights[:size]
        if _refresh(postings, squares, vectors, hashed, stored, duals, text, label, importance, own, entries) == 0.0:
            duals.weights[text] = np.float32(0.0)
    release((weights, entries))


@kernel
def learn_margins(sums, hashed, stored, duals, lessons, weighing, settings):
    """Learn from stored texts by ascent in the dual of Crammer and Singer (2001), with squared slack.

    Each text is scored without its own contribution to the sum of its class, as if it were new. Then the best wrong
    class and the text's competitors are held off. Corrections only change existing entries, so no list grows.

    Writes ``sums``, ``stored`` (float32, each text's weights in the sums), ``duals``, and ``lessons.moved``.
    """
    postings, squares, vectors = sums
    labels, importance, order, moved = lessons.labels, lessons.importance, lessons.order, lessons.moved
    longest, n_labels = _longest_of(hashed, order), squares.size
    weights, entries = empty(longest, np.float32), _new_entries(longest)
    inverses, scores = empty(n_labels, np.float32), empty(n_labels, np.float32)
    for label in range(n_labels):
        inverses[label] = _inverse(squares[label])
    for place in range(order.size):
        text, moved[place] = order[place], np.float32(0.0)
        label, first, stop = labels[text], hashed.starts[text], hashed.starts[text + 1]
        weigh_text(hashed, text, weighing, weights)
        own, share = weights[: stop - first], importance[text]
        length = _refresh(postings, squares, vectors, hashed, stored, duals, text, label, share, own, entries)
        inverses[label] = _inverse(squares[label])
        if length == 0.0 or share == 0.0 or n_labels < 2:
            continue
        vector = vectors.of_texts[text]
        _score(postings, hashed.columns, weights, first, stop, first, vectors, vector, inverses, scores)
        scores[label] += _without_itself(
            postings, squares, vectors, vector, label, own, entries.places[0], length, share
        )
        best = _NONE
        for other in range(n_labels):
            if other != label and (best < 0 or scores[other] > scores[best]):
                best = other
        margin, slack = np.float32(settings.margin), np.float32(settings.slack) / share
        entry = _entry_for(duals, text, best)
        if duals.weights[text, entry] == 0.0 or duals.competitors[text, entry] != best:
            if duals.weights[text, entry] > 0.0:  # all entries are used
                change = -duals.weights[text, entry]
                _move(postings, vectors, hashed, duals, text, label, entry, own, entries, change)
            duals.competitors[text, entry], entries.is_known[entry + 1] = best, False
        for i in range(N_COMPETITORS):
            j = entry if i == 0 else 0 if i == entry else i  # the best wrong class first
            if j == entry or duals.weights[text, j] > 0.0:
                moved[place] += _hold_off(
                    postings, vectors, hashed, duals, text, label, j, own, entries, length, scores, margin, slack
                )
        duals.limits[text] = scores[label] - margin + slack * duals.weights[text].sum()
    release((weights, entries, inverses, scores))
