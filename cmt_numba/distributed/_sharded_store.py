"""``ShardedStore``: a store whose memories are divided among processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np

from .._validation import check_integer, check_matrix, check_passes, check_real, check_rewards
from ..persistence import FileFormatError
from ..store._checks import (
    DuplicateKeyError,
    are_none,
    check_answers,
    check_keys,
    check_one_for_each_row,
    check_payloads,
)
from ..store._learning import learn_in_blocks
from ..store._metrics import check_lengths
from ..store._where import field_path
from ._actors import Actors, new_actors
from ._arguments import blocks_of_rows, check_options, options_of_shard, picked
from ._cluster import start
from ._errors import ClusterError, NoAnswerError
from ._folder import Listed, read_list, shard_names, write_list
from ._reading import Plan
from ._resizing import Resizable
from ._schema import Schema
from ._topology import Topology


class ShardedStore(Resizable):
    """A store like :class:`~cmt_numba.MemoryStore`, whose memories are divided among processes of Ray.

    Each shard holds the memories whose keys belong to it, by consistent hashing. A query is answered by all shards, and
    the best of their answers are merged; filters run in the shards. A change is one transaction in each shard: what is
    wrong with its arguments is found before anything changes, but if a shard fails meanwhile, others may have made
    their part, and :class:`PartialChangeError` says which.

    With a path, a shard that dies is restarted, on another machine if that can read the folder, and opens its folder.
    Calls that were under way are made again, and changes among them are made once. In memory, a shard that dies takes
    its memories with it; calls then raise :class:`ClusterError`, but for queries if there are replicas.

    Several threads may use a store, and so may tasks and actors of Ray to which it is given as an argument. The shards
    end with :meth:`close`, or with the process that has opened the store.

    Parameters
    ----------
    n_shards : int, optional
        Number of shards of a new store. :meth:`add_shard` and :meth:`remove_shard` change it.
    path : path-like, optional
        The folder, which holds a folder for each shard: empty, or that of a sharded store. If it does not exist, it is
        created. Every machine on which a shard may run must find it under this path. By default the store is in memory.
    metric : {"cosine", "inner_product", "euclidean"}, optional
        As for :class:`~cmt_numba.MemoryStore`.
    n_replicas : int, default 0
        Number of copies of each shard, in memory, in processes of their own. They answer queries too, and alone while
        the process of a shard is restarted.
    exchange_every : int or None, default 1000
        The number of rewards that a client gives, after which shards exchange what their scorers have learned. None for
        never.
    address : str, optional
        The address of a cluster; see :func:`start`, which is called if Ray is not running in this process.
    timeout : float, default 60.0
        Seconds to wait for the shards' answers. The first call of each kind may take longer: it may have to compile.
    max_pending : int, default 8
        The most calls that a client has under way at a shard. Further ones wait.
    actor_options : dict, optional
        Options of Ray for the actors, such as ``{"num_cpus": 2}``.
    **options
        Options of the :class:`~cmt_numba.MemoryStore` of each shard. ``n_threads`` is 1 by default. ``max_items`` is
        divided by the number of shards.

    Raises
    ------
    ImportError
        If Ray is not installed.
    cmt_numba.journal.AlreadyOpenError
        If the folder is already open.
    cmt_numba.persistence.FileFormatError
        If the folder is damaged or not that of a sharded store.
    OSError
        If the folder cannot be read or written.
    TypeError, ValueError
        If an option is not valid or differs from that of the store in the folder.

    Examples
    --------
    >>> store = ShardedStore(2, random_state=0)  # doctest: +SKIP
    >>> store.add(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], [{"color": "red"}, {"color": "blue"}])  # doctest: +SKIP
    >>> store.query([[0.9, 0.1]], 1).keys  # doctest: +SKIP
    array([['a']], dtype=object)
    >>> store.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        n_shards: int | None = None,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        *,
        n_replicas: int = 0,
        exchange_every: int | None = 1000,
        address: str | None = None,
        timeout: float = 60.0,
        max_pending: int = 8,
        actor_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        check_options(options, metric)
        _check_limits(n_replicas, exchange_every, timeout, max_pending)
        if n_replicas > 0:
            _check_eviction(options)
        folder = None if path is None else Path(path).absolute()
        listed = None if folder is None else read_list(folder)
        if listed is None:
            names = _new_names(n_shards)
            topology = Topology(1, names, names, Schema(metric or "cosine"), move=1)
            listed = Listed(topology, len(names), len(names), complete=False)
            if folder is not None:
                write_list(folder, listed)
        topology = listed.topology
        if n_shards not in (None, len(topology.before), len(topology.after)):
            message = f"n_shards must be {len(topology.after)}, as for the store in the folder, or omitted: {n_shards}"
            raise ValueError(message)
        cluster, metric = uuid4().hex, metric or topology.schema.metric

        def plan(name: str) -> Plan:
            own = options_of_shard(options, int(name.split("-")[1]), listed.n_parts) | {"metric": metric}
            may_be_new = not listed.complete or name in listed.spare
            own_folder = None if folder is None else str(folder / name)
            return Plan(name, cluster, own_folder, may_be_new, None, own, n_replicas)

        how = {"timeout": timeout, "max_pending": max_pending, "actor_options": actor_options, "options": options}
        how |= {"exchange_every": exchange_every, "n_parts": listed.n_parts, "n_made": listed.n_made}
        self._begin(plan, listed, folder, address, how)
        try:
            self._end([name for name in {*listed.topology.names, *listed.spare} if name not in self._topology.names])
            self._list(self._topology)
            for finish in (self._check_conflicts, self.finish_move):
                try:
                    finish()
                except Exception as error:  # the folder opens all the same, so that it can be mended
                    warnings.warn(f"{self}: {error}", RuntimeWarning, stacklevel=2)
        except BaseException:
            self._actors.stop()
            raise

    def _begin(
        self,
        plan: Callable[[str], Plan],
        listed: Listed,
        folder: Path | None,
        address: str | None,
        how: dict[str, Any],
    ) -> None:
        """Start the actors, and wait until they have opened their stores and know the latest topology."""
        start(address)
        how["actor_options"] = how["actor_options"] or {}
        plans = [plan(name) for name in listed.topology.names]
        handles = {one.name: new_actors(one, how["actor_options"]) for one in plans}
        actors = Actors(plans[0].cluster, handles, plans[0].n_replicas, how["timeout"], how["max_pending"])
        self._prepare(actors, listed.topology, folder, how)
        try:
            self._topology = latest = self._tell(listed.topology, listed.topology.names)
            for name in latest.names:
                if name not in handles:  # a shard that was added, and the process ended before it was listed
                    actors.add(name, new_actors(plan(name), how["actor_options"]))
            self._tell(latest, latest.names)
            self._check_replicas()
            self._learn_metric()
        except BaseException:
            self._actors.stop()
            raise

    def _learn_metric(self) -> None:
        """Have the shards agree on their metric, if an earlier version of this package has created them."""
        while self._topology.schema.metric is None:
            topology, facts, _ = self._survey()
            metric = facts[topology.names[0]].schema.metric
            self._decide(topology, topology.with_schema(topology.schema._replace(metric=metric)))

    def _check_replicas(self) -> None:
        """Raise ValueError if replicas would forget other memories than their shards."""
        if self._actors.n_replicas > 0:
            _check_eviction(self._ask_one(self._topology.after[0], "options")[0])

    # Changes

    def add(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add new memories.

        Parameters
        ----------
        keys, X, payloads
            As for :meth:`cmt_numba.MemoryStore.add`.

        Raises
        ------
        DuplicateKeyError
            If a key is in the store already. It is a KeyError and a ValueError.
        TypeError, ValueError
            If an argument is not valid, or a vector has the length 0 and the metric is the cosine.
        NoAnswerError
            If a shard has not answered in time. It may still make the change.
        ClusterError
            If a shard or the cluster is gone.
        PartialChangeError
            If some shards have made the change and others not.

        Nothing has changed after the first two.
        """
        self._write("add", keys, X, payloads)

    def upsert(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add memories, and replace the vectors and payloads of those whose keys are in the store.

        Parameters
        ----------
        keys, X, payloads
            As for :meth:`cmt_numba.MemoryStore.upsert`.

        Raises
        ------
        TypeError, ValueError, NoAnswerError, ClusterError, PartialChangeError
            As for :meth:`add`.
        """
        self._write("upsert", keys, X, payloads)

    def _write(self, name: str, keys: Any, X: Any, payloads: Any) -> None:
        self._open_actors()
        checked, X = check_keys(keys), check_matrix(X)
        check_lengths(X, self.metric)
        check_one_for_each_row(checked, X.shape[0])
        payloads = payloads if payloads is None or isinstance(payloads, str | bytes | dict) else list(payloads)
        check_payloads(payloads, len(checked))
        new = Schema.of(checked, X)
        self._agree(new)

        def arguments(part: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
            for rows in blocks_of_rows(X[part]):
                block = part[rows]
                own = None if payloads is None else [payloads[i] for i in block]
                yield block, (picked(checked, block), X[block], own)

        if name == "add" and len(self._topology.divided(checked)) > 1:
            stored = np.flatnonzero(self._are_stored(checked))
            if stored.size > 0:
                message = f"keys must not be in the store: {checked[stored[0]]!r:.100} is; use upsert to replace it"
                raise DuplicateKeyError(message)
        self._change(name, checked, arguments, (hasattr(X, "indptr"),), new)

    def delete(self, keys: Any) -> None:
        """Delete memories.

        Parameters
        ----------
        keys : str, int or list of them
            Their keys, each named once.

        Raises
        ------
        KeyError
            If a key is not stored; nothing has been deleted then.
        TypeError, ValueError
            If these are not distinct keys.
        NoAnswerError, ClusterError, PartialChangeError
            As for :meth:`add`.
        """
        checked = check_keys(keys)
        if len(self._topology.divided(checked)) > 1:
            self._check_stored(checked)
        self._change("delete", checked, lambda part: iter([(part, (picked(checked, part),))]))

    def create_index(self, field: Any) -> None:
        """Create an index on a field of payloads in all shards, so that filters on it need not look at all of them.

        Parameters
        ----------
        field : str or tuple of str
            The field, as in filters.
        """
        field_path(field)
        self._change_all("create_index", field)

    def compact(self) -> None:
        """Store memories in the order in which searches read them, for faster queries after many changes."""
        self._change_all("compact")

    # Learning

    def feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        """Learn from rewards of what was returned, or of what was right.

        A shard learns from the rewards of its own memories: it compares those of a row that it holds, but not with
        those of other shards. After ``exchange_every`` rewards, shards exchange what their scorers have learned.

        Parameters
        ----------
        X, keys, rewards
            As for :meth:`cmt_numba.MemoryStore.feedback`.

        Raises
        ------
        KeyError
            If a key is not stored; nothing has been learned then.
        TypeError, ValueError
            If an argument is not valid; nothing has been learned then.
        NoAnswerError, ClusterError, PartialChangeError
            As for :meth:`add`.
        """
        X = self._check_vectors(X)
        given = check_answers(keys, X.shape[0])
        there = ~are_none(given)
        worth = np.broadcast_to(check_rewards(rewards, np.where(there, 0, -1)), given.shape)
        if not there.any():
            return
        checked = check_keys(given[there].tolist(), distinct=False)
        self._check_stored(checked)
        row, column = np.nonzero(there)

        def arguments(part: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
            rows, of_part = np.unique(row[part], return_inverse=True)
            own = np.full((rows.size, given.shape[1]), None)
            own[of_part, column[part]] = given[row[part], column[part]]
            yield part, (X[rows], own, worth[rows])

        self._change("feedback", checked, arguments, (hasattr(X, "indptr"),))
        self._n_rewards += len(checked)
        if self._exchange_every is not None and self._n_rewards >= self._exchange_every:
            self._exchange()

    def learn(self, X: Any, keys: Any, *, n_passes: int = 1) -> float:
        """Learn from queries whose right answers are known, in blocks and in a random order.

        Parameters
        ----------
        X, keys, n_passes
            As for :meth:`cmt_numba.MemoryStore.learn`.

        Returns
        -------
        float
            The share of the queries whose first answer was right in the last pass, before they taught anything.

        Raises
        ------
        KeyError, TypeError, ValueError, NoAnswerError, ClusterError, PartialChangeError
            As for :meth:`feedback`.
        """
        X = self._check_vectors(X)
        checked, n_passes = check_keys(keys, distinct=False), check_passes("n_passes", n_passes, 1)
        check_one_for_each_row(checked, X.shape[0])
        self._check_stored(checked)
        return learn_in_blocks(self, X, checked, n_passes)

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait for it. Without ``sync_every`` above 1 this has been done already."""
        self._ask_all("sync")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to a folder with a file for each shard, which :meth:`load` reads.

        Changes that are made meanwhile may be in the files of some shards and not in those of others.

        Parameters
        ----------
        path : path-like
            The folder, which must be empty or not exist. All shards must find it under this path.

        Raises
        ------
        FileExistsError
            If the folder is not empty.
        OSError
            If a file cannot be written.
        RuntimeError
            If shards are added or removed meanwhile.
        """
        folder, actors = Path(path).absolute(), self._open_actors()
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty; save to a new folder")
        topology = self._survey()[0]
        if topology.is_moving:
            raise RuntimeError("memories move between shards; save the store afterwards")
        n_made = 1 + max(int(name.split("-")[1]) for name in topology.names)
        write_list(folder, Listed(topology, len(topology.after), n_made, complete=False))
        files = {name: (str(folder / f"{name}.cmt"),) for name in topology.names}
        self._complete(actors.ask("save", files))
        if self._topology != topology:
            raise RuntimeError("shards were added or removed; save the store again, to another folder")
        write_list(folder, Listed(topology, len(topology.after), n_made))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        target_recall: float = 0.95,
        n_replicas: int = 0,
        exchange_every: int | None = 1000,
        address: str | None = None,
        timeout: float = 60.0,
        max_pending: int = 8,
        actor_options: dict[str, Any] | None = None,
    ) -> Self:
        """Return the store in a folder that :meth:`save` has written, in memory.

        Parameters
        ----------
        path : path-like
            The folder.
        target_recall, n_replicas, exchange_every, address, timeout, max_pending, actor_options
            As for the constructor.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If a file is damaged or missing.
        OSError
            If a file cannot be read.
        """
        _check_limits(n_replicas, exchange_every, timeout, max_pending)
        folder = Path(path).absolute()
        listed = read_list(folder)
        if listed is None or not listed.complete:
            raise FileFormatError(folder, "holds no sharded store that was saved completely")
        options = {"target_recall": check_real("target_recall", target_recall, 0.0, 1.0, above=True)}
        store, cluster = cls.__new__(cls), uuid4().hex

        def plan(name: str) -> Plan:
            return Plan(name, cluster, None, False, str(folder / f"{name}.cmt"), options, n_replicas)

        how = {"timeout": timeout, "max_pending": max_pending, "actor_options": actor_options, "options": options}
        how |= {"exchange_every": exchange_every, "n_parts": listed.n_parts, "n_made": listed.n_made}
        store._begin(plan, listed, None, address, how)
        return store

    def close(self) -> None:
        """Write all changes to disk, close the shards and end their processes.

        A copy in another process only stops using them.
        """
        if self._is_closed:
            return
        try:
            if self._is_owner:
                with suppress(NoAnswerError, ClusterError):  # a shard that is gone has its changes on disk
                    self._actors.ask("close", dict.fromkeys(self._topology.names, ()))
        finally:
            self._is_closed = True
            if self._is_owner:
                self._actors.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = "in memory" if self._folder is None else f"in {self._folder}"
        return f"ShardedStore({place}, metric={self.metric!r}) of {len(self.shards)} shards"


def _check_limits(n_replicas: int, exchange_every: int | None, timeout: float, max_pending: int) -> None:
    check_integer("n_replicas", n_replicas, 0, 100)
    if exchange_every is not None:
        check_integer("exchange_every", exchange_every, 1)
    check_real("timeout", timeout, 0.0, 1e6, above=True)
    check_integer("max_pending", max_pending, 1)


def _check_eviction(options: dict[str, Any]) -> None:
    """Raise ValueError if replicas with these options would forget other memories than their shards."""
    if options.get("max_items") is not None and options.get("eviction") != "oldest":
        raise ValueError("n_replicas with max_items needs eviction='oldest': replicas do not know what was returned")


def _new_names(n_shards: int | None) -> tuple[str, ...]:
    """Return the names of the shards of a new store."""
    if n_shards is None:
        raise ValueError("n_shards must be given for a new store")
    return shard_names(check_integer("n_shards", n_shards, 1, 10_000))
