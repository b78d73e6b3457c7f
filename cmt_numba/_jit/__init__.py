"""How functions are compiled: the only place with options of Numba."""

from .addresses import address_of, call_at
from .arrays import empty, release, zeros
from .decorators import (
    as_python,
    inner,
    inner_allocating,
    inner_called,
    inner_exported,
    inner_fastmath,
    inner_merged,
    inner_shared,
    kernel,
    uninterrupted,
)
from .held import held
from .prefetch import prefetch
from .pruning import Known, known
from .references import by_reference, by_value

__all__ = [
    "Known",
    "address_of",
    "as_python",
    "by_reference",
    "by_value",
    "call_at",
    "empty",
    "held",
    "inner",
    "inner_allocating",
    "inner_called",
    "inner_exported",
    "inner_fastmath",
    "inner_merged",
    "inner_shared",
    "kernel",
    "known",
    "prefetch",
    "release",
    "uninterrupted",
    "zeros",
]
