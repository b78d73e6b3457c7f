"""Adding and removing shards of a store that is in use."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._actors import Actors, new_actors
from ._arguments import options_of_shard
from ._client import Client
from ._errors import ClusterError, NoAnswerError
from ._folder import Listed, shard_names, write_list
from ._reading import Plan
from ._schema import common_schema
from ._topology import Topology

_GO_ON = "the move of memories is not complete: finish_move goes on with it, and so does opening the folder again"


class Resizable(Client):
    """The part of a :class:`ShardedStore` that starts and ends shards."""

    def _prepare(self, actors: Actors, topology: Topology, path: Path | None, how: dict[str, Any]) -> None:
        self._connect(actors, topology, path)
        self._is_owner = True
        self._resizing = threading.Lock()
        self._n_parts, self._n_made, self._exchange_every = how["n_parts"], how["n_made"], how["exchange_every"]
        self._options: dict[str, Any] = how["options"]
        self._actor_options: dict[str, Any] = how["actor_options"]

    def add_shard(self) -> str:
        """Start another shard, and move the memories to it that belong to it then; return its name.

        The store can be used meanwhile, also by other processes: queries find each memory once, and what is asked for
        or changed by its key is moved first. If the process or a shard dies, the move goes on when the store is opened
        again, or with :meth:`finish_move`. The new shard has the options of the others.

        Returns
        -------
        str
            The name of the new shard.

        Raises
        ------
        NoAnswerError
            If a shard does not answer in time. The move is not complete then.
        ClusterError
            If a shard or the cluster is gone.
        OSError
            If the folder cannot be written.
        RuntimeError
            If this is a copy in another process than that which has opened the store.
        """
        with self._alone():
            self._finish()
            self._check_conflicts()
            options, fields = self._ask_one(self._topology.after[0], "options")
            name = shard_names(1, self._n_made)[0]
            own = options_of_shard(self._options, int(name.split("-")[1]), 1) | options
            path = None if self._folder is None else str(self._folder / name)
            self._n_made += 1
            self._list(self._topology, [name])
            try:
                plan = Plan(name, self._actors.cluster, path, True, None, own, self._actors.n_replicas)
                self._actors.add(name, new_actors(plan, self._actor_options))
                self._ask_one(name, "topology")
            except BaseException:
                self._end([name])
                self._list(self._topology)
                raise
            self._go_over(lambda topology: topology.next((*topology.after, name)))
            self._list(self._topology)
            self._finish(fields)
            return name

    def remove_shard(self, name: str | None = None) -> str:
        """Move the memories of a shard to the others, and end it; return its name.

        The store can be used meanwhile, as while a shard is added.

        Parameters
        ----------
        name : str, optional
            The name of the shard; the last one by default.

        Returns
        -------
        str
            The name of the shard that was removed.

        Raises
        ------
        ValueError
            If there is no such shard, or no other.
        NoAnswerError, ClusterError, OSError, RuntimeError
            As for :meth:`add_shard`.
        """
        with self._alone():
            self._finish()
            names = self._topology.after
            name = names[-1] if name is None else name
            if name not in names:
                raise ValueError(f"name must be one of {', '.join(names)}, not {name!r:.50}")
            if len(names) == 1:
                raise ValueError(f"{name} is the only shard, and cannot be removed")
            self._check_conflicts(leaving=name)
            self._go_over(lambda topology: topology.next([other for other in topology.after if other != name]))
            self._list(self._topology)
            self._finish()
            return name

    def finish_move(self) -> None:
        """Go on with the move of memories that a failure of :meth:`add_shard` or :meth:`remove_shard` has left.

        Raises
        ------
        MoveError
            If a shard does not accept memories. :meth:`undo_move` takes the move back.
        NoAnswerError, ClusterError, OSError, RuntimeError
            As for :meth:`add_shard`.
        """
        with self._alone():
            self._finish()

    def undo_move(self) -> None:
        """Take back a move of memories that a failure of :meth:`add_shard` or :meth:`remove_shard` has left.

        Memories that have moved go back. A shard that was to be added is ended, and one that was to be removed stays.

        Raises
        ------
        MoveError, NoAnswerError, ClusterError, OSError, RuntimeError
            As for :meth:`finish_move`.
        """
        with self._alone():
            topology = self._survey()[0]
            if topology.is_moving:
                self._actors.ask("give", dict.fromkeys(topology.before, (topology.move, [])))  # what is under way
                self._go_over(Topology.reversed)
                self._list(self._topology)
                self._finish()

    def _check_conflicts(self, leaving: str | None = None) -> None:
        """Raise ShardConflictError if shards hold memories that cannot be in one store; an empty one may leave."""
        facts = self._survey()[1]
        if leaving is None or facts[leaving].n_memories > 0:
            common_schema({name: fact.schema for name, fact in facts.items()})

    def _go_over(self, following: Callable[[Topology], Topology]) -> None:
        """Have the first shard decide on a topology that follows the latest one."""
        while True:
            topology = self._topology
            if self._decide(topology, following(topology)):
                return

    def _alone(self) -> threading.Lock:
        self._open_actors()
        if not self._is_owner:
            raise RuntimeError("only the process that has opened the store can add and remove its shards")
        return self._resizing

    def _finish(self, fields: Sequence[Any] = ()) -> None:
        """Move what is left to move, to shards with indexes on some fields."""
        topology = self._survey()[0]
        if not topology.is_moving:
            return
        self._tell(topology, topology.names)
        for field in fields:
            self._change_all("create_index", field)
        giving, is_exchanged = list(topology.before), False
        while giving:
            answers = self._actors.ask("give", dict.fromkeys(giving, (topology.move, None)))
            values = answers.all_values()
            if answers.missing:
                raise NoAnswerError(answers.missing, _GO_ON)
            giving = [name for name in giving if values[name] is not True]
            if not is_exchanged and self._exchange_every is not None:  # a new shard has memories now, but not learned
                self._exchange()
                is_exchanged = True
        self._go_over(lambda latest: latest.next(latest.after))
        done = self._topology
        left = [name for name in topology.before if name not in done.after]
        self._list(done, left)
        self._tell(done, done.after)
        with suppress(NoAnswerError, ClusterError):
            self._tell(done, left)
            self._actors.ask("close", dict.fromkeys(left, ()))
        self._end(left)
        self._list(done)

    def _tell(self, topology: Topology, names: Sequence[str]) -> Topology:
        """Have shards go over to a topology, unless they know a later one; return the latest that one of them knows."""
        answers = self._actors.ask("adopt", dict.fromkeys(names, (topology,)))
        known: list[Topology] = list(answers.all_values().values())
        if answers.missing:
            raise NoAnswerError(answers.missing, _GO_ON)
        return max([topology, *known], key=lambda one: one.version)

    def _ask_one(self, name: str, method: str, *arguments: Any) -> Any:
        return self._complete(self._actors.ask(method, {name: arguments}))[name]

    def _list(self, topology: Topology, spare: Sequence[str] = ()) -> None:
        if self._folder is not None:
            write_list(self._folder, Listed(topology, self._n_parts, self._n_made, spare=tuple(spare)))

    def _end(self, names: Sequence[str]) -> None:
        """End the processes of shards without memories, and delete their folders."""
        self._actors.stop(names)
        for name in names:
            if self._folder is not None:
                shutil.rmtree(self._folder / name, ignore_errors=True)
