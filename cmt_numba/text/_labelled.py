"""Kernels that train text classifiers on feature vectors (Joulin et al., 2017).

The hidden vector of a text is the weighted sum of its features' vectors. The score of a class is the inner product of
the hidden vector and the class's output vector.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._change import map_threads
from .._jit import empty, inner, inner_called, kernel, release
from ._skipgram import FeatureVectors, add_row, add_to_row, dot, learn_output
from ._word_model import steps

_NEGLIGIBLE = np.float32(1e-7)  # wrong classes with a smaller probability are not updated
_STEADY = np.float32(16.0)  # maximum of the step size times the squared hidden vector; learning oscillates above it
_LONGEST_STEP = np.float32(8.0)  # maximum step of a hidden vector


class Labelled(NamedTuple):
    """Texts with classes. The features of text ``i`` are at ``starts[i]:starts[i + 1]``."""

    starts: np.ndarray  # int64 (n_texts + 1,)
    features: np.ndarray  # int32, rows of the input vectors
    weights: np.ndarray  # float32, weight of each feature
    labels: np.ndarray  # int64 (n_texts,)
    importance: np.ndarray  # float32 (n_texts,), factor of the step size


@inner_called
def _softmax(outputs, label, rate, hidden, gradient, scores):
    greatest = np.float32(-np.inf)
    for c in range(scores.size):
        scores[c] = dot(outputs, c, hidden)
        greatest = max(greatest, scores[c])
    total = np.float32(0.0)
    for c in range(scores.size):
        scores[c] = np.exp(scores[c] - greatest)
        total += scores[c]
    for c in range(scores.size):
        probability = scores[c] / total
        if c == label:
            learn_output(outputs, c, hidden, gradient, rate * (np.float32(1.0) - probability))
        elif probability > _NEGLIGIBLE:
            learn_output(outputs, c, hidden, gradient, -rate * probability)


@inner
def _squared_length(vector):
    total = np.float32(0.0)
    for j in range(vector.size):
        total += vector[j] * vector[j]
    return total


@inner
def _collect(inputs, starts, features, weights, text, hidden):
    """Set ``hidden`` to the weighted sum of a text's feature vectors."""
    for j in range(hidden.size):
        hidden[j] = np.float32(0.0)
    for at in range(starts[text], starts[text + 1]):
        add_row(inputs, np.int64(features[at]), hidden, weights[at])


@kernel
def embed_texts(inputs, starts, features, weights, vectors):
    """Write the weighted sum of each text's feature vectors to ``vectors``. The arrays are those of ``Labelled``."""
    for text in range(vectors.shape[0]):
        _collect(inputs, starts, features, weights, text, vectors[text])


@kernel
def learn_labelled(vectors, labelled, order, rate, fall):
    """Learn from the texts at the positions ``order`` (int64).

    The step size is ``rate`` for the first text, and decreases by ``fall`` with each text. Reads ``labelled`` and
    writes ``vectors``. Threads may share the vectors and then overwrite some of each other's steps.
    """
    inputs, outputs = vectors.inputs, vectors.outputs
    hidden, gradient = empty(inputs.shape[1], np.float32), empty(inputs.shape[1], np.float32)
    scores = empty(outputs.shape[0], np.float32)
    for place in range(order.size):
        text = order[place]
        if labelled.starts[text] == labelled.starts[text + 1]:
            continue
        _collect(inputs, labelled.starts, labelled.features, labelled.weights, text, hidden)
        gradient[:] = np.float32(0.0)
        step = np.float32(rate - fall * place) * labelled.importance[text]
        step = min(step, _STEADY / (np.float32(1e-9) + _squared_length(hidden)))
        _softmax(outputs, labelled.labels[text], step, hidden, gradient, scores)
        first, stop = labelled.starts[text], labelled.starts[text + 1]
        length = np.sqrt(_squared_length(gradient)) * _squared_length(labelled.weights[first:stop])
        share = min(np.float32(1.0), _LONGEST_STEP / (np.float32(1e-9) + length))
        for at in range(first, stop):
            add_to_row(inputs, np.int64(labelled.features[at]), gradient, share * labelled.weights[at])
    release((hidden, gradient, scores))


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return the logarithm of each row's softmax."""
    scores = scores - scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def learn_vectors(
    vectors: FeatureVectors,
    labelled: Labelled,
    n_epochs: int,
    rate: float,
    generator: np.random.Generator,
    n_threads: int = 1,
    report: Callable[[int], object] | None = None,
) -> None:
    """Learn vectors from all texts in random order, ``n_epochs`` times, with step sizes from ``rate`` to 0."""
    n_texts, sizes, done = labelled.labels.size, np.diff(labelled.starts), 0
    fall = rate / max(1, n_texts * n_epochs)
    for _ in range(n_epochs):
        order = generator.permutation(n_texts)
        ends = np.concatenate([[0], np.cumsum(sizes[order])])
        for spans in steps(ends, n_threads):
            start = rate - fall * done

            def learn_part(span: tuple[int, int]) -> None:
                learn_labelled(vectors, labelled, order[slice(*span)], start, fall * len(spans))  # noqa: B023

            map_threads(learn_part, spans, n_threads)
            done += spans[-1][1] - spans[0][0]
            if report is not None:
                report(spans[-1][1] - spans[0][0])
