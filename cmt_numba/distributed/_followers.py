"""The replicas of a shard, as the shard sees them: it tells them of each change before the change is acknowledged."""

from __future__ import annotations

import pickle
from typing import Any

from ..store import MemoryStore
from ._cluster import actor_of, running
from ._errors import ClusterError
from ._moves import write_facts
from ._reading import Plan, Position

_OPENED = "times opened"  # the name of a fact
_SECONDS = 10.0  # after which a replica that does not confirm a change is no replica any more, until it is made anew


def replica_name(shard: str, number: int) -> str:
    """Return the name of the actor of a replica, the first of which has the number 1."""
    return f"{shard} {number}"


def replica_names(plan: Plan) -> list[str]:
    """Return the names of the actors of the replicas of a shard."""
    return [replica_name(plan.name, number) for number in range(1, plan.n_replicas + 1)]


class Followers:
    """The replicas that follow a shard.

    Parameters
    ----------
    plan : Plan
        That of the shard.
    store : MemoryStore
        Its store.
    """

    def __init__(self, plan: Plan, store: MemoryStore) -> None:
        self._cluster, self._store = plan.cluster, store
        self._actors: list[str] = []
        self.position: Position = (0, 0)
        if plan.n_replicas > 0:
            times = int(store._contents.records.facts().get(_OPENED, 0)) + 1
            write_facts(store, {_OPENED: times})
            self.position = (times, 0)
            if running().get_runtime_context().was_current_actor_reconstructed:
                self._actors = replica_names(plan)  # so that they hear that they follow no more

    def follow(self, actor: str) -> tuple[Position, bytes]:
        """Return the position and the store, and tell a replica of all changes from then on."""
        with self._store._contents.writing:
            if actor not in self._actors:
                self._actors.append(actor)
            return self.position, pickle.dumps(self._store)

    def publish(self, name: str, *arguments: Any) -> None:
        """Tell replicas of a change, which holds the lock of the store, and wait until they have made it."""
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
                handle.apply.remote((0, 0), "nothing")  # if it goes on later, it is to know that it follows no more
            if call not in done or not self._is_made(call):
                self._actors.remove(actor)

    def _is_made(self, call: Any) -> bool:
        module = running()
        try:
            return bool(module.get(call))
        except module.exceptions.RayError:
            return False
