"""Changes of objects that many threads use: the lock, its steps, interrupts, and worker threads.

A change waits for its turn, is made in steps that leave the object readable, and is undone if it fails. Changes of
objects in folders are also journaled (:mod:`cmt_numba.journal`).
"""

from .interrupts import defer_interrupts, end_step, undone_by, uninterrupted
from .lock import Lockable, ReadWriteLock, changes, changes_in_one_step, reads
from .workers import (
    Pace,
    TimedSteps,
    Workers,
    in_own_thread,
    map_threads,
    progress_bar,
    share_rows,
    spans,
    with_progress,
    workers,
)

__all__ = [
    "Lockable",
    "Pace",
    "ReadWriteLock",
    "TimedSteps",
    "Workers",
    "changes",
    "changes_in_one_step",
    "defer_interrupts",
    "end_step",
    "in_own_thread",
    "map_threads",
    "progress_bar",
    "reads",
    "share_rows",
    "spans",
    "undone_by",
    "uninterrupted",
    "with_progress",
    "workers",
]
