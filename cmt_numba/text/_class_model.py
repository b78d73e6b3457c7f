"""The model of a classifier of texts: features and their vectors, outputs, and what is known of the classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._forest.invariants.errors import require
from ..persistence._columns import document, read_array, read_document
from ..persistence._trees import take
from ._counting import are_moderate
from ._features import TextFeatures
from ._huffman import huffman_tree, levels
from ._labelled import Classes
from ._skipgram import Vectors
from ._vocabulary import Vocabulary, alias_table
from ._vocabulary_files import read_vocabulary, vocabulary_arrays

LOSSES = ("softmax", "hierarchical", "negative", "forest")
"""In the order of their numbers in kernels."""


class ClassModel(NamedTuple):
    """What a classifier of texts has learned."""

    features: TextFeatures
    vectors: Vectors
    classes: Classes
    counts: np.ndarray  # int64 (n_classes,), how often each class has come
    idf: np.ndarray | None  # float32 (n_features,); None if texts are means
    loss: str

    @classmethod
    def new(
        cls, features: TextFeatures, inputs: np.ndarray, counts: np.ndarray, idf: np.ndarray | None, loss: str
    ) -> ClassModel:
        """Return a model whose outputs are 0 still."""
        n_outputs = counts.size - (loss == "hierarchical")
        vectors = Vectors(inputs, np.zeros((n_outputs, inputs.shape[1]), np.float32))
        return cls(features, vectors, _classes_of(counts), counts, idf, loss)

    def weighted(self, counts: Any) -> Any:
        """Return the weights of the features of each text: their shares or, with idf, tf-idf of unit length."""
        idf, starts, indices = self.idf, counts.indptr, counts.indices
        sizes = np.diff(starts)
        weights = counts.data if idf is None else (1.0 + np.log(counts.data)) * idf[indices]
        sums = np.add.reduceat(np.append(weights if idf is None else weights**2, 0.0), starts[:-1])
        lengths = sums if idf is None else np.sqrt(sums)
        lengths = np.where((sizes > 0) & (lengths > 0.0), lengths, 1.0)
        data = (weights / np.repeat(lengths, sizes)).astype(np.float32)
        return scipy.sparse.csr_array((data, indices, starts), counts.shape)

    def log_probabilities(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability of each class: those of improbable classes would be rounded to 0."""
        scores = hidden @ self.vectors.outputs.T
        if self.loss in ("softmax", "forest"):
            return log_softmax(scores)
        if self.loss == "negative":
            return _log_sigmoid(scores)
        n_classes = self.counts.size
        of_nodes = np.zeros((len(hidden), 2 * n_classes - 1), np.float32)
        for level in levels(self.classes.children):
            above = of_nodes[:, n_classes + level]
            of_nodes[:, self.classes.children[level, 1]] = above + _log_sigmoid(scores[:, level])
            of_nodes[:, self.classes.children[level, 0]] = above + _log_sigmoid(-scores[:, level])
        return of_nodes[:, :n_classes]

    # Files

    def described(self) -> dict[str, Any]:
        """Return what a file says beside the arrays."""
        known = self.features.vocabulary
        return {
            "lengths": list(known.lengths),
            "n_buckets": known.n_buckets,
            "n_parts": known.n_parts,
            "length_of_grams": self.features.length,
            "n_buckets_of_grams": self.features.n_buckets,
            "loss": self.loss,
            "weighted": self.idf is not None,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a file."""
        return vocabulary_arrays(self.features.vocabulary) | {
            "words": document(self.features.vocabulary.words),
            "grams": self.features.grams,
            "inputs": self.vectors.inputs,
            "outputs": self.vectors.outputs,
            "counts_of_classes": self.counts,
            "idf": np.zeros(0, np.float32) if self.idf is None else self.idf,
        }

    @classmethod
    def of(cls, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> ClassModel:
        """Return the model of a file. Raises InvariantError, TypeError or ValueError if it is none."""
        inputs, outputs = (read_array(name, arrays, np.float32, n_axes=2) for name in ("inputs", "outputs"))
        numbers = ("n_parts", "n_buckets", "n_buckets_of_grams", "length_of_grams")
        n_parts, n_buckets, n_hashed, length = (take(described, name, int) for name in numbers)
        lengths = take(described, "lengths", list)
        sound = len(lengths) == 2 and all(type(n) is int and 0 <= n <= 100 for n in (*lengths, length))
        require(sound, "the lengths of n-grams must be small integers")
        require(all(0 < n < 2**31 for n in (n_buckets, n_hashed)), "the numbers of buckets must be positive")
        words = read_document(arrays, "words")
        require(type(words) is list, "words must be a list")
        known = read_vocabulary(words, arrays, Vocabulary((lengths[0], lengths[1]), n_buckets), n_parts)
        features = TextFeatures(known, length, n_hashed)
        features.grams = read_array("grams", arrays, np.int64)
        require(bool(np.all(np.diff(features.grams) > 0)), "n-grams must be in ascending order")
        require(n_parts >= 0 and features.n_rows == len(inputs), "each feature must have a vector")
        idf = read_array("idf", arrays, np.float32) if take(described, "weighted", bool) else None
        if idf is not None:
            require(idf.shape == (len(inputs),), "there must be a weight for each feature")
            require(bool(np.all((idf > 0.0) & (idf < 1e3))), "weights must be positive")
        counts, loss = read_array("counts_of_classes", arrays, np.int64), take(described, "loss", str)
        require(counts.size > 0 and bool(np.all((counts > 0) & (counts < 2**48))), "classes must have come")
        require(are_moderate(inputs, outputs), "vectors must be finite")
        require(loss in LOSSES, "the loss must be one that is known")
        n_outputs = counts.size - (loss == "hierarchical")
        require(outputs.shape == (n_outputs, inputs.shape[1]), "there must be a vector for each output")
        return cls(features, Vectors(inputs, outputs), _classes_of(counts), counts, idf, loss)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return scores, less a number in each row, such that their exponentials sum to 1."""
    scores = scores - scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def _log_sigmoid(scores: np.ndarray) -> np.ndarray:
    return -np.logaddexp(np.float32(0.0), -scores)


def _classes_of(counts: np.ndarray) -> Classes:
    """Return what kernels read of classes that have come as often."""
    return Classes(*huffman_tree(counts), *alias_table(np.sqrt(counts)))
