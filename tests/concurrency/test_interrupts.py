"""Interrupts are deferred to the end of a step, or of undoing a change."""

import signal
import sys
from typing import Any

import pytest
from faults import Countdown
from threads import started

from cmt_numba._change import ReadWriteLock, defer_interrupts, end_step, map_threads, uninterrupted


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_raised_at_the_end_of_a_step():
    lock, done = ReadWriteLock(), []

    def step(number: int) -> None:
        interrupt()
        done.append(number)

    def change() -> None:
        interrupt()
        done.append(0)
        for number in (1, 2):
            lock.step(lambda: step(number))  # noqa: B023

    with pytest.raises(KeyboardInterrupt):
        lock.change(change)
    assert done == [0, 1]
    lock.change(lambda: lock.step(lambda: done.append(3)))  # the interrupt is not raised again
    assert done == [0, 1, 3]


def test_an_interrupt_after_the_last_step_is_raised_when_the_change_is_made():
    lock, done = ReadWriteLock(), []

    def change() -> None:
        lock.step(lambda: None)
        interrupt()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        lock.change(change)
    assert done == [1]


def test_undoing_a_change_is_not_interrupted():
    lock, undone = ReadWriteLock(), []

    def undo() -> None:
        for number in range(3):
            interrupt()
            lock.step(lambda: undone.append(number))  # noqa: B023

    def change() -> None:
        try:
            lock.step(interrupt)
        finally:
            uninterrupted(undo)

    with pytest.raises(KeyboardInterrupt):
        lock.change(change)
    assert undone == [0, 1, 2]


def test_a_step_is_not_interrupted_at_the_end_of_a_step_of_another_object():
    outer, inner, done = ReadWriteLock(1), ReadWriteLock(), []

    def step() -> None:
        interrupt()
        inner.step(lambda: done.append(1))
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        outer.step(step)
    assert done == [1, 2]


def test_interrupts_outside_changes_are_immediate():
    done: list[Any] = []

    def work() -> None:
        interrupt()
        end_step()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == [1]
    with pytest.raises(KeyboardInterrupt):
        defer_interrupts(work)
    assert done == [1]
    with pytest.raises(KeyboardInterrupt):
        work()


def test_an_interrupt_of_uninterrupted_work_is_raised_afterwards():
    def fail() -> None:
        interrupt()
        raise ValueError

    assert uninterrupted(lambda first, *, second: first + second, 1, second=2) == 3
    with pytest.raises(KeyboardInterrupt) as caught:
        uninterrupted(fail)
    assert isinstance(caught.value.__context__, ValueError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_program_are_called_and_come_back():
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        uninterrupted(lambda: (interrupt(), came.append("done")))
        started(lambda: uninterrupted(came.append, "in a thread")).join()
        assert came == ["done", signal.SIGINT, "in a thread"]
        came.clear()
        defer_interrupts(interrupt)
        assert came == [signal.SIGINT]
        interrupt()
        assert came == [signal.SIGINT] * 2
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        defer_interrupts(interrupt)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore:Exception ignored")  # Python drops an interrupt in the callback of a weak reference
def test_interrupts_while_threads_work_are_raised_when_the_threads_have_ended():
    done: list[int] = []
    n_raised = 0
    with Countdown(sys.maxsize, interrupt, writes=False) as calls:
        map_threads(done.append, [0, 1], 2)
    for number in range(calls.seen):
        done.clear()
        try:
            with Countdown(number, interrupt, writes=False):
                map_threads(done.append, [0, 1], 2)
        except KeyboardInterrupt:
            n_raised += 1
        assert len(done) in (0, 2)
    assert n_raised > calls.seen // 2
