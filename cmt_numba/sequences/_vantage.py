"""Splits of points by distance from a vantage point, and powers of distances that satisfy the triangle inequality.

Powers are one family of distance modifiers (Skopal, Unified framework for fast exact and approximate search in
dissimilarity spaces, 2007). Raised to a small enough power below 1, almost any dissimilarity satisfies the inequality,
but the bounds become weaker. A power above 1 tightens the bounds of a metric, but some bounds become wrong.
"""

import numpy as np

from ._spaces import Space, distances_of_pairs

_CANDIDATES, _SAMPLE = 6, 48  # number of vantage points to try, and sample size for the variance of their distances

_POINTS, _OTHERS = 150, 300  # sample sizes for triples of points
_LEAST, _MOST = 2.0**-6, 2.0**4
_STEPS = 24  # number of bisection steps


def distances_from(space: Space, point: int, others: np.ndarray) -> np.ndarray:
    """Return the distances between a stored point and other stored points: float64."""
    return distances_between(space, space, np.full(others.size, point), others)


def distances_between(queries: Space, stored: Space, of_queries: np.ndarray, of_stored: np.ndarray) -> np.ndarray:
    """Return the distance of each pair of points: float64."""
    distances, bounds = np.empty(of_queries.size), np.full(of_queries.size, np.inf)
    distances_of_pairs(queries, stored, of_queries, of_stored, bounds, distances)
    return distances


def sorted_by_distance(
    space: Space, points: np.ndarray, random: np.random.Generator
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return a vantage point, and the other points and their distances (float64) from it, nearest first.

    The vantage point is the random candidate whose distances have the largest variance.
    """
    candidates = random.choice(points, min(_CANDIDATES, points.size), replace=False)
    sample = random.choice(points, min(_SAMPLE, points.size), replace=False)
    vantage = int(candidates[np.argmax([distances_from(space, point, sample).var() for point in candidates])])
    others = points[points != vantage]
    distances = distances_from(space, vantage, others)
    order = np.argsort(distances, kind="stable")
    return vantage, others[order], distances[order]


def power_for(space: Space, tolerance: float, random: np.random.Generator) -> float:
    """Return the largest power with which few triples of points violate the triangle inequality.

    At most a fraction ``tolerance`` of sampled triples may violate the inequality. A triple consists of a point, its
    nearest neighbour in a sample, and another point.
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
    """Return the largest power with which at most a fraction ``tolerance`` of triangles violates the inequality."""
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
