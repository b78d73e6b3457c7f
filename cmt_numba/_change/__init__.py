"""Reader-writer locks, deferred interrupts and worker threads for objects that many threads share.

A change waits for its turn, runs in steps that leave the object readable, and is undone if it fails.
:mod:`cmt_numba.journal` also records the changes of objects in folders.
"""

from .lock import (
    Closeable,
    Lockable,
    ReadWriteLock,
    changes,
    changes_in_one_step,
    defer_interrupts,
    end_step,
    reads,
    uninterrupted,
)
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
