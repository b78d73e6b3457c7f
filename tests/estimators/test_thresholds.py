"""The learned threshold above which labels are predicted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import estimators_calibration as calibration
from numpy.typing import NDArray
from sklearn.base import clone

from cmt_numba import CMTMultilabelClassifier

FEW: dict[str, Any] = {"random_state": 0}


def uncertain(rng: np.random.Generator, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return examples with one of eight labels each, and features that predict it only weakly."""
    y = rng.integers(8, size=n)
    return np.eye(8)[y] + 0.6 * rng.normal(size=(n, 8)), np.eye(8, dtype=np.int64)[y]


def mean_f1(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    return float(np.mean(2 * (found & wanted).sum(axis=1) / np.maximum(1, found.sum(axis=1) + wanted.sum(axis=1))))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_a_learned_threshold_predicts_better_sets(form: Any, rng: np.random.Generator):
    X, Y = uncertain(rng, 400)
    queries, wanted = uncertain(rng, 400)
    plain = CMTMultilabelClassifier(threshold=0.0, **FEW).fit(form(X), Y)
    learned = CMTMultilabelClassifier(**FEW).fit(form(X), Y)
    assert learned.threshold_ < 0.0
    assert mean_f1(learned.predict(form(queries)), wanted) > mean_f1(plain.predict(form(queries)), wanted) + 0.05
    decisions = learned.decision_function(form(queries))
    np.testing.assert_array_equal(decisions, plain.decision_function(form(queries)))
    np.testing.assert_array_equal(learned.predict(form(queries)), decisions > learned.threshold_)
    plain.set_params(threshold=0.3)
    np.testing.assert_array_equal(plain.predict(form(queries)), plain.decision_function(form(queries)) > 0.3)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_the_threshold_follows_examples_that_come_later(form: Any, rng: np.random.Generator, tmp_path: Path):
    X, Y = uncertain(rng, 400)
    queries, wanted = uncertain(rng, 400)
    online = CMTMultilabelClassifier(**FEW)
    for first in range(0, 400, 20):  # batches too small for held-out rows
        online.partial_fit(form(X[first : first + 20]), Y[first : first + 20])
        assert first > 0 or online.threshold_ == 0.0
    decisions = online.decision_function(form(queries))
    best = max(mean_f1(decisions > threshold, wanted) for threshold in np.linspace(-1.0, 0.5, 31))
    assert online.threshold_ < 0.0
    assert mean_f1(online.predict(form(queries)), wanted) > best - 0.02
    online.save(tmp_path / "file")
    assert CMTMultilabelClassifier.load(tmp_path / "file").threshold_ == online.threshold_


def test_the_best_threshold_is_found(rng: np.random.Generator):
    row, scores = np.repeat(np.arange(50), 4), rng.normal(size=200).astype(np.float32)
    is_right = rng.random(200) < 1 / (1 + np.exp(-3 * scores))
    n_wanted = np.bincount(row[is_right], minlength=50)

    def quality(threshold: float) -> float:
        found = (scores > threshold).reshape(50, 4)
        total = found.sum(axis=1) + n_wanted
        both = (found & is_right.reshape(50, 4)).sum(axis=1)
        return float(np.mean(np.where(total > 0, 2 * both / np.maximum(1, total), 1.0)))

    best = max(quality(threshold) for threshold in np.append(scores, -10.0))
    sums = calibration.f1_by_threshold(row, scores, is_right, n_wanted, np.ones(50, np.float32))
    assert quality(calibration.best_threshold(sums)) > best - 0.01
    assert sums[:-1].max() == pytest.approx(50 * quality(calibration.best_threshold(sums)))


def test_thresholds_without_examples():
    none = np.empty(0)
    pairs = none.astype(np.int64), none, none.astype(np.bool_)
    assert (
        calibration.best_threshold(calibration.f1_by_threshold(*pairs, np.zeros(30, np.int64), np.ones(30, np.float32)))
        == 0.0
    )
    assert CMTMultilabelClassifier(threshold="f1", **FEW).fit(np.eye(4), np.eye(4)).threshold_ == 0.0


def test_bad_thresholds():
    for threshold, error in (("f2", ValueError), (np.nan, ValueError), (None, TypeError), ([1], TypeError)):
        with pytest.raises(error, match="threshold"):
            CMTMultilabelClassifier(threshold=threshold, **FEW).fit(np.eye(4), np.eye(4))
    online = CMTMultilabelClassifier(threshold=0.0, **FEW).fit(np.eye(4), np.eye(4)).set_params(threshold="f1")
    with pytest.raises(ValueError, match="fit again, or set threshold to a number"):
        online.predict(np.eye(4))
    assert clone(online).threshold == "f1"
