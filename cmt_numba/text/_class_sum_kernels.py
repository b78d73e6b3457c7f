"""Kernels that score classes by the sums of their texts' features, with corrections that enforce a margin."""

from typing import NamedTuple

import numpy as np

from .._forest import lower_bound
from .._jit import empty, inner, inner_called, kernel, release
from ._hash_kernels import weigh_text

_N_CORRECTED = 3  # maximum number of wrong classes that are corrected for a text
_SLACK = np.float32(1.0)  # a larger value reduces corrections
_HEAD_START = np.float32(0.04)  # added to the scores of new classes when old texts are learned again
_TINY = np.float32(1e-6)
_DONE = np.float32(-1e30)  # score of a class that is already corrected


class FeatureLists(NamedTuple):
    """A list for each feature, with spare capacity: an entry for each label whose texts have it, sorted by label."""

    starts: np.ndarray  # int64 (n_features,), position of each list's first entry
    sizes: np.ndarray  # int32 (n_features,), number of entries in each list
    capacities: np.ndarray  # int32 (n_features,), maximum number of entries in each list
    labels: np.ndarray  # int32, label of each entry
    sums: np.ndarray  # float32, total weight of the feature in the label's texts
    corrections: np.ndarray  # float32, learned change of the feature's weight for the label
    end: np.ndarray  # int64 (1,), start of the unused entries


class LabelTotals(NamedTuple):
    """Totals over the texts of each label."""

    squares: np.ndarray  # float64 (n_labels,), squared length of the label's sum
    counts: np.ndarray  # int64 (n_labels,), number of texts


class Lessons(NamedTuple):
    """Stored texts to learn from."""

    labels: np.ndarray  # int64 (n_texts,)
    importance: np.ndarray  # float32 (n_texts,), sample weight of each text
    order: np.ndarray  # int64, positions of the texts to learn from, in this order
    n_old_texts: int  # texts before this position were learned when all texts were last learned
    n_old_labels: int  # labels from here on are new since then


class MarginSettings(NamedTuple):
    """Margin between the correct class and all others, and step sizes."""

    margin: float
    rate: float  # step size of the first text, relative to a full correction
    fall: float  # decrease of the step size with each text


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
def _add_up(postings, columns, weights, first, stop, offset, sums, corrections):
    """Compute the inner products of a text with the sum and with the corrections of each label.

    The text's features are ``columns[first:stop]``. The weight of ``columns[i]`` is ``weights[i - offset]``.
    """
    sums[:] = np.float32(0.0)
    corrections[:] = np.float32(0.0)
    for i in range(first, stop):
        weight = weights[i - offset]
        if weight > 0.0:
            begin = postings.starts[columns[i]]
            for j in range(begin, begin + postings.sizes[columns[i]]):
                label = postings.labels[j]
                sums[label] += weight * postings.sums[j]
                corrections[label] += weight * postings.corrections[j]


@kernel
def score_labels(postings, totals, texts, scores):
    """Write the score of each label for each text (float32): the cosine with the label's sum, plus the correction."""
    sums = empty(scores.shape[1], np.float32)
    for text in range(scores.shape[0]):
        row = scores[text]
        _add_up(postings, texts.columns, texts.weights, texts.starts[text], texts.starts[text + 1], 0, sums, row)
        for label in range(sums.size):
            if sums[label] != 0.0:
                row[label] += sums[label] / np.sqrt(max(_TINY, np.float32(totals.squares[label])))
    release(sums)


@inner_called
def _refresh(postings, totals, hashed, stored, text, label, weights, importance):
    """Update a text's weights in the sum of its label, and return the squared length of ``weights``.

    The weight in the sum is ``importance`` times that in the text, or 0 for a feature without an entry for the label.
    """
    square, length, first = totals.squares[label], np.float32(0.0), hashed.starts[text]
    for i in range(first, hashed.starts[text + 1]):
        weight, former = importance * weights[i - first], stored[i]
        if weight != former:
            at = _find(postings, np.int64(hashed.columns[i]), label)
            if at < 0:
                weights[i - first] = np.float32(0.0)
            else:
                change = weight - former
                square += change * (np.float64(2.0) * postings.sums[at] + change)
                postings.sums[at] += change
                stored[i] = weight
        length += weights[i - first] * weights[i - first]
    totals.squares[label] = max(0.0, square)
    return length


@inner
def _find_all(postings, hashed, text, label, weights, found):
    """Find the entry of a label for each weighted feature of a text. Write its position, or -1 if there is none."""
    first = hashed.starts[text]
    for i in range(hashed.starts[text + 1] - first):
        found[i] = -1
        if weights[i] > 0.0:
            found[i] = _find(postings, np.int64(hashed.columns[first + i]), label)


@inner_called
def _correct(postings, hashed, text, label, weights, share, length, scores, settings, own, wrong):
    """Increase the margin of a text's label over the best wrong labels by changing their corrections.

    ``own`` and ``wrong`` are scratch space for positions (int64, at least the number of features).
    """
    size = hashed.starts[text + 1] - hashed.starts[text]
    for turn in range(_N_CORRECTED):
        best = -1
        for other in range(scores.size):
            if other != label and (best < 0 or scores[other] > scores[best]):
                best = other
        if best < 0 or scores[best] == _DONE:
            return
        lack = np.float32(settings.margin) - scores[label] + scores[best]
        if lack <= 0.0:
            return
        if turn == 0:
            _find_all(postings, hashed, text, label, weights, own)
        _find_all(postings, hashed, text, best, weights, wrong)
        common = np.float32(0.0)
        for i in range(size):
            if wrong[i] >= 0:
                common += weights[i] * weights[i]
        step = share * lack / (length + common + _SLACK)
        for i in range(size):
            if own[i] >= 0:
                postings.corrections[own[i]] += step * weights[i]
            if wrong[i] >= 0:
                postings.corrections[wrong[i]] -= step * weights[i]
        scores[label] += step * length
        scores[best] = _DONE


@kernel
def raise_corrections(postings, columns, changes, label):
    """Add ``changes`` (float32) to the corrections of a label for ``columns`` (int32) that list the label."""
    for i in range(columns.size):
        at = _find(postings, np.int64(columns[i]), label)
        if at >= 0:
            postings.corrections[at] += changes[i]


@kernel
def learn_margins(postings, totals, hashed, stored, lessons, weighing, settings):
    """Learn from stored texts.

    For each text, update its weights in the sums. Then score the text without its own contribution to the sum of its
    class, as if it were new, and correct the classes unless the correct class leads by the margin. Corrections only
    change existing entries, so no list grows. An old text leads by corrections that were learned from the text itself,
    so it would let new classes come close to texts like it. Hence it must lead new classes by more than the margin.

    Writes ``postings``, ``totals`` and ``stored`` (float32, each text's weights in the sums).
    """
    labels, importance, order = lessons.labels, lessons.importance, lessons.order
    longest = 0
    for place in range(order.size):
        longest = max(longest, hashed.starts[order[place] + 1] - hashed.starts[order[place]])
    weights, n_labels = empty(longest, np.float32), totals.counts.size
    sums, scores = empty(n_labels, np.float32), empty(n_labels, np.float32)
    own, wrong = empty(longest, np.int64), empty(longest, np.int64)
    for place in range(order.size):
        text = order[place]
        label, first, stop = labels[text], hashed.starts[text], hashed.starts[text + 1]
        weigh_text(hashed, text, weighing, weights)
        length = _refresh(postings, totals, hashed, stored, text, label, weights, importance[text])
        if totals.counts[label] < 2 or length == 0.0:
            continue
        _add_up(postings, hashed.columns, weights, first, stop, first, sums, scores)
        for other in range(n_labels):
            product, square = sums[other], np.float32(totals.squares[other])
            if other == label:
                square += importance[text] * (importance[text] * length - np.float32(2.0) * product)
                product -= importance[text] * length
            scores[other] += product / np.sqrt(max(_TINY, square))
        if text < lessons.n_old_texts:
            for other in range(lessons.n_old_labels, n_labels):
                scores[other] += _HEAD_START
        share = min(np.float32(1.0), importance[text] * np.float32(settings.rate - settings.fall * place))
        _correct(postings, hashed, text, label, weights, share, length, scores, settings, own, wrong)
    release((weights, sums, scores, own, wrong))
