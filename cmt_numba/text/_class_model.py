"""The model behind FastTextClassifier: features, vectors and classes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._change import map_threads
from .._forest import require
from ._base import VECTORS
from ._labelled import Labelled, learn_labelled
from ._skipgram import FeatureVectors
from ._vocabulary import TextFeatures
from ._word_model import steps


class ClassModel(files.WithFields):
    """Learned state of a FastTextClassifier.

    - ``features``: the features that have vectors.
    - ``vectors``: the vectors of features and classes.
    - ``idf`` (float32 (n_features,)): inverse document frequencies; None with weighting="mean".
    """

    FIELDS = files.FieldTable(
        features=files.PartField(TextFeatures),
        vectors=VECTORS,
        idf=files.OptionalField(files.ArrayField(np.float32, bounds=(1e-3, 1e3))),
    )

    def __init__(self, features: TextFeatures, vectors: FeatureVectors, idf: np.ndarray | None) -> None:
        self.features, self.vectors, self.idf = features, vectors, idf

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
        return log_softmax(hidden @ self.vectors.outputs.T)

    # Files

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "ClassModel":
        """Return the model with these values."""
        model = cls(**values)
        features, (inputs, outputs), idf = model.features, model.vectors, model.idf
        require(np.all(np.diff(features.grams) > 0), "n-grams must be in ascending order")
        require(features.n_rows == len(inputs), "each feature must have a vector")
        require(idf is None or idf.shape == (len(inputs),), "each feature must have a weight")
        require(len(outputs) > 0 and outputs.shape[1] == inputs.shape[1], "each class must have a vector")
        return model


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
    """Learn vectors from all texts in random order, ``n_epochs`` times, with step sizes that fall from ``rate`` to 0.

    ``report`` is called after each step with its number of texts.
    """
    n_texts, sizes, done = labelled.labels.size, np.diff(labelled.starts), 0
    fall = rate / max(1, n_texts * n_epochs)
    for _ in range(n_epochs):
        order = generator.permutation(n_texts)
        ends = np.concatenate([[0], np.cumsum(sizes[order])])
        for spans in steps(ends, n_threads):
            start = rate - fall * done

            def learn_part(
                span: tuple[int, int], order: np.ndarray = order, spans: Any = spans, start: float = start
            ) -> None:
                learn_labelled(vectors, labelled, order[slice(*span)], start, fall * len(spans))

            map_threads(learn_part, spans, n_threads)
            done += spans[-1][1] - spans[0][0]
            if report is not None:
                report(spans[-1][1] - spans[0][0])
