"""Decorators that compile kernels and the functions that kernels call.

``kernel`` compiles a function that Python calls to process a whole batch. Its machine code is cached on disk. It
releases the global interpreter lock except for small batches (``interpreter_lock.py``). A ``quick_kernel``, which takes
about a microsecond, always keeps the lock. The other decorators compile functions that kernels call, whose code becomes
part of each kernel:

- ``inner`` inlines the function. Passing the hundred words that describe a state would take longer than running
  most of these functions.
- ``inner_fastmath`` is ``inner`` for sums of products. LLVM may reorder their additions to use vector instructions; NaN
  and infinity behave normally.
- ``inner_called`` does not inline the function. Use it for large functions that are called rarely: a kernel includes
  the code only once.
- ``inner_allocating`` is ``inner_called`` for functions that return temporary arrays, which the calling kernel
  releases. ``tests/kernels/test_kernels.py`` checks that only these functions and kernels allocate.
- ``inner_exported`` is ``inner`` for functions that Python also calls. All other inner functions have no Python
  wrapper, which would be a third of the code to compile, and raise TypeError if Python calls them.

Compiled code does not count references: Python keeps the arguments of a kernel alive, and two atomic operations for
each array of each tuple would take several times as long as the work itself. Kernels therefore return no arrays. They
allocate temporary arrays with ``empty`` and ``zeros`` (``arrays.py``), and free them with ``release``
(``references.py``).

A kernel is compiled, or loaded from the cache, at its first call. Later calls have no overhead. An interrupt (Ctrl-C)
during compilation is raised when compilation ends, at most a few seconds later. If an interrupt ended one of the
generators with which Numba iterates over its registries, every later compilation in the process would fail with
``RuntimeError: generator raised StopIteration``.

If compilation takes longer than a second in total, the logger "cmt_numba" warns once. The environment variable
``CMT_NUMBA_CACHE=0`` disables the cache on disk.
"""

import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from numba import njit
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral

from .._change import uninterrupted
from .inlining import KernelCompiler, PartCompiler
from .machine_code import KernelCache
from .references import as_parameter

_CACHE = os.environ.get("CMT_NUMBA_CACHE", "1") != "0"
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_PATIENCE = 1.0  # seconds of compilation after which the warning is logged
_MESSAGE = "compiling kernels for first use, about 15 s; see cmt_numba.warmup"

logger = logging.getLogger("cmt_numba")


class Notice:
    """Logs a warning once, when compilation has taken ``patience`` seconds in total.

    The warning follows the kernel that exceeds the limit. A thread that watches the clock could give it earlier, but
    a change may compile when the memory for another thread is lacking.
    """

    def __init__(self, message: str, patience: float) -> None:
        self.message, self.patience = message, patience
        self._seconds = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Add the duration of one compilation."""
        with self._lock:
            before, self._seconds = self._seconds, self._seconds + seconds
        if before < self.patience <= self._seconds:
            logger.warning(self.message)


compiling = Notice(_MESSAGE, _PATIENCE)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable the garbage collector, which would visit all objects of the compiler again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _with_notice(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile a function for its arguments or load it from the cache, and measure compilation."""
    n_compiled, began = dispatcher.stats.cache_misses.total(), perf_counter()
    try:
        with _without_collection():
            return type(dispatcher)._compile_for_args(dispatcher, *args, **kwargs)
    finally:
        if dispatcher.stats.cache_misses.total() > n_compiled:
            compiling.add(perf_counter() - began)


class _OnlyInKernels(CPUDispatcher):  # type: ignore[misc]
    """A compiled function without a Python wrapper. Without this class, a call from Python would crash the process."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for the types of its arguments; Numba would also compile it for each constant."""
        is_inlined = self.targetoptions["forceinline"]
        taken = [as_parameter(unliteral(kind), is_inlined) for kind in args]
        return super().get_call_template(
            taken, {name: as_parameter(unliteral(kind), is_inlined) for name, kind in kws.items()}
        )

    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} can be called only by kernels: call as_python({name}) from Python")


def _decorator(*, is_kept: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles functions with some options; ``is_kept`` caches the machine code on disk."""

    def decorated(function: Any) -> Any:
        dispatcher: Any = njit(**_OPTIONS | options)(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT is set
            return function
        if is_kept and _CACHE:
            dispatcher._cache = KernelCache(function)
        if options["pipeline_class"] is KernelCompiler:
            dispatcher._compile_for_args = partial(uninterrupted, partial(_with_notice, dispatcher))
        else:
            dispatcher.__class__ = _OnlyInKernels
        return dispatcher

    return decorated


_FROM_PYTHON: dict[str, Any] = {"pipeline_class": KernelCompiler}
_UNWRAPPED: dict[str, Any] = {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}

kernel = _decorator(**_FROM_PYTHON, is_kept=True)
quick_kernel = _decorator(**_FROM_PYTHON, is_kept=True, nogil=False)
inner = _decorator(**_UNWRAPPED, forceinline=True)
inner_exported = _decorator(**_FROM_PYTHON, forceinline=True)
inner_fastmath = _decorator(**_UNWRAPPED, forceinline=True, fastmath={"contract", "nsz", "reassoc"})
inner_called = _decorator(**_UNWRAPPED, forceinline=False)  # without it, the value of the calling function would count
inner_allocating = inner_called


def as_python(function: Any) -> Any:
    """Return the Python source of a compiled function, which also accepts NumPy arrays in place of numbers."""
    return getattr(function, "py_func", function)  # no such attribute if NUMBA_DISABLE_JIT is set
