"""Processes of peers, as the comparison sees them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .worker import serve

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextlib.contextmanager
def _limited(n_threads: int) -> Iterator[None]:
    """Let processes that are started meanwhile read from the environment how many threads they may use."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(n_threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class PeerError(Exception):
    """A peer could not do what it was told, or took too long."""


class PeerProcess:
    """A process with one peer in it.

    Parameters
    ----------
    name : str
        The peer.
    folder : Path
        Where the task is.
    n_threads : int
        Threads that the peer may use. Libraries read it from the environment before they are imported.
    patience : float
        Seconds to wait for any answer.
    clock : {"wall", "cpu"}
        What times are.

    Raises
    ------
    PeerError
        If the peer cannot be started.
    """

    def __init__(self, name: str, folder: Path, n_threads: int, patience: float, clock: str = "wall") -> None:
        context = multiprocessing.get_context("spawn")
        self._patience = patience
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, name, folder, n_threads, clock), daemon=True)
        with _limited(n_threads):
            self._process.start()
        theirs.close()
        self._receive()

    def call(self, method: str, *arguments: Any) -> Any:
        """Let the worker do something, and return what it returns.

        Raises
        ------
        PeerError
            If it cannot, or takes longer than there is patience for; the process has ended then.
        """
        self._connection.send((method, arguments))
        return self._receive()

    def _receive(self) -> Any:
        try:
            if not self._connection.poll(self._patience):
                raise PeerError(f"took longer than {self._patience:.0f} s")
            problem, result = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            self._process.join()
            raise PeerError(f"its process ended with {self._process.exitcode}") from error
        except PeerError:
            self._process.kill()
            self._process.join()
            raise
        if problem is not None:
            self.close()
            raise PeerError(problem.strip().splitlines()[-1])
        return result

    def close(self) -> None:
        """End the process."""
        try:
            self._connection.send(None)
            self._process.join(10)
        except (BrokenPipeError, ConnectionError):
            pass
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
