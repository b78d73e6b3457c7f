"""Weights of examples and of memories."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORMS
from internals import model_of, trained_head

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
from cmt_numba._heads import margin_wanted

FEW: dict[str, Any] = {"n_head_passes": 20, "random_state": 0}


@pytest.fixture
def overlapping(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 40 rows of four overlapping classes, their classes, and weights from 0 to 3."""
    y = np.repeat(np.arange(4), 10)
    X = (np.eye(4, 6)[y] + 0.4 * rng.normal(size=(40, 6))).astype(np.float32)
    return X, y, np.tile([1, 2, 0, 3, 1], 8)


@FORMS
@pytest.mark.parametrize("n_passes", [0, 20])
def test_a_weight_counts_as_rows_repeated(form: Any, n_passes: int, overlapping: Any):
    X, y, weights = overlapping
    repeated = np.repeat(np.arange(40), weights)
    options = FEW | {"n_head_passes": n_passes, "loss": "mira"}  # the choice of a loss depends on the held-out rows
    one = CMTClassifier(**options).fit(form(X), y, sample_weight=weights)
    twice = CMTClassifier(**options).fit(form(X[repeated]), y[repeated])
    unweighted = CMTClassifier(**options).fit(form(X[weights > 0]), y[weights > 0])
    # Scores are compared in margins: the margin is a mean over rows, so repeated rows change it.
    scores, wanted, others = (
        some.decision_function(form(X)) / (margin_wanted(trained_head(some)) if n_passes > 0 else 1.0)
        for some in (one, twice, unweighted)
    )
    np.testing.assert_allclose(scores, wanted, atol=1e-5 if n_passes == 0 else 0.2)
    assert np.abs(scores - wanted).mean() < 0.3 * np.abs(others - wanted).mean()


@FORMS
def test_weights_of_classes_multiply_those_of_examples(form: Any, overlapping: Any, tmp_path: Path):
    X, y, weights = overlapping
    rows = slice(0, 35)  # half of the last class
    X, y, weights = form(X[rows]), y[rows], weights[rows]
    by_class = {0: 0.5, 2: 0.0, 7: 3.0}
    for class_weight, expected in (
        ("balanced", weights * np.array([0.875, 0.875, 0.875, 1.75])[y]),
        (by_class, weights * np.array([0.5, 1.0, 0.0, 1.0])[y]),
    ):
        classifier = CMTClassifier(class_weight=class_weight, **FEW).fit(X, y, sample_weight=weights)
        other = CMTClassifier(**FEW).fit(X, y, sample_weight=expected)
        np.testing.assert_array_equal(classifier.decision_function(X), other.decision_function(X))
        classifier.save(tmp_path / "classifier.cmt")
        assert CMTClassifier.load(tmp_path / "classifier.cmt").class_weight == class_weight
    learned = CMTClassifier(class_weight=by_class, **FEW).partial_fit(X, y).partial_fit(X[:3], y[:3])
    other = CMTClassifier(**FEW).partial_fit(X, y, sample_weight=np.array([0.5, 1.0, 0.0, 1.0])[y])
    other.partial_fit(X[:3], y[:3], sample_weight=[0.5] * 3)
    np.testing.assert_array_equal(learned.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize(
    ("class_weight", "error", "reason"),
    [
        ("equal", ValueError, "must be 'balanced', a dict"),
        ({1: -1.0}, ValueError, "class_weight of 1 must be between"),
        ({1: "2"}, TypeError, "class_weight of 1 must be a real number"),
    ],
)
def test_invalid_weights_of_classes(class_weight: Any, error: type[Exception], reason: str):
    with pytest.raises(error, match=reason):
        CMTClassifier(class_weight=class_weight).fit(np.eye(2), [0, 1])


def test_balancing_needs_all_examples():
    classifier = CMTClassifier(class_weight="balanced", random_state=0)
    for _ in range(2):
        with pytest.raises(ValueError, match="needs all examples in one call"):
            classifier.partial_fit(np.eye(2), [0, 1])
        classifier.fit(np.eye(2), [0, 1])


TINY = np.array([1e-320, 1e-45, 1e-38, 1e-30, 1e-22, 1e-12, 1e-3, 1.0, 1e3, 1e6])


@FORMS
@pytest.mark.parametrize("loss", ["mira", "softmax"])
def test_weights_of_any_magnitude_leave_a_classifier_sound(form: Any, loss: str, overlapping: Any, tmp_path: Path):
    X, y, _ = overlapping
    old = np.where(y == 3, 1e-30, 1.0)  # negligible weights for one class
    faded = CMTClassifier(**FEW, loss=loss).fit(form(X), y, sample_weight=old)
    unweighted = CMTClassifier(**FEW, loss=loss).fit(form(X[y < 3]), y[y < 3])
    faded.check_invariants()
    assert faded.score(form(X[y < 3]), y[y < 3]) >= unweighted.score(form(X[y < 3]), y[y < 3]) - 0.1
    mixed = CMTClassifier(**FEW, loss=loss).fit(form(X), y, sample_weight=np.tile(TINY, 4))
    for weight in TINY:
        mixed.partial_fit(form(X[:1]), [9], sample_weight=[weight])
        mixed.check_invariants()
    mixed.remove(np.arange(9, 40, 10))  # the examples with large weights
    mixed.save(tmp_path / "file")
    for some in (mixed, CMTClassifier.load(tmp_path / "file")):
        assert np.isfinite(some.predict_proba(form(X))).all()
        assert np.isfinite(some.decision_function(form(X))).all()


@FORMS
def test_weights_of_any_magnitude_leave_other_estimators_sound(form: Any, overlapping: Any, tmp_path: Path):
    X, y, _ = overlapping
    tagger = CMTMultilabelClassifier(**FEW, threshold="f1").fit(form(X), np.eye(4)[y], sample_weight=np.tile(TINY, 4))
    retriever = CMTRetriever(random_state=0).fit(form(X), X[:, :2], sample_weight=np.tile(TINY, 4))
    for weight in TINY:
        tagger.partial_fit(form(X[:2]), np.eye(4)[y[:2]], sample_weight=[weight, 1.0])
        retriever.partial_fit(form(X[:2]), X[:2, :2], sample_weight=[weight, 1.0])
    for some in (tagger, retriever):
        some.check_invariants()
        some.save(tmp_path / "file")
    assert np.isfinite(tagger.decision_function(form(X))).all()
    assert np.isfinite(retriever.kneighbors(form(X), 1)[0]).all()


def test_the_mean_of_light_examples_follows_heavier_ones(overlapping: Any):
    X, y, _ = overlapping
    light = CMTClassifier(**FEW | {"n_head_passes": 0}).fit(X, y, sample_weight=np.full(40, 1e-6))
    light.partial_fit(X, y)
    even = CMTClassifier(**FEW | {"n_head_passes": 0}).fit(X, y)
    np.testing.assert_allclose(light.decision_function(X), even.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("aggressiveness", [1e-300, 1e-30, 1e6])
def test_any_aggressiveness_leaves_classifiers_sound(aggressiveness: float, overlapping: Any):
    X, y, _ = overlapping
    for kind, labels in ((CMTClassifier, y), (CMTMultilabelClassifier, np.eye(4)[y])):
        some = kind(**FEW, aggressiveness=aggressiveness).fit(X, labels).partial_fit(X, labels)
        some.check_invariants()
        assert np.isfinite(some.decision_function(X)).all()


def test_other_losses_use_weights(overlapping: Any):
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
    classifier.partial_fit(form(X), y, sample_weight=weights).remove(
        np.arange(30)
    )  # learns all remaining examples again
    classifier.check_invariants()
    assert model_of(classifier).example_weights is not None
    assert model_of(classifier).index.weight_of_label is not None
    np.testing.assert_array_equal(model_of(classifier).example_weights, weights[kept])
    np.testing.assert_allclose(
        np.sort(model_of(classifier).index.weight_of_label), np.sort(np.bincount(y, weights)), rtol=1e-6
    )
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
        (np.ones(3), "one entry for each"),
        (np.zeros(40), "above 0 for at least one"),
        (-np.ones(40), "between 0"),
        (["a"], "numbers"),
    ],
)
def test_bad_weights_are_refused(weights: Any, error: str, overlapping: Any):
    X, y, _ = overlapping
    for estimator, labels in ((CMTClassifier(**FEW), y), (CMTMultilabelClassifier(**FEW), np.eye(4)[y])):
        with pytest.raises((TypeError, ValueError), match=error):
            estimator.fit(X, labels, sample_weight=weights)
        assert not hasattr(estimator, "classes_")
        if len(weights) == 40:
            before = estimator.fit(X, labels).decision_function(X)
            with pytest.raises(ValueError, match=error):
                estimator.partial_fit(X, labels, sample_weight=weights)
            np.testing.assert_array_equal(estimator.decision_function(X), before)


@FORMS
@pytest.mark.parametrize("n_more", [0, 1030], ids=["all common", "rare ones"])
def test_a_weight_counts_as_rows_repeated_for_many_labels(form: Any, n_more: int, overlapping: Any):
    X, y, weights = overlapping
    Y = np.hstack([np.eye(4, dtype=np.int64)[y], np.eye(40, n_more, dtype=np.int64)])
    Y[:10, 1] = 1
    Y[np.arange(n_more) % 40, 4 + np.arange(n_more)] = 1
    repeated, kept = np.repeat(np.arange(40), weights), np.flatnonzero(weights)
    one = CMTMultilabelClassifier(**FEW).fit(form(X[:20]), form(Y[:20]), sample_weight=weights[:20])
    one.partial_fit(form(X), form(Y), sample_weight=weights)  # labels learn later rows in only a few sweeps
    one.check_invariants()
    assert model_of(one).index.weight_of_rows == weights.sum() + weights[:20].sum()
    one, twice, unweighted = (CMTMultilabelClassifier(**FEW) for _ in range(3))
    one.fit(form(X), form(Y), sample_weight=weights).check_invariants()
    twice.fit(form(X[repeated]), form(Y[repeated]))
    unweighted.fit(form(X[kept]), form(Y[kept]))
    np.testing.assert_array_equal(np.sort(model_of(one).index.amounts[0]), np.sort(model_of(twice).index.n_of_label))
    scores, wanted, others = (some.decision_function(form(X))[:, :4] for some in (one, twice, unweighted))
    np.testing.assert_allclose(scores, wanted, atol=0.1)
    assert np.abs(scores - wanted).mean() < 0.3 * np.abs(others - wanted).mean()


def test_rows_of_weight_zero_leave_no_trace(overlapping: Any, tmp_path: Path):
    X, y, weights = overlapping
    kept, options = weights > 0, FEW | {"threshold": "f1"}
    names = [[f"label {number}"] if weight else ["left out"] for number, weight in zip(y, weights, strict=True)]
    one = CMTMultilabelClassifier(**options).fit(X, names, sample_weight=kept)
    other = CMTMultilabelClassifier(**options).fit(X[kept], [names[row] for row in np.flatnonzero(kept)])
    for tagger in (one, other):
        tagger.partial_fit(X, names, sample_weight=kept * 2.0)
    assert one.classes_.tolist() == [f"label {number}" for number in range(4)]
    one.save(tmp_path / "file")
    for tagger in (one, CMTMultilabelClassifier.load(tmp_path / "file")):
        np.testing.assert_array_equal(tagger.decision_function(X), other.decision_function(X))
        assert tagger.threshold_ == other.threshold_
        tagger.partial_fit(X[:2], names[:2], sample_weight=[0.5, 2.0])
    pair = CMTMultilabelClassifier(**FEW).fit(X, y == 1, sample_weight=y != 1)
    assert pair.classes_.tolist() == [False]


@FORMS
def test_a_weight_counts_as_memories_repeated(form: Any, rng: np.random.Generator):
    X, weights = np.abs(rng.normal(size=(60, 5))), np.tile([1, 0, 3, 2, 1], 12)
    y = X @ rng.normal(size=(5, 4)) + 2.0 * rng.normal(size=(60, 4))
    repeated, kept = np.repeat(np.arange(60), weights), np.flatnonzero(weights)
    options: dict[str, Any] = {"n_value_passes": 60, "random_state": 0, "regularization": 0.5}
    one, twice, unweighted = (CMTRetriever(**options) for _ in range(3))
    one.fit(form(X), y, sample_weight=weights)
    twice.fit(form(X[repeated]), y[repeated])
    unweighted.fit(form(X[kept]), y[kept])
    assert one.n_memories_ == kept.size
    np.testing.assert_array_equal(one.values(np.arange(kept.size)), y[kept])
    biases, wanted, others = (model_of(some).by_value.map.bias for some in (one, twice, unweighted))
    np.testing.assert_allclose(biases, wanted, atol=5e-3)
    assert np.abs(biases - others).max() > 0.02
    one.partial_fit(form(X), y, sample_weight=weights).check_invariants()
    assert one.n_memories_ == 2 * kept.size


def test_a_retriever_by_key_leaves_rows_of_weight_zero_out(overlapping: Any):
    X, _, weights = overlapping
    retriever = CMTRetriever(random_state=0).fit(X, sample_weight=weights > 0)
    assert retriever.kneighbors(X[weights == 0], 1)[0].min() > 1e-3
    np.testing.assert_array_equal(retriever.predict(X[weights > 0]), np.arange(np.sum(weights > 0)))
    for given, error in (
        (-weights, "between 0"),
        (np.zeros(40), "above 0 for at least one"),
        (np.ones(3), "one entry"),
    ):
        with pytest.raises(ValueError, match=error):
            retriever.partial_fit(X, sample_weight=given)
    assert retriever.n_memories_ == np.sum(weights > 0)
