"""The only place with numba options.

``kernel`` marks what Python calls: a whole batch of work in one call, compiled once and kept in numba's cache. It
releases the global interpreter lock, except for a few rows (``interpreter_lock.py``). The others mark functions that
kernels call; they are compiled into each kernel that uses them and need no cache entry of their own.

None of them counts references. Python holds every array that it hands to a kernel until that returns, yet numba would
count each array of each tuple that is taken apart, with two atomic operations that together cost several times the work
itself, and most of the code of many kernels would do nothing else. So no kernel returns an array, and one that needs
room to work in allocates it with ``empty`` and ``zeros`` and hands it to ``release`` before it returns (``arrays.py``).

- ``inner`` is inlined: a call would have to hand over the hundred words that describe the state, which takes longer
  than what most of these functions do.
- ``inner_fastmath`` is ``inner`` for sums of products, whose additions may be rearranged into vector instructions;
  NaN and infinity keep their meaning.
- ``inner_called`` is ``inner`` without the inlining, for what is large and called seldom enough that the call does not
  count: a kernel holds it once, however many places call it.
- ``inner_allocating`` is ``inner_called`` for what makes room to work in: the kernel that calls it releases what it
  returns. The name tells those that allocate from others, see ``tests/kernels/test_kernels.py``.
- ``inner_shared`` is ``inner_called`` for what is large and needed by several kernels: compiled by itself, and kept in
  the cache; kernels are handed its address (``addresses.py``).
- ``inner_merged`` is ``inner`` for what one place of all kernels calls: it becomes part of its caller before that is
  compiled at all. What several kernels call is better ``inner``, of which only the inlining is done once more in each.
- ``inner_exported`` is ``inner`` for the few that Python calls too. Of all others numba is told to leave out the
  wrapper that Python would call, a third of what there is to compile: to call one from Python raises TypeError.

A function that Python calls is compiled, or taken from the cache, at its first call. An interrupt (Ctrl-C) that comes
meanwhile is raised when this is done, after some seconds at most. For numba reads the lists of what it can compile by
generators, once each. One that an exception leaves is at its end, and from then on every compilation in the process
fails with ``RuntimeError: generator raised StopIteration``. Later calls are as fast as without.

If something is compiled and that takes longer than a second, the logger "cmt_numba" says so once, as a warning.

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
    """Compile a function for arguments, or load it, and say so if it is compiled and that takes long."""
    before = dispatcher.stats.cache_misses.total()
    with compiling.around(lambda: dispatcher.stats.cache_misses.total() > before), pause.during():
        return type(dispatcher)._compile_for_args(dispatcher, *args, **kwargs)


def _called_by_python(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator as the one given, for functions that are compiled without an interrupt in between."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function:  # numba is not told to leave functions as they are
            dispatcher._compile_for_args = partial(uninterrupted, partial(_with_notice, dispatcher))
        return dispatcher

    return decorated


def _kept(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator as the one given, for functions whose machine code is cached on disk."""

    def decorated(function: Any) -> Any:
        dispatcher = decorate(function)
        if dispatcher is not function and _CACHE:
            dispatcher._cache = KernelCache(function)
        return dispatcher

    return decorated


class _OnlyInKernels(CPUDispatcher):  # type: ignore[misc]
    """A function that only kernels call. There is nothing that Python could call: to try would end the process."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} is compiled into kernels only; as_python({name}) is what Python can call")


def _called_by_kernels(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator as the one given, for functions that Python must not call."""

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
    """Return what numba has been given to compile: for a single call, or for NumPy's arrays in place of numbers."""
    return getattr(function, "py_func", function)  # there is none where numba is told not to compile
