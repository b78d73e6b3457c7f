"""How kernels are compiled: interrupts meanwhile, what is said of it, and what if Numba is not as it was."""

import gc
import os
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import jit_room, state_of
from llvmlite.binding import llvm_version_info
from numba import config, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys

from cmt_numba import ContextualMemoryTree
from cmt_numba._jit import (
    Known,
    as_python,
    by_reference,
    empty,
    inner,
    inner_allocating,
    inner_called,
    inner_exported,
    keeping_interpreter,
    keeps_interpreter,
    kernel,
    known,
    release,
    switching_soon,
    zeros,
)
from cmt_numba._linear import table_bits

INTERRUPTED = """
import logging, signal, sys
import numpy as np
from cmt_numba._forest.eviction import new_recency, put_last

logging.getLogger("cmt_numba").setLevel(logging.ERROR)  # on a busy machine, to compile takes long
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
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted\n[0, 3, 5]\n"


def fresh() -> dict[str, str]:
    """Return an environment in which everything is compiled anew."""
    return {**os.environ, "CMT_NUMBA_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}


@needs_jit
def test_functions_of_kernels_are_not_for_python():
    with pytest.raises(TypeError, match=r"as_python\(table_bits\)"):
        table_bits(3)
    assert as_python(table_bits)(3) == 4


def first_of(array: Any) -> Any:
    return array[0]


@needs_jit
def test_functions_that_only_kernels_call_are_not_compiled_by_themselves():
    part = inner(first_of)
    assert njit(lambda array: part(array) + 1)(np.arange(3) + 5) == 6
    assert type(part.overloads[part.signatures[0]].library).__name__ == "PartLibrary"


@needs_jit
def test_functions_are_compiled_for_types_not_for_constants():
    add = inner(lambda a, b: a + b)
    outer = njit(lambda n: add(n, 0) + add(0, b=1) + add(n, n))
    assert outer(3) == 3 + 1 + 6
    assert len(add.signatures) == 1


@needs_jit
@pytest.mark.skipif(llvm_version_info[0] < 20, reason="this LLVM inlines such small functions by itself")
def test_called_functions_are_not_inlined_into_inlined_ones():
    called = inner_called(first_of)
    outer = inner(lambda array: called(array) + 1)
    total = njit(lambda array: outer(array) + outer(array[1:]))
    assert total(np.arange(3) + 5) == 13
    code = total.inspect_llvm(total.signatures[0])
    assert any("first_of" in line and "call" in line for line in code.splitlines())


@needs_jit
def test_numba_may_change(monkeypatch: pytest.MonkeyPatch):
    """What is no longer as expected is compiled as Numba does by default."""
    assert jit_room.inlining.part_compiler(gone) is Compiler
    finalize = JITCodeLibrary._finalize_dynamic_globals

    def changed(library: Any) -> None:
        if hasattr(library, "optimized"):
            raise AttributeError("module")
        finalize(library)

    monkeypatch.setattr(JITCodeLibrary, "_finalize_dynamic_globals", changed)
    part = inner(first_of)
    assert njit(lambda array: part(array) + 2)(np.arange(3) + 5) == 7
    assert type(part.overloads[part.signatures[0]].library) is JITCodeLibrary


class Part(NamedTuple):
    sparse: Known
    values: np.ndarray


class Whole(NamedTuple):
    part: Part


def longest_of(part: Any) -> Any:
    """Fail to compile for a dense part unless the sparse branch is left out: there is no such attribute."""
    return part.values.of_sparse_parts if part.sparse else part.values.size


called = inner(longest_of)


def of_reference(whole: Any) -> Any:
    whole = by_reference(whole)
    part = whole.part
    return called(part) if not part.sparse else -1


def of_value(whole: Any) -> Any:
    return called(whole.part)


def of_one_or_other(whole: Any, other: Any, first: Any) -> Any:
    part = whole.part if first else other.part
    return 1 if part.sparse else 0


def test_branches_for_other_forms_are_left_out():
    values = np.arange(3)
    dense, sparse = Whole(Part(known(False), values)), Whole(Part(known(True), values))
    assert (bool(dense.part.sparse), bool(sparse.part.sparse)) == (False, True)
    assert kernel(of_reference)(dense) == 3
    assert kernel(of_value)(dense) == 3
    assert kernel(of_reference)(sparse) == -1
    with pytest.raises((TypingError, AttributeError), match="of_sparse_parts"):
        kernel(of_value)(sparse)
    for first in (True, False):
        assert kernel(of_one_or_other)(dense, dense, first) == 0
        assert kernel(of_one_or_other)(sparse, sparse, first) == 1


@kernel
def count_and_add(view: Any, amount: Any) -> Any:
    forest = by_reference(view)
    keys = forest.keys
    keys.totals[4] += amount
    if keys.sparse:
        return keys.indices[0] + forest.scorer.theta.size
    return keys.totals[0]


@pytest.mark.parametrize("sparse", [False, True])
def test_kernels_take_held_views_instead_of_tuples(sparse: bool):
    """The arrays are those of the tuple, they live as long, and branches on what is known are left out."""
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(scipy.sparse.csr_array([[0.0, 1.0]] * 3) if sparse else np.ones((3, 2)))
    kept, totals = state_of(tree).view(), state_of(tree).keys.totals
    as_tuple = getattr(kept, "target", kept)
    del tree
    gc.collect()
    longest = int(totals[4])
    assert [count_and_add(it, 5) for it in (kept, as_tuple, kept)] == [1 if sparse else 3] * 3
    assert totals[4] == longest + 15


@inner_called
def add_and_read(whole: Any, i: Any) -> Any:
    part = by_reference(whole).part
    part.values[i] += 1
    return part.values[i] if part.sparse else -part.values[i]


@kernel
def add_twice(whole: Any) -> Any:
    state = by_reference(whole)
    state.part.values[0] += 10
    new = by_reference(Part((), zeros(3, np.int64)))
    new.values[1] = add_and_read(state, 0) + add_and_read(state, 2)
    total = new.values[1]
    release(new)
    return total


def test_functions_that_are_not_inlined_take_references():
    for sparse, sign in ((False, -1), (True, 1)):
        values = np.arange(3)
        assert add_twice(Whole(Part(known(sparse), values))) == sign * (11 + 3)
        assert values.tolist() == [11, 1, 3]


@kernel
def read_and_write(values: Any, marks: Any, small: Any, i: Any) -> Any:
    values[1, 2] = values[np.int32(0), i] + 1
    values[small[0], 0] = True
    marks[1] = marks[0] and values[1, 2] > 3
    return values[i, small[0]]


def test_elements_of_arrays():
    """Mixed types of indices, conversions and booleans are as in NumPy."""
    values, marks = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True, False])
    assert read_and_write(values, marks, np.array([1], np.uint8), np.int64(1)) == 4
    assert values.tolist() == [[0, 1, 2], [1, 4, 2]]
    assert marks.tolist() == [True, False]
    assert read_and_write(values, marks, np.array([0], np.uint8), np.int64(0)) == 1
    assert values.tolist() == [[1, 1, 2], [1, 4, 1]]


@kernel
def element(values: Any, i: Any) -> Any:
    return values[i]


@pytest.mark.skipif(not config.BOUNDSCHECK or config.DISABLE_JIT, reason="kernels check bounds only on request")
@pytest.mark.parametrize("i", [-1, 3])
def test_bounds_are_checked(i: int):
    """A negative index is out of bounds, too."""
    with pytest.raises(IndexError, match="index"):
        element(np.arange(3), i)


class Parts(NamedTuple):
    first: Any
    given: Any


@inner_allocating
def new_parts(n: Any, given: Any) -> Any:
    return Parts(Part((), empty((n, 3), np.float32)), Part((), given)), zeros((n, 2), np.uint64)


@kernel
def fill_new(n: Any, given: Any, described: Any) -> Any:
    parts, zeroed = new_parts(n, given)
    parts.first.values[:] = np.float32(2.0)
    total = np.float64(0.0)
    for i in range(n):
        total += parts.first.values[i, 2] + zeroed[i, 1]
    described[0], described[1], described[2] = parts.first.values.size, parts.first.values.itemsize, zeroed.itemsize
    parts.given.values[0] += 1
    release((parts, zeroed))
    return total


def test_new_arrays_are_released():
    """Those that the kernel was handed stay, also if they are in the same tuple."""
    given, described = np.zeros(2), np.zeros(3, np.int64)
    assert fill_new(5, given, described) == 10.0
    assert (given[0], described.tolist()) == (1.0, [15, 4, 8])
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        _nrt_python.memsys_enable_stats()
        before = rtsys.get_allocation_stats()
        for _ in range(10):
            fill_new(5, given, described)
        after = rtsys.get_allocation_stats()
        assert (after.alloc - before.alloc, after.free - before.free) == (20, 20)


@needs_jit
def test_too_large_an_array_is_a_memory_error():
    with pytest.raises(MemoryError, match="temporary arrays"):
        fill_new(1 << 55, np.zeros(2), np.zeros(3, np.int64))


def gone() -> Any:
    raise ImportError("cannot import name 'JITCodeLibrary'")


def test_slow_compilation_is_announced_once(caplog: pytest.LogCaptureFixture):
    notice = jit_room.decorators.Notice("slow", patience=1.0)
    for seconds in (0.7, 0.7, 0.7, 2.0):
        notice.add(seconds)
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("cmt_numba", "WARNING", "slow")
    ]


@needs_jit
def test_only_compilation_is_measured_and_no_thread_is_started(monkeypatch: pytest.MonkeyPatch):
    """A thread may lack the memory to start; Python would then wait for it within a change."""
    seconds: list[float] = []
    monkeypatch.setattr("cmt_numba._jit.decorators.compiling.add", seconds.append)
    monkeypatch.setattr(threading.Thread, "start", None)
    function = inner_exported(first_of)
    for _ in range(2):
        assert function(np.arange(3)) == 0
    assert len(seconds) == 1
    with pytest.raises(TypingError):
        function(3)
    assert len(seconds) == 2


@kernel
def _wait_for_change(cell, other, n):
    before = cell[0]
    i = 0
    while cell[0] == before and i < n:
        other[0] += i
        i += 1
    return i


@needs_jit
def test_kernels_keep_the_interpreter_lock_for_a_few_rows_only():
    """No other thread runs while a kernel works for a few rows; a kernel that works for a batch lets others run."""
    cell, other = np.zeros(1, np.int64), np.zeros(1, np.int64)
    most, done = 10**7, threading.Event()
    _wait_for_change(cell, other, 0)

    def change():
        while not done.is_set():
            cell[0] += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with keeping_interpreter(1):
            assert _wait_for_change(cell, other, most) == most
            with keeping_interpreter(1):
                assert _wait_for_change(cell, other, most) == most
            assert _wait_for_change(cell, other, most) == most
            with keeping_interpreter(1000):
                assert _wait_for_change(cell, other, 10**12) < 10**12
        with keeping_interpreter(1000):
            assert _wait_for_change(cell, other, 10**12) < 10**12
        assert _wait_for_change(cell, other, 10**12) < 10**12
    finally:
        done.set()
        thread.join()


def test_threads_switch_sooner_only_for_work_that_keeps_the_interpreter_lock():
    usual = sys.getswitchinterval()
    with switching_soon():
        assert sys.getswitchinterval() == usual
    with keeping_interpreter(1):
        with switching_soon():
            assert sys.getswitchinterval() < usual
        assert sys.getswitchinterval() == usual


def test_iterators_do_not_keep_the_interpreter_lock():
    class Reader:
        @keeps_interpreter
        def read(self, texts):
            with switching_soon():
                return sys.getswitchinterval()

    usual = sys.getswitchinterval()
    assert Reader().read(iter(["one"])) == usual
    assert Reader().read(["one"]) < usual
