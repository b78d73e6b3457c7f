"""Compare sharded stores and classifiers with single ones."""

from shared.commands import Commands, argument, print_table, timed

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from shared.labelled_sets import SETS, LabelledSet

from cmt_numba import CMTClassifier, MemoryStore
from cmt_numba.distributed import ShardedClassifier, ShardedStore, start

commands = Commands(__doc__)

_BLOCK = 10_000  # vectors per call of ``add``
_CHECKED = 200  # queries
_TIE = 1e-5  # scores count as equal up to this difference

wall = partial(timed, clock=time.perf_counter)  # shards share the processors


def clustered(n: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Return vectors around the same 100 centers."""
    centers = np.random.default_rng(0).normal(size=(100, n_features))
    return (centers[rng.integers(0, 100, n)] + 0.7 * rng.normal(size=(n, n_features))).astype(np.float32)


def microseconds(store: Any, Q: np.ndarray, batch: int) -> float:
    """Return the microseconds per query, in batches of a given size: the median of several."""
    store.query(Q[:batch], 10)
    starts = [i * batch % max(1, len(Q) - batch + 1) for i in range(max(3, 100 // batch))]
    return 1e6 * float(np.median([wall(store.query, Q[i : i + batch], 10)[1] for i in starts])) / batch


@commands.add(
    argument("--n", type=float, default=1e5),
    argument("--features", type=int, default=64),
    argument("--shards", type=int, nargs="+", default=[1, 2, 4]),
    argument("--batches", type=int, nargs="+", default=[1, 100, 10_000]),
)
def stores(options: argparse.Namespace) -> None:
    """Compare a store in memory with the same clustered vectors in 1, 2 and 4 shards on this machine.

    First checks that exact searches of all stores give the same scores. Prints vectors added per second, the recall,
    and the microseconds of wall time per query in batches of several sizes. Needs the extra ``ray``.
    """
    start()
    rng = np.random.default_rng(1)
    X, Q = (clustered(n, options.features, rng) for n in (int(options.n), 10_000))
    stores: dict[str, Any] = {"one store": MemoryStore(random_state=0, n_threads=1)}
    stores |= {f"{n} shards": ShardedStore(n, random_state=0, timeout=600.0) for n in options.shards}
    rows, exact = list[list[Any]](), None
    for name, store in stores.items():
        blocks = [range(first, min(first + _BLOCK, len(X))) for first in range(0, len(X), _BLOCK)]
        _, seconds = wall(lambda: [store.add(block, X[block.start : block.stop]) for block in blocks])  # noqa: B023
        scores = store.query(Q[:_CHECKED], 10, target_recall=1.0).scores
        exact = scores if exact is None else exact
        np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-6)
        recall = np.mean(store.query(Q[:_CHECKED], 10).scores > exact[:, -1:] - _TIE)
        rows.append([name, len(X) / seconds, recall, *(microseconds(store, Q, batch) for batch in options.batches)])
    for store in list(stores.values())[1:]:
        store.close()
    sizes = [f"us/query, batches of {batch:,}" for batch in options.batches]
    print_table(["store", "adds/s", "recall", *sizes], rows, f"{len(X):,} vectors of {X.shape[1]} features", ",.3f")


def results(classifier: Any, data: LabelledSet) -> list[float]:
    """Return the error of half of the examples with ten later batches, the error of one fit, and the seconds to fit."""
    first, *later = np.split(np.arange(data.y.size), np.linspace(data.y.size // 2, data.y.size, 11).astype(int)[:-1])
    classifier.fit(data.X[first], data.y[first])
    for rows in later:
        classifier.partial_fit(data.X[rows], data.y[rows])
    online = float(np.mean(classifier.predict(data.queries) != data.answers))
    _, seconds = wall(classifier.fit, data.X, data.y)
    return [float(np.mean(classifier.predict(data.queries) != data.answers)), online, seconds]


@commands.add(
    argument("--data", type=Path),
    argument("--sets", nargs="+", default=["clinc150, 5 shots", "wikipara1k, 3 shots", "synthetic, 20 shots"]),
    argument("--shards", type=int, nargs="+", default=[2, 4]),
)
def classifiers(options: argparse.Namespace) -> None:
    """Compare a sharded classifier with one in a single process.

    Prints the error of ``fit``, the error of ``fit`` on half of the examples and ``partial_fit`` on the rest in ten
    batches, and seconds of wall time to fit. Synthetic sets of ``shared/labelled_sets.py`` need no
    folder. Needs the extra ``ray``.
    """
    start()
    rows: list[list[Any]] = []
    for name in options.sets:
        data = SETS[name](options.data)
        rows.append([name, "one classifier", *results(CMTClassifier(random_state=0), data)])
        for n_shards in options.shards:
            with ShardedClassifier(n_shards, random_state=0, timeout=600.0) as sharded:
                rows.append([name, f"{n_shards} shards", *results(sharded, data)])
    print_table(["set", "shards", "error", "error, live", "fit, s"], rows)


if __name__ == "__main__":
    commands.main()
