"""Which examples to hold out, so that it is learned from unseen ones how far scores can be trusted."""

from __future__ import annotations

import numpy as np

_SHARE = 0.2
_MOST = 2000


def held_out(n_examples: int, seed: int, never: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return which examples to hold out, and which are left to learn from, both sorted: int64.

    A fifth of the examples is held out, at most 2,000, and none of those of the positions ``never``.
    """
    positions = np.arange(n_examples)
    possible = positions if never is None else np.delete(positions, never)
    n = min(_MOST, int(_SHARE * n_examples), possible.size)
    apart = np.sort(np.random.default_rng(seed).choice(possible, n, replace=False))
    return apart, np.delete(positions, apart)
