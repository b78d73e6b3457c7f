"""The learners that the paper compares, with scikit-learn's classifier interface.

:class:`MemoryTreeClassifier` is the paper's learner, a single tree with the examples as memories. The package's
``CMTClassifier`` is different: its memories are classes, and linear scorers choose among them.
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
    """The paper's classifier: a Contextual Memory Tree that predicts the label of the best memory.

    Parameters
    ----------
    n_update_passes : int, default 2
        Number of passes of queries, rewards and updates after ``fit`` has inserted the examples (the supervised
        protocol). With 0 the tree is unsupervised.
    k : int, default 10
        Number of memories rewarded for each example.
    epsilon : float, default 0.1
        Fraction of examples that explore.
    tree_options : dict, optional
        Parameters of ``ContextualMemoryTree`` (default: a single tree as in the paper, with ``random_state=0``).
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
        """Insert every example, then update in additional passes (section 4.2)."""
        self._start()
        self.labels_ = np.asarray(y)
        ids = self.tree_.insert(X)
        self.update(X, y, ids, self.n_update_passes)
        return self

    def update(self, X: Any, y: Any, ids: np.ndarray, n_passes: int) -> None:
        """Query with the stored examples and update, in ``n_passes`` passes.

        The results exclude the memory of the example itself, unless it is the only one of its class.
        """
        _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        own = np.where(counts[place] > 1, ids, -1)
        reward = LabelEquality(self.labels_, y)
        for _ in range(n_passes):
            self.tree_.learn(X, reward, own_ids=own, **self._as_in_the_paper())

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> MemoryTreeClassifier:
        """Query with new examples, update with the rewards, and insert the examples (the online protocol)."""
        if not hasattr(self, "tree_"):
            self._start()
        if self.tree_.n_memories > 0:
            self.tree_.learn(X, LabelEquality(self.labels_, y), **self._as_in_the_paper())
        self.tree_.insert(X)
        self.labels_ = np.concatenate([self.labels_, y]) if self.labels_.size else np.asarray(y)
        return self

    def _as_in_the_paper(self) -> dict[str, Any]:
        """Return the options of update passes that leave keys unchanged."""
        return {"k": self.k, "epsilon": self.epsilon, "key_learning_rate": 0.0}

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of the best memory of each row."""
        check_is_fitted(self, "tree_")
        labels: np.ndarray = self.labels_[self.tree_.query(X).ids[:, 0]]
        return labels


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
    """Return examples in Vowpal Wabbit's text format, with labels from 1."""
    rows = scipy.sparse.csr_array(X)
    cells = [f"{i}:{value:.5g}" for i, value in zip(rows.indices, rows.data, strict=True)]
    starts = rows.indptr.tolist()
    return [
        f"{label + 1} | " + " ".join(cells[a:b]) for label, a, b in zip(labels, starts[:-1], starts[1:], strict=True)
    ]
