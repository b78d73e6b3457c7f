"""Kernels that hash the features of texts, weigh them, and score classes."""

from typing import NamedTuple

import numpy as np

from .._jit import inner, kernel
from .._words import ALONE

N_KINDS = 3  # kinds of features: words, character n-grams and word pairs, in this order
N_COLUMNS = 2**17  # columns of each kind
_GRAMS = 1  # index of character n-grams among the kinds
MOST_OF_A_CHARACTER = 4  # maximum number of features per character
SPACE = np.uint32(32)
_START, _END = np.uint64(1), np.uint64(2)  # marks of the start and the end of a word in n-grams
_SEEDS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_PRIME, _MIX = np.uint64(0x100000001B3), np.uint64(0xFF51AFD7ED558CCD)
_SHIFT, _HIGH = np.uint64(29), np.uint64(47)  # the upper 17 bits are the column
_ALONE = np.array(ALONE, np.uint32)
_LEAST, _MOST = 3, 4  # minimum and maximum length of an n-gram


@inner
def _is_a_word(code):
    """Return whether a character is a word by itself: an emoji, or a character of a script without spaces."""
    if code >= _ALONE[0, 0]:
        for i in range(_ALONE.shape[0]):
            if _ALONE[i, 0] <= code <= _ALONE[i, 1]:
                return True
    return False


@inner
def _column(hashed, kind):
    mixed = (hashed ^ (hashed >> _SHIFT)) * _MIX
    return np.int32(kind * N_COLUMNS + np.int64(mixed >> _HIGH))


@inner
def _hash_grams(codes, first, stop, columns, n):
    """Write the columns of a word's character n-grams to ``columns[n:]``, and return the new ``n``."""
    for begin in range(first - 1, stop - 1):
        hashed = _SEEDS[1]
        for at in range(begin, min(begin + _MOST, stop + 1)):
            code = _START if at < first else _END if at == stop else np.uint64(codes[at])
            hashed = (hashed ^ code) * _PRIME
            if at - begin >= _LEAST - 1:
                columns[n] = _column(hashed, 1)
                n += 1
    return n


@inner
def _sort(values, first, stop):
    """Sort ``values[first:stop]`` in place by Shellsort."""
    gap = (stop - first) // 2
    while gap > 0:
        for i in range(first + gap, stop):
            value, at = values[i], i
            while at >= first + gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap = 1 if gap == 2 else gap * 5 // 11


class Weighing(NamedTuple):
    """The parameters of tf-idf weights."""

    factors: np.ndarray  # float32 (N_KINDS,), factor of each kind of feature
    frequencies: np.ndarray  # int32, document frequency of each column
    n_texts: int  # number of texts counted in the document frequencies
    least: int  # features in fewer texts get weight 0, but count towards the length of their text
    most: int  # character n-grams in more texts are ignored


@kernel
def hash_texts(codes, ends, divides, starts, columns, counts):
    """Hash the features of texts.

    Reads ``codes`` (uint32, all characters) and ``ends`` (int64, where each text ends). With ``divides``, characters of
    scripts without spaces are words. Writes ``starts`` (int64), ``columns`` (int32) and ``counts`` (float32), with room
    for ``MOST_OF_A_CHARACTER`` entries per character.
    """
    begin, first_column = 0, 0
    starts[0] = 0
    for text in range(ends.size):
        n, at, before = first_column, begin, np.uint64(0)
        while at < ends[text]:
            if codes[at] == SPACE:
                at += 1
                continue
            first, hashed = at, _SEEDS[0]
            while at < ends[text] and codes[at] != SPACE:
                alone = divides and _is_a_word(codes[at])
                if alone and at > first:
                    break
                hashed = (hashed ^ np.uint64(codes[at])) * _PRIME
                at += 1
                if alone:
                    break
            columns[n] = _column(hashed, 0)
            n = _hash_grams(codes, first, at, columns, n + 1)
            if before != 0:
                columns[n] = _column((before ^ (before >> _SHIFT)) * _SEEDS[2] + hashed, 2)
                n += 1
            before = hashed
        _sort(columns, first_column, n)
        last = first_column - 1
        for i in range(first_column, n):
            if last >= first_column and columns[i] == columns[last]:
                counts[last] += np.float32(1.0)
            else:
                last += 1
                columns[last], counts[last] = columns[i], np.float32(1.0)
        begin, first_column = ends[text], last + 1
        starts[text + 1] = first_column


@inner
def weigh_text(hashed, text, weighing, weights):
    """Write the tf-idf weights of a text's features, scaled to length 1. Ignored features get weight 0."""
    first, squares = hashed.starts[text], np.float32(0.0)
    for at in range(first, hashed.starts[text + 1]):
        column = np.int64(hashed.columns[at])
        kind, frequency, weight = column // N_COLUMNS, weighing.frequencies[column], np.float32(0.0)
        if kind != _GRAMS or frequency <= weighing.most:
            idf = np.float32(np.log((1.0 + weighing.n_texts) / (1.0 + frequency))) + np.float32(1.0)
            weight = weighing.factors[kind] * idf * (np.float32(1.0) + np.log(hashed.counts[at]))
        weights[at - first] = weight if frequency >= weighing.least else np.float32(0.0)
        squares += weight * weight
    if squares > 0.0:
        for i in range(hashed.starts[text + 1] - first):
            weights[i] /= np.sqrt(squares)


@kernel
def weigh_texts(hashed, order, weighing, starts, columns, weights):
    """Write the weighted features of the texts at positions ``order`` (int64): ``starts``, ``columns``, ``weights``."""
    n = 0
    starts[0] = 0
    for i in range(order.size):
        text = order[i]
        size = hashed.starts[text + 1] - hashed.starts[text]
        for j in range(size):
            columns[n + j] = hashed.columns[hashed.starts[text] + j]
        weigh_text(hashed, text, weighing, weights[n : n + size])
        n += size
        starts[i + 1] = n
