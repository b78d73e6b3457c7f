"""Interrupt a change at any line of the library that it executes."""

import signal
import sys
from collections.abc import Callable
from linecache import getline
from types import FrameType
from typing import Any

from conftest import ROOT

PACKAGE = str(ROOT / "cmt_numba")
# Kernels are compiled once, and no interrupt comes between the lines that take locks: they call nothing.
NOT_INTERRUPTED = (str(ROOT / "cmt_numba" / "_change/lock.py"), str(ROOT / "cmt_numba" / "_jit"))


class Lines:
    """Record each executed line of the library, or send an interrupt before line number ``stop``."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop, self.n = stop, 0
        self.places: dict[tuple[str, int], list[int]] = {}

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file.startswith(NOT_INTERRUPTED):
            return None
        # Python executes the line of a with statement again before it releases the lock; no interrupt comes in between.
        if event == "line" and not getline(file, frame.f_lineno).lstrip().startswith(("with ", "pass")):
            self.n += 1
            self.places.setdefault((file, frame.f_lineno), []).append(self.n)
            if self.n == self.stop:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
                return None
        return self._trace

    def run(self, work: Callable[[], Any]) -> None:
        """Run a function, and restore the tracer of before."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
