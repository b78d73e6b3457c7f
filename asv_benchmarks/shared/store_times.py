"""Recall and times of searches, and those of a ``MemoryStore``, also of another version of the package.

``python -m shared.store_times FILE`` measures the store of the package on ``PYTHONPATH`` with the arrays in a file.
"""

from .commands import timed  # before libraries that read the number of threads

# isort: split
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .vectors import K, Vectors, recall

TARGETS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


class Measured(NamedTuple):
    """The recall of a search, and its microseconds per row in a batch and for single rows."""

    recall: float
    batch: float
    single: float


def measured(search: Callable[[np.ndarray], Any], asked: np.ndarray, true: np.ndarray) -> Measured:
    """Return the recall and the times of a search."""
    search(asked[:1])
    found = search(asked)
    batch = min(timed(lambda: search(asked))[1] for _ in range(3)) / len(asked)
    ones = np.split(asked[:200], 200)
    single = min(timed(lambda: [search(one) for one in ones])[1] for _ in range(3)) / len(ones)
    return Measured(recall(np.asarray(found), true), 1e6 * batch, 1e6 * single)


def of_store(data: Vectors, true: np.ndarray) -> tuple[float, list[Measured]]:
    """Return the seconds to fill a store, and what is measured with each target recall."""
    from cmt_numba import MemoryStore

    store = MemoryStore(random_state=0, n_threads=1)
    MemoryStore(random_state=0, n_threads=1).add(range(2000), data.stored[:2000])  # compile
    _, seconds = timed(lambda: store.add(range(len(data.stored)), data.stored))

    def search(target: float) -> Callable[[np.ndarray], Any]:
        return lambda some: store.query(some, K, target_recall=target).keys

    return seconds, [measured(search(target), data.asked, true) for target in TARGETS]


def of_other_version(sources: Path, data: Vectors, true: np.ndarray) -> tuple[float, list[Measured]]:
    """Return the same for the store of another version, in a process of its own."""
    cache = Path(tempfile.gettempdir()) / f"numba_{sources.name}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vectors.npz"
        np.savez(file, stored=data.stored, asked=data.asked, true=true)
        shown = subprocess.run(
            [sys.executable, "-m", "shared.store_times", str(file)],
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"PYTHONPATH": str(sources), "NUMBA_CACHE_DIR": str(cache)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    seconds, rows = json.loads(shown.splitlines()[-1])
    return seconds, [Measured(*row) for row in rows]


if __name__ == "__main__":
    with np.load(sys.argv[1]) as arrays:
        print(json.dumps(of_store(Vectors(arrays["stored"], arrays["asked"]), arrays["true"])))
