"""Many threads may read what one thread at a time changes.

A change is cut into short *steps*. Only while a step is under way nobody reads; whatever a step leaves behind can be
read. Changes wait for each other in the order in which they came.

The standard library has no lock for readers and writers, and no library for it is widely used, so this is one of our
own, made for what it serves. Queries take some tens of microseconds and come from many threads, so they must not all
touch one lock: each thread that reads has a lock of its own, which it holds meanwhile. A step closes a gate, at which
threads that want to read now wait, and then waits once for the lock of each thread that may be reading still. A thread
looks at the gate when it has its lock already, so it has either been waited for or sees that the gate is closed.

Steps give way to readers, who would else hardly get a turn between the many steps of a change: after a step that kept
readers waiting, the gate stays open for longer than that has taken. But it closes again even if readers never pause, so
changes always go on.

All locks are taken by ``with`` statements on the interpreter's own locks, which a ``KeyboardInterrupt`` cannot part:
this is why work is handed over as a function, and is not put between calls that enter and leave. What is noted besides
counts only as long as its lock is held, for an interrupt may keep a thread from taking back a note.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial, wraps
from threading import Lock, get_ident, local
from typing import Any, TypeVar, cast
from weakref import ReferenceType, WeakSet, ref

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_READERS_SHARE = 2.0  # the gate stays open for so many times as long as it was closed
_SHORTEST_PAUSE = 0.001  # seconds; to let readers in and wait for them again has its price
_LONGEST_PAUSE = 0.1


class _Reader:
    """A thread that reads."""

    __slots__ = ("__weakref__", "held", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.held: Lock | None = None  # locked while it reads


class _Turn:
    """A change's place in the queue: its lock is held until the change is over or given up."""

    __slots__ = ("before", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.before: _Turn | None = None  # what it still waits for

    def wait(self) -> None:
        """Wait until this change is over, and all that it waited for if it was given up."""
        turn: _Turn | None = self
        while turn is not None:
            with turn.lock:
                pass
            turn = turn.before

    def is_over(self) -> bool:
        """Return whether nobody need wait."""
        return not self.lock.locked() and self.before is None


class Guard:
    """What keeps the threads that use an object apart.

    A copy of the object, or one from a file, has a guard of its own; so has a child of the process. A fork waits until
    changes that other threads make are complete, so that the child has no half-made ones.

    Parameters
    ----------
    is_outer : bool, default False
        Whether changes of the object make changes of others, which have guards that are not outer ones.

    Attributes
    ----------
    is_outer : bool
        As given.
    instant : Lock
        For what is no step, because readers change it too, and is done in an instant.
    """

    def __init__(self, *, is_outer: bool = False) -> None:
        self.is_outer = is_outer
        self._changer: int | None = None  # the thread whose change is under way, while its lock is held
        self._stepper: int | None = None  # the thread whose step is, while the gate is closed
        self._renew()
        with _listing:
            _guards.add(self)

    def _renew(self) -> None:
        """Be as if no other thread had ever come."""
        me = get_ident()
        self._queueing, self._registering, self.instant = Lock(), Lock(), Lock()
        self._last = _Turn()
        self._changer = me if self._changer == me else None
        self._stepper = me if self._stepper == me else None
        if self._changer is None:
            self._turn = self._last  # of the last change that has begun
        if self._stepper is None:
            self._gate: Lock | None = None  # held while a step is under way
        self._local = local()
        self._readers: list[ReferenceType[_Reader]] = []  # of threads that have read; they may have ended
        self._kept_waiting = False  # whether the step under way has kept a reader waiting
        self._open_until = 0.0

    def read(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which only reads, while no step is under way.

        It may read in turn; it must not wait for another thread that changes the same object.
        """
        try:
            reader: _Reader = self._local.reader
        except AttributeError:
            reader = self._new_reader()
        if (reader.held is not None and reader.held.locked()) or self.is_stepping():
            return work()
        while True:
            with reader.lock:
                gate = self._gate
                if gate is None or not gate.locked():
                    held = Lock()
                    with held:
                        reader.held = held
                        return work()
            self._kept_waiting = True
            with gate:
                pass

    def _new_reader(self) -> _Reader:
        reader = self._local.reader = _Reader()
        with self._registering:
            self._readers = [*(known for known in self._readers if known() is not None), ref(reader)]
        return reader

    def change(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which may take steps, once all changes that came before are complete."""
        if self.is_changing():
            return work()
        turn = _Turn()
        with turn.lock:
            self._enqueue(turn)
            turn.before.wait()  # type: ignore[union-attr]
            turn.before = None
            self._turn, self._changer = turn, get_ident()
            try:
                return work()
            finally:
                self._changer = None

    def is_changing(self) -> bool:
        """Return whether the change under way is that of this thread."""
        return self._changer == get_ident() and self._turn.lock.locked()

    def is_stepping(self) -> bool:
        """Return whether the step under way is that of this thread."""
        return self._stepper == get_ident() and self._gate is not None and self._gate.locked()

    def _enqueue(self, turn: _Turn) -> None:
        with self._queueing:
            turn.before, self._last = self._last, turn

    def step(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, while nobody reads: a step of the change that the thread makes."""
        if self.is_stepping():
            return work()
        pause = self._open_until - time.perf_counter()
        if pause > 0.0:
            time.sleep(pause)
        gate, closed = Lock(), time.perf_counter()
        with gate:
            try:
                self._kept_waiting, self._gate = False, gate
                self._wait_for_readers()
                self._stepper = get_ident()
                return work()
            finally:
                self._stepper = self._gate = None
                if self._kept_waiting:
                    opened = time.perf_counter()
                    wanted = max(_SHORTEST_PAUSE, _READERS_SHARE * (opened - closed))
                    self._open_until = opened + min(wanted, _LONGEST_PAUSE)

    def _wait_for_readers(self) -> None:
        with self._registering:
            readers = self._readers
        for known in readers:
            reader = known()
            if reader is None:
                continue
            if reader.lock.locked():
                self._kept_waiting = True
            with reader.lock:
                pass

    def seize(self, *, patient: bool) -> Callable[[], None] | None:
        """Let no other thread begin a change, and return what ends this.

        Returns None if there is a change under way, unless ``patient``: then wait for its end.
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
    """Let a method be a change of its object, which has a ``_guard``; it takes steps itself."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._guard.change(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


class Guarded:
    """What has an outer guard from its first use on. Its pickles and copies leave out ``_own_guard``."""

    @property
    def _guard(self) -> Guard:
        guard: Guard | None = self.__dict__.get("_own_guard")
        return self.__dict__.setdefault("_own_guard", Guard(is_outer=True)) if guard is None else guard


# Forks

_listing = Lock()
_guards: WeakSet[Guard] = WeakSet()
_forking = Lock()
_releases: list[Callable[[], None] | None] = []  # of what a fork under way has seized


def _before_fork() -> None:
    """Wait until no other thread changes anything, and let none begin, nor new guards come."""
    _forking.acquire()
    while True:
        with _listing:
            guards = sorted(_guards, key=lambda guard: not guard.is_outer)
        _releases.extend(guard.seize(patient=True) for guard in guards)
        _listing.acquire()
        _releases.extend(guard.seize(patient=False) for guard in set(_guards).difference(guards))
        if None not in _releases:
            return
        _listing.release()  # what is new has begun with a change already
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
    for guard in list(_guards):
        guard._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
