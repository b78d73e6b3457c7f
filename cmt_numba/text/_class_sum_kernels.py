"""Kernels: scores of classes by the sums of the features of their texts, with corrections that enforce a margin."""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_called, kernel, release
from ._hash_kernels import weigh_text

_N_CORRECTED = 3  # wrong classes corrected for each text
_SLACK = np.float32(1.0)  # the larger, the smaller the corrections
_TINY = np.float32(1e-6)
_DONE = np.float32(-1e30)


class FeatureLists(NamedTuple):
    """For each feature a list of the labels whose texts have it, ascending, with spare capacity."""

    starts: np.ndarray  # int64 (n_features,), where each list begins
    sizes: np.ndarray  # int32 (n_features,)
    capacities: np.ndarray  # int32 (n_features,)
    labels: np.ndarray  # int32
    sums: np.ndarray  # float32, of the weights of the feature in the texts of the label
    corrections: np.ndarray  # float32
    end: np.ndarray  # int64 (1,), of the part of the arrays that is in use


class LabelTotals(NamedTuple):
    """The texts of each label."""

    squares: np.ndarray  # float64 (n_labels,), squared lengths of the sums
    counts: np.ndarray  # int64 (n_labels,), texts


class MarginSettings(NamedTuple):
    """The margin between the right class and others, and the size of steps."""

    margin: float
    rate: float  # share of a whole step of the first text
    fall: float  # decrease of the rate from one text to the next


@inner
def _lower_bound(labels, first, stop, label):
    """Return the first position whose label is not below ``label``."""
    while first < stop:
        middle = (first + stop) >> 1
        if labels[middle] < label:
            first = middle + 1
        else:
            stop = middle
    return first


@inner
def _find(postings, column, label):
    """Return the position of a label in the list of a feature, or -1."""
    first = postings.starts[column]
    stop = first + postings.sizes[column]
    at = _lower_bound(postings.labels, first, stop, label)
    return at if at < stop and postings.labels[at] == label else np.int64(-1)


@kernel
def add_postings(postings, columns, label):
    """Add a label to the lists of features; return how many features are done before the arrays are full.

    Lists that contain the label stay as they are. Reads ``columns`` (int32) and writes ``postings``.
    """
    labels, sums, corrections = postings.labels, postings.sums, postings.corrections
    for i in range(columns.size):
        column = np.int64(columns[i])
        first, size = postings.starts[column], np.int64(postings.sizes[column])
        at = _lower_bound(labels, first, first + size, label)
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
    """Write the products of a text with the sums and the corrections of each label.

    The weight of the feature at ``i`` is at ``i - offset``.
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
    """Write the score of each label for each text: the cosine with its sum, plus the correction.

    Reads ``postings``, ``totals`` and ``texts``. Writes ``scores`` (float32, a row for each text).
    """
    sums = empty(scores.shape[1], np.float32)
    for text in range(scores.shape[0]):
        row = scores[text]
        _add_up(postings, texts.columns, texts.weights, texts.starts[text], texts.starts[text + 1], 0, sums, row)
        for label in range(sums.size):
            if sums[label] != 0.0:
                row[label] += sums[label] / np.sqrt(max(_TINY, np.float32(totals.squares[label])))
    release(sums)


@inner_called
def _refresh(postings, totals, hashed, stored, text, label, weights):
    """Replace the weights of a text in the sums of its label by new ones; return their squared length.

    New weights of features that are not listed become 0.
    """
    square, length, first = totals.squares[label], np.float32(0.0), hashed.starts[text]
    for i in range(first, hashed.starts[text + 1]):
        weight, former = weights[i - first], stored[i]
        if weight != former:
            at = _find(postings, np.int64(hashed.columns[i]), label)
            if at < 0:
                weight = weights[i - first] = np.float32(0.0)
            else:
                change = weight - former
                square += change * (np.float64(2.0) * postings.sums[at] + change)
                postings.sums[at] += change
                stored[i] = weight
        length += weight * weight
    totals.squares[label] = max(0.0, square)
    return length


@inner
def _find_all(postings, hashed, text, label, weights, found):
    """Write the position of a label in the list of each feature of a text, or -1; skip features without a weight."""
    first = hashed.starts[text]
    for i in range(hashed.starts[text + 1] - first):
        found[i] = -1
        if weights[i] > 0.0:
            found[i] = _find(postings, np.int64(hashed.columns[first + i]), label)


@inner_called
def _correct(postings, hashed, text, label, weights, share, length, scores, settings, own, wrong):
    """Move the corrections of a text's label and of the best others so that the margin between them grows."""
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
def learn_margins(postings, totals, hashed, stored, labels, weighing, order, settings):
    """Learn from stored texts in this order.

    The weights of each text are computed anew. Its class is then corrected until it has a margin over the others,
    without the text itself in the sum of its class: its score would say little about new texts. Features that a wrong
    class does not have are left out, so no list grows.

    Reads ``hashed``, ``labels``, ``weighing``, ``order`` (int64) and ``settings``. Writes
    ``postings``, ``totals`` and ``stored`` (float32, the weights that are in the sums).
    """
    longest = np.int64(0)
    for place in range(order.size):
        longest = max(longest, hashed.starts[order[place] + 1] - hashed.starts[order[place]])
    weights, n_labels = empty(longest, np.float32), totals.counts.size
    sums, scores = empty(n_labels, np.float32), empty(n_labels, np.float32)
    own, wrong = empty(longest, np.int64), empty(longest, np.int64)
    for place in range(order.size):
        text = order[place]
        label, first, stop = labels[text], hashed.starts[text], hashed.starts[text + 1]
        weigh_text(hashed, text, weighing, weights)
        length = _refresh(postings, totals, hashed, stored, text, label, weights)
        if totals.counts[label] < 2 or length == 0.0:
            continue
        _add_up(postings, hashed.columns, weights, first, stop, first, sums, scores)
        for other in range(n_labels):
            product, square = sums[other], np.float32(totals.squares[other])
            if other == label:
                square += length - np.float32(2.0) * product
                product -= length
            scores[other] += product / np.sqrt(max(_TINY, square))
        share = np.float32(settings.rate - settings.fall * place)
        _correct(postings, hashed, text, label, weights, share, length, scores, settings, own, wrong)
    release((weights, sums, scores, own, wrong))
