"""Replicas: copies of a shard in memory, which answer queries and repeat the shard's changes."""

import os
import pickle
import threading
from typing import Any

from ..store import MemoryStore
from ._calls import OtherTopology, Position, Reply, ShardPlan, StaleReplica, answer, make_change
from ._cluster import actor_of, running
from ._errors import ClusterError
from ._moves import Moves
from ._store_access import alone, facts_of, write_facts

_OPENED = "times opened"  # the name of a fact
_SECONDS = 10.0  # time limit for a change; a replica that exceeds it is dropped and must copy the shard again


class Followers:
    """The replicas of a shard. The shard acknowledges a change after the replicas have repeated it."""

    def __init__(self, plan: ShardPlan, store: MemoryStore) -> None:
        self._cluster, self._store = plan.cluster, store
        self._actors: list[str] = []
        self.position: Position = (0, 0)
        if plan.n_replicas > 0:
            times = int(facts_of(store).get(_OPENED, 0)) + 1
            write_facts(store, {_OPENED: times})
            self.position = (times, 0)
            if running().get_runtime_context().was_current_actor_reconstructed:
                self._actors = plan.replicas  # the next change shows the replicas that they missed a restart

    def follow(self, actor: str) -> tuple[Position, bytes]:
        """Return the shard's position and its pickled store. Later changes are also sent to the replica ``actor``."""

        def follow() -> tuple[Position, bytes]:
            if actor not in self._actors:
                self._actors.append(actor)
            return self.position, pickle.dumps(self._store)

        return alone(self._store, follow)

    def publish(self, name: str, *arguments: Any) -> None:
        """Repeat a change in all replicas and wait for them. The caller holds the lock of the store."""
        self.position = self.position[0], self.position[1] + 1
        if not self._actors:
            return
        module, calls = running(), {}
        for actor in list(self._actors):
            try:
                handle = actor_of(self._cluster, actor)
                calls[handle.apply.remote(self.position, name, *arguments)] = actor, handle
            except ClusterError:
                self._actors.remove(actor)
        done = set(module.wait(list(calls), num_returns=len(calls), timeout=_SECONDS)[0]) if calls else set()
        for call, (actor, handle) in calls.items():
            if call not in done:
                handle.apply.remote((0, 0), "nothing")  # if the replica recovers, this makes it copy the shard again
            if call not in done or not self._is_made(call):
                self._actors.remove(actor)

    def _is_made(self, call: Any) -> bool:
        module = running()
        try:
            return bool(module.get(call))
        except module.exceptions.RayError:
            return False


class Replica:
    """The Ray actor of a replica: a copy of a shard's store in memory that repeats the shard's changes.

    ``actor`` is the replica's name. The shard is copied at the start, and again if the copy has missed a change. The
    replica answers queries only after the copy is complete.
    """

    def __init__(self, plan: ShardPlan, actor: str) -> None:
        self._plan, self._actor = plan, actor
        self._lock = threading.RLock()
        self._copy: tuple[MemoryStore, Moves] | None = None
        self._position: Position = (0, 0)
        self._waiting: list[tuple[Position, str, tuple[Any, ...]]] = []  # changes that arrive during copying
        self._is_ready = threading.Event()
        self._is_joining = False
        self._join()

    def _join(self) -> None:
        with self._lock:
            self._copy = None
            self._is_ready.clear()
            if not self._is_joining:
                self._is_joining, self._waiting = True, []
                threading.Thread(target=self._make_copy, daemon=True).start()

    def _make_copy(self) -> None:
        try:
            module, owner = running(), actor_of(self._plan.cluster, self._plan.name)
            position, contents = module.get(owner.follow.remote(self._actor))
            store = pickle.loads(contents)
        except BaseException:
            with self._lock:
                self._is_joining = False
            raise
        with self._lock:
            self._is_joining, self._position = False, position
            self._copy = store, Moves(self._plan.name, store, _do_nothing, _do_nothing)
            waiting, self._waiting = self._waiting, []
            if all(self.apply(position, name, *arguments) for position, name, arguments in waiting):
                self._is_ready.set()

    def apply(self, position: Position, name: str, *arguments: Any) -> bool:
        """Repeat a change of the shard. Return False if the replica must copy the shard again."""
        with self._lock:
            if self._is_joining:
                self._waiting.append((position, name, arguments))
                return True
            if self._copy is None:
                self._join()
                return False
            if (0, 0) < position <= self._position:  # the copy includes this change
                return True
            try:
                if position != (self._position[0], self._position[1] + 1):
                    raise ValueError(f"changes from {self._position} to {position} are missing")
                self._repeat(*self._copy, name, arguments)
            except Exception:
                self._join()
                return False
            self._position = position
            return True

    def _repeat(self, store: MemoryStore, moves: Moves, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "change":
            make_change(store, arguments[0], arguments[1:])
        elif name == "adopt":
            moves.adopt(*arguments)
        elif name == "receive":
            moves.receive(*arguments)
        elif name == "forget":
            moves.forget(*arguments)

    def wait(self) -> None:
        """Wait until the copy is complete."""
        self._is_ready.wait()

    def read(
        self, version: int, at_least: Position, name: str, *arguments: Any
    ) -> Reply | OtherTopology | StaleReplica:
        """Answer a read-only call if this replica has reached the position ``at_least``."""
        copy = self._copy
        if copy is None or not self._is_ready.is_set() or self._position < at_least:
            if not self._is_joining and copy is None:
                self._join()
            return StaleReplica()
        return answer(*copy, version, name, arguments)

    def process(self) -> int:
        return os.getpid()


def _do_nothing(*_: Any) -> None:
    """Ignore batches and changes to publish: replicas send no memories and have no replicas."""
