"""Assignment of similar classes to the same shard, with a limit on the size of shards."""

from typing import Any

import numpy as np

_LARGEST = 1.1
"""Maximum ratio of a shard's number of classes to the mean number."""

_ROUNDS = 10  # maximum number of k-means rounds


def divided(means: Any, n_shards: int, generator: np.random.Generator) -> np.ndarray:
    """Divide classes into ``n_shards`` by spherical k-means of their unit-length means, with limited sizes."""
    n = means.shape[0]
    first = generator.permutation(n)[:n_shards]
    owners = np.full(n, -1)
    owners[first] = np.arange(first.size)
    before = owners
    for _ in range(_ROUNDS):
        centers = sums_of(means, owners, n_shards)
        owners = assigned(means, centers, np.zeros(n_shards, np.int64))
        if np.array_equal(owners, before):
            break
        before = owners
    for shard in np.flatnonzero(np.bincount(owners, minlength=n_shards) == 0)[: max(0, n - n_shards + 1)]:
        largest = np.flatnonzero(owners == np.bincount(owners).argmax())
        if largest.size > 1:
            owners[largest[-1]] = shard
    return owners


def assigned(means: Any, centers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Assign each new class to the nearest shard with room, given the shards' sums of means and sizes."""
    n, n_shards = means.shape[0], sizes.size
    room = np.maximum(int(np.ceil(_LARGEST * (n + sizes.sum()) / n_shards)) - sizes, 0)
    lengths = np.sqrt(np.einsum("ij,ij->i", centers, centers))
    likeness = np.asarray(means @ (centers / np.maximum(lengths, 1e-12)[:, None]).T)
    owners, waiting = np.full(n, -1), np.arange(n)
    while waiting.size > 0:  # each round assigns all waiting classes or fills a shard
        open_shards = np.flatnonzero(room > 0)
        of_waiting = likeness[np.ix_(waiting, open_shards)]
        wanted = open_shards[of_waiting.argmax(axis=1)]
        # Assign classes with the largest margin between the two nearest shards first.
        two_best = np.sort(of_waiting, axis=1)[:, -2:]
        order = np.argsort(two_best[:, 0] - two_best[:, -1], kind="stable")
        for shard in open_shards:
            accepted = waiting[order[wanted[order] == shard][: room[shard]]]
            owners[accepted] = shard
            room[shard] -= accepted.size
        waiting = waiting[owners[waiting] < 0]
    return owners


def sums_of(means: Any, owners: np.ndarray, n_shards: int) -> np.ndarray:
    """Return the sum of each shard's class means: float32, shape (n_shards, n_features). Ignore the owner -1."""
    centers = np.zeros((n_shards, means.shape[1]), np.float32)
    for shard in range(n_shards):
        centers[shard] = np.asarray(means[np.flatnonzero(owners == shard)].sum(axis=0)).reshape(-1)
    return centers
