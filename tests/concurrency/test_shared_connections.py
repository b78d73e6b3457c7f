"""Threads that share a connection to SQLite."""

import gc
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cmt_numba.journal import EntryDatabase, SharedConnection


@pytest.fixture
def connection() -> Iterator[SharedConnection]:
    shared = sqlite3.connect(":memory:", check_same_thread=False, factory=SharedConnection)
    yield shared
    shared.close()


def test_threads_that_execute_the_same_statement_get_their_own_rows(connection: SharedConnection):
    database = EntryDatabase(Path(":memory:"), connection)

    def ask(thread: int) -> None:
        for i in range(2000):
            number = thread * 10_000 + i
            assert database.execute("SELECT ?, ? UNION ALL SELECT ?, 0", (number, -number, i)) == [
                (number, -number),
                (i, 0),
            ]

    with ThreadPoolExecutor(4) as pool:
        for asked in [pool.submit(ask, thread) for thread in range(4)]:
            asked.result()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python warns of open connections from 3.13")
def test_a_connection_in_a_reference_cycle_closes_itself():
    """Python may finalise it before its owner."""
    owners: list[object] = []
    owners += [owners, sqlite3.connect(":memory:", factory=SharedConnection)]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del owners
        gc.collect()
    assert not warned


def test_a_connection_whose_creation_was_interrupted_can_be_deleted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SharedConnection.__new__(SharedConnection).__del__()
