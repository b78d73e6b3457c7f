"""What is compiled: for whom, and what becomes of interrupts meanwhile."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from conftest import needs_jit

from cmt_numba._forest.sparse_weights import table_bits
from cmt_numba._jit import as_python, uninterrupted

INTERRUPTED = """
import signal, sys
import numpy as np
from cmt_numba._forest.lru_list import new_recency, put_last

recency = new_recency(np.arange(5), 8)


def interrupt(frame, event, argument):
    if frame.f_code.co_name == "stream_list":  # one of numba's generators, which an exception would end
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)


sys.setprofile(interrupt)
try:
    put_last(recency, np.array([2]))
except KeyboardInterrupt:
    print("interrupted")
put_last(recency, np.array([3]))
print(recency.totals.tolist())
"""


@needs_jit
def test_interrupt_of_a_first_call():
    code = ["-c", INTERRUPTED]
    done = subprocess.run([sys.executable, *code], env=fresh(), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "interrupted\n[0, 3, 5]\n"


def fresh() -> dict[str, str]:
    """Return an environment in which everything is compiled anew."""
    return {**os.environ, "CMT_NUMBA_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}


def test_interrupts_are_raised_afterwards():
    done = []

    def work(first: int, *, second: int) -> int:
        signal.raise_signal(signal.SIGINT)
        done.append((first, second))
        return 3

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work, 1, second=2)
    assert done == [(1, 2)]
    assert uninterrupted(lambda number: number + 1, 1) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def fail() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ValueError

    with pytest.raises(KeyboardInterrupt) as caught:
        uninterrupted(fail)
    assert isinstance(caught.value.__context__, ValueError)


def test_handlers_stay_as_they_are():
    seen: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        uninterrupted(lambda: (signal.raise_signal(signal.SIGINT), seen.append("done")))
        assert seen == ["done", signal.SIGINT]
        thread = threading.Thread(target=uninterrupted, args=(seen.append, "in a thread"))
        thread.start()
        thread.join()
        assert seen[2:] == ["in a thread"]
    finally:
        signal.signal(signal.SIGINT, before)


@needs_jit
def test_functions_of_kernels_are_not_for_python():
    with pytest.raises(TypeError, match=r"as_python\(table_bits\)"):
        table_bits(3)
    assert as_python(table_bits)(3) == 4
