"""Failures in the middle of a change."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pkgutil import resolve_name
from typing import Any

import pytest


@contextmanager
def failing(
    name: str,
    error: type[BaseException] | BaseException = MemoryError,
    call: int | None = None,
    *,
    after: bool = False,
    raised: type[BaseException] | None = None,
) -> Iterator[None]:
    """Make a function of the package fail during the block, in all calls or in one, and expect the error.

    The name is relative to the package. Calls are counted from 1. The function fails before it does anything or after
    its work. An error that is raised instead has to repeat the message.
    """
    name = f"cmt_numba.{name}"
    working, calls = resolve_name(name), count(1)
    expected = raised or (error if isinstance(error, type) else type(error))

    def fail(*arguments: Any, **named: Any) -> Any:
        fails = call is None or next(calls) == call
        result = working(*arguments, **named) if after or not fails else None
        if fails:
            raise error
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, fail)
        with pytest.raises(expected, match=str(error) if raised else None):
            yield


@contextmanager
def interrupted_after(name: str) -> Iterator[None]:
    """Send an interrupt after each call of a function of the package during the block, and expect KeyboardInterrupt."""
    name = f"cmt_numba.{name}"
    working = resolve_name(name)

    def interrupt(*arguments: Any, **named: Any) -> Any:
        result = working(*arguments, **named)
        signal.raise_signal(signal.SIGINT)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield
