"""Insert very many equal keys, or keys of a few kinds, and check that the trees stay flat.

No router can separate equal keys, so a full leaf of them is split in halves at random. A tree that kept splitting the
same keys would become deeper with each key, and take quadratic time. Prints the time of an insert and of a query, the
number of leaves and the depth for growing numbers of keys. Fails if the depth exceeds a small multiple of the
logarithm.

    python tests/scripts/stress_identical.py
    python tests/scripts/stress_identical.py --most 10000000 --kinds 1 2 --features 16
"""

import argparse
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse

from cmt_numba import ContextualMemoryTree

_QUERIES = 10_000


def keys_of(n: int, n_kinds: int, n_features: int, sparse: bool) -> Any:
    """Return ``n`` keys, ``n_kinds`` of them distinct, in random order. If ``n_kinds`` is 0, all are zero."""
    rng = np.random.default_rng(n_kinds)
    kinds = rng.normal(size=(n_kinds, n_features)) if n_kinds else np.zeros((1, n_features))
    drawn = rng.integers(0, max(1, n_kinds), n)
    kinds = kinds.astype(np.float32)
    return scipy.sparse.csr_array(kinds)[drawn] if sparse else kinds[drawn]


def measured(keys: Any, n: int, n_trees: int) -> tuple[float, float, int, int]:
    """Return microseconds per insert and per query, the number of leaves of the first tree, and the depth."""
    tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
    started = time.perf_counter()
    tree.insert(keys[:n])
    inserted = time.perf_counter()
    hits = tree.query(keys[:_QUERIES], k=3)
    answered = time.perf_counter()
    length = 1.0 if keys.sum() != 0.0 else 0.0
    assert np.all(hits.ids >= 0)
    assert np.allclose(hits.scores, length, atol=1e-5)
    tree.check_invariants()
    leaves = int(np.count_nonzero(tree.leaves().tree == 0))
    n_asked = min(n, _QUERIES)
    return (inserted - started) / n * 1e6, (answered - inserted) / n_asked * 1e6, leaves, tree.depth


def main(words: list[str] | None = None) -> int:
    """Run the command line; return 1 if a tree was too deep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000, help="keys")
    parser.add_argument("--kinds", type=int, nargs="+", default=[0, 1, 2, 3], help="distinct keys, 0 for zeros")
    parser.add_argument("--features", type=int, default=4)
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--forms", nargs="+", choices=["dense", "sparse"], default=["dense", "sparse"])
    parser.add_argument(
        "--levels", type=float, default=4.0, help="times the depth of a balanced tree that trees may have at most"
    )
    given = parser.parse_args(words)
    failed = 0
    print(f"{'form':>6} {'kinds':>5} {'keys':>9} {'us/insert':>9} {'us/query':>8} {'leaves':>7} {'depth':>5}")
    for form in given.forms:
        for n_kinds in given.kinds:
            keys = keys_of(given.most, n_kinds, given.features, form == "sparse")
            measured(keys, min(given.most, 100), given.trees)  # compile
            for n in sorted({min(given.most, n) for n in (10_000, 100_000, given.most)}):
                insert, query, leaves, depth = measured(keys, n, given.trees)
                too_deep = depth > given.levels * max(1.0, np.log2(leaves))
                failed |= too_deep
                mark = "  too deep" if too_deep else ""
                print(f"{form:>6} {n_kinds:>5} {n:>9} {insert:>9.2f} {query:>8.2f} {leaves:>7} {depth:>5}{mark}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
