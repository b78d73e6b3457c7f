"""Decorators of kernels: the only place with numba options.

``kernel`` marks functions that Python calls: a whole batch of work in one call, compiled once and kept in numba's
cache. It releases the global interpreter lock, except for a few rows (``interpreter_lock.py``). The other decorators
mark functions that kernels call. These are compiled into each kernel that uses them and need no cache entry.

No decorator counts references. Python keeps the arguments of a kernel alive until it returns, yet numba would count
each array of each tuple that it unpacks, with two atomic operations that cost several times the work itself. So no
kernel returns an array, and a kernel that needs temporary arrays allocates them with ``empty`` and ``zeros`` and passes
them to ``release`` before it returns (``arrays.py``).

- ``inner`` is inlined: passing the hundred words that describe the state would take longer than most of these
  functions run.
- ``inner_fastmath`` is ``inner`` for sums of products, whose additions may be reordered into vector instructions; NaN
  and infinity keep their meaning.
- ``inner_called`` is not inlined, for large functions that are called rarely: a kernel contains the code once,
  regardless of the number of calls.
- ``inner_allocating`` is ``inner_called`` for functions that return temporary arrays, which the calling kernel
  releases. ``tests/kernels/test_kernels.py`` checks that only these and kernels allocate.
- ``inner_shared`` is ``inner_called`` for large functions that several kernels need: compiled and cached separately,
  and called by address (``addresses.py``).
- ``inner_merged`` is for functions with one caller among all kernels: they are merged into its source before
  compilation. A function with several callers compiles faster as ``inner``.
- ``inner_exported`` is ``inner`` for the few functions that Python calls too. All others have no wrapper for Python, a
  third of the code to compile: calling one from Python raises TypeError.

A function that Python calls is compiled, or loaded from the cache, at its first call. An interrupt (Ctrl-C) during
compilation is raised afterwards, at most a few seconds later: numba iterates over its registries with generators. If an
exception ends one of them, every later compilation in the process fails with ``RuntimeError: generator raised
StopIteration``. Later calls have no overhead.

If compilation takes longer than a second, the logger "cmt_numba" warns once.

Set the environment variable ``CMT_NUMBA_CACHE=0`` to compile anew in every process.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher

from .._change import uninterrupted
from .collection import pause
from .inlining import KernelCompiler, PartCompiler
from .machine_code import KernelCache
from .notice import compiling

_CACHE = os.environ.get("CMT_NUMBA_CACHE", "1") != "0"
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_FROM_PYTHON: dict[str, Any] = {**_OPTIONS, "pipeline_class": KernelCompiler}
_UNWRAPPED: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": PartCompiler}
_INLINED: dict[str, Any] = {"forceinline": True}
_SHARED: dict[str, Any] = {**_FROM_PYTHON, "no_cpython_wrapper": True}
_FASTMATH = {"contract", "nsz", "reassoc"}


def _with_notice(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile or load a function for arguments, with a notice if compilation takes long."""
    before = dispatcher.stats.cache_misses.total()
    with compiling.around(lambda: dispatcher.stats.cache_misses.total() > before), pause.during():
        return type(dispatcher)._compile_for_args(dispatcher, *args, **kwargs)


def _called_by_python(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the decorator with compilation that defers interrupts."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function:  # unless NUMBA_DISABLE_JIT is set
            dispatcher._compile_for_args = partial(uninterrupted, partial(_with_notice, dispatcher))
        return dispatcher

    return decorated


def _kept(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the decorator with a cache of machine code on disk."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function and _CACHE:
            dispatcher._cache = KernelCache(function)
        return dispatcher

    return decorated


class _OnlyInKernels(CPUDispatcher):  # type: ignore[misc]
    """A function that only kernels call. It has no wrapper: calling it from Python would crash the process."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} can be called only by kernels: call as_python({name}) from Python")


def _called_by_kernels(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the decorator for functions that Python must not call."""

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
inner_called = _called_by_kernels(njit(**_UNWRAPPED))
inner_allocating = _called_by_kernels(njit(**_UNWRAPPED))
inner_shared = _called_by_kernels(_called_by_python(_kept(njit(**_SHARED))))
inner_merged = _called_by_kernels(njit(**_UNWRAPPED, inline="always"))


def as_python(function: Any) -> Any:
    """Return the Python function that numba compiles, for a single call or for NumPy arrays in place of numbers."""
    return getattr(function, "py_func", function)  # missing if NUMBA_DISABLE_JIT is set
