"""Small stores, the true scores of their memories, and calls that every store refuses."""

from typing import Any

import numpy as np
import pytest

from cmt_numba import MemoryStore
from cmt_numba.store import DuplicateKeyError

D = 8


def vectors(n: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(n, D)) * random.uniform(0.2, 3, size=(n, 1))).astype(np.float32)


def filled(n: int = 60, metric: str = "cosine", **options: Any) -> MemoryStore:
    store = MemoryStore(metric=metric, random_state=0, **options)
    store.add([f"k{i}" for i in range(n)], vectors(n), [{"n": i, "odd": i % 2 == 1} for i in range(n)])
    return store


def true_scores(metric: str, Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    Q, X = Q.astype(float), X.astype(float)
    if metric == "euclidean":
        return -np.sqrt(((Q[:, None] - X[None]) ** 2).sum(axis=2))
    if metric == "cosine":
        Q, X = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (Q, X))
    return np.einsum("ij,kj->ik", Q, X)


X2 = vectors(2)
BAD_CALLS = pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda s: s.add(["a", "k1"], X2), DuplicateKeyError, "'k1' is; use upsert"),
        (lambda s: s.add(["a", "k1"], X2), KeyError, "k1"),
        (lambda s: s.add(["a", "k1"], X2), ValueError, "k1"),
        (lambda s: s.add(["a", "a"], X2), ValueError, "occurs twice"),
        (lambda s: s.upsert(["a", "a"], X2), ValueError, "occurs twice"),
        (lambda s: s.add([1, 2], X2), TypeError, "strings,? like"),
        (lambda s: s.add(["a"], X2), ValueError, "2 rows of X, got 1"),
        (lambda s: s.add(["a", "b"], X2[:, :5]), ValueError, "8 features"),
        (lambda s: s.add(["a", "b"], X2 * 0), ValueError, "zeros: row 0"),
        (lambda s: s.add(["a", "b"], X2 * np.inf), ValueError, "finite"),
        (lambda s: s.add(["a", "b"], X2, [{}]), ValueError, "2 keys"),
        (lambda s: s.upsert(["k1", "b"], X2 * [[1], [np.nan]]), ValueError, "row 1"),
        (lambda s: s.upsert(["k1", "b"], X2, [{}, {"a": {1}}]), TypeError, "position 1"),
        (lambda s: s.delete(["k1", "b"]), KeyError, "but 'b' is not"),
        (lambda s: s.delete(["k1", "k1"]), ValueError, "twice"),
        (lambda s: s.delete([]), ValueError, "at least one"),
        (lambda s: s.get(["k1", "b"]), KeyError, "but 'b' is not"),
        (lambda s: s.get([True]), TypeError, "got True"),
        (lambda s: s.get("k1", limit=2), TypeError, "either keys"),
        (lambda s: s.get(limit=-1), ValueError, "limit must be"),
        (lambda s: s.get(offset=1.5), TypeError, "offset must be"),
        (lambda s: s.get(order_by=3), TypeError, "field"),
        (lambda s: s.get(order_by="-"), ValueError, "printable"),
        (lambda s: next(s.pages(size=0)), ValueError, "size must be"),
        (lambda s: s.add(["a", "b"], X2, expires=3), TypeError, "expires must be"),
        (lambda s: s.query(X2, min_score="a"), TypeError, "min_score must be"),
        (lambda s: s.query(X2 * 0), ValueError, "zeros"),
        (lambda s: s.query(X2, 0), ValueError, "k must be"),
        (lambda s: s.query(X2, target_recall=2), ValueError, "target_recall"),
        (lambda s: s.query(X2, where=3.5), TypeError, "keys must be"),
        (lambda s: s.query(X2, where={"a": {1: 2}}), ValueError, "unknown operator"),
        (lambda s: s.create_index('a"'), ValueError, "quotation"),
        (lambda s: s.feedback(X2, ["k1", "b"], [1, 1]), KeyError, "but 'b' is not"),
        (lambda s: s.feedback(X2, ["k1"], [1]), ValueError, "keys must have shape"),
        (lambda s: s.feedback(X2, ["k1", "k2"], [1, 2]), ValueError, "between 0 and 1"),
        (lambda s: s.feedback(X2, ["k1", "k2"], [1]), ValueError, "rewards must have shape"),
    ],
)
