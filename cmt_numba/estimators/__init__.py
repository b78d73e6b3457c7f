"""scikit-learn estimators."""

from ._classifier import CMTClassifier
from ._explanations import Explanation
from ._multilabel import CMTMultilabelClassifier
from ._retriever import CMTRetriever
from ._tuning import tune

for _estimator in (CMTClassifier, CMTMultilabelClassifier, CMTRetriever):
    _estimator.__module__ = __name__  # where pickles find them, wherever they are defined

__all__ = ["CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever", "Explanation", "tune"]
