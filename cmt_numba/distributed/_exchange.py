"""Exchange of the scorer weights that shards learn from rewards.

All shards start with the same weights, the *base*. In an exchange, each shard contributes its *gain*, the difference
between its weights and the base. The new base is the old base plus all gains. The result corresponds to a single store
whose updates are delayed (Dean et al., 2012). The sums of squared gradients, which determine the learning rates of
features, are exchanged in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from ..store import MemoryStore
from ._store_access import alone, facts_of, set_weights, weights_of

_NUMBER, _BASE = "exchanges", "exchanged weights"  # the names of facts


class LearnedWeights(NamedTuple):
    """The learned weights of a shard.

    Arrays are float32 of shape (2, n_features): the weights, and their sums of squared gradients.
    """

    number: int  # number of the last exchange that included the shard
    base: np.ndarray  # the base after that exchange
    gain: np.ndarray  # the gain since that exchange


def learned_weights(store: MemoryStore) -> LearnedWeights | None:
    """Return the learned weights of a store, or None before its first memory."""
    return alone(store, partial(_learned_weights, store))


def _learned_weights(store: MemoryStore) -> LearnedWeights | None:
    weights = weights_of(store)
    if weights is None:
        return None
    facts, base = facts_of(store), np.zeros_like(weights)
    if _BASE in facts:
        base = np.frombuffer(facts[_BASE], np.float32).reshape(weights.shape)
    return LearnedWeights(facts.get(_NUMBER, 0), base, weights - base)


def combine_weights(found: Iterable[LearnedWeights]) -> tuple[int, np.ndarray]:
    """Return the number of the next exchange and its base.

    A shard that has missed the last exchange contributes nothing: the base of that exchange already contains its gain.
    """
    known = list(found)
    number = max(own.number for own in known)
    latest = [own for own in known if own.number == number]
    base = latest[0].base + np.sum([own.gain for own in latest], axis=0, dtype=np.float32)
    return number + 1, np.asarray(base, np.float32)


def take_part(store: MemoryStore, number: int, base: np.ndarray, gain: np.ndarray) -> None:
    """Apply an exchange to a store. A repeated call has no effect.

    ``gain`` is the gain that the store contributed. Weights that it has learned since then are kept.
    """

    def add() -> None:
        own = _learned_weights(store)
        if own is None or own.number >= number:
            return
        weights, squares = base + (own.gain - gain)
        facts = {_NUMBER: number, _BASE: np.ascontiguousarray(base, np.float32).tobytes()}
        set_weights(store, weights, np.maximum(squares, np.float32(0.0)), facts)

    alone(store, add)
