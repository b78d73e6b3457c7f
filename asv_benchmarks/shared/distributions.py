"""Distributions of vectors for which the recall of a store is measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

N_QUERIES = 2000
"""Number of queries: the last vectors of a distribution."""

Rng = np.random.Generator


def _clusters(rng: Rng, n: int, d: int, n_clusters: int, noise: float, power: float = 0.0) -> np.ndarray:
    """Return vectors around normally distributed centers. With a power, clusters have unequal sizes."""
    weights = np.arange(1.0, n_clusters + 1.0) ** -power
    centers = rng.normal(size=(n_clusters, d))
    return centers[rng.choice(n_clusters, n, p=weights / weights.sum())] + noise * rng.normal(size=(n, d))


def _copies(rng: Rng, n: int, d: int, n_copies: int, noise: float, n_clusters: int = 0) -> np.ndarray:
    """Return vectors of which each has near copies, except the last ones, which are queries."""
    n_own = (n - N_QUERIES) // n_copies + N_QUERIES
    own = _clusters(rng, n_own, d, n_clusters, 0.4) if n_clusters else rng.normal(size=(n_own, d))
    stored = np.repeat(own[:-N_QUERIES], n_copies, axis=0)
    return np.concatenate([rng.permutation(stored + noise * rng.normal(size=stored.shape)), own[-N_QUERIES:]])


def _surface(rng: Rng, n: int, d: int, n_dimensions: int) -> np.ndarray:
    """Return points of a curved surface."""
    angles = rng.uniform(-np.pi, np.pi, (n, n_dimensions)) @ rng.normal(size=(n_dimensions, d // 2))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) + 0.01 * rng.normal(size=(n, d))


def _walk(rng: Rng, n: int, d: int) -> np.ndarray:
    """Return the positions of a random walk that is pulled back to the origin."""
    X = rng.normal(size=(n, d))
    for i in range(1, n):
        X[i] = 0.98 * X[i - 1] + 0.2 * X[i]
    return rng.permutation(X)


def _asked_elsewhere(rng: Rng, n: int, d: int) -> np.ndarray:
    """Return clusters of vectors, and queries between them."""
    X = _clusters(rng, n, d, 100, 0.4)
    X[-N_QUERIES:] = (X[:N_QUERIES] + X[N_QUERIES : 2 * N_QUERIES]) / 2.0
    return X


def _lengths(rng: Rng, n: int, d: int) -> np.ndarray:
    """Return clusters of vectors of different lengths."""
    return _clusters(rng, n, d, 100, 0.6) * rng.lognormal(0.0, 0.5, (n, 1))


DISTRIBUTIONS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "normal, 16": lambda rng, n: rng.normal(size=(n, 16)),
    "normal, 64": lambda rng, n: rng.normal(size=(n, 64)),
    "normal, 128": lambda rng, n: rng.normal(size=(n, 128)),
    "uniform, 8": lambda rng, n: rng.uniform(-1.0, 1.0, (n, 8)),
    "cubes, 32": lambda rng, n: rng.normal(size=(n, 32)) ** 3,
    "signs, 64": lambda rng, n: np.sign(rng.normal(size=(n, 64))) + 0.01 * rng.normal(size=(n, 64)),
    "not negative, 128": lambda rng, n: np.maximum(_clusters(rng, n, 128, 200, 0.7) - 1.0, 0.0) + 1e-3,
    "few directions, 128": lambda rng, n: (rng.normal(size=(n, 16)) @ rng.normal(size=(16, 128))) / 4.0,
    "falling spectrum, 128": lambda rng, n: rng.normal(size=(n, 128)) / np.sqrt(np.arange(1.0, 129.0)),
    "100 clusters, 64": lambda rng, n: _clusters(rng, n, 64, 100, 0.4),
    "1,000 tight clusters, 64": lambda rng, n: _clusters(rng, n, 64, 1000, 0.1),
    "uneven clusters, 96": lambda rng, n: _clusters(rng, n, 96, 500, 0.5, 1.0),
    "3 copies, 64": lambda rng, n: _copies(rng, n, 64, 3, 0.0),
    "10 copies, 64": lambda rng, n: _copies(rng, n, 64, 10, 0.0),
    "10 near copies, 64": lambda rng, n: _copies(rng, n, 64, 10, 0.05),
    "100 near copies, 64": lambda rng, n: _copies(rng, n, 64, 100, 0.02),
    "copies in clusters, 64": lambda rng, n: _copies(rng, n, 64, 10, 0.0, 100),
    "near copies in clusters, 64": lambda rng, n: _copies(rng, n, 64, 5, 0.05, 100),
    "hubs, 32": lambda rng, n: rng.normal(size=(n, 32)) + 5.0,
    "hubs, 128": lambda rng, n: rng.normal(size=(n, 128)) + 2.0,
    "lengths, 64": lambda rng, n: _lengths(rng, n, 64),
    "walk, 32": lambda rng, n: _walk(rng, n, 32),
    "surface, 32": lambda rng, n: _surface(rng, n, 32, 3),
    "asked elsewhere, 64": lambda rng, n: _asked_elsewhere(rng, n, 64),
}
"""For each name, a function of random numbers and the number of vectors. The last vectors are queries."""
