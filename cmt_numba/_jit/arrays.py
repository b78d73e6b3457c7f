"""Temporary arrays in kernels, and prefetching of memory.

Kernels do not count references, so a kernel must pass every array that it allocates to ``release`` before it
returns. If memory runs out, the kernel raises MemoryError and leaks the arrays allocated so far. Kernels therefore
allocate before they change anything.

The code of these functions is generated inside the kernel, because Numba compiles a separate version of ``np.empty``
and ``np.zeros`` for each dtype and number of dimensions.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.typing.npydecl import parse_dtype, parse_shape
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


def instruction(in_python: Any) -> Any:
    """Return a decorator for the code of a function of kernels, in place of which plain Python has ``in_python``."""
    return (lambda _: in_python) if config.DISABLE_JIT else intrinsic  # type: ignore[attr-defined]


def _array_of(shape, dtype):
    """Return the signature of an allocation with a shape and a dtype, or None if these are invalid."""
    n_axes, of = parse_shape(shape), parse_dtype(dtype)
    return None if n_axes is None or of is None else types.Array(of, n_axes, "C")(shape, dtype)


def _allocate(context, builder, signature, arguments):
    """Generate the allocation of an array with a reference count of 1; return the array and its size in bytes."""
    kind, given = signature.return_type, signature.args[0]
    lengths, types_given = [arguments[0]], [given]
    if isinstance(given, types.BaseTuple):
        lengths, types_given = cgutils.unpack_tuple(builder, arguments[0]), list(given)  # type: ignore[call-overload]
    shape = [context.cast(builder, n, it, types.intp) for n, it in zip(lengths, types_given, strict=True)]
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides: list[Any] = []
    n_bytes = itemsize
    for length in reversed(shape):
        strides.insert(0, n_bytes)
        n_bytes = builder.mul(n_bytes, length)
    runtime = context.subtarget(enable_nrt=True).nrt
    owner = runtime.meminfo_alloc_aligned_unchecked(builder, n_bytes, context.get_preferred_array_alignment(kind.dtype))
    cgutils.guard_memory_error(context, builder, owner, "not enough memory for a kernel's temporary arrays")
    array = make_array(kind)(context, builder)
    data = builder.bitcast(runtime.meminfo_data(builder, owner), array.data.type)
    populate_array(array, data, shape, strides, itemsize, owner)
    return array, n_bytes


@instruction(np.empty)
def empty(_context, shape, dtype):
    """Allocate an uninitialised array in a kernel."""

    def lower(context, builder, signature, arguments):
        return _allocate(context, builder, signature, arguments)[0]._getvalue()

    signature = _array_of(shape, dtype)
    return signature and (signature, lower)


@instruction(np.zeros)
def zeros(_context, shape, dtype):
    """Allocate an array of zeros in a kernel."""

    def lower(context, builder, signature, arguments):
        array, n_bytes = _allocate(context, builder, signature, arguments)
        cgutils.memset(builder, array.data, n_bytes, 0)
        return array._getvalue()

    signature = _array_of(shape, dtype)
    return signature and (signature, lower)


def do_nothing(*_):
    """Take the place, in plain Python, of what frees unused arrays and prefetches."""


_FOR_READING = 0
_INTO_ALL_CACHES = 3
_DATA = 1
_BYTE_POINTER = ir.IntType(8).as_pointer()


@instruction(do_nothing)
def prefetch(_context, array, i):
    """Prefetch the cache line of entry ``i`` of a one-dimensional array.

    A search knows the keys that it will read long before it reads them, but the processor sees only the next few
    instructions.
    """

    def lower(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE_POINTER)
        word = ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, takes, "llvm.prefetch.p0")
        builder.call(function, [address, word(_FOR_READING), word(_INTO_ALL_CACHES), word(_DATA)])
        return context.get_dummy_value()

    return types.void(array, i), lower
