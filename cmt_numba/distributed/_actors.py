"""The actors of shards as a client sees them: calls, deadlines, and a bounded number of calls under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._cluster import actor_of, name_of_actor, ray, running
from ._errors import ClusterError
from ._shard import Plan, Shard

_CALLS_AT_A_TIME = 4  # of an actor: queries while a change is made
_SECONDS_TO_COMPILE = 600.0


def new_actor(plan: Plan, options: dict[str, Any]) -> Any:
    """Return the handle of a new actor.

    A shard with a folder is restarted as often as it dies, and calls that were under way are made again.
    """
    times = 0 if plan.path is None else -1
    how: dict[str, Any] = {"max_restarts": times, "max_task_retries": times, "max_concurrency": _CALLS_AT_A_TIME}
    how["scheduling_strategy"] = "SPREAD"
    how |= name_of_actor(plan.cluster, plan.name)
    return running().remote(Shard).options(**(how | options)).remote(plan)


class Sent(NamedTuple):
    """Calls that were sent."""

    refs: dict[str, Any]  # Ray's references to answers, by the names of the shards
    full: list[str]  # shards to which nothing could be sent in time
    deadline: float
    kind: tuple[Any, ...]  # of the calls


class Answers(NamedTuple):
    """What shards have answered, by their names."""

    values: dict[str, Any]
    errors: dict[str, Exception]
    missing: list[str]  # shards that did not answer in time

    def all_values(self) -> dict[str, Any]:
        """Return the values; raise the first error, if there is one."""
        for error in self.errors.values():
            raise error
        return self.values


class _Peer:
    """A shard, and the calls that are under way there."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.pending: list[Any] = []
        self.changing = threading.Lock()  # who may change this list


class Actors:
    """The actors of a store.

    Parameters
    ----------
    cluster : str
        What distinguishes the actors of this store from those of others.
    handles : dict of str to ray.actor.ActorHandle
        Actors by the names of their shards; others are found by their names.
    timeout : float
        Seconds to wait for answers.
    max_pending : int
        The most calls of this client that are under way at each shard.
    """

    def __init__(self, cluster: str, handles: Mapping[str, Any], timeout: float, max_pending: int) -> None:
        self.cluster, self._timeout, self._max_pending = cluster, timeout, max_pending
        self._peers = {name: _Peer(handle) for name, handle in handles.items()}
        self._adding = threading.Lock()
        self._compiled: set[Any] = set()  # kinds of calls that have been answered once

    def __reduce__(self) -> tuple[Any, ...]:
        handles = {name: peer.handle for name, peer in self._peers.items()}
        return Actors, (self.cluster, handles, self._timeout, self._max_pending)

    def add(self, name: str, handle: Any) -> None:
        """Take the actor of a new shard."""
        with self._adding:
            self._peers = self._peers | {name: _Peer(handle)}

    def _peer(self, name: str) -> _Peer:
        if name not in self._peers:
            handle = actor_of(self.cluster, name)
            with self._adding:
                self._peers = {name: _Peer(handle)} | self._peers
        return self._peers[name]

    def ask(self, method: str, calls: Mapping[str, tuple[Any, ...]], kind: tuple[Any, ...] = ()) -> Answers:
        """Call a method of some shards, each with arguments of its own, and wait for the answers."""
        return self.gather(self.send(method, calls, kind))

    def send(self, method: str, calls: Mapping[str, tuple[Any, ...]], kind: tuple[Any, ...] = ()) -> Sent:
        """Call a method of some shards, each with arguments of its own.

        Waits where as many calls are under way as there may be. The first call of a kind has more time than others: it
        may have to compile.
        """
        running()
        kind = (method, *kind)
        seconds = self._timeout if kind in self._compiled else max(self._timeout, _SECONDS_TO_COMPILE)
        now, refs, left = time.monotonic(), {}, list(calls)
        for until in (now, now + seconds):  # first to the shards that have room, so that none waits for another
            for name in left:
                ref = self._send(self._peer(name), method, calls[name], until)
                if ref is not None:
                    refs[name] = ref
            left = [name for name in left if name not in refs]
        return Sent(refs, left, now + seconds, kind)

    def _send(self, peer: _Peer, method: str, arguments: tuple[Any, ...], deadline: float) -> Any:
        """Return the reference to the answer; None if too many calls are under way until the deadline."""
        if not peer.changing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return None
        try:
            if len(peer.pending) >= self._max_pending:
                left = max(0.0, deadline - time.monotonic())
                done, waiting = ray().wait(peer.pending, num_returns=1, timeout=left, fetch_local=False)
                peer.pending[:] = waiting
                if not done:
                    return None
            ref = getattr(peer.handle, method).remote(*arguments)
            peer.pending.append(ref)
            return ref
        finally:
            peer.changing.release()

    def gather(self, sent: Sent) -> Answers:
        """Wait for answers until the deadline.

        Raises
        ------
        ClusterError
            If this process has lost its connection to the cluster.
        """
        module, waiting = running(), list(sent.refs.values())
        left = max(0.0, sent.deadline - time.monotonic())
        done = set(module.wait(waiting, num_returns=len(waiting), timeout=left)[0]) if waiting else set()
        values: dict[str, Any] = {}
        errors: dict[str, Exception] = {}
        missing = list(sent.full)
        for name, ref in sent.refs.items():
            if ref not in done:
                missing.append(name)
                continue
            try:
                values[name] = module.get(ref)
            except module.exceptions.RayTaskError as error:
                errors[name] = error.cause if isinstance(error.cause, Exception) else error
            except module.exceptions.RayActorError as error:
                errors[name] = ClusterError(f"{name} has died and is not restarted: {error}")
            peer = self._peers.get(name)
            if peer is not None:
                with peer.changing:
                    peer.pending[:] = [other for other in peer.pending if other != ref]
        if not errors and not missing:
            self._compiled.add(sent.kind)
        return Answers(values, errors, sorted(missing))

    def stop(self, names: Sequence[str] | None = None) -> None:
        """End the processes of shards, by default of all."""
        module = ray()
        if module.is_initialized():
            for name, peer in self._peers.items():
                if names is None or name in names:
                    module.kill(peer.handle, no_restart=True)
        if names is not None:
            with self._adding:
                self._peers = {name: peer for name, peer in self._peers.items() if name not in names}
