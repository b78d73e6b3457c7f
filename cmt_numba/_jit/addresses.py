"""Calls to compiled functions by address.

The machine code of a kernel includes all functions that it calls. A large function that several kernels share is
compiled separately instead, and the kernels receive its address. A call copies the machine words that describe its
arguments, which takes little time if the function runs for microseconds.
"""

from typing import Any

import numpy as np
from numba import config, typeof, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

_known: set[Any] = set()  # tuples of argument types that :func:`address_of` has compiled


def address_of(function, *arguments):
    """Compile a function, which must return an int64, for the types of ``arguments``; return its address.

    With ``NUMBA_DISABLE_JIT=1``, return the function itself.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    function._compile_for_args(*arguments)
    kinds = tuple(typeof(argument) for argument in arguments)
    compiled = function.overloads[kinds]
    if compiled.signature.return_type != types.int64:
        raise TypeError(f"{function.py_func.__name__} must return an int64, got {compiled.signature.return_type}")
    address = np.int64(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
    if address == 0:
        raise RuntimeError(f"Numba returned no address for {function.py_func.__name__}")
    _known.add(kinds)
    return address


@intrinsic
def _call(_context, address, arguments):
    kinds = tuple(arguments)
    if kinds not in _known:  # machine code for other types would misread the arguments
        raise TypingError(
            f"the types {kinds} have not been compiled: call address_of with arguments of these types first"
        )

    def lower(context, builder, _signature, values):
        convention = context.call_conv
        pointer = convention.get_function_type(types.int64, kinds).as_pointer()
        function = builder.inttoptr(values[0], pointer)
        parts = cgutils.unpack_tuple(builder, values[1], len(kinds))
        status, result = convention.call_function(builder, function, types.int64, kinds, parts)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    return types.int64(address, arguments), lower


def _call_python(function, arguments):
    return function(*arguments)


call_at: Any = _call_python if config.DISABLE_JIT else _call  # type: ignore[attr-defined]
"""Call the function at an address with a tuple of arguments of the types that :func:`address_of` received."""
