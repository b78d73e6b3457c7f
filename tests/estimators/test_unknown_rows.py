"""Rows without a feature that a classifier knows."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from cmt_numba import CMTClassifier

SIZES = {"a": 4, "common": 40, "middle": 12, "z": 3}


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of classes of different sizes, each with features of its own. The last feature never occurs."""
    rng, y = np.random.default_rng(0), np.repeat(list(SIZES), list(SIZES.values()))
    X = np.zeros((y.size, 17), np.float32)
    for place, name in enumerate(SIZES):
        rows = np.flatnonzero(y == name)
        X[rows[:, None], 4 * place + rng.integers(0, 4, (rows.size, 2))] = 1.0
    return X, y


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_the_most_frequent_class_is_predicted(form: Any):
    X, y = examples()
    classifier = CMTClassifier(feature_weights="none", random_state=0).fit(form(X), y)
    unknown = np.zeros((3, 17), np.float32)
    unknown[1, 16] = 1.0
    asked = form(np.vstack([unknown, X[:2]]))
    for rows in (asked, asked[:3], asked[[0]], asked[[1]]):
        best = classifier.predict(rows)
        assert best[: min(3, rows.shape[0])].tolist() == ["common"] * min(3, rows.shape[0])
        assert best.tolist() == classifier.classes_[classifier.predict_proba(rows).argmax(axis=1)].tolist()
        assert best.tolist() == classifier.classes_[classifier.decision_function(rows).argmax(axis=1)].tolist()
        places, _ = classifier.top_classes(rows, 3)
        assert best.tolist() == classifier.classes_[places[:, 0]].tolist()
        assert all(len(set(row)) == 3 for row in places.tolist())
    assert classifier.predict(asked, reject_below=0.5)[:3].tolist() == [""] * 3
