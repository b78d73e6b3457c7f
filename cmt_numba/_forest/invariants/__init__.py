"""Checks of the invariants that kernels rely on.

Kernels have no bounds checks. These checks use only NumPy and validate every value before they use it, so they are safe
for arrays from a damaged file.
"""

from .arrays import InvariantError, all_finite, all_within, are_offsets, check_layout, check_number_table, require
from .keys import check_key_frame, check_keys
from .linear_models import check_model_frame, check_models
from .trees import Leaves, check, check_frame, depth, leaves, levels
