"""Estimators of all kinds and their changes, for tests of interrupted changes and of changes while threads read."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from conftest import FORM_OF

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

Change = Callable[[Any], Any]

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 8)).astype(np.float32)
y = rng.integers(0, 12, 200)
Y = np.eye(15, dtype=int)[y] | np.eye(15, dtype=int)[(y + 1) % 15]

FEW: dict[str, Any] = {"n_head_passes": 2, "random_state": 0}


class Kind(NamedTuple):
    """A kind of estimator, rows with labels or values, and changes of an estimator fitted to the first 100 rows."""

    estimator: Any  # not fitted
    rows: Any
    labels: Any
    changes: dict[str, Change]

    def fitted(self) -> Any:
        """Return the estimator, fitted to the first 100 rows. A retriever also learns from rewards."""
        estimator = copy.deepcopy(self.estimator).fit(self.rows[:100], self.labels[:100])
        if isinstance(estimator, CMTRetriever):
            estimator.feedback(self.rows[190:], np.arange(10), np.ones(10))
        return estimator


def changes_of_classes(rows: Any, labels: Any, more_labels: Any) -> dict[str, Change]:
    return {
        "partial_fit": lambda e: e.partial_fit(rows[100:110], labels[100:110]),
        "long partial_fit": lambda e: e.partial_fit(rows[110:190], more_labels[110:190]),
        "partial_fit of a row": lambda e: e.partial_fit(rows[190:191], labels[190:191]),
    }


def changes_of_values(rows: Any, values: Any) -> dict[str, Change]:
    return {
        "partial_fit": lambda e: e.partial_fit(rows[100:150], values[100:150]),
        "feedback": lambda e: e.feedback(rows[150:190], np.arange(40), np.linspace(0.0, 1.0, 40)),
        "set_values": lambda e: e.set_values(np.arange(20), values[20:40]),
        "remove": lambda e: e.remove(np.arange(5, 30)),
    }


def kinds(form: str = "dense") -> dict[str, Kind]:
    """Return the kinds of estimators by name, with dense or sparse rows."""
    rows = FORM_OF[form](X if form == "dense" else X * (X > 0.0))
    of_classifier = changes_of_classes(rows, y, y + 1) | {
        "remove": lambda e: e.remove(np.arange(7)),
        "remove_classes": lambda e: e.remove_classes([3]),
    }
    of_retriever = changes_of_values(rows, y) | {"replace": lambda e: e.replace(np.arange(50, 90), rows[:40])}
    by_key = CMTRetriever("key", random_state=0)
    by_value = CMTRetriever("value", n_components=4, random_state=0)
    return {
        "classifier": Kind(CMTClassifier(**FEW), rows, y, of_classifier),
        "multilabel": Kind(CMTMultilabelClassifier(**FEW), rows, Y, changes_of_classes(rows, Y, Y)),
        "retriever by key": Kind(by_key, rows, y, of_retriever),
        "retriever by value": Kind(by_value, rows, X[:, :5], changes_of_values(rows, X[:, :5])),
    }
