"""How much memory this process takes, and has taken at its peak. Linux only; elsewhere all is not a number."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _megabytes(field: str) -> float:
    if not _STATUS.exists():
        return float("nan")
    return float(_STATUS.read_text().split(f"{field}:")[1].split()[0]) / 1024


def resident() -> float:
    """Return the megabytes in use."""
    return _megabytes("VmRSS")


def peak() -> float:
    """Return the most megabytes in use since ``forget_peak``."""
    return _megabytes("VmHWM")


def forget_peak() -> None:
    """Give free memory back to the system, and let the peak be what is in use now."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
