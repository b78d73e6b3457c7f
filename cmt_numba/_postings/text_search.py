"""Kernels: BM25 scores of texts in an inverted index, and scores of several parts."""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, kernel, release
from .._kernels import NONE, keep_best, lower_bound, sort_best_first

_MOST_ID = np.int64(2**62)  # above all ids
_ROUNDING = 1.0 + 1e-5
_SHARE = 2  # bounds are compared before posting lists longer than this fraction of the texts found so far
RUN = 256  # number of entries whose gains are computed together
_ENTRIES_IN_A_LOOKUP = 24  # break-even point: a word is looked up in a text in the time of reading this many entries


class WordPostings(NamedTuple):
    """An inverted index of the texts in the first slots: word ``i`` has the entries ``starts[i]:starts[i + 1]``."""

    words: np.ndarray  # int32, ascending
    starts: np.ndarray  # int64
    slots: np.ndarray  # int32, ascending for each word
    counts: np.ndarray  # float32
    lengths: np.ndarray  # float32: the length of each entry's text
    most: np.ndarray  # float32: the largest count of each word
    least: np.ndarray  # float32: the smallest length of a text with each word
    removed: np.ndarray  # int64: the slots of texts that were removed later


class TextRoom(NamedTuple):
    """Buffers for a search. To clear them for each search would take as long as the search."""

    # float32 (texts in the index,): partial scores, 0 between searches; minus infinity for texts not to be found
    sums: np.ndarray
    found: np.ndarray  # int32 (texts in the index + 1,): slots
    gains: np.ndarray  # float32 (RUN,)


class WeighedWords(NamedTuple):
    """The words of a query, those with the highest weights first."""

    words: np.ndarray  # int32
    weights: np.ndarray  # float32
    saturation: np.ndarray  # float32 (2,): a count ``c`` in a text of length ``l`` counts ``c / (c + s[0] + s[1] * l)``


@inner
def _place_of(words, first, stop, word):
    place = lower_bound(words, first, stop, word)
    return place if place < stop and words[place] == word else NONE


@inner
def _gain(query, i, count, length):
    return query.weights[i] * count / (count + query.saturation[0] + query.saturation[1] * length)


@inner
def _set_bounds(postings, query, places, bounds, unread):
    """Find the words of a query, bound what those from each one on can add to a score, and count their entries."""
    total, n_unread = np.float64(0.0), np.int64(0)
    for i in range(query.words.size - 1, -1, -1):
        places[i] = _place_of(postings.words, np.int64(0), np.int64(postings.words.size), query.words[i])
        if places[i] >= 0:
            total += np.float64(_gain(query, i, postings.most[places[i]], postings.least[places[i]]))
            n_unread += postings.starts[places[i] + 1] - postings.starts[places[i]]
        bounds[i], unread[i] = total * _ROUNDING, n_unread


@inner
def _add_word(stored, slot, query, i, score):
    """Return a score plus that of a word of a query in a text."""
    cell = _place_of(stored.features, stored.offsets[slot], stored.offsets[slot + 1], query.words[i])
    if cell >= 0:
        score += _gain(query, i, stored.values[cell], stored.sizes[slot])
    return score


@inner
def _add_words(stored, slot, query, first, score):
    """Return a score plus those of the words of a query from ``first`` on in a text."""
    for i in range(first, query.words.size):
        score = _add_word(stored, slot, query, i, score)
    return score


@inner
def _may_return(stored, allowed, slot):
    return allowed[slot] if allowed.size > 0 else stored.ids[slot] != NONE


@inner
def _exclude(sums, allowed, removed, value):
    """Set the sums of texts that must not be found."""
    for slot in range(sums.size if allowed.size > 0 else 0):
        if not allowed[slot]:
            sums[slot] = value
    for i in range(removed.size):
        sums[removed[i]] = value


@inner
def _read_list(postings, first, stop, query, i, room, n_found, is_complete):
    """Add a word of a query to the sums of its texts. Return the number of texts found, unless no more are wanted.

    The gains of a run of entries are computed together, by vector instructions.
    """
    sums, found = room.sums, room.found
    for start in range(first, stop, RUN):
        end = min(start + RUN, stop)
        slots, counts, lengths = postings.slots[start:end], postings.counts[start:end], postings.lengths[start:end]
        gains = room.gains[: slots.size]
        for j in range(gains.size):
            gains[j] = _gain(query, i, counts[j], lengths[j])
        if is_complete:
            for j in range(gains.size):
                sums[slots[j]] += gains[j] if sums[slots[j]] > np.float32(0.0) else np.float32(0.0)
        else:
            for j in range(gains.size):
                slot = slots[j]
                found[n_found] = slot
                n_found += np.int64(sums[slot] == np.float32(0.0))
                sums[slot] += gains[j]
    return n_found


@inner
def _finish(scores, ids):
    sort_best_first(scores, ids)
    for j in range(ids.size):
        if ids[j] == _MOST_ID:
            ids[j] = NONE


@kernel
def score_texts(stored, query, slots, scores):
    """Write the scores of texts by slot. The slot -1, of an id without a text, scores 0."""
    stored, query = by_reference(stored), by_reference(query)
    for i in range(slots.size):
        slot = slots[i]
        scores[i] = np.float64(_add_words(stored, slot, query, np.int64(0), np.float32(0.0))) if slot >= 0 else 0.0


@kernel
def search_texts(stored, n_stored, postings, query, allowed, room, ids, scores):
    """Write the ids and scores of the best texts that share a word with a query.

    Those of the ``n_stored`` texts that are not in the inverted index are compared. ``allowed`` is a mask of slots, or
    empty. Posting lists that cannot bring a text among the best are not read if it is faster to look up their
    words in the texts found so far that may still be among the best (Turtle and Flood, 1995).
    """
    stored, postings = by_reference(stored), by_reference(postings)
    query, room = by_reference(query), by_reference(room)
    sums, found = room.sums, room.found
    _exclude(sums, allowed, postings.removed, np.float32(-np.inf))
    n_found, n_words, i = np.int64(0), query.words.size, np.int64(0)
    places, bounds, unread = empty(n_words, np.int64), empty(n_words, np.float64), empty(n_words, np.int64)
    _set_bounds(postings, query, places, bounds, unread)
    scores[:], ids[:] = -np.inf, _MOST_ID
    bar, is_complete = -np.inf, False
    while i < n_words:
        place = places[i]
        first = postings.starts[place] if place >= 0 else np.int64(0)
        stop = postings.starts[place + 1] if place >= 0 else np.int64(0)
        if n_found >= scores.size and _SHARE * (stop - first) > n_found + _ENTRIES_IN_A_LOOKUP * ids.size:
            scores[:], ids[:] = -np.inf, _MOST_ID
            for j in range(n_found):
                keep_best(scores, ids, np.float64(sums[found[j]]), np.int64(found[j]))
            bar, j = np.inf, 0  # the final scores of the best texts so far bound those of the results
            while j < ids.size and bar > bounds[i]:
                bar = min(bar, np.float64(_add_words(stored, ids[j], query, i, sums[ids[j]])))
                j += 1
            if bar > bounds[i]:  # no other texts can be among the best
                is_complete, n_open = True, np.int64(0)
                for j in range(n_found):
                    slot = found[j]
                    found[n_open] = slot
                    is_open = np.float64(sums[slot]) + bounds[i] >= bar
                    n_open += np.int64(is_open)
                    sums[slot] = sums[slot] if is_open else np.float32(0.0)
                n_found = n_open
                if n_found * _ENTRIES_IN_A_LOOKUP <= unread[i]:
                    break
        n_found = _read_list(postings, first, stop, query, i, room, n_found, is_complete)
        i += 1
    scores[:], ids[:] = -np.inf, _MOST_ID
    for j in range(n_found):
        slot = found[j]
        score, word = sums[slot], i
        sums[slot] = np.float32(0.0)
        bar = max(bar, scores[0])
        while word < n_words and np.float64(score) + bounds[word] >= bar:
            score = _add_word(stored, slot, query, word, score)
            word += 1
        if word == n_words:
            keep_best(scores, ids, np.float64(score), stored.ids[slot])
    _exclude(sums, allowed, postings.removed, np.float32(0.0))
    for recent in range(sums.size, n_stored):
        if _may_return(stored, allowed, recent):
            score = np.float64(_add_words(stored, recent, query, np.int64(0), np.float32(0.0)))
            if score > 0.0:
                keep_best(scores, ids, score, stored.ids[recent])
    _finish(scores, ids)
    release((places, bounds, unread))


@kernel
def rank_by_parts(candidates, parts, weights, ids, scores):
    """Write the best candidates of each row by the weighted sums of their parts (float64, shape (parts, n, m)).

    Candidates of -1 are ignored, and those that occur twice count once.
    """
    for row in range(candidates.shape[0]):
        own, best, found = candidates[row], scores[row], ids[row]
        best[:], found[:] = -np.inf, _MOST_ID
        for i in range(own.size):
            j = 0
            while own[j] != own[i]:
                j += 1
            if own[i] < 0 or j < i:
                continue
            total = 0.0
            for part in range(weights.size):
                total += weights[part] * parts[part, row, i]
            keep_best(best, found, total, own[i])
        _finish(best, found)
