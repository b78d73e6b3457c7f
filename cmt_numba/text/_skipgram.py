"""Kernels that learn word vectors by skip-gram or CBOW with negative sampling.

The vector of a word is the mean of the vectors of its parts: the word itself and its character n-grams (Bojanowski et
al., Enriching word vectors with subword information, 2017). Training teaches the vector to distinguish nearby words
from random words (Mikolov et al., 2013).

In skip-gram, the middle word of a window predicts all other words in turn. Each prediction adds its gradient to every
part of the middle word, which moves their mean by the same amount. The kernel therefore computes the mean once per
window, moves it after each prediction, and adds the total movement to the parts at the end.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_called, inner_fastmath, kernel, release
from .._kernels import next_word, random_below, unit_of

_HALF = np.uint64(32)
_LOWER = np.uint64(2**32 - 1)
_UNIT = np.float32(2.0**-32)


class FeatureVectors(NamedTuple):
    """The learned vectors, with ``d`` components."""

    inputs: np.ndarray  # float32 (n_parts, d), vectors of the parts
    outputs: np.ndarray  # float32 (n_words, d), vectors of the words or classes to predict


class Words(NamedTuple):
    """Parts ``parts[starts[i]:starts[i + 1]]`` of each word ``i``, and an alias table that draws random words."""

    starts: np.ndarray  # int64 (n_words + 1,)
    parts: np.ndarray  # int32, rows of the input vectors
    kept: np.ndarray  # float32 (n_words,), probability of keeping an occurrence
    shares: np.ndarray  # float32 (n_words,), probability that cell i of the alias table yields word i
    aliases: np.ndarray  # int32 (n_words,), the word that cell i yields otherwise


class SkipgramSettings(NamedTuple):
    window: int  # maximum number of words on each side
    n_negatives: int
    is_cbow: bool
    rate: float


@inner_fastmath
def dot(a, i, b):
    """Return the inner product of ``a[i]`` and ``b``."""
    total = np.float32(0.0)
    for j in range(b.size):
        total += a[i, j] * b[j]
    return total


@inner
def add_to_row(a, i, b, factor):
    """Add ``factor * b`` to ``a[i]``."""
    for j in range(b.size):
        a[i, j] += factor * b[j]


@inner
def add_row(a, i, b, factor):
    """Add ``factor * a[i]`` to ``b``."""
    for j in range(b.size):
        b[j] += factor * a[i, j]


@inner
def learn_output(outputs, row, hidden, gradient, error):
    """Add ``error * hidden`` to an output vector, and ``error`` times the old output vector to ``gradient``."""
    for j in range(hidden.size):
        output = outputs[row, j]
        gradient[j] += error * output
        outputs[row, j] = output + error * hidden[j]


@inner
def _collect(inputs, words, word, factor, hidden):
    """Add ``factor`` times a word's vector to ``hidden``."""
    first, stop = words.starts[word], words.starts[word + 1]
    share = np.float32(factor / (stop - first))
    for i in range(first, stop):
        add_row(inputs, np.int64(words.parts[i]), hidden, share)


@inner
def _distribute(inputs, words, word, gradient):
    """Add a gradient to each part of a word."""
    for i in range(words.starts[word], words.starts[word + 1]):
        add_to_row(inputs, np.int64(words.parts[i]), gradient, np.float32(1.0))


@inner
def draw(shares, aliases, streams, i):
    """Draw an index by the alias method."""
    bits = next_word(streams, i)
    cell = np.int64(((bits >> _HALF) * np.uint64(aliases.size)) >> _HALF)
    return cell if np.float32(bits & _LOWER) * _UNIT < shares[cell] else np.int64(aliases[cell])


@inner_called
def _predict(outputs, words, target, settings, streams, i, hidden, gradient):
    """Learn to distinguish the word ``target`` from random words."""
    rate = np.float32(settings.rate)
    row, wanted = target, np.float32(1.0)
    for _ in range(settings.n_negatives + 1):
        if row != target or wanted > 0.0:
            predicted = np.float32(1.0) / (np.float32(1.0) + np.exp(-dot(outputs, row, hidden)))
            error = rate * (wanted - predicted)
            learn_output(outputs, row, hidden, gradient, error)
        row, wanted = draw(words.shares, words.aliases, streams, i), np.float32(0.0)


@kernel
def learn_texts(vectors, words, tokens, starts, settings, streams, i):
    """Learn word vectors from texts.

    Reads ``words``, ``tokens`` (int32, word ids) and ``starts`` (int64, where texts begin, plus the end of the last).
    Writes ``vectors`` and stream ``i``. Threads may share the vectors and then overwrite some of each other's steps.
    """
    inputs, outputs = vectors.inputs, vectors.outputs
    d = inputs.shape[1]
    hidden, before, gradient = empty(d, np.float32), empty(d, np.float32), empty(d, np.float32)
    longest = 0
    for text in range(starts.size - 1):
        longest = max(longest, starts[text + 1] - starts[text])
    kept = empty(longest, np.int64)
    for text in range(starts.size - 1):
        n = 0
        for at in range(starts[text], starts[text + 1]):
            word = np.int64(tokens[at])
            if words.kept[word] >= 1.0 or unit_of(next_word(streams, i)) < words.kept[word]:
                kept[n] = word
                n += 1
        for middle in range(n):
            reach = 1 + random_below(streams, i, settings.window)
            first, stop = max(0, middle - reach), min(n, middle + reach + 1)
            if stop - first < 2:
                continue
            hidden[:] = np.float32(0.0)
            gradient[:] = np.float32(0.0)
            if settings.is_cbow:
                for near in range(first, stop):
                    if near != middle:
                        _collect(inputs, words, kept[near], 1.0 / (stop - first - 1), hidden)
                _predict(outputs, words, kept[middle], settings, streams, i, hidden, gradient)
                for near in range(first, stop):
                    if near != middle:
                        _distribute(inputs, words, kept[near], gradient)
            else:
                _collect(inputs, words, kept[middle], 1.0, hidden)
                for j in range(hidden.size):
                    before[j] = hidden[j]
                for near in range(first, stop):
                    if near != middle:
                        gradient[:] = np.float32(0.0)
                        _predict(outputs, words, kept[near], settings, streams, i, hidden, gradient)
                        for j in range(hidden.size):
                            hidden[j] += gradient[j]
                for j in range(hidden.size):
                    gradient[j] = hidden[j] - before[j]
                _distribute(inputs, words, kept[middle], gradient)
    release((hidden, before, gradient, kept))
