"""Evaluation of estimators, online and in batches (sections 4.1 and 4.2 of the paper).

In online evaluation, every example is predicted before it is learned (progressive validation; Blum et al., 1999). In
batch evaluation, an estimator is fitted to all training examples and tested on held-out examples.
"""

from ._answers import Confusion, calibration_error
from ._batch import BatchResult, batch_evaluation, checked_data, plan_of, result_of, run_of
from ._profiles import TreeProfile, profile
from ._progressive import ProgressiveResult, growing_batches, next_batch_size, progressive_validation
from ._rivals import RIVALS, Rival, Split, check_rivals
from ._tasks import MAIN_METRIC, held_out_metrics, to_json

__all__ = ["batch_evaluation", "progressive_validation"]
