"""scikit-learn estimators."""

from ._classifier import CMTClassifier
from ._explanations import Explanation
from ._input import warn_of_scales as warn_of_scales
from ._labels import check_classes as check_classes
from ._labels import check_targets as check_targets
from ._labels import in_one_type as in_one_type
from ._multilabel import CMTMultilabelClassifier
from ._relearning import means_of as means_of
from ._retriever import CMTRetriever
from ._tuning import tune

for _estimator in (CMTClassifier, CMTMultilabelClassifier, CMTRetriever):
    _estimator.__module__ = __name__  # where pickles find them, wherever they are defined

__all__ = ["CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever", "Explanation", "tune"]
