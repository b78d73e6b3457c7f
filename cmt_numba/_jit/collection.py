"""Pausing the garbage collector during compilation.

Numba creates millions of objects, most of which stay alive. Repeated scans of them take a tenth of the compilation time
and free little memory.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pause:
    """A pause of Python's garbage collector, shared by all threads.

    The collector is disabled while any thread is inside :meth:`during`. If it was disabled before, it stays disabled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_asking = 0
        self._was_enabled = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Disable the garbage collector during a ``with`` block."""
        with self._lock:
            if self._n_asking == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._n_asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_asking -= 1
                if self._n_asking == 0 and self._was_enabled:
                    gc.enable()


pause = Pause()
