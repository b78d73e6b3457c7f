"""Cached arguments: named tuples of arrays that are unpacked once and passed to many kernel calls.

A kernel call from Python unpacks a named tuple array by array and checks every type. For a forest this takes about
eight microseconds, while a search for a single row may take only thirty. A :class:`Held` tuple stores the machine words
that describe the arrays, and kernels receive the address of these words.
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
"""The Numba type and the size in bytes of tuples. Numba takes milliseconds to find the type of a forest."""


def _form_of(target: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a hashable key that determines the Numba type of a tuple."""
    form: list[Any] = [type(target)]
    for value in target:
        if isinstance(value, np.ndarray):
            form += value.dtype, value.ndim, value.flags.num
        else:
            form.append(_form_of(value) if isinstance(value, tuple) else type(value))
    return tuple(form)


class Held:
    """The machine words that describe the arrays of a named tuple, and a reference that keeps the tuple alive."""

    __slots__ = ("_numba_type_", "_words", "address", "target")

    def __init__(self, target):
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


def _lower_put(_context, words, target):
    def store(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        builder.store(arguments[1], builder.bitcast(array.data, arguments[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(words, target), store


_put: Any = intrinsic(_lower_put)


@kernel
def _write(words, target):
    _put(words, target)


@unbox(HeldType)
def _take_address(kind, value, c):
    """Convert a :class:`Held` object to a pointer to its words."""
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    pointer = c.builder.inttoptr(address, c.context.get_value_type(kind))
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


def _unchanged(target):
    return target


held: Any = _unchanged if config.DISABLE_JIT else Held  # type: ignore[attr-defined]
"""Return an object that kernels accept in place of a named tuple of arrays, until an array of the tuple is replaced.
These kernels begin with ``by_reference``. With ``NUMBA_DISABLE_JIT=1``, return the tuple itself."""
