"""Weights of examples, and the warning where features are of several scales."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit

from cmt_numba import CMTClassifier
from cmt_numba._heads.multiclass_svm import margin_wanted

FORMS = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
FEW: dict[str, Any] = {"n_trees": 1, "n_head_passes": 20, "n_router_passes": 0, "random_state": 0}


@pytest.fixture
def overlapping(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 40 rows of four classes that overlap, their classes, and weights from 0 to 3."""
    y = np.repeat(np.arange(4), 10)
    X = (np.eye(4, 6)[y] + 0.4 * rng.normal(size=(40, 6))).astype(np.float32)
    return X, y, np.tile([1, 2, 0, 3, 1], 8)


@FORMS
@pytest.mark.parametrize("n_passes", [0, 20])
def test_a_weight_counts_as_rows_repeated(form: Any, n_passes: int, overlapping: Any):
    X, y, weights = overlapping
    repeated = np.repeat(np.arange(40), weights)
    options = FEW | {"n_head_passes": n_passes}
    one = CMTClassifier(**options).fit(form(X), y, sample_weight=weights)
    twice = CMTClassifier(**options).fit(form(X[repeated]), y[repeated])
    unweighted = CMTClassifier(**options).fit(form(X[weights > 0]), y[weights > 0])
    # Scores are compared in margins: the margin is a mean over rows, so repeated rows change it.
    scores, wanted, others = (
        some.decision_function(form(X)) / (margin_wanted(some.head_) if n_passes > 0 else 1.0)
        for some in (one, twice, unweighted)
    )
    np.testing.assert_allclose(scores, wanted, atol=1e-5 if n_passes == 0 else 0.2)
    assert np.abs(scores - wanted).mean() < 0.3 * np.abs(others - wanted).mean()


def test_other_losses_mind_weights(overlapping: Any):
    X, y, _ = overlapping
    light, heavy = (
        CMTClassifier(loss="softmax", **FEW).fit(X, y, sample_weight=np.where(y == 0, weight, 1.0))
        for weight in (0.01, 1.0)
    )
    assert np.sum(light.predict(X) == 0) < np.sum(heavy.predict(X) == 0)


@FORMS
def test_weights_are_kept_with_the_examples(form: Any, overlapping: Any, tmp_path: Path):
    X, y, weights = overlapping
    kept, some = weights > 0, weights == 3
    classifier = CMTClassifier(**FEW).fit(form(X[:30]), y[:30])
    classifier.partial_fit(form(X), y, sample_weight=weights).remove(np.arange(30))  # learns all that is left again
    classifier.check_invariants()
    assert classifier._example_weights is not None
    assert classifier._weight_of_label is not None
    np.testing.assert_array_equal(classifier._example_weights, weights[kept])
    np.testing.assert_allclose(np.sort(classifier._weight_of_label), np.sort(np.bincount(y, weights)), rtol=1e-6)
    other = CMTClassifier(**FEW).fit(form(X), y, sample_weight=weights)
    assert np.abs(classifier.decision_function(form(X)) - other.decision_function(form(X))).max() < 0.1
    classifier.save(tmp_path / "file")
    loaded = CMTClassifier.load(tmp_path / "file")
    for each in (classifier, loaded):
        each.partial_fit(form(X[some]), y[some], sample_weight=weights[some])
    np.testing.assert_array_equal(loaded.decision_function(form(X)), classifier.decision_function(form(X)))


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        (np.ones(3), "one number for each"),
        (np.zeros(40), "not be 0 for all"),
        (-np.ones(40), "from 0"),
        (["a"], "numbers"),
    ],
)
def test_bad_weights_are_refused(weights: Any, error: str, overlapping: Any):
    X, y, _ = overlapping
    with pytest.raises((TypeError, ValueError), match=error):
        CMTClassifier(**FEW).fit(X, y, sample_weight=weights)


@needs_jit  # plain Python warns of its own
def test_features_of_several_scales_raise_a_warning(rng: np.random.Generator):
    y = np.arange(60) % 3
    table = np.column_stack([y + rng.normal(size=60), 1e4 * rng.random(60), rng.random(60)])
    with pytest.warns(UserWarning, match=r"feature 1 is .* make_pipeline\(StandardScaler"):
        CMTClassifier(**FEW).fit(table, y)


@pytest.mark.parametrize("kind", ["one-hot", "tf-idf", "image", "embedding"])
def test_usual_features_raise_no_warning(kind: str, rng: np.random.Generator):
    y = np.arange(60) % 3
    counts = rng.poisson(0.5, size=(60, 20)) * rng.uniform(1.0, 8.0, size=20)
    X = {
        "one-hot": np.eye(20)[np.minimum(rng.geometric(0.3, 60), 20) - 1] + np.eye(20)[y],
        "tf-idf": counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9),
        "image": np.clip(rng.normal(0.0, np.linspace(1, 120, 20), size=(60, 20)), 0, 255).astype(np.uint8),
        "embedding": rng.normal(size=(60, 20)) * np.linspace(0.2, 3.0, 20),
    }[kind]
    CMTClassifier(**FEW).fit(X, y)  # warnings are errors here
