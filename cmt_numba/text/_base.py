"""Code that vectorizers and text classifiers share: validation and files."""

import os
import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from .. import persistence as files
from .._kernels import require
from .._validation import Constrained, check_parameters
from .._words import check_tokenizer, words_by, words_of
from ._skipgram import FeatureVectors

_WORDS = "words_of"  # the analyzer in files
_FUNCTIONS = ("analyzer", "tokenizer", "preprocessor")
MOST = 1e15  # maximum magnitude of a learned number, so that products and sums stay finite in float32
_MATRIX = files.ArrayField(np.float32, n_axes=2, bounds=(-MOST, MOST))
VECTORS = files.TupleField(FeatureVectors, inputs=_MATRIX, outputs=_MATRIX)  # kind of a field of learned vectors


def are_moderate(*arrays: np.ndarray) -> bool:
    """Return whether all learned numbers are finite and at most ``MOST`` in magnitude."""
    return all(bool(np.all(np.abs(array) <= MOST)) for array in arrays)


def check_texts(name: str, texts: Any, *, of_any_type: bool = False, or_none: bool = False) -> list[Any]:
    """Return texts as a list of plain strings, and other elements unchanged if ``of_any_type`` is true."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"{name} must be an iterable of texts, got {type(texts).__name__}; pass [text] for one")
    n_dimensions = getattr(texts, "ndim", 1)
    if n_dimensions != 1:
        raise ValueError(f"{name} must be one-dimensional, got {n_dimensions} dimensions: pass one text for each row")
    listed = list(texts)
    if not listed and not or_none:
        raise ValueError(f"{name} must contain at least one text")
    for i, text in enumerate(listed):
        if isinstance(text, str):
            listed[i] = _check_characters(f"{name}[{i}]", text)
        elif not of_any_type:
            raise TypeError(f"{name} must contain strings, but {name}[{i}] is {type(text).__name__}: convert it first")
    return listed


def _check_characters(name: str, text: str) -> str:
    """Return a plain string. Raise ValueError for lone surrogates, which no file or hash can represent."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(text[error.start]):04X}"
            raise ValueError(
                f"{name} must be valid Unicode, but has the lone surrogate {surrogate} at position {error.start}: "
                'remove it, for example with text.encode(errors="ignore").decode()'
            ) from None
    return str(text)


class SavableText(files.Saved, Constrained, BaseEstimator):
    """Text estimator that can be saved to a file."""

    _unsaved: ClassVar[tuple[str, ...]] = ("tokenizer", "random_state")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learned values and the parameters to a file, except functions, seeds and other estimators.

        An existing file is replaced atomically.
        """
        super().save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Load an object from a file written by :meth:`save`. With ``mmap``, the vectors are memory-mapped."""
        return files.object_of((cls,), path, mmap=mmap)

    def _check_parameters(self) -> Any:
        check_parameters(self, self._constraints)

    @property
    def _parameters(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name not in self._unsaved}

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made = cls(**values.pop("_parameters"))
        made._check_parameters()
        made.__dict__.update(values)
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


class TextEstimator(ClassNamePrefixFeaturesOutMixin, SavableText):
    """An estimator that learns from the words of texts."""

    tokenizer: Callable[[str], Iterable[str]] | None
    lowercase: bool
    min_n: int
    max_n: int
    n_features_out_: int

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def _check_parameters(self) -> None:
        check_parameters(self, self._constraints)
        if self.max_n and self.max_n < self.min_n:
            raise ValueError(f"max_n must be 0 or at least min_n={self.min_n}, got {self.max_n}")
        check_tokenizer(self.tokenizer)

    def _words_of(self, text: str) -> list[str]:
        if self.tokenizer is None:
            return words_of(text, keep_case=not self.lowercase)
        return words_by(self.tokenizer, text.lower() if self.lowercase else text)

    def _words_of_all(self, texts: Any) -> list[list[str]]:
        return [self._words_of(text) for text in check_texts("texts", texts, or_none=True)]


class TfidfField:
    """A fitted TfidfVectorizer, perhaps with the analyzer :func:`words_of`."""

    def put(self, name: str, value: Any, arrays: files.Arrays) -> Any:
        check_is_fitted(value)
        parameters = value.get_params(deep=False)
        if value.analyzer is words_of:
            parameters["analyzer"] = _WORDS
        packed = SimpleNamespace(
            parameters=plain_parameters(parameters, ("dtype", "vocabulary")),
            dtype=np.dtype(value.dtype).name,
            vocabulary_=value.vocabulary_,
            idf_=value.idf_ if value.use_idf else None,
        )
        return _OF_TFIDF.put(name, packed, arrays)

    def get(self, name: str, field: Any, arrays: files.Arrays, *, thorough: bool) -> Any:
        found = _OF_TFIDF.get(name, field, arrays, thorough=thorough)
        parameters = read_parameters(found["parameters"])
        if parameters.get("analyzer") == _WORDS:
            parameters["analyzer"] = words_of
        made = TfidfVectorizer(**parameters, dtype=np.dtype(found["dtype"]).type)
        made._validate_params()
        check_analyzer(made.build_analyzer)
        made.vocabulary_, idf = found["vocabulary_"], found["idf_"]
        require((idf is not None) == made.use_idf, "there must be an idf if and only if use_idf is true")
        if idf is not None:
            require(idf.size == len(made.vocabulary_), "every term must have an idf")
            made.idf_ = idf
        return made


def plain_parameters(given: dict[str, Any], left_out: tuple[str, ...]) -> dict[str, Any]:
    """Return parameters except functions."""
    functions = {name for name in _FUNCTIONS if callable(given.get(name))}
    return {name: value for name, value in given.items() if name not in (*left_out, *functions)}


def read_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters saved in a file. JSON lists become tuples again."""
    parameters, span, words = dict(given), given.get("ngram_range"), given.get("stop_words")
    if isinstance(span, list):
        require(len(span) == 2 and all(type(n) is int for n in span), "ngram_range must be two integers")
        parameters["ngram_range"] = tuple(span)
    require(type(words) is not list or all(type(word) is str for word in words), "stop_words must be text")
    return parameters


def check_analyzer(build_analyzer: Callable[[], Any]) -> None:
    """Raise ValueError if ``token_pattern`` is not a valid regular expression."""
    try:
        build_analyzer()
    except re.error as error:
        raise ValueError(f"token_pattern must be a regular expression: {error}") from error


class TermsField:
    """A vocabulary: terms with the columns 0, 1, 2, ..."""

    _terms = files.TextsField(are_distinct=True)

    def put(self, name: str, value: dict[str, int], arrays: files.Arrays) -> dict[str, Any]:
        terms = sorted(value, key=value.__getitem__)
        if not all(type(term) is str for term in terms):
            raise TypeError("terms must be text to be saved")
        return self._terms.put(name, terms, arrays)

    def get(self, name: str, field: Any, arrays: files.Arrays, *, thorough: bool) -> dict[str, int]:
        terms = self._terms.get(name, field, arrays, thorough=thorough)
        require(len(terms) > 0, "there must be terms")
        return {term: place for place, term in enumerate(terms)}


_OF_TFIDF = files.FieldTable(
    parameters=files.OptionsField(),
    dtype=files.NameField("float32", "float64"),
    vocabulary_=TermsField(),
    idf_=files.OptionalField(files.ArrayField(np.float64, bounds=(-MOST, MOST))),
)
