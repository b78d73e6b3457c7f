"""scikit-learn estimators."""

from ._classifier import CMTClassifier
from ._multilabel import CMTMultilabelClassifier
from ._retriever import CMTRetriever

__all__ = ["CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever"]
