"""Print a digest of trees, and of what they answer, to compare machines and versions of libraries.

The same seed and calls give the same trees wherever the same machine code runs. With other vector instructions sums of
products are added up in another order, so that weights and scores differ in their last digits. The output shows
from which step on two installations differ, and how: in weights alone (``state``), in the trees (``shape``), or in what
is answered (``ids``).

    python tests/digest_trees.py > here
    NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR=elsewhere python tests/digest_trees.py | diff here -
"""

import hashlib
import platform
import sys
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import scipy.sparse
from internals import contents_of

from cmt_numba import ContextualMemoryTree

_ROWS = 2000


def digest(arrays: Iterator[np.ndarray] | tuple[np.ndarray, ...]) -> str:
    """Return a digest of the types, the shapes and all bytes of arrays."""
    state = hashlib.blake2b(digest_size=8)
    for array in arrays:
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def arrays_of(tree: ContextualMemoryTree) -> Iterator[np.ndarray]:
    """Yield all that a tree holds, as it would be saved: in use, and in order."""
    arrays = contents_of(tree)().arrays
    for name in sorted(arrays):
        yield arrays[name]


def shape_of(tree: ContextualMemoryTree) -> tuple[np.ndarray, ...]:
    """Return which memories lie together: what routers have decided, without their weights."""
    leaves = tree.leaves()
    return leaves.tree, leaves.depth, leaves.size


def grid_rows(n: int, n_features: int, seed: int, sparse: bool) -> Any:
    """Return rows of small whole numbers, so that none of their digits depends on a library."""
    bits = np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << 30, (n, n_features))
    rows = ((bits & 15) - 8).astype(np.float32)
    if sparse:
        rows *= bits >> 4 & 15 == 0
        return scipy.sparse.csr_array(rows)
    return rows


def steps(sparse: bool, n_trees: int, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what has been done to a forest, and a digest of what it is or answers then."""
    n_features = 300 if sparse else 37
    keys, more = (grid_rows(_ROWS, n_features, seed, sparse) for seed in (1, 2))
    tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=7, **options)

    def state_after(what: str) -> Iterator[tuple[str, str]]:
        tree.check_invariants()
        yield f"{what}: shape", digest(shape_of(tree))
        yield f"{what}: state", digest(arrays_of(tree))

    ids = tree.insert(keys)
    yield "ids", digest((ids,))
    yield from state_after("insert")
    hits = tree.query(more, k=5, n_probes=3 * n_trees)
    yield "query: ids", digest((hits.ids,))
    yield "query: scores", digest((hits.scores,))
    hits = tree.query(more, k=5, epsilon=0.5)
    tree.update(more, hits, hits.ids % 4 / 3.0 * (hits.ids >= 0))
    yield from state_after("update")
    tree.remove(ids[::3])
    yield from state_after("remove")
    tree.reroute(500)
    yield from state_after("reroute")
    tree.teach(keys[1::3], ids[1::3])
    yield from state_after("teach")
    tree.compact()
    hits = tree.query(more, k=5, n_probes=3 * n_trees)
    yield "last query: ids", digest((hits.ids,))
    yield "last query: scores", digest((hits.scores,))


FORESTS: dict[str, tuple[bool, int, dict[str, Any]]] = {
    "dense": (False, 1, {}),
    "dense forest": (False, 3, {"leaf_multiplier": 1.0, "scorer_loss": "contrast"}),
    "dense logistic": (False, 1, {"router_loss": "logistic", "scorer_loss": "regression"}),
    "sparse": (True, 1, {}),
    "sparse forest": (True, 3, {"leaf_multiplier": 1.0, "router_loss": "logistic"}),
}


def main() -> int:
    """Run the command line."""
    versions = f"numba {numba.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    print(f"{versions}, {numba.config.CPU_NAME or 'this processor'}", file=sys.stderr)
    for name, forest in FORESTS.items():
        for step, value in steps(*forest):
            print(f"{value}  {name}: {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
