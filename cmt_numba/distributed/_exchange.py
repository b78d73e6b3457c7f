"""Exchange of the weights of scorers, which shards learn from rewards.

All shards begin with the same weights, the *base*. In an exchange each shard contributes its *gain*, the difference of
its weights from the base, and the new base is the old one plus the gains of all. So the scorer learns as much as in
one store whose updates are delayed by some rewards (Dean et al., 2012). The sums of squared gradients, which set the
learning rates of features, are added up in the same way.
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
    """Learned weights of a shard. Arrays are float32 of shape (2, n_features): weights and squared gradients."""

    number: int  # number of the last exchange in which the shard took part
    base: np.ndarray  # after that exchange
    gain: np.ndarray  # since then


def learned_weights(store: MemoryStore) -> LearnedWeights | None:
    """Return the learned weights of a store; None if it has no memories."""
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
    """Return the number of the next exchange, and the base after it.

    A shard that has missed the last exchange adds nothing, because the base of the others contains what it learned
    before.
    """
    known = list(found)
    number = max(own.number for own in known)
    latest = [own for own in known if own.number == number]
    base = latest[0].base + np.sum([own.gain for own in latest], axis=0, dtype=np.float32)
    return number + 1, np.asarray(base, np.float32)


def take_part(store: MemoryStore, number: int, base: np.ndarray, gain: np.ndarray) -> None:
    """Take part in an exchange, unless the store has already done so.

    ``gain`` is what this store had learned at the beginning of the exchange. What it has learned since is kept.
    """

    def add() -> None:
        own = _learned_weights(store)
        if own is None or own.number >= number:
            return
        weights, squares = base + (own.gain - gain)
        facts = {_NUMBER: number, _BASE: np.ascontiguousarray(base, np.float32).tobytes()}
        set_weights(store, weights, np.maximum(squares, np.float32(0.0)), facts)

    alone(store, add)
