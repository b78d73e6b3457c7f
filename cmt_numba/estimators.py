"""scikit-learn estimators."""

from ._classifier import CMTClassifier
from ._multilabel import CMTMultilabelClassifier

__all__ = ["CMTClassifier", "CMTMultilabelClassifier"]
