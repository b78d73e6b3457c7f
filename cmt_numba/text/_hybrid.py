"""Sparse words and a dense part in one key."""

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

from .._validation import Constraint, Real
from ..persistence._container import Contents
from ..persistence._trees import take
from ._bm25 import BM25Vectorizer
from ._counting import check_texts
from ._fasttext import FastTextClassifier
from ._learned import SavableText
from ._subword_vectors import SubwordVectors
from ._vectorizer_files import contents_of, of_prefix, vectorizer_of, with_prefix

_PARTS = {kind.__name__: kind for kind in (BM25Vectorizer, FastTextClassifier, SubwordVectors)}


class HybridVectorizer(TransformerMixin, SavableText):
    """Texts as keys of two parts, whose cosine is a weighted mean of the cosines of the parts.

    A sparse part finds rare words, and a dense part words that mean the same or are spelt alike.

    Parameters
    ----------
    sparse : transformer, optional
        Returns sparse vectors of texts; by default tf-idf (:class:`~sklearn.feature_extraction.text.TfidfVectorizer`
        with ``sublinear_tf=True``). Where it distinguishes stored texts from queries, as :class:`BM25Vectorizer` does,
        so do the keys.
    dense : transformer, optional
        Returns dense vectors of texts, such as :class:`SubwordVectors`; by default a :class:`FastTextClassifier`, which
        learns them from the classes.
    weight : float in [0, 1], default 0.1
        Share of the dense part in the cosine. Choose it on held-out examples: where classes are told by rare words, the
        best share is small.

    Attributes
    ----------
    sparse_, dense_ : transformer
        The parts. One that had been fitted is used as it is, others are copied and fitted.

    Notes
    -----
    Keys are CSR matrices whose last columns are the dense part, because trees and estimators take keys of one kind. A
    dense part of 100 components makes a key 800 bytes longer.

    Examples
    --------
    >>> from cmt_numba import CMTClassifier
    >>> from cmt_numba.text import HybridVectorizer
    >>> texts, topics = ["rain and wind", "sun and clouds", "a song", "an album"], ["weather"] * 2 + ["music"] * 2
    >>> keys = HybridVectorizer().fit_transform(texts, topics)
    >>> keys.shape[0]
    4
    """

    _constraints: ClassVar[dict[str, Constraint]] = {"weight": Real(0.0, 1.0)}

    def __init__(self, sparse: Any = None, dense: Any = None, *, weight: float = 0.1) -> None:
        self.sparse = sparse
        self.dense = dense
        self.weight = weight

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Fit the parts that have not been fitted.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, optional
            Their classes, if a part needs them.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        """
        self._fit(texts, y)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Any:
        """Fit the parts that have not been fitted, and return keys to store.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, optional
            Their classes, if a part needs them.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        """
        return self._stored(self._fit(texts, y))

    def transform_documents(self, texts: Iterable[str]) -> Any:
        """Return keys to store for further texts.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        check_is_fitted(self, "dense_")
        return self._stored(check_texts("texts", texts))

    def transform(self, texts: Iterable[str]) -> Any:
        """Return keys to ask with.

        Parameters
        ----------
        texts : iterable of str
            The texts.

        Returns
        -------
        scipy.sparse.csr_array of float32, shape (n_texts, n_columns)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        TypeError, ValueError
            If an argument or a parameter cannot be used.
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
            raise ValueError("y must be given, or pass a dense part that needs no classes, such as SubwordVectors()")
        learned = {"sparse_": _fitted(sparse, listed, y), "dense_": _fitted(dense, listed, y)}
        self.__dict__.update(learned)
        return listed

    def _stored(self, texts: list[str]) -> Any:
        transform = getattr(self.sparse_, "transform_documents", self.sparse_.transform)
        return self._joined(transform(texts), texts)

    def _joined(self, words: Any, texts: list[str]) -> Any:
        self._check_parameters()
        shares = np.sqrt(np.array([1.0 - self.weight, self.weight], np.float32))
        words = normalize(scipy.sparse.csr_array(words, dtype=np.float32)) * shares[0]
        dense = normalize(np.asarray(self.dense_.transform(texts), np.float32)) * shares[1]
        return scipy.sparse.hstack([words, scipy.sparse.csr_array(dense)], "csr")

    # Files

    def _contents(self) -> Contents:
        check_is_fitted(self, "dense_")
        parts: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for name in ("sparse", "dense"):
            parts[name], of_part = with_prefix(name, contents_of(getattr(self, f"{name}_")))
            arrays |= of_part
        return Contents(type(self).__name__, {"parameters": {"weight": float(self.weight)}, **parts}, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        parts = {
            name: vectorizer_of(of_prefix(name, contents.fields.get(name), contents.arrays), _PARTS)
            for name in ("sparse", "dense")
        }
        made = cls(**parts, **take(contents.fields, "parameters", dict))
        made._check_parameters()
        made.__dict__.update({f"{name}_": part for name, part in parts.items()})
        return made

    def _check_parameters(self) -> None:
        self._constraints["weight"].check("weight", self.weight)

    def __sklearn_clone__(self) -> Self:
        """Return an object of the same parameters; parts that have been fitted are shared."""
        parts = [part if part is None or _is_fitted(part) else clone(part) for part in (self.sparse, self.dense)]
        return type(self)(*parts, weight=self.weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _is_fitted(part: Any) -> bool:
    try:
        check_is_fitted(part)
    except NotFittedError:
        return False
    return True


def _fitted(part: Any, texts: list[str], y: Any) -> Any:
    return part if _is_fitted(part) else clone(part).fit(texts, y)
