"""A process that works until it is killed at some moment. POSIX only."""

import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any


def told_until_killed(
    work: Callable[[Callable[..., None]], Any], told: struct.Struct, seconds: float
) -> tuple[int, ...] | None:
    """Have a process work, and kill it (SIGKILL) after some seconds; return what it has told last, if anything.

    Parameters
    ----------
    work : callable
        Is called in the process with a function that tells numbers, and goes on for ever.
    told : struct.Struct
        The numbers that are told at once.
    seconds : float
        How long the process lives.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            work(lambda *numbers: os.write(writing, told.pack(*numbers)))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(writing)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    heard = os.read(reading, 1 << 16)
    os.close(reading)
    assert os.WIFSIGNALED(status), "it has ended by itself"
    return told.unpack(heard[-told.size :]) if heard else None
