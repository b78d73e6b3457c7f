"""Interrupts (Ctrl-C) that wait for the end of a step.

Python raises ``KeyboardInterrupt`` in the main thread between any two instructions. While a change is under way, the
interrupt is noted instead, and raised at the end of the current step, which takes some milliseconds, or at the end of
the change. So nothing is ever left half done, and what undoes the steps before runs to its end.
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

# What the main thread has deferred; no other thread is ever interrupted.
_handler: Callable[[int, Any], Any] | None = None  # what receives an interrupt; None while none is deferred
_came = False  # whether one has come
_n_kept = 0  # calls of ``uninterrupted`` that are under way


def defer_interrupts(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. An interrupt is raised by :func:`end_step`, or when ``work`` has ended."""
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
    """Raise the interrupt that has come during a step, if any, unless the work under way is :func:`uninterrupted`."""
    if _came and _handler is not None and _n_kept == 0 and get_ident() == main_thread().ident:
        _raise_noted(_handler)


def uninterrupted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return what ``work`` returns of the arguments. An interrupt that comes meanwhile is raised later."""
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
    """If the block fails or is interrupted, call ``undo``, which is not interrupted."""
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
