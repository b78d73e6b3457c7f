"""How functions are compiled: the only place with options of Numba."""

from .arrays import empty, zeros
from .decorators import (
    as_python,
    inner,
    inner_allocating,
    inner_called,
    inner_exported,
    inner_fastmath,
    inner_merged,
    kernel,
    uninterrupted,
)
from .prefetch import prefetch
from .pruning import Known, known
from .references import by_reference, by_value

__all__ = [
    "Known",
    "as_python",
    "by_reference",
    "by_value",
    "empty",
    "inner",
    "inner_allocating",
    "inner_called",
    "inner_exported",
    "inner_fastmath",
    "inner_merged",
    "kernel",
    "known",
    "prefetch",
    "uninterrupted",
    "zeros",
]
