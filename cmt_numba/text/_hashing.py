"""Hashed features of texts: words, pairs of words and n-grams of characters."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from .._jit import inner, kernel

N_COLUMNS = 2**17
"""The columns of each kind of feature: words come first, then n-grams of characters, then pairs of words."""

N_KINDS = 3

MOST_OF_A_CHARACTER = 4
_MOST_CHARACTERS = 1 << 22  # that are hashed at once

_SPACE, _NEWLINE = np.uint32(32), np.uint32(10)
_START, _END = np.uint64(1), np.uint64(2)  # marks around a word
_SEEDS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_PRIME, _MIX = np.uint64(0x100000001B3), np.uint64(0xFF51AFD7ED558CCD)
_SHIFT, _HIGH = np.uint64(29), np.uint64(47)  # the upper 17 bits are the column
_LEAST, _MOST = 3, 4  # characters of an n-gram

# Marks that belong to letters are no letters for Python, and neither are emoji.
_OTHERS = re.compile("[^\\w\u0300-\u036f\u0900-\u109f\u2600-\u27bf\U0001f000-\U0001faff\n]+")
_NEWLINES = re.compile("\n")


class HashedTexts(NamedTuple):
    """The features of texts, without duplicates and in ascending order, as the rows of a CSR matrix."""

    starts: np.ndarray  # int64 (n_texts + 1,)
    columns: np.ndarray  # int32
    counts: np.ndarray  # float32

    def rows(self, rows: slice) -> HashedTexts:
        """Return the features of some texts that follow each other."""
        starts = self.starts[rows.start : rows.stop + 1]
        here = slice(starts[0], starts[-1])
        return HashedTexts(starts - starts[0], self.columns[here], self.counts[here])


@inner
def _is_a_word(code):
    """Return whether a character is a word of its own: of a language without spaces, or an emoji."""
    if code < 0x0E00:
        return False
    return (
        code <= 0x0EFF  # Thai and Lao
        or 0x1000 <= code <= 0x109F  # Burmese
        or 0x1780 <= code <= 0x17FF  # Khmer
        or 0x2600 <= code <= 0x27BF
        or 0x3040 <= code <= 0x30FF  # Japanese
        or 0x3400 <= code <= 0x9FFF  # Chinese
        or 0xF900 <= code <= 0xFAFF
        or 0x1F000 <= code <= 0x1FAFF
        or 0x20000 <= code <= 0x3FFFF
    )


@inner
def _column(hashed, kind):
    """Return the column of a hash."""
    mixed = (hashed ^ (hashed >> _SHIFT)) * _MIX
    return np.int32(kind * N_COLUMNS + np.int64(mixed >> _HIGH))


@inner
def _hash_grams(codes, first, stop, columns, n):
    """Write the columns of the n-grams of characters of a word; return where the next column goes."""
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
    """Sort a range by Shell's method, which needs no other array."""
    gap = (stop - first) // 2
    while gap > 0:
        for i in range(first + gap, stop):
            value, at = values[i], i
            while at >= first + gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap = 1 if gap == 2 else gap * 5 // 11


@kernel
def hash_texts(codes, ends, starts, columns, counts):
    """Find the features of texts.

    Reads ``codes`` (uint32, the characters of all texts) and ``ends`` (int64, of each text). Writes ``starts`` (int64),
    ``columns`` (int32) and ``counts`` (float32), which must have room for ``MOST_OF_A_CHARACTER`` entries a character.
    """
    begin, first_column = np.int64(0), np.int64(0)
    starts[0] = 0
    for text in range(ends.size):
        n, at, before = first_column, begin, np.uint64(0)
        while at < ends[text]:
            if codes[at] == _SPACE:
                at += 1
                continue
            first, hashed = at, _SEEDS[0]
            while at < ends[text] and codes[at] != _SPACE:
                alone = _is_a_word(codes[at])
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


@kernel
def weigh_texts(hashed, order, frequencies, n_texts, factors, starts, columns, weights):
    """Weigh the features of some texts by tf-idf, and scale those of each text to length 1.

    Reads ``hashed``, ``order`` (int64, the texts), ``frequencies`` (int32, by column), and ``factors`` (float32, of
    each kind of feature); features of kinds with a factor of 0 are left out. Writes ``starts`` (int32), ``columns``
    (int32) and ``weights`` (float32), which must have room for all features.
    """
    n, starts[0] = 0, 0
    for i in range(order.size):
        first, squares = n, np.float32(0.0)
        for at in range(hashed.starts[order[i]], hashed.starts[order[i] + 1]):
            column = np.int64(hashed.columns[at])
            factor = factors[column // N_COLUMNS]
            if factor > 0.0:
                idf = np.float32(np.log((1.0 + n_texts) / (1.0 + frequencies[column]))) + np.float32(1.0)
                weight = factor * idf * (np.float32(1.0) + np.log(hashed.counts[at]))
                columns[n], weights[n] = column, weight
                squares += weight * weight
                n += 1
        if n > first:
            length = np.sqrt(squares)
            for at in range(first, n):
                weights[at] /= length
        starts[i + 1] = n


class WeighedTexts(NamedTuple):
    """Features of texts with their weights, as the rows of a CSR matrix."""

    starts: np.ndarray  # int32 (n_texts + 1,)
    columns: np.ndarray  # int32
    weights: np.ndarray  # float32


class DocumentFrequencies:
    """How many texts have each feature. They go on counting, so weights of new texts follow them."""

    def __init__(self, counts: np.ndarray, n_texts: int) -> None:
        self.counts, self.n_texts = counts, n_texts

    @classmethod
    def of(cls, hashed: HashedTexts) -> DocumentFrequencies:
        """Return the frequencies in some texts."""
        counts = np.bincount(hashed.columns, minlength=N_KINDS * N_COLUMNS).astype(np.int32)
        return cls(counts, hashed.starts.size - 1)

    def add(self, hashed: HashedTexts, times: int = 1) -> None:
        """Count texts, or uncount them with ``times=-1``."""
        np.add.at(self.counts, hashed.columns, np.int32(times))
        self.n_texts += times * (hashed.starts.size - 1)

    def weigh(self, hashed: HashedTexts, factors: np.ndarray, order: np.ndarray | None = None) -> WeighedTexts:
        """Return the weights of the features of texts, by default of all in their order."""
        if order is None:
            order = np.arange(hashed.starts.size - 1)
        n = int((hashed.starts[order + 1] - hashed.starts[order]).sum())
        starts, columns, weights = np.empty(order.size + 1, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
        weigh_texts(hashed, order, self.counts, self.n_texts, factors, starts, columns, weights)
        return WeighedTexts(starts, columns[: starts[-1]], weights[: starts[-1]])


def features_of(texts: list[str]) -> HashedTexts:
    """Return the features of texts."""
    parts, first = [], 0
    while first < len(texts) or not parts:
        stop, n = first, 0
        while stop < len(texts) and (stop == first or n + len(texts[stop]) <= _MOST_CHARACTERS):
            n += len(texts[stop])
            stop += 1
        parts.append(_features_of_some(texts[first:stop]))
        first = stop
    return parts[0] if len(parts) == 1 else join(parts)


def join(parts: list[HashedTexts]) -> HashedTexts:
    """Return the features of several lists of texts as those of one."""
    sizes = np.concatenate([[0], *(np.diff(part.starts) for part in parts)])
    columns, counts = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return HashedTexts(np.cumsum(sizes), columns, counts)


def _features_of_some(texts: list[str]) -> HashedTexts:
    joined = "\n".join(texts if len(texts) == 1 else [_NEWLINES.sub(" ", text) for text in texts]).lower()
    codes = np.array(np.frombuffer(_OTHERS.sub(" ", joined).encode("utf-32-le", "surrogatepass"), np.uint32))
    newlines = np.flatnonzero(codes == _NEWLINE)
    codes[newlines] = _SPACE
    ends = np.append(newlines, codes.size)[: len(texts)]
    if len(texts) == 1:
        ends[0] = codes.size
    starts, n = np.empty(len(texts) + 1, np.int64), MOST_OF_A_CHARACTER * codes.size
    columns, counts = np.empty(n, np.int32), np.empty(n, np.float32)
    hash_texts(codes, ends, starts, columns, counts)
    return HashedTexts(starts, columns[: starts[-1]].copy(), counts[: starts[-1]].copy())


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are in it."""
    return _OTHERS.sub(" ", text).split()
