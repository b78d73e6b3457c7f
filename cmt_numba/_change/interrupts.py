"""Deferral of interrupts (Ctrl-C) to the end of a step.

Python can raise ``KeyboardInterrupt`` in the main thread between any two instructions. During a change, an interrupt
is recorded instead and raised at the end of the current step, within milliseconds, or at the end of the change. Steps
therefore always complete, and earlier steps can be undone without interruption.
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

# Python raises interrupts in the main thread only, so these globals describe that thread.
_handler: Callable[[int, Any], Any] | None = None  # the original handler while interrupts are deferred, else None
_is_pending = False  # True while a recorded interrupt has not been raised
_n_protected = 0  # number of active calls of ``uninterrupted``


def defer_interrupts(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. :func:`end_step` or the end of ``work`` raises a recorded interrupt."""
    global _handler
    if _handler is not None or get_ident() != main_thread().ident:
        return work()
    handler = getsignal(signal.SIGINT)
    if not callable(handler):
        return work()  # SIGINT is ignored or ends the process
    set_handler(signal.SIGINT, _record)
    try:
        _handler = handler
        return work()
    finally:
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
    if get_ident() != main_thread().ident:
        return work(*args, **kwargs)

    def protected() -> T:
        global _n_protected
        _n_protected += 1
        try:
            return work(*args, **kwargs)
        finally:
            _n_protected -= 1

    return defer_interrupts(protected)


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` if the block fails or is interrupted. Interrupts are deferred until ``undo`` returns."""
    try:
        yield
    except BaseException:
        uninterrupted(undo)
        raise


def _record(_number: int, _frame: Any) -> None:
    global _is_pending
    _is_pending = True


def _raise_pending(handler: Callable[[int, Any], Any]) -> None:
    global _is_pending
    _is_pending = False
    handler(signal.SIGINT, None)
