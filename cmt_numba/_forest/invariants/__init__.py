"""Checks of all invariants that kernels rely on.

Kernels have no bounds checks. The checks here use only NumPy, and trust nothing that they have not checked before, so
arrays may come from a damaged file: at worst a check raises. The kind of an array is the annotation of its field. Its
contents are checked with the structure that it belongs to.
"""

from .errors import InvariantError, require
from .keys import check_key_frame, check_keys
from .layout import check_layout
from .linear_models import check_model_frame, check_models
from .numbers import all_finite, all_within, are_offsets
from .probing import check_number_table
from .trees import Leaves, check, check_frame, depth, leaves, levels
