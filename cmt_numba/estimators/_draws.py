"""Random streams of queries, carried over when a copy replaces a forest."""

from __future__ import annotations

from typing import Any

import numpy as np


def take_over_draws(old: Any, new: Any, drawn: int) -> None:
    """Advance the query stream of ``new`` by the numbers that ``old`` has drawn since its state was ``drawn``."""
    further = (queries_drawn(old) - drawn) % 2**64
    if further > 0:
        streams = streams_of(new)
        streams[-1] = np.uint64((int(streams[-1]) + further) % 2**64)


def queries_drawn(forest: Any) -> int:
    """Return the state of the random stream for queries."""
    return int(streams_of(forest)[-1])


def streams_of(forest: Any) -> np.ndarray:
    """Return the random streams of a forest; the last one is for queries."""
    streams: np.ndarray = forest._forest.streams if forest._forest.state is None else forest._forest.state.streams
    return streams
