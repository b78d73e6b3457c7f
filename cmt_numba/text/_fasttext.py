"""A text classifier that learns feature vectors together with a linear model of the classes."""

import copy
import os
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .. import _validation as checks
from .. import persistence as files
from .._change import progress_bar
from .._kernels import require, top_k
from ..estimators import check_targets, check_unmixed
from ._base import VECTORS, TextEstimator, are_moderate
from ._labelled import Labelled, learn_vectors, log_softmax
from ._skipgram import FeatureVectors
from ._subword_vectors import SubwordVectors
from ._vocabulary import Corpus, TextFeatures, Vocabulary

_STEPS, _EPOCHS = 50_000, (5, 50)  # default number of steps; minimum and maximum number of passes
_MOST_CELLS = 2**23  # maximum size of a block of scores


class ClassModel(files.WithFields):
    """Learned state of a FastTextClassifier."""

    FIELDS = files.FieldTable(
        features=files.PartField(TextFeatures),  # those that have vectors
        vectors=VECTORS,  # of features and classes
        # inverse document frequency of each feature; None with weighting="mean"
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

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "ClassModel":
        model = cls(**values)
        features, (inputs, outputs), idf = model.features, model.vectors, model.idf
        require(np.all(np.diff(features.grams) > 0), "n-grams must be in ascending order")
        require(features.n_rows == len(inputs), "each feature must have a vector")
        require(idf is None or idf.shape == (len(inputs),), "each feature must have a weight")
        require(len(outputs) > 0 and outputs.shape[1] == inputs.shape[1], "each class must have a vector")
        return model


@dataclass(eq=False, repr=False)
class FastTextClassifier(ClassifierMixin, TransformerMixin, TextEstimator):
    """Classify texts by learned vectors of their words, word n-grams and character n-grams.

    The vector of a text is the weighted sum of its features' vectors, which are learned together with a linear model of
    the classes (Joulin et al., Bag of tricks for efficient text classification, 2017). :meth:`transform` returns the
    vectors of texts as dense keys for trees and estimators. The vectors also suit classes that arrive after training.

    Parameters
    ----------
    word_ngrams : int, default 2
        Maximum number of words in a word n-gram; 1 for no word n-grams.
    min_n, max_n : int, default 3 and 5
        Minimum and maximum length of a character n-gram. A mark before and after each word counts as a character. No
        character n-grams are used if ``max_n`` is 0.
    weighting : {"tfidf", "mean"}, default "tfidf"
        How feature vectors are combined: "tfidf" adds them with tf-idf weights, scaled to length 1. "mean" averages
        them, learns less from few texts, and needs larger steps.
    min_count : int, default 1
        Minimum number of occurrences of a word with its own vector.
    learning_rate : float, default 0.2
        Initial step size, which falls to 0. Large steps are limited so that the vectors do not diverge.
    n_epochs : int, optional
        Number of passes over the texts, in random order. By default, enough passes for 50,000 steps, but 5 to 50.
    vectors : SubwordVectors, optional
        Initial vectors, which are copied. They must have ``n_components`` components. Character n-grams then use the
        ``min_n``, ``max_n`` and ``n_buckets`` of ``vectors``.
    n_components, n_buckets, tokenizer, lowercase, n_jobs, progress, random_state : optional
        As for :class:`SubwordVectors`.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        The classes in ascending order.
    n_features_out_ : int
        Length of the vectors.

    Examples
    --------
    >>> from cmt_numba.text import FastTextClassifier
    >>> texts, topics = ["rain and wind", "sun and clouds", "a song", "an album"], ["weather"] * 2 + ["music"] * 2
    >>> classifier = FastTextClassifier(10, random_state=0).fit(texts, topics)
    >>> str(classifier.predict(["wind and clouds"])[0])
    'weather'
    """

    FIELDS = files.FieldTable(
        _parameters=files.OptionsField(), classes_=files.LabelsField(), _model=files.PartField(ClassModel)
    )
    _unsaved = ("tokenizer", "random_state", "vectors")

    _model: ClassModel = field(init=False)

    n_components: Annotated[int, checks.Integer(1, 2**14)] = 100
    _: KW_ONLY
    word_ngrams: Annotated[int, checks.Integer(1, 100)] = 2
    min_n: Annotated[int, checks.Integer(1, 100)] = 3
    max_n: Annotated[int, checks.Integer(0, 100)] = 5
    n_buckets: Annotated[int, checks.Integer(1, 2**31 - 1)] = 2_000_000
    weighting: Annotated[str, checks.OneOf(("mean", "tfidf"))] = "tfidf"
    min_count: Annotated[int, checks.Integer(1)] = 1
    learning_rate: Annotated[float, checks.Real(0.0, 1e3, above=True)] = 0.2
    n_epochs: Annotated[int | None, checks.Optional(checks.Integer(1, 100_000))] = None
    vectors: SubwordVectors | None = None
    tokenizer: Callable[[str], Iterable[str]] | None = None
    lowercase: Annotated[bool, checks.Flag()] = True
    n_jobs: checks.Jobs = None
    progress: Annotated[bool, checks.Flag()] = False
    random_state: checks.Seed = None

    # Learning

    def fit(self, texts: Iterable[str], y: Any) -> Self:
        """Learn from texts and their classes ``y``. Earlier texts are forgotten."""
        self._check_parameters()
        words = self._words_of_all(texts)
        check_unmixed("y", y)
        check_targets(y)
        classes, labels = np.unique(column_or_1d(checks.label_array("y", y)), return_inverse=True)
        if labels.size != len(words) or not words:
            raise ValueError(
                f"y must have one class for each of one or more texts, got {len(words)} texts and {labels.size} classes"
            )
        corpus = Corpus()
        corpus.add(words)
        generator = np.random.Generator(np.random.PCG64(checks.check_seed(self.random_state)))
        features, inputs = self._new_features(corpus, generator)
        of_texts = features.counts(corpus)
        idf = features.idf(of_texts) if self.weighting == "tfidf" else None
        outputs = np.zeros((classes.size, self.n_components), np.float32)
        model = ClassModel(features, FeatureVectors(inputs, outputs), idf)
        self._learn(model, model.weighted(of_texts), labels, generator)
        return self._with(classes, model)

    def _new_features(self, corpus: Corpus, generator: np.random.Generator) -> tuple[TextFeatures, np.ndarray]:
        """Return the features of the texts, and their initial vectors."""
        d, known = self.n_components, Vocabulary((self.min_n, self.max_n), self.n_buckets)
        learned = np.zeros((0, d), np.float32)
        if self.vectors is not None:
            if not isinstance(self.vectors, SubwordVectors):
                raise TypeError(f"vectors must be SubwordVectors or None, got {type(self.vectors).__name__}")
            model = self.vectors._fitted()
            known, learned = copy.deepcopy(model.vocabulary), model.vectors.inputs
            if model.n_components != d:
                raise ValueError(f"n_components must be {model.n_components}, as in vectors, got {d}")
        features = TextFeatures(known, self.word_ngrams, self.n_buckets)
        features.learn(corpus, self.min_count)
        if features.n_rows == 0:
            raise ValueError(f"no word occurs at least {self.min_count} times: pass more texts or a smaller min_count")
        spread = np.float32(np.sqrt(3.0 / d))  # gives vectors of length 1 on average
        fresh = (generator.random((features.n_rows - len(learned), d), np.float32) * 2.0 - 1.0) * spread
        length = np.sqrt(np.square(learned, dtype=np.float64).sum() / max(1, len(learned)))
        return features, np.concatenate([learned / np.float32(length or 1.0), fresh])

    def _learn(self, model: ClassModel, weighted: Any, labels: np.ndarray, generator: np.random.Generator) -> None:
        starts, indices = weighted.indptr.astype(np.int64), weighted.indices.astype(np.int32)
        n_texts = labels.size
        labelled = Labelled(starts, indices, weighted.data, labels.astype(np.int64), np.ones(n_texts, np.float32))
        n_threads = checks.check_jobs(self.n_jobs) or os.cpu_count() or 1
        n_epochs = self.n_epochs or int(np.clip(_STEPS // n_texts, *_EPOCHS))
        with progress_bar(n_texts * n_epochs, "text", self.progress) as report:
            learn_vectors(model.vectors, labelled, n_epochs, self.learning_rate, generator, n_threads, report)
        if not are_moderate(*model.vectors):
            raise ValueError(f"the vectors diverged with learning_rate={self.learning_rate}: use a smaller one")

    # Classes

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Return the most probable class of each text."""
        best, _ = self.top_classes(texts, 1)
        return self.classes_[best[:, 0]]

    def top_classes(self, texts: Iterable[str], k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the places in ``classes_`` of the ``k`` most probable classes of each text, and their probabilities.

        Both have shape (n_texts, k), best first, int64 and float32. If ``k`` exceeds the number of classes, all classes
        are returned.
        """
        hidden = self._vectors_of(texts)
        k = min(checks.check_integer("k", k, 1), self.classes_.size)
        found, scores = np.zeros((len(hidden), k), np.int64), np.zeros((len(hidden), k), np.float32)
        for rows in self._blocks(len(hidden)):
            found[rows], scores[rows] = top_k(self._model.log_probabilities(hidden[rows]), k)
        return found, np.exp(scores)

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probability of each class in ``classes_`` for each text: float64, shape (n_texts, n_classes)."""
        hidden = self._vectors_of(texts)
        proba = np.zeros((len(hidden), self.classes_.size))
        for rows in self._blocks(len(hidden)):
            proba[rows] = np.exp(log_softmax(self._model.log_probabilities(hidden[rows]).astype(np.float64)))
        return proba

    def _blocks(self, n: int) -> list[slice]:
        length = max(1, _MOST_CELLS // self.classes_.size)
        return [slice(first, first + length) for first in range(0, n, length)]

    # Keys

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """Return the vectors of texts, keys for trees and estimators: float32, shape (n_texts, n_components).

        A vector is the weighted sum of the vectors of the text's features; zeros for a text without known features.
        """
        return self._vectors_of(texts)

    def _vectors_of(self, texts: Iterable[str]) -> np.ndarray:
        model, corpus = self._fitted()._model, Corpus()
        corpus.add(self._words_of_all(texts))
        return model.weighted(model.features.counts(corpus)) @ model.vectors.inputs

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares ``vectors``."""
        others = copy.copy(self)
        others.vectors = None
        copied: Self = super(FastTextClassifier, others).__sklearn_clone__()
        copied.vectors = self.vectors
        return copied

    # Files

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made = super()._of_fields(values)
        require(made.classes_.shape == (len(made._model.vectors.outputs),), "every class must have a name")
        return made._with(made.classes_, made._model)

    def _packed(self) -> Self:
        return self._fitted()

    def _with(self, classes: np.ndarray, model: ClassModel) -> Self:
        self.__dict__.update(classes_=classes, n_features_out_=model.vectors.inputs.shape[1], _model=model)
        return self

    def _fitted(self) -> Self:
        check_is_fitted(self, "n_features_out_")
        return self
