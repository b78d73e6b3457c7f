"""Everything that must hold of the arrays that kernels trust.

Kernels have no bounds checks. The checks here are of NumPy alone and look at nothing that they have not checked before,
so arrays may come from anywhere, a damaged file for example: at worst they raise. The kind of
an array is said where it is a field. What must hold of its contents belongs to the check of the structure that it is
part of.
"""

from .errors import InvariantError, require
from .keys import check_key_frame, check_keys
from .layout import check_layout
from .linear_models import check_model_frame, check_models
from .numbers import all_finite, all_within, are_offsets
from .probing import check_number_table
from .trees import Leaves, check, check_frame, depth, leaves, levels
