"""BM25 keys: sparse vectors of documents and queries whose inner product is the BM25 score."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from itertools import repeat
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import murmurhash3_32
from sklearn.utils.validation import check_is_fitted

from .. import persistence as files
from .._arrays import WeightedRows
from .._kernels import require
from .._validation import Integer, OneOf, Optional, Real, check_parameters
from .._words import (
    check_same_tokenizer,
    idf_of,
    name_of_tokenizer,
    query_weight,
    saturation_of,
    terms_of,
    text_weights,
    words_of,
)
from . import _base as base

_MOST_COLUMNS = 2**28
_LEAST = 1e-300
_ANALYSIS = "_analysis"  # attribute that caches the last call's parameter names, values and analyzer


@dataclass(eq=False, repr=False)
class BM25Vectorizer(TransformerMixin, base.SavableText):
    r"""Turn texts into sparse vectors whose inner product is the BM25 score of a document for a query.

    BM25 (Robertson et al., 1995; idf as in Lucene) weighs a term of a document by

        idf * tf / (tf + k1 * (1 - b + b * length / mean_length)),

    and a term of a query by ``tf * (k3 + 1) / (tf + k3)``. Documents and queries are weighted differently:
    :meth:`fit_transform` and :meth:`transform_documents` return keys to store, and :meth:`transform` returns keys for
    queries. In a :class:`~sklearn.pipeline.Pipeline`, ``fit`` calls ``fit_transform`` and ``predict`` calls
    ``transform``.

    Trees and estimators compare keys by cosine, which divides the score by the length of the document's vector. By
    default, document vectors therefore get an additional feature, which gives them all the same length. The feature is
    0 in queries. The cosine then ranks documents exactly as the inner product does (Bachrach et al., 2014).

    Parameters
    ----------
    k1 : float, default 1.5
        Weight of repeated occurrences of a term in a document. With 0, only the first occurrence counts.
    b : float in [0, 1], default 0.75
        Strength of the normalisation by document length.
    k3 : float, default 1.0
        Weight of repeated occurrences of a term in a query, like ``k1``.
    query_idf : float in [0, 1], default 0.5
        Exponent of the idf in query vectors. Document vectors contain the idf to the power ``1 - query_idf``, so the
        inner product does not depend on this parameter. 0.5 suits ``norm="l2"`` and estimators that learn from stored
        vectors. With 1.0, document vectors contain no idf, so updated frequencies also apply to stored documents.
    norm : {"append", "l2"} or None, default "append"
        How vectors are normalised. "append" appends the feature described above. "l2" scales vectors to length 1, which
        changes the BM25 ranking slightly. None leaves vectors unchanged, for search engines that use the inner product.
    tokenizer : callable, optional
        Returns the terms of a text, for example with a stemmer. Files contain only its name; pass it again after
        loading. By default, terms are words in any script, and parts of words: prefixes, which words with other endings
        share, and pairs or triples of characters in scripts without spaces. A :class:`~cmt_numba.MemoryStore` has the
        same terms, and therefore the same scores, for its texts.
    analyzer, ngram_range, lowercase, strip_accents, token_pattern, stop_words
        As for scikit-learn's :class:`~sklearn.feature_extraction.text.CountVectorizer`. A callable ``analyzer`` takes a
        text of any type and returns its terms. Word n-grams do not contain parts of words. The default terms ignore
        case; ``lowercase=False`` requires a ``token_pattern`` or a ``tokenizer``.
    max_df, min_df : float in [0, 1] or int, default 1.0 and 1
        Ignore terms that occur in more or fewer documents than this fraction (float) or number (int). Not allowed with
        ``n_features``.
    n_features : int, optional
        Number of columns that terms are hashed to. By default, each term of the first documents gets its own column.

    Attributes
    ----------
    vocabulary_ : dict
        The column of each term; None if terms are hashed.
    document_frequency_ : ndarray of int64, shape (n_columns,)
        Number of documents in which the terms of each column occur.
    n_documents_ : int
        Number of counted documents.
    n_terms_ : int
        Total number of terms in the counted documents.
    length_ : float
        With ``norm="append"``, the length of all document vectors, taken from the longest vector of the first
        documents. Longer vectors of later documents are scaled down.

    Notes
    -----
    Use these keys to search for single texts. For classification, tf-idf keys or ``norm="l2"`` have a lower error rate.

    Stored vectors keep the statistics of earlier documents, so start a stream with a representative batch.

    Examples
    --------
    >>> from cmt_numba import ContextualMemoryTree
    >>> from cmt_numba.text import BM25Vectorizer
    >>> vectorizer = BM25Vectorizer()
    >>> tree = ContextualMemoryTree(random_state=0)
    >>> ids = tree.insert(vectorizer.fit_transform(["a red fox", "a blue whale", "the red planet"]))
    >>> int(tree.query(vectorizer.transform(["whale, blue"])).ids[0, 0])
    1
    """

    FIELDS = files.FieldTable(
        _parameters=files.OptionsField(),
        vocabulary_=files.OptionalField(base.TermsField()),
        document_frequency_=files.ArrayField(np.int64, bounds=(0, 2**48)),
        n_documents_=files.NumberField(1, 2**48),
        n_terms_=files.NumberField(1, 2**48),
        length_=files.OptionalField(files.RealField(_LEAST, base.MOST)),
        _tokenizer=files.OptionalField(files.TextField()),
    )
    _tokenizer: str | None = field(default=None, init=False)  # name of the tokenizer of the fitted documents

    _: KW_ONLY
    k1: Annotated[float, Real(0.0, 1e6)] = 1.5
    b: Annotated[float, Real(0.0, 1.0)] = 0.75
    k3: Annotated[float, Real(0.0, 1e6)] = 1.0
    query_idf: Annotated[float, Real(0.0, 1.0)] = 0.5
    norm: Annotated[str | None, Optional(OneOf(("append", "l2")))] = "append"
    analyzer: str | Callable[[Any], Iterable[str]] = "word"
    ngram_range: tuple[int, int] = (1, 1)
    lowercase: bool = True
    strip_accents: str | None = None
    tokenizer: Callable[[str], Iterable[str]] | None = None
    token_pattern: str | None = None
    stop_words: str | list[str] | None = None
    max_df: float = 1.0
    min_df: float = 1
    n_features: Annotated[int | None, Optional(Integer(1, _MOST_COLUMNS))] = None

    # Documents

    def fit(self, documents: Iterable[Any], y: Any = None) -> Self:
        """Count the terms of documents. Earlier documents are forgotten."""
        self._fit(documents)
        return self

    def fit_transform(self, documents: Iterable[Any], y: Any = None) -> Any:
        """Count the terms of documents and return keys to store: a ``scipy.sparse.csr_array`` of float32.

        This is faster than :meth:`fit` followed by :meth:`transform_documents`. Earlier documents are forgotten.
        """
        return self._stored(self._fit(documents))

    def partial_fit(self, documents: Iterable[Any], y: Any = None) -> Self:
        """Count the terms of additional documents.

        Without ``n_features``, the first call determines the vocabulary, and new terms of later documents are ignored.
        Pass ``n_features`` for streams with new terms.
        """
        if not hasattr(self, "document_frequency_"):
            return self.fit(documents)
        counts = self._count_known("documents", documents)
        frequency = self.document_frequency_ + np.bincount(counts.indices, minlength=self.document_frequency_.size)
        n_documents, n_terms = self.n_documents_ + counts.shape[0], self.n_terms_ + int(counts.data.sum(dtype=float))
        self.__dict__.update(document_frequency_=frequency, n_documents_=n_documents, n_terms_=n_terms)
        return self

    def transform_documents(self, texts: Iterable[Any]) -> Any:
        """Return keys to store for additional documents, without counting their terms.

        The result is a ``scipy.sparse.csr_array`` of float32. Terms without a column are ignored.
        """
        return self._stored(self._count_known("texts", texts))

    # Queries

    def transform(self, texts: Iterable[Any]) -> Any:
        """Return keys for queries: a ``scipy.sparse.csr_array`` of float32. Terms without a column are ignored."""
        counts = self._count_known("texts", texts)
        weights = query_weight(counts.data, self.k3) * self._idf(counts.indices, self.query_idf)
        return self._as_keys(counts, weights, None)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the column names: terms, or "hash0", "hash1", ...; "norm" for an appended feature."""
        check_is_fitted(self, "document_frequency_")
        if self.vocabulary_ is None:
            names = [f"hash{column}" for column in range(self.document_frequency_.size)]
        else:
            names = sorted(self.vocabulary_, key=self.vocabulary_.__getitem__)
        return np.array(names + ["norm"] * (self.length_ is not None), object)

    def _check_parameters(self) -> CountVectorizer:
        check_parameters(self, self._constraints)
        if self.n_features is not None and (self.max_df != 1.0 or self.min_df not in (0, 1)):
            raise ValueError("max_df and min_df need a vocabulary: pass n_features=None, or omit max_df and min_df")
        names = ("analyzer", "ngram_range", "lowercase", "strip_accents", "tokenizer", "token_pattern", "stop_words")
        options = {name: getattr(self, name) for name in (*names, "max_df", "min_df")}
        counter = CountVectorizer(**options)
        counter._validate_params()
        if self.ngram_range[0] > self.ngram_range[1] or self.ngram_range[0] < 1:
            raise ValueError(f"ngram_range must be two positive integers in ascending order, got {self.ngram_range}")
        if self._has_default_words and not self.lowercase:
            raise ValueError(
                "lowercase=False requires a token_pattern or a tokenizer, as the default terms ignore case"
            )
        return counter

    @property
    def _has_default_words(self) -> bool:
        return self.analyzer == "word" and self.tokenizer is None and self.token_pattern is None

    def _new_analyzer(self) -> Callable[[Any], Iterable[str]]:
        """Return the function that divides a text into terms."""
        counter = self._check_parameters()
        if not self._has_default_words:
            analyze: Callable[[Any], Iterable[str]] = counter.build_analyzer()
            return analyze
        stop_words = frozenset(counter.get_stop_words() or ())
        prepare = counter.set_params(lowercase=False).build_preprocessor()
        if tuple(self.ngram_range) == (1, 1):
            return lambda text: terms_of(prepare(text), stop_words)
        return lambda text: counter._word_ngrams(words_of(prepare(text)), stop_words)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != _ANALYSIS}

    def _count(self, name: str, texts: Any, columns: dict[str, int]) -> Any:
        known: Any = self.__dict__.get(_ANALYSIS)
        names: Any = known[0] if known else self._get_param_names()
        values = (getattr(self, parameter) for parameter in names)
        chosen = [copy(value) if isinstance(value, list | set) else value for value in values]
        if known is None or known[1] != chosen:  # building an analyzer is slower than analysing a text
            known = self.__dict__[_ANALYSIS] = names, chosen, self._new_analyzer()
        return count_terms(base.check_texts(name, texts, of_any_type=callable(self.analyzer)), known[2], columns)

    def _count_known(self, name: str, texts: Any) -> Any:
        """Return the term counts of each text, in the columns of the fitted vectorizer."""
        check_is_fitted(self, "document_frequency_")
        check_same_tokenizer(self.tokenizer, self._tokenizer)
        n_columns = self.document_frequency_.size
        counts = self._count(name, texts, HashedColumns(n_columns) if self.vocabulary_ is None else self.vocabulary_)
        counts.resize((counts.shape[0], n_columns))
        return counts

    def _fit(self, documents: Any) -> Any:
        """Learn from the first documents, and return their term counts."""
        self._check_parameters()
        if self.n_features is None:
            columns: Any = defaultdict()
            columns.default_factory = columns.__len__  # a new term gets the next column
        else:
            columns = HashedColumns(self.n_features)
        counts = self._count("documents", documents, columns)
        if counts.nnz == 0:
            raise ValueError("documents must contain at least one term: pass other texts, or change the analyzer")
        if self.n_features is None:
            counts, vocabulary = self._with_vocabulary(counts, columns)
        else:
            counts.resize((counts.shape[0], self.n_features))
            vocabulary = None
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        learned = {
            "vocabulary_": vocabulary,
            "document_frequency_": frequency,
            "n_documents_": counts.shape[0],
            "n_terms_": int(counts.data.sum(dtype=float)),
            "length_": None,
            "_tokenizer": name_of_tokenizer(self.tokenizer),
        }
        if self.norm == "append":
            anew = copy(self)
            anew.__dict__.update(learned)
            learned["length_"] = float(np.sqrt(_squared_lengths(counts, anew._document_weights(counts)).max()))
        self.__dict__.update(learned)
        return counts

    def _with_vocabulary(self, counts: Any, columns: dict[str, int]) -> tuple[Any, dict[str, int]]:
        """Remove terms that are too rare or too frequent, and sort the remaining columns alphabetically."""
        n_documents = counts.shape[0]
        frequency = np.bincount(counts.indices, minlength=len(columns))
        limits = (self.min_df, self.max_df)
        least, most = (limit if isinstance(limit, int | np.integer) else limit * n_documents for limit in limits)
        kept = sorted(term for term, column in columns.items() if least <= frequency[column] <= most)
        if not kept:
            raise ValueError("min_df and max_df exclude all terms: decrease min_df, or increase max_df")
        place = np.full(len(columns), -1, counts.indices.dtype)
        place[[columns[term] for term in kept]] = np.arange(len(kept))
        indices = place[counts.indices]
        there = indices >= 0
        ends = np.concatenate([[0], np.cumsum(there)])[counts.indptr].astype(counts.indptr.dtype)
        counts = scipy.sparse.csr_array((counts.data[there], indices[there], ends), (n_documents, len(kept)))
        counts.sort_indices()
        return counts, dict(zip(kept, range(len(kept)), strict=True))

    def _idf(self, columns: np.ndarray, exponent: float) -> np.ndarray:
        return np.asarray(idf_of(self.n_documents_, self.document_frequency_[columns]) ** exponent)

    def _document_weights(self, counts: Any) -> np.ndarray:
        saturation = saturation_of(self.n_documents_, self.n_terms_, self.k1, self.b)
        return text_weights(counts, saturation) * self._idf(counts.indices, 1.0 - self.query_idf)

    def _stored(self, counts: Any) -> Any:
        return self._as_keys(counts, self._document_weights(counts), self.length_)

    def _as_keys(self, counts: Any, weights: np.ndarray, length: float | None) -> Any:
        """Return the weights as keys, normalised according to ``norm``.

        If ``length`` is given, longer rows are scaled down to this length, and shorter rows get an additional feature.
        """
        n_rows, n_columns = counts.shape
        indices, indptr = counts.indices, counts.indptr
        if self.norm == "l2" or length is not None:
            lengths = np.sqrt(_squared_lengths(counts, weights))
            wanted = np.ones(n_rows) if length is None else np.minimum(lengths, length)
            scales = np.divide(wanted, lengths, out=np.zeros(n_rows), where=lengths > 0.0)
            weights = weights * np.repeat(scales, np.diff(indptr))
        if length is not None:
            weights = np.insert(weights, indptr[1:], np.sqrt((length - wanted) * (length + wanted)))
            indices = np.insert(indices, indptr[1:], n_columns)
            indptr = indptr + np.arange(n_rows + 1, dtype=indptr.dtype)
        width = n_columns + (self.length_ is not None)
        return WeightedRows((weights.astype(np.float32), indices, indptr), (n_rows, width))

    def _packed(self) -> Self:
        check_is_fitted(self, "document_frequency_")
        return self

    @property
    def _parameters(self) -> dict[str, Any]:
        return base.plain_parameters(self.get_params(deep=False), ())

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made = super()._of_fields(values | {"_parameters": base.read_parameters(values["_parameters"])})
        base.check_analyzer(made._new_analyzer)
        vocabulary, frequency = made.vocabulary_, made.document_frequency_
        require(frequency.size > 0 and int(frequency.max()) <= made.n_documents_, "each term must have a frequency")
        require((made.length_ is not None) == (made.norm == "append"), "norm='append' needs a length")
        require((vocabulary is None) == (made.n_features is not None), "n_features=None needs terms")
        n_columns = made.n_features if vocabulary is None else len(vocabulary)
        require(frequency.size == n_columns, "every column must have a frequency")
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def _squared_lengths(counts: Any, weights: np.ndarray) -> np.ndarray:
    cells = scipy.sparse.csr_array((weights * weights, counts.indices, counts.indptr), counts.shape)
    return np.asarray(cells.sum(axis=1))


class HashedColumns(dict[str, int]):
    """A cache of the hashed column of each term."""

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self._n_columns = n_columns

    def __missing__(self, term: str) -> int:
        column = self[term] = murmurhash3_32(term, positive=True) % self._n_columns
        return int(column)


def count_terms(texts: list[Any], analyze: Callable[[Any], Iterable[str]], columns: dict[str, int]) -> Any:
    """Return the counts of the terms in ``columns``, which may add terms: CSR of float32, sorted."""
    complete = hasattr(columns, "__missing__")
    indices: list[int] = []
    ends = np.zeros(len(texts) + 1, np.int64)
    for i, text in enumerate(texts):
        terms = analyze(text)
        indices.extend(map(columns.__getitem__, terms) if complete else map(columns.get, terms, repeat(-1)))
        ends[i + 1] = len(indices)
    there = np.array(indices, np.int64)
    if not complete:
        ends = np.concatenate([[0], np.cumsum(there >= 0)])[ends]
        there = there[there >= 0]
    width = max(1, int(there.max(initial=0)) + 1)
    dtype = np.int32 if max(width, there.size) < 2**31 else np.int64
    cells = (np.ones(there.size, np.float32), there.astype(dtype), ends.astype(dtype))
    counts = scipy.sparse.csr_array(cells, (len(texts), width))
    counts.sum_duplicates()
    return counts
