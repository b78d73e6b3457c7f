"""The learners that the paper compares, with scikit-learn's classifier interface.

:func:`memory_tree` is the paper's learner, a single tree with the examples as memories. By default, ``CMTClassifier``
is different: it has a linear scorer for each class, and no tree.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

_ROWS_AT_ONCE = 256


def memory_tree(n_passes: int | None = None, seed: int = 0, **options: Any) -> CMTClassifier:
    """Return the paper's classifier: a tree with these options, which predicts the class of the best memory.

    ``n_passes`` is the number of passes of queries, rewards and updates after ``fit`` has inserted the examples (the
    supervised protocol, section 4.2), by default 2. With 0, the tree is unsupervised.
    """
    tree = ContextualMemoryTree(**{"n_threads": 1, **options})
    return CMTClassifier(method="tree", tree=tree, n_head_passes=n_passes, random_state=seed)


def update(classifier: CMTClassifier, X: Any, y: np.ndarray) -> None:
    """Query with the examples of a tree in the order of their ids, and update, in one more pass."""
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    own = np.where(counts[place] > 1, np.arange(y.size), -1)  # the only example of its class may find itself
    classifier.tree_.learn(X, LabelEquality(y, y), own_ids=own, k=10, epsilon=0.1, key_learning_rate=0.0)


class ExactNeighbour(ClassifierMixin, BaseEstimator):
    """Predict the label of the example with the highest cosine, by a linear scan."""

    def fit(self, X: Any, y: Any) -> ExactNeighbour:
        """Store the examples, scaled to unit length."""
        self.keys_ = X.T.tocsr() if scipy.sparse.issparse(X) else np.ascontiguousarray(X.T)
        self.labels_ = np.asarray(y)
        return self

    def kneighbors(self, X: Any) -> np.ndarray:
        """Return the position of each row's nearest example."""
        nearest = [np.empty(0, np.int64)]
        for first in range(0, X.shape[0], _ROWS_AT_ONCE):
            cosines = X[first : first + _ROWS_AT_ONCE] @ self.keys_
            nearest.append((cosines.toarray() if scipy.sparse.issparse(cosines) else cosines).argmax(axis=1))
        return np.concatenate(nearest)

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of each row's nearest example."""
        return self.labels_[self.kneighbors(X)]


class OneAgainstAll(LinearSVC):  # type: ignore[misc]
    """scikit-learn's one-against-all linear support vector machine, without its warning about many classes."""

    def fit(self, X: Any, y: Any) -> OneAgainstAll:
        """Train each class against all others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().fit(X, y)
        return self


class VowpalWabbit(ClassifierMixin, BaseEstimator):
    """A reduction of Vowpal Wabbit; requires the package ``vowpalwabbit``.

    Parameters
    ----------
    reduction : str
        Command-line options with the placeholders ``{n_classes}`` and ``{n_examples}``.
    n_passes : int, default 3
        Passes over the examples; the paper used three.
    """

    def __init__(self, reduction: str, n_passes: int = 3) -> None:
        self.reduction = reduction
        self.n_passes = n_passes

    def fit(self, X: Any, y: Any) -> VowpalWabbit:
        """Train on the examples, written to a temporary file."""
        from vowpalwabbit import Workspace

        self.classes_, labels = np.unique(y, return_inverse=True)
        options = self.reduction.format(n_classes=self.classes_.size, n_examples=labels.size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "examples.txt"
            path.write_text("\n".join(as_lines(X, labels)) + "\n")
            passes = f"--passes {self.n_passes} --cache_file {path}.cache -k --holdout_off" if self.n_passes > 1 else ""
            self.workspace_ = Workspace(f"{options} -d {path} {passes} --quiet")
            self.workspace_.run_parser()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row."""
        labels = np.array([self.workspace_.predict(line) for line in as_lines(X, np.zeros(X.shape[0], np.int64))])
        classes: np.ndarray = self.classes_[np.clip(labels - 1, 0, self.classes_.size - 1)]
        return classes


def as_lines(X: Any, labels: np.ndarray) -> list[str]:
    """Return examples in Vowpal Wabbit's text format, with labels from 1."""
    rows = scipy.sparse.csr_array(X)
    cells = [f"{i}:{value:.5g}" for i, value in zip(rows.indices, rows.data, strict=True)]
    starts = rows.indptr.tolist()
    return [
        f"{label + 1} | " + " ".join(cells[a:b]) for label, a, b in zip(labels, starts[:-1], starts[1:], strict=True)
    ]
