"""What shards have learned from rewards, exchanged: the weights of their scorers.

All shards begin with the same weights, the *base*. In an exchange each tells its *gain*, the difference of its weights
from the base, and the new base is the old one with the gains of all. So the scorer learns as much as that of one store
whose updates come some rewards late (Dean et al., 2012). The sums of squared gradients, which set the learning rates of
features, are added up in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ..store import MemoryStore
from ..store._trees import Kept

_NUMBER, _BASE = "exchanges", "exchanged weights"  # the names of facts


class Learned(NamedTuple):
    """What a shard has learned.

    Attributes
    ----------
    number : int
        The number of the last exchange in which the shard took part.
    base : ndarray of float32, shape (2, n_features)
        The weights and squares after that exchange.
    gain : ndarray of float32, shape (2, n_features)
        What was added to them since.
    """

    number: int
    base: np.ndarray
    gain: np.ndarray


def learned(store: MemoryStore) -> Learned | None:
    """Return what a store has learned; None if it has no memories."""
    with store._keeper.writing:
        state = store._keeper.kept.tree._forest.state
        if state is None:
            return None
        facts = store._records().facts()
        shape = 2, state.parameters.n_features
        base = np.frombuffer(facts[_BASE], np.float32).reshape(shape) if _BASE in facts else np.zeros(shape, np.float32)
        now = np.stack(state.scorer) if state.scorer.theta.size > 0 else np.zeros(shape, np.float32)
        return Learned(facts.get(_NUMBER, 0), base, now - base)


def combined(found: Iterable[Learned]) -> tuple[int, np.ndarray]:
    """Return the number of the next exchange, and the base after it.

    A shard that has missed the last exchange adds nothing: what it had learned before is in the base of the others.
    """
    known = list(found)
    number = max(own.number for own in known)
    latest = [own for own in known if own.number == number]
    base = latest[0].base + np.sum([own.gain for own in latest], axis=0, dtype=np.float32)
    return number + 1, np.asarray(base, np.float32)


def exchange(store: MemoryStore, number: int, base: np.ndarray, gain: np.ndarray) -> None:
    """Take part in an exchange, unless the store has taken part in it already.

    ``gain`` is what this store had learned when it was asked. What it has learned since is kept.
    """
    with store._keeper.writing:
        own = learned(store)
        if own is None or own.number >= number:
            return
        weights, squares = base + (own.gain - gain)
        squares = np.maximum(squares, np.float32(0.0))
        facts = {_NUMBER: number, _BASE: np.ascontiguousarray(base, np.float32).tobytes()}

        def write(kept: Kept, commit: Callable[[], None]) -> None:
            kept.tree._set_scorer(weights, squares)
            kept.records.set_facts(facts)

        store._keeper.change(write)
