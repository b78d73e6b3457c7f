"""Evaluation of estimators, online and in batches (sections 4.1 and 4.2 of the paper).

Online, every example is predicted before it is learned (progressive validation; Blum et al., 1999). In batches, an
estimator is fitted to all training examples and tested on others.
"""

from ._answers import Confusion
from ._answers import calibration_error as calibration_error
from ._batch import BatchResult, batch_evaluation
from ._batch import checked_data as checked_data
from ._batch import mean_and_deviation as mean_and_deviation
from ._batch import plan_of as plan_of
from ._batch import result_of as result_of
from ._batch import run_of as run_of
from ._batch import seeded as seeded
from ._json import to_json as to_json
from ._profiles import TreeProfile, profile, recall_against_exact, self_consistency
from ._progressive import ProgressiveResult, growing_batches, next_batch_size, progressive_validation
from ._rivals import RIVALS, Rival
from ._rivals import Split as Split
from ._rivals import check_rivals as check_rivals
from ._tasks import MAIN_METRIC as MAIN_METRIC
from ._tasks import held_out_metrics as held_out_metrics

__all__ = [
    "RIVALS",
    "BatchResult",
    "Confusion",
    "ProgressiveResult",
    "Rival",
    "TreeProfile",
    "batch_evaluation",
    "growing_batches",
    "next_batch_size",
    "profile",
    "progressive_validation",
    "recall_against_exact",
    "self_consistency",
]
