"""A text classifier, and vectorizers that turn texts into keys for trees and estimators."""

from ._base import TfidfField
from ._bm25 import BM25Vectorizer
from ._fasttext import FastTextClassifier
from ._subword_vectors import SubwordVectors
from ._text_classifier import TextClassifier, TextExplanation

__all__ = ["BM25Vectorizer", "FastTextClassifier", "SubwordVectors", "TextClassifier"]
