"""A pause of the garbage collector during compilation.

Numba creates millions of objects, most of which stay. Scanning them again and again takes a tenth of the compile time
and frees little.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pause:
    """A pause of Python's garbage collector that lasts until the last thread leaves :meth:`during`.

    Reference counting still frees objects. If collection was disabled before, it stays disabled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_asking = 0
        self._was_enabled = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Pause collection during the block."""
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
