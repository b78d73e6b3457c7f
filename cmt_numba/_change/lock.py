"""A reader-writer lock: many threads read, or one thread changes the object.

A change consists of short *steps*. Threads can read at any time except during a step, and every step leaves the object
in a readable state. Changes are made one at a time, in the order of their arrival.

The standard library has no reader-writer lock. Queries take tens of microseconds and come from many threads, so they
must not share a lock: each reading thread holds a lock of its own while it reads. A step closes a gate, where new
readers wait, and then waits until no thread reads. A reader checks the gate while it holds its own lock, so either the
step waits for it or it sees the closed gate. If a reader goes on for long, the gate is opened again for the others and
the step is tried later, for some time.

What a change does between its steps needs the interpreter, which each of the reading threads keeps for some
milliseconds before another has it. So readers *hold back* for a change: who comes while one is under way waits for its
end, but no longer than some milliseconds. Nothing relies on that. After a hold that kept readers waiting they have
their turn, which is longer, and from its end on they hold back again by themselves: a change that sleeps until then
would wake up too late. A hold begins even if readers never pause, so changes always progress.

Interrupts are deferred to the end of the current step of a change (:mod:`.interrupts`). They may come while a thread
reads or waits for its turn. So all locks are acquired by ``with`` statements on the interpreter's locks, which a
``KeyboardInterrupt`` cannot separate from their release, and work is passed as a function. Other attributes are valid
only while the corresponding lock is held.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - registers what it does at a fork, see the end of this file
import logging  # noqa: F401 - likewise
import os
import time
from collections.abc import Callable
from functools import partial, wraps
from threading import Lock, get_ident, local
from typing import Any, TypeVar, cast
from weakref import ReferenceType, WeakSet, ref

from .interrupts import defer_interrupts, end_step, uninterrupted

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_READERS_SHARE = 2.0  # ratio of the time that readers have to the time that a change had before
_SHORTEST_PAUSE = 0.001  # seconds; opening the gate and waiting for the readers has a cost
_LONGEST_PAUSE = 0.1
_LONGEST_WORK = 0.01  # of a change, before its next step lets readers in
_LONGEST_HOLD = 0.02  # from when all readers hold back; they wait for the end of a step besides
_LOOK_AGAIN = 0.005  # of a reader that holds back
_LEAST_PATIENCE = 0.01  # with readers that still read when others hold back, from when the last one has stopped
_LONGEST_DRAIN = 0.1  # for which readers hold back while others still read, should the change be late to end the hold
_PATIENT_FOR = 0.2  # after which a change that tries has more and more patience, at the expense of all other readers
_LOOK = 0.0002  # between looks at readers that still read


class _Reader:
    """A reading thread."""

    __slots__ = ("__weakref__", "held", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.held: Lock | None = None  # locked while it reads


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


class _Hold:
    """A time in which readers hold back for a change. A long change has several, one after the other."""

    __slots__ = ("began", "lock", "owner", "since", "tried_since", "until")

    def __init__(self) -> None:
        self.lock = Lock()  # locked until the change ends, or some milliseconds longer
        self.owner = get_ident()
        self.since = self.until = 0.0  # as of ``time.perf_counter``
        self.began = 0.0  # when all readers held back, and the change had the object for itself
        self.tried_since: float | None = None  # when a reader first read on for longer than was waited for


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
        How many steps have begun: as long as it stays the same, the object has not changed.
    """

    def __init__(self, *, is_outer: bool = False) -> None:
        self.is_outer = is_outer
        self.n_steps = 0
        self._changer: int | None = None  # the changing thread; valid while the lock of its turn is held
        self._stepper: int | None = None  # the thread inside a step; valid while the gate is closed
        self._renew()
        with _listing:
            _locks.add(self)

    def _renew(self) -> None:
        """Forget all other threads."""
        me = get_ident()
        self._queueing, self._registering, self.instant = Lock(), Lock(), Lock()
        self._last = _Turn()
        self._changer = me if self._changer == me else None
        self._stepper = me if self._stepper == me else None
        if self._changer is None:
            self._turn = self._last  # of the last change that started
        if self._stepper is None:
            self._gate: Lock | None = None  # held while a step is under way
        self._local = local()
        self._readers: list[ReferenceType[_Reader]] = []  # all threads that have read, ended ones included
        self._hold: _Hold | None = None  # that readers obey, unless it has ended
        self._kept_waiting = False  # whether a reader has waited during the current or last hold
        self._open_until = 0.0  # the end of the readers' turn
        self._patience = _LEAST_PATIENCE

    def read(self, work: Callable[[], T]) -> T:
        """Call ``work``, which only reads, outside any step, and return its result.

        Nested calls are allowed. ``work`` must not wait for another thread that changes the same object.
        """
        try:
            reader: _Reader = self._local.reader
        except AttributeError:
            reader = self._new_reader()
        if (reader.held is not None and reader.held.locked()) or self.is_stepping():
            return work()
        hold = self._hold
        if hold is not None:
            self._hold_back(hold)
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

    def _hold_back(self, hold: _Hold | None) -> None:
        """Wait for the end of a hold, if it has begun."""
        now = came = time.perf_counter()
        while hold is not None and hold.since <= now < hold.until and hold.owner != get_ident():
            if hold.since > came + _LONGEST_HOLD:
                return  # this is one after the other
            self._kept_waiting = True
            # Whatever happens between these two, who waits for the lock after this waits for a short time.
            if hold.lock.acquire(timeout=min(_LOOK_AGAIN, hold.until - now)):
                hold.lock.release()
            hold, now = self._hold, time.perf_counter()

    def ahead(self, work: Callable[[], T]) -> T:
        """Call ``work``, which makes a change or prepares it, and return its result. Readers hold back meanwhile.

        Only one thread at a time may do so: one that makes a change, or holds a lock that changes need.
        """
        if self._is_holding():
            return work()
        hold = _Hold()
        with hold.lock:
            try:
                self._begin(hold)
                return work()
            finally:
                self._end(hold)
                self._hold = None

    def let_in(self) -> None:
        """Have no reader hold back before the next step of the change of the calling thread, if it makes one."""
        if self._is_holding():
            self._end(cast(_Hold, self._hold))

    def _is_holding(self) -> bool:
        """Return whether readers hold back for the calling thread, or have done so."""
        hold = self._hold
        return hold is not None and hold.owner == get_ident() and hold.lock.locked()

    def _begin(self, hold: _Hold) -> None:
        """Have readers hold back after their turn, and wait until they do. If one goes on for long, the hold ends."""
        now = time.perf_counter()
        hold.since = hold.began = max(now, self._open_until)
        hold.until = hold.since + _LONGEST_DRAIN
        self._kept_waiting, self._hold = False, hold
        if hold.since > now:
            time.sleep(hold.since - now)
        if self._wait_for_readers(hold):
            hold.began = time.perf_counter()
            hold.until = hold.began + _LONGEST_HOLD

    def _end(self, hold: _Hold) -> None:
        """Have readers hold back no longer, and give them their turn if any has waited."""
        hold.until = min(hold.until, time.perf_counter())
        if self._kept_waiting:
            turn = _READERS_SHARE * (hold.until - hold.began)
            turn = min(max(_SHORTEST_PAUSE, turn), _LONGEST_PAUSE)
            self._open_until = max(self._open_until, hold.until + turn)

    def change(self, work: Callable[[], T]) -> T:
        """Wait for all earlier changes, call ``work``, which may take steps, and return its result.

        An interrupt is raised at the end of a step, or when ``work`` has ended.
        """
        if self.is_changing():
            return work()
        turn = _Turn()
        with turn.lock:
            self._enqueue(turn)
            turn.before.wait()  # type: ignore[union-attr]
            turn.before = None
            self._turn, self._changer = turn, get_ident()
            try:
                return defer_interrupts(partial(self.ahead, work))
            finally:
                self._changer = None

    def is_changing(self) -> bool:
        """Return whether the calling thread is making the current change."""
        return self._changer == get_ident() and self._turn.lock.locked()

    def is_stepping(self) -> bool:
        """Return whether the calling thread is inside the current step."""
        return self._stepper == get_ident() and self._gate is not None and self._gate.locked()

    def has_other_readers(self) -> bool:
        """Return whether another thread has read that is still there."""
        own = getattr(self._local, "reader", None)
        with self._registering:
            return any(reader is not None and reader is not own for reader in (known() for known in self._readers))

    def _enqueue(self, turn: _Turn) -> None:
        with self._queueing:
            turn.before, self._last = self._last, turn

    def step(self, work: Callable[[], T]) -> T:
        """Call ``work`` as a step of the current change, while no thread reads, and return its result."""
        if self.is_stepping():
            return work()
        if not self._is_holding():
            return self.ahead(partial(self.step, work))
        result = self._step(work)
        end_step()
        return result

    def _step(self, work: Callable[[], T]) -> T:
        hold = cast(_Hold, self._hold)
        while True:
            while time.perf_counter() >= min(hold.until, hold.began + _LONGEST_WORK):
                self._end(hold)
                self._begin(hold)
            gate = Lock()
            with gate:
                try:
                    self._gate = gate
                    if self._wait_for_readers(hold):
                        self._stepper = get_ident()
                        self.n_steps += 1
                        return work()
                finally:
                    self._stepper = self._gate = None
                    hold.until = max(hold.until, time.perf_counter())  # readers have waited for the gate

    def _wait_for_readers(self, hold: _Hold) -> bool:
        """Wait until nobody reads; return whether that was so before the patience with those left was at its end."""
        with self._registering:
            readers = [reader for reader in (known() for known in self._readers) if reader is not None]
        n_left, latest, until = len(readers) + 1, 0.0, hold.until
        while readers := [reader for reader in readers if reader.lock.locked()]:
            self._kept_waiting = True
            now = time.perf_counter()
            if len(readers) < n_left:
                n_left, latest = len(readers), now + self._patience
                hold.until = now + _LONGEST_DRAIN
            elif now > latest:
                hold.until = now
                hold.tried_since = hold.tried_since or now
                if now > hold.tried_since + _PATIENT_FOR:
                    self._patience *= 2.0
                return False
            time.sleep(_LOOK)
        hold.until = until
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
    """Run a method of an object with a ``_lock`` as a change. The method takes its steps itself."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._lock.change(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


def changes_in_one_step(method: Method) -> Method:
    """Run a method of an object with a ``_lock`` as a change of a single step, before or after which interrupts come.

    An interrupt that comes meanwhile is raised when the change has been made.
    """

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock: ReadWriteLock = self._lock
        return lock.change(partial(lock.step, partial(uninterrupted, method, self, *args, **kwargs)))

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
        _listing.release()  # a new object is being changed already: start again
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


# Before a fork, what was registered last is called first. Executors and logging lock themselves for a fork, and the
# changes that ``_before_fork`` waits for use both, so they must have been registered before.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
