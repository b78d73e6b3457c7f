"""The model behind SubwordVectors: vectors, word counts and training."""

import copy
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._change import map_threads, progress_bar
from .._kernels import require
from .._validation import check_jobs, check_seed
from ._base import MOST, VECTORS, are_moderate
from ._skipgram import FeatureVectors, SkipgramSettings, learn_texts
from ._vocabulary import Corpus, Vocabulary

_WORDS_IN_A_STEP = 20_000  # words that each thread learns before the learning rate decreases
_RARE = 1e-3  # a word of this frequency has weight 1/2 in smooth inverse frequency (Arora et al., 2017)
_MOST_TEXTS = 20_000  # texts from which the common direction is computed


class WordModel(files.WithFields):
    """Vectors of words and character n-grams, with the parameters of a :class:`~cmt_numba.text.SubwordVectors`."""

    FIELDS = files.FieldTable(
        vocabulary=files.PartField(Vocabulary),
        n_components=files.NumberField(1),
        vectors=VECTORS,
        waiting=files.DocumentField(),
        n_learned=files.NumberField(),
        common=files.OptionalField(files.ArrayField(np.float32, bounds=(-2, 2))),
        generator=files.GeneratorField(),
    )
    _own: np.ndarray | None = None

    def __init__(self, options: Any) -> None:
        lengths = (options.min_n, options.max_n)
        self.vocabulary = Vocabulary(lengths, options.n_buckets)
        self.n_components = options.n_components
        nothing = np.zeros((0, options.n_components), np.float32)
        self.vectors = FeatureVectors(nothing, nothing)
        self.waiting: dict[str, int] = {}  # counts of words without a vector
        self.n_learned = 0  # number of words learned in all passes
        self.common: np.ndarray | None = None  # direction that pooling="sif" removes
        self.generator = np.random.Generator(np.random.PCG64(check_seed(options.random_state)))

    def copy(self) -> "WordModel":
        copied = copy.copy(self)
        copied.vocabulary = copy.deepcopy(self.vocabulary)
        copied.vectors = FeatureVectors(self.vectors.inputs.copy(), self.vectors.outputs.copy())
        copied.waiting, copied.generator = dict(self.waiting), copy.deepcopy(self.generator)
        return copied

    def meet(self, corpus: Corpus, options: Any) -> None:
        """Count the words of texts, and create vectors for words that have become frequent enough."""
        if self.n_components != options.n_components:
            raise ValueError(f"n_components must still be {self.n_components} in partial_fit: call fit to change it")
        vocabulary, counts = self.vocabulary, corpus.counts()
        new: list[tuple[int, str]] = []
        for word, count in zip(corpus.id_of, counts.tolist(), strict=True):
            if word not in vocabulary.id_of:
                self.waiting[word] = self.waiting.get(word, 0) + count
                if self.waiting[word] >= options.min_count:
                    new.append((-self.waiting[word], word))
        new.sort()
        n_whole = options.n_whole_words if len(vocabulary) == 0 else 0
        first = len(vocabulary)
        vocabulary.add([word for _, word in new], n_whole)
        vocabulary.counts[first:] = [self.waiting.pop(word) for _, word in new]
        for word, count in zip(corpus.id_of, counts.tolist(), strict=True):
            place = vocabulary.id_of.get(word, first)
            if place < first:
                vocabulary.counts[place] += count
        d = self.n_components
        n_parts = vocabulary.n_parts - self.vectors.inputs.shape[0]
        fresh = (self.generator.random((n_parts, d), np.float32) * 2.0 - 1.0) / np.float32(d)
        outputs = np.zeros((len(vocabulary) - first, d), np.float32)
        parts = ((self.vectors.inputs, fresh), (self.vectors.outputs, outputs))
        self.vectors = FeatureVectors(*map(np.concatenate, parts))
        self._own = None

    def learn(self, corpus: Corpus, options: Any, *, falling: bool) -> None:
        """Learn from texts. Call :meth:`meet` first. If ``falling``, the learning rate falls to 0."""
        tokens, starts = corpus.encoded(self.vocabulary.id_of)
        if tokens.size == 0:
            return
        words = self.vocabulary.for_kernels(options.subsample)
        n_threads = check_jobs(options.n_jobs) or os.cpu_count() or 1
        streams = self.generator.integers(0, 2**64, n_threads, np.uint64)
        total = tokens.size * options.n_epochs
        expected = total if falling else options.n_expected_words
        done_before = 0 if falling else self.n_learned
        with progress_bar(total, "word", options.progress) as report:
            for _ in range(options.n_epochs):
                for spans in steps(starts, n_threads):
                    left = 1.0 if expected is None else max(1e-4, 1.0 - done_before / expected)
                    rate = options.learning_rate * left
                    settings = SkipgramSettings(options.window, options.n_negatives, options.method == "cbow", rate)

                    def learn_span(numbered: tuple[int, tuple[int, int]]) -> None:
                        i, (a, b) = numbered
                        learn_texts(self.vectors, words, tokens, starts[a : b + 1], settings, streams, i)  # noqa: B023

                    map_threads(learn_span, list(enumerate(spans)), n_threads)
                    n = int(starts[spans[-1][1]] - starts[spans[0][0]])
                    done_before += n
                    report(n)
        if not are_moderate(*self.vectors):
            raise ValueError(f"the vectors diverged with learning_rate={options.learning_rate}: use a smaller value")
        self.n_learned = done_before
        self._own = None
        self._find_common(tokens, starts)

    def _find_common(self, tokens: np.ndarray, starts: np.ndarray) -> None:
        """Compute the common direction: the first right singular vector of the matrix of text vectors."""
        last = min(starts.size - 1, _MOST_TEXTS)
        starts, tokens = starts[: last + 1], tokens[: starts[last]]
        sizes = np.diff(starts)
        cells = (self._weights()[tokens] / np.repeat(np.maximum(sizes, 1), sizes), tokens, starts)
        shares = scipy.sparse.csr_array(cells, (sizes.size, len(self.vocabulary)))
        pooled = shares.astype(np.float32) @ self.own_vectors()
        _, vectors = np.linalg.eigh(pooled.T.astype(np.float64) @ pooled)
        common = vectors[:, -1]
        self.common = (common * np.sign(common[np.argmax(np.abs(common))])).astype(np.float32)

    def _weights(self) -> np.ndarray:
        """Return each word's smooth inverse frequency."""
        counts = self.vocabulary.counts
        return (_RARE / (_RARE + counts / max(1, counts.sum()))).astype(np.float32)

    def own_vectors(self) -> np.ndarray:
        """Return the vector of each word: the mean of the vectors of the word itself and its n-grams."""
        if self._own is None:
            vocabulary = self.vocabulary
            sizes = np.diff(vocabulary.starts)
            shares = np.repeat((1.0 / np.maximum(sizes, 1)).astype(np.float32), sizes)
            cells = (shares, vocabulary.parts, vocabulary.starts)
            parts = scipy.sparse.csr_array(cells, (len(vocabulary), vocabulary.n_parts))
            self._own = parts @ self.vectors.inputs
        return self._own

    def directions(self) -> np.ndarray:
        return unit(self.own_vectors())

    def vectors_of(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words. An unknown word gets the mean of its known n-grams, or zeros."""
        answer = np.zeros((len(words), self.n_components), np.float32)
        for i, word in enumerate(words):
            rows = self.vocabulary.rows_of(word)
            if rows.size:
                answer[i] = self.vectors.inputs[rows].mean(axis=0)
        return answer

    def pooled(self, texts: list[list[str]], pooling: str) -> np.ndarray:
        """Return the mean of each text's word vectors, weighted if ``pooling`` is "sif"."""
        id_of, weights = self.vocabulary.id_of, self._weights()
        new: dict[str, int] = {}
        words = [word for text in texts for word in text]
        found = [id_of[word] if word in id_of else len(id_of) + new.setdefault(word, len(new)) for word in words]
        numbers = np.array(found, np.int64)
        vectors = np.concatenate([self.own_vectors(), self.vectors_of(list(new))])
        weights = np.concatenate([weights if pooling == "sif" else np.ones(len(id_of)), np.ones(len(new))])
        weights[~vectors.any(axis=1)] = 0.0
        of_text = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        sizes = np.maximum(np.bincount(of_text, weights[numbers] > 0, len(texts)), 1.0)
        cells = (weights[numbers] / sizes[of_text], (of_text, numbers))
        return scipy.sparse.csr_array(cells, (len(texts), vectors.shape[0]), dtype=np.float32) @ vectors

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "WordModel":
        model = super()._of_fields(values)
        d, vocabulary, waiting = model.n_components, model.vocabulary, model.waiting
        require(model.vectors.inputs.shape == (vocabulary.n_parts, d), "each part must have a vector")
        require(model.vectors.outputs.shape == (len(vocabulary), d), "each word must have a vector")
        require(model.common is None or model.common.size == d, "the common direction must be a vector")
        sound = type(waiting) is dict and all(type(n) is int and 0 <= n < MOST for n in waiting.values())
        require(sound, "counts must be integers")
        return model


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1. Zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0.0, lengths, 1.0)


def steps(starts: np.ndarray, n_threads: int) -> Iterator[list[tuple[int, int]]]:
    """Yield steps: a list of spans ``(first, stop)`` of texts, one per thread, with similar numbers of words."""
    n_texts, first = starts.size - 1, 0
    while first < n_texts:
        stop = int(np.searchsorted(starts, starts[first] + n_threads * _WORDS_IN_A_STEP, side="left"))
        stop = min(max(stop, first + 1), n_texts)
        inner = np.searchsorted(starts, np.linspace(starts[first], starts[stop], n_threads + 1)[1:-1])
        bounds = [first, *np.clip(inner, first, stop).tolist(), stop]
        yield [(a, b) for a, b in pairwise(bounds) if b > a]
        first = stop
