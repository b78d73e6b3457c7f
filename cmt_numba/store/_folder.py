"""``StoreFolder``: the folder of a store, whose journal records and repeats the operations of a ``StoreState``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .._change import ReadWriteLock
from ..journal import Arguments, Durability, DurableForm, Entry, Journal
from ..persistence import Contents
from ._records import TABLES
from ._state import StoreOptions, StoreState, check_operation

KIND = "MemoryStore"
"""The kind of object, as recorded in files."""

_OPERATIONS = ("insert", "replace", "remove", "learn", "note_returned")


class StoreFolder(DurableForm):
    """The folder of a store, and the form of its state.

    Parameters
    ----------
    path : path-like
        The folder.
    contents : StoreContents
        The contents of the store.
    given : dict of str to object
        The options that the user has given.
    durability : Durability
        When to wait for the disk and when to take snapshots.
    """

    kind = KIND
    unread = frozenset({"index.vectors"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        contents: Any,
        given: dict[str, Any],
        durability: Durability,
    ) -> None:
        self._contents, self._given = contents, given
        self.journal = Journal(path, self, durability, tables=TABLES)

    @property
    def path(self) -> Path:
        """The folder."""
        return self.journal.path

    @property
    def database(self) -> Any:
        """The database with the records."""
        return self.journal.folder.database

    @property
    def lock(self) -> ReadWriteLock:
        lock: ReadWriteLock = self._contents.lock
        return lock

    # Changes

    def apply(self, name: str, arguments: Arguments, *, counts: bool = True) -> Any:
        """Apply an operation of the state, and append it to the journal, within a change."""
        answer = getattr(self._contents.state, name)(**arguments)
        self.journal.append(Entry(name, arguments, self.fingerprint()), counts=counts)
        return answer

    def enter_notes(self) -> None:
        """Journal the results of queries, on which the next eviction depends."""
        if self._contents.state.results:
            ids = self._contents.state.take_results()
            self.journal.change(partial(self.apply, "note_returned", {"ids": ids}, counts=False), counts=False)

    # Files

    def contents(self) -> Contents:
        return Contents(KIND, *self._contents.state.contents())

    def made_of(self, contents: Contents, *, values: bool) -> StoreState:
        return StoreState.of_contents(contents.fields, contents.arrays)

    def fingerprint(self, made: StoreState | None = None) -> dict[str, int]:
        state = self._contents.state if made is None else made
        return {"n_memories": len(state), "next_id": state.next_id}

    def has_fingerprint(self, made: StoreState, after: dict[str, int]) -> bool:
        if (found := self.fingerprint(made)) != after:
            raise ValueError(f"replaying it gave {found}, but the original change gave {after!r:.100}")
        return True

    def replay(self, made: StoreState, entry: Entry, exact: bool) -> None:
        if entry.name not in _OPERATIONS:
            raise ValueError(f"its operation {entry.name!r:.50} is unknown")
        check_operation(made, entry.name, entry.arguments)
        getattr(made, entry.name)(**entry.arguments)

    def twin(self) -> StoreState:
        state: StoreState = self._contents.state
        return state

    def follow(self, apply: Callable[[], None]) -> None:
        self._contents.follow(apply)

    def use(self, made: StoreState) -> None:
        options = StoreOptions.of(self._given)
        for name in ("metric", "max_items", "eviction"):
            if self._given.get(name) is not None and getattr(options, name) != getattr(made.options, name):
                message = f"{name} must be {getattr(made.options, name)!r}, as for the store in the folder, or omitted"
                raise ValueError(f"{message}, got {self._given[name]!r}")
        self._contents.use(made)
