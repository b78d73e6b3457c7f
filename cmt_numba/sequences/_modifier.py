"""Powers of distances that keep the triangle inequality as far as it is wanted.

This is one family of the modifiers of Skopal, Unified framework for fast exact and approximate search in dissimilarity
spaces, 2007.

A power below 1 is concave: with a small enough one almost any dissimilarity fulfils the inequality, but bounds become
weak. One above 1 makes the bounds of a metric stronger, and some of them wrong.
"""

from __future__ import annotations

import numpy as np

from ._spaces import Space
from ._vantage import distances_from

_POINTS, _OTHERS = 150, 300  # of triples
_LEAST, _MOST = 2.0**-6, 2.0**4
_STEPS = 24  # of the bisection


def power_for(space: Space, tolerance: float, random: np.random.Generator) -> float:
    """Return the greatest power with which at most a share of sampled triples breaks the triangle inequality.

    A triple is a point, the nearest of some others, as what is searched for is near what is asked, and one more.
    """
    n = max(space.offsets.size - 1, space.rows.shape[0])
    others = random.choice(n, min(_OTHERS, n), replace=False)
    points = others[:_POINTS]
    distances = np.array([distances_from(space, point, others) for point in points], float)
    alone = np.where(distances > 0.0, distances, np.inf)
    near = alone.argmin(axis=1)
    between = np.array([distances_from(space, others[i], others) for i in near], float)
    sides = np.stack([np.broadcast_to(alone[np.arange(near.size), near, None], between.shape), distances, between])
    return greatest_power(sides[:, np.isfinite(sides).all(axis=0) & (sides > 0.0).all(axis=0)], tolerance)


def greatest_power(sides: np.ndarray, tolerance: float) -> float:
    """Return the greatest power, within bounds, with which at most a share of triangles is none.

    ``sides``, float64 of shape (3, n), are above 0. The share grows with the power.
    """
    if sides.shape[1] == 0:
        return 1.0
    sides = np.sort(sides, axis=0)
    shorter, longest = np.log(sides[:2] / sides[2]), sides[2]
    n_most = int(tolerance * longest.size)
    low, high = np.log(_LEAST), np.log(_MOST)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        broken = np.exp(np.exp(middle) * shorter).sum(axis=0) < 1.0 - 1e-6
        low, high = (low, middle) if np.count_nonzero(broken) > n_most else (middle, high)
    return float(np.exp(low))
