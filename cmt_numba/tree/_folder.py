"""Folders of trees, which journal every change, and what queries change.

``OPERATIONS`` is part of the file format. Never change the arguments or the meaning of an existing name and version.
"""

import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .._engine import Forest, enter_returned
from ..journal import (
    CURRENT,
    Arguments,
    Entry,
    JournalError,
    ObjectForm,
    Operation,
    check_same_option,
    find_operation,
    plain_arguments,
)
from ..persistence import Contents

_RETURN = "return"  # the operation that records memories returned by queries
_MOST_NOTES = 1 << 16  # maximum number of queries whose returned ids wait to be journaled; the oldest are dropped

OPERATIONS: dict[tuple[str, int], Operation] = {
    ("insert", 1): Operation("insert", {"keys": "X"}),
    ("update", 1): Operation(
        "update", {"keys": "X", "hits": "hits", "rewards": "rewards", "rate": "key_learning_rate"}
    ),
    ("teach", 1): Operation("teach", {"keys": "X", "ids": "ids", "passes": "n_passes", "afresh": "afresh"}),
    ("remove", 1): Operation("remove", {"ids": "ids"}),
    ("replace", 1): Operation("replace", {"ids": "ids", "keys": "X"}),
    ("reroute", 1): Operation("reroute", {"number": "n"}),
    ("rebuild", 1): Operation("rebuild", {"ids": "ids", "groups": "groups"}),
    ("compact", 1): Operation("compact", {}),
    ("draw", 1): Operation(lambda tree: tree._forest.draw_word(), {}),
    ("return", 1): Operation(lambda tree, ids: enter_returned(tree._forest, ids), {"ids": "ids"}),
}
"""The operations in a tree's entries, by name and version."""

_OF_OWNER = frozenset({"lock", "_lock", "journal"})  # attributes of a forest that a restored one keeps
VALUES = frozenset({"state.keys.values", "state.weights.dense"})
"""Names of the large arrays of trees. Kernels are safe with any values in them, if links lead to memories."""


def fingerprint(forest: Forest) -> dict[str, int]:
    """Return a fingerprint of a tree."""
    state = forest.state
    if state is None:
        return {"n_memories": 0, "next_id": 0, "trees": zlib.crc32(forest.streams.astype("<u8").tobytes())}
    numbers = np.concatenate([state.streams.astype("<u8"), state.counters[:, forests.SHAPE].astype("<u8").reshape(-1)])
    totals = state.keys.totals
    return {
        "n_memories": int(totals[kernels.N_MEMORIES]),
        "next_id": int(totals[kernels.NEXT_ID]),
        "trees": zlib.crc32(numbers.tobytes()),
    }


class TreeFolder(ObjectForm):
    """Adapter between a tree and its journal."""

    unread = VALUES
    essential = "n_memories", "next_id"
    journal: Any = None  # until the folder is open

    def __init__(self, kind: type, options: dict[str, Any]) -> None:
        self.returned: deque[np.ndarray] = deque(maxlen=_MOST_NOTES)  # ids of returned memories, not yet journaled
        super().__init__(kind, options)
        self._given: Forest = self.owner._forest

    def put(self, owner: Any) -> None:
        """Use another tree, whose queries note what they change."""
        super().put(owner)
        owner._forest.journal = self

    # Changes

    def make(self, method: Callable[..., Any], given: Arguments) -> Any:
        """Call a method of the tree, and append its entry to the journal."""
        operation = OPERATIONS[method.__name__, CURRENT]
        plain = plain_arguments({name: given[name] for name in operation.parameters.values()})
        call = partial(method, **given | plain)
        return self._enter(method.__name__, operation.stored(plain), call, counts=True)

    def _change_by_query(self, name: str, arguments: Arguments) -> Any:
        """Journal a change by a query, which the next other change commits."""
        call = partial(OPERATIONS[name, CURRENT].call, self.owner, arguments)
        return self.journal.change(partial(self._enter, name, arguments, call, counts=False), counts=False)

    def _enter(self, name: str, stored: Arguments, call: Callable[[], Any], *, counts: bool) -> Any:
        forest: Forest = self.owner._forest
        forest.last_evicted = np.empty(0, np.int64)
        answer = call()
        evicted = forest.last_evicted if forest.last_evicted.size > 0 else None
        self.journal.append(Entry(name, stored, self.fingerprint(), evicted), counts=counts)
        return answer

    # Changes by queries

    def draw_word(self) -> int:
        """Return 64 random bits from the stream for queries. A crash may undo the draw, which is harmless."""
        word: int = self._change_by_query("draw", {})
        return word

    def note_returned(self, ids: np.ndarray) -> None:
        """Journal the ids of memories that a query has returned, now or with the next change."""
        if self.journal is not None and self.journal.is_writable:
            self.returned.append(ids)
            with suppress(JournalError):  # queries must work even if the journal cannot be written
                self.journal.try_alone(self.enter_notes)  # if a thread is making a change, it journals the ids

    def enter_notes(self) -> None:
        while self.returned:
            self._change_by_query(_RETURN, {"ids": self.returned[0]})
            self.returned.popleft()  # after a failure the ids remain, and the next change retries

    def mark(self) -> Any:
        forest: Forest = self.owner._forest
        streams = forest.streams if forest.state is None else forest.state.streams
        return forest, forest.lock.n_steps, int(streams[-1])

    # Files

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        tree = type(self.owner)._made_of(contents, thorough=False)
        tree._check(thorough=True, values=values)
        return tree

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        return fingerprint((self.owner if made is None else made)._forest)  # an empty tree is false

    def use(self, made: Any) -> None:
        given, forest = self._given, made._forest
        for name in self.options:
            if name in forest.options:
                check_same_option(name, given.options[name], forest.options[name], "tree")
        if "n_threads" in self.options:
            forest.n_threads = given.n_threads
        if not self.is_open:
            self.put(made)
        elif forest is not self.owner._forest:  # readers may hold the forest
            taken = {name: value for name, value in vars(forest).items() if name not in _OF_OWNER}
            self.lock.step(partial(vars(self.owner._forest).update, taken))

    # Replaying

    def follow(self, apply: Callable[[], None]) -> None:
        self.lock.step(apply)

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        operation, forest = find_operation(OPERATIONS, entry.name, entry.version), made._forest
        arguments = operation.called(entry.arguments)
        forest.evicts = np.empty(0, np.int64) if entry.forgotten is None else entry.forgotten
        try:
            operation.call(made, arguments)
            if forest.evicts is not None and forest.evicts.size > 0:
                raise ValueError("it lists evicted memories that are still stored")
        except (LookupError, TypeError, ValueError):
            # If the replayed trees differ from the original ones, an explored node may not exist. Ignore these errors.
            # A missing memory changes the number of memories, which is compared.
            if exact:
                raise
        finally:
            forest.evicts = None
