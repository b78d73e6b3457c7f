"""Vectorizers in files: what each has learned, as JSON and plain arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from .._forest.invariants.errors import require
from ..persistence._columns import document, read_array, read_document
from ..persistence._container import Contents
from ..persistence._trees import take
from ._counting import MOST, are_moderate
from ._learned import SavableText

_FUNCTIONS = ("analyzer", "tokenizer", "preprocessor")
_TFIDF = TfidfVectorizer.__name__


def contents_of(vectorizer: Any) -> Contents:
    """Return what a vectorizer is in a file.

    Raises
    ------
    TypeError
        If it is neither of this library nor a TfidfVectorizer, or something of it is of a type that cannot be saved.
    """
    if isinstance(vectorizer, SavableText):
        return vectorizer._contents()
    if type(vectorizer) is not TfidfVectorizer:
        kinds = f"a vectorizer of cmt_numba.text or a {_TFIDF}"
        raise TypeError(f"only {kinds} can be saved, not {type(vectorizer).__name__}")
    check_is_fitted(vectorizer)
    parameters = plain_parameters(vectorizer.get_params(deep=False), ("dtype", "vocabulary"))
    arrays = {"terms": _terms(vectorizer.vocabulary_)}
    if vectorizer.use_idf:
        arrays["idf"] = np.asarray(vectorizer.idf_, np.float64)
    return Contents(_TFIDF, {"parameters": parameters, "dtype": np.dtype(vectorizer.dtype).name}, arrays)


def vectorizer_of(contents: Contents, kinds: dict[str, Any]) -> Any:
    """Return the vectorizer of a file: a TfidfVectorizer, or one of ``kinds``, classes by their names.

    Raises
    ------
    InvariantError, TypeError, ValueError
        If there is none.
    """
    if contents.kind in kinds:
        return kinds[contents.kind]._made_of(contents)
    require(contents.kind == _TFIDF, f"there is no vectorizer of the kind {contents.kind!r:.50}")
    dtype = take(contents.fields, "dtype", str)
    require(dtype in ("float32", "float64"), "dtype must be float32 or float64")
    parameters = read_parameters(contents)
    made = TfidfVectorizer(**parameters, dtype=np.dtype(dtype).type)
    made._validate_params()
    check_analyzer(made)
    terms = _read_terms(contents.arrays)
    made.vocabulary_ = {term: place for place, term in enumerate(terms)}
    if made.use_idf:
        idf = read_array("idf", contents.arrays, np.float64)
        require(idf.shape == (len(terms),) and are_moderate(idf), "there must be an idf for each term")
        made.idf_ = idf
    return made


def bm25_contents(vectorizer: Any) -> Contents:
    """Return what a BM25Vectorizer is in a file."""
    check_is_fitted(vectorizer, "document_frequency_")
    numbers = {name: getattr(vectorizer, name) for name in ("n_documents_", "n_terms_", "length_")}
    arrays = {"document_frequency": np.asarray(vectorizer.document_frequency_, np.int64)}
    if vectorizer.vocabulary_ is not None:
        arrays["terms"] = _terms(vectorizer.vocabulary_)
    if vectorizer.term_weights_ is not None:
        arrays["term_weights"] = np.asarray(vectorizer.term_weights_, np.float64)
    parameters = plain_parameters(vectorizer.get_params(deep=False), ())
    return Contents(type(vectorizer).__name__, {"parameters": parameters, "learned": numbers}, arrays)


def bm25_of(kind: Any, contents: Contents) -> Any:
    """Return the BM25Vectorizer of a file. Raises InvariantError, TypeError or ValueError if it is none."""
    made, learned, arrays = kind(**read_parameters(contents)), take(contents.fields, "learned", dict), contents.arrays
    check_analyzer(made._check_parameters())
    frequency = read_array("document_frequency", arrays, np.int64)
    n_documents, n_terms = take(learned, "n_documents_", int), take(learned, "n_terms_", int)
    require(0 < n_documents < 2**48 and 0 < n_terms < 2**48, "there must be documents and terms")
    require(frequency.size > 0 and bool(np.all((frequency >= 0) & (frequency <= n_documents))), "frequencies are wrong")
    length = take(learned, "length_", float, type(None))
    require((length is not None) == (made.norm == "append"), "there must be a length if it is appended")
    require(length is None or 0.0 < length <= MOST, "the length must be positive")
    vocabulary = None
    if made.n_features is None:
        terms = _read_terms(arrays)
        vocabulary = {term: place for place, term in enumerate(terms)}
        require(len(terms) == frequency.size, "there must be a frequency for each term")
    else:
        require(frequency.size == made.n_features, "there must be a frequency for each column")
    weights = read_array("term_weights", arrays, np.float64) if "term_weights" in arrays else None
    if weights is not None:
        sound = weights.shape == frequency.shape and are_moderate(weights) and bool(np.all(weights >= 0.0))
        require(sound, "there must be a weight for each term")
    made.__dict__.update(
        vocabulary_=vocabulary,
        document_frequency_=np.array(frequency),
        n_documents_=n_documents,
        n_terms_=n_terms,
        length_=length,
        term_weights_=weights,
    )
    return made


def plain_parameters(given: dict[str, Any], left_out: tuple[str, ...]) -> dict[str, Any]:
    """Return parameters as JSON has them, without functions."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if name not in left_out and not (name in _FUNCTIONS and callable(value))
    }


def read_parameters(contents: Contents) -> dict[str, Any]:
    """Return the parameters of a file, with ranges as tuples."""
    parameters: dict[str, Any] = dict(take(contents.fields, "parameters", dict))
    span = parameters.get("ngram_range")
    if isinstance(span, list):
        require(len(span) == 2 and all(type(n) is int for n in span), "ngram_range must be two integers")
        parameters["ngram_range"] = tuple(span)
    words = parameters.get("stop_words")
    require(type(words) is not list or all(type(word) is str for word in words), "stop_words must be text")
    return parameters


def check_analyzer(counter: CountVectorizer) -> None:
    """Raise ValueError unless a counter can analyse texts."""
    try:
        counter.build_analyzer()
    except re.error as error:
        raise ValueError(f"token_pattern must be a regular expression: {error}") from error


def with_prefix(prefix: str, contents: Contents) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the fields and arrays of what is part of another file, the arrays under names with a prefix."""
    arrays = {f"{prefix}.{name}": array for name, array in contents.arrays.items()}
    return {"kind": contents.kind, "fields": contents.fields}, arrays


def of_prefix(prefix: str, field: Any, arrays: dict[str, np.ndarray]) -> Contents:
    """Return the contents that :func:`with_prefix` has put into another file."""
    require(type(field) is dict, f"{prefix} must be a mapping")
    inner = {name.removeprefix(f"{prefix}."): array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
    return Contents(take(field, "kind", str), take(field, "fields", dict), inner)


def _terms(vocabulary: dict[Any, int]) -> np.ndarray:
    terms = sorted(vocabulary, key=vocabulary.__getitem__)
    if not all(type(term) is str for term in terms):
        raise TypeError("terms must be text to be saved")
    return document(terms)


def _read_terms(arrays: dict[str, np.ndarray]) -> list[str]:
    terms = read_document(arrays, "terms")
    require(type(terms) is list and all(type(term) is str for term in terms), "terms must be text")
    require(len(set(terms)) == len(terms) > 0, "terms must be distinct")
    return list(terms)
