"""Interrupts (Ctrl-C) deferred to the end of a step.

Python raises ``KeyboardInterrupt`` in the main thread between any two instructions. During a change the interrupt is
noted instead, and raised at the end of the current step, some milliseconds later, or at the end of the change. So no
step is left half done, and undoing earlier steps is not interrupted.
"""

from __future__ import annotations

import signal
from _signal import getsignal  # type: ignore[import-not-found] # signal takes 4 us to find a handler in its enums
from _signal import signal as set_handler
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

# The state of the main thread; no other thread is interrupted.
_handler: Callable[[int, Any], Any] | None = None  # the handler to call; None unless interrupts are deferred
_came = False  # whether an interrupt has come
_n_kept = 0  # nested calls of ``uninterrupted``


def defer_interrupts(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. Interrupts are raised by :func:`end_step`, or when ``work`` ends."""
    global _handler
    if _handler is not None or get_ident() != main_thread().ident:
        return work()
    handler = getsignal(signal.SIGINT)
    if not callable(handler):
        return work()  # interrupts are ignored, or end the process
    set_handler(signal.SIGINT, _note)
    try:
        _handler = handler
        return work()
    finally:
        _handler = None
        set_handler(signal.SIGINT, handler)
        if _came:
            _raise_noted(handler)


def end_step() -> None:
    """Raise an interrupt that came during a step, except within :func:`uninterrupted`."""
    if _came and _handler is not None and _n_kept == 0 and get_ident() == main_thread().ident:
        _raise_noted(_handler)


def uninterrupted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call ``work`` with the arguments and return its result. An interrupt is raised afterwards."""
    if get_ident() != main_thread().ident:
        return work(*args, **kwargs)

    def kept() -> T:
        global _n_kept
        _n_kept += 1
        try:
            return work(*args, **kwargs)
        finally:
            _n_kept -= 1

    return defer_interrupts(kept)


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo``, without interrupts, if the block fails or is interrupted."""
    try:
        yield
    except BaseException:
        uninterrupted(undo)
        raise


def _note(_number: int, _frame: Any) -> None:
    global _came
    _came = True


def _raise_noted(handler: Callable[[int, Any], Any]) -> None:
    global _came
    _came = False
    handler(signal.SIGINT, None)
