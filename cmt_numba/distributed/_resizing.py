"""Starting, stopping, adding and removing the shards of a store while it is in use."""

import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._display import warn
from ._actors import Actors, new_actors
from ._calls import ShardPlan
from ._client import Client
from ._cluster import start
from ._errors import ClusterError, NoAnswerError, ShardConflictError
from ._folder import ShardList, shard_name, write_list
from ._topology import Schema


class Cluster:
    """The part of a sharded store that starts and stops shards, in the process that opened the store.

    - ``shards``: the list of shards.
    - ``folder``: the folder, or None for a store in memory.
    - ``plan``: a function that returns the plan of a shard from its name and whether its folder may be created.
    - ``actor_options``: Ray options for the actors.
    """

    client: Client

    def __init__(
        self,
        shards: ShardList,
        folder: Path | None,
        plan: Callable[[str, bool], ShardPlan],
        actor_options: dict[str, Any],
    ) -> None:
        self.shards, self.folder, self.plan = shards, folder, plan
        self.actor_options = actor_options
        self.resizing = threading.Lock()

    def start(self, address: str | None, timeout: float, max_pending: int) -> Client:
        """Start the actors and return a client, after all stores are open and have the latest topology."""
        start(address)
        listed = self.shards.topology
        plans = [self.plan(name, not self.shards.complete or name in self.shards.spare) for name in listed.names]
        handles = {plan.name: new_actors(plan, self.actor_options) for plan in plans}
        actors = Actors(plans[0].cluster, handles, plans[0].n_replicas, timeout, max_pending)
        client = self.client = Client(actors, listed)
        try:
            client.topology = latest = client.tell(listed, listed.names)
            for name in latest.names:
                if name not in handles:  # a killed process had added this shard, but not listed it
                    actors.add(name, new_actors(self.plan(name, True), self.actor_options))
            client.tell(latest, latest.names)
            self._agree_on_schema()
            self.end(name for name in (*listed.names, *self.shards.spare) if name not in latest.names)
        except BaseException:
            actors.stop()
            raise
        return client

    def _agree_on_schema(self) -> None:
        """Make the shards agree on a schema. Warn if they contain incompatible memories."""
        survey = self.client.survey()
        topology = survey.topology
        try:
            schema = topology.schema | survey.schema()
        except ShardConflictError as error:  # for example, a shard is a copy of a folder of another store
            warn(f"{self.folder or 'the store'}: {error}", RuntimeWarning)
            schema = topology.schema | Schema(metric=survey.facts[topology.names[0]].schema.metric)
        if schema != topology.schema:
            self.client.decide(topology, topology.with_schema(schema))

    def write_list(self, spare: Iterable[str] = ()) -> None:
        """Write the list of the latest topology's shards. ``spare`` are other shards that may have a folder."""
        self.shards = self.shards._replace(topology=self.client.topology, complete=True, spare=tuple(spare))
        if self.folder is not None:
            write_list(self.folder, self.shards)

    def end(self, names: Iterable[str]) -> None:
        """Stop the processes of empty shards, delete their folders, and write the list of remaining shards."""
        names = list(names)
        self.client.actors.stop(names)
        for name in names:
            if self.folder is not None:
                shutil.rmtree(self.folder / name, ignore_errors=True)
        self.write_list()


def add_shard(cluster: Cluster) -> str:
    """Start another shard, move memories to it, and return its name."""
    client = cluster.client
    with cluster.resizing:
        _finish(cluster)
        client.survey().schema()  # raises if the shards are incompatible
        options, fields = client.call_one(client.topology.after[0], "options")
        name = shard_name(cluster.shards.n_made)
        cluster.shards = cluster.shards._replace(n_made=cluster.shards.n_made + 1)
        cluster.write_list([name])
        try:
            plan = cluster.plan(name, True)
            plan = plan._replace(options=plan.options | options)
            client.actors.add(name, new_actors(plan, cluster.actor_options))
            client.call_one(name, "topology")
        except BaseException:
            cluster.end([name])
            raise
        client.advance_topology(lambda latest: None if name in latest.after else latest.next((*latest.after, name)))
        cluster.write_list()
        _finish(cluster, fields)
        return name


def remove_shard(cluster: Cluster, name: str | None) -> str:
    """Move the memories of a shard to the other shards, stop the shard, and return its name."""
    client = cluster.client
    with cluster.resizing:
        _finish(cluster)
        names = client.topology.after
        name = names[-1] if name is None else name
        if name not in names:
            raise ValueError(f"name must be one of {', '.join(names)}, got {name!r:.50}")
        if len(names) == 1:
            raise ValueError(f"{name} is the only shard and cannot be removed; add another shard first")
        survey = client.survey()
        if survey.facts[name].n_memories > 0:
            survey.schema()
        others = [other for other in names if other != name]
        client.advance_topology(lambda latest: latest.next(others) if name in latest.after else None)
        cluster.write_list()
        _finish(cluster)
        return name


def finish_move(cluster: Cluster) -> None:
    """Resume an unfinished move of memories."""
    with cluster.resizing:
        _finish(cluster)


def undo_move(cluster: Cluster) -> None:
    """Undo an unfinished move of memories."""
    client = cluster.client
    with cluster.resizing:
        topology = client.survey().topology
        if topology.is_moving:
            # With an empty list of keys, ``give`` only completes the batch under way.
            client.actors.ask("give", dict.fromkeys(topology.before, (topology.move, [])))
            client.advance_topology(lambda latest: latest.next(latest.before) if latest.move == topology.move else None)
            cluster.write_list()
            _finish(cluster)


def _finish(cluster: Cluster, fields: Sequence[Any] = ()) -> None:
    """Finish the current move of memories, if any. First create indexes on ``fields`` in all shards."""
    client = cluster.client
    topology = client.survey().topology
    if not topology.is_moving:
        return
    client.tell(topology, topology.names)
    for field in fields:
        client.change_all("create_index", field)
    giving = list(topology.before)
    while giving:
        is_done = client.complete(client.actors.ask("give", dict.fromkeys(giving, (topology.move, None))))
        giving = [name for name in giving if is_done[name] is not True]
    done = client.advance_topology(lambda latest: latest.next(latest.after) if latest.move == topology.move else None)
    left = [name for name in topology.before if name not in done.after]
    cluster.write_list(left)
    client.tell(done, done.after)
    with suppress(NoAnswerError, ClusterError):
        client.tell(done, left)
        client.actors.ask("close", dict.fromkeys(left, ()))
    cluster.end(left)
