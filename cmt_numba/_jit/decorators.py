"""Decorators that compile kernels and the functions that kernels call.

``kernel`` compiles a function that Python calls to process a whole batch. Its machine code is cached on disk. It
releases the global interpreter lock except for small batches (``interpreter_lock.py``). The other decorators compile
functions that kernels call, whose code becomes part of each kernel:

- ``inner`` inlines the function. Passing the hundred words that describe a state would take longer than running
  most of these functions.
- ``inner_fastmath`` is ``inner`` for sums of products. LLVM may reorder their additions to use vector instructions; NaN
  and infinity behave normally.
- ``inner_called`` does not inline the function. Use it for large functions that are called rarely: a kernel includes
  the code only once.
- ``inner_allocating`` is ``inner_called`` for functions that return temporary arrays, which the calling kernel
  releases. ``tests/kernels/test_kernels.py`` checks that only these functions and kernels allocate.
- ``inner_shared`` is ``inner_called`` for large functions that several kernels use. Their machine code is cached
  separately and called by address (``addresses.py``).
- ``inner_exported`` is ``inner`` for functions that Python also calls. All other inner functions have no Python
  wrapper, which would be a third of the code to compile, and raise TypeError if Python calls them.

Compiled code does not count references: Python keeps the arguments of a kernel alive, and two atomic operations for
each array of each tuple would take several times as long as the work itself. Kernels therefore return no arrays. They
allocate temporary arrays with ``empty`` and ``zeros`` and free them with ``release`` (``arrays.py``).

A kernel is compiled, or loaded from the cache, at its first call. Later calls have no overhead. An interrupt (Ctrl-C)
during compilation is raised when compilation ends, at most a few seconds later. If an interrupt ended one of the
generators with which Numba iterates over its registries, every later compilation in the process would fail with
``RuntimeError: generator raised StopIteration``.

If compilation takes longer than a second, the logger "cmt_numba" warns once. The environment variable
``CMT_NUMBA_CACHE=0`` disables the cache on disk.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral

from .._change import uninterrupted
from .inlining import KernelCompiler, PartCompiler
from .machine_code import KernelCache
from .notice import compiling

_CACHE = os.environ.get("CMT_NUMBA_CACHE", "1") != "0"
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_FROM_PYTHON: dict[str, Any] = {**_OPTIONS, "pipeline_class": KernelCompiler}
_UNWRAPPED: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": PartCompiler}
_CALLED: dict[str, Any] = {"forceinline": False}  # if it were missing, the value of the calling function would count
_INLINED: dict[str, Any] = {"forceinline": True}
_SHARED: dict[str, Any] = {**_FROM_PYTHON, "no_cpython_wrapper": True}
_FASTMATH = {"contract", "nsz", "reassoc"}


def _with_notice(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile a function for its arguments or load it from the cache; log a notice if compilation takes long."""
    before = dispatcher.stats.cache_misses.total()
    with compiling.around(lambda: dispatcher.stats.cache_misses.total() > before):
        return type(dispatcher)._compile_for_args(dispatcher, *args, **kwargs)


def _called_by_python(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator like ``decorate`` whose functions defer interrupts during compilation."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function:  # they are the same if NUMBA_DISABLE_JIT is set
            dispatcher._compile_for_args = partial(uninterrupted, partial(_with_notice, dispatcher))
        return dispatcher

    return decorated


def _kept(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator like ``decorate`` whose functions cache their machine code on disk."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function and _CACHE:
            dispatcher._cache = KernelCache(function)
        return dispatcher

    return decorated


class _OnlyInKernels(CPUDispatcher):  # type: ignore[misc]
    """A compiled function without a Python wrapper. Without this class, a call from Python would crash the process."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types of its arguments; Numba would also compile it for each constant."""
        return super().get_call_template([*map(unliteral, args)], {name: unliteral(kind) for name, kind in kws.items()})

    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} can be called only by kernels: call as_python({name}) from Python")


def _called_by_kernels(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator like ``decorate`` whose functions raise TypeError if Python calls them."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function:
            dispatcher.__class__ = _OnlyInKernels
        return dispatcher

    return decorated


kernel = _called_by_python(_kept(njit(**_FROM_PYTHON)))
inner = _called_by_kernels(njit(**_UNWRAPPED, **_INLINED))
inner_exported = _called_by_python(njit(**_FROM_PYTHON, **_INLINED))
inner_fastmath = _called_by_kernels(njit(**_UNWRAPPED, **_INLINED, fastmath=_FASTMATH))
inner_called = _called_by_kernels(njit(**_UNWRAPPED, **_CALLED))
inner_allocating = _called_by_kernels(njit(**_UNWRAPPED, **_CALLED))
inner_shared = _called_by_kernels(_called_by_python(_kept(njit(**_SHARED))))


def as_python(function: Any) -> Any:
    """Return the Python source of a compiled function, which also accepts NumPy arrays in place of numbers."""
    return getattr(function, "py_func", function)  # no such attribute if NUMBA_DISABLE_JIT is set
