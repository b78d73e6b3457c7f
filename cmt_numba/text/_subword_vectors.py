"""Word vectors with subword information, and dense keys that average them."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .. import _validation as checks
from .. import persistence as files
from .._kernels import require
from ._base import TextEstimator, check_texts
from ._vocabulary import Corpus
from ._word_model import WordModel, unit

_NO_DIVISION_BY_ZERO = 0.001


@dataclass(eq=False, repr=False)
class SubwordVectors(TransformerMixin, TextEstimator):
    """Learn word vectors from texts without classes, and turn texts into the mean of their word vectors.

    A word's vector is the mean of the vectors of the word itself and of its character n-grams, so words with similar
    spelling have similar vectors, and unseen words have vectors too (Bojanowski et al., Enriching word vectors with
    subword information, 2017).

    Parameters
    ----------
    n_components : int, default 100
        Length of the vectors.
    method : {"skipgram", "cbow"}, default "skipgram"
        "skipgram" predicts neighbours from a word. "cbow" predicts a word from its neighbours, which is faster.
    min_n, max_n : int, default 3 and 6
        Minimum and maximum length of a character n-gram. A mark before and after each word counts as a character. No
        n-grams are used if ``max_n`` is 0.
    n_buckets : int, default 2,000,000
        Number of hash buckets for n-grams. Only buckets that occur take memory: 4 bytes per component.
    n_whole_words : int, default 0
        Number of words without n-grams: the most frequent words of the first texts.
    window : int, default 5
        Maximum distance between neighbours. For each word, a random distance from 1 to ``window`` is used.
    n_negatives : int, default 5
        Number of random words that each neighbour is compared with.
    min_count : int, default 5
        Minimum number of occurrences of a word with its own vector.
    subsample : float in [0, 1], default 1e-4
        Randomly skip occurrences of words with a higher frequency. 0 skips nothing.
    learning_rate : float, default 0.05
        Initial step size. In :meth:`fit`, the step size falls to 0.
    n_epochs : int, default 5
        Number of passes over the texts.
    n_expected_words : int, optional
        Number of words, over all passes, after which the step size of :meth:`partial_fit` reaches 0. By default the
        step size is constant.
    pooling : {"mean", "sif"}, default "mean"
        How word vectors are combined. "sif" weights them by smooth inverse frequency and removes the common direction
        of the training texts (Arora et al., A simple but tough-to-beat baseline for sentence embeddings, 2017).
    tokenizer : callable, optional
        Function that returns the words of a text. By default, words are runs of letters, digits and underscores.
    lowercase : bool, default True
        Whether to convert texts to lower case.
    n_jobs : int, optional
        Number of threads: 1 by default, -1 for all processors. With one thread, the same seed gives the same vectors.
        Several threads write to the same vectors without locks, so results differ slightly between runs.
    progress : bool, default False
        Whether to show a progress bar.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Attributes
    ----------
    n_features_out_ : int
        Length of the vectors.

    Examples
    --------
    >>> texts = ["the red fox", "the blue whale", "a red planet", "a blue planet"] * 20
    >>> vectors = SubwordVectors(10, min_count=1, random_state=0).fit(texts)
    >>> vectors.transform(["the redder fox"]).shape
    (1, 10)
    """

    n_components: Annotated[int, checks.Integer(1, 2**14)] = 100
    _: KW_ONLY
    method: Annotated[str, checks.OneOf(("skipgram", "cbow"))] = "skipgram"
    min_n: Annotated[int, checks.Integer(1, 100)] = 3
    max_n: Annotated[int, checks.Integer(0, 100)] = 6
    n_buckets: Annotated[int, checks.Integer(1, 2**31 - 1)] = 2_000_000
    n_whole_words: Annotated[int, checks.Integer(0)] = 0
    window: Annotated[int, checks.Integer(1, 1000)] = 5
    n_negatives: Annotated[int, checks.Integer(1, 1000)] = 5
    min_count: Annotated[int, checks.Integer(1)] = 5
    subsample: Annotated[float, checks.Real(0.0, 1.0)] = 1e-4
    learning_rate: Annotated[float, checks.Real(0.0, 1e3, above=True)] = 0.05
    n_epochs: Annotated[int, checks.Integer(1, 10_000)] = 5
    n_expected_words: Annotated[int | None, checks.Optional(checks.Integer(1, 2**62))] = None
    pooling: Annotated[str, checks.OneOf(("mean", "sif"))] = "mean"
    tokenizer: Callable[[str], Iterable[str]] | None = None
    lowercase: Annotated[bool, checks.Flag()] = True
    n_jobs: checks.Jobs = None
    progress: Annotated[bool, checks.Flag()] = False
    random_state: checks.Seed = None

    # Learning

    FIELDS = files.FieldTable(_parameters=files.OptionsField(), _model=files.PartField(WordModel))
    _model: WordModel = field(init=False)

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn vectors from sentences or other short texts. Earlier texts are forgotten.

        The texts are read once and take 4 bytes per word.
        """
        self._check_parameters()
        return self._learn(WordModel(self), texts, falling=True)

    def partial_fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn from additional texts, which must fit into memory.

        Words get a vector once they have occurred ``min_count`` times in all calls.
        """
        self._check_parameters()
        model = WordModel(self) if not hasattr(self, "_model") else self._model.copy()
        return self._learn(model, texts, falling=False)

    def _learn(self, model: WordModel, texts: Iterable[str], *, falling: bool) -> Self:
        """Train ``model``, then swap it in. An error or interrupt therefore changes nothing."""
        corpus = Corpus()
        corpus.add(self._words_of(text) for text in check_texts("texts", texts, or_none=True))
        model.meet(corpus, self)
        if falling and len(model.vocabulary) == 0:
            raise ValueError(f"no word occurs at least {self.min_count} times: pass more texts or a smaller min_count")
        model.learn(corpus, self, falling=falling)
        self._model = model
        self.n_features_out_ = self.n_components
        return self

    # Words

    @property
    def words_(self) -> list[str]:
        """Words that have their own vector."""
        return list(self._fitted().vocabulary.words)

    @property
    def counts_(self) -> np.ndarray:
        """The number of occurrences of each word."""
        return self._fitted().vocabulary.counts.copy()

    def _fitted(self) -> WordModel:
        check_is_fitted(self, "n_features_out_")
        return self._model

    def __contains__(self, word: object) -> bool:
        return word in self._fitted().vocabulary.id_of

    def word_vectors(self, words: Iterable[str]) -> np.ndarray:
        """Return the vectors of words: float32, shape (n, n_components).

        Words must be in lower case if ``lowercase`` is true. An unknown word gets the mean of its known n-grams, or
        zeros if it has none.
        """
        model = self._fitted()
        return model.vectors_of(check_texts("words", words, or_none=True))

    def nearest_words(self, word: str | Any, k: int = 10) -> list[tuple[str, float]]:
        """Return the ``k`` words whose vectors have the largest cosine with a word or vector, and these cosines.

        The word may be unknown, and is itself excluded from the result.
        """
        if isinstance(word, str):
            return self._near(self.word_vectors([word])[0], k, {word})
        vector = np.asarray(word, np.float32)
        if vector.shape != (self.n_features_out_,) or not np.isfinite(vector).all():
            raise ValueError(f"the vector must have {self.n_features_out_} finite numbers, got shape {vector.shape}")
        return self._near(vector, k, set())

    def analogies(self, a: str, b: str, c: str, k: int = 10, *, method: str = "add") -> list[tuple[str, float]]:
        """Return the ``k`` words that relate to ``c`` as ``b`` relates to ``a``, and their scores, best first.

        The three words are excluded from the result. With ``method="add"``, the score of a word is its cosine with
        ``b - a + c``. "mul" multiplies its cosines with ``b`` and ``c``, and divides by its cosine with ``a``, after
        shifting all cosines to [0, 1] (Levy and Goldberg, Linguistic regularities in sparse and explicit word
        representations, 2014). All vectors are scaled to length 1 first.
        """
        checks.OneOf(("add", "mul")).check("method", method)
        vectors = unit(self.word_vectors([a, b, c]))
        if method == "add":
            return self._near(vectors[1] - vectors[0] + vectors[2], k, {a, b, c})
        from_a, from_b, from_c = (self._fitted().directions() @ vectors.T + 1.0).T / 2.0
        return self._best(from_b * from_c / (from_a + _NO_DIVISION_BY_ZERO), k, {a, b, c})

    def _near(self, vector: np.ndarray, k: int, left_out: set[str]) -> list[tuple[str, float]]:
        return self._best(self._fitted().directions() @ unit(vector[None])[0], k, left_out)

    def _best(self, scores: np.ndarray, k: int, left_out: set[str]) -> list[tuple[str, float]]:
        k, words = checks.check_integer("k", k, 1), self._fitted().vocabulary.words
        order = np.argsort(-scores, kind="stable")[: k + len(left_out)]
        found = [(words[i], float(scores[i])) for i in order]
        return [pair for pair in found if pair[0] not in left_out][:k]

    # Texts

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """Return the vectors of texts: float32, shape (n, n_components); zeros if no word of the text has a vector."""
        model = self._fitted()
        pooled = model.pooled(self._words_of_all(texts), self.pooling)
        if self.pooling == "sif" and model.common is not None:
            pooled -= np.outer(pooled @ model.common, model.common)
        return pooled

    # Files

    def _packed(self) -> Self:
        self._fitted()
        return self

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made = super()._of_fields(values)
        require(made._model.n_components == made.n_components, "vectors must have n_components")
        made.n_features_out_ = made.n_components
        return made
