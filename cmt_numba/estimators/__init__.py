"""scikit-learn estimators: a classifier, a multi-label classifier and a retriever.

Other packages import helpers for label checks and estimator files from here.
"""

from ._calibration import held_out
from ._classifier import CMTClassifier, classified_examples, fixed_scales_of
from ._explanations import Explanation
from ._feature_scales import scales_of_table
from ._fields import LEARNED, TREE
from ._label_index import means_of
from ._labels import (
    check_classes,
    check_targets,
    check_unmixed,
    in_one_type,
    looked_up,
    places_in,
    positions_of,
    with_reject_label,
)
from ._multilabel import CMTMultilabelClassifier
from ._retriever import CMTRetriever

for _estimator in (CMTClassifier, CMTMultilabelClassifier, CMTRetriever):
    _estimator.__module__ = __name__  # so that pickles do not depend on private module names

__all__ = ["CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever"]
