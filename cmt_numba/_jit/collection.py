"""Without garbage collection while something is compiled.

Numba makes millions of objects meanwhile, most of which stay. The collector would go through them again and again,
which takes a tenth of the time, and free little.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pause:
    """A pause of Python's garbage collector that lasts until all who asked for it are done.

    Reference counts go on freeing objects. If collection was disabled before, it stays so.
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
