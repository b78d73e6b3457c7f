"""``ShardedStore``, which divides its memories among Ray actors."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import scipy.sparse

from .. import _validation as checks
from .. import store as stores
from .._change import Closeable
from .._display import warn
from .._encoder import load_encoder
from ..persistence import FileFormatError
from . import _resizing as resizing
from ._calls import ShardPlan
from ._client import BLOCKS_AHEAD, Client, Question, SentQuestion, blocks_of_rows
from ._cluster import running
from ._errors import ClusterError, NoAnswerError
from ._folder import ShardList, number_of, read_list, shard_name, write_list
from ._results import (
    ShardedResults,
    join_items,
    mean_summary,
    merge_explained,
    merge_listed,
    merge_results,
    pick_items,
    stack_results,
)
from ._topology import Schema, Topology, pick

_BYTES_TO_SHARE = 1 << 16  # minimum size of vector blocks that are passed through Ray's object store


class ShardedStore(Closeable):
    """A :class:`~cmt_numba.MemoryStore` on several machines, with its memories divided among Ray actors.

    Rendezvous hashing assigns keys to shards. All shards answer a query, each with its own filter, and the best results
    are merged. A change is one transaction in each shard. All arguments are checked before anything changes. If a shard
    fails later, other shards may have made their part of the change, and :class:`PartialChangeError` lists the keys.

    With a ``path``, Ray restarts a shard that dies, possibly on another machine with access to the folder. Interrupted
    calls are repeated, and a repeated change has no effect. Without a ``path``, a shard that dies loses its memories,
    and calls raise :class:`ClusterError`, except for queries that replicas can answer.

    Opening a folder issues a ``RuntimeWarning`` if a move of memories cannot be finished (see :meth:`undo_move`), or if
    shards contain incompatible memories, for example in a copied folder.

    Several threads can share a store, and so can Ray tasks and actors that receive it as an argument. The shards stop
    when :meth:`close` is called or the process that opened the store exits.

    Methods raise the same errors as the methods of :class:`~cmt_numba.MemoryStore`, before anything changes. They also
    raise :class:`NoAnswerError` if shards do not answer in time, and :class:`ClusterError` if a shard has died with its
    memories or the cluster has shut down.

    Parameters
    ----------
    n_shards : int, optional
        The number of shards of a new store. Call :meth:`add_shard` and :meth:`remove_shard` to change it later.
    path : path-like, optional
        The folder of the store, which contains a folder for each shard. A missing folder is created. Every machine that
        may run a shard must find it under this path. By default, the store is in memory.
    metric : {"cosine", "inner_product", "euclidean"}, optional
        The similarity of vectors; see :class:`~cmt_numba.MemoryStore`.
    n_replicas : int, default 0
        The number of copies of each shard, in memory and in separate processes. Replicas answer queries, even while
        their shard is restarted.
    address : str, optional
        The address of a cluster, passed to :func:`start` unless this process is already connected to Ray.
    timeout : float, default 60.0
        The time limit for answers, in seconds. The first call of each kind has a longer limit, because it may compile
        kernels.
    max_pending : int, default 8
        The maximum number of pending calls from a client to a shard. More calls wait.
    actor_options : dict, optional
        Ray options for the actors, such as ``{"num_cpus": 2}``.
    encoder : object, optional
        Computes the vectors of texts in the calling process; see :class:`~cmt_numba.MemoryStore`.
    **options
        Options of the :class:`~cmt_numba.MemoryStore` of each shard. ``n_threads`` is 1 by default, and ``max_items``
        is divided by the number of shards.

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
        address: str | None = None,
        timeout: float = 60.0,
        max_pending: int = 8,
        actor_options: dict[str, Any] | None = None,
        encoder: Any = None,
        **options: Any,
    ) -> None:
        metric = None if metric is None else stores.check_metric(metric)
        encoder = load_encoder(encoder)
        _check_options(options, metric)
        _check_limits(n_replicas, timeout, max_pending)
        if n_replicas > 0:
            _check_eviction(options)
        folder = None if path is None else Path(path).absolute()
        shards = None if folder is None else read_list(folder)
        if shards is None:
            if n_shards is None:
                raise ValueError("n_shards must be given for a new store")
            names = tuple(map(shard_name, range(checks.check_integer("n_shards", n_shards, 1, 10_000))))
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

        self._cluster = cluster = resizing.Cluster(shards, folder, plan, actor_options or {})
        self._begin(cluster.start(address, timeout, max_pending), folder, encoder)
        try:
            if n_replicas > 0:
                _check_eviction(self._client.call_one(self.shards[0], "options")[0])
        except BaseException:
            self._client.actors.stop()
            raise
        try:
            self.finish_move()
        except Exception as error:  # open the folder anyway, so that the user can undo the move
            warn(f"{self}: {error}", RuntimeWarning)

    def _begin(self, client: Client, folder: Path | None, encoder: Any) -> None:
        self._client, self._folder, self._encoder = client, folder, encoder

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_cluster": None}

    @property
    def _topology(self) -> Topology:
        return self._client.topology

    # Queries

    def query(
        self,
        X: Any = None,
        k: int = 10,
        where: Any = None,
        target_recall: float | None = None,
        texts: Any = None,
        min_score: float | None = None,
        fuzzy: bool = False,
    ) -> ShardedResults:
        """Return the best memories for each row; see :meth:`cmt_numba.MemoryStore.query`.

        If ``where`` is a function, it is sent to the shards, so ``pickle`` or Ray must be able to pickle it. The
        attribute ``missing_shards`` of the results names the shards that did not answer in time.
        """
        X, words = self._check_queries(X, texts, fuzzy=fuzzy)
        k = checks.check_wanted("k", k, len(self) if isinstance(k, int | np.integer) and k > checks.MOST_WANTED else 0)
        if target_recall is not None:
            checks.check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        if min_score is not None:
            min_score = checks.check_real("min_score", min_score, -np.inf, np.inf)
        keys = self._filtering_keys(where)
        statistics = None if words is None else self._statistics(words)
        kind = scipy.sparse.issparse(X), where is None, X is None, words is None
        under_way: deque[SentQuestion] = deque()
        blocks: list[ShardedResults] = []
        for rows in blocks_of_rows(X, len(words) if X is None else X.shape[0]):  # type: ignore[arg-type]
            block = None if X is None else self._shared(X[rows]), None if words is None else words[rows]

            def calls(topology: Topology, block: tuple[Any, Any] = block) -> dict[str, tuple[Any, ...]]:
                filters = _filters_of_shards(topology, where, keys)
                options = target_recall, statistics, min_score
                return {name: (*block, k, own, *options) for name, own in filters.items()}

            under_way.append(self._client.send(Question("query", calls, keys, kind)))
            if len(under_way) > BLOCKS_AHEAD:
                blocks.append(self._merge(under_way.popleft(), k))
        blocks += [self._merge(asked, k) for asked in under_way]
        return stack_results(blocks)

    def _check_queries(self, X: Any, texts: Any, *, fuzzy: bool = False) -> tuple[Any, list[Counter[int]] | None]:
        """Return the vectors and the words of queries, None if they have none."""
        find_near = partial(self._ask_all, "near_words") if fuzzy else None
        X, words = stores.read_queries(X, texts, self._encoder, find_near=find_near)
        X = None if X is None else self._check_vectors(X)
        if X is not None and words is not None:
            checks.check_entries("texts", len(words), X.shape[0])
        return X, words

    def _statistics(self, words: list[Counter[int]]) -> stores.WordStatistics:
        """Return the statistics of the texts in all shards, for the words of queries."""
        distinct = list(set[int]().union(*words))
        nothing = stores.WordStatistics(0, 0.0, dict.fromkeys(distinct, 0))
        return reduce(or_, self._ask_all("statistics", distinct), nothing)

    def _ask_all(self, name: str, words: list[Any]) -> list[Any]:
        """Return what each shard answers about words."""
        question = Question(name, lambda topology: dict.fromkeys(topology.names, (words,)))
        _, answers = self._client.gather(self._client.send(question))
        return [reply.value for reply in answers.all_values().values()]

    def recall(self, X: Any, k: int = 10, target_recall: float | None = None) -> float:
        """Measure the recall of queries, averaged over the shards; see :meth:`cmt_numba.MemoryStore.recall`."""
        X, k = self._check_vectors(X), checks.check_wanted("k", k, len(self))
        if target_recall is not None:
            checks.check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        return float(np.mean(self._ask_filtered("recall", None, lambda _: (X, k, target_recall))))

    def count(self, where: Any = None) -> int:
        """Return the number of memories, or of those that a filter selects."""
        return len(self) if where is None else len(self._keys_where(where))

    def _keys_where(self, where: Any) -> list[stores.Key]:
        found = self._ask_filtered("keys_where", where, lambda own: (own,))
        return list(dict.fromkeys(key for part in found for key in part))

    def filter(self, where: Any = None, *, keys: Any = None) -> stores.PreparedFilter:
        """Return a prepared filter to pass as ``where`` to many queries; see :meth:`cmt_numba.MemoryStore.filter`.

        Each shard looks up the keys once, and again only after its memories have changed.
        """
        prepared = stores.check_filter(where, keys)
        if prepared.keys:
            self._check_stored(prepared.keys)
        return prepared

    def _ask_filtered(self, name: str, where: Any, arguments: Callable[[Any], tuple[Any, ...]]) -> list[Any]:
        """Send a read-only call with a filter to the shards, and return their answers."""
        keys = self._filtering_keys(where)

        def calls(topology: Topology) -> dict[str, tuple[Any, ...]]:
            return {shard: arguments(own) for shard, own in _filters_of_shards(topology, where, keys).items()}

        return list(self._client.ask(Question(name, calls, keys)).values())

    def _shared(self, X: Any) -> Any:
        """Return vectors to send, or a reference to Ray's object store if they are large."""
        n_bytes = X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
        return running().put(X) if n_bytes > _BYTES_TO_SHARE else X

    def _filtering_keys(self, where: Any) -> list[stores.Key]:
        """Return the keys that a filter lists, or an empty list if it lists none."""
        if where is None or callable(where):
            return []
        if isinstance(where, stores.PreparedFilter):
            return where.keys
        if isinstance(where, dict):
            stores.condition_of(where)
            return []
        keys = stores.check_keys(where, distinct=False)
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

    def get(
        self, keys: Any = None, *, where: Any = None, order_by: Any = None, limit: int | None = None, offset: int = 0
    ) -> stores.Items:
        """Return memories by keys, or list those that a filter selects; see :meth:`cmt_numba.MemoryStore.get`.

        "$added" is the order of insertion within a shard; memories of several shards alternate.
        """
        _, descending, limit, offset = stores.check_listing(keys, where, order_by, limit, offset)
        if keys is not None:
            checked = stores.check_keys(keys, distinct=False)
            parts = self._client.ask_owners("get", checked)
            order = np.argsort(np.concatenate([part for part, _ in parts]), kind="stable")
            return pick_items(join_items([items for _, items in parts]), order.tolist())
        most = None if limit is None else offset + limit
        listed = self._ask_filtered("listed", where, lambda own: (own, order_by, most))
        return merge_listed(listed, descending, limit, offset)

    def pages(self, where: Any = None, *, size: int = 1000) -> Iterator[stores.Items]:
        """Iterate over memories in pages of at most ``size``, shard by shard; see :meth:`cmt_numba.MemoryStore.pages`.

        Raises
        ------
        RuntimeError
            If shards are added or removed during the iteration.
        """
        for items, rows in self._walk("page_after", where, checks.check_integer("size", size, 1)):
            if rows:
                yield items if len(rows) == len(items.keys) else pick_items(items, rows)

    def __getitem__(self, key: stores.Key) -> stores.Item:
        if not isinstance(key, str | int | np.integer):
            raise TypeError(f"store[key] takes a single key, got {key!r:.50}; use get for several keys")
        return self.get(key).first()

    def __len__(self) -> int:
        return self._client.survey().n_memories

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = stores.check_keys(key)
        except ValueError:
            return False
        return bool(self._are_stored(checked)[0])

    def __iter__(self) -> Iterator[stores.Key]:
        return (keys[row] for keys, rows in self._walk("keys_after") for row in rows)

    def _walk(self, name: str, where: Any = None, *options: Any) -> Iterator[tuple[Any, list[int]]]:
        """Yield lists of keys, or pages of memories, of all shards, and the rows of those that are not repeated."""
        filtering = self._filtering_keys(where)
        topology, seen = self._client.settled([]), set[stores.Key]()
        own = _filters_of_shards(topology, where, filtering)
        for shard in topology.names:  # starts with the shards that memories leave
            after = None
            while shard in own:
                calls = {shard: (after, own[shard], *options)}
                found = self._client.ask(Question(name, lambda _, calls=calls: calls))  # type: ignore[misc]
                if self._topology.move != topology.move:
                    raise RuntimeError("the shards of the store changed during iteration; start again")
                part, after = found[shard]
                keys = part.keys if isinstance(part, stores.Items) else part
                if not keys:
                    break
                moving = {keys[i] for places in topology.leaving(keys).values() for i in places.tolist()}
                yield part, [row for row, key in enumerate(keys) if key not in seen]
                seen |= moving

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return self._topology.after

    @property
    def path(self) -> str | None:
        """The folder, or None for a store in memory."""
        return None if self._folder is None else str(self._folder)

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self._topology.schema.metric or "cosine"

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, or None before the first vector."""
        widths = [facts.schema.n_features for facts in self._client.survey().facts.values()]
        return next((width for width in widths if width is not None), None)

    @property
    def max_items(self) -> int | None:
        """The maximum number of memories in all shards, or None if it is unlimited."""
        most = self._client.ask_all("max_items")
        return None if None in most else sum(most)

    def check_invariants(self) -> None:
        """Check every shard; see :meth:`cmt_numba.MemoryStore.check_invariants`."""
        self._client.ask_all("check_invariants")

    # Validation

    def _check_vectors(self, X: Any) -> Any:
        self._client.check_open()
        X = checks.check_matrix(checks.as_rows(X))
        if self._topology.schema.n_features not in (None, X.shape[1]):
            self._client.survey()  # the topology of this client may be outdated
        X = checks.check_matrix(X, n_features=self._topology.schema.n_features)
        stores.check_values(X, self.metric)
        return X

    def _are_stored(self, keys: list[stores.Key]) -> np.ndarray:
        stored = np.zeros(len(keys), np.bool_)
        for part, found in self._client.ask_owners("are_stored", keys):
            stored[part] = found
        return stored

    def _check_stored(self, keys: list[stores.Key]) -> None:
        stores.check_stored(keys, np.where(self._are_stored(keys), 0, -1))

    # Changes

    def add(self, keys: Any, X: Any = None, payloads: Any = None, texts: Any = None, *, expires: Any = None) -> None:
        """Add new memories; see :meth:`cmt_numba.MemoryStore.add`."""
        self._write("add", keys, X, payloads, texts, expires)

    def upsert(self, keys: Any, X: Any = None, payloads: Any = None, texts: Any = None, *, expires: Any = None) -> None:
        """Add or replace memories; see :meth:`cmt_numba.MemoryStore.upsert`."""
        self._write("upsert", keys, X, payloads, texts, expires)

    def _write(self, name: str, keys: Any, X: Any, payloads: Any, texts: Any, expires: Any) -> None:
        self._client.check_open()
        checked = stores.check_keys(keys)
        given, _ = stores.check_new_texts(len(checked), X, texts)
        stores.refuse_texts(X)
        if self._encoder is not None and X is None:
            X = stores.encode_stored(self._encoder, "encode_document", given)
        if X is not None:
            X = checks.check_matrix(checks.as_rows(X))
            stores.check_values(X, self.metric)
            checks.check_entries("keys", len(checked), X.shape[0])
        if isinstance(payloads, dict) and len(checked) == 1:
            payloads = [payloads]
        payloads = payloads if payloads is None or isinstance(payloads, str | bytes | dict) else list(payloads)
        stores.check_payloads(payloads, len(checked))
        times = None if expires is None else stores.as_times(stores.check_expiries(expires, len(checked)))
        new = Schema.of(checked, X)
        self._client.agree(new)

        def arguments(part: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
            for rows in blocks_of_rows(None if X is None else X[part], part.size):
                block = part[rows]
                columns: tuple[Any, ...] = payloads, None if texts is None else given, times
                own = (None if column is None else [column[i] for i in block] for column in columns)
                yield block, (pick(checked, block), None if X is None else X[block], *own)

        if name == "add" and len(self._topology.divided(checked)) > 1:
            stored = np.flatnonzero(self._are_stored(checked))
            if stored.size > 0:
                message = (
                    f"keys must not be in the store yet, but {checked[stored[0]]!r:.100} is; use upsert to replace it"
                )
                raise stores.DuplicateKeyError(message)
        self._client.change(name, checked, arguments, (hasattr(X, "indptr"), X is None, texts is None), new)

    def delete(self, keys: Any = None, *, where: Any = None) -> int:
        """Delete memories and return their number; see :meth:`cmt_numba.MemoryStore.delete`."""
        stores.check_one_of(where, keys)
        if where is None:
            checked = stores.check_keys(keys)
            if len(self._topology.divided(checked)) > 1:
                self._check_stored(checked)
        else:
            checked = self._keys_where(where)
        if checked:
            self._client.change("delete", checked, lambda part: iter([(part, (pick(checked, part),))]))
        return len(checked)

    def update_payload(self, keys: Any, fields: Any) -> None:
        """Set fields of payloads; see :meth:`cmt_numba.MemoryStore.update_payload`."""
        checked = stores.check_keys(keys)
        each = stores.check_fields(fields, len(checked))
        self._client.ask_owners("check_updatable", checked)
        self._client.change(
            "update_payload", checked, lambda part: iter([(part, (pick(checked, part), [each[i] for i in part]))])
        )

    def create_index(self, field: Any) -> None:
        """Create an index on a payload field; see :meth:`cmt_numba.MemoryStore.create_index`."""
        stores.field_path(field)
        self._client.change_all("create_index", field)

    # Learning

    def feedback(self, X: Any, keys: Any, rewards: Any, *, texts: Any = None) -> None:
        """Learn from the rewards of results; see :meth:`cmt_numba.MemoryStore.feedback`.

        Every shard learns from all rewards, also of the memories of other shards. A shard that is added later has not
        learned from earlier rewards. How much words count compared with vectors is not learned.
        """
        X, words = self._check_queries(X, texts)
        given = stores.check_answers(keys, len(words) if X is None else X.shape[0])  # type: ignore[arg-type]
        there = ~stores.are_none(given)
        rewards = checks.check_rewards(rewards, np.where(there, 0, -1), may_be_unknown=True)
        if not there.any():
            return
        checked = list(dict.fromkeys(stores.check_keys(given[there].tolist(), distinct=False)))
        parts = [part for _, part in self._client.ask_owners("rewarded", checked, X is None) if part[0]]
        able, described = [key for own, _ in parts for key in own], [of_keys for _, of_keys in parts]
        can_learn = set(able)
        given[[[key not in can_learn for key in row] for row in given]] = None
        if able:
            known = able, _joined(described)
            rewards = rewards if rewards.shape == given.shape else rewards[:, 0]
            words, statistics = (words, self._statistics(words)) if X is None else (None, None)  # type: ignore[arg-type]
            self._client.change_all("feedback", X, words, given, rewards, known, statistics)

    def learned(self) -> stores.LearnedSummary | None:
        """Return what the shards have learned from rewards; see :meth:`cmt_numba.MemoryStore.learned`.

        All shards learn from the same rewards, so the figures are means over the shards that have learned.
        """
        found = self._ask_filtered("learned", None, lambda _: ())
        return mean_summary([summary for summary in found if summary is not None])

    def explain(self, X: Any, k: int = 10) -> list[stores.ExplainedResult]:
        """Explain the results of one query by the parts of their scores; see :meth:`cmt_numba.MemoryStore.explain`.

        Each shard explains its own results. The query has a vector, but no text.
        """
        X = self._check_vectors(X)
        if X.shape[0] != 1:
            raise ValueError(f"explain takes a single query, got {X.shape[0]}")
        k = checks.check_wanted("k", k, len(self))
        return merge_explained(self._ask_filtered("explain", None, lambda _: (X, k)), k)

    # Shards

    def add_shard(self) -> str:
        """Start a new shard, move its share of the memories to it, and return its name.

        The store can be used during the move, even by other processes. Queries find each memory exactly once, and
        memories that are read or changed by key are moved first. If the process or a shard dies, reopening the store or
        calling :meth:`finish_move` resumes the move. The new shard has the same options as the existing shards.

        Raises
        ------
        NoAnswerError
            If a shard does not answer in time. The move is then unfinished.
        RuntimeError
            If this process did not open the store.
        """
        return resizing.add_shard(self._own_cluster())

    def remove_shard(self, name: str | None = None) -> str:
        """Move the memories of a shard to the other shards, stop the shard, and return its name.

        By default, the last shard is removed. The store can be used during the move. See :meth:`add_shard` for errors.
        """
        return resizing.remove_shard(self._own_cluster(), name)

    def finish_move(self) -> None:
        """Resume the move of memories after :meth:`add_shard` or :meth:`remove_shard` has failed.

        Raises
        ------
        MoveError
            If a shard rejects memories. Call :meth:`undo_move` to undo the move.
        """
        resizing.finish_move(self._own_cluster())

    def undo_move(self) -> None:
        """Undo the move of memories after :meth:`add_shard` or :meth:`remove_shard` has failed.

        Moved memories return to their previous shards. A shard that was being added is stopped, and a shard that was
        being removed stays.
        """
        resizing.undo_move(self._own_cluster())

    def _own_cluster(self) -> resizing.Cluster:
        self._client.check_open()
        if self._cluster is None:
            raise RuntimeError("only the process that opened the store can add and remove its shards")
        return self._cluster

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait until they are stored. With ``sync_every=1``, every change does this."""
        self._client.ask_all("sync")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the store to a folder with a file for each shard, from which :meth:`load` loads it.

        All shards must find the folder, which must be empty or missing, under this path. A concurrent change may be
        included for some shards and missing for others.

        Raises
        ------
        FileExistsError
            If the folder is not empty.
        RuntimeError
            If shards are added or removed during the call.
        """
        folder, client = Path(path).absolute(), self._client
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty; save to a new folder")
        topology = client.survey().topology
        if topology.is_moving:
            raise RuntimeError("memories are moving between shards; save the store after the move")
        n_made = 1 + max(map(number_of, topology.names))
        shards = ShardList(topology, len(topology.after), n_made, complete=False)
        write_list(folder, shards)
        client.complete(client.actors.ask("save", {name: (str(folder / f"{name}.cmt"),) for name in topology.names}))
        if client.survey().topology.move != topology.move:
            raise RuntimeError("shards were added or removed during save; save the store to another folder")
        write_list(folder, shards._replace(complete=True))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        target_recall: float = 0.95,
        n_replicas: int = 0,
        address: str | None = None,
        timeout: float = 60.0,
        max_pending: int = 8,
        actor_options: dict[str, Any] | None = None,
        encoder: Any = None,
    ) -> Self:
        """Load a store into memory from a folder that :meth:`save` has written.

        See the constructor for the parameters, and :meth:`cmt_numba.MemoryStore.load` for the errors.
        """
        _check_limits(n_replicas, timeout, max_pending)
        encoder = load_encoder(encoder)
        folder = Path(path).absolute()
        shards = read_list(folder)
        if shards is None or not shards.complete:
            raise FileFormatError(folder, "does not contain a completely saved sharded store")
        for name in shards.topology.names:
            if not (folder / f"{name}.cmt").is_file():
                reason = f"lacks the file {name}.cmt; pass the path to ShardedStore unless save wrote the folder"
                raise FileFormatError(folder, reason)
        options = {"target_recall": checks.check_real("target_recall", target_recall, 0.0, 1.0, above=True)}
        store, name_of_cluster = cls.__new__(cls), uuid4().hex

        def plan(name: str, is_added: bool) -> ShardPlan:
            file = None if is_added else str(folder / f"{name}.cmt")
            return ShardPlan(name, name_of_cluster, None, False, file, options, n_replicas)

        store._cluster = cluster = resizing.Cluster(shards, None, plan, actor_options or {})
        store._begin(cluster.start(address, timeout, max_pending), None, encoder)
        return store

    def close(self) -> None:
        """Write all changes to disk, close the shards and stop their processes.

        A copy in another process only disconnects.
        """
        if self._client.is_closed:
            return
        actors = self._client.actors
        try:
            if self._cluster is not None:
                with suppress(NoAnswerError, ClusterError):  # dead shards need no closing: their changes are on disk
                    actors.ask("close", dict.fromkeys(self._topology.names, ()))
        finally:
            self._client.is_closed = True
            if self._cluster is not None:
                actors.stop()

    def __repr__(self) -> str:
        place = "in memory" if self._folder is None else f"in {self._folder}"
        return f"ShardedStore({place}, metric={self.metric!r}) of {len(self.shards)} shards"


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], list):
        return [text for texts in parts for text in texts]
    return scipy.sparse.vstack(parts, "csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)


def _filters_of_shards(topology: Topology, where: Any, keys: list[stores.Key]) -> dict[str, Any]:
    """Return the filter for each shard that may contain candidates. ``keys`` are the keys that ``where`` lists."""
    if not keys:
        return dict.fromkeys(topology.names, where)
    parts = {name: pick(keys, part) for name, part in topology.divided(keys).items()}
    if not isinstance(where, stores.PreparedFilter):
        return parts
    return {name: stores.PreparedFilter(None, own, where.name) for name, own in parts.items()}


def _check_limits(n_replicas: int, timeout: float, max_pending: int) -> None:
    checks.check_integer("n_replicas", n_replicas, 0, 100)
    checks.check_real("timeout", timeout, 0.0, 1e6, above=True)
    checks.check_integer("max_pending", max_pending, 1)


def _check_eviction(options: dict[str, Any]) -> None:
    """Raise ValueError if, with these options, a replica could evict other memories than its shard."""
    if options.get("max_items") is not None and options.get("eviction") != "oldest":
        raise ValueError(
            "n_replicas with max_items requires eviction='oldest', because replicas do not record returned memories, "
            f"got eviction={options.get('eviction')!r}"
        )


def _check_options(options: dict[str, Any], metric: str | None) -> None:
    for name in ("path", "read_only"):
        if name in options:
            raise TypeError(f"{name} cannot be set for the stores of shards; omit it")
    stores.MemoryStore(metric=metric, **options)


def _options_of_shard(options: dict[str, Any], number: int, n_shards: int) -> dict[str, Any]:
    """Return the options of one shard's store, with the shard's own seed and share of ``max_items``."""
    own = {"n_threads": 1} | options
    if own.get("max_items") is not None:
        own["max_items"] = max(1, own["max_items"] // n_shards)
    seed = own.get("random_state")
    if isinstance(seed, np.random.SeedSequence):
        own["random_state"] = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
    elif seed is not None:
        own["random_state"] = np.random.SeedSequence([seed, number])
    return own
