"""A reader-writer lock: many threads read, or one thread changes the object.

A change consists of short *steps*. Threads can read at any time except during a step, and every step leaves the object
in a readable state. Changes are made one at a time, in the order of their arrival.

Queries take tens of microseconds and come from many threads, so they share no lock: each thread holds a lock of its
own while it reads. A step closes a gate, where new readers wait, and then waits until no thread reads. A reader checks
the gate while it holds its own lock, so either the step waits for it or it finds the gate closed. If a thread
keeps reading, the gate opens again for the others, and the step retries with a longer wait.

Between its steps a change needs the interpreter, which busy readers release only every few milliseconds. So readers
*hold back*: a thread that wants to read during a change waits for the change to end, but only for some milliseconds.
Correctness does not depend on this. After a hold that kept readers waiting there is a pause before the next one, so
that readers get their turn.

Interrupts are deferred to the end of a step (:mod:`.interrupts`), but may come while a thread reads or waits. All locks
that matter are therefore taken by ``with`` statements, which a ``KeyboardInterrupt`` cannot separate from their
release, and work is passed as a function.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - registers its fork handlers, see the end of this file
import logging  # noqa: F401 - likewise
import os
import time
from collections.abc import Callable
from functools import partial, wraps
from threading import Lock, get_ident, local
from typing import Any, TypeVar, cast
from weakref import WeakSet, ref

from .interrupts import defer_interrupts, end_step, uninterrupted

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_LONGEST_HOLD = 0.02  # seconds, once no thread reads
_LONGEST_DRAIN = 0.1  # seconds to wait for readers before that
_LONGEST_WORK = 0.01  # seconds of a change after which waiting readers run before the next step
_PAUSE_RATIO = 2.0  # length of a pause relative to the hold before it
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_LEAST_PATIENCE = 0.01  # seconds to wait for threads that still read when the gate closes
_LOOK = 0.0002  # seconds between checks of threads that are still reading


class _Turn:
    """The place of a change in the queue. Its lock is held until the change ends or is abandoned."""

    __slots__ = ("before", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.before: _Turn | None = None  # the change that this one waits for

    def wait(self) -> None:
        """Wait for the end of this change and, if it was abandoned, of the changes before it."""
        turn: _Turn | None = self
        while turn is not None:
            with turn.lock:
                pass
            turn = turn.before

    def is_over(self) -> bool:
        """Return whether this change and those before it have ended."""
        return not self.lock.locked() and self.before is None


class ReadWriteLock:
    """A reader-writer lock for the threads that use an object.

    Copies of the object, objects loaded from files, and child processes have their own lock. A fork waits for the
    changes of other threads, so that the child holds no incomplete change.

    Parameters
    ----------
    is_outer : bool, default False
        Whether changes of the object change other objects, whose locks are not outer ones. Forks acquire outer locks
        first.

    Attributes
    ----------
    is_outer : bool
        As given.
    instant : Lock
        Protects data that readers change too. It is held only for very short operations.
    n_steps : int
        Number of steps so far. While it stays the same, the object does not change.
    """

    def __init__(self, *, is_outer: bool = False) -> None:
        self.is_outer = is_outer
        self.n_steps = 0
        self._changer: int | None = None  # the changing thread; valid while the lock of its turn is held
        self._renew()
        with _listing:
            _locks.add(self)

    def _renew(self) -> None:
        """Reset the lock in a child process, which lacks the threads of its parent."""
        self._queueing, self._registering, self.instant = Lock(), Lock(), Lock()
        self._last = _Turn()
        if self._changer != get_ident():
            self._changer, self._turn = None, self._last  # the current change, or the last one
            self._gate: Lock | None = None  # locked during a step
            self._hold: Lock | None = None  # locked while readers must wait
            self._kept_waiting = False  # whether a reader has waited since the hold began
        self._local = local()
        self._readers: list[ref[Lock]] = []  # the locks of all threads that have read
        self._held_since = self._held_until = 0.0  # as of ``time.perf_counter``
        self._open_until = 0.0  # the end of the readers' turn
        self._patience = _LEAST_PATIENCE

    def read(self, work: Callable[[], T]) -> T:
        """Call ``work``, which only reads, outside any step, and return its result.

        Nested calls are allowed. ``work`` must not wait for another thread that changes the same object.
        """
        try:
            reading: Lock = self._local.reading
        except AttributeError:
            reading = self._new_reader()
        if reading.locked() or self.is_changing():
            return work()
        if self._hold is not None:
            self._hold_back(self._hold)
        while True:
            with reading:
                gate = self._gate
                if gate is None or not gate.locked():
                    return work()
            self._kept_waiting = True
            with gate:
                pass

    def _new_reader(self) -> Lock:
        reading = self._local.reading = Lock()
        with self._registering:
            self._readers = [*(known for known in self._readers if known() is not None), ref(reading)]
        return reading

    def _hold_back(self, hold: Lock) -> None:
        """Wait for the end of a hold, up to its time limit."""
        seconds = self._held_until - time.perf_counter()
        if seconds > 0.0 and hold.locked():
            self._kept_waiting = True
            # An interrupt between acquire and release only makes other readers wait until the hold times out.
            if hold.acquire(timeout=seconds):
                hold.release()

    def change(self, work: Callable[[], T]) -> T:
        """Wait for all earlier changes, call ``work``, which may take steps, and return its result.

        An interrupt is raised at the end of a step, or when ``work`` has ended.
        """
        if self.is_changing():
            return work()
        turn = _Turn()
        with turn.lock:
            with self._queueing:
                turn.before, self._last = self._last, turn
            if not turn.before.is_over():
                turn.before.wait()
            turn.before = None
            self._turn, self._changer = turn, get_ident()
            try:
                self._hold_readers()
                return defer_interrupts(work)
            finally:
                self.let_in()
                self._changer = None

    def is_changing(self) -> bool:
        """Return whether the calling thread is making the current change."""
        return self._changer == get_ident() and self._turn.lock.locked()

    def has_other_readers(self) -> bool:
        """Return whether another living thread has read."""
        own = getattr(self._local, "reading", None)
        return any(reading not in (None, own) for reading in (known() for known in self._readers))

    def _hold_readers(self) -> None:
        """Prevent new reads, and wait for current readers."""
        now = time.perf_counter()
        if now < self._open_until:
            time.sleep(self._open_until - now)
            now = time.perf_counter()
        hold = Lock()
        hold.acquire()
        self._held_until = now + _LONGEST_DRAIN
        self._kept_waiting, self._hold = False, hold
        self._wait_for_readers()
        self._held_since = time.perf_counter()
        self._held_until = self._held_since + _LONGEST_HOLD

    def let_in(self) -> None:
        """Let readers in until the next step, if the calling thread is making a change."""
        hold = self._hold
        if hold is None or not self.is_changing():
            return
        self._hold = None
        hold.release()
        if self._kept_waiting:
            now = time.perf_counter()
            turn = _PAUSE_RATIO * (now - self._held_since)
            self._open_until = now + min(max(_SHORTEST_PAUSE, turn), _LONGEST_PAUSE)

    def step(self, work: Callable[[], T]) -> T:
        """Call ``work`` as a step of the current change, while no thread reads, and return its result."""
        if not self.is_changing():
            return self.change(partial(self.step, work))
        if self._gate is not None and self._gate.locked():
            return work()  # part of the current step
        if time.perf_counter() > self._held_since + _LONGEST_WORK:
            self.let_in()
        while True:
            if self._hold is None:
                self._hold_readers()
            gate = Lock()
            with gate:
                try:
                    self._gate = gate
                    if self._wait_for_readers():
                        self.n_steps += 1
                        result = work()
                        break
                finally:
                    self._gate = None
            self._patience *= 2.0
            self.let_in()
        end_step()
        return result

    def _wait_for_readers(self) -> bool:
        """Wait until no thread reads. Return False if the time limit expires first."""
        reading = []
        for known in self._readers:
            lock = known()
            if lock is not None and lock.locked():
                reading.append(lock)
        n_left, latest = len(reading) + 1, 0.0
        while reading:
            self._kept_waiting = True
            now = time.perf_counter()
            if len(reading) < n_left:
                n_left, latest = len(reading), now + self._patience
            elif now > latest:
                return False
            time.sleep(_LOOK)
            reading = [lock for lock in reading if lock.locked()]
        self._patience = max(_LEAST_PATIENCE, self._patience / 2.0)
        return True

    def seize(self, *, patient: bool) -> Callable[[], None] | None:
        """Prevent other threads from starting a change; return a function that allows it again.

        If a change is in progress, wait for it if ``patient``; otherwise return None.
        """
        if self.is_changing():
            return lambda: None
        turn = _Turn()
        turn.lock.acquire()
        with self._queueing:
            if not patient and not self._last.is_over():
                return None
            turn.before, self._last = self._last, turn
        turn.before.wait()
        turn.before = None
        return turn.lock.release


def changes(method: Method) -> Method:
    """Run a method of an object with a ``_lock`` as a change. The method calls ``step`` itself."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._lock.change(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


def changes_in_one_step(method: Method) -> Method:
    """Run a method of an object with a ``_lock`` as a change of a single step.

    An interrupt during the step is raised after it.
    """

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._lock.step(partial(uninterrupted, method, self, *args, **kwargs))

    return cast(Method, changing)


def reads(method: Method) -> Method:
    """Run a method of an object with a ``_lock`` between the steps of other threads."""

    @wraps(method)
    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._lock.read(partial(method, self, *args, **kwargs))

    return cast(Method, reading)


class Lockable:
    """A mixin that creates an outer lock at its first use. Pickles and copies must leave out ``_own_lock``."""

    @property
    def _lock(self) -> ReadWriteLock:
        lock: ReadWriteLock | None = self.__dict__.get("_own_lock")
        return self.__dict__.setdefault("_own_lock", ReadWriteLock(is_outer=True)) if lock is None else lock


# Forks

_listing = Lock()
_locks: WeakSet[ReadWriteLock] = WeakSet()
_forking = Lock()
_releases: list[Callable[[], None] | None] = []  # release functions of the locks held by the current fork


def _before_fork() -> None:
    """Wait for the changes of other threads, and prevent new changes and new locks."""
    _forking.acquire()
    while True:
        with _listing:
            locks = sorted(_locks, key=lambda lock: not lock.is_outer)
        _releases.extend(lock.seize(patient=True) for lock in locks)
        _listing.acquire()
        _releases.extend(lock.seize(patient=False) for lock in set(_locks).difference(locks))
        if None not in _releases:
            return
        _listing.release()  # another new object is being changed: retry
        _let_go()


def _let_go() -> None:
    while _releases:
        release = _releases.pop()
        if release is not None:
            release()


def _after_fork_in_parent() -> None:
    _let_go()
    _listing.release()
    _forking.release()


def _after_fork_in_child() -> None:
    global _listing, _forking
    _listing, _forking = Lock(), Lock()
    _releases.clear()
    for lock in list(_locks):
        lock._renew()


# Handlers run before a fork in reverse order of registration. Executors and logging acquire their own locks for a fork,
# and the changes that ``_before_fork`` waits for use both, so their handlers must be registered first.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
