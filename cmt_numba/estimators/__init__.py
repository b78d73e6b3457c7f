"""scikit-learn estimators."""

from ._calibration import held_out as held_out
from ._classifier import CMTClassifier
from ._explanations import Explanation
from ._files import TreeInFiles as TreeInFiles, estimator_contents as estimator_contents, estimator_of as estimator_of
from ._input import warn_of_scales as warn_of_scales
from ._label_index import means_of as means_of
from ._labels import (
    check_classes as check_classes,
    check_targets as check_targets,
    check_unmixed as check_unmixed,
    in_one_type as in_one_type,
)
from ._multilabel import CMTMultilabelClassifier
from ._retriever import CMTRetriever
from ._tuning import tune

for _estimator in (CMTClassifier, CMTMultilabelClassifier, CMTRetriever):
    _estimator.__module__ = __name__  # where pickles find them, wherever they are defined

__all__ = ["CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever", "Explanation", "tune"]
