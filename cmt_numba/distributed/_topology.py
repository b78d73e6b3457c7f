"""The topology of a store, which determines the shard that owns each key, and the schema of its memories."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from ..store import Key
from ._errors import ShardConflictError

_DESCRIPTIONS = {
    "metric": "has the metric {}",
    "n_features": "contains vectors of {} features",
    "key_type": "contains keys of type {}",
}
_KEY_TYPES = {"str": "strings", "int": "integers"}


def owners_of(names: Sequence[str], hashed: np.ndarray) -> np.ndarray:
    """Return the position in ``names`` of the shard that owns each key, given its hash: int64, shape (n,).

    The shard with the largest hash of its name and the key owns the key (rendezvous hashing: Thaler and Ravishankar,
    1998). When a shard is added, only the keys that it takes over change owners.
    """
    owners, largest = np.zeros(hashed.size, np.int64), np.zeros(hashed.size, np.uint64)
    for shard, of_name in enumerate(hash_keys(names)):
        of_both = _mixed(hashed ^ of_name)
        wins = of_both > largest
        owners[wins], largest[wins] = shard, of_both[wins]
    return owners


def hash_keys(keys: Sequence[Key]) -> np.ndarray:
    """Return the hash of each key: uint64, shape (n,). Hashes are the same in every process and library version."""
    if keys and isinstance(keys[0], int):
        return _mixed(np.array(keys, np.int64).view(np.uint64))
    digests = b"".join(blake2b(key.encode(), digest_size=8).digest() for key in keys)  # type: ignore[union-attr]
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return SplitMix64 hashes of numbers (Steele, Lea and Flood, 2014)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Schema(NamedTuple):
    """The metric of a store, the width and sparsity of its vectors, and its key type. Undecided fields are None."""

    metric: str | None = None
    n_features: int | None = None
    is_sparse: bool | None = None
    key_type: str | None = None  # "str" or "int"

    @classmethod
    def of(cls, keys: list[Key], X: Any) -> Self:
        """Return the schema of new memories, without a metric. Without vectors, their width and form are undecided."""
        width, is_sparse = (None, None) if X is None else (X.shape[1], scipy.sparse.issparse(X))
        return cls(None, width, is_sparse, type(keys[0]).__name__)

    def __or__(self, other: Self) -> Self:
        """Return this schema with its undecided fields taken from ``other``."""
        undecided = [field for field in self._fields if getattr(self, field) is None]
        return self._replace(**{field: getattr(other, field) for field in undecided})

    def admits(self, other: Self) -> bool:
        """Return whether memories with the schema ``other`` can be added. Their vectors may be sparse or dense."""
        fits = other.n_features is None or (self.is_sparse is not None and self.n_features == other.n_features)
        return fits and self.key_type == other.key_type

    def check(self, other: Self) -> None:
        """Raise TypeError or ValueError if memories with the schema ``other`` cannot be added."""
        if None not in (self.n_features, other.n_features) and self.n_features != other.n_features:
            raise ValueError(
                f"X must have {self.n_features} features, like the vectors in the store, got {other.n_features}"
            )
        if self.key_type not in (None, other.key_type):
            mine, others = (_KEY_TYPES[str(one.key_type)] for one in (self, other))
            raise TypeError(f"keys must be {mine}, like the keys in the store, got {others}")

    def to_form(self, X: Any) -> Any:
        """Convert vectors to a sparse or dense array, as the schema requires."""
        if X is None or self.is_sparse == scipy.sparse.issparse(X):
            return X
        return scipy.sparse.csr_array(X) if self.is_sparse else np.asarray(X.toarray())


def common_schema(schemas: Mapping[str, Schema]) -> Schema:
    """Return the combined schema of all shards. ``schemas`` contains each shard's schema by name."""
    common = Schema()
    for field, words in _DESCRIPTIONS.items():
        names: dict[Any, str] = {}
        for name, schema in schemas.items():
            if (value := getattr(schema, field)) is not None:
                names.setdefault(value, name)
        if len(names) > 1:
            raise ShardConflictError(", and ".join(f"{name} {words.format(value)}" for value, name in names.items()))
        common = common._replace(**{field: next(iter(names), None)})
    forms = [schema.is_sparse for schema in schemas.values() if schema.is_sparse is not None]
    return common._replace(is_sparse=all(forms) if forms else None)


class Topology(NamedTuple):
    """The shards of a store and the schema of its memories.

    Every call contains a topology version, and a shard with another version rejects the call. Only the first shard of a
    topology decides on the next topology, so versions are unique.

    - ``version``: the version number, which increases by 1 with each topology.
    - ``before``, ``after``: the names of the shards before and after the last move of memories. They differ during a
      move.
    - ``schema``: the schema of all memories.
    - ``move``: the number of the last move: the version in which it began. Later versions may change only the schema.
    """

    version: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    schema: Schema = Schema()
    move: int = 0

    @property
    def is_moving(self) -> bool:
        """Whether a move of memories is in progress."""
        return self.before != self.after

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all shards that may contain memories."""
        return self.before + tuple(name for name in self.after if name not in self.before)

    def next(self, after: Sequence[str]) -> Self:
        """Return the topology that moves memories to the shards ``after`` or, if they are moving, ends the move."""
        return type(self)(self.version + 1, self.after, tuple(after), self.schema, self.version + 1)

    def with_schema(self, schema: Schema) -> Self:
        """Return the next topology, with the same shards and another schema."""
        return self._replace(version=self.version + 1, schema=schema)

    def divided(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return a dictionary from shard names to the positions of their keys."""
        owners = owners_of(self.after, hash_keys(keys))
        order = np.argsort(owners, kind="stable")
        present, firsts = np.unique(owners[order], return_index=True)
        parts = np.split(order, firsts[1:])
        return {self.after[owner]: part for owner, part in zip(present.tolist(), parts, strict=True)}

    def leaving(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return a dictionary from shard names to the positions of keys that leave the shard in the current move."""
        if not self.is_moving or not keys:
            return {}
        hashed = hash_keys(keys)
        former = np.array(self.before)[owners_of(self.before, hashed)]
        moving = np.flatnonzero(former != np.array(self.after)[owners_of(self.after, hashed)])
        return {str(name): moving[former[moving] == name] for name in np.unique(former[moving])}

    def to_json(self) -> str:
        """Return the topology as JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the topology in a JSON text."""
        found = json.loads(text)
        before, after, schema = tuple(found["before"]), tuple(found["after"]), Schema(*found["schema"])
        return cls(int(found["version"]), before, after, schema, int(found["move"]))


class MoveProgress(NamedTuple):
    """The batches of memories that a shard has given and received in the current move."""

    given: Mapping[str, int]  # given[name]: the number of the last batch that this shard has given to shard ``name``
    received: Mapping[str, tuple[int, int]]  # received[name]: the number and size of the last batch from shard ``name``


def shards_behind(progress: Mapping[str, MoveProgress]) -> list[str]:
    """Return the shards that answered before receiving a batch that its giver had already deleted.

    The memories of the batch may be missing from all answers.
    """
    found = {
        to
        for name, own in progress.items()
        for to, number in own.given.items()
        if to in progress and progress[to].received.get(name, (0, 0))[0] < number
    }
    return sorted(found)


def count_duplicates(progress: Mapping[str, MoveProgress]) -> int:
    """Return the number of memories that two shards count: received by one, but not yet deleted by the other."""
    return sum(
        size
        for name, own in progress.items()
        for giver, (number, size) in own.received.items()
        if giver in progress and progress[giver].given.get(name, 0) < number
    )


def pick(values: Sequence[Key], positions: np.ndarray) -> list[Key]:
    """Return the values at the given positions."""
    return [values[position] for position in positions.tolist()]
