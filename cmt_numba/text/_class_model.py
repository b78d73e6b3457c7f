"""The model behind FastTextClassifier: features, vectors and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._forest import require
from ..tree import ContextualMemoryTree
from ._base import VECTORS
from ._labelled import Classes
from ._skipgram import FeatureVectors
from ._vocabulary import TextFeatures, alias_table

LOSSES = ("softmax", "hierarchical", "negative", "forest")
"""Kernels identify a loss by its position here."""


class ClassModel(files.WithFields):
    """Learned state of a FastTextClassifier.

    Parameters
    ----------
    features : TextFeatures
        The features that have vectors.
    vectors : FeatureVectors
        The vectors of features and classes.
    counts : ndarray of int64, shape (n_classes,)
        Training texts of each class.
    idf : ndarray of float32, shape (n_features,), or None
        Inverse document frequencies; None with weighting="mean".
    loss : str
        The loss.
    """

    FIELDS = files.FieldTable(
        features=files.PartField(TextFeatures),
        vectors=VECTORS,
        counts=files.ArrayField(np.int64, bounds=(1, 2**48)),
        idf=files.OptionalField(files.ArrayField(np.float32, bounds=(1e-3, 1e3))),
        loss=files.NameField(*LOSSES),
    )

    def __init__(
        self, features: TextFeatures, vectors: FeatureVectors, counts: np.ndarray, idf: np.ndarray | None, loss: str
    ) -> None:
        self.features, self.vectors, self.counts, self.idf, self.loss = features, vectors, counts, idf, loss
        self.classes = classes_of(counts)

    @classmethod
    def new(
        cls, features: TextFeatures, inputs: np.ndarray, counts: np.ndarray, idf: np.ndarray | None, loss: str
    ) -> ClassModel:
        """Return an untrained model, whose output vectors are zeros."""
        n_outputs = counts.size - (loss == "hierarchical")
        vectors = FeatureVectors(inputs, np.zeros((n_outputs, inputs.shape[1]), np.float32))
        return cls(features, vectors, counts, idf, loss)

    def weighted(self, counts: Any) -> Any:
        """Convert feature counts to weights: fractions that sum to 1 or, with idf, tf-idf rows of length 1."""
        idf, starts, indices = self.idf, counts.indptr, counts.indices
        sizes = np.diff(starts)
        weights = counts.data if idf is None else (1.0 + np.log(counts.data)) * idf[indices]
        sums = np.add.reduceat(np.append(weights if idf is None else weights**2, 0.0), starts[:-1])
        lengths = sums if idf is None else np.sqrt(sums)
        lengths = np.where((sizes > 0) & (lengths > 0.0), lengths, 1.0)
        data = (weights / np.repeat(lengths, sizes)).astype(np.float32)
        return scipy.sparse.csr_array((data, indices, starts), counts.shape)

    def log_probabilities(self, hidden: np.ndarray) -> np.ndarray:
        """Return the log-probability of each class for each hidden vector."""
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

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> ClassModel:
        """Return the model with these values."""
        require(values["counts"].size > 0, "there must be classes")
        model = cls(**values)
        features, (inputs, outputs), idf = model.features, model.vectors, model.idf
        require(bool(np.all(np.diff(features.grams) > 0)), "n-grams must be in ascending order")
        require(features.n_rows == len(inputs), "each feature must have a vector")
        require(idf is None or idf.shape == (len(inputs),), "each feature must have a weight")
        n_outputs = model.counts.size - (model.loss == "hierarchical")
        require(outputs.shape == (n_outputs, inputs.shape[1]), "each output must have a vector")
        return model


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return the logarithm of each row's softmax."""
    scores = scores - scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def _log_sigmoid(scores: np.ndarray) -> np.ndarray:
    return -np.logaddexp(np.float32(0.0), -scores)


def classes_of(counts: np.ndarray) -> Classes:
    """Build the Huffman tree and the alias table from the counts of classes."""
    return Classes(*huffman_tree(counts), *alias_table(np.sqrt(counts)))


def huffman_tree(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build a Huffman tree from the counts of at least one class. Frequent classes are near the root.

    Returns
    -------
    parents : ndarray of int32, shape (2 * n_classes - 1,)
        The parent of each node: the classes first, then the inner nodes. The last node is the root, with parent -1.
    children : ndarray of int32, shape (n_classes - 1, 2)
        The two children of each inner node.
    """
    n = counts.size
    leaves = np.argsort(counts, kind="stable").tolist()
    weights = [*counts.tolist(), *[0] * (n - 1)]
    parents = np.full(2 * n - 1, -1, np.int32)
    children = np.zeros((n - 1, 2), np.int32)
    leaf, inner = 0, n  # inner nodes are created in order of weight
    for node in range(n, 2 * n - 1):
        pair = []
        for _ in range(2):
            if leaf < n and (inner == node or weights[leaves[leaf]] <= weights[inner]):
                pair.append(leaves[leaf])
                leaf += 1
            else:
                pair.append(inner)
                inner += 1
        weights[node] = weights[pair[0]] + weights[pair[1]]
        children[node - n] = pair
        parents[pair] = node
    return parents, children


def levels(children: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the inner nodes of each level of a Huffman tree, starting at the root, as rows of ``children``."""
    n_classes = len(children) + 1
    level = np.array([len(children) - 1] if len(children) else [], np.int64)
    while level.size:
        yield level
        below = children[level].reshape(-1)
        level = below[below >= n_classes].astype(np.int64) - n_classes


_N_TREES, _N_PROBES = 2, 8


class ClassForest:
    """A forest that finds the classes near a text.

    The key of a class is the mean hidden vector of its texts, minus the mean of all keys. Training moves hidden
    vectors, so call :meth:`grow` from time to time.
    """

    def __init__(self, weighted: Any, labels: np.ndarray, generator: np.random.Generator, n_threads: int) -> None:
        self._weighted = weighted
        counts = np.bincount(labels)
        shares = (1.0 / counts[labels]).astype(np.float32)
        self._means = scipy.sparse.csr_array((shares, (labels, np.arange(labels.size)))) @ weighted
        self._generator = generator
        self._n_threads = n_threads

    def grow(self, inputs: np.ndarray) -> None:
        """Rebuild the forest from the feature vectors: float32, shape (n_features, d)."""
        keys = self._means @ inputs
        self._center = keys.mean(axis=0)
        seed = int(self._generator.integers(2**32))
        self._forest = ContextualMemoryTree(_N_TREES, n_threads=self._n_threads, random_state=seed)
        self._forest.insert(keys - self._center)

    def candidates(self, texts: np.ndarray, inputs: np.ndarray, n: int) -> np.ndarray:
        """Return ``n`` classes near each text, followed by ``n`` random classes.

        Parameters
        ----------
        texts : ndarray of int64, shape (n_texts,)
            Positions of training texts.
        inputs : ndarray of float32, shape (n_features, d)
            The feature vectors.
        n : int
            Number of near classes, and of random classes.

        Returns
        -------
        ndarray of int64, shape (n_texts, 2 * n)
            Class labels. Random classes are drawn uniformly. A random class that is also a near class is replaced by
            -1.
        """
        near = self._forest.query(self._weighted[texts] @ inputs - self._center, n, _N_PROBES).ids
        drawn = self._generator.integers(0, self._forest.n_memories, near.shape)
        return np.hstack([near, np.where((drawn[:, :, None] == near[:, None, :]).any(axis=2), -1, drawn)])
