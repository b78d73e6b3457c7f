"""Classifiers of tables: dense rows whose features have different scales and a mean."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import model_of
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from tests.helpers.journals import crashed

Table = tuple[NDArray[Any], NDArray[Any]]


def rare(seed: int) -> Table:
    """Return a table with a class of 10 % of the rows, and features of very different scales."""
    X, y = make_classification(1000, 12, n_informative=6, weights=[0.9], class_sep=1.2, random_state=seed)
    return X * np.random.default_rng(seed).lognormal(0, 2, 12), y


def moved(table: Table) -> Table:
    return table[0] + 100.0, table[1]


TABLES = {
    "iris": load_iris(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "cancer": load_breast_cancer(return_X_y=True),
    "rare": rare(1),
    "moved iris": moved(load_iris(return_X_y=True)),
    "moved wine": moved(load_wine(return_X_y=True)),
}


def standardized(classifier: CMTClassifier) -> bool:
    return model_of(classifier).index.is_standardized


@pytest.mark.parametrize("name", TABLES)
def test_errors_are_close_to_those_of_scaled_logistic_regression(name: str):
    X, y = TABLES[name]
    scaled = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    wanted = cross_val_score(scaled, X, y, cv=5).mean()
    assert cross_val_score(CMTClassifier(random_state=0), X, y, cv=5).mean() > wanted - 0.02


def test_units_of_features_do_not_matter():
    X, y = load_wine(return_X_y=True)
    units = np.random.default_rng(0).lognormal(0, 3, X.shape[1])
    one = CMTClassifier(random_state=0).fit(X, y)
    other = CMTClassifier(random_state=0).fit(X * units + 5.0 * units, y)
    assert standardized(one)
    np.testing.assert_array_equal(one.predict(X), other.predict(X * units + 5.0 * units))


def test_answers_of_all_methods_agree():
    X, y = load_iris(return_X_y=True)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    for rows in (X, X.astype(np.float32), np.asfortranarray(X)):
        predicted = classifier.predict(rows)
        np.testing.assert_array_equal(classifier.decision_function(rows).argmax(axis=1), predicted)
        np.testing.assert_array_equal(classifier.predict_proba(rows).argmax(axis=1), predicted)
        np.testing.assert_array_equal(classifier.top_classes(rows, 1)[0][:, 0], predicted)
    assert [classifier.predict(row)[0] for row in X[:, None]] == classifier.predict(X).tolist()
    for why, label in zip(classifier.explain(X[::10], n_features=9), classifier.predict(X[::10]), strict=True):
        assert why.label == label
        assert {feature for feature, _ in why.features + why.differences} <= {0, 1, 2, 3}
    with pytest.raises(ValueError, match="NaN"):
        classifier.predict(np.full((1, 4), np.nan))


def test_unit_rows_and_wide_rows_stay_as_they_are():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    X = (rng.normal(size=(4, 16))[y] + 0.3 * rng.normal(size=(200, 16))).astype(np.float32)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert not standardized(CMTClassifier(random_state=0).fit(unit, y))
    assert not standardized(CMTClassifier(feature_weights="none", random_state=0).fit(X, y))
    assert standardized(CMTClassifier(feature_weights="scale", random_state=0).fit(X[:8], y[:8]))
    wide = np.hstack([X] * 10)
    assert not standardized(CMTClassifier(random_state=0).fit(wide, y))
    wide = np.hstack([wide, 1e4 * rng.random((200, 2))])  # held-out examples show that two columns hide the others
    assert standardized(CMTClassifier(random_state=0).fit(wide, y))


@pytest.mark.parametrize("store_examples", [True, False])
def test_scales_follow_the_examples(store_examples: bool):
    X, y = rare(0)
    classifier = CMTClassifier(store_examples=store_examples, random_state=0)
    for first in range(0, 800, 5):
        classifier.partial_fit(X[first : first + 5], y[first : first + 5], classes=[0, 1])
    classifier.check_invariants()
    scales = model_of(classifier).index.scales
    assert scales is not None
    assert standardized(classifier)
    np.testing.assert_allclose(scales.center, X[:800].mean(axis=0), atol=0.3 * X.std(axis=0).max())
    assert classifier.score(X[800:], y[800:]) > 0.92


def test_scales_are_saved_pickled_and_replayed(tmp_path: Path):
    X, y = load_wine(return_X_y=True)
    with CMTClassifier.open(tmp_path / "folder", random_state=0, snapshot_seconds=1e9) as classifier:
        classifier.fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2]).remove([0, 5]).remove_classes([1])
        wanted = classifier.decision_function(X)
        classifier.save(tmp_path / "file")
        with CMTClassifier.open(crashed(tmp_path / "folder")) as replayed:
            np.testing.assert_array_equal(replayed.decision_function(X), wanted)
    for copied in (CMTClassifier.load(tmp_path / "file"), pickle.loads(pickle.dumps(classifier))):
        assert standardized(copied)
        np.testing.assert_array_equal(copied.decision_function(X), wanted)
        copied.check_invariants()
        copied.partial_fit(X, y).calibrate(X, y).check_invariants()


def test_neighbors_of_standardised_rows():
    X, y = load_wine(return_X_y=True)
    ours = CMTClassifier(method="neighbors", metric="seuclidean", random_state=0).fit(X[::2], y[::2])
    variances = X[::2].var(axis=0, ddof=1)
    theirs = KNeighborsClassifier(metric="seuclidean", metric_params={"V": variances}).fit(X[::2], y[::2])
    distances, found = ours.kneighbors(X[1::2])
    np.testing.assert_allclose(distances, theirs.kneighbors(X[1::2])[0], rtol=1e-4)
    np.testing.assert_array_equal(found, theirs.kneighbors(X[1::2])[1])
    chosen = CMTClassifier(method="auto", random_state=0).fit(X[::2], y[::2])
    assert chosen.score(X[1::2], y[1::2]) > 0.93


@pytest.mark.parametrize("name", ["wine", "rare", "moved iris"])
def test_label_sets_of_tables_are_as_good_as_those_of_scaled_logistic_regression(name: str):
    X, y = TABLES[name]
    Y = np.eye(y.max() + 1, dtype=np.int64)[y]
    scaled = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression(max_iter=2000)))
    best: list[float] = []
    for learner in (scaled, CMTMultilabelClassifier(random_state=0)):
        decisions = cross_val_predict(
            learner, X, Y, cv=KFold(5, shuffle=True, random_state=0), method="decision_function"
        )
        best.append(float(np.mean(decisions.argmax(axis=1) == y)))
    assert best[1] > best[0] - 0.02


def test_label_sets_of_tables_are_learned_in_batches(tmp_path: Path):
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(y.size)
    X, Y = X[order], np.eye(3, dtype=np.int64)[y[order]]
    at_once = CMTMultilabelClassifier(random_state=0, threshold=0.0).fit(X, Y)
    batches = CMTMultilabelClassifier(random_state=0, threshold=0.0)
    for first in range(0, 178, 30):
        batches.partial_fit(X[first : first + 30], Y[first : first + 30])
    np.testing.assert_allclose(model_of(batches).index.scales.means, model_of(at_once).index.scales.means)
    assert batches.score(X, Y) > 0.9
    batches.save(tmp_path / "file")
    loaded = CMTMultilabelClassifier.load(tmp_path / "file")
    np.testing.assert_array_equal(loaded.decision_function(X), batches.decision_function(X))
    distances, neighbors = loaded.kneighbors(X[:5], 1)
    assert neighbors.ravel().tolist() == list(range(5))
    assert np.abs(distances).max() < 1e-6


def test_answers_for_rows_that_are_not_standardised_are_those_for_standardised_rows(rng: np.random.Generator):
    X = rng.normal(size=(600, 20)) * rng.lognormal(0, 2, 20) + rng.normal(size=20)
    y = rng.integers(40, size=600)
    for shift in (0.0, 100.0, 1e5):  # the last one loses too many digits without centering
        classifier = CMTClassifier(random_state=0, feature_weights="scale").fit(X + shift, y)
        expected = classifier.decision_function(X + shift).argmax(axis=1)
        for rows in (X + shift, np.asfortranarray(X + shift)):
            np.testing.assert_array_equal(classifier.predict(rows), expected)
        single = [classifier.predict(row)[0] for row in (X + shift)[:200, None]]
        np.testing.assert_array_equal(single, expected[:200])
    huge = X.copy()
    huge[0, 0] = 1e25
    np.testing.assert_array_equal(classifier.predict(huge), classifier.decision_function(huge).argmax(axis=1))


@pytest.mark.parametrize("estimator", [CMTClassifier, CMTMultilabelClassifier])
def test_features_that_become_huge_keep_the_model_valid(estimator: Any):
    y = np.arange(60) % 3
    X = np.eye(3, 4)[y] + 0.1 * np.random.default_rng(0).normal(size=(60, 4))
    labels = y if estimator is CMTClassifier else np.eye(3, dtype=int)[y]
    learner = estimator(random_state=0, store_examples=False).fit(1e-30 * X, labels)
    assert standardized(learner)
    for rows in np.split(np.arange(60), 4):
        learner.partial_fit(1e30 * X[rows], labels[rows])
        learner.check_invariants()
    assert np.mean(learner.predict(1e30 * X) != labels) < 0.1


def test_given_scales_stay_as_they_are(tmp_path: Path):
    X, y = load_wine(return_X_y=True)
    scales = np.stack([X.mean(axis=0), X.std(axis=0)])
    measured, given = CMTClassifier(random_state=0).fit(X, y), CMTClassifier.open(tmp_path / "folder", random_state=0)
    given.fit(X, y, scales=scales)
    np.testing.assert_allclose(given.decision_function(X), measured.decision_function(X), atol=1e-4)
    given.partial_fit(X[:100] + 50.0, y[:100])  # learns all examples again
    reopened = CMTClassifier.open(crashed(tmp_path / "folder"))
    used = model_of(reopened).index.scales
    np.testing.assert_allclose([used.center, 1.0 / used.inverse], scales)
    wrong = {
        "shape": scales[:1],
        "not negative": -scales,
        "finite": scales * np.nan,
        "numbers": "a",
        "1e.39": scales * 1e300,
    }
    for reason, value in wrong.items():
        with pytest.raises((TypeError, ValueError), match=f"scales must .*{reason}"):
            CMTClassifier().fit(X, y, scales=value)
    with pytest.raises(ValueError, match="sparse"):
        CMTClassifier().fit(scipy.sparse.csr_array(X), y, scales=scales)
    with pytest.raises(ValueError, match="after the first examples"):
        reopened.partial_fit(X, y, scales=scales)


@pytest.mark.parametrize("n_rows", [1, 10, 50])
def test_batches_of_one_class_keep_other_classes(n_rows: int):
    X, y = load_iris(return_X_y=True)  # sorted by class
    classifier = CMTClassifier(store_examples=False, random_state=0)
    for first in range(0, y.size, n_rows):
        classifier.partial_fit(X[first : first + n_rows], y[first : first + n_rows])
    assert classifier.score(X, y) > 0.8


@pytest.mark.parametrize("n_rows", [1, 10, 50])
def test_batches_of_one_label_set_keep_other_labels(n_rows: int, tmp_path: Path):
    X, y = load_iris(return_X_y=True)
    Y = np.column_stack([np.eye(3, dtype=np.int64)[y], y > 0])  # the last label comes with two others
    classifier = CMTMultilabelClassifier(random_state=0, threshold=0.0)
    for first in range(0, 100, n_rows):
        classifier.partial_fit(X[first : first + n_rows], Y[first : first + n_rows])
    classifier.save(tmp_path / "file")
    loaded = CMTMultilabelClassifier.load(tmp_path / "file")
    for learner in (classifier, loaded):
        for first in range(100, 150, n_rows):
            learner.partial_fit(X[first : first + n_rows], Y[first : first + n_rows])
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))
    scores = classifier.decision_function(X)
    assert np.mean(scores[:, :3].argmax(axis=1) == y) > 0.8
    assert np.mean((scores[:, 3] > 0) == (y > 0)) > 0.9
    many = (np.arange(128)[:, None] >> np.arange(7)) & 1  # more label sets than have means
    rows = np.random.default_rng(0).normal(size=(128, 4)).astype(np.float32)
    assert model_of(classifier.partial_fit(rows, many)).means is None
