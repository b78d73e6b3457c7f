"""Parting points by their distance from one of them, the vantage point."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._spaces import Space, distances_of_pairs

_CANDIDATES, _SAMPLE = 6, 48  # vantage points that are tried, and points that their spread is measured with


class Parted(NamedTuple):
    """Points by their distance from a vantage point, which is none of them; the first half is the near part."""

    vantage: int
    points: np.ndarray  # int64 (n,), the nearest first
    distances: np.ndarray  # float64 (n,)

    @property
    def half(self) -> int:
        """How many points are in the near part."""
        return (self.points.size + 1) // 2


def distances_from(space: Space, point: int, others: np.ndarray) -> np.ndarray:
    """Return the distances of a point from others, all of them stored: float64."""
    asked = space._replace(gaps=space.turned_gaps, turned_gaps=space.gaps) if space.both else space
    return distances_between(asked, space, np.full(others.size, point), others)


def distances_between(asked: Space, stored: Space, of_asked: np.ndarray, of_stored: np.ndarray) -> np.ndarray:
    """Return the distance of each pair of points: float64."""
    distances, bounds = np.empty(of_asked.size), np.full(of_asked.size, np.inf)
    distances_of_pairs(asked, stored, of_asked, of_stored, bounds, distances)
    return distances


def part(space: Space, points: np.ndarray, random: np.random.Generator) -> Parted:
    """Part some points of a space by one of them whose distances from others vary much: it parts them well."""
    candidates = random.choice(points, min(_CANDIDATES, points.size), replace=False)
    sample = random.choice(points, min(_SAMPLE, points.size), replace=False)
    vantage = int(candidates[np.argmax([distances_from(space, point, sample).var() for point in candidates])])
    others = points[points != vantage]
    distances = distances_from(space, vantage, others)
    order = np.argsort(distances, kind="stable")
    return Parted(vantage, others[order], distances[order])
