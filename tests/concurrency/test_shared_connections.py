"""Threads that share a connection to SQLite."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cmt_numba.journal import SharedConnection


@pytest.fixture
def connection() -> Iterator[SharedConnection]:
    shared = sqlite3.connect(":memory:", check_same_thread=False, factory=SharedConnection)
    yield shared
    shared.close()


def test_threads_that_execute_the_same_statement_get_their_own_rows(connection: SharedConnection):
    def ask(thread: int) -> None:
        for i in range(2000):
            number = thread * 10_000 + i
            assert connection.rows("SELECT ?, ? UNION ALL SELECT ?, 0", (number, -number, i)) == [
                (number, -number),
                (i, 0),
            ]

    with ThreadPoolExecutor(4) as pool:
        for asked in [pool.submit(ask, thread) for thread in range(4)]:
            asked.result()
