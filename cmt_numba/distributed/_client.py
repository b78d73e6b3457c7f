"""What clients of a sharded store do: they ask its shards, and merge what these answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._validation import MOST_WANTED, check_integer, check_matrix, check_real, check_wanted
from ..store import Effort, Items
from ..store._checks import Key, check_keys, check_stored
from ..store._metrics import check_lengths
from ..store._where import condition_of
from ._arguments import blocks_of_rows, picked
from ._asking import BLOCKS_AHEAD, Asked, Asking, Question
from ._cluster import running
from ._errors import NoAnswerError
from ._results import ShardedResults, merged, stacked
from ._topology import Topology

_BYTES_TO_SHARE = 1 << 16  # of vectors, from which they are put into Ray's object store once


class Client(Asking):
    """The part of a :class:`ShardedStore` that asks shards. Copies in other processes ask the same shards."""

    def __getstate__(self) -> dict[str, Any]:
        names = ("_actors", "_topology", "_folder", "_positions", "_exchange_every")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._connect(state["_actors"], state["_topology"], state["_folder"])
        self._positions = dict(state["_positions"])
        self._exchange_every = state["_exchange_every"]
        self._is_owner = False

    # Checks of arguments

    def _check_vectors(self, X: Any) -> Any:
        """Return vectors or queries as float32."""
        self._open_actors()
        X = check_matrix(X)
        if self._topology.schema.n_features not in (None, X.shape[1]):
            self._survey()  # the topology that this client knows may be an old one
        X = check_matrix(X, n_features=self._topology.schema.n_features)
        check_lengths(X, self.metric)
        return X

    def _are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        stored = np.zeros(len(keys), np.bool_)
        for part, found in self._ask_owners("are_stored", keys):
            stored[part] = found
        return stored

    def _check_stored(self, keys: list[Key]) -> None:
        check_stored(keys, np.where(self._are_stored(keys), 0, -1))

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
        """Return the nearest memories for each row.

        Parameters
        ----------
        X, k, where, target_recall, n_probes
            As for :meth:`cmt_numba.MemoryStore.query`. ``n_probes`` is the number of leaves in each shard. A function
            in ``where`` is sent to the shards, and must be one that ``pickle`` or Ray can send.

        Returns
        -------
        ShardedResults
            Keys, scores and payloads, and the names of shards that did not answer in time.

        Raises
        ------
        KeyError
            If ``where`` lists a key that is not stored.
        TypeError, ValueError
            If an argument is not valid.
        NoAnswerError
            If no shard has answered in time.
        ClusterError
            If a shard has died with its memories, or the cluster is gone.
        """
        X = self._check_vectors(X)
        k = check_wanted("k", k, len(self) if isinstance(k, int | np.integer) and k > MOST_WANTED else 0)
        if target_recall is not None:
            check_real("target_recall", target_recall, 0.0, 1.0, above=True)
        if n_probes is not None:
            check_integer("n_probes", n_probes, 1)
        keys = self._filtering_keys(where)
        kind = scipy.sparse.issparse(X), where is None, n_probes is None
        under_way: deque[Asked] = deque()
        blocks: list[ShardedResults] = []
        for rows in blocks_of_rows(X):
            block = self._shared(X[rows])

            def calls(topology: Topology, block: Any = block) -> dict[str, tuple[Any, ...]]:
                filters = dict.fromkeys(topology.names, where)
                if keys:
                    filters = {name: picked(keys, part) for name, part in topology.divided(keys).items()}
                return {name: (block, k, own, target_recall, n_probes) for name, own in filters.items()}

            under_way.append(self._send(Question("query", calls, keys, kind)))
            if len(under_way) > BLOCKS_AHEAD:
                blocks.append(self._merge(under_way.popleft(), k))
        blocks += [self._merge(asked, k) for asked in under_way]
        return stacked(blocks)

    def _shared(self, X: Any) -> Any:
        """Return vectors as they are sent: larger ones are put into the object store once, for all shards."""
        n_bytes = X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
        return running().put(X) if n_bytes > _BYTES_TO_SHARE else X

    def _filtering_keys(self, where: Any) -> list[Key]:
        """Return the keys that a filter lists; none if it is of another form."""
        if where is None or callable(where):
            return []
        if isinstance(where, dict):
            condition_of(where)
            return []
        keys = check_keys(where, distinct=False)
        self._check_stored(keys)
        return keys

    def _merge(self, asked: Asked, k: int) -> ShardedResults:
        topology, answers = self._gather(asked)
        values, missing = answers.all_values(), answers.missing
        if not values:
            raise NoAnswerError(missing, "ask again, or give the store a larger timeout")
        newest_first = sorted(values, key=lambda name: (name not in topology.after, name in topology.before, name))
        results = merged([values[name].value for name in newest_first], k, are_distinct=not topology.is_moving)
        results.missing_shards = tuple(missing)
        return results

    # What it holds

    def get(self, keys: Any) -> Items:
        """Return the vectors and payloads of memories.

        Parameters
        ----------
        keys : str, int or list of them, length n
            Their keys; one key counts as a list of one.

        Returns
        -------
        Items
            Keys, vectors (n, n_features) and payloads.

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If these are no keys.
        NoAnswerError, ClusterError
            If a shard has not answered.
        """
        checked = check_keys(keys, distinct=False)
        parts = self._ask_owners("get", checked)
        order = np.argsort(np.concatenate([part for part, _ in parts]), kind="stable")
        stack = scipy.sparse.vstack if any(scipy.sparse.issparse(items.vectors) for _, items in parts) else np.vstack
        payloads = [payload for _, items in parts for payload in items.payloads]
        return Items(checked, stack([items.vectors for _, items in parts])[order], [payloads[i] for i in order])

    def __len__(self) -> int:
        return self._survey()[2]

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = check_keys(key)
        except ValueError:
            return False
        return bool(self._are_stored(checked)[0])

    def __iter__(self) -> Iterator[Key]:
        topology, seen = self._settled([]), set[Key]()
        for shard in topology.names:  # first those that memories leave
            last = -1
            while True:
                calls = {shard: (last,)}
                found = self._ask(Question("keys_after", lambda _, calls=calls: calls))  # type: ignore[misc]
                if self._topology != topology:
                    raise RuntimeError("the shards of the store have changed during iteration; begin again")
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
        """The width of the vectors, set by the first; None before."""
        _, facts, _ = self._survey()
        return next((fact.schema.n_features for fact in facts.values() if fact.schema.n_features is not None), None)

    @property
    def recall(self) -> tuple[tuple[Effort, ...], ...]:
        """For each shard, the recall that was measured for each kind of query so far."""
        return tuple(self._ask_all("recall"))
