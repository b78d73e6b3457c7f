"""A replica of a shard, which answers questions: what runs in the process of an actor."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

from ..store import MemoryStore
from ._cluster import actor_of, running
from ._moves import Moves
from ._reading import Behind, Plan, Position, Read, Reading, Refused, make_change

_Applied = tuple[Position, str, tuple[Any, ...]]


class Replica(Reading):
    """A copy of the store of a shard, in memory, that makes the changes of which the shard tells it.

    It is made from the shard at the start, and anew when it has missed a change. Until then it answers no questions.

    Parameters
    ----------
    plan : Plan
        That of the shard.
    actor : str
        The name of this actor.
    """

    def __init__(self, plan: Plan, actor: str) -> None:
        self._plan, self._actor = plan, actor
        self._lock = threading.RLock()
        self._made: tuple[MemoryStore, Moves] | None = None
        self._position: Position = (0, 0)
        self._waiting: list[_Applied] = []  # changes that came while the copy was made
        self._is_joined = threading.Event()
        self._is_joining = False
        self._join()

    def _join(self) -> None:
        """Begin to make the copy anew."""
        with self._lock:
            self._made = None
            self._is_joined.clear()
            if not self._is_joining:
                self._is_joining, self._waiting = True, []
                threading.Thread(target=self._make, daemon=True).start()

    def _make(self) -> None:
        module, owner = running(), actor_of(self._plan.cluster, self._plan.name)
        try:
            position, contents = module.get(owner.follow.remote(self._actor))
            store = pickle.loads(contents)
        except BaseException:
            with self._lock:
                self._is_joining = False
            raise
        with self._lock:
            self._is_joining, self._position = False, position
            self._made = store, Moves(self._plan.name, store, _not_here, _not_here)
            waiting, self._waiting = self._waiting, []
            if all(self.apply(position, name, *arguments) for position, name, arguments in waiting):
                self._is_joined.set()

    def apply(self, position: Position, name: str, *arguments: Any) -> bool:
        """Make a change; return whether the replica is up to date then, or will be."""
        with self._lock:
            if self._is_joining:
                self._waiting.append((position, name, arguments))
                return True
            if self._made is None:
                self._join()
                return False
            if (0, 0) < position <= self._position:  # it is in the copy already
                return True
            try:
                if position != (self._position[0], self._position[1] + 1):
                    raise ValueError("changes are missing")
                self._make_change(name, arguments)
            except Exception:
                self._join()
                return False
            self._position = position
            return True

    def _make_change(self, name: str, arguments: tuple[Any, ...]) -> None:
        assert self._made is not None
        store, moves = self._made
        if name == "change":
            make_change(store, arguments[0], arguments[1:])
            return
        make: dict[str, Callable[..., Any]] = {"adopt": moves.adopt, "receive": moves.receive, "forget": moves.forget}
        if name != "nothing":
            make[name](*arguments)

    def wait(self) -> None:
        """Wait until the copy is made."""
        self._is_joined.wait()

    def read(self, version: int, at_least: Position, name: str, *arguments: Any) -> Read | Refused | Behind:
        """Return the answer to a question, if this replica has made a number of changes; see :class:`Reading`."""
        if not self._is_joined.is_set() or self._position < at_least:
            if not self._is_joining and self._made is None:
                self._join()
            return Behind()
        try:
            return self._answer(version, name, arguments)
        except _GoneError:
            return Behind()

    def _stored(self) -> tuple[MemoryStore, Moves]:
        made = self._made
        if made is None:
            raise _GoneError
        return made


class _GoneError(RuntimeError):
    """The copy is being made anew."""


def _not_here(*_: Any) -> None:
    """Do nothing: replicas give no memories away, and have no replicas."""
