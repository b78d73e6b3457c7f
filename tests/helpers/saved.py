"""Small objects to save, one of each kind, and checks of loaded ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from internals import estimators_label_index, forest_of, model_of, prove
from mutations import PREAMBLE

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.persistence import FileFormatError

KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (ContextualMemoryTree, CMTClassifier, CMTMultilabelClassifier, CMTRetriever)
}


def dense_rows(n: int, n_features: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_features)).astype(np.float32)


def sparse_rows(n: int, n_features: int, seed: int = 0) -> scipy.sparse.csr_array:
    random = np.random.default_rng(seed)
    rows = scipy.sparse.random_array((n, n_features), density=6 / n_features, format="csr", random_state=random)
    return scipy.sparse.csr_array(rows, dtype=np.float32)


def new_tree(X: Any, **options: Any) -> ContextualMemoryTree:
    """Return a tree after inserts, removals, reroutes and rewards."""
    tree = ContextualMemoryTree(random_state=3, n_threads=1, **options)
    ids = tree.insert(X)
    tree.remove(ids[::4])
    tree.reroute(20)
    tree.insert(X[: len(ids) // 8])
    hits = tree.query(X, 3, epsilon=0.5)
    prove(tree)
    tree.update(X, hits, np.random.default_rng(4).random(hits.ids.shape))
    forest_of(tree).evidence.sums.sums[:] = 0.0
    tree.update(X[:9], tree.query(X[:9], 3), np.full((9, 3), 0.5))  # these rows wait for evidence
    return tree


def bounded(X: Any, eviction: str) -> ContextualMemoryTree:
    """Return a bounded tree that has evicted memories."""
    n = X.shape[0]
    tree = ContextualMemoryTree(2, max_memories=n + n // 2, eviction=eviction, random_state=3, n_threads=1)
    tree.insert(X)
    tree.query(X[::3], 2)
    tree.insert(-X)
    tree.remove(tree.ids[::7])
    return tree


def several_labels(n: int, n_labels: int, seed: int = 0) -> scipy.sparse.csr_array:
    """Return the labels of rows: the first labels are frequent, all others rare."""
    random = np.random.default_rng(seed)
    share = np.where(np.arange(n_labels) < 5, 0.2, 6 / n_labels)
    return scipy.sparse.csr_array((random.random((n, n_labels)) < share).astype(np.int8))


def objects(n: int = 60) -> dict[str, Any]:
    """Return small objects of all kinds by name."""
    dense, sparse = dense_rows(n, 5), sparse_rows(n, 40)
    y = np.arange(n) % 12
    things = [{"row": [i, None]} for i in y.tolist()]
    words = np.array([f"word {label}" for label in y])
    return {
        "empty": ContextualMemoryTree(n_trees=2, random_state=1),
        "dense": new_tree(dense),
        "dense forest": new_tree(dense, n_trees=3, leaf_multiplier=1.0),
        "sparse": new_tree(sparse, leaf_multiplier=1.0),
        "sparse forest": new_tree(sparse, n_trees=2, router_loss="logistic"),
        "bounded": bounded(dense, "least_recently_returned"),
        "bounded by age": bounded(sparse, "oldest"),
        "classifier": CMTClassifier(random_state=0).fit(dense, words),
        "sparse classifier": _with_posting_lists(sparse, words.astype(object)),
        "softmax classifier": CMTClassifier(random_state=0, loss="softmax", store_examples=False).fit(sparse, y),
        "multilabel classifier": CMTMultilabelClassifier(random_state=0).fit(sparse, several_labels(n, 30)),
        "pair classifier": CMTMultilabelClassifier(random_state=0, store_examples=False).fit(dense, words == words[0]),
        "retriever by value": CMTRetriever(random_state=0, n_components=4).fit(sparse, dense_rows(n, 9, 1)),
        "retriever of directions": CMTRetriever(random_state=0).fit(dense, sparse_rows(n, 6, 1)),
        "retriever of objects": CMTRetriever(random_state=0).fit(sparse, things),
        "retriever after removals": _after_removals(CMTRetriever(random_state=0).fit(dense, words), dense),
    }


def _with_posting_lists(X: Any, y: Any) -> CMTClassifier:
    """Return a classifier that searches for classes as if there were very many."""
    most, estimators_label_index.MAX_SCORED_SPARSE = estimators_label_index.MAX_SCORED_SPARSE, 0
    try:
        return CMTClassifier(random_state=0, n_head_passes=2).fit(X, y)
    finally:
        estimators_label_index.MAX_SCORED_SPARSE = most


def _after_removals(retriever: CMTRetriever, X: Any) -> CMTRetriever:
    """Return a retriever after further inserts and some removals."""
    retriever.feedback(-X[:10], np.arange(10), np.ones(10))
    return retriever.remove(np.arange(3, X.shape[0], 4))


def load_any(path: Path) -> Any:
    """Return the object in a file, of any kind."""
    file = path.read_bytes()
    kind = "ContextualMemoryTree"
    try:
        length = PREAMBLE.unpack_from(file)[3]
        kind = json.loads(file[PREAMBLE.size : PREAMBLE.size + min(length, 1 << 20)])["kind"]
        reader = KINDS[kind]
    except Exception:  # the reader must report the error
        reader = ContextualMemoryTree
    return reader.load(path)


def check(loaded: Any) -> None:
    """Check a loaded object, and query it."""
    if isinstance(loaded, ContextualMemoryTree):
        _check_tree(loaded)
        return
    if not loaded.__sklearn_is_fitted__():
        return
    loaded.check_invariants()
    sparse = (
        model_of(loaded).sparse if isinstance(loaded, CMTRetriever) else model_of(loaded).index.head.parameters.sparse
    )
    d = loaded.n_features_in_
    try:
        rows = sparse_rows(7, d) if sparse else dense_rows(7, d)
        loaded.predict(rows)
        if getattr(loaded, "store_examples", True):
            loaded.kneighbors(rows, n_neighbors=3)
    except LookupError:
        assert isinstance(loaded, CMTRetriever)  # all memories may have been removed
        assert loaded.n_memories_ == 0
    n_passes = max(getattr(loaded, name, 0) or 0 for name in _PASSES)
    if d <= 10_000 and n_passes <= 20:
        _learn(loaded, rows)
        loaded.check_invariants()


_PASSES = ("n_head_passes", "n_value_passes")


def _learn(loaded: Any, rows: Any) -> None:
    """Make an estimator learn and, if it can, forget."""
    if isinstance(loaded, CMTRetriever):
        ids = model_of(loaded).memories.ids
        if ids.size >= 6:
            loaded.feedback(rows[:2], ids[:2], [1.0, 0.0])
            if loaded.search_ == "key":
                loaded.replace(ids[:3], rows[:3])
            loaded.set_values(ids[2:4], loaded.values(ids[:2]))
            values = loaded.values(ids[:4])
            loaded.remove(ids[:5])
            loaded.check_invariants()
            loaded.partial_fit(rows[:4], values)
    elif isinstance(loaded, CMTClassifier):
        loaded.partial_fit(rows[:1], loaded.classes_[:1])
        loaded.check_invariants()
        loaded.partial_fit(rows, loaded.classes_[np.arange(7) % loaded.classes_.size])
    elif model_of(loaded).pair is not None:
        loaded.partial_fit(rows, model_of(loaded).pair[np.arange(7) % model_of(loaded).pair.size])
    elif loaded.n_labels_ <= 1000:
        loaded.partial_fit(rows, np.arange(7)[:, None] == np.arange(loaded.n_labels_ + 2) % 9)


def _check_tree(tree: ContextualMemoryTree) -> None:
    tree.check_invariants()
    if tree.n_features is None or tree.n_features > 10_000:
        return
    sparse = forest_of(tree).allocated().parameters.sparse
    rows = sparse_rows(20, tree.n_features, 9) if sparse else dense_rows(20, tree.n_features, 9)
    hits = tree.query(rows, 3, 5, epsilon=0.3)
    if forest_of(tree).options["n_reroutes"] > 100:
        return
    tree.update(rows, hits, np.full((20, 3), 0.5))
    tree.remove(tree.ids[:5]) if len(tree) >= 5 else None
    tree.insert(rows)
    tree.reroute(5)


__all__ = ["FileFormatError", "check", "load_any", "objects"]


def saved(thing: Any, path: Path) -> bytes:
    """Save an object, and return the bytes of the file."""
    thing.save(path)
    return path.read_bytes()
