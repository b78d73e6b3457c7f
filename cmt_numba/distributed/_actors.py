"""The actors of shards as a client sees them: calls, deadlines, and a bounded number of calls under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._cluster import ray, running
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
    return running().remote(Shard).options(**(how | options)).remote(plan)


class Sent(NamedTuple):
    """Calls that were sent."""

    refs: dict[int, Any]  # Ray's references to answers, by the positions of the shards
    full: list[int]  # shards to which nothing could be sent in time
    deadline: float
    kind: tuple[Any, ...]  # of the calls


class Answers(NamedTuple):
    """What shards have answered, by their positions."""

    values: dict[int, Any]
    errors: dict[int, Exception]
    missing: list[int]  # shards that did not answer in time

    def all_values(self) -> dict[int, Any]:
        """Return the values; raise the first error, if there is one."""
        for error in self.errors.values():
            raise error
        return self.values


class Actors:
    """The actors of a store.

    Parameters
    ----------
    names : sequence of str
        The names of the shards.
    handles : sequence of ray.actor.ActorHandle
        Their actors.
    timeout : float
        Seconds to wait for answers.
    max_pending : int
        The most calls of this client that are under way at each shard.
    """

    def __init__(self, names: Sequence[str], handles: Sequence[Any], timeout: float, max_pending: int) -> None:
        self.names, self.handles, self._timeout, self._max_pending = tuple(names), list(handles), timeout, max_pending
        self._pending: list[list[Any]] = [[] for _ in names]  # calls under way at each shard
        self._changing = [threading.Lock() for _ in names]  # who may change these lists
        self._compiled: set[Any] = set()  # kinds of calls that have been answered once

    def __reduce__(self) -> tuple[Any, ...]:
        return Actors, (self.names, self.handles, self._timeout, self._max_pending)

    def ask(self, method: str, calls: Mapping[int, tuple[Any, ...]], kind: tuple[Any, ...] = ()) -> Answers:
        """Call a method of some shards, each with arguments of its own, and wait for the answers."""
        return self.gather(self.send(method, calls, kind))

    def send(self, method: str, calls: Mapping[int, tuple[Any, ...]], kind: tuple[Any, ...] = ()) -> Sent:
        """Call a method of some shards, each with arguments of its own.

        Waits where as many calls are under way as there may be. The first call of a kind has more time than others: it
        may have to compile.
        """
        running()
        kind = (method, *kind)
        seconds = self._timeout if kind in self._compiled else max(self._timeout, _SECONDS_TO_COMPILE)
        now, refs, left = time.monotonic(), {}, list(calls)
        for until in (now, now + seconds):  # first to the shards that have room, so that none waits for another
            for position in left:
                ref = self._send(position, method, calls[position], until)
                if ref is not None:
                    refs[position] = ref
            left = [position for position in left if position not in refs]
        return Sent(refs, left, now + seconds, kind)

    def _send(self, position: int, method: str, arguments: tuple[Any, ...], deadline: float) -> Any:
        """Return the reference to the answer; None if too many calls are under way until the deadline."""
        pending, module = self._pending[position], ray()
        if not self._changing[position].acquire(timeout=max(0.0, deadline - time.monotonic())):
            return None
        try:
            if len(pending) >= self._max_pending:
                left = max(0.0, deadline - time.monotonic())
                done, waiting = module.wait(pending, num_returns=1, timeout=left, fetch_local=False)
                pending[:] = waiting
                if not done:
                    return None
            ref = getattr(self.handles[position], method).remote(*arguments)
            pending.append(ref)
            return ref
        finally:
            self._changing[position].release()

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
        values: dict[int, Any] = {}
        errors: dict[int, Exception] = {}
        missing = list(sent.full)
        for position, ref in sent.refs.items():
            if ref not in done:
                missing.append(position)
                continue
            try:
                values[position] = module.get(ref)
            except module.exceptions.RayTaskError as error:
                errors[position] = error.cause if isinstance(error.cause, Exception) else error
            except module.exceptions.RayActorError as error:
                errors[position] = ClusterError(f"{self.names[position]} has died and is not restarted: {error}")
            with self._changing[position]:
                self._pending[position][:] = [other for other in self._pending[position] if other != ref]
        if not errors and not missing:
            self._compiled.add(sent.kind)
        return Answers(values, errors, sorted(missing))

    def named(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the names of shards."""
        return tuple(self.names[position] for position in positions)

    def stop(self) -> None:
        """End the processes of all shards."""
        module = ray()
        if module.is_initialized():
            for handle in self.handles:
                module.kill(handle, no_restart=True)
