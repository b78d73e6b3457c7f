"""Scores of classes by the vectors of a pretrained encoder."""

from typing import Any, Self

import numpy as np

from .. import persistence as files
from .._kernels import require
from ..estimators import CMTClassifier, classified_examples
from ._base import MOST

_AGGRESSIVENESS = 2.0  # half of each row's squared length is the constant, so C is doubled for the rest
_LEAST = 1e-6


class VectorScorer(files.WithFields):
    """A CMTClassifier of the vectors of an encoder, from which their mean is subtracted.

    All texts share the mean, so it says nothing about their classes. A class starts as the mean of its texts. To tell
    classes of diverse texts from those of similar texts, each vector gets a constant feature, which is as large as the
    others together: the nearest mean then has about the highest score. Without it, the mean with the smallest angle
    would have it, however short it is.

    - ``center``: the mean of the vectors that were learned first, which stays the same when texts are added.
    - ``classifier``: the classifier.
    """

    FIELDS = files.FieldTable(
        center=files.ArrayField(np.float32, bounds=(-MOST, MOST)), classifier=files.PartField(CMTClassifier)
    )

    def __init__(self, center: np.ndarray, classifier: CMTClassifier) -> None:
        self.center, self.classifier = center, classifier

    @classmethod
    def learned(cls, seed: int, vectors: np.ndarray, y: np.ndarray, weights: np.ndarray, ids: np.ndarray) -> Self:
        """Return a scorer trained on the vectors of texts."""
        # Features of an encoder are alike, so trying to standardise them would only take time.
        options: dict[str, Any] = {"aggressiveness": _AGGRESSIVENESS, "feature_weights": "none"}
        made = cls(vectors.mean(axis=0), CMTClassifier(**options, random_state=seed))
        made.classifier.fit(made._rows(vectors), y, sample_weight=weights, example_ids=ids)
        return made

    def learn_further(self, vectors: np.ndarray, y: np.ndarray, weights: np.ndarray, ids: np.ndarray) -> None:
        """Learn additional texts. Classes may be new."""
        self.classifier.partial_fit(self._rows(vectors), y, sample_weight=weights, example_ids=ids)

    def remove(self, ids: np.ndarray) -> Self:
        """Forget texts."""
        self.classifier.remove(ids)
        return self

    @property
    def classes(self) -> np.ndarray:
        """The classes, in order."""
        classes: np.ndarray = self.classifier.classes_
        return classes

    def example_ids(self) -> np.ndarray:
        """Return the ids of the learned texts, in order."""
        examples = classified_examples(self.classifier)
        return np.empty(0, np.int64) if examples is None else np.sort(examples.ids)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Return the score of each class for each text. For a class of one text, training starts from the cosine."""
        found: np.ndarray = 2.0 * self.classifier.decision_function(self._rows(vectors))
        return np.column_stack([np.zeros_like(found), found]) if found.ndim == 1 else found - 1.0

    def _rows(self, vectors: np.ndarray) -> np.ndarray:
        return np.column_stack([_centered(vectors, self.center), np.ones(len(vectors), np.float32)])

    @staticmethod
    def cosines(vectors: np.ndarray) -> np.ndarray:
        """Return the cosine of each pair of vectors after their mean is subtracted."""
        centered = _centered(vectors, vectors.mean(axis=0))
        found: np.ndarray = centered @ centered.T
        return found

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "VectorScorer":
        center, classifier = values["center"], values["classifier"]
        sound = getattr(classifier, "n_features_in_", 0) == center.size + 1 and classifier.max_examples is None
        require(sound, "the scorer of the encoder's vectors must be fitted")
        require(classifier.examples_ is not None, "the scorer of the encoder's vectors must store its texts")
        return cls(center, classifier)


def _centered(vectors: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return vectors minus a center, scaled to length 1."""
    centered = vectors - center
    scaled: np.ndarray = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), _LEAST)
    return scaled
