"""Measure whether memory stays bounded while memories come and go: each step removes one and inserts another.

::

    python asv_benchmarks/measure_churn.py
    python asv_benchmarks/measure_churn.py --sparse --memories 2e4 --steps 2e5

``measure_churn_estimators.py`` does the same for estimators and bounded trees. Sparse keys are drawn like texts: 12
words of a vocabulary of 50,000, the common ones more often.
"""

import argparse
import time

import numpy as np
import scipy.sparse

from cmt_numba import ContextualMemoryTree

POOL = 200_000
WORDS = 12
VOCABULARY = 50_000
FEATURES = 16


def make_pool(sparse: bool, rng: np.random.Generator) -> np.ndarray | scipy.sparse.csr_array:
    """Return keys to draw from."""
    if not sparse:
        return rng.normal(size=(POOL, FEATURES)).astype(np.float32)
    frequency = 1.0 / np.arange(1, VOCABULARY + 1)
    words = rng.choice(VOCABULARY, size=POOL * WORDS, p=frequency / frequency.sum())
    rows = np.repeat(np.arange(POOL), WORDS)
    return scipy.sparse.csr_array((np.ones(words.size, np.float32), (rows, words)), shape=(POOL, VOCABULARY))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure whether memory stays bounded while memories come and go.")
    parser.add_argument("--memories", type=float, default=1e5)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--sparse", action="store_true")
    options = parser.parse_args()
    n, steps = int(options.memories), int(options.steps)

    rng = np.random.default_rng(0)
    pool = make_pool(options.sparse, rng)
    tree = ContextualMemoryTree(options.trees, random_state=0)
    ids = tree.insert(pool[rng.integers(POOL, size=n)])
    given_out = set(ids.tolist())
    bytes_before = tree.nbytes
    start = time.perf_counter()
    for step in range(1, steps + 1):
        i = rng.integers(n)
        tree.remove(ids[i])
        ids[i] = tree.insert(pool[[rng.integers(POOL)]])[0]
        given_out.add(int(ids[i]))
        if step % max(1, steps // 10) == 0:
            microseconds = 1e6 * (time.perf_counter() - start) / step
            print(f"{step:>9,} steps: {tree.nbytes / bytes_before:.3f} times the memory, {microseconds:.0f} us a step")
    tree.check_invariants()
    assert set(tree.ids.tolist()) == set(ids.tolist())
    print(f"{len(given_out):,} different ids for {n + steps:,} inserts; the invariants hold.")


if __name__ == "__main__":
    main()
