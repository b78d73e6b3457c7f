"""Kill processes while they change a retriever in a folder, as ``kill_classifier.py`` does with a classifier.

python tests/scripts/kill_retriever.py 250 --search key
"""

import argparse
import sys
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from kill_classifier import Killed, kill_changes_of

from cmt_numba import CMTRetriever

_FEATURES, _WIDTH = 6, 3


def memories(n: int, seed: int, search: str) -> tuple[Any, Any]:
    """Return sparse keys with objects as their values, or dense ones with vectors if these are searched."""
    rng = np.random.default_rng([seed, 5])
    X = rng.normal(size=(n, _FEATURES)).round(3)
    if search == "value":
        return X, (X @ np.random.default_rng(0).normal(size=(_FEATURES, _WIDTH))).round(3)
    return scipy.sparse.csr_array(np.maximum(X, 0.0)), [{"name": f"memory {seed}", "part": part} for part in range(n)]


def change(retriever: CMTRetriever, number: int, *, search: str) -> None:
    """Make the change of this number. Which one it is depends on the number and on the retriever alone."""
    rng = np.random.default_rng([number, 3])
    X, y = memories(int(rng.integers(2, 12)), number, search)
    draw = rng.random()
    if number < 3 or draw < 0.3 or retriever.n_memories_ < 8:
        retriever.partial_fit(X, y, sample_weight=rng.integers(1, 3, X.shape[0]) if draw < 0.1 else None)
    elif draw < 0.6:
        hits = retriever.query(X, 3, epsilon=0.5)  # draws random numbers
        retriever.feedback(X, hits.ids, np.where(hits.ids == -1, 0.0, rng.random(hits.ids.shape).round(2)))
    elif draw < 0.75:
        retriever.remove(rng.choice(retriever._model.memories.ids, 3, replace=False))
    elif draw < 0.85:
        retriever.set_values(rng.choice(retriever._model.memories.ids, 2, replace=False), y[:2])
    elif draw < 0.95 and search == "key":
        retriever.replace(rng.choice(retriever._model.memories.ids, 2, replace=False), X[:2])
    elif draw < 0.95:
        retriever.set_params(regularization=float(rng.choice([1.0, 3.0])))
        retriever.partial_fit(X, y)
    else:
        retriever.fit(*memories(20, number, search))


def assert_equal(one: CMTRetriever, other: CMTRetriever, *, search: str) -> None:
    """Fail unless two retrievers are the same, bit for bit."""
    if not hasattr(other, "forest_"):
        assert not hasattr(one, "forest_")
        return
    one.check_invariants()
    kept, wanted = one._contents(), other._contents()
    assert kept.fields["attributes"] == wanted.fields["attributes"]
    np.testing.assert_equal(kept.arrays, wanted.arrays)
    X, _ = memories(30, 0, search)
    for found, expected in zip(one.kneighbors(X, 3), other.kneighbors(X, 3), strict=True):
        np.testing.assert_array_equal(found, expected)


def killed_retriever(search: str) -> Killed:
    """Return a retriever that searches by key or by value."""
    new = partial(CMTRetriever, search=search, random_state=7)
    return Killed(new, partial(change, search=search), partial(assert_equal, search=search))


def main() -> int:
    """Run the command line; an assertion fails if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes while they change a retriever in a folder.")
    parser.add_argument("number", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", choices=["key", "value"], default="value")
    given = parser.parse_args()
    n = kill_changes_of(given.number, given.seed, killed_retriever(given.search))
    print(f"{given.number} killed, {n} changes; nothing lost, and the retriever is the same bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
