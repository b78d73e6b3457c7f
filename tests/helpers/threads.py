"""Threads for tests, and small data for estimators that several threads share."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SOON = 120.0  # seconds, the longest wait for a thread


def started(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Threads:
    """Threads that repeat their work during a ``with`` block, which raises their errors."""

    def __init__(self, *works: Callable[[], Any]) -> None:
        self.counts = [0] * len(works)
        self._stopped = False
        self._errors: list[BaseException] = []
        self._works = works

    def _repeat(self, i: int) -> None:
        try:
            while not self._stopped:
                self._works[i]()
                self.counts[i] += 1
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> "Threads":
        self._threads = [started(lambda i=i: self._repeat(i)) for i in range(len(self._works))]
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._errors:
            until(lambda: bool(min(self.counts)) or bool(self._errors))
        self._stopped = True
        for thread in self._threads:
            thread.join(SOON)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]


rng = np.random.default_rng(0)
ROWS = rng.normal(size=(120, 8)).astype(np.float32)
CLASSES = np.arange(120) % 30
MARKS = (ROWS[:, :6] > 0.5).astype(int)
