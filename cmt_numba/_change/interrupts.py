"""Deferral of interrupts (Ctrl-C) to the end of a step.

Python can raise ``KeyboardInterrupt`` in the main thread between any two instructions. During a change, an interrupt
is recorded instead and raised at the end of the current step, within milliseconds, or at the end of the change. Steps
therefore always complete, and earlier steps can be undone without interruption.
"""

from __future__ import annotations

import signal
from _signal import getsignal  # type: ignore[import-not-found] # signal takes 4 us to find a handler in its enums
from _signal import signal as set_handler
from collections.abc import Callable
from threading import get_ident, main_thread
from typing import Any, TypeVar

T = TypeVar("T")
Handler = Callable[[int, Any], Any]

# Python raises interrupts in the main thread only, so these globals describe that thread.
_handler: Handler | None = None  # the original handler while interrupts are deferred, else None
_is_pending = False  # True while a recorded interrupt has not been raised
_n_protected = 0  # number of active calls of ``uninterrupted``


def defer_interrupts(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. :func:`end_step` or the end of ``work`` raises a recorded interrupt."""
    handler = begin_deferral()
    try:
        return work()
    finally:
        if handler is not None:
            end_deferral(handler)


def begin_deferral() -> Handler | None:
    """Defer interrupts. Return the handler for :func:`end_deferral`, or None if there is nothing to defer or to end."""
    global _handler
    if _handler is not None or get_ident() != main_thread().ident:
        return None
    handler: Any = getsignal(signal.SIGINT)
    if not callable(handler):
        return None  # SIGINT is ignored or ends the process
    set_handler(signal.SIGINT, _record)
    _handler = handler
    return _handler


def end_deferral(handler: Handler) -> None:
    """Restore the handler of interrupts, and raise a recorded interrupt."""
    global _handler
    _handler = None
    set_handler(signal.SIGINT, handler)
    if _is_pending:
        _raise_pending(handler)


def end_step() -> None:
    """Raise a recorded interrupt, except within :func:`uninterrupted`."""
    if _is_pending and _handler is not None and _n_protected == 0 and get_ident() == main_thread().ident:
        _raise_pending(_handler)


def uninterrupted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``work(*args, **kwargs)``. Raise an interrupt only after the call has ended."""
    global _n_protected
    if get_ident() != main_thread().ident:
        return work(*args, **kwargs)
    handler = begin_deferral()
    _n_protected += 1
    try:
        return work(*args, **kwargs)
    finally:
        _n_protected -= 1
        if handler is not None:
            end_deferral(handler)


def _record(_number: int, _frame: Any) -> None:
    global _is_pending
    _is_pending = True


def _raise_pending(handler: Handler) -> None:
    global _is_pending
    _is_pending = False
    handler(signal.SIGINT, None)
