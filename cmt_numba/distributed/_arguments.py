"""Checks of the arguments of calls of a sharded store, and their division among shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._validation import check_integer, check_real
from ..store import MemoryStore
from ..store._checks import Key

_ONLY_IN_FOLDERS = ("sync_every", "snapshot_bytes", "snapshot_seconds")
_BYTES_AT_ONCE = 1 << 25  # of vectors, in one call
_ROWS_AT_ONCE = 1 << 14


def check_options(options: dict[str, Any], metric: str | None) -> None:
    """Raise TypeError or ValueError if these are no options of a store."""
    for name in ("path", "read_only"):
        if name in options:
            raise TypeError(f"{name} is no option of the store of a shard")
    if "sync_every" in options:
        check_integer("sync_every", options["sync_every"], 1)
    if "snapshot_bytes" in options:
        check_integer("snapshot_bytes", options["snapshot_bytes"], 0)
    if "snapshot_seconds" in options:
        check_real("snapshot_seconds", options["snapshot_seconds"], 0.0, 1e9)
    MemoryStore(metric=metric, **{name: value for name, value in options.items() if name not in _ONLY_IN_FOLDERS})


def options_of_shard(options: dict[str, Any], number: int, n_shards: int) -> dict[str, Any]:
    """Return the options of the store of one shard: a seed of its own, and its part of the memories."""
    own = {"n_threads": 1} | options
    if own.get("max_items") is not None:
        own["max_items"] = max(1, own["max_items"] // n_shards)
    seed = own.get("random_state")
    if isinstance(seed, np.random.SeedSequence):
        own["random_state"] = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
    elif seed is not None:
        own["random_state"] = np.random.SeedSequence([seed, number])
    return own


def blocks_of_rows(X: Any, n_rows: int | None = None) -> Iterator[slice]:
    """Yield slices of rows that are sent in one call."""
    n = X.shape[0]
    n_bytes = X.data.nbytes if hasattr(X, "indptr") else X.nbytes
    size = max(1, min(n_rows or _ROWS_AT_ONCE, int(_BYTES_AT_ONCE / max(1.0, n_bytes / n))))
    yield from (slice(first, min(first + size, n)) for first in range(0, n, size))


def by_owner(owners: np.ndarray) -> dict[int, np.ndarray]:
    """Return for each shard the positions of what belongs to it."""
    order = np.argsort(owners, kind="stable")
    present, firsts = np.unique(owners[order], return_index=True)
    return {int(owner): part for owner, part in zip(present, np.split(order, firsts[1:]), strict=True)}


def picked(values: Sequence[Key], positions: np.ndarray) -> list[Key]:
    """Return the values at some positions."""
    return [values[position] for position in positions.tolist()]
