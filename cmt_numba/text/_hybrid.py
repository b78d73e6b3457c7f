"""Keys that combine a sparse part and a dense part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from .._arrays import WeightedRows
from .._validation import Checked, Constraint, OneOf, Real, label_array
from ..estimators import check_targets, held_out
from ..persistence import Contents, take
from ._base import SavableText, check_texts, contents_of, of_prefix, vectorizer_of, with_prefix
from ._bm25 import BM25Vectorizer
from ._fasttext import FastTextClassifier
from ._subword_vectors import SubwordVectors

_PARTS = {kind.__name__: kind for kind in (BM25Vectorizer, FastTextClassifier, SubwordVectors)}

_WEIGHTS = 0.0, 0.1, 0.2, 0.3, 0.5, 0.7  # candidates for weight="held_out"
_MOST_CELLS = 2**23  # maximum size of a block of scores


def _check_weight(weight: Any) -> None:
    if isinstance(weight, str):
        OneOf(("held_out",)).check("weight", weight)
    else:
        Real(0.0, 1.0).check("weight", weight)


class HybridVectorizer(TransformerMixin, SavableText):
    """Turn texts into keys with a sparse and a dense part.

    The cosine of two keys is the weighted mean of the parts' cosines. The sparse part finds rare words; the dense part
    finds words with similar meaning or spelling.

    Parameters
    ----------
    sparse : transformer, optional
        Vectorizer with sparse vectors. By default :class:`~sklearn.feature_extraction.text.TfidfVectorizer` with
        ``sublinear_tf=True``. If the vectorizer distinguishes documents from queries, as :class:`BM25Vectorizer` does,
        the keys do too.
    dense : transformer, optional
        Vectorizer with dense vectors, such as :class:`SubwordVectors`. By default a :class:`FastTextClassifier`, which
        learns from the classes.
    weight : float in [0, 1] or "held_out", default 0.1
        Weight of the dense part in the cosine. If rare words distinguish the classes, the best weight is small. With
        "held_out", ``fit`` holds out a fifth of the texts (at most 2,000), fits unfitted parts to the rest, and chooses
        the weight with which most held-out texts are nearest to the mean of their own class.

    Attributes
    ----------
    sparse_, dense_ : transformer
        The fitted parts. Parts that were already fitted are used unchanged; others are copied and fitted.
    weight_ : float
        With ``weight="held_out"``, the chosen weight.

    Notes
    -----
    Keys are CSR matrices with the dense part in the last columns. Each dense component takes 8 bytes.

    Examples
    --------
    >>> from cmt_numba import CMTClassifier
    >>> from cmt_numba.text import HybridVectorizer
    >>> texts, topics = ["rain and wind", "sun and clouds", "a song", "an album"], ["weather"] * 2 + ["music"] * 2
    >>> keys = HybridVectorizer().fit_transform(texts, topics)
    >>> keys.shape[0]
    4
    """

    _constraints: ClassVar[dict[str, Constraint]] = {"weight": Checked(_check_weight, 'float in [0, 1] or "held_out"')}

    def __init__(self, sparse: Any = None, dense: Any = None, *, weight: float | str = 0.1) -> None:
        self.sparse = sparse
        self.dense = dense
        self.weight = weight

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Fit the parts that are not fitted yet.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, optional
            The class of each text, if a part needs classes.

        Returns
        -------
        self
        """
        self._fit(texts, y)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Any:
        """Fit the parts that are not fitted yet, and return keys to store.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, optional
            The class of each text, if a part needs classes.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)
        """
        return self._stored(self._fit(texts, y))

    def transform_documents(self, texts: Iterable[str]) -> Any:
        """Return keys to store for additional texts.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)
        """
        check_is_fitted(self, "dense_")
        return self._stored(check_texts("texts", texts))

    def transform(self, texts: Iterable[str]) -> Any:
        """Return keys for queries.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)
        """
        check_is_fitted(self, "dense_")
        texts = check_texts("texts", texts)
        return self._joined(self.sparse_.transform(texts), texts)

    def _fit(self, texts: Any, y: Any) -> list[str]:
        self._check_parameters()
        listed: list[str] = check_texts("texts", texts)
        sparse = TfidfVectorizer(sublinear_tf=True, dtype=np.float32) if self.sparse is None else self.sparse
        dense = FastTextClassifier(random_state=0) if self.dense is None else self.dense
        if y is None and self.dense is None:
            raise ValueError("y must be given for the default dense part: pass y, or dense=SubwordVectors()")
        learned: dict[str, Any] = {}
        if self.weight == "held_out":
            learned["weight_"] = _best_weight(sparse, dense, listed, y)
        learned |= {"sparse_": _fitted(sparse, listed, y), "dense_": _fitted(dense, listed, y)}
        self.__dict__.update(learned)
        return listed

    def _stored(self, texts: list[str]) -> Any:
        return self._joined(_stored_words(self.sparse_, texts), texts)

    def _joined(self, words: Any, texts: list[str]) -> Any:
        self._check_parameters()
        if self.weight == "held_out":
            check_is_fitted(self, "weight_")
        weight: Any = self.weight_ if self.weight == "held_out" else self.weight
        shares = np.sqrt(np.array([1.0 - weight, weight], np.float32))
        words, dense = _of_length_1(words, self.dense_.transform(texts))
        return WeightedRows(scipy.sparse.hstack([words * shares[0], scipy.sparse.csr_array(dense * shares[1])], "csr"))

    # Files

    def _contents(self) -> Contents:
        check_is_fitted(self, "dense_")
        parts: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for name in ("sparse", "dense"):
            parts[name], of_part = with_prefix(name, contents_of(getattr(self, f"{name}_")))
            arrays |= of_part
        fields: dict[str, Any] = {"parameters": {"weight": self.weight}, **parts}
        if self.weight == "held_out":
            fields["weight"] = self.weight_
        else:
            fields["parameters"]["weight"] = float(self.weight)
        return Contents(type(self).__name__, fields, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        parts = {
            name: vectorizer_of(of_prefix(name, contents.fields.get(name), contents.arrays), _PARTS)
            for name in ("sparse", "dense")
        }
        made = cls(**parts, **take(contents.fields, "parameters", dict))
        made._check_parameters()
        made.__dict__.update({f"{name}_": part for name, part in parts.items()})
        if made.weight == "held_out":
            made.weight_ = Real(0.0, 1.0).check("weight", take(contents.fields, "weight", float))
        return made

    def _check_parameters(self) -> None:
        self._constraints["weight"].check("weight", self.weight)

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the fitted parts."""
        parts = [part if part is None or _is_fitted(part) else clone(part) for part in (self.sparse, self.dense)]
        return type(self)(*parts, weight=self.weight)


def _is_fitted(part: Any) -> bool:
    try:
        check_is_fitted(part)
    except NotFittedError:
        return False
    return True


def _fitted(part: Any, texts: list[str], y: Any) -> Any:
    return part if _is_fitted(part) else clone(part).fit(texts, y)


def _stored_words(sparse: Any, texts: list[str]) -> Any:
    return getattr(sparse, "transform_documents", sparse.transform)(texts)


def _of_length_1(words: Any, dense: Any) -> tuple[Any, np.ndarray]:
    return normalize(scipy.sparse.csr_array(words, dtype=np.float32)), normalize(np.asarray(dense, np.float32))


def _best_weight(sparse: Any, dense: Any, texts: list[str], y: Any) -> float:
    """Return the weight with which most held-out texts are nearest to the mean of their own class."""
    if y is None:
        raise ValueError('weight="held_out" needs classes: pass y, or set weight to a number')
    y = label_array("y", y)
    check_targets(y)
    _, first, labels = np.unique(y, return_index=True, return_inverse=True)
    if labels.shape != (len(texts),):
        raise ValueError(f"y must have one entry for each of the {len(texts)} texts, got shape {np.shape(y)}")
    apart, seen = held_out(len(texts), 0, never=first)  # each class needs a training text for its mean
    if apart.size == 0:
        raise ValueError(
            'weight="held_out" needs at least 5 texts and a class with at least two texts: set weight to a number'
        )
    asked, stored = ([texts[i] for i in part] for part in (apart, seen))
    sparse, dense = (_fitted(part, stored, y[seen]) for part in (sparse, dense))
    members = scipy.sparse.csr_array((np.ones(seen.size, np.float32), (labels[seen], np.arange(seen.size))))
    means = [members @ part for part in _of_length_1(_stored_words(sparse, stored), dense.transform(stored))]
    sizes = [np.asarray((part * part).sum(axis=1), np.float64) for part in means]
    words, vectors = _of_length_1(sparse.transform(asked), dense.transform(asked))
    n_right, step = np.zeros(len(_WEIGHTS), np.int64), max(1, _MOST_CELLS // first.size)
    for i in range(0, apart.size, step):
        of_words, of_vectors = (words[i : i + step] @ means[0].T).toarray(), vectors[i : i + step] @ means[1].T
        for j, weight in enumerate(_WEIGHTS):
            lengths = np.sqrt((1.0 - weight) * sizes[0] + weight * sizes[1])
            scores = ((1.0 - weight) * of_words + weight * of_vectors) / np.maximum(lengths, 1e-9)
            n_right[j] += np.count_nonzero(scores.argmax(axis=1) == labels[apart[i : i + step]])
    return float(_WEIGHTS[n_right.argmax()])
