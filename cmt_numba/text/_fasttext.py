"""A linear classifier of texts that learns vectors of their features, for few classes or very many."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._concurrency.workers import map_threads, progress_bar
from .._forest.invariants.errors import require
from .._validation import (
    Checked,
    Constraint,
    Flag,
    Integer,
    OneOf,
    Real,
    check_integer,
    check_jobs,
    check_seed,
)
from ..persistence._columns import column, document, read_array, read_column, read_document
from ..persistence._container import Contents
from ..persistence._trees import take
from ._features import TextFeatures
from ._huffman import huffman_tree, levels
from ._labelled import Classes, Labelled, Lesson, best_leaves, learn_labelled
from ._learned import TextEstimator
from ._skipgram import Vectors
from ._subword_vectors import SubwordVectors
from ._vocabulary import Corpus, Vocabulary, alias_table
from ._vocabulary_files import read_vocabulary, vocabulary_arrays
from ._word_model import steps

_LOSSES = ("softmax", "hierarchical", "negative")
_MOST_CELLS = 2**23  # of a block of scores


class FastTextClassifier(ClassifierMixin, TransformerMixin, TextEstimator):
    """Classes of texts from the mean of vectors of their words, n-grams of words and n-grams of characters.

    The vectors are learned together with a linear model of the classes (Joulin et al., Bag of tricks for efficient text
    classification, 2017). The means, which :meth:`transform` returns, are dense keys for trees and estimators: what is
    learned from some classes makes keys for classes that come later.

    Parameters
    ----------
    n_components : int, default 100
        Length of the vectors.
    loss : {"softmax", "hierarchical", "negative"}, default "softmax"
        What is learned from a text. "softmax" tells its class from all others, which takes time in proportion to the
        number of classes. "hierarchical" decides at each inner node of a Huffman tree on the way to its class, which
        takes logarithmic time and is less accurate. "negative" tells its class from some that are drawn at random.
    word_ngrams : int, default 2
        Greatest number of words of an n-gram; 1 for none.
    min_n, max_n : int, default 3 and 0
        Least and greatest number of characters of an n-gram of a word, with a mark before and after. No n-grams are
        used if ``max_n`` is 0.
    n_buckets : int, default 2,000,000
        Number of values of the hash of n-grams. Only those that occur take memory: 4 bytes for each component.
    min_count : int, default 1
        Words that come less often have no vector of their own.
    n_negatives : int, default 5
        Classes drawn at random for each text with ``loss="negative"``.
    learning_rate : float, default 0.5
        First step size. It falls to 0.
    n_epochs : int, default 25
        Number of passes over the texts, in a new order each time.
    vectors : SubwordVectors, optional
        Vectors to start from, which stay as they are. They determine ``n_components`` and the n-grams of words.
    tokenizer : callable, optional
        Returns the words of a text. By default runs of letters, digits and underscores.
    lowercase : bool, default True
        Whether to convert texts to lower case.
    n_jobs : int, optional
        Number of threads to learn with: 1 by default, -1 for all processors. With one, the same seed gives the same
        vectors. Several write to the same vectors without locks, and give slightly different ones every time.
    progress : bool, default False
        Whether to show a progress bar.
    random_state : int or numpy.random.SeedSequence, optional
        Seed.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        The classes, sorted.
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

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_components": Integer(1, 2**14),
        "loss": OneOf(_LOSSES),
        "word_ngrams": Integer(1, 100),
        "min_n": Integer(1, 100),
        "max_n": Integer(0, 100),
        "n_buckets": Integer(1, 2**31 - 1),
        "min_count": Integer(1),
        "n_negatives": Integer(1, 1000),
        "learning_rate": Real(0.0, 1e3, above=True),
        "n_epochs": Integer(1, 100_000),
        "lowercase": Flag(),
        "n_jobs": Checked(check_jobs, "int"),
        "progress": Flag(),
        "random_state": Checked(check_seed, "int or numpy.random.SeedSequence"),
    }
    _unsaved = ("tokenizer", "random_state", "vectors")

    _features: TextFeatures
    _vectors: Vectors
    _classes: Classes
    _counts: np.ndarray
    _learned_loss: str

    def __init__(
        self,
        n_components: int = 100,
        *,
        loss: str = "softmax",
        word_ngrams: int = 2,
        min_n: int = 3,
        max_n: int = 0,
        n_buckets: int = 2_000_000,
        min_count: int = 1,
        n_negatives: int = 5,
        learning_rate: float = 0.5,
        n_epochs: int = 25,
        vectors: SubwordVectors | None = None,
        tokenizer: Callable[[str], Iterable[str]] | None = None,
        lowercase: bool = True,
        n_jobs: int | None = None,
        progress: bool = False,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.word_ngrams = word_ngrams
        self.min_n = min_n
        self.max_n = max_n
        self.n_buckets = n_buckets
        self.min_count = min_count
        self.n_negatives = n_negatives
        self.learning_rate = learning_rate
        self.n_epochs = n_epochs
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    # Learning

    def fit(self, texts: Iterable[str], y: Any) -> Self:
        """Learn from texts and their classes; whatever was learned before is forgotten.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, shape (n_texts,)
            Their classes.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        """
        self._check_parameters()
        words = self._words_of_all(texts)
        check_classification_targets(y)
        classes, labels, counts = np.unique(column_or_1d(y), return_inverse=True, return_counts=True)
        if labels.size != len(words) or not words:
            raise ValueError(
                f"y must have a class for each text: there are {len(words)} texts and {labels.size} classes"
            )
        corpus = Corpus()
        corpus.add(words)
        generator = np.random.Generator(np.random.PCG64(check_seed(self.random_state)))
        features, inputs = self._new_features(corpus, generator)
        described = _classes_of(counts)
        n_outputs = len(described.children) if self.loss == "hierarchical" else classes.size
        vectors = Vectors(inputs, np.zeros((n_outputs, inputs.shape[1]), np.float32))
        self._learn(vectors, Labelled(*features.rows(corpus), labels.astype(np.int64)), described, generator)
        self.__dict__.update(
            classes_=classes,
            n_features_out_=inputs.shape[1],
            _features=features,
            _vectors=vectors,
            _classes=described,
            _counts=counts,
            _learned_loss=self.loss,
        )
        return self

    def _new_features(self, corpus: Corpus, generator: np.random.Generator) -> tuple[TextFeatures, np.ndarray]:
        """Return the features of texts, and their first vectors."""
        d, known = self.n_components, Vocabulary((self.min_n, self.max_n), self.n_buckets)
        learned = np.zeros((0, d), np.float32)
        if self.vectors is not None:
            if not isinstance(self.vectors, SubwordVectors):
                raise TypeError(f"vectors must be SubwordVectors or None, not {type(self.vectors).__name__}")
            model = self.vectors._fitted()
            known, learned = copy.deepcopy(model.vocabulary), model.vectors.inputs
            if model.n_components != d:
                raise ValueError(f"n_components must be {model.n_components} as of vectors, not {d}")
        features = TextFeatures(known, self.word_ngrams, self.n_buckets)
        features.learn(corpus, self.min_count)
        if features.n_rows == 0:
            raise ValueError(f"no word comes {self.min_count} times: pass more texts or a smaller min_count")
        fresh = (generator.random((features.n_rows - len(learned), d), np.float32) * 2.0 - 1.0) / np.float32(d)
        return features, np.concatenate([learned, fresh])

    def _learn(self, vectors: Vectors, labelled: Labelled, classes: Classes, generator: np.random.Generator) -> None:
        n_texts = labelled.labels.size
        n_threads = check_jobs(self.n_jobs) or os.cpu_count() or 1
        streams = generator.integers(0, 2**64, n_threads, np.uint64)
        sizes, loss = np.diff(labelled.starts), _LOSSES.index(self.loss)
        fall, done = self.learning_rate / (n_texts * self.n_epochs), 0
        with progress_bar(n_texts * self.n_epochs, "text", self.progress) as report:
            for _ in range(self.n_epochs):
                order = generator.permutation(n_texts)
                ends = np.concatenate([[0], np.cumsum(sizes[order])])
                for spans in steps(ends, n_threads):
                    rate = self.learning_rate - fall * done
                    lesson = Lesson(loss, self.n_negatives, rate, fall * len(spans))

                    def learn_span(numbered: tuple[int, Any], lesson: Lesson = lesson, order: Any = order) -> None:
                        i, (first, stop) = numbered
                        learn_labelled(vectors, labelled, order[first:stop], classes, lesson, streams, i)

                    map_threads(learn_span, list(enumerate(spans)), n_threads)
                    done += spans[-1][1] - spans[0][0]
                    report(spans[-1][1] - spans[0][0])

    # Classes

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Return the most probable class of each text.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        ndarray, shape (n_texts,)
            Entries of ``classes_``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError
            If a text is not a string.
        """
        best, _ = self.top_classes(texts, 1)
        classes: np.ndarray = self.classes_[best[:, 0]]
        return classes

    def top_classes(self, texts: Iterable[str], k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` most probable classes of each text.

        With ``loss="hierarchical"`` they are found by best-first search, without scoring all classes.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        k : int, default 5
            Number of classes; as many as there are if that is less.

        Returns
        -------
        classes : ndarray of int64, shape (n_texts, k)
            Positions in ``classes_``, the best first.
        probabilities : ndarray of float32, shape (n_texts, k)
            Their probabilities. With ``loss="negative"`` each class has one of its own, and they need not sum to 1.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError, ValueError
            If a text is not a string or ``k`` is not a positive integer.
        """
        hidden = self.transform(texts)
        k = min(check_integer("k", k, 1), self.classes_.size)
        found, scores = np.zeros((len(hidden), k), np.int64), np.zeros((len(hidden), k), np.float32)
        if self._learned_loss == "hierarchical":
            best_leaves(hidden, self._vectors.outputs, self._classes, found, scores)
            return found, np.exp(scores)
        for rows in self._blocks(len(hidden)):
            probabilities = self._probabilities(hidden[rows])
            best = np.argpartition(-probabilities, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(probabilities, best, 1), axis=1, kind="stable")
            found[rows] = np.take_along_axis(best, order, 1)
            scores[rows] = np.take_along_axis(probabilities, found[rows], 1)
        return found, scores

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probability of each class for each text.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        ndarray of float64, shape (n_texts, n_classes)
            Rows sum to 1.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError
            If a text is not a string.
        """
        hidden = self.transform(texts)
        proba = np.zeros((len(hidden), self.classes_.size))
        for rows in self._blocks(len(hidden)):
            proba[rows] = self._probabilities(hidden[rows])
        proba /= proba.sum(axis=1, keepdims=True)
        return proba

    def _blocks(self, n: int) -> list[slice]:
        length = max(1, _MOST_CELLS // self.classes_.size)
        return [slice(first, first + length) for first in range(0, n, length)]

    def _probabilities(self, hidden: np.ndarray) -> np.ndarray:
        """Return the probability of each class."""
        scores = hidden @ self._vectors.outputs.T
        if self._learned_loss == "softmax":
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
            return scores
        second = 0.5 * (1.0 + np.tanh(0.5 * scores))
        if self._learned_loss == "negative":
            return second
        n_classes = self.classes_.size
        of_nodes = np.ones((len(hidden), 2 * n_classes - 1), np.float32)
        for level in levels(self._classes.children):
            above = of_nodes[:, n_classes + level]
            of_nodes[:, self._classes.children[level, 1]] = above * second[:, level]
            of_nodes[:, self._classes.children[level, 0]] = above * (1.0 - second[:, level])
        return of_nodes[:, :n_classes]

    # Keys

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """Return the hidden vectors of texts, which are keys for trees and estimators.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        ndarray of float32, shape (n_texts, n_components)
            The mean of the vectors of each text's features; zeros for a text without any that is known.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError
            If a text is not a string.
        """
        check_is_fitted(self, "n_features_out_")
        corpus = Corpus()
        corpus.add(self._words_of_all(texts))
        starts, features = self._features.rows(corpus)
        sizes = np.diff(starts)
        shares = np.repeat((1.0 / np.maximum(sizes, 1)).astype(np.float32), sizes)
        means = scipy.sparse.csr_array((shares, features, starts), (sizes.size, self._features.n_rows))
        hidden: np.ndarray = means @ self._vectors.inputs
        return hidden

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return names of the components."""
        check_is_fitted(self, "n_features_out_")
        return np.array([f"fasttextclassifier{i}" for i in range(self.n_features_out_)], object)

    # Files

    def _contents(self) -> Contents:
        check_is_fitted(self, "n_features_out_")
        known = self._features.vocabulary
        how, arrays = column("classes", self.classes_)
        described = {
            "words": known.words,
            "lengths": list(known.lengths),
            "n_buckets": known.n_buckets,
            "length": self._features.length,
            "n_buckets_of_grams": self._features.n_buckets,
            "n_parts": known.n_parts,
            "loss": self._learned_loss,
            "classes": how,
        }
        arrays |= vocabulary_arrays(known) | {
            "described": document(described),
            "grams": self._features.grams,
            "inputs": self._vectors.inputs,
            "outputs": self._vectors.outputs,
            "counts_of_classes": self._counts,
        }
        return Contents(type(self).__name__, {"parameters": self._saved_parameters()}, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        made, arrays = cls._with_parameters_of(contents), contents.arrays
        described = read_document(arrays, "described")
        require(type(described) is dict, "the description must be an object")
        inputs, outputs = (read_array(name, arrays, np.float32, n_axes=2) for name in ("inputs", "outputs"))
        numbers = ("n_buckets", "length", "n_buckets_of_grams", "n_parts")
        n_buckets, length, n_hashed, n_parts = (take(described, name, int) for name in numbers)
        lengths = take(described, "lengths", list)
        sound = len(lengths) == 2 and all(type(n) is int and 0 <= n <= 100 for n in (*lengths, length))
        require(sound and min(n_buckets, n_hashed) > 0, "the lengths of n-grams must be small integers")
        require(max(n_buckets, n_hashed) < 2**31, "there must be fewer buckets")
        words, loss = take(described, "words", list), take(described, "loss", str)
        known = read_vocabulary(words, arrays, Vocabulary((lengths[0], lengths[1]), n_buckets), n_parts)
        features = TextFeatures(known, length, n_hashed)
        features.grams = read_array("grams", arrays, np.int64)
        require(bool(np.all(np.diff(features.grams) > 0)), "n-grams must be in ascending order")
        require(n_parts >= 0 and features.n_rows == len(inputs), "each feature must have a vector")
        classes = read_column(described.get("classes"), "classes", arrays)
        counts = read_array("counts_of_classes", arrays, np.int64)
        require(classes.shape == counts.shape and counts.size > 0, "there must be a count for each class")
        require(bool(np.all((counts > 0) & (counts < 2**48))), "classes must have come")
        require(loss in _LOSSES, "the loss must be one that is known")
        n_outputs = counts.size - (loss == "hierarchical")
        require(outputs.shape == (n_outputs, inputs.shape[1]), "there must be a vector for each output")
        made.__dict__.update(
            classes_=classes,
            n_features_out_=inputs.shape[1],
            _features=features,
            _vectors=Vectors(inputs, outputs),
            _classes=_classes_of(counts),
            _counts=counts,
            _learned_loss=loss,
        )
        return made


def _classes_of(counts: np.ndarray) -> Classes:
    """Return what kernels read of classes that have come as often."""
    return Classes(*huffman_tree(counts), *alias_table(np.sqrt(counts)))
