"""The learners that the paper compares, with the interface of scikit-learn's classifiers.

The paper's own is :class:`MemoryTreeClassifier`, a single tree whose memories are the examples. ``CMTClassifier`` of
the package is another thing: its memories are classes, and a linear scorer for each decides.
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
from sklearn.utils.validation import check_is_fitted

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

_ROWS_AT_ONCE = 256


class MemoryTreeClassifier(ClassifierMixin, BaseEstimator):
    """A Contextual Memory Tree as the paper classifies with it: the label of the best memory is the answer.

    Parameters
    ----------
    n_update_passes : int, default 2
        How often ``fit`` goes through the examples again after it has inserted them, asking for each, rewarding what
        was found and updating: the supervised protocol. With 0 the tree is unsupervised.
    k : int, default 10
        Memories rewarded for each example.
    epsilon : float, default 0.1
        Share of the examples that explore.
    tree_options : dict, optional
        Options of ``ContextualMemoryTree``; by default the paper's tree: a single one, of ``random_state=0``.
    """

    def __init__(
        self, n_update_passes: int = 2, k: int = 10, epsilon: float = 0.1, tree_options: dict[str, Any] | None = None
    ) -> None:
        self.n_update_passes = n_update_passes
        self.k = k
        self.epsilon = epsilon
        self.tree_options = tree_options

    def _start(self) -> None:
        self.tree_ = ContextualMemoryTree(**{"n_threads": 1, "random_state": 0, **(self.tree_options or {})})
        self.labels_ = np.empty(0)

    def fit(self, X: Any, y: Any) -> MemoryTreeClassifier:
        """INSERT every example, then UPDATE in further passes (section 4.2)."""
        self._start()
        self.labels_ = np.asarray(y)
        ids = self.tree_.insert(X)
        self.update(X, y, ids, self.n_update_passes)
        return self

    def update(self, X: Any, y: Any, ids: np.ndarray, n_passes: int) -> None:
        """QUERY for stored examples and UPDATE, in ``n_passes`` passes.

        An example's own memory is not among its answers, unless there is no other of its class.
        """
        _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        own = np.where(counts[place] > 1, ids, -1)
        reward = LabelEquality(self.labels_, y)
        for _ in range(n_passes):
            self.tree_.learn(X, reward, own_ids=own, **self._as_in_the_paper())

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> MemoryTreeClassifier:
        """QUERY for new examples, UPDATE with what the answers were worth, and INSERT them: the online protocol."""
        if not hasattr(self, "tree_"):
            self._start()
        if self.tree_.n_memories > 0:
            self.tree_.learn(X, LabelEquality(self.labels_, y), **self._as_in_the_paper())
        self.tree_.insert(X)
        self.labels_ = np.concatenate([self.labels_, y]) if self.labels_.size else np.asarray(y)
        return self

    def _as_in_the_paper(self) -> dict[str, Any]:
        """Return options of passes, in which keys stay as they are."""
        return {"k": self.k, "epsilon": self.epsilon, "key_learning_rate": 0.0}

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of the best memory of each row."""
        check_is_fitted(self, "tree_")
        labels: np.ndarray = self.labels_[self.tree_.query(X).ids[:, 0]]
        return labels


class ExactNeighbour(ClassifierMixin, BaseEstimator):
    """The label of the example with the highest cosine, found by looking at all: a linear scan."""

    def fit(self, X: Any, y: Any) -> ExactNeighbour:
        """Keep examples of unit length."""
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
    """scikit-learn's linear support vector machine for each class, with no warning about many classes."""

    def fit(self, X: Any, y: Any) -> OneAgainstAll:
        """Learn every class against all others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().fit(X, y)
        return self


class VowpalWabbit(ClassifierMixin, BaseEstimator):
    """A reduction of Vowpal Wabbit, which the package ``vowpalwabbit`` must have been installed for.

    Parameters
    ----------
    reduction : str
        Options, in which ``{n_classes}`` and ``{n_examples}`` are filled in.
    n_passes : int, default 3
        Passes over the examples; the paper used three.
    """

    def __init__(self, reduction: str, n_passes: int = 3) -> None:
        self.reduction = reduction
        self.n_passes = n_passes

    def fit(self, X: Any, y: Any) -> VowpalWabbit:
        """Learn from examples, handed over as a file."""
        from vowpalwabbit import Workspace

        self.classes_, labels = np.unique(y, return_inverse=True)
        options = self.reduction.format(n_classes=self.classes_.size, n_examples=labels.size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "examples.txt"
            path.write_text("\n".join(_as_lines(X, labels)) + "\n")
            passes = f"--passes {self.n_passes} --cache_file {path}.cache -k --holdout_off" if self.n_passes > 1 else ""
            self.workspace_ = Workspace(f"{options} -d {path} {passes} --quiet")
            self.workspace_.run_parser()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row."""
        labels = np.array([self.workspace_.predict(line) for line in _as_lines(X, np.zeros(X.shape[0], np.int64))])
        classes: np.ndarray = self.classes_[np.clip(labels - 1, 0, self.classes_.size - 1)]
        return classes


def _as_lines(X: Any, labels: np.ndarray) -> list[str]:
    """Return examples in Vowpal Wabbit's text format; it counts labels from 1."""
    rows = scipy.sparse.csr_array(X)
    cells = [f"{i}:{value:.5g}" for i, value in zip(rows.indices, rows.data, strict=True)]
    starts = rows.indptr.tolist()
    return [
        f"{label + 1} | " + " ".join(cells[a:b]) for label, a, b in zip(labels, starts[:-1], starts[1:], strict=True)
    ]
