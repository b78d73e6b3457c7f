"""Kernels: word vectors with subword parts, by skip-gram or CBOW with negative sampling.

A word is the mean of the vectors of its parts: the word itself and the n-grams of its characters (Bojanowski et al.,
Enriching word vectors with subword information, 2017). A vector of a word, or of the words around it, must tell which
word is near from words drawn at random (Mikolov et al., 2013).

In skip-gram all words of a window are predicted from the word in its middle. Its vector is computed once for the
window, and what they teach it is added to its parts when all have been predicted.
"""

from typing import NamedTuple

import numpy as np

from .._forest.rng import next_word, random_below, unit_of
from .._jit import inner_called, inner_fastmath, kernel


class Vectors(NamedTuple):
    """What is learned, ``d`` components."""

    inputs: np.ndarray  # float32 (n_parts, d), of parts
    outputs: np.ndarray  # float32 (n_words, d), of words that are predicted


class Words(NamedTuple):
    """What is known of words. The alias method draws them in constant time (Walker, 1977)."""

    starts: np.ndarray  # int64 (n_words + 1,), where the parts of each begin
    parts: np.ndarray  # int32, rows of inputs
    kept: np.ndarray  # float32 (n_words,), probability to keep an occurrence
    shares: np.ndarray  # float32 (n_words,), probability of a cell of the alias table to stand for its own word
    aliases: np.ndarray  # int32 (n_words,), the other word of each cell


class Task(NamedTuple):
    """How to learn."""

    window: int  # most words on each side
    n_negatives: int
    is_cbow: bool
    rate: float


@inner_fastmath
def _dot(x, y):
    total = np.float32(0.0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@inner_called
def _add(y, x, factor):
    """Add ``factor * x`` to ``y``."""
    for i in range(x.size):
        y[i] += factor * x[i]


@inner_called
def _collect(inputs, words, word, factor, hidden):
    """Add ``factor`` times the mean of a word's parts to ``hidden``."""
    first, stop = words.starts[word], words.starts[word + 1]
    share = np.float32(factor / (stop - first))
    for i in range(first, stop):
        _add(hidden, inputs[words.parts[i]], share)


@inner_called
def _distribute(inputs, words, word, gradient):
    """Add a gradient to each part of a word."""
    for i in range(words.starts[word], words.starts[word + 1]):
        _add(inputs[words.parts[i]], gradient, np.float32(1.0))


@inner_called
def _step(output, hidden, gradient, wanted, rate):
    """Learn whether a word is near, and collect what it teaches the hidden vector."""
    error = np.float32(rate * (wanted - 1.0 / (1.0 + np.exp(-_dot(output, hidden)))))
    _add(gradient, output, error)
    _add(output, hidden, error)


@inner_called
def _predict(outputs, words, target, task, streams, i, hidden, gradient):
    """Learn to tell a word from others that are drawn at random."""
    _step(outputs[target], hidden, gradient, 1.0, task.rate)
    for _ in range(task.n_negatives):
        cell = random_below(streams, i, words.aliases.size)
        drawn = cell if unit_of(next_word(streams, i)) < words.shares[cell] else np.int64(words.aliases[cell])
        if drawn != target:
            _step(outputs[drawn], hidden, gradient, 0.0, task.rate)


@kernel
def learn_texts(vectors, words, tokens, starts, task, streams, i):
    """Learn from texts, one after the other.

    Reads ``words``, ``tokens`` (int32, ids of words) and ``starts`` (int64, where each text begins, and the end).
    Writes ``vectors`` and stream ``i``. Threads may share the vectors: they then overwrite some of each other's steps.
    """
    inputs, outputs = vectors.inputs, vectors.outputs
    hidden, gradient = np.empty(inputs.shape[1], np.float32), np.empty(inputs.shape[1], np.float32)
    longest = 0
    for text in range(starts.size - 1):
        longest = max(longest, starts[text + 1] - starts[text])
    kept = np.empty(longest, np.int64)
    for text in range(starts.size - 1):
        n = 0
        for at in range(starts[text], starts[text + 1]):
            word = np.int64(tokens[at])
            if words.kept[word] >= 1.0 or unit_of(next_word(streams, i)) < words.kept[word]:
                kept[n] = word
                n += 1
        for middle in range(n):
            reach = 1 + random_below(streams, i, task.window)
            first, stop = max(0, middle - reach), min(n, middle + reach + 1)
            if stop - first < 2:
                continue
            hidden[:] = np.float32(0.0)
            gradient[:] = np.float32(0.0)
            if task.is_cbow:
                for near in range(first, stop):
                    if near != middle:
                        _collect(inputs, words, kept[near], 1.0 / (stop - first - 1), hidden)
                _predict(outputs, words, kept[middle], task, streams, i, hidden, gradient)
                for near in range(first, stop):
                    if near != middle:
                        _distribute(inputs, words, kept[near], gradient)
            else:
                _collect(inputs, words, kept[middle], 1.0, hidden)
                for near in range(first, stop):
                    if near != middle:
                        _predict(outputs, words, kept[near], task, streams, i, hidden, gradient)
                _distribute(inputs, words, kept[middle], gradient)
