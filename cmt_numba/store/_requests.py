"""Changes of a store that are made once, however often they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._memory_store import MemoryStore

_FACT = "request "  # what the names of their facts begin with; the name of the request follows


class Requests:
    """The last requests for changes that a store has met, by their names.

    The name of a request is written in the same transaction as the change itself. So a client that did not hear whether
    a change was made, because the process of the store was killed, can ask for it again.

    Parameters
    ----------
    store : MemoryStore
        The store.
    least_kept : int, default 4096
        The number of requests that are remembered at least; at most twice as many are.
    """

    def __init__(self, store: MemoryStore, least_kept: int = 4096) -> None:
        self._store, self._least_kept = store, least_kept
        found = store._contents.records.facts()
        numbers = {name: number for name, number in found.items() if name.startswith(_FACT)}
        self._known = dict.fromkeys(sorted(numbers, key=lambda name: numbers[name]))  # the oldest first
        self._last: int = max(numbers.values(), default=0)

    def is_known(self, request: str) -> bool:
        """Return whether a request was made, and is remembered."""
        return _FACT + request in self._known

    def make(self, request: str, change: Callable[[], Any]) -> bool:
        """Make a change of the store, unless one of this name has been made; return whether it was made now.

        Raises
        ------
        Exception
            What the change raises. The request is not remembered then.
        """
        name = _FACT + request
        contents = self._store._contents
        with contents.writing:
            if name in self._known:
                return False
            if len(self._known) >= 2 * self._least_kept:
                self._forget()
            with contents.noting({name: self._last + 1}):
                change()
            self._last += 1
            self._known[name] = None
            return True

    def _forget(self) -> None:
        """Forget all but the last requests."""
        old = list(self._known)[: -self._least_kept]
        contents = self._store._contents
        contents.change(lambda commit: contents.records.delete_facts(old))
        for name in old:
            del self._known[name]
