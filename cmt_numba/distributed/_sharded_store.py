"""``ShardedStore``: a store with its memories divided among processes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import scipy.sparse

from .._display import warn
from .._validation import (
    MOST_WANTED,
    check_integer,
    check_matrix,
    check_passes,
    check_real,
    check_rewards,
    check_wanted,
)
from ..persistence import FileFormatError
from ..store import (
    DuplicateKeyError,
    Effort,
    Item,
    Items,
    Key,
    MemoryStore,
    PreparedFilter,
    are_none,
    as_rows,
    check_answers,
    check_filter,
    check_keys,
    check_lengths,
    check_one_for_each_row,
    check_one_of,
    check_payloads,
    check_stored,
    condition_of,
    field_path,
    learn_in_blocks,
)
from . import _resizing as resizing
from ._calls import ShardPlan
from ._client import BLOCKS_AHEAD, Client, Question, SentQuestion, blocks_of_rows
from ._cluster import running
from ._errors import ClusterError, NoAnswerError
from ._folder import ShardList, number_of, read_list, shard_name, write_list
from ._results import ShardedResults, merge_results, stack_results
from ._schema import Schema
from ._topology import Topology, pick

_BYTES_TO_SHARE = 1 << 16  # larger blocks of vectors are put into Ray's object store once


class ShardedStore:
    """A store like :class:`~cmt_numba.MemoryStore`, whose memories are divided among processes of Ray.

    Keys belong to shards by consistent hashing. All shards answer a query, each with its own filter, and the best of
    their results are merged. A change is one transaction in each shard. All arguments are checked before anything
    changes. If a shard fails later, others may have made their part of the change: :class:`PartialChangeError` lists
    the keys.

    With a path, Ray restarts a shard that dies, on another machine if that can read the folder. Interrupted calls are
    repeated, and a change is made once. In memory, a shard that dies loses its memories: calls then raise
    :class:`ClusterError`, except queries that replicas answer.

    A folder opens with a ``RuntimeWarning`` if a move of memories cannot be finished (see :meth:`undo_move`), or if
    shards hold incompatible memories, as earlier versions could leave them.

    Several threads may use a store, and so may tasks and actors of Ray to which it is given as an argument. The shards
    end with :meth:`close`, or with the process that opened the store.

    Methods raise the same errors as those of :class:`~cmt_numba.MemoryStore`, before anything changes. They also raise
    :class:`NoAnswerError` if shards do not answer in time, and :class:`ClusterError` if a shard has died with its
    memories or the cluster is gone.

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
        Number of copies of each shard, in memory and in separate processes. They answer queries too, also while the
        process of a shard is restarted.
    exchange_every : int or None, default 1000
        The number of rewards of a client after which shards exchange the weights of their scorers; None for never.
    address : str, optional
        The address of a cluster; see :func:`start`, which is called if Ray is not running in this process.
    timeout : float, default 60.0
        Seconds to wait for answers of shards. The first call of each kind has more time, because it may have to
        compile.
    max_pending : int, default 8
        Maximum number of pending calls of a client at a shard. Further calls wait.
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

    _cluster: resizing.Cluster | None  # None in copies in other processes

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
        _check_options(options, metric)
        _check_limits(n_replicas, exchange_every, timeout, max_pending)
        if n_replicas > 0:
            _check_eviction(options)
        folder = None if path is None else Path(path).absolute()
        shards = None if folder is None else read_list(folder)
        if shards is None:
            names = _new_names(n_shards)
            topology = Topology(1, names, names, Schema(metric or "cosine"), move=1)
            shards = ShardList(topology, len(names), len(names), complete=False)
            if folder is not None:
                write_list(folder, shards)
        n_after, n_parts = len(shards.topology.after), shards.n_parts
        if n_shards not in (None, len(shards.topology.before), n_after):
            raise ValueError(f"n_shards must be {n_after}, as for the store in the folder, or omitted, got {n_shards}")
        name_of_cluster, metric = uuid4().hex, metric or shards.topology.schema.metric

        def plan(name: str, may_be_new: bool) -> ShardPlan:
            own = _options_of_shard(options, number_of(name), n_parts) | {"metric": metric}
            own_folder = None if folder is None else str(folder / name)
            return ShardPlan(name, name_of_cluster, own_folder, may_be_new, None, own, n_replicas)

        exchanges = exchange_every is not None
        self._cluster = cluster = resizing.Cluster(shards, folder, plan, actor_options or {}, exchanges=exchanges)
        self._begin(cluster.start(address, timeout, max_pending), folder, exchange_every)
        try:
            if n_replicas > 0:
                _check_eviction(self._client.call_one(self.shards[0], "options")[0])
        except BaseException:
            self._client.actors.stop()
            raise
        try:
            self.finish_move()
        except Exception as error:  # the folder opens nevertheless, so that it can be repaired
            warn(f"{self}: {error}", RuntimeWarning)

    def _begin(self, client: Client, folder: Path | None, exchange_every: int | None) -> None:
        self._client, self._folder, self._exchange_every = client, folder, exchange_every
        self._n_rewards = 0  # rewards of this client since the last exchange

    def __getstate__(self) -> dict[str, Any]:
        return {"client": self._client, "folder": self._folder, "exchange_every": self._exchange_every}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(**state)
        self._cluster = None

    @property
    def _topology(self) -> Topology:
        return self._client.topology

    # Queries

    def query(
        self,
        X: Any,
        k: int = 10,
        where: Any = None,
        target_recall: float | None = None,
        *,
        n_probes: int | None = None,
    ) -> ShardedResults:
        """Return the nearest memories for each row; see :meth:`cmt_numba.MemoryStore.query`.

        ``n_probes`` is the number of leaves in each shard. A function in ``where`` is sent to the shards, and must be
        one that ``pickle`` or Ray can send. The results name the shards that did not answer in time.
        """
        X = self._check_vectors(X)
        k = check_wanted("k", k, len(self) if isinstance(k, int | np.integer) and k > MOST_WANTED else 0)
        if target_recall is not None:
            check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        if n_probes is not None:
            check_integer("n_probes", n_probes, 1)
        keys = self._filtering_keys(where)
        kind = scipy.sparse.issparse(X), where is None, n_probes is None
        under_way: deque[SentQuestion] = deque()
        blocks: list[ShardedResults] = []
        for rows in blocks_of_rows(X):
            block = self._shared(X[rows])

            def calls(topology: Topology, block: Any = block) -> dict[str, tuple[Any, ...]]:
                filters = _filters_of_shards(topology, where, keys)
                return {name: (block, k, own, target_recall, n_probes) for name, own in filters.items()}

            under_way.append(self._client.send(Question("query", calls, keys, kind)))
            if len(under_way) > BLOCKS_AHEAD:
                blocks.append(self._merge(under_way.popleft(), k))
        blocks += [self._merge(asked, k) for asked in under_way]
        return stack_results(blocks)

    def calibrate(self, k: int = 10, where: Any = None, target_recall: float | None = None) -> tuple[Effort, ...]:
        """Measure in every shard how far queries must search for a recall, and return the efforts.

        See :meth:`cmt_numba.MemoryStore.calibrate`. Replicas measure on their own during queries.
        """
        k = check_wanted("k", k, len(self))
        if target_recall is not None:
            check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        return tuple(self._ask_filtered("calibrate", where, lambda own: (k, own, target_recall)))

    def filter(self, where: Any = None, *, keys: Any = None) -> PreparedFilter:
        """Return a filter that is checked once, to pass as ``where`` to many queries.

        See :meth:`cmt_numba.MemoryStore.filter`. Each shard looks up the keys once, until its memories change.
        """
        prepared = check_filter(where, keys)
        if prepared.keys:
            self._check_stored(prepared.keys)
        return prepared

    def _ask_filtered(self, name: str, where: Any, arguments: Callable[[Any], tuple[Any, ...]]) -> list[Any]:
        """Return the answers of the shards to a read-only call about the candidates of a filter."""
        keys = self._filtering_keys(where)

        def calls(topology: Topology) -> dict[str, tuple[Any, ...]]:
            return {shard: arguments(own) for shard, own in _filters_of_shards(topology, where, keys).items()}

        return list(self._client.ask(Question(name, calls, keys)).values())

    def _shared(self, X: Any) -> Any:
        """Return vectors to send. Large blocks are put into the object store once, for all shards."""
        n_bytes = X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
        return running().put(X) if n_bytes > _BYTES_TO_SHARE else X

    def _filtering_keys(self, where: Any) -> list[Key]:
        """Return the keys that a filter lists; an empty list for other filters."""
        if where is None or callable(where):
            return []
        if isinstance(where, PreparedFilter):
            return where.keys
        if isinstance(where, dict):
            condition_of(where)
            return []
        keys = check_keys(where, distinct=False)
        self._check_stored(keys)
        return keys

    def _merge(self, asked: SentQuestion, k: int) -> ShardedResults:
        topology, answers = self._client.gather(asked)
        values, missing = answers.all_values(), answers.missing
        if not values:
            raise NoAnswerError(missing, "try again, or open the store with a larger timeout")
        newest_first = sorted(values, key=lambda name: (name not in topology.after, name in topology.before, name))
        results = merge_results([values[name].value for name in newest_first], k, are_distinct=not topology.is_moving)
        results.missing_shards = tuple(missing)
        return results

    # Contents

    def get(self, keys: Any) -> Items:
        """Return the vectors and payloads of memories; see :meth:`cmt_numba.MemoryStore.get`."""
        checked = check_keys(keys, distinct=False)
        parts = self._client.ask_owners("get", checked)
        order = np.argsort(np.concatenate([part for part, _ in parts]), kind="stable")
        stack = scipy.sparse.vstack if any(scipy.sparse.issparse(items.vectors) for _, items in parts) else np.vstack
        payloads = [payload for _, items in parts for payload in items.payloads]
        return Items(checked, stack([items.vectors for _, items in parts])[order], [payloads[i] for i in order])

    def __getitem__(self, key: Key) -> Item:
        if not isinstance(key, str | int | np.integer):
            raise TypeError(f"store[key] takes one key, not {key!r:.50}; use get for several")
        return self.get(key).first()

    def __len__(self) -> int:
        return self._client.survey().n_memories

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = check_keys(key)
        except ValueError:
            return False
        return bool(self._are_stored(checked)[0])

    def __iter__(self) -> Iterator[Key]:
        topology, seen = self._client.settled([]), set[Key]()
        for shard in topology.names:  # first the shards that memories leave
            last = -1
            while True:
                calls = {shard: (last,)}
                found = self._client.ask(Question("keys_after", lambda _, calls=calls: calls))  # type: ignore[misc]
                if self._topology.move != topology.move:
                    raise RuntimeError("the shards of the store changed during iteration; start again")
                keys, last = found[shard]
                if not keys:
                    break
                moving = {keys[i] for part in topology.leaving(keys).values() for i in part.tolist()}
                yield from (key for key in keys if key not in seen)
                seen |= moving

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return self._topology.after

    @property
    def path(self) -> str | None:
        """The folder; None for a store in memory."""
        return None if self._folder is None else str(self._folder)

    @property
    def metric(self) -> str:
        """The metric."""
        return self._topology.schema.metric or "cosine"

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, set by the first one; None before."""
        widths = [facts.schema.n_features for facts in self._client.survey().facts.values()]
        return next((width for width in widths if width is not None), None)

    @property
    def max_items(self) -> int | None:
        """The maximum number of memories of all shards together; None if there is none."""
        most = self._client.ask_all("max_items")
        return None if None in most else sum(most)

    @property
    def recall(self) -> tuple[tuple[Effort, ...], ...]:
        """The measured recall and search effort of each shard, for each kind of query so far."""
        return tuple(self._client.ask_all("recall"))

    def check_invariants(self) -> None:
        """Check every shard; see :meth:`cmt_numba.MemoryStore.check_invariants`."""
        self._client.ask_all("check_invariants")

    # Checks of arguments

    def _check_vectors(self, X: Any) -> Any:
        """Return vectors or queries as float32."""
        self._client.check_open()
        X = check_matrix(as_rows(X))
        if self._topology.schema.n_features not in (None, X.shape[1]):
            self._client.survey()  # the topology of this client may be outdated
        X = check_matrix(X, n_features=self._topology.schema.n_features)
        check_lengths(X, self.metric)
        return X

    def _are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        stored = np.zeros(len(keys), np.bool_)
        for part, found in self._client.ask_owners("are_stored", keys):
            stored[part] = found
        return stored

    def _check_stored(self, keys: list[Key]) -> None:
        check_stored(keys, np.where(self._are_stored(keys), 0, -1))

    # Changes

    def add(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add new memories; see :meth:`cmt_numba.MemoryStore.add`."""
        self._write("add", keys, X, payloads)

    def upsert(self, keys: Any, X: Any, payloads: Any = None) -> None:
        """Add or replace memories; see :meth:`cmt_numba.MemoryStore.upsert`."""
        self._write("upsert", keys, X, payloads)

    def _write(self, name: str, keys: Any, X: Any, payloads: Any) -> None:
        self._client.check_open()
        checked, X = check_keys(keys), check_matrix(as_rows(X))
        check_lengths(X, self.metric)
        check_one_for_each_row(checked, X.shape[0])
        if isinstance(payloads, dict) and len(checked) == 1:
            payloads = [payloads]
        payloads = payloads if payloads is None or isinstance(payloads, str | bytes | dict) else list(payloads)
        check_payloads(payloads, len(checked))
        new = Schema.of(checked, X)
        self._client.agree(new)

        def arguments(part: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
            for rows in blocks_of_rows(X[part]):
                block = part[rows]
                own = None if payloads is None else [payloads[i] for i in block]
                yield block, (pick(checked, block), X[block], own)

        if name == "add" and len(self._topology.divided(checked)) > 1:
            stored = np.flatnonzero(self._are_stored(checked))
            if stored.size > 0:
                message = (
                    f"keys must not be in the store yet, but {checked[stored[0]]!r:.100} is; use upsert to replace it"
                )
                raise DuplicateKeyError(message)
        self._client.change(name, checked, arguments, (hasattr(X, "indptr"),), new)

    def delete(self, keys: Any = None, *, where: Any = None) -> int:
        """Delete memories, and return how many; see :meth:`cmt_numba.MemoryStore.delete`."""
        check_one_of(where, keys)
        if where is None:
            checked = check_keys(keys)
            if len(self._topology.divided(checked)) > 1:
                self._check_stored(checked)
        else:
            found = self._ask_filtered("keys_where", where, lambda own: (own,))
            checked = list(dict.fromkeys(key for part in found for key in part))
        if checked:
            self._client.change("delete", checked, lambda part: iter([(part, (pick(checked, part),))]))
        return len(checked)

    def update_payload(self, keys: Any, fields: Any) -> None:
        """Set fields of payloads; see :meth:`cmt_numba.MemoryStore.update_payload`."""
        checked = check_keys(keys)
        each = [fields] * len(checked) if isinstance(fields, dict) else fields
        check_payloads(each, len(checked))
        self._check_stored(checked)
        self._client.change(
            "update_payload", checked, lambda part: iter([(part, (pick(checked, part), [each[i] for i in part]))])
        )

    def create_index(self, field: Any) -> None:
        """Create an index on a field of payloads; see :meth:`cmt_numba.MemoryStore.create_index`."""
        field_path(field)
        self._client.change_all("create_index", field)

    def compact(self) -> None:
        """Reorder the memories of each shard; see :meth:`cmt_numba.MemoryStore.compact`."""
        self._client.change_all("compact")

    # Learning

    def feedback(self, X: Any, keys: Any, rewards: Any) -> None:
        """Learn from rewards of results or of right answers; see :meth:`cmt_numba.MemoryStore.feedback`.

        A shard learns from the rewards of its own memories and compares only these with each other. After
        ``exchange_every`` rewards, shards exchange the weights of their scorers.
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

        self._client.change("feedback", checked, arguments, (hasattr(X, "indptr"),))
        self._n_rewards += len(checked)
        is_due = self._exchange_every is not None and self._n_rewards >= self._exchange_every
        if is_due and self._client.exchange():
            self._n_rewards = 0

    def learn(self, X: Any, keys: Any, *, n_passes: int = 1) -> float:
        """Learn from queries with known answers; see :meth:`cmt_numba.MemoryStore.learn`."""
        X = self._check_vectors(X)
        checked, n_passes = check_keys(keys, distinct=False), check_passes("n_passes", n_passes, 1)
        check_one_for_each_row(checked, X.shape[0])
        self._check_stored(checked)
        return learn_in_blocks(self, X, checked, n_passes)

    # Shards

    def add_shard(self) -> str:
        """Start another shard, move its share of the memories to it, and return its name.

        The store can be used meanwhile, also by other processes. Queries find each memory once, and memories that are
        read or changed by key are moved first. If the process or a shard dies, the move is resumed when the store is
        opened again, or by :meth:`finish_move`. The new shard has the options of the others.

        Raises
        ------
        NoAnswerError
            If a shard does not answer in time. The move is then incomplete.
        ClusterError
            If a shard or the cluster is gone.
        OSError
            If the folder cannot be written.
        RuntimeError
            If this process did not open the store.
        """
        return resizing.add_shard(self._own_cluster())

    def remove_shard(self, name: str | None = None) -> str:
        """Move the memories of a shard, by default the last, to the others, end it, and return its name.

        The store can be used meanwhile, as with :meth:`add_shard`, which lists further errors.

        Raises
        ------
        ValueError
            If there is no such shard, or no other.
        """
        return resizing.remove_shard(self._own_cluster(), name)

    def finish_move(self) -> None:
        """Resume the move of memories after a failure of :meth:`add_shard` or :meth:`remove_shard`.

        Raises
        ------
        MoveError
            If a shard does not accept memories. :meth:`undo_move` undoes the move.
        """
        resizing.finish_move(self._own_cluster())

    def undo_move(self) -> None:
        """Undo the move of memories after a failure of :meth:`add_shard` or :meth:`remove_shard`.

        Memories that have moved go back. A shard being added is ended, and one being removed stays.
        """
        resizing.undo_move(self._own_cluster())

    def _own_cluster(self) -> resizing.Cluster:
        self._client.check_open()
        if self._cluster is None:
            raise RuntimeError("only the process that opened the store can add and remove its shards")
        return self._cluster

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait for it. With ``sync_every=1`` each change has done so."""
        self._client.ask_all("sync")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to a folder with a file for each shard, for :meth:`load`.

        Concurrent changes may be in the files of some shards and not of others.

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
        folder, client = Path(path).absolute(), self._client
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty; save to a new folder")
        topology = client.survey().topology
        if topology.is_moving:
            raise RuntimeError("memories are moving between shards; save the store afterwards")
        n_made = 1 + max(map(number_of, topology.names))
        shards = ShardList(topology, len(topology.after), n_made, complete=False)
        write_list(folder, shards)
        client.complete(client.actors.ask("save", {name: (str(folder / f"{name}.cmt"),) for name in topology.names}))
        if client.survey().topology.move != topology.move:
            raise RuntimeError("shards were added or removed; save the store again, to another folder")
        write_list(folder, shards._replace(complete=True))

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
        """Load a store into memory from a folder that :meth:`save` has written.

        The options are those of the constructor, and errors those of :meth:`cmt_numba.MemoryStore.load`.
        """
        _check_limits(n_replicas, exchange_every, timeout, max_pending)
        folder = Path(path).absolute()
        shards = read_list(folder)
        if shards is None or not shards.complete:
            raise FileFormatError(folder, "holds no sharded store that was saved completely")
        options = {"target_recall": check_real("target_recall", target_recall, 0.0, 1.0, above=True)}
        store, name_of_cluster = cls.__new__(cls), uuid4().hex

        def plan(name: str, _: bool) -> ShardPlan:
            return ShardPlan(name, name_of_cluster, None, False, str(folder / f"{name}.cmt"), options, n_replicas)

        exchanges = exchange_every is not None
        store._cluster = cluster = resizing.Cluster(shards, None, plan, actor_options or {}, exchanges=exchanges)
        store._begin(cluster.start(address, timeout, max_pending), None, exchange_every)
        return store

    def close(self) -> None:
        """Write all changes to disk, close the shards and end their processes.

        A copy in another process only stops using them.
        """
        if self._client.is_closed:
            return
        actors = self._client.actors
        try:
            if self._cluster is not None:
                with suppress(NoAnswerError, ClusterError):  # the changes of dead shards are on disk
                    actors.ask("close", dict.fromkeys(self._topology.names, ()))
        finally:
            self._client.is_closed = True
            if self._cluster is not None:
                actors.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = "in memory" if self._folder is None else f"in {self._folder}"
        return f"ShardedStore({place}, metric={self.metric!r}) of {len(self.shards)} shards"


def _filters_of_shards(topology: Topology, where: Any, keys: list[Key]) -> dict[str, Any]:
    """Return the filter for each shard that may hold candidates; ``keys`` are those that ``where`` lists."""
    if not keys:
        return dict.fromkeys(topology.names, where)
    parts = {name: pick(keys, part) for name, part in topology.divided(keys).items()}
    if not isinstance(where, PreparedFilter):
        return parts
    return {name: PreparedFilter(None, own, where.name) for name, own in parts.items()}


def _check_limits(n_replicas: int, exchange_every: int | None, timeout: float, max_pending: int) -> None:
    check_integer("n_replicas", n_replicas, 0, 100)
    if exchange_every is not None:
        check_integer("exchange_every", exchange_every, 1)
    check_real("timeout", timeout, 0.0, 1e6, above=True)
    check_integer("max_pending", max_pending, 1)


def _check_eviction(options: dict[str, Any]) -> None:
    """Raise ValueError if replicas with these options would evict other memories than their shards."""
    if options.get("max_items") is not None and options.get("eviction") != "oldest":
        raise ValueError(
            "n_replicas with max_items needs eviction='oldest': replicas do not record which memories were returned"
        )


def _check_options(options: dict[str, Any], metric: str | None) -> None:
    """Raise TypeError or ValueError if these are not valid options of the store of a shard."""
    for name in ("path", "read_only"):
        if name in options:
            raise TypeError(f"{name} cannot be set for a sharded store")
    MemoryStore(metric=metric, **options)


def _options_of_shard(options: dict[str, Any], number: int, n_shards: int) -> dict[str, Any]:
    """Return the options of the store of one shard, with its own seed and its part of ``max_items``."""
    own = {"n_threads": 1} | options
    if own.get("max_items") is not None:
        own["max_items"] = max(1, own["max_items"] // n_shards)
    seed = own.get("random_state")
    if isinstance(seed, np.random.SeedSequence):
        own["random_state"] = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
    elif seed is not None:
        own["random_state"] = np.random.SeedSequence([seed, number])
    return own


def _new_names(n_shards: int | None) -> tuple[str, ...]:
    """Return the names of the shards of a new store."""
    if n_shards is None:
        raise ValueError("n_shards must be given for a new store")
    return tuple(map(shard_name, range(check_integer("n_shards", n_shards, 1, 10_000))))
