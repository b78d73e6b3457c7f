"""Texts as keys: vectorizers whose rows trees and estimators store and are queried with."""

from ._base import contents_of as contents_of
from ._base import of_prefix as of_prefix
from ._base import vectorizer_of as vectorizer_of
from ._base import with_prefix as with_prefix
from ._bm25 import BM25Vectorizer
from ._fasttext import FastTextClassifier
from ._hybrid import HybridVectorizer
from ._subword_vectors import SubwordVectors

__all__ = ["BM25Vectorizer", "FastTextClassifier", "HybridVectorizer", "SubwordVectors"]
