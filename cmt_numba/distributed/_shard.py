"""One shard of a store: what runs in the process of an actor."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..journal import AlreadyOpenError
from ..persistence import FileFormatError
from ..store import Effort, Items, MemoryStore, Results
from ..store._checks import Key
from ..store._requests import Requests

_SECONDS_TO_OPEN = 10.0  # while the process before still holds the lock of the folder
_CHANGES = ("add", "upsert", "delete", "feedback", "create_index", "compact")


class Plan(NamedTuple):
    """How to open the store of a shard.

    Attributes
    ----------
    name : str
        The name of the shard.
    path : str or None
        Its folder; None for a store in memory.
    is_new : bool
        Whether the folder may be created.
    file : str or None
        A file that holds what a store in memory begins with.
    options : dict
        Parameters of :class:`~cmt_numba.MemoryStore`.
    """

    name: str
    path: str | None
    is_new: bool
    file: str | None
    options: dict[str, Any]


class Facts(NamedTuple):
    """What a client must know of a shard to check arguments.

    Attributes
    ----------
    n_features : int or None
        The width of its vectors; None before the first.
    kind : type or None
        The type of its keys, str or int; None without any.
    metric : str
        Its metric.
    n_memories : int
        How many memories it holds.
    """

    n_features: int | None
    kind: type | None
    metric: str
    n_memories: int


class Shard:
    """The store of a shard, and the requests that it has met. An actor of this class answers several calls at a time.

    The store is opened by the first call, so that what is wrong with a folder is raised where the caller sees it.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._opened: tuple[MemoryStore, Requests] | None = None

    def _open(self) -> tuple[MemoryStore, Requests]:
        with self._opening:
            if self._opened is None:
                store = self._open_store()
                self._opened = store, Requests(store)
            return self._opened

    def _open_store(self) -> MemoryStore:
        path, deadline = self._plan.path, time.monotonic() + _SECONDS_TO_OPEN
        if self._plan.file is not None:
            return MemoryStore.load(self._plan.file, **self._plan.options)
        if path is not None and not self._plan.is_new and not Path(path).is_dir():
            raise FileFormatError(path, "is missing; restore it from a copy")
        while True:
            try:
                return MemoryStore(path, **self._plan.options)
            except AlreadyOpenError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _store(self) -> MemoryStore:
        return self._open()[0]

    # Changes

    def change(self, request: str, name: str, *arguments: Any) -> None:
        """Make a change of the store, once for each name of a request."""
        if name not in _CHANGES:
            raise ValueError(f"{name!r} is not a change")
        store, requests = self._open()
        requests.make(request, lambda: getattr(store, name)(*arguments))

    # Reading

    def facts(self) -> Facts:
        """Return what a client must know."""
        store = self._store()
        return Facts(store.n_features, store._records().kind(), store.metric, len(store))

    def are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        return np.asarray(self._store()._records().find(keys) >= 0)

    def query(self, X: Any, k: int, where: Any, target_recall: float | None, n_probes: int | None) -> Results:
        """Return the nearest memories for each row; at most as many as there are."""
        store = self._store()
        return store.query(X, min(k, max(1, len(store))), where, target_recall, n_probes=n_probes)

    def get(self, keys: list[Key]) -> Items:
        """Return the vectors and payloads of memories."""
        return self._store().get(keys)

    def keys_after(self, last: int) -> tuple[list[Key], int]:
        """Return the next keys after the memory with an id, and the last one's id; no keys at the end."""
        found = self._store()._records().after(last)
        return [key for _, key, _ in found], found[-1][0] if found else last

    def recall(self) -> tuple[Effort, ...]:
        """Return the recall that was measured."""
        return self._store().recall

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait for it."""
        self._store().sync()

    def save(self, path: str) -> None:
        """Write the store to a file."""
        self._store().save(path)

    def close(self) -> None:
        """Close the store."""
        with self._opening:
            if self._opened is not None:
                self._opened[0].close()

    def process(self) -> int:
        """Return the number of the process."""
        return os.getpid()
