"""Vectors of texts, learned from their classes."""

from typing import Any

import numpy as np

from .. import persistence as files
from .._kernels import require
from ._base import MOST
from ._hash_kernels import N_COLUMNS, N_KINDS
from ._hashing import DocumentFrequencies, HashedTexts
from ._labelled import Labelled, embed_texts, learn_vectors
from ._skipgram import FeatureVectors

_N_PARTS, _N_COMPONENTS, _MOST_FEATURES = 4, 32, 50_000
_RATE = 0.3  # step size at the start of training
_FEW_TEXTS = 1_500  # with fewer texts, steps are up to twice as long
_STEPS, _EPOCHS = 30_000, (5, 8)


class TextVectors(files.WithFields):
    """Vectors of features, whose weighted sums are the vectors of texts.

    They are trained with the softmax loss of a linear model of the classes (Joulin et al., 2017). Features that
    indicate the same classes therefore have similar vectors. Four parts of each vector are trained independently from
    different random starts, whose errors partly cancel. The vector of a text depends on nothing else, so it stays the
    same when texts are added. Features that were unknown in training have no vectors.

    - ``columns``: the features with vectors, in ascending order.
    - ``idf``: the inverse document frequency of each of them. ``unknown_idf`` is that of other features.
    - ``inputs``: the vector of each of them, scaled so that the vectors of learned texts have a mean length of 1.
    """

    FIELDS = files.FieldTable(
        columns=files.ArrayField(np.int32, bounds=(0, N_KINDS * N_COLUMNS - 1)),
        idf=files.ArrayField(np.float32, bounds=(0.0, 1e3)),
        unknown_idf=files.RealField(0.0, 1e3),
        inputs=files.ArrayField(np.float32, n_axes=2, bounds=(-MOST, MOST)),
    )

    def __init__(self, columns: np.ndarray, idf: np.ndarray, unknown_idf: float, inputs: np.ndarray) -> None:
        self.columns, self.idf, self.unknown_idf, self.inputs = columns, idf, unknown_idf, inputs

    @classmethod
    def learned(
        cls, hashed: HashedTexts, labels: np.ndarray, importance: np.ndarray, generator: np.random.Generator
    ) -> "TextVectors":
        """Learn vectors of the most frequent features of texts."""
        counts = DocumentFrequencies.of(hashed).counts
        columns = np.argsort(-counts, kind="stable")[: min(_MOST_FEATURES, max(1, np.count_nonzero(counts)))]
        columns, n_texts = np.sort(columns), labels.size
        idf = np.log((1.0 + n_texts) / (1.0 + counts[columns])) + 1.0
        inputs = np.empty((columns.size, 0), np.float32)
        made = cls(columns.astype(np.int32), idf.astype(np.float32), float(np.log(1.0 + n_texts)) + 1.0, inputs)
        labelled = Labelled(*made._weighed(hashed), labels, importance)
        made.inputs = np.concatenate(
            [_learned_part(columns.size, labelled, generator) for _ in range(_N_PARTS)], axis=1
        )
        made.inputs /= max(1e-6, np.linalg.norm(made.of(hashed), axis=1).mean())
        return made

    def _weighed(self, hashed: HashedTexts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the features of texts that have vectors: the texts' starts, rows of ``inputs``, and weights."""
        rows = np.minimum(np.searchsorted(self.columns, hashed.columns), self.columns.size - 1)
        is_known = self.columns[rows] == hashed.columns
        weights = (1.0 + np.log(hashed.counts)) * np.where(is_known, self.idf[rows], np.float32(self.unknown_idf))
        squares = np.concatenate([[0.0], np.cumsum(weights**2, dtype=np.float64)])
        lengths = np.sqrt(np.maximum(np.diff(squares[hashed.starts]), 1e-12))
        weights /= np.repeat(lengths, np.diff(hashed.starts)).astype(np.float32)
        starts = np.concatenate([[0], np.cumsum(is_known)])[hashed.starts]
        return starts, rows[is_known].astype(np.int32), weights[is_known]

    def of(self, hashed: HashedTexts) -> np.ndarray:
        """Return the vectors of texts: float32, shape (n_texts, n_components)."""
        vectors = np.empty((hashed.starts.size - 1, self.inputs.shape[1]), np.float32)
        embed_texts(self.inputs, *self._weighed(hashed), vectors)
        return vectors

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "TextVectors":
        columns, idf, inputs = (values[name] for name in ("columns", "idf", "inputs"))
        require(columns.size > 0 and np.all(np.diff(columns) > 0), "features with vectors must be in ascending order")
        require(columns.shape == idf.shape == inputs.shape[:1], "each of these features must have a vector")
        return cls(**values)


def _learned_part(n_features: int, labelled: Labelled, generator: np.random.Generator) -> np.ndarray:
    n_texts = labelled.labels.size
    spread = np.float32(np.sqrt(3.0 / _N_COMPONENTS))  # gives vectors of length 1 on average
    inputs = (generator.random((n_features, _N_COMPONENTS), np.float32) * 2.0 - 1.0) * spread
    outputs = np.zeros((labelled.labels.max() + 1, _N_COMPONENTS), np.float32)
    n_epochs = int(np.clip(_STEPS // n_texts, *_EPOCHS))
    rate = _RATE * float(np.clip(_FEW_TEXTS / n_texts, 1.0, 2.0))
    learn_vectors(FeatureVectors(inputs, outputs), labelled, n_epochs, rate, generator)
    return inputs
