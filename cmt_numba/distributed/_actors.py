"""Calls to the actors of shards, with a deadline and a limit on pending calls."""

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

_CALLS_AT_A_TIME = 4  # calls that an actor runs concurrently; above 1, queries can run during a change
_SECONDS_TO_COMPILE = 600.0
_SECONDS_TO_ASK_ELSEWHERE = 0.5  # seconds to wait for an answer before also calling another actor of the shard


def new_actors(plan: ShardPlan, options: dict[str, Any]) -> list[Any]:
    """Start the actors of a shard and its replicas, and return their handles.

    Ray restarts a dead shard that has a folder and repeats its pending calls. It also restarts a dead replica, but the
    replica's pending calls fail immediately and can be sent to another actor.
    """
    times = 0 if plan.path is None else -1
    own = options | {"max_restarts": times, "max_task_retries": times} | name_of_actor(plan.cluster, plan.name)
    actors = [start_actor(Shard, own, plan)]
    for name in plan.replicas:
        own = options | {"max_restarts": -1, "max_task_retries": 0} | name_of_actor(plan.cluster, name)
        actors.append(start_actor(Replica, own, plan, name))
    return actors


def start_actor(kind: type, options: dict[str, Any], *arguments: Any) -> Any:
    """Start an actor, on any machine of the cluster, that runs several calls concurrently; return its handle."""
    how: dict[str, Any] = {"max_concurrency": _CALLS_AT_A_TIME, "scheduling_strategy": "SPREAD"} | options
    return running().remote(kind).options(**how).remote(*arguments)


class SentCalls(NamedTuple):
    """Pending calls of one method of several shards."""

    method: str
    calls: Mapping[str, tuple[Any, ...]]  # calls[shard]: the arguments
    peers: "dict[str, list[Peer]]"  # peers[shard]: the actors that have not been called yet
    refs: "dict[Any, tuple[str, Peer]]"  # refs[reference]: the shard and the actor that a Ray reference belongs to
    full: list[str]  # shards without room for another pending call before the deadline
    deadline: float
    kind: tuple[Any, ...]  # calls of the same kind need the same compiled kernels
    errors: dict[str, Exception]  # errors[shard]: the error for a shard without an actor
    deaths: dict[str, ClusterError]  # deaths[shard]: the last death of an actor of the shard


class Replies(NamedTuple):
    """The answers and errors of shards, by name."""

    values: dict[str, Any]
    errors: dict[str, Exception]
    missing: list[str]  # shards that did not answer in time

    def all_values(self) -> dict[str, Any]:
        """Return the answers, or raise the first error."""
        for error in self.errors.values():
            raise error
        return self.values


class Peer:
    """The actor of a shard or a replica, with this client's pending calls."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.pending: list[Any] = []  # Ray references to answers
        self.changing = threading.Lock()  # protects ``pending``

    def n_pending(self) -> int:
        """Return the number of pending calls, after removing finished ones."""
        if self.pending and self.changing.acquire(blocking=False):
            try:
                self.pending[:] = ray().wait(self.pending, num_returns=len(self.pending), timeout=0)[1]
            finally:
                self.changing.release()
        return len(self.pending)

    def forget(self, ref: Any) -> None:
        """Remove an answered call."""
        with self.changing:
            self.pending[:] = [other for other in self.pending if other != ref]


class Actors:
    """The actors of a store.

    - ``cluster``: a prefix of actor names that is unique to this store.
    - ``handles``: for each shard, the handles of its own actor and of its replicas. Other shards' actors are looked up
      by name.
    - ``n_replicas``: the number of replicas of each shard.
    - ``timeout``: the time limit for answers, in seconds.
    - ``max_pending``: the maximum number of pending calls from this client to an actor.
    """

    def __init__(
        self, cluster: str, handles: Mapping[str, list[Any]], n_replicas: int, timeout: float, max_pending: int
    ) -> None:
        self.cluster, self.n_replicas, self._timeout, self._max_pending = cluster, n_replicas, timeout, max_pending
        self._peers = {name: [Peer(handle) for handle in own] for name, own in handles.items()}
        self._adding, self._turns = threading.Lock(), itertools.count()
        self._compiled: set[Any] = set()  # answered (shard, kind of call) pairs, whose kernels are compiled

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
        """Call a method of each shard in ``calls`` with the given arguments, and wait for the answers."""
        return self.gather(self.send(method, calls, kind))

    def send(
        self,
        method: str,
        calls: Mapping[str, tuple[Any, ...]],
        kind: tuple[Any, ...] = (),
        *,
        also_replicas: bool = False,
    ) -> SentCalls:
        """Call a method of each shard in ``calls`` with the given arguments, without waiting for answers.

        With ``also_replicas``, call the shard or the replica that has the fewest pending calls. If it has the maximum
        number of pending calls, wait. A shard's first call of a kind has a longer time limit, because its process may
        have to start and to compile kernels.
        """
        running()
        kind = (method, *kind)
        is_compiled = self._compiled.issuperset((name, kind) for name in calls)
        seconds = self._timeout if is_compiled else max(self._timeout, _SECONDS_TO_COMPILE)
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
                turn = next(self._turns) % len(peers[name])  # rotate among actors with equally many pending calls
                peers[name] = sorted(peers[name][turn:] + peers[name][:turn], key=Peer.n_pending)
        sent, left = SentCalls(method, calls, peers, {}, [], now + seconds, kind, errors, {}), list(peers)
        for until in (now, now + seconds):  # call shards with room first: a busy shard must not delay the others
            left = [name for name in left if not self._send(sent, name, until)]
        sent.full.extend(left)
        return sent

    def _send(self, sent: SentCalls, name: str, until: float) -> bool:
        """Call the next actor of a shard. Return False if it has too many pending calls until the time ``until``."""
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
        """Return the answers that arrive before the deadline.

        If an actor is slow or dies, another actor of its shard is called.
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
        self._compiled.update((name, sent.kind) for name in found.values)
        return Replies(found.values, found.errors, sorted(missing))

    def _take(self, sent: SentCalls, ref: Any, found: Replies) -> None:
        """Store the answer to a call in ``found``. If the actor failed, call another actor of the shard."""
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
            sent.deaths[name] = ClusterError(f"{name} has died and cannot be restarted: {error}")
        is_last = not sent.peers[name] and all(name != other for other, _ in sent.refs.values())
        if is_last and name not in found.values and name not in found.errors and name in sent.deaths:
            found.errors[name] = sent.deaths[name]  # a replica that has answered is stale
        if name in found.values or name in found.errors:
            for other in [other for other in sent.refs if sent.refs[other][0] == name]:
                del sent.refs[other]
        elif sent.peers[name] and not self._send(sent, name, sent.deadline):
            sent.full.append(name)

    def stop(self, names: Sequence[str] | None = None) -> None:
        """Kill the actors of the named shards (default: all shards)."""
        module = ray()
        if module.is_initialized():
            for name, peers in self._peers.items():
                for peer in reversed(peers):  # kill replicas before their shard
                    if names is None or name in names:
                        module.kill(peer.handle, no_restart=True)
        if names is not None:
            with self._adding:
                self._peers = {name: peers for name, peers in self._peers.items() if name not in names}
