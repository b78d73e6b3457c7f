"""Checks of the invariants that kernels rely on.

Kernels have no bounds checks. These checks use only NumPy and validate every value before they use it, so they are safe
for arrays from a damaged file. ``layout.py`` checks dtypes and shapes against the annotations of fields; the other
modules check contents.
"""

from .errors import InvariantError, require
from .keys import check_key_frame, check_keys
from .layout import check_layout
from .linear_models import check_model_frame, check_models
from .numbers import all_finite, all_within, are_offsets
from .probing import check_number_table
from .trees import Leaves, check, check_frame, depth, leaves, levels
