"""Rivals: simple models with which an estimator is compared."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from .. import metrics
from ._tasks import alike

RIVALS = ("majority", "exact", "means", "linear", "bm25")  # names of the rivals
_MIN_QUERIES = 100
_CELLS = 2**20  # maximum size of a block of scores
_PRODUCTS = 2**30  # maximum number of products of queries and stored rows, beyond which fewer queries are measured
_LINEAR_WORK = 5 * 10**8  # maximum number of training values times labels for a linear model, about 30 seconds


class Rival(NamedTuple):
    """Result of a rival on the test examples of the last run. If examples are texts, rivals use their tf-idf."""

    name: str
    """One of ``"majority"`` (the most frequent class, or the labels of more than half of the rows), ``"exact"`` (the
    nearest training example by cosine), ``"means"`` (the nearest class mean by cosine), ``"linear"`` (scikit-learn's
    LinearSVC, with one model per label for label sets), ``"bm25"`` (the training text with the highest BM25 score), or
    ``"estimator"`` for the estimator itself."""
    value: float | None
    """Main measure of the task, ``"error"`` or ``"hamming"``, or None if the rival was skipped."""
    seconds_fit: float | None = None
    """Training time in seconds."""
    us_per_query: float | None = None
    """Time per prediction, in microseconds."""
    note: str = ""
    """Reason for skipping the rival, or the number of measured examples if some were not measured."""


class Split(NamedTuple):
    """Training and test examples with optional texts."""

    X: Any
    X_test: Any
    y: Any
    y_test: Any
    texts: Sequence[str] | None = None
    texts_test: Sequence[str] | None = None


def check_rivals(names: Sequence[str], task: str, texts: Any) -> list[str]:
    """Validate the names of rivals, and remove duplicates."""
    if isinstance(names, str):
        raise TypeError(f"rivals must be a sequence of names, got {names!r}: write [{names!r}]")
    for name in names:
        if name not in RIVALS:
            raise ValueError(f"each rival must be one of {', '.join(RIVALS)}, got {name!r:.50}")
    if names and task == "retrieval":
        raise ValueError("rivals are not supported for retrieval, only for classification: omit rivals")
    if "bm25" in names and texts is None:
        raise ValueError("the rival 'bm25' needs texts: pass texts, or omit 'bm25'")
    return list(dict.fromkeys(names))


def measure_rival(name: str, task: str, split: Split, seed: int) -> Rival:
    """Fit a rival and measure its predictions."""
    if np.ndim(split.X) == 1:  # texts
        vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
        if not any(map(vectorizer.build_analyzer(), split.X)):
            return Rival(name, None, note="skipped: the texts have no words of at least two letters")
        split = split._replace(X=vectorizer.fit_transform(split.X), X_test=vectorizer.transform(split.X_test))
    split = split._replace(X=_matrix(split.X), X_test=_matrix(split.X_test))
    if task == "multilabel":
        Y, Y_test = alike(split.y, split.y_test)
        split = split._replace(y=Y, y_test=Y_test)
    else:
        split = split._replace(y=np.asarray(split.y), y_test=np.asarray(split.y_test))
    n_labels = split.y.shape[1] if task == "multilabel" else np.unique(split.y).size
    if name == "means" and task == "multilabel":
        return Rival(name, None, note="skipped: needs one class for each example")
    if name == "linear":
        if n_labels < 2:
            return Rival(name, None, note="skipped: there is one class")
        values = split.X.nnz if scipy.sparse.issparse(split.X) else split.X.size
        if values * n_labels > _LINEAR_WORK:
            return Rival(name, None, note=f"skipped: {values:,} values and {n_labels:,} labels would take minutes")
    n, n_all = split.X_test.shape[0], split.X_test.shape[0]
    if name in ("exact", "bm25"):
        n = min(n, max(_MIN_QUERIES, _PRODUCTS // split.X.shape[0]))
    if n < n_all:
        chosen = np.sort(np.random.default_rng(seed).permutation(n_all)[:n])
        texts = None if split.texts_test is None else [split.texts_test[i] for i in chosen]
        split = split._replace(X_test=split.X_test[chosen], y_test=split.y_test[chosen], texts_test=texts)
    start = time.perf_counter()
    predict = _LEARN[name](split, task)
    learned = time.perf_counter()
    answers = predict()
    seconds = time.perf_counter() - learned
    note = "" if n == n_all else f"on {n:,} of the held-out examples"
    is_multilabel = task == "multilabel"
    value = metrics.hamming(split.y_test, answers) if is_multilabel else float(np.mean(answers != split.y_test))
    return Rival(name, value, learned - start, 1e6 * seconds / n, note)


def _matrix(X: Any) -> Any:
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    if not scipy.sparse.issparse(X):
        return np.asarray(X, np.float32)
    X = scipy.sparse.csr_array(X)
    if max(X.nnz, X.shape[1]) <= np.iinfo(np.int32).max:  # LinearSVC requires int32 indices
        X = scipy.sparse.csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
    return X


def _majority(split: Split, task: str) -> Callable[[], Any]:
    n = split.X_test.shape[0]
    if task == "multilabel":
        common = np.asarray(split.y.mean(axis=0)).ravel() > 0.5
        return lambda: scipy.sparse.csr_array(np.tile(common.astype(np.int64), (n, 1)))
    classes, counts = np.unique(split.y, return_counts=True)
    return lambda: np.full(n, classes[counts.argmax()])


def _exact(split: Split, task: str) -> Callable[[], Any]:
    stored = normalize(split.X)
    return lambda: split.y[_best(stored, split.X_test)]


def _means(split: Split, task: str) -> Callable[[], Any]:
    classes, places = np.unique(split.y, return_inverse=True)
    n = len(split.y)
    ones = scipy.sparse.csr_array((np.ones(n, np.float32), (places, np.arange(n))), (classes.size, n))
    means = normalize(ones @ normalize(split.X))
    return lambda: classes[_best(means, split.X_test)]


def _linear(split: Split, task: str) -> Callable[[], Any]:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    model: Any = LinearSVC(random_state=0)
    if task == "multilabel":
        model = OneVsRestClassifier(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # scikit-learn warns about labels of all examples or of none.
        warnings.filterwarnings("ignore", "Label .* is present in", UserWarning)
        model.fit(split.X, split.y)
    if task == "multilabel":
        return lambda: scipy.sparse.csr_array(model.predict(split.X_test))
    return lambda: model.predict(split.X_test)


def _bm25(split: Split, task: str) -> Callable[[], Any]:
    from ..text import BM25Vectorizer

    vectorizer = BM25Vectorizer()
    stored = vectorizer.fit_transform(split.texts or [])
    return lambda: split.y[_best(stored, vectorizer.transform(split.texts_test or []))]


def _best(stored: Any, rows: Any) -> np.ndarray:
    """Return the position of the stored row with the largest dot product for each row."""
    by_feature = stored.T.tocsr() if scipy.sparse.issparse(stored) else stored.T
    size = max(1, _CELLS // stored.shape[0])
    found = []
    for first in range(0, rows.shape[0], size):
        products = rows[first : first + size] @ by_feature
        products = products.toarray() if scipy.sparse.issparse(products) else products
        found.append(products.argmax(axis=1))
    return np.concatenate(found)


_LEARN: dict[str, Callable[[Split, str], Callable[[], Any]]] = {
    "majority": _majority,
    "exact": _exact,
    "means": _means,
    "linear": _linear,
    "bm25": _bm25,
}
