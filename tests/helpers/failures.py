"""Failures in the middle of a change."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pkgutil import resolve_name
from typing import Any

import pytest


@contextmanager
def failing(name: str, error: type[BaseException] = MemoryError, call: int | None = None) -> Iterator[None]:
    """Make a function of the package fail during the block, in all calls or in one, and expect the error.

    The name is relative to the package. Calls are counted from 1.
    """
    name = f"cmt_numba.{name}"
    working, calls = resolve_name(name), count(1)

    def fail(*arguments: Any, **named: Any) -> Any:
        if call is None or next(calls) == call:
            raise error
        return working(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, fail)
        with pytest.raises(error):
            yield
