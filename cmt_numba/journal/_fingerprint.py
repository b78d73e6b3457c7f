"""Fingerprints of trees, to check that replayed changes give the same tree."""

from __future__ import annotations

import zlib

import numpy as np

from .._forest.state import COUNT, FREE_LEAF, FREE_NODE, LEAVES_END, N_MEMORIES, NEXT_ID, NODES_END, ROOT
from ..tree import ContextualMemoryTree

_TELLING = [ROOT, COUNT, NODES_END, FREE_NODE, LEAVES_END, FREE_LEAF]  # counters that differ between different trees


def fingerprint(tree: ContextualMemoryTree, *, with_draws: bool = True) -> dict[str, int]:
    """Return a fingerprint of a tree that is cheap to compute, perhaps of all but the numbers drawn for queries."""
    state, stop = tree._forest.state, None if with_draws else -1  # the last stream is that for queries
    if state is None:
        return {"n_memories": 0, "next_id": 0, "trees": zlib.crc32(tree._forest.streams[:stop].astype("<u8").tobytes())}
    numbers = np.concatenate(
        [state.streams[:stop].astype("<u8"), state.counters[:, _TELLING].astype("<u8").reshape(-1)]
    )
    totals = state.keys.totals
    return {
        "n_memories": int(totals[N_MEMORIES]),
        "next_id": int(totals[NEXT_ID]),
        "trees": zlib.crc32(numbers.tobytes()),
    }


def has_fingerprint(tree: ContextualMemoryTree, after: dict[str, int]) -> bool:
    """Return whether a tree has this fingerprint; raise ValueError if even its number of memories differs."""
    found = fingerprint(tree)
    for name in ("n_memories", "next_id"):
        if found[name] != after.get(name):
            raise ValueError(f"it leads to {name}={found[name]}, not {after.get(name)!r:.50}")
    return found["trees"] == after.get("trees")
