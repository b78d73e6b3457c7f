"""Trees in forked and spawned processes, and next to other parallel loops."""

import multiprocessing
import os
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
from conftest import EVERY_LEAF, ROOT, needs_jit
from internals import grams_of, lock_of, model_of
from threads import CLASSES, ROWS, SOON, Threads

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba.sequences import EditDistance, SequenceMemory
from cmt_numba.text import TextClassifier

FORKS = hasattr(os, "fork")


def use(tree: ContextualMemoryTree, keys: np.ndarray) -> int:
    """Use a tree in every way, in a process of its own."""
    n = len(tree)
    tree.check_invariants()
    ids = tree.insert(keys)
    assert np.isin(tree.query(keys, k=2, n_probes=EVERY_LEAF, epsilon=0.0).ids, tree.ids).all()
    tree.query(keys, epsilon=1.0)
    tree.remove(ids)
    tree.reroute(5)
    tree.check_invariants()
    assert len(tree) == n
    return n


@needs_jit
@pytest.mark.skipif(not FORKS, reason="there is no fork")
def test_forks_while_threads_work():
    """A forked child has a valid tree, without incomplete changes or held locks, regardless of other threads."""
    keys = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    classifier = CMTClassifier(n_head_passes=1, random_state=0).fit(ROWS, CLASSES)
    tree.insert(keys)
    context = multiprocessing.get_context("fork")

    def change() -> None:
        tree.remove(tree.insert(keys[:500]))

    def use_all() -> None:
        assert use(tree, keys[:10]) in (1000, 1500, 2000)
        classifier.partial_fit(ROWS[:5], CLASSES[:5]).predict(ROWS)

    use_all()  # compile all kernels, so that the children need little time

    with (
        Threads(
            change,
            change,
            lambda: tree.query(keys[:1]),
            lambda: classifier.partial_fit(ROWS[:10], CLASSES[:10]),
            lambda: classifier.predict(ROWS[:1]),
        ),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in processes with threads
        for _ in range(4):
            child = context.Process(target=use_all)
            child.start()
            child.join(SOON)
            assert child.exitcode == 0
    use_all()


_CHANGE_DURING_FORK = """
from cmt_numba._change.lock import ReadWriteLock  # first of all imports
import logging, os, threading, time
from concurrent.futures import ThreadPoolExecutor

lock, changing = ReadWriteLock(), threading.Event()

def change():
    changing.set()
    time.sleep(0.3)  # the fork is waiting now
    logging.getLogger("cmt_numba").warning("a message")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

thread = threading.Thread(target=lock.change, args=(change,))
thread.start()
changing.wait()
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


_COMPILING_DURING_FORK = """
import os, signal, threading, time
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from cmt_numba._kernels.rng import draw_word

compiling = threading.Event()

def compile():
    with global_compiler_lock:
        compiling.set()
        time.sleep(0.3)  # the fork is waiting now
        draw_word(np.zeros(1, np.uint64), 0)

thread = threading.Thread(target=compile)
thread.start()
compiling.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # end the process if it waits for longer
    draw_word(np.zeros(1, np.uint64), np.uint8(0))  # not yet compiled
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@needs_jit
@pytest.mark.skipif(not FORKS, reason="there is no fork")
def test_forks_wait_for_threads_that_compile():
    """The child would wait for the lock of the compiler, which no thread of its own holds."""
    script = [sys.executable, "-c", _COMPILING_DURING_FORK]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 0, done.stderr


@needs_jit
def test_forks_lock_objects_before_those_that_they_change():
    """Otherwise a change of the outer object, for which the fork waits, may wait for the fork."""
    texts, labels, long = ["rain", "wind", "song", "drum"], ["a", "a", "b", "b"], ["ab" * 40, "ba" * 40]
    classifier = TextClassifier(lambda texts: np.array([[len(text), 1.0] for text in texts]), random_state=0)
    dense = model_of(classifier.fit(texts, labels)).dense.classifier
    memory = SequenceMemory(EditDistance("ab"), random_state=0)
    memory.insert(long)
    memory.query(long)
    for outer, inner in ((classifier, dense), (memory, grams_of(memory).retriever)):
        assert lock_of(outer).level > lock_of(inner).level


@pytest.mark.skipif(not FORKS, reason="there is no fork")
def test_forks_wait_for_changes_that_use_executors_and_logging():
    """Both lock themselves for a fork, but only after the changes have ended, whatever was imported first."""
    script = [sys.executable, "-c", _CHANGE_DURING_FORK]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 0, done.stderr


@needs_jit
def test_spawned_process():
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(ROWS)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(use, (tree, ROWS[:10])) == 120  # the process loads everything before threads are busy
        with Threads(lambda: tree.remove(tree.insert(ROWS[:5]))):
            assert pool.apply(use, (tree, ROWS[:10])) in (120, 125)


@needs_jit
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib(backend: str):
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(ROWS)
    classifier = CMTClassifier(random_state=0).fit(ROWS, CLASSES)
    parallel = joblib.Parallel(n_jobs=2, backend=backend)
    parts = np.split(ROWS, 4)
    for found, part in zip(parallel(joblib.delayed(tree.query)(part) for part in parts), parts, strict=True):
        np.testing.assert_array_equal(found.ids, tree.query(part).ids)
    classes = parallel(joblib.delayed(classifier.predict)(part) for part in parts)
    np.testing.assert_array_equal(np.concatenate(classes), classifier.predict(ROWS))


_BESIDE_PARALLEL_LOOPS = """
import os, sys, threading
import numba
import numpy as np
from numba import njit, prange
sys.path.insert(0, {scripts!r})
from stress_threads import Stress

@njit(parallel=True)
def total(values):
    result = 0.0
    for i in prange(values.size):
        result += values[i]
    return result

assert total(np.ones(1000)) == 1000.0
assert numba.threading_layer() == {layer!r}, numba.threading_layer()
stress = Stress(300, 4, n_trees=2, n_threads=2)
stress.run(0.3, changing=True)
stress.check()
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        stress.tree.insert(np.ones((100, 32)))
        stress.tree.query(np.ones((200, 32)))
        stress.tree.check_invariants()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@needs_jit
@pytest.mark.parametrize("layer", ["workqueue", "omp", "tbb"])
def test_threading_layers(layer: str):
    """Trees work next to Numba's own parallel loops, which they do not use, and in a child of such a process."""
    modules = {"workqueue": "workqueue", "omp": "omppool", "tbb": "tbbpool"}
    pytest.importorskip(f"numba.np.ufunc.{modules[layer]}", exc_type=ImportError)
    script = _BESIDE_PARALLEL_LOOPS.format(scripts=str(ROOT / "tests/scripts"), layer=layer)
    environment = os.environ | {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
