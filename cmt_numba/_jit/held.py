"""Named tuples of arrays that are handed to kernels again and again.

A kernel that is called from Python takes a named tuple apart, array by array, and checks the type of each before. For
what searches read of a forest this takes, with the making of the tuples, some eight microseconds, where a search for a
single row may take thirty. So the words that describe the arrays are written down once. Then the kernel is handed where
they are.
"""

from typing import Any

import numpy as np
from numba import config, typeof, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import NativeValue, intrinsic, unbox

from .decorators import kernel
from .references import HeldType

_known: dict[Any, tuple[HeldType, int]] = {}
"""Types and sizes in bytes by the forms of tuples: to find the type of a forest takes Numba milliseconds."""


def _form_of(value: Any) -> Any:
    """Return what determines the type of a value."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.num
    return (type(value), *map(_form_of, value)) if isinstance(value, tuple) else type(value)


class Held:
    """The words that describe the arrays of a named tuple, which it keeps alive: what :func:`held` returns."""

    __slots__ = ("_numba_type_", "_words", "address", "target")

    def __init__(self, target: Any) -> None:
        form = _form_of(target)
        if form not in _known:
            kind = HeldType(typeof(target))
            context = cpu_target.target_context
            _known[form] = kind, context.get_abi_sizeof(context.get_value_type(kind.target))
        self._numba_type_, size = _known[form]
        self._words = np.empty(-(-size // 8), np.int64)
        self.address: int = self._words.ctypes.data
        self.target = target
        _write(self._words, target)


def _lower_put(_context: Any, words: Any, target: Any) -> Any:
    def store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        builder.store(arguments[1], builder.bitcast(array.data, arguments[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(words, target), store


_put: Any = intrinsic(_lower_put)


@kernel
def _write(words, target):
    _put(words, target)


@unbox(HeldType)
def _take_address(kind: Any, value: Any, c: Any) -> Any:
    """Return a pointer to the words that an object of type :class:`Held` holds."""
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    pointer = c.builder.inttoptr(address, c.context.get_value_type(kind))
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


def _unchanged(target: Any) -> Any:
    return target


held: Any = _unchanged if config.DISABLE_JIT else Held  # type: ignore[attr-defined]
"""Return what kernels take in place of a named tuple of arrays, as long as these are the same: they begin with
``by_reference``, and compile once more for it. If Numba compiles nothing, this is the tuple itself."""
