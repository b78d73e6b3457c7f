"""Calls to the actors of shards, with deadlines and a bounded number of pending calls."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._calls import ShardPlan, StaleReplica, replicas_of
from ._cluster import actor_of, name_of_actor, ray, running
from ._errors import ClusterError
from ._replica import Replica
from ._shard import Shard

_CALLS_AT_A_TIME = 4  # calls that an actor runs concurrently, so that queries run during a change
_SECONDS_TO_COMPILE = 600.0
_SECONDS_TO_ASK_ELSEWHERE = 0.5


def new_actors(plan: ShardPlan, options: dict[str, Any]) -> list[Any]:
    """Return the handles of the new actors of a shard and of its replicas.

    A shard with a folder is restarted whenever it dies, and its pending calls are repeated. A replica is restarted too,
    but its calls fail at once, so that they can be sent elsewhere.
    """
    times = 0 if plan.path is None else -1
    how: dict[str, Any] = {"max_concurrency": _CALLS_AT_A_TIME, "scheduling_strategy": "SPREAD"} | options

    def started(kind: type, actor: str, *arguments: Any, **restarts: int) -> Any:
        own = how | restarts | name_of_actor(plan.cluster, actor)
        return running().remote(kind).options(**own).remote(*arguments)

    shard = started(Shard, plan.name, plan, max_restarts=times, max_task_retries=times)
    return [shard, *(started(Replica, name, plan, name, max_restarts=-1, max_task_retries=0) for name in plan.replicas)]


class SentCalls(NamedTuple):
    """Pending calls."""

    method: str
    calls: Mapping[str, tuple[Any, ...]]
    peers: dict[str, list[Peer]]  # actors that can answer and have not been called
    refs: dict[Any, tuple[str, Peer]]  # the shard and the called actor, by Ray's references to answers
    full: list[str]  # shards that no call could be sent to in time
    deadline: float
    kind: tuple[Any, ...]  # kind of the calls
    errors: dict[str, Exception]  # errors of shards that have no actor


class Replies(NamedTuple):
    """Answers by the names of shards."""

    values: dict[str, Any]
    errors: dict[str, Exception]
    missing: list[str]  # shards that did not answer in time

    def all_values(self) -> dict[str, Any]:
        """Return the values, or raise the first error."""
        for error in self.errors.values():
            raise error
        return self.values


class Peer:
    """An actor of a shard or a replica, with its pending calls."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.pending: list[Any] = []
        self.changing = threading.Lock()  # held while ``pending`` changes

    def n_pending(self) -> int:
        """Return the number of pending calls."""
        if self.pending and self.changing.acquire(blocking=False):
            try:
                self.pending[:] = ray().wait(self.pending, num_returns=len(self.pending), timeout=0)[1]
            finally:
                self.changing.release()
        return len(self.pending)

    def forget(self, ref: Any) -> None:
        """Remove a call that was answered."""
        with self.changing:
            self.pending[:] = [other for other in self.pending if other != ref]


class Actors:
    """The actors of a store.

    Parameters
    ----------
    cluster : str
        Distinguishes the actors of this store from those of others.
    handles : dict of str to list of ray.actor.ActorHandle
        The actors of each shard and of its replicas. Those of other shards are found by their names.
    n_replicas : int
        The number of replicas of each shard.
    timeout : float
        Seconds to wait for answers.
    max_pending : int
        Maximum number of pending calls of this client at each actor.
    """

    def __init__(
        self, cluster: str, handles: Mapping[str, list[Any]], n_replicas: int, timeout: float, max_pending: int
    ) -> None:
        self.cluster, self.n_replicas, self._timeout, self._max_pending = cluster, n_replicas, timeout, max_pending
        self._peers = {name: [Peer(handle) for handle in own] for name, own in handles.items()}
        self._adding, self._turns = threading.Lock(), itertools.count()
        self._compiled: set[Any] = set()  # kinds of calls that were answered before

    def __reduce__(self) -> tuple[Any, ...]:
        handles = {name: [peer.handle for peer in peers] for name, peers in self._peers.items()}
        return Actors, (self.cluster, handles, self.n_replicas, self._timeout, self._max_pending)

    def add(self, name: str, handles: list[Any]) -> None:
        """Add the actors of a new shard."""
        with self._adding:
            self._peers = self._peers | {name: [Peer(handle) for handle in handles]}

    def _peers_of(self, name: str) -> list[Peer]:
        if name not in self._peers:
            actors = (name, *replicas_of(name, self.n_replicas))
            self.add(name, [actor_of(self.cluster, actor) for actor in actors])
        return self._peers[name]

    def ask(self, method: str, calls: Mapping[str, tuple[Any, ...]], kind: tuple[Any, ...] = ()) -> Replies:
        """Call a method of some shards, each with its own arguments, and wait for the answers."""
        return self.gather(self.send(method, calls, kind))

    def send(
        self,
        method: str,
        calls: Mapping[str, tuple[Any, ...]],
        kind: tuple[Any, ...] = (),
        *,
        also_replicas: bool = False,
    ) -> SentCalls:
        """Call a method of some shards, each with its own arguments, or of replicas that are less busy.

        Waits while an actor has the maximum number of pending calls. The first call of a kind has more time, because it
        may have to compile.
        """
        running()
        kind = (method, *kind)
        seconds = self._timeout if kind in self._compiled else max(self._timeout, _SECONDS_TO_COMPILE)
        now = time.monotonic()
        peers: dict[str, list[Peer]] = {}
        errors: dict[str, Exception] = {}
        for name in calls:
            try:
                peers[name] = self._peers_of(name)[: None if also_replicas else 1]
            except ClusterError as error:
                errors[name] = error
                continue
            if len(peers[name]) > 1:
                turn = next(self._turns) % len(peers[name])  # actors with the same load take turns
                peers[name] = sorted(peers[name][turn:] + peers[name][:turn], key=Peer.n_pending)
        sent, left = SentCalls(method, calls, peers, {}, [], now + seconds, kind, errors), list(peers)
        for until in (now, now + seconds):  # first to the shards with room, so that no shard waits for another
            left = [name for name in left if not self._send(sent, name, until)]
        sent.full.extend(left)
        return sent

    def _send(self, sent: SentCalls, name: str, until: float) -> bool:
        """Call the next actor of a shard; return False if it has too many pending calls for some time."""
        peer = sent.peers[name][0]
        if not peer.changing.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        try:
            if len(peer.pending) >= self._max_pending:
                left = max(0.0, until - time.monotonic())
                done, waiting = ray().wait(peer.pending, num_returns=1, timeout=left, fetch_local=False)
                peer.pending[:] = waiting
                if not done:
                    return False
            ref = getattr(peer.handle, sent.method).remote(*sent.calls[name])
            peer.pending.append(ref)
        finally:
            peer.changing.release()
        sent.peers[name] = sent.peers[name][1:]
        sent.refs[ref] = name, peer
        return True

    def gather(self, sent: SentCalls) -> Replies:
        """Wait for answers until the deadline. A slow or failed call is repeated with another actor of its shard.

        Raises
        ------
        ClusterError
            If this process has lost its connection to the cluster.
        """
        module, found = running(), Replies({}, dict(sent.errors), [])
        later, now = time.monotonic() + _SECONDS_TO_ASK_ELSEWHERE, time.monotonic()
        while waiting := {name for name, _ in sent.refs.values()}:
            with_others = [name for name in waiting if sent.peers[name]]
            seconds = max(0.0, min(sent.deadline, later if with_others else sent.deadline) - now)
            n = len(sent.refs) if len(sent.refs) == len(waiting) else 1
            for ref in module.wait(list(sent.refs), num_returns=n, timeout=seconds)[0]:
                if ref in sent.refs:
                    self._take(sent, ref, found)
            now = time.monotonic()
            if now >= sent.deadline:
                break
            if now >= later:
                later = now + _SECONDS_TO_ASK_ELSEWHERE
                for name in with_others:
                    if any(name == other for other, _ in sent.refs.values()):
                        self._send(sent, name, now)
        missing = [name for name in sent.calls if name not in found.values and name not in found.errors]
        if not found.errors and not missing:
            self._compiled.add(sent.kind)
        return Replies(found.values, found.errors, sorted(missing))

    def _take(self, sent: SentCalls, ref: Any, found: Replies) -> None:
        """Take the answer to a call, or call another actor of the shard if this one failed."""
        module = ray()
        name, peer = sent.refs.pop(ref)
        peer.forget(ref)
        try:
            value = module.get(ref)
            if not isinstance(value, StaleReplica):
                found.values[name] = value
        except module.exceptions.RayTaskError as error:
            found.errors[name] = error.cause if isinstance(error.cause, Exception) else error
        except module.exceptions.RayActorError as error:
            if not sent.peers[name] and all(name != other for other, _ in sent.refs.values()):
                found.errors[name] = ClusterError(f"{name} has died and is not restarted: {error}")
        if name in found.values or name in found.errors:
            for other in [other for other in sent.refs if sent.refs[other][0] == name]:
                del sent.refs[other]
        elif sent.peers[name] and not self._send(sent, name, sent.deadline):
            sent.full.append(name)

    def stop(self, names: Sequence[str] | None = None) -> None:
        """End the processes of some shards, by default all."""
        module = ray()
        if module.is_initialized():
            for name, peers in self._peers.items():
                for peer in reversed(peers):  # first the replicas
                    if names is None or name in names:
                        module.kill(peer.handle, no_restart=True)
        if names is not None:
            with self._adding:
                self._peers = {name: peers for name, peers in self._peers.items() if name not in names}
