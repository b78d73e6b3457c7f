"""Threads that read while others change; forks, new processes and joblib's workers."""

import contextlib
import copy
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from failures import failing
from internals import changer_of, forest_of, forest_room, last_change, prove, waiting_readers
from sklearn.base import clone
from stress_threads import Stress
from threads import CLASSES, MARKS, ROWS, SOON, Threads, started, until

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba._change import Pace, ReadWriteLock, TimedSteps, map_threads
from cmt_numba._forest import with_more

# The lock


def test_steps_wait_for_readers_and_readers_for_steps():
    lock, log = ReadWriteLock(), []
    lock._patience = SOON  # for the first reader
    reading, read_on, stepping, step_on = (threading.Event() for _ in range(4))

    def read() -> None:
        reading.set()
        assert read_on.wait(SOON)
        log.append("read")

    def step() -> None:
        stepping.set()
        assert step_on.wait(SOON)
        log.append("step")

    reader = started(lambda: lock.read(read))
    assert reading.wait(SOON)
    writer = started(lambda: lock.change(lambda: lock.step(step)))
    until(lambda: lock._hold is not None)
    late = started(lambda: lock.read(lambda: log.append("late")))
    assert not stepping.wait(0.02)
    read_on.set()
    assert stepping.wait(SOON)
    assert log == ["read"]
    step_on.set()
    for thread in (reader, writer, late):
        thread.join(SOON)
    assert log == ["read", "step", "late"]


def test_changes_queue():
    lock, order = ReadWriteLock(), []
    go_on = threading.Event()
    threads = [started(lambda: lock.change(lambda: go_on.wait(SOON)))]
    until(lambda: changer_of(lock) is not None)
    for i in range(5):
        last = last_change(lock)
        threads.append(started(lambda i=i: lock.change(lambda: order.append(i))))
        until(lambda last=last: last_change(lock) is not last)
    lock.read(lambda: order.append("read"))  # others may read between the steps of a change
    go_on.set()
    for thread in threads:
        thread.join(SOON)
    assert order == ["read", 0, 1, 2, 3, 4]


def test_change_given_up_keeps_the_order():
    """A change behind an abandoned one still waits for the change before that."""
    lock, log = ReadWriteLock(), []
    go_on, given_up = threading.Event(), threading.Event()
    first = started(lambda: lock.change(lambda: (go_on.wait(SOON), log.append("first"))))
    until(lambda: changer_of(lock) is not None)

    class Interrupted(type(last_change(lock))):
        __slots__ = ()

        def wait(self) -> None:
            raise KeyboardInterrupt

    waited_for = last_change(lock)
    stand_in = Interrupted()
    stand_in.lock, stand_in.before = waited_for.lock, None
    lock._last = stand_in
    with pytest.raises(KeyboardInterrupt):
        lock.change(lambda: log.append("given up"))
    last_change(lock).before = waited_for
    given_up.set()
    second = started(lambda: lock.change(lambda: log.append("second")))
    time.sleep(0.02)
    assert log == []
    go_on.set()
    first.join(SOON)
    second.join(SOON)
    assert log == ["first", "second"]


def test_locks_within_locks():
    lock, other = ReadWriteLock(), ReadWriteLock()

    def step() -> str:
        return lock.change(lambda: lock.step(lambda: lock.read(lambda: other.read(lambda: "all at once"))))

    assert lock.change(lambda: lock.step(step)) == "all at once"
    assert lock.read(lambda: lock.read(lambda: "twice")) == "twice"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_release_locks(error: type[BaseException]):
    lock = ReadWriteLock()

    def fail() -> None:
        raise error

    for work in (lambda: lock.read(fail), lambda: lock.change(fail), lambda: lock.change(lambda: lock.step(fail))):
        with pytest.raises(error):
            work()
        done: list[str] = []
        thread = started(lambda: done.append(lock.change(lambda: lock.step(lambda: lock.read(lambda: "done")))))  # noqa: B023
        thread.join(SOON)
        assert done == ["done"]


@pytest.mark.parametrize(("seconds", "n_changes"), [(0.0, 20), (0.03, 3)])
def test_readers_that_never_pause_do_not_stop_changes(seconds: float, n_changes: int):
    lock, changed = ReadWriteLock(), []
    with Threads(*[lambda: lock.read(lambda: time.sleep(seconds) if seconds else None)] * 4):
        for i in range(n_changes):
            lock.change(lambda i=i: lock.step(lambda: changed.append(i)))
    assert changed == list(range(n_changes))


def test_changes_that_never_pause_do_not_stop_readers():
    lock = ReadWriteLock()
    with Threads(*[lambda: lock.change(lambda: lock.step(lambda: None))] * 2):
        for _ in range(20):
            lock.read(lambda: None)


def test_readers_wait_for_work_between_steps():
    """They wait only for some milliseconds, which may be too short on a busy machine, so there are several trials."""
    lock = ReadWriteLock()

    def steps_before_a_reader() -> int:
        log: list[str] = []
        readers: list[threading.Thread] = []

        def change() -> None:
            lock.step(lambda: log.append("step"))
            readers.append(started(lambda: lock.read(lambda: log.append("read"))))
            until(lambda: waiting_readers(lock) or "read" in log)
            lock.step(lambda: log.append("step"))

        lock.change(change)
        readers[0].join(SOON)
        return log.index("read")

    assert any(steps_before_a_reader() == 2 for _ in range(100))


def test_readers_do_not_hold_back_for_the_whole_of_a_long_change():
    lock, log, has_read = ReadWriteLock(), [], threading.Event()

    def change() -> None:
        started(lambda: lock.read(has_read.set))
        assert has_read.wait(SOON)
        lock.step(lambda: log.append("step"))
        has_read.clear()
        started(lambda: lock.read(has_read.set))
        assert has_read.wait(SOON)

    lock.change(change)
    assert log == ["step"]
    assert lock.read(lambda: "done") == "done"


def test_changes_let_their_own_threads_read():
    lock = ReadWriteLock()

    def change() -> list[str]:
        lock.let_in()
        return [*map_threads(lambda _: lock.read(lambda: "read"), range(3), 3), str(waiting_readers(lock))]

    assert lock.change(change) == ["read", "read", "read", "False"]


def test_readers_do_not_wait_for_one_that_reads_for_long():
    """A change retries until the long reader has finished, and others read meanwhile."""
    lock, log, read_on, reading = ReadWriteLock(), [], threading.Event(), threading.Event()

    def read_for_long() -> None:
        reading.set()
        assert read_on.wait(SOON)

    long_reader = started(lambda: lock.read(read_for_long))
    assert reading.wait(SOON)
    writer = started(lambda: lock.change(lambda: lock.step(lambda: log.append("step"))))
    until(lambda: waiting_readers(lock))
    for _ in range(3):
        lock.read(lambda: log.append("read"))
    assert log == ["read"] * 3
    read_on.set()
    for thread in (long_reader, writer):
        thread.join(SOON)
    assert log == ["read"] * 3 + ["step"]


def test_readers_have_their_turn_after_a_change_that_kept_them_waiting():
    """No change begins before the readers that waited for the previous one have read."""
    lock, log, n_changes = ReadWriteLock(), [], 20

    def change() -> None:
        readers.append(started(lambda: lock.read(lambda: log.append("read"))))
        until(lambda: waiting_readers(lock))
        lock.step(lambda: log.append("step"))

    readers: list[threading.Thread] = []
    for _ in range(n_changes):
        lock.change(change)
    for reader in readers:
        reader.join(SOON)
    assert log.count("step") == log.count("read") == n_changes
    assert lock._open_until > 0.0


def test_steps_cover_all_rows():
    for n in (0, 1, 63, 64, 65, 5000):
        covered: list[int] = []
        steps = TimedSteps(3, 3 + n, Pace())
        for first, stop in steps:
            steps.take(lambda first, stop: covered.extend(range(first, stop)), first, stop)  # noqa: B023
        assert covered == list(range(3, 3 + n))


# Trees


@needs_jit
@pytest.mark.parametrize("options", [{"n_trees": 1, "leaf_multiplier": 1.0}, {"n_trees": 3, "n_threads": 2}])
def test_stress(options: dict[str, Any]):
    """No answer contains a memory that was not stored, and the tree is valid afterwards."""
    stress = Stress(1000, 8, **options)
    counts = stress.run(1.5, changing=True)
    assert min(counts.queries) > 0
    stress.check()


def changed(keys: Any, pace: Pace) -> bytes:
    """Return the pickle of a tree after changes of every kind."""
    tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=1.0, random_state=0)
    forest_of(tree).pace = pace
    ids = tree.insert(keys)
    hits = tree.query(keys[:200], k=3, epsilon=0.5)
    tree.update(keys[:200], hits, np.random.default_rng(0).random((200, 3)))
    tree.teach(keys[:200], ids[:200], n_passes=2, afresh=True)
    tree.reroute(150)
    tree.remove(ids[::3])
    tree.insert(keys[:100])
    tree.check_invariants()
    return pickle.dumps(tree)


@needs_jit
@pytest.mark.parametrize("sparse", [False, True])
def test_steps_leave_no_trace(sparse: bool):
    """The result of changes does not depend on their division into steps, bit for bit."""
    keys = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    keys = scipy.sparse.csr_array(keys * (keys > 0.3)) if sparse else keys
    results = set()
    for pace in (Pace(1, 0.0), Pace(7, 1e-4), Pace(10**6, 1.0)):
        results.add(changed(keys, pace))
    assert len(results) == 1


@needs_jit
@pytest.mark.parametrize("sparse", [False, True])
def test_large_arrays_grow_between_steps(monkeypatch: pytest.MonkeyPatch, sparse: bool):
    keys = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)
    keys = scipy.sparse.csr_array(keys * (keys > 0.3)) if sparse else keys
    trees, n_growths = [], 0

    def grow(*arguments: Any) -> Any:
        nonlocal n_growths
        n_growths += 1
        return with_more(*arguments)

    monkeypatch.setattr(forest_room, "with_more", grow)
    for worth in (forest_room.allocation.WORTH_GROWING_BEFORE, 0):
        monkeypatch.setattr(forest_room.allocation, "WORTH_GROWING_BEFORE", worth)
        tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=1.0, random_state=0)
        tree.insert(keys[:500])
        n_growths = 0
        tree.insert(keys[500:])
        tree.reroute(300)
        tree.check_invariants()
        trees.append((n_growths, tree.query(keys[:50], 5).ids.tolist()))
    (n_before, answers), (n_after, same) = trees
    assert same == answers
    assert n_after < n_before if sparse else n_after == 0 < n_before


@needs_jit
def test_readers_go_on_during_a_long_insert():
    """They see its memories step by step, in all trees at once, and never one that is not counted."""
    keys = np.random.default_rng(0).normal(size=(8_000, 16)).astype(np.float32)
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(keys[:100])
    tree.query(keys[:1])
    sizes: list[int] = []

    def look() -> None:
        before = len(tree)
        found = tree.query(keys[:1], k=5, n_probes=4).ids
        after = len(tree)
        assert found.max() < after
        assert before <= tree.ids.size
        assert after - 1 in tree
        sizes.append(after)

    with Threads(look):
        tree.insert(keys[100:])
    assert set(sizes) - {100, 8_000}  # how many steps a reader sees depends on the processor
    assert sizes == sorted(sizes)
    tree.check_invariants()


@needs_jit
def test_first_inserts_race():
    """If two threads insert first keys of different widths, one of them gets an error."""
    for _ in range(20):
        tree, outcomes = ContextualMemoryTree(n_trees=2, random_state=0), []
        barrier = threading.Barrier(3)

        def insert(width: int) -> None:
            barrier.wait(SOON)  # noqa: B023
            try:
                outcomes.append(tree.insert(np.ones((2, width))).size)  # noqa: B023
            except ValueError:
                outcomes.append(0)  # noqa: B023

        def ask() -> None:
            barrier.wait(SOON)  # noqa: B023
            with contextlib.suppress(ValueError):
                tree.query(np.ones((50, 3)))  # noqa: B023

        threads = [started(lambda: insert(3)), started(lambda: insert(5)), started(ask)]
        for thread in threads:
            thread.join(SOON)
        assert sorted(outcomes) == [0, 2]
        tree.check_invariants()


@needs_jit
@pytest.mark.parametrize(
    ("eviction", "form"),
    [("least_recently_returned", np.asarray), ("oldest", scipy.sparse.csr_array), ("random", np.asarray)],
)
def test_bounded_trees_and_filtered_queries(eviction: str, form: Callable[[np.ndarray], Any]):
    """Memories are evicted, replaced and moved while other threads query some of them."""
    rng = np.random.default_rng(0)
    keys = form(rng.normal(size=(1500, 8)).astype(np.float32))
    tree = ContextualMemoryTree(2, 0.9, 1.0, max_memories=1000, eviction=eviction, n_threads=1, random_state=0)
    tree.insert(keys[:1000])
    third = np.arange(10**6) % 3 == 0

    def insert() -> None:
        tree.insert(keys[1000:1100])
        tree.compact()

    def replace() -> None:
        ids = rng.choice(tree.ids, 20, replace=False)
        with contextlib.suppress(KeyError):  # some may have been removed
            tree.replace(ids, keys[:20])

    def ask() -> None:
        assert tree.query(keys[:50], 3).ids[:, 0].min() >= 0  # a leaf has at least one memory, not always three

    def ask_some() -> None:
        ids = tree.query(keys[:50], 3, 2, among=third).ids
        assert ids.min() >= 0
        assert (ids % 3 == 0).all()

    with Threads(insert, replace, ask, ask_some, ask_some):
        time.sleep(0.5)
    assert len(tree) == 1000
    tree.check_invariants()


@needs_jit
def test_changes_and_copies_at_once(tmp_path: Path):
    """Saving, pickling or copying a tree while threads change it gives a valid tree."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(2000, 8)).astype(np.float32)
    tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=1.0, random_state=0)
    tree.insert(keys)

    def change() -> None:
        ids = tree.insert(keys[:300])
        tree.remove(ids)
        tree.compact()

    def explore() -> None:
        tree.query(keys[:5], epsilon=1.0)

    with Threads(change, explore):
        for _ in range(5):
            tree.save(tmp_path / "tree.cmt")
            twins = (
                ContextualMemoryTree.load(tmp_path / "tree.cmt"),
                pickle.loads(pickle.dumps(tree)),
                copy.copy(tree),
                copy.deepcopy(tree),
            )
            for twin in twins:
                twin.check_invariants()
                assert len(twin) in (2000, 2300)
                twin.insert(keys[:3])
            tree.check_invariants()
            assert tree.leaves().size.sum() >= 2 * 2000
            assert tree.depth > 0
            assert tree.nbytes > 0


@needs_jit
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_failing_step_releases_everything(error: type[BaseException]):
    keys = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(keys)
    prove(tree)

    for name, change in (
        ("insert_slots", lambda: tree.insert(keys)),
        ("update_scorer", lambda: tree.update(keys, tree.query(keys), np.ones(500))),
        ("teach_trees", lambda: tree.teach(keys, np.arange(500))),
        ("remove_memories", lambda: tree.remove(np.arange(500))),
        ("insert_slots", lambda: tree.reroute(5)),
        ("compacted", lambda: tree.compact()),
    ):
        with failing(f"_forest.{name}", error):
            change()
    other = started(lambda: tree.remove(tree.insert(keys)))
    other.join(SOON)
    assert not other.is_alive()
    assert len(tree) == 500
    tree.check_invariants()


# Estimators


def test_classifier():
    """Answers are for the classes before or after a change, in their order."""
    classifier = CMTClassifier(n_head_passes=1, random_state=0).fit(ROWS, CLASSES)
    seen: set[int] = set()

    def ask() -> None:
        proba = classifier.predict_proba(ROWS[:5])
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        seen.add(proba.shape[1])
        assert set(classifier.predict(ROWS[:5]).tolist()) <= set(range(-20, 30))
        classifier.kneighbors(ROWS[:5])
        classifier.score(ROWS[:5], CLASSES[:5])
        pickle.loads(pickle.dumps(classifier)).predict(ROWS[:5])

    with Threads(ask, ask):
        for i in range(10):
            classifier.partial_fit(ROWS[:20], np.where(np.arange(20) < 2, -1 - i, CLASSES[:20]))
        classifier.fit(ROWS, CLASSES)
    assert seen <= set(range(30, 41))
    classifier.check_invariants()
    np.testing.assert_array_equal(
        classifier.predict_proba(ROWS), clone(classifier).fit(ROWS, CLASSES).predict_proba(ROWS)
    )


def test_multilabel_classifier():
    tagger = CMTMultilabelClassifier(random_state=0).fit(ROWS, MARKS)
    widths: list[int] = []

    def ask() -> None:
        assert tagger.predict_proba(ROWS[:5]).shape[0] == 5
        widths.append(tagger.predict(ROWS[:5]).shape[1])
        assert tagger.top_labels(ROWS[:5], 3)[0].max() < tagger.n_labels_
        tagger.kneighbors(ROWS[:5])

    with Threads(ask, ask):
        for width in range(7, 13):
            tagger.partial_fit(ROWS[:20], np.hstack([MARKS[:20], np.ones((20, width - 6), int)]))
    assert set(widths) <= set(range(6, 13))


@pytest.mark.parametrize("kind", ["objects", "vectors", "sparse vectors"])
def test_retriever(kind: str):
    """Every answer is a stored value, and removed memories are not returned any more."""
    vectors = np.repeat(np.eye(8, dtype=np.float32), 15, axis=0)
    values = {"objects": np.arange(120), "vectors": vectors, "sparse vectors": scipy.sparse.csr_array(vectors)}[kind]
    retriever = CMTRetriever(random_state=0).fit(ROWS, values)
    gone = 0  # ids below it have been removed

    def ask() -> None:
        before = gone
        ids = retriever.kneighbors(ROWS[:5], 3, return_distance=False)
        assert ids[ids >= 0].min() >= before
        found = retriever.predict(ROWS[:5])
        assert found.shape[0] == 5
        assert (found if kind == "objects" else abs(found).sum(axis=1)).min() >= 0
        assert retriever.n_memories_ > 0

    with Threads(ask, ask):
        for i in range(10):
            retriever.partial_fit(ROWS[i : i + 20], values[i : i + 20])
            retriever.feedback(ROWS[50:52], np.array([50, 51]), np.array([1.0, 0.0]))
            retriever.remove(np.arange(3 * i, 3 * i + 3))
            gone = 3 * i + 3
    assert retriever.n_memories_ == 120 + 10 * 20 - 30
    retriever.check_invariants()
