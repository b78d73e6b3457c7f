"""A reader-writer lock, by which many threads read or one thread changes an object, and deferred interrupts.

A change consists of short *steps*. Threads can read at any time except during a step, and every step leaves the object
in a readable state. Changes run one at a time, in order of arrival.

Queries take tens of microseconds and come from many threads, which would contend for a shared lock. Each thread
therefore holds its own lock while it reads. A step closes a gate and waits until no thread reads; new readers wait at
the gate. A reader checks the gate while it holds its own lock, so either the step waits for the reader or the reader
finds the gate closed. If a thread does not stop reading, the gate reopens for other readers, and the step retries with
a longer wait.

Between steps a change needs the interpreter, which busy readers release only every few milliseconds. Readers therefore
*hold back*: a thread that starts to read during a change waits for the change to end, for at most ``_LONGEST_DRAIN``.
Correctness does not depend on this. After a hold that delayed readers, the next hold starts only after a pause, during
which the readers run.

Interrupts (Ctrl-C) are deferred during a change. Python can raise ``KeyboardInterrupt`` in the main thread between any
two instructions. Instead, an interrupt is recorded and raised at the end of the current step, within milliseconds, or
at the end of the change. Steps therefore always complete, and earlier steps can be undone without interruption.

Interrupts can still occur while a thread reads or waits. Essential locks are therefore taken by ``with`` statements,
which release them even after a ``KeyboardInterrupt``, and work is passed as a function.
"""

import concurrent.futures.thread  # noqa: F401 - registers its fork handlers; see the end of this file
import logging  # noqa: F401 - registers its fork handlers
import os
import signal
import time
from _signal import getsignal  # type: ignore[import-not-found] # signal takes 4 us to find a handler in its enums
from _signal import signal as set_handler
from abc import abstractmethod
from collections.abc import Callable
from functools import partial, wraps
from threading import Lock, get_ident, local, main_thread
from typing import Any, Self, TypeVar, cast
from weakref import WeakSet, ref

from numba.core.compiler_lock import global_compiler_lock

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_LONGEST_HOLD = 0.02  # seconds that readers hold back after the last active reader has finished
_LONGEST_DRAIN = 0.1  # seconds that new readers hold back while active readers finish
_LONGEST_WORK = 0.01  # length of a hold in seconds after which readers run before the next step
_PAUSE_RATIO = 2.0  # length of a pause relative to the preceding hold
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # minimum and maximum length of a pause in seconds
_MIN_PATIENCE = 0.01  # seconds that a step waits for the next active reader to finish
_POLL_INTERVAL = 0.0002  # seconds between checks for active readers


# Interrupts. Python raises them in the main thread only, so the globals describe that thread.

Handler = Callable[[int, Any], Any]

_handler: Handler | None = None  # the original handler while interrupts are deferred, else None
_is_pending = False  # True while a recorded interrupt has not been raised
_n_protected = 0  # number of active calls of ``uninterrupted``
_main_ident = main_thread().ident


def defer_interrupts(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. :func:`end_step` or the end of ``work`` raises a recorded interrupt."""
    handler = begin_deferral()
    try:
        return work()
    finally:
        if handler is not None:
            end_deferral(handler)


def begin_deferral() -> Handler | None:
    """Defer interrupts. Return the handler for :func:`end_deferral`, or None if there is nothing to defer or to end."""
    global _handler
    if _handler is not None or get_ident() != _main_ident:
        return None
    handler: Any = getsignal(signal.SIGINT)
    if not callable(handler):
        return None  # SIGINT is ignored or ends the process
    set_handler(signal.SIGINT, _record)
    _handler = handler
    return _handler


def end_deferral(handler: Handler) -> None:
    """Restore the handler of interrupts, and raise a recorded interrupt."""
    global _handler
    _handler = None
    set_handler(signal.SIGINT, handler)
    if _is_pending:
        _raise_pending(handler)


def end_step() -> None:
    """Raise a recorded interrupt, except within :func:`uninterrupted`."""
    if _is_pending and _handler is not None and _n_protected == 0 and get_ident() == _main_ident:
        _raise_pending(_handler)


def uninterrupted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``work(*args, **kwargs)``. Raise an interrupt only after the call has ended."""
    global _n_protected
    if get_ident() != _main_ident:
        return work(*args, **kwargs)
    handler = begin_deferral()
    _n_protected += 1
    try:
        return work(*args, **kwargs)
    finally:
        _n_protected -= 1
        if handler is not None:
            end_deferral(handler)


def _record(_number: int, _frame: Any) -> None:
    global _is_pending
    _is_pending = True


def _raise_pending(handler: Handler) -> None:
    global _is_pending
    _is_pending = False
    handler(signal.SIGINT, None)


# Locks


class _Turn:
    """A queue entry for a change. Its lock is held until the change ends or is abandoned."""

    __slots__ = ("before", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.before: _Turn | None = None  # the preceding change in the queue

    def wait(self) -> None:
        """Wait until this change has ended. If it was abandoned, also wait for the changes before it."""
        turn: _Turn | None = self
        while turn is not None:
            with turn.lock:
                pass
            turn = turn.before


class ReadWriteLock:
    """A reader-writer lock for the threads that share an object.

    Copies of the object, objects loaded from files, and child processes have their own locks. A fork waits for the
    changes of other threads, and until no thread compiles or loads a kernel. The child process never inherits an
    incomplete change or a compiler that a missing thread has locked.

    - ``level``: 0, or more than the levels of inner objects, which have locks of their own and which changes of the
      object also change. Forks acquire locks of high levels first.
    - ``instant``: a lock for data that readers also change, held only for very short operations.
    - ``n_steps``: number of steps so far. If two reads see the same number, the object has not changed between them.
    - ``before_read``: a function to call before each read, outside of changes.
    """

    def __init__(self, level: int = 0) -> None:
        self.level = level
        self.n_steps = 0
        self.before_read: Callable[[], None] | None = None
        self._changer: int | None = None  # the changing thread, valid while the lock of ``_turn`` is held
        self._renew()
        with _listing:
            _locks.add(self)

    def _renew(self) -> None:
        """Reset the lock in a forked child process, where only the forking thread exists."""
        self._queueing, self._registering, self.instant = Lock(), Lock(), Lock()
        self._last = _Turn()
        if self._changer != get_ident():
            self._changer, self._turn = None, self._last  # the turn of the current or latest change
            self._gate: Lock | None = None  # locked during a step
            self._hold: Lock | None = None  # locked while readers must wait
            self._kept_waiting = False  # whether a reader has waited since the hold began
        self._local = local()
        self._readers: list[ref[Lock]] = []  # one lock for each thread that has read
        self._held_since = self._held_until = 0.0  # times of ``time.perf_counter``
        self._open_until = 0.0  # the end of the pause between holds
        self._patience = _MIN_PATIENCE

    def read(self, work: Callable[[], T]) -> T:
        """Call ``work``, which only reads the object, while no step runs, and return its result.

        Calls can be nested. ``work`` must not wait for a thread that changes the same object.
        """
        try:
            reading: Lock = self._local.reading
        except AttributeError:
            reading = self._new_reader()
        if reading.locked() or self.is_changing():
            return work()
        if self.before_read is not None:
            self.before_read()
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
        """Wait until a hold ends or its time limit expires."""
        seconds = self._held_until - time.perf_counter()
        if seconds > 0.0 and hold.locked():
            self._kept_waiting = True
            # If an interrupt separates acquire from release, other readers wait until the hold times out.
            if hold.acquire(timeout=seconds):
                hold.release()

    def change(self, work: Callable[[], T]) -> T:
        """Wait for all earlier changes, call ``work``, and return its result.

        ``work`` calls :meth:`step` to change the object. Interrupts are deferred to the end of a step or of ``work``.
        """
        if self._changer == get_ident() and self._turn.lock.locked():
            return work()  # part of the current change
        turn = _Turn()
        with turn.lock:
            with self._queueing:
                turn.before, self._last = self._last, turn
            turn.before.wait()
            turn.before = None
            self._turn, self._changer = turn, get_ident()
            handler = None
            try:
                self._hold_readers()
                handler = begin_deferral()
                return work()
            finally:
                try:
                    if handler is not None:
                        end_deferral(handler)
                finally:
                    self._let_in()
                    self._changer = None

    def is_changing(self) -> bool:
        """Return whether the calling thread is making the current change."""
        return self._changer == get_ident() and self._turn.lock.locked()

    def has_other_readers(self) -> bool:
        """Return whether any other living thread has ever read the object."""
        own = getattr(self._local, "reading", None)
        return not {known() for known in self._readers} <= {None, own}

    def _hold_readers(self) -> None:
        """Start a hold, and wait for active readers to finish."""
        now = time.perf_counter()
        if now < self._open_until:
            time.sleep(self._open_until - now)
            now = time.perf_counter()
        hold = Lock()
        hold.acquire()
        self._held_until = now + _LONGEST_DRAIN
        self._kept_waiting, self._hold = False, hold
        if self._readers:
            self._wait_for_readers()
        self._held_since = time.perf_counter()
        self._held_until = self._held_since + _LONGEST_HOLD

    def let_in(self) -> None:
        """End the hold and let readers run until the next step. Do nothing if another thread makes the change."""
        if self.is_changing():
            self._let_in()

    def _let_in(self) -> None:
        hold = self._hold
        if hold is None:
            return
        self._hold = None
        hold.release()
        if self._kept_waiting:
            now = time.perf_counter()
            turn = _PAUSE_RATIO * (now - self._held_since)
            self._open_until = now + min(max(_SHORTEST_PAUSE, turn), _LONGEST_PAUSE)

    def step(self, work: Callable[[], T], *, is_last: bool = False) -> T:
        """Call ``work`` while no thread reads and return its result.

        The call is a step of the calling thread's current change, or a change of one step. After the last step of a
        change, interrupts are raised at the end of the change.
        """
        if self._changer != get_ident() or not self._turn.lock.locked():
            return self.change(partial(self.step, work))
        if self._gate is not None and self._gate.locked():
            return work()  # part of the current step
        if (reading := getattr(self._local, "reading", None)) is not None and reading.locked():
            raise RuntimeError("the object cannot be changed during its query by the same thread")
        if time.perf_counter() > self._held_since + _LONGEST_WORK:
            self._let_in()
        while True:
            if self._hold is None:
                self._hold_readers()
            gate = Lock()
            with gate:
                try:
                    self._gate = gate
                    if not self._readers or self._wait_for_readers():
                        self.n_steps += 1
                        result = uninterrupted(work)
                        break
                finally:
                    self._gate = None
            self._patience *= 2.0
            self._let_in()
        if _is_pending and not is_last:
            end_step()
        return result

    def _wait_for_readers(self) -> bool:
        """Wait until no thread reads. Return False if no reader finishes within the time limit."""
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
            time.sleep(_POLL_INTERVAL)
            reading = [lock for lock in reading if lock.locked()]
        self._patience = max(_MIN_PATIENCE, self._patience / 2.0)
        return True

    def seize(self, *, patient: bool) -> Callable[[], None] | None:
        """Block new changes by other threads, and return a function that unblocks them.

        If a change is in progress, wait for it to end (``patient=True``) or return None (``patient=False``).
        """
        if self.is_changing():
            return lambda: None
        turn = _Turn()
        turn.lock.acquire()
        with self._queueing:
            if not patient and (self._last.lock.locked() or self._last.before is not None):
                return None  # this change or an earlier one has not ended
            turn.before, self._last = self._last, turn
        turn.before.wait()
        turn.before = None
        return turn.lock.release


def _runs_by(run: Callable[[ReadWriteLock, Callable[[], Any]], Any]) -> Callable[[Method], Method]:
    """Return a decorator for methods of an object with a ``_lock``, which ``run`` calls while it holds the lock."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
            return run(self._lock, partial(method, self, *args, **kwargs))

        return cast(Method, locked)

    return decorate


changes = _runs_by(ReadWriteLock.change)
"""Decorate a method to run as a change. The method itself calls ``step``."""

changes_in_one_step = _runs_by(ReadWriteLock.step)
"""Decorate a method to run as a change of one step. Interrupts are deferred to the end of the step."""

reads = _runs_by(ReadWriteLock.read)
"""Decorate a method to run as a read."""


class Lockable:
    """A mixin with a lock that is created at first use. Pickles and copies must exclude ``_own_lock``."""

    _lock_level = 1  # a class whose changes also change other Lockables overrides this

    @property
    def _lock(self) -> ReadWriteLock:
        lock: ReadWriteLock | None = self.__dict__.get("_own_lock")
        return self.__dict__.setdefault("_own_lock", ReadWriteLock(self._lock_level)) if lock is None else lock


class Closeable:
    """A context manager that closes the object."""

    @abstractmethod
    def close(self) -> None:
        """Close the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Forks

_listing = Lock()
_locks: WeakSet[ReadWriteLock] = WeakSet()
_forking = Lock()
_releases: list[Callable[[], None] | None] = []  # functions that release the locks held for the current fork


def _before_fork() -> None:
    """Wait for the changes of other threads, then block new changes and new locks."""
    _forking.acquire()
    while True:
        with _listing:
            locks = sorted(_locks, key=lambda lock: -lock.level)
        _releases.extend(lock.seize(patient=True) for lock in locks)
        _listing.acquire()
        _releases.extend(lock.seize(patient=False) for lock in set(_locks).difference(locks))
        if None not in _releases:
            return
        _listing.release()  # an object created in the meantime is being changed: retry
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
    global _listing, _forking, _main_ident
    _listing, _forking, _main_ident = Lock(), Lock(), main_thread().ident
    _releases.clear()
    for lock in list(_locks):
        lock._renew()


# Before a fork, handlers run in reverse order of registration. The handlers of executors, logging and the compiler
# acquire locks that unfinished changes need. They must be registered first, because ``_before_fork`` waits for those
# changes. A child process that inherits the lock of a compiling thread would wait for it forever.
if hasattr(os, "register_at_fork"):
    _acquire, _release = global_compiler_lock.acquire, global_compiler_lock.release
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
