"""Kernels that train text classifiers on feature vectors (Joulin et al., 2017).

The hidden vector of a text is the weighted sum of its features' vectors. The score of an output is the inner product of
the hidden vector and the output vector. There is an output for each class or, with the hierarchical loss, for each
inner node of a Huffman tree whose leaves are the classes (Morin and Bengio, 2005).
"""

from typing import NamedTuple

import numpy as np

from .._forest import begin_search, new_frontier, push, take_cheapest
from .._jit import empty, inner, inner_called, kernel, release
from ._skipgram import add_row, add_to_row, dot, draw, learn_output, sigmoid

SOFTMAX, HIERARCHICAL, NEGATIVE, FOREST = 0, 1, 2, 3  # the losses

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


class Classes(NamedTuple):
    """A Huffman tree of the classes for the hierarchical loss, and an alias table for drawing random classes.

    The first nodes of the tree are the classes, followed by the inner nodes. The last node is the root.
    """

    parents: np.ndarray  # int32 (n_nodes,), -1 for the root
    children: np.ndarray  # int32 (n_inner_nodes, 2)
    shares: np.ndarray  # float32 (n_classes,), probability that cell c of the alias table yields class c
    aliases: np.ndarray  # int32 (n_classes,), the class that cell c yields otherwise


class FastTextSettings(NamedTuple):
    """The loss and the step sizes."""

    loss: int
    n_negatives: int
    rate: float  # step size of the first text
    fall: float  # decrease of the step size from one text to the next


@inner_called
def _softmax(outputs, label, rate, hidden, gradient, scores):
    """Train one class against all others with the softmax loss."""
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


@inner_called
def _among(outputs, label, candidates, n_drawn, rate, hidden, gradient, scores):
    """Train one class against candidates. The last ``n_drawn`` candidates are random.

    The random candidates represent all other classes: the sum of their exponential scores, times the number of classes
    per draw, estimates the sum over all classes (Bengio and Senecal, 2008). Candidates equal to the class or to -1 are
    skipped.
    """
    greatest = own = dot(outputs, label, hidden)
    more = np.float32(np.log(outputs.shape[0] / n_drawn))
    for i in range(candidates.size):
        c = candidates[i]
        scores[i] = np.float32(-np.inf)
        if c >= 0 and c != label:
            scores[i] = dot(outputs, c, hidden)
            if i >= candidates.size - n_drawn:
                scores[i] += more
            greatest = max(greatest, scores[i])
    total = own = np.exp(own - greatest)
    for i in range(candidates.size):
        scores[i] = np.exp(scores[i] - greatest)
        total += scores[i]
    learn_output(outputs, label, hidden, gradient, rate * (np.float32(1.0) - own / total))
    for i in range(candidates.size):
        probability = scores[i] / total
        if probability > _NEGLIGIBLE:
            learn_output(outputs, candidates[i], hidden, gradient, -rate * probability)


@inner
def _binary(outputs, row, wanted, rate, hidden, gradient):
    """Train an output vector as a binary classifier with the target ``wanted`` (0 or 1)."""
    error = rate * (wanted - sigmoid(dot(outputs, row, hidden)))
    learn_output(outputs, row, hidden, gradient, error)


@inner_called
def _hierarchical(outputs, classes, label, rate, hidden, gradient):
    """Train each inner node on the path to a class to choose the child that leads to the class."""
    node, n_classes = label, classes.aliases.size
    while classes.parents[node] >= 0:
        row = np.int64(classes.parents[node]) - n_classes
        is_second = np.float32(classes.children[row, 1] == node)
        _binary(outputs, row, is_second, rate, hidden, gradient)
        node = row + n_classes


@inner_called
def _negative(outputs, classes, label, settings, rate, hidden, gradient, streams, i):
    """Train one class against randomly drawn classes."""
    _binary(outputs, label, np.float32(1.0), rate, hidden, gradient)
    for _ in range(settings.n_negatives):
        drawn = draw(classes.shares, classes.aliases, streams, i)
        if drawn != label:
            _binary(outputs, drawn, np.float32(0.0), rate, hidden, gradient)


@inner
def _squared_length(vector):
    total = np.float32(0.0)
    for j in range(vector.size):
        total += vector[j] * vector[j]
    return total


@inner
def _collect(inputs, labelled, text, hidden):
    """Set ``hidden`` to the weighted sum of a text's feature vectors."""
    for j in range(hidden.size):
        hidden[j] = np.float32(0.0)
    for at in range(labelled.starts[text], labelled.starts[text + 1]):
        add_row(inputs, np.int64(labelled.features[at]), hidden, labelled.weights[at])


@kernel
def learn_labelled(vectors, labelled, order, classes, candidates, settings, streams, i):
    """Learn from the texts at the positions ``order``.

    Reads ``labelled``, ``order`` (int64), ``classes`` and, for the loss ``FOREST``, ``candidates`` (int64, a row of
    classes or -1 for each entry of ``order``). Writes ``vectors`` and stream ``i``. Threads may share the vectors and
    then overwrite some of each other's steps.
    """
    inputs, outputs = vectors.inputs, vectors.outputs
    hidden, gradient = empty(inputs.shape[1], np.float32), empty(inputs.shape[1], np.float32)
    scores = empty(max(outputs.shape[0], candidates.shape[1]), np.float32)
    for place in range(order.size):
        text = order[place]
        if labelled.starts[text] == labelled.starts[text + 1]:
            continue
        _collect(inputs, labelled, text, hidden)
        gradient[:] = np.float32(0.0)
        rate = np.float32(settings.rate - settings.fall * place) * labelled.importance[text]
        rate = min(rate, _STEADY / (np.float32(1e-9) + _squared_length(hidden)))
        label = labelled.labels[text]
        if settings.loss == SOFTMAX:
            _softmax(outputs, label, rate, hidden, gradient, scores)
        elif settings.loss == FOREST:
            _among(outputs, label, candidates[place], settings.n_negatives, rate, hidden, gradient, scores)
        elif settings.loss == HIERARCHICAL:
            _hierarchical(outputs, classes, label, rate, hidden, gradient)
        else:
            _negative(outputs, classes, label, settings, rate, hidden, gradient, streams, i)
        first, stop = labelled.starts[text], labelled.starts[text + 1]
        step = np.sqrt(_squared_length(gradient)) * _squared_length(labelled.weights[first:stop])
        share = min(np.float32(1.0), _LONGEST_STEP / (np.float32(1e-9) + step))
        for at in range(first, stop):
            add_to_row(inputs, np.int64(labelled.features[at]), gradient, share * labelled.weights[at])
    release((hidden, gradient, scores))


@inner
def _log_sigmoid(x):
    """Return the logarithm of the logistic function."""
    return min(x, np.float32(0.0)) - np.log1p(np.exp(-abs(x)))


@kernel
def best_leaves(hidden, outputs, classes, found, scores):
    """Find the most probable classes of texts by best-first search of the Huffman tree.

    A node is at most as probable as its parent, so leaves leave the heap in order of probability. Reads ``hidden``
    (float32, a row for each text), ``outputs`` and ``classes``. Writes ``found`` (int64, shape (n_texts, k)) and
    ``scores`` (float32, log-probabilities).
    """
    n_classes = classes.aliases.size
    frontier, root = new_frontier(n_classes + 1), np.int64(classes.parents.size - 1)
    for text in range(hidden.shape[0]):
        begin_search(frontier)
        push(frontier, np.float32(0.0), 0, root)
        rank = 0
        while rank < found.shape[1]:
            take_cheapest(frontier)
            score, node = -frontier.here[0]["cost"], frontier.here[0]["place"]
            if node < n_classes:
                found[text, rank], scores[text, rank] = node, score
                rank += 1
                continue
            x = dot(outputs, node - n_classes, hidden[text])
            first, second = classes.children[node - n_classes, 0], classes.children[node - n_classes, 1]
            push(frontier, -(score + _log_sigmoid(-x)), 0, np.int64(first))
            push(frontier, -(score + _log_sigmoid(x)), 0, np.int64(second))
    release(frontier)
