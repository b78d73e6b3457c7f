"""New arrays in kernels.

Numba compiles ``np.empty`` and ``np.zeros`` to machine code once more for each type and number of dimensions. What is
here becomes part of the kernel at once. It takes parts of Numba that it does not document; where they are not there,
NumPy's functions are used.
"""

from typing import Any

import numpy as np
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic


def _of_numba() -> tuple[Any, Any]:
    """Return functions like ``np.empty`` and ``np.zeros`` that Numba need not compile by themselves."""
    from numba.core.typing.npydecl import parse_dtype, parse_shape
    from numba.np.arrayobj import _empty_nd_impl, _parse_empty_args

    def array_of(shape: Any, dtype: Any) -> Any:
        return types.Array(parse_dtype(dtype), parse_shape(shape), "C")(shape, dtype)

    def allocate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _empty_nd_impl(context, builder, *_parse_empty_args(context, builder, signature, arguments))

    @intrinsic  # type: ignore[untyped-decorator]
    def empty(_context: Any, shape: Any, dtype: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return allocate(context, builder, signature, arguments)._getvalue()

        return array_of(shape, dtype), lower

    @intrinsic  # type: ignore[untyped-decorator]
    def zeros(_context: Any, shape: Any, dtype: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = allocate(context, builder, signature, arguments)
            cgutils.memset(builder, array.data, builder.mul(array.nitems, array.itemsize), 0)
            return array._getvalue()

        return array_of(shape, dtype), lower

    return empty, zeros


def array_makers(make: Any = _of_numba) -> tuple[Any, Any]:
    """Return functions for kernels like ``np.empty`` and ``np.zeros``; shape and dtype are positional."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return np.empty, np.zeros
    try:
        return tuple(make())  # type: ignore[return-value]
    except (ImportError, AttributeError):
        return np.empty, np.zeros


empty, zeros = array_makers()
