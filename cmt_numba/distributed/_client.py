"""What clients of a sharded store do: they ask its shards, and merge what these answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse

from .._validation import MOST_WANTED, check_integer, check_matrix, check_real, check_wanted
from ..journal import JournalError
from ..store import Effort, Items
from ..store._checks import Key, check_keys, check_kind, check_stored
from ..store._metrics import check_lengths
from ..store._where import condition_of
from ._actors import Actors, Answers, Sent
from ._arguments import blocks_of_rows, by_owner, picked
from ._cluster import running
from ._errors import NoAnswerError, PartialChangeError
from ._hashing import Ring
from ._results import ShardedResults, merged, stacked

_BLOCKS_AHEAD = 2  # that are under way beside the one that is waited for
_BYTES_TO_SHARE = 1 << 16  # of vectors, from which they are put into Ray's object store once

Change = tuple[int, list[Key], tuple[Any, ...]]
"""A shard, the keys for which it is to make a change, and the arguments of the change."""


class Client:
    """The part of a :class:`ShardedStore` that asks shards. Copies in other processes ask the same shards."""

    def _connect(self, actors: Actors, path: Path | None) -> None:
        self._actors, self._folder = actors, path
        self._ring = Ring(actors.names)
        self._is_closed = False
        self._metric = "cosine"
        self._width: int | None = None
        self._kind: type | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"actors": self._actors, "folder": self._folder, "metric": self._metric, "owner": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._connect(state["actors"], state["folder"])
        self._metric = state["metric"]
        self._is_owner = False

    # Asking shards

    def _open_actors(self) -> Actors:
        if self._is_closed:
            raise JournalError("the store is closed; open it again")
        return self._actors

    def _ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Return the answers of all shards, in their order."""
        actors = self._open_actors()
        return self._complete(actors.ask(method, dict.fromkeys(range(len(actors.names)), arguments)))

    def _ask_owners(self, method: str, keys: list[Key]) -> list[tuple[np.ndarray, Any]]:
        """Ask the owners of keys; return the positions of the keys of each and its answer."""
        actors, parts = self._open_actors(), by_owner(self._ring.owners(keys))
        answers = self._complete(actors.ask(method, {shard: (picked(keys, part),) for shard, part in parts.items()}))
        return list(zip(parts.values(), answers, strict=True))

    def _complete(self, answers: Answers) -> list[Any]:
        """Return the values of all shards that were asked, in their order; raise what one has raised."""
        values = answers.all_values()
        if answers.missing:
            raise NoAnswerError(self._actors.named(answers.missing), "ask again, or give the store a larger timeout")
        return [values[position] for position in sorted(values)]

    def _learn_facts(self) -> int:
        """Ask for the width of the vectors, the type of the keys and the metric; return the number of memories."""
        facts = self._ask_all("facts")
        self._metric = facts[0].metric
        self._width = next((fact.n_features for fact in facts if fact.n_features is not None), None)
        self._kind = next((fact.kind for fact in facts if fact.kind is not None), None)
        return sum(fact.n_memories for fact in facts)

    # Checks of arguments

    def _check_vectors(self, X: Any) -> Any:
        """Return vectors or queries as float32."""
        self._open_actors()
        if self._width is None:
            self._learn_facts()
        X = check_matrix(X, n_features=self._width)
        check_lengths(X, self._metric)
        return X

    def _check_kind(self, keys: list[Key]) -> None:
        """Raise TypeError unless keys are of the type of those in the store."""
        if type(keys[0]) is not self._kind:  # unknown, or all keys of the other type may have been deleted
            self._learn_facts()
            check_kind(keys, self._kind)

    def _are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        stored = np.zeros(len(keys), np.bool_)
        for part, found in self._ask_owners("are_stored", keys):
            stored[part] = found
        return stored

    def _check_stored(self, keys: list[Key]) -> None:
        check_stored(keys, np.where(self._are_stored(keys), 0, -1))

    # Changes

    def _change(self, name: str, changes: list[Change], kind: tuple[Any, ...] = ()) -> None:
        """Have shards make changes, those of each shard one after the other.

        Raises
        ------
        NoAnswerError
            If none was made as far as is known, because no shard answered in time.
        PartialChangeError
            If some were made and others not.
        Exception
            What a shard has raised, if nothing was changed.
        """
        actors, rounds = self._open_actors(), _in_rounds(changes)
        made: list[Key] = []
        not_made: list[Key] = []
        unknown: list[Key] = []
        reasons: dict[str, Exception] = {}

        def gather(together: list[Change], sent: Sent) -> None:
            answers = actors.gather(sent)
            for shard, keys, _ in together:
                found = made if shard in answers.values else not_made if shard in answers.errors else unknown
                found += keys
            reasons.update({actors.names[shard]: error for shard, error in answers.errors.items()})
            for shard_name in actors.named(answers.missing):
                reasons[shard_name] = NoAnswerError([shard_name], "it may still make the change")

        under_way: deque[tuple[list[Change], Sent]] = deque()
        for number, together in enumerate(rounds):
            calls = {shard: (uuid4().hex, name, *arguments) for shard, _, arguments in together}
            under_way.append((together, actors.send("change", calls, (name, *kind))))
            if len(under_way) > _BLOCKS_AHEAD:
                gather(*under_way.popleft())
            if reasons:
                not_made += [key for later in rounds[number + 1 :] for _, keys, _ in later for key in keys]
                break
        while under_way:
            gather(*under_way.popleft())
        if not reasons:
            return
        if not made and not unknown:
            raise next(iter(reasons.values()))
        if not made and not not_made:
            raise NoAnswerError(list(reasons), "the change may still be made; upsert and delete may be asked for again")
        raise PartialChangeError(made, not_made, unknown, reasons)

    def _change_all(self, name: str, *arguments: Any) -> None:
        self._change(name, [(shard, [], arguments) for shard in range(len(self._actors.names))])

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
        filters = self._filters(where)
        kind = scipy.sparse.issparse(X), where is None, n_probes is None
        under_way: deque[Sent] = deque()
        blocks: list[ShardedResults] = []
        for rows in blocks_of_rows(X):
            block = self._shared(X[rows])
            calls = {shard: (block, k, own, target_recall, n_probes) for shard, own in filters.items()}
            under_way.append(self._actors.send("query", calls, kind))
            if len(under_way) > _BLOCKS_AHEAD:
                blocks.append(self._merge(under_way.popleft(), k))
        blocks += [self._merge(sent, k) for sent in under_way]
        return stacked(blocks)

    def _shared(self, X: Any) -> Any:
        """Return vectors as they are sent: larger ones are put into the object store once, for all shards."""
        n_bytes = X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
        return running().put(X) if n_bytes > _BYTES_TO_SHARE else X

    def _filters(self, where: Any) -> dict[int, Any]:
        """Return the filter of each shard that is to be asked."""
        every = range(len(self._actors.names))
        if where is None or callable(where):
            return dict.fromkeys(every, where)
        if isinstance(where, dict):
            condition_of(where)
            return dict.fromkeys(every, where)
        keys = check_keys(where, distinct=False)
        self._check_stored(keys)
        return {shard: picked(keys, part) for shard, part in by_owner(self._ring.owners(keys)).items()}

    def _merge(self, sent: Sent, k: int) -> ShardedResults:
        answers = self._actors.gather(sent)
        values, missing = answers.all_values(), self._actors.named(answers.missing)
        if not values:
            raise NoAnswerError(missing, "ask again, or give the store a larger timeout")
        results = merged([values[shard] for shard in sorted(values)], k)
        results.missing_shards = missing
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
        return self._learn_facts()

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = check_keys(key)
        except ValueError:
            return False
        return bool(self._are_stored(checked)[0])

    def __iter__(self) -> Iterator[Key]:
        for shard in range(len(self._actors.names)):
            last, keys = -1, [None]
            while keys:
                keys, last = self._complete(self._open_actors().ask("keys_after", {shard: (last,)}))[0]
                yield from keys

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return self._actors.names

    @property
    def path(self) -> str | None:
        """The folder; None for a store in memory."""
        return None if self._folder is None else str(self._folder)

    @property
    def metric(self) -> str:
        """The metric."""
        return self._metric

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, set by the first; None before."""
        if self._width is None:
            self._learn_facts()
        return self._width

    @property
    def recall(self) -> tuple[tuple[Effort, ...], ...]:
        """For each shard, the recall that was measured for each kind of query so far."""
        return tuple(self._ask_all("recall"))


def _in_rounds(changes: list[Change]) -> list[list[Change]]:
    """Return changes in rounds, in each of which a shard makes one at most."""
    rounds: list[list[Change]] = []
    n_of: dict[int, int] = {}
    for change in changes:
        number = n_of.get(change[0], 0)
        n_of[change[0]] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(change)
    return rounds
