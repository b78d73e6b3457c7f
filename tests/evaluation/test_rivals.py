"""What stands beside an evaluated estimator: simple rivals, the classes that are confused, and calibration."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin

from cmt_numba.evaluation import RIVALS, batch_evaluation
from cmt_numba.evaluation._answers import calibration_error
from cmt_numba.evaluation._rivals import Split, check_rivals, measure_rival


def topics(n: int, seed: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Return counts of words, the texts that have them, and their classes: three words tell each of four topics."""
    words = [f"word{i}" for i in range(30)]
    rng = np.random.default_rng(seed)
    of_row = rng.integers(4, size=n)
    chosen = np.concatenate([3 * of_row[:, None] + rng.integers(3, size=(n, 2)), rng.integers(12, 30, (n, 2))], axis=1)
    X = np.array([np.bincount(row, minlength=30) for row in chosen], np.float32)
    return X, [" ".join(words[i] for i in row) for row in chosen], [f"topic {i}" for i in of_row]


class Majority(ClassifierMixin, BaseEstimator):
    """Says the most frequent class, and is as sure of it as it should be."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.shares_, (X.shape[0], 1))


class NoLabels(BaseEstimator):
    """Says that no row has a label."""

    def fit(self, X: Any, Y: Any) -> Any:
        self.width_ = Y.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return scipy.sparse.csr_array((X.shape[0], self.width_), dtype=np.int64)


def with_long_indices(X: np.ndarray) -> Any:
    rows = scipy.sparse.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


@pytest.mark.parametrize("form", [np.asarray, with_long_indices, pd.DataFrame])
def test_rivals_of_classes(form: Any):
    (X, texts, y), (asked, texts_asked, wanted) = topics(300, 0), topics(100, 1)
    beside = {"rivals": RIVALS, "texts": texts, "texts_test": texts_asked, "details": True}
    result = batch_evaluation(Majority(), form(X), y, form(asked), wanted, seeds=(0,), **beside)
    found = {one.name: one for one in result.rivals}
    assert list(found) == ["estimator", *RIVALS]
    assert found["estimator"].value == found["majority"].value == result.metrics["error"][0] > 0.6
    assert all(found[name].value < 0.3 for name in ("exact", "means", "linear", "bm25"))
    assert found["linear"].value == 0.0
    assert all(one.us_per_query > 0 and one.note == "" for one in result.rivals)
    # The other classes are all taken for the most frequent one.
    assert [one.predicted for one in result.confused] == [result.confused[0].predicted] * 3
    assert sum(one.n for one in result.confused) == round(100 * result.metrics["error"][0])
    assert all(set(one.examples) <= set(texts_asked) for one in result.confused)
    (probability,), (accuracy,) = result.calibration["probability"], result.calibration["accuracy"]
    assert abs(probability - accuracy) == pytest.approx(calibration_error(result.calibration))
    assert accuracy == pytest.approx(result.metrics["accuracy"][0])
    json.dumps(result.as_dict())


def test_rivals_of_many_examples(monkeypatch):
    (X, texts, y), (asked, texts_asked, wanted) = topics(200, 0), topics(150, 1)
    for limit in ("_PRODUCTS", "_LINEAR_WORK"):
        monkeypatch.setattr(f"cmt_numba.evaluation._rivals.{limit}", 1)
    split = Split(X, asked, y, wanted, texts, texts_asked)
    exact, linear = (measure_rival(name, "multiclass", split, 0) for name in ("exact", "linear"))
    assert exact.value < 0.3
    assert exact.note == "on 100 of the held-out examples"
    assert linear.value is None
    assert linear.note == "skipped: 6,000 values and 4 labels would take minutes"
    letters = np.array(["a", ""], object)
    skipped = measure_rival("exact", "multiclass", Split(letters, letters, np.arange(2), np.arange(2)), 0)
    assert skipped.note == "skipped: the texts have no words of at least two letters"


def test_confused_rows_are_named_by_their_positions():
    X, _, y = topics(400, 0)
    result = batch_evaluation(Majority(), X, y, holdout=0.5, seeds=(0, 1), rivals=["means"], details=True)
    assert len(result.confused) == 3
    assert all(y[row] == one.label for one in result.confused for row in one.examples)


def test_rivals_of_labels():
    X, _, y = topics(200, 0)
    Y = scipy.sparse.csr_array(np.array(y)[:, None] == np.array([*np.unique(y), "never"])).astype(np.int64)
    names = ["majority", "exact", "means", "linear"]
    result = batch_evaluation(NoLabels(), X, Y, seeds=(0,), rivals=names, details=True)
    found = {one.name: one for one in result.rivals}
    assert found["majority"].value == found["estimator"].value == result.metrics["hamming"][0]
    assert max(found["linear"].value, found["exact"].value) < 0.1 * found["majority"].value
    assert "one class for each" in found["means"].note
    assert result.confused == []


def test_invalid_rivals():
    X, texts, y = topics(20, 0)
    for options, message in (
        ({"rivals": ["oracle"]}, "majority, exact, means, linear, bm25, got 'oracle'"),
        ({"rivals": ["bm25"]}, "needs texts"),
        ({"texts": texts[:3]}, "one entry for each of the 20 rows, got 3"),
        ({"texts_test": texts}, "texts_test must be"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_evaluation(Majority(), X, y, seeds=(0,), **options)
    with pytest.raises(TypeError, match="sequence of names"):
        batch_evaluation(Majority(), X, y, rivals="exact")
    with pytest.raises(ValueError, match="not supported for retrieval"):
        check_rivals(["exact"], "retrieval", None)
