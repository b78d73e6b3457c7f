"""Prefetching of memory.

A search knows the keys that it will read long before it reads them, but the processor sees only the next few
instructions. A prefetch loads a cache line in the background and has no other effect. In plain Python it does nothing.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

_FOR_READING = 0
_INTO_ALL_CACHES = 3
_DATA = 1
_BYTE_POINTER = ir.IntType(8).as_pointer()


def prefetch(array: Any, i: Any) -> None:
    """Prefetch the cache line of entry ``i`` of a one-dimensional array."""


@type_callable(prefetch)
def _type_of_prefetch(context: Any) -> Any:
    def returns(array: Any, i: Any) -> Any:
        if isinstance(array, types.Array) and array.ndim == 1 and isinstance(i, types.Integer):
            return types.void
        return None

    return returns


@lower_builtin(prefetch, types.Array, types.Integer)
def _lower_prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    address = builder.bitcast(builder.gep(array.data, [arguments[1]]), _BYTE_POINTER)
    word = ir.IntType(32)
    takes = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, takes, "llvm.prefetch.p0")
    builder.call(function, [address, word(_FOR_READING), word(_INTO_ALL_CACHES), word(_DATA)])
    return context.get_dummy_value()
