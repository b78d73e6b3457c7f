"""Classifiers with scikit-learn: estimator checks, pipelines, data frames and files."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from conftest import needs_jit
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba.neighbors import LandmarkClassifier

FEW = {"n_head_passes": 2, "random_state": 0}

NOT_APPLYING = {
    "check_array_api_input": "kernels take NumPy arrays only",
    "check_sample_weight_equivalence_on_dense_data": "equal but for the order of rows: test_sample_weights.py",
    "check_sample_weight_equivalence_on_sparse_data": "likewise",
}
"""Checks of scikit-learn that do not apply to these estimators, and the reasons."""


def _applying_checks() -> list[Any]:
    result = []
    for estimator in (CMTClassifier(), CMTMultilabelClassifier(), LandmarkClassifier(metric="euclidean")):
        for twin, check in estimator_checks_generator(estimator):
            function = getattr(check, "func", check)
            if function.__name__ not in NOT_APPLYING:
                how = "".join(f"-{key}={value}" for key, value in getattr(check, "keywords", {}).items())
                result.append(pytest.param(twin, check, id=f"{type(estimator).__name__}-{function.__name__}{how}"))
    return result


@needs_jit
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), _applying_checks())
def test_conforms_to_scikit_learn(estimator: Any, check: Any):
    check(estimator)


def texts() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return synthetic requests, their topics, and an indicator matrix of topics and politeness."""
    topics = {"weather": "rain sun cloud wind", "music": "song play album band", "travel": "train ticket flight hotel"}
    rng = np.random.default_rng(0)
    requests, classes = [], []
    for _ in range(12):
        for topic, words in topics.items():
            about = " ".join(rng.choice(words.split(), 2))
            polite = rng.choice(["please", "now"])
            requests.append(f"{polite} tell me about {about}")
            classes.append(topic)
    labels = np.array(
        [[name == topic for topic in topics] + ["please" in text] for text, name in zip(requests, classes, strict=True)]
    )
    return requests, np.array(classes), labels.astype(np.int64)


@needs_jit
@pytest.mark.parametrize("estimator", [CMTClassifier(**FEW), CMTMultilabelClassifier(**FEW)], ids=["classes", "labels"])
def test_texts_in_a_pipeline_in_a_grid(estimator: Any):
    requests, classes, labels = texts()
    y = classes if isinstance(estimator, CMTClassifier) else labels
    name = type(estimator).__name__.lower()
    grid = GridSearchCV(
        make_pipeline(TfidfVectorizer(), estimator),
        {f"{name}__aggressiveness": [0.3, 1.0], f"{name}__n_head_passes": [1, 3]},
        cv=3,
        error_score="raise",
    )
    grid.fit(requests, y)
    assert grid.best_score_ > 0.9
    np.testing.assert_array_equal(grid.predict(requests[:3]), y[:3])


def views(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 6
    rng = np.random.default_rng(1)
    return np.random.default_rng(0).normal(size=(6, 8))[y] + 0.2 * rng.normal(size=(n, 8)), y


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_frames(frame: Any):
    X, y = views()
    names = [f"f{i}" for i in range(8)]
    column = (pd.Series if frame is pd.DataFrame else pl.Series)(np.array([f"c{i}" for i in y]))
    classifier = CMTClassifier(**FEW).fit(frame(dict(zip(names, X.T, strict=True))), column)
    assert list(classifier.feature_names_in_) == names
    alone = CMTClassifier(**FEW).fit(X, np.array([f"c{i}" for i in y]))
    np.testing.assert_array_equal(classifier.predict(frame(dict(zip(names, X.T, strict=True)))), alone.predict(X))
    assert classifier.partial_fit(frame(dict(zip(names, X.T, strict=True))), column).classes_.tolist() == sorted(
        set(column)
    )
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame({f"g{i}": X[:, i] for i in range(8)}))

    Y = np.eye(6, dtype=np.int64)[y]
    labels = frame({f"l{i}": Y[:, i] for i in range(6)})
    tagger = CMTMultilabelClassifier(**FEW).fit(frame(dict(zip(names, X.T, strict=True))), labels)
    assert list(tagger.feature_names_in_) == names
    np.testing.assert_array_equal(
        tagger.predict(frame(dict(zip(names, X.T, strict=True)))), CMTMultilabelClassifier(**FEW).fit(X, Y).predict(X)
    )


@pytest.mark.parametrize(
    "form", [scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array]
)
def test_sparse_labels_of_any_form(form: Any):
    X, y = views()
    Y = np.eye(6)[y]
    tagger = CMTMultilabelClassifier(**FEW).fit(X, form(Y))
    predicted = tagger.predict(X)
    assert scipy.sparse.issparse(predicted)
    np.testing.assert_array_equal(predicted.toarray(), CMTMultilabelClassifier(**FEW).fit(X, Y).predict(X))


def test_examples_need_not_be_stored():
    X, y = views()
    stored, stream = (CMTClassifier(store_examples=store, **FEW).fit(X[:30], y[:30]) for store in (True, False))
    np.testing.assert_array_equal(stored.predict_proba(X), stream.predict_proba(X))
    assert stream.partial_fit(X[30:], y[30:] + 3).score(X[30:], y[30:] + 3) > 0.5
    with pytest.raises(ValueError, match="pass store_examples=True and fit again"):
        stream.kneighbors(X)
    with pytest.raises(ValueError, match="needs stored examples: pass store_examples=True"):
        CMTClassifier(method="neighbors", store_examples=False).fit(X, y)
    with pytest.raises(ValueError, match="needs stored examples: pass store_examples=True"):
        stream.set_params(method="neighbors").predict(X)
    with pytest.raises(ValueError, match="pass store_examples=True and fit again"):
        stream.set_params(store_examples=True).predict(X)
    with pytest.raises(TypeError, match="store_examples must be True or False"):
        CMTClassifier(store_examples="no").fit(X, y)


def test_memory_does_not_grow_with_a_stream():
    X, y = views()

    def grown(store_examples: bool) -> int:
        classifier = CMTClassifier(store_examples=store_examples, **FEW).fit(X, y)
        before = len(pickle.dumps(classifier))
        for _ in range(8):
            classifier.partial_fit(X, y)
        return len(pickle.dumps(classifier)) - before

    assert abs(grown(False)) < 100  # numbers may get more digits
    assert grown(True) > 8 * X.size * 4


@needs_jit
def test_a_vector_of_two_classes_is_a_single_label():
    X, y = views()
    named = np.where(y < 3, "low", "high")
    tagger = CMTMultilabelClassifier(**FEW).fit(X, named)
    alone = CMTMultilabelClassifier(**FEW).fit(X, (y < 3)[:, None])
    assert tagger.classes_.tolist() == ["high", "low"]
    np.testing.assert_array_equal(tagger.predict(X) == "low", alone.predict(X)[:, 0] == 1)
    np.testing.assert_allclose(tagger.decision_function(X), alone.decision_function(X)[:, 0])
    np.testing.assert_allclose(tagger.predict_proba(X)[:, 1], alone.predict_proba(X)[:, 0])
    online = CMTMultilabelClassifier(**FEW).partial_fit(X[:1], named[:1], classes=["low", "high"])
    assert online.partial_fit(X, named).score(X, named) > 0.9
    with pytest.raises(ValueError, match="Y must contain only the classes"):
        online.partial_fit(X, np.full(60, "middle"))
    with pytest.raises(ValueError, match="an indicator matrix, lists of names or a vector"):
        online.partial_fit(X, (y < 3)[:, None])
    with pytest.raises(ValueError, match="vector of at most two classes"):
        CMTMultilabelClassifier().fit(X, y)
