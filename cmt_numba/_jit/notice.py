"""A warning that is logged if compilation takes long."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 1.0  # seconds of compilation before the warning is logged
_MESSAGE = "compiling kernels for first use, about 15 s; see cmt_numba.warmup"

logger = logging.getLogger("cmt_numba")


class Notice:
    """Logs a warning at most once if a ``with`` block takes longer than ``patience`` seconds."""

    def __init__(self, message: str, patience: float) -> None:
        self.message, self.patience = message, patience
        self._lock = threading.Lock()
        self._given = False

    @contextmanager
    def around(self, wanted: Callable[[], bool]) -> Iterator[None]:
        """Log the warning if the ``with`` block takes longer than ``patience`` and ``wanted()`` is then true."""
        if self._given:
            yield
            return
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done, wanted), daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def _watch(self, done: threading.Event, wanted: Callable[[], bool]) -> None:
        while not done.wait(self.patience):
            if wanted():
                self._give()
                return

    def _give(self) -> None:
        with self._lock:
            if self._given:
                return
            self._given = True
        logger.warning(self.message)


compiling = Notice(_MESSAGE, _PATIENCE)
