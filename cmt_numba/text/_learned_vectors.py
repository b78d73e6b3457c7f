"""Learned vectors of hashed features and of classes, whose products are scores."""

from typing import Any

import numpy as np

from .. import persistence as files
from .._forest import require
from ._base import VECTORS
from ._hash_kernels import score_classes
from ._hashing import DocumentFrequencies, HashedTexts, LabelledTexts, WeighedTexts
from ._labelled import Labelled, learn_vectors
from ._skipgram import FeatureVectors

_N_ROWS, _N_COMPONENTS = (4_000, 18_000), 128
_FACTORS = np.array([2.0, 1.0, 1.0], np.float32)  # weights of words, n-grams and pairs
_RATE = 0.3  # step size at the start of fit
_FEW_TEXTS = 1_500  # with fewer texts, steps are up to twice as long
_FEW, _LEAD = 5, 0.6  # for classes with at most _FEW texts: margin of a new text over all other classes
_STEPS, _EPOCHS = 50_000, (5, 16)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class LearnedVectors(files.WithFields):
    """Vectors of classes and of rows that features are hashed to, trained with the softmax loss."""

    FIELDS = files.FieldTable(vectors=VECTORS)

    def __init__(self, vectors: FeatureVectors) -> None:
        self.vectors = vectors

    @classmethod
    def learned(cls, texts: LabelledTexts, generator: np.random.Generator) -> "LearnedVectors":
        """Learn vectors from texts."""
        hashed, frequencies, labels, n_classes = texts[:4]
        n_rows = int(np.clip(np.unique(hashed.columns).size, *_N_ROWS))
        spread = np.float32(np.sqrt(3.0 / _N_COMPONENTS))  # gives vectors of length 1 on average
        inputs = (generator.random((n_rows, _N_COMPONENTS), np.float32) * 2.0 - 1.0) * spread
        made = cls(FeatureVectors(inputs, np.zeros((n_classes, _N_COMPONENTS), np.float32)))
        weighed = made._weighed(hashed, frequencies)
        n_epochs = int(np.clip(_STEPS // max(1, labels.size), *_EPOCHS))
        rate = _RATE * float(np.clip(_FEW_TEXTS / max(1, labels.size), 1.0, 2.0))
        learn_vectors(made.vectors, Labelled(*weighed, labels, texts.importance), n_epochs, rate, generator)
        return made

    def introduce(self, stored: LabelledTexts, new: np.ndarray) -> None:
        """Change the vector of each class with few texts so that its texts at the positions ``new`` score highest.

        All other vectors stay as they are, because steps for a few texts would make them worse for the other texts.
        """
        texts = self._weighed(stored.hashed, stored.frequencies, new)
        labels, counts = stored.labels[new], np.bincount(stored.labels)
        inputs, outputs = self.vectors
        for i in np.flatnonzero(counts[labels] <= _FEW):
            rows = slice(texts.starts[i], texts.starts[i + 1])
            hidden = texts.weights[rows] @ inputs[texts.columns[rows]]
            scores = outputs @ hidden
            label = labels[i]
            lack = np.delete(scores, label).max(initial=0.0) + _LEAD - scores[label]
            square = hidden @ hidden
            if lack > 0.0 and square > 0.0:
                outputs[label] += lack / square * hidden

    def _weighed(
        self, hashed: HashedTexts, frequencies: DocumentFrequencies, order: np.ndarray | None = None
    ) -> WeighedTexts:
        """Return the feature weights of texts. Columns are hashed to rows of the input vectors."""
        texts = frequencies.weigh(hashed, frequencies.weighing(_FACTORS, least=1), order)
        hashed_again = (texts.columns.astype(np.uint64) * _MULTIPLIER) >> _HALF
        return texts._replace(columns=((hashed_again * np.uint64(len(self.vectors.inputs))) >> _HALF).astype(np.int32))

    def scores(self, hashed: HashedTexts, frequencies: DocumentFrequencies) -> np.ndarray:
        """Return the score of each class for each text: float32."""
        texts = self._weighed(hashed, frequencies)
        scores = np.empty((texts.starts.size - 1, len(self.vectors.outputs)), np.float32)
        score_classes(texts, self.vectors, np.empty(self.vectors.inputs.shape[1], np.float32), scores)
        return scores

    def with_classes(self, places: np.ndarray, n_classes: int) -> "LearnedVectors":
        """Return vectors for other classes: class ``c`` becomes ``places[c]``; -1 removes it. New ones get zeros."""
        outputs = np.zeros((n_classes, self.vectors.inputs.shape[1]), np.float32)
        outputs[places[places >= 0]] = self.vectors.outputs[places >= 0]
        return LearnedVectors(self.vectors._replace(outputs=outputs))

    def copy(self) -> "LearnedVectors":
        return LearnedVectors(FeatureVectors(*(array.copy() for array in self.vectors)))

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "LearnedVectors":
        inputs, outputs = values["vectors"]
        require(0 < len(inputs) < 2**31 and inputs.shape[1] > 0, "features must have vectors")
        require(outputs.shape[1] == inputs.shape[1], "vectors must have the same width")
        return cls(**values)
