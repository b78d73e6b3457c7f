"""Kernels that keep the global interpreter lock (GIL) for small batches.

A kernel normally releases the lock and lets other threads run. If these threads run Python code, the kernel's thread
waits up to 5 ms for each of them before it gets the lock back, which is hundreds of times as long as a query for one
row. Within ``keeping_interpreter``, the kernels of a thread therefore keep the lock. The wrapper that Python calls
decides this at run time; the machine code is the same.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from threading import get_ident
from typing import Any, TypeVar, cast

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils
from numba.core.callwrapper import PyCallWrapper

Method = TypeVar("Method", bound=Callable[..., Any])

_EACH = 100.0  # default estimate of the microseconds that kernels take per row
_LONGEST = 1000.0  # maximum estimated microseconds of work for which a thread keeps the lock
_SOON = 2e-5  # interpreter switch interval, in seconds, within ``switching_soon``
_SYMBOL = "cmt_numba_interpreter_keeper"

_keeper = ctypes.c_ulong(0)
"""The identifier of the thread whose kernels keep the lock, or 0. A second thread may overwrite the first thread's
identifier; the kernels of the first thread then release the lock as usual."""

llvmlite.binding.add_symbol(_SYMBOL, ctypes.addressof(_keeper))


class _Keeping:
    """A context in which the kernels of a thread keep the interpreter lock."""

    def __enter__(self) -> None:
        _keeper.value = get_ident()

    def __exit__(self, *_: object) -> None:
        _keeper.value = 0


_keeping = _Keeping()
_unchanged: AbstractContextManager[None] = nullcontext()


def keeping_interpreter(
    n_rows: int, microseconds: float = _EACH, longest: float = _LONGEST
) -> AbstractContextManager[None]:
    """Return a context in which kernels keep the lock if ``n_rows`` take at most about ``longest`` microseconds."""
    if n_rows * microseconds <= longest:
        return _unchanged if _keeper.value == get_ident() else _keeping
    if _keeper.value == get_ident():  # a large batch inside the context of a small one
        _keeper.value = 0
    return _unchanged


def keeps_interpreter(method: Method) -> Method:
    """Wrap a method in :func:`keeping_interpreter`. The method's first argument has an entry for each row."""

    @wraps(method)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        rows: Any = args[0] if args else next(iter(kwargs.values()), None)
        shape = getattr(rows, "shape", None)
        if shape is not None:
            n_rows = shape[0] if shape else 1
        elif hasattr(rows, "__len__"):
            n_rows = 1 if isinstance(rows, str | bytes) else len(rows)
        else:
            n_rows = sys.maxsize if hasattr(rows, "__next__") else 1  # an iterator may yield any number of rows
        if n_rows * _EACH > _LONGEST or _keeper.value == get_ident():
            with keeping_interpreter(n_rows):
                return method(self, *args, **kwargs)
        _keeper.value = get_ident()
        try:
            return method(self, *args, **kwargs)
        finally:
            _keeper.value = 0

    return cast(Method, keeping)


@contextmanager
def switching_soon() -> Iterator[None]:
    """Shorten the interpreter's switch interval from 5 to 0.02 ms within :func:`keeping_interpreter`.

    Use this around calls that release the lock, for example calls of SQLite: busy threads then return the lock sooner.
    The interval applies to all threads of the process, so the ``with`` block must be short.
    """
    usual = sys.getswitchinterval()
    if _keeper.value != get_ident() or usual <= _SOON:
        yield
        return
    sys.setswitchinterval(_SOON)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class KernelWrapper(PyCallWrapper):  # type: ignore[misc]
    """The Python wrapper of a kernel, which releases the interpreter lock unless the calling thread keeps it."""

    def build_wrapper(self, api: Any, builder: Any, *arguments: Any) -> None:
        """Generate the code of the wrapper."""
        save, restore = api.save_thread, api.restore_thread

        def save_unless_kept() -> Any:
            ident = ir.IntType(8 * ctypes.sizeof(_keeper))
            keeper = builder.load(ir.GlobalVariable(builder.module, ident, _SYMBOL))
            get = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ident, []), "PyThread_get_thread_ident"
            )
            saved = cgutils.alloca_once_value(builder, api.voidptr(None))
            with builder.if_then(builder.icmp_unsigned("!=", keeper, builder.call(get, []))):
                builder.store(save(), saved)
            return builder.load(saved)

        def restore_if_saved(saved: Any) -> None:
            with builder.if_then(cgutils.is_not_null(builder, saved)):
                restore(saved)

        api.save_thread, api.restore_thread = save_unless_kept, restore_if_saved
        super().build_wrapper(api, builder, *arguments)
