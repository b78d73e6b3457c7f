"""FastTextClassifier: training against plain NumPy, files and bad input."""

from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import model_of, text_labelled
from internals import text_skipgram as skipgram
from internals import text_vocabulary as vocabulary
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from cmt_numba import CMTClassifier
from cmt_numba.text import FastTextClassifier, SubwordVectors

TOPICS = {
    "weather": "rain sun cloud wind storm",
    "music": "song album band choir tune",
    "trips": "train bus hotel map car",
}
OPTIONS: dict[str, Any] = {"n_components": 12, "n_epochs": 10, "random_state": 0}


def requests(n: int = 60, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Return random requests and their topics."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(TOPICS), n)
    return [" ".join(["tell", "me", "of", *rng.choice(TOPICS[topic].split(), 3)]) for topic in y], y


@pytest.fixture(scope="module")
def learned() -> FastTextClassifier:
    return FastTextClassifier(**OPTIONS).fit(*requests())


# Kernels


def plain_softmax(outputs: np.ndarray, label: int, hidden: np.ndarray, rate: float) -> np.ndarray:
    odds = np.exp(outputs @ hidden)
    errors = rate * ((np.arange(len(outputs)) == label) - odds / odds.sum())
    gradient: np.ndarray = errors @ outputs
    outputs += np.outer(errors, hidden)
    return gradient


def test_kernels_learn_as_plain_python_does(rng: np.random.Generator):
    inputs, outputs = (rng.normal(size=(n, 5)).astype(np.float32) for n in (6, 4))
    texts, labels, order = [[0, 2], [1, 3, 4], [], [5], [2, 5]], [0, 2, 1, 3, 1], [3, 0, 2, 4, 1]
    weights = [rng.random(len(text)).astype(np.float32) for text in texts]
    expected = inputs.astype(np.float64), outputs.astype(np.float64)
    for place, text in enumerate(order):
        if texts[text]:
            hidden = weights[text] @ expected[0][texts[text]]
            gradient = plain_softmax(expected[1], labels[text], hidden, 0.5 - 0.05 * place)
            expected[0][texts[text]] += np.outer(weights[text], gradient)
    starts, features = np.cumsum([0, *map(len, texts)]), np.concatenate(texts).astype(np.int32)
    ones = np.ones(len(labels), np.float32)
    labelled = text_labelled.Labelled(starts, features, np.concatenate(weights), np.array(labels), ones)
    text_labelled.learn_labelled(skipgram.FeatureVectors(inputs, outputs), labelled, np.array(order), 0.5, 0.05)
    np.testing.assert_allclose(inputs, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs, expected[1], rtol=1e-4, atol=1e-5)


# Features


def test_features_are_words_their_parts_and_their_ngrams():
    corpus = vocabulary.Corpus()
    corpus.add([["ab", "cd", "ab"], [], ["cd", "ab"]])
    features = vocabulary.TextFeatures(vocabulary.Vocabulary((2, 2), 10**6), 3, 10**6)
    features.learn(corpus, 1)
    assert features.vocabulary.words == ["ab", "cd"]
    assert features.vocabulary.n_parts == 2 + len({"<a", "ab", "b>"}) + len({"<c", "cd", "d>"})
    assert features.grams.size == len({"ab cd", "cd ab", "ab cd ab"})
    counts = features.counts(corpus).toarray()
    assert counts.sum(axis=1).tolist() == [3 * 4 + 3, 0, 2 * 4 + 1]
    assert counts[0, 0] == 2
    later = vocabulary.Corpus()
    later.add([["cd", "ab", "xx"], ["abd"], ["ab", "ab"]])
    counts = features.counts(later).toarray()
    assert counts.sum(axis=1).tolist() == [4 + 4 + 1, len({"<a", "ab", "d>"}), 4 + 4]
    rare = vocabulary.TextFeatures(vocabulary.Vocabulary((2, 0), 10), 1, 10)
    rare.learn(corpus, 3)
    assert rare.n_rows == 1


# Training


def test_topics_are_learned(learned: FastTextClassifier):
    texts, y = requests(40, seed=1)
    assert learned.score(texts, y) > 0.95
    proba = learned.predict_proba(texts)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    best, scores = learned.top_classes(texts, 10)
    assert best.shape == (40, 3)
    np.testing.assert_array_equal(best, np.argsort(-proba, axis=1, kind="stable"))
    assert (np.diff(scores) <= 0.0).all()
    np.testing.assert_array_equal(learned.predict(texts), learned.classes_[best[:, 0]])
    np.testing.assert_allclose(scores, np.take_along_axis(proba, best, 1), rtol=1e-3, atol=1e-6)


def test_words_never_seen_count_by_their_parts(learned: FastTextClassifier):
    assert learned.predict(["raining", "songs", "trains"]).tolist() == ["weather", "music", "trips"]
    assert not learned.transform(["", "zzzz"]).any()
    assert learned.predict_proba(["zzzz"]).shape == (1, 3)
    assert learned.transform([]).shape == (0, 12)


@needs_jit
def test_the_order_of_words_is_learned_from_their_ngrams():
    texts, y = ["dog bites man", "man bites dog"] * 20, ["news", "pets"] * 20
    for length, expected in ((1, 0.5), (2, 1.0)):
        classifier = FastTextClassifier(8, word_ngrams=length, max_n=0, random_state=0).fit(texts, y[::-1])
        assert classifier.score(texts, y[::-1]) == expected


@needs_jit
@pytest.mark.parametrize("weighting", ["mean", "tfidf"])
def test_texts_are_weighted_sums_of_features(weighting: str):
    texts, y = ["a a b", "b c", "c"], [0, 1, 1]
    classifier = FastTextClassifier(4, weighting=weighting, word_ngrams=1, max_n=0, random_state=0).fit(texts, y)
    model = model_of(classifier)
    row = model.features.vocabulary.id_of
    if weighting == "mean":
        weights = {"a": 2 / 3, "b": 1 / 3}
    else:
        idf = {word: np.log(4 / (1 + n)) + 1 for word, n in {"a": 1, "b": 2}.items()}
        weights = {"a": (1 + np.log(2)) * idf["a"], "b": idf["b"]}
        length = np.hypot(*weights.values())
        weights = {word: weight / length for word, weight in weights.items()}
    expected = sum(weight * model.vectors.inputs[row[word]] for word, weight in weights.items())
    np.testing.assert_allclose(classifier.transform(["b a a zzz"])[0], expected, rtol=1e-5)


@needs_jit
def test_one_class_is_enough():
    classifier = FastTextClassifier(4, n_epochs=1, random_state=0).fit(["a", "b"], [7, 7])
    assert classifier.predict(["a", ""]).tolist() == [7, 7]
    assert classifier.predict_proba(["a"]).tolist() == [[1.0]]


@needs_jit
def test_each_text_may_be_a_class_of_its_own():
    texts = [f"text of number {i} {i * i}" for i in range(40)]
    classifier = FastTextClassifier(40, n_epochs=60, random_state=0).fit(texts, np.arange(40))
    assert classifier.score(texts, np.arange(40)) > 0.9


@needs_jit
def test_training_starts_from_given_vectors():
    corpus = [f"{a} {b}" for topic in TOPICS.values() for a in topic.split() for b in topic.split()] * 4
    vectors = SubwordVectors(16, min_count=1, subsample=0.0, n_epochs=20, random_state=0).fit(corpus)
    before = vectors.word_vectors(["rain"])
    texts, y = ["rain cloud", "song album", "train bus", "unheard"], ["weather", "music", "trips", "trips"]
    classifier = FastTextClassifier(16, vectors=vectors, random_state=0).fit(texts, y)
    assert classifier.predict(["storm wind", "choir band", "map hotel"]).tolist() == ["weather", "music", "trips"]
    np.testing.assert_array_equal(vectors.word_vectors(["rain"]), before)
    assert "unheard" not in vectors
    copied = clone(classifier.set_output(transform="pandas")).fit(texts, y)
    assert copied.score(texts, y) == 1.0
    assert copied.transform(texts).shape == (4, 16)
    assert copied.transform(texts).columns[0] == "fasttextclassifier0"
    with pytest.raises(ValueError, match="n_components must be 16, as in vectors"):
        FastTextClassifier(8, vectors=vectors).fit(texts, y)
    with pytest.raises(TypeError, match="vectors must be SubwordVectors"):
        FastTextClassifier(8, vectors="file").fit(texts, y)


@needs_jit
def test_keys_are_useful_for_later_classes():
    texts, y = requests()
    classifier = make_pipeline(FastTextClassifier(**OPTIONS), CMTClassifier(random_state=0)).fit(texts, y)
    assert classifier.score(*requests(40, seed=1)) > 0.95
    keys, memory = classifier[0], classifier[1]
    memory.partial_fit(keys.transform(["train band", "bus choir", "car tune"]), ["tours"] * 3)
    assert memory.predict(keys.transform(["train choir"])).tolist() == ["tours"]


@needs_jit
def test_other_seeds_and_threads_give_other_vectors():
    texts, y = requests()
    one, other = (FastTextClassifier(**OPTIONS | {"random_state": seed}).fit(texts, y) for seed in (0, 1))
    assert (other.transform(texts) != one.transform(texts)).any()
    several = FastTextClassifier(n_jobs=2, **OPTIONS).fit(texts, y)
    assert several.score(texts, y) == 1.0


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components"),
        ({"weighting": "bm25"}, ValueError, "weighting"),
        ({"word_ngrams": 0}, ValueError, "word_ngrams"),
        ({"min_n": 6}, ValueError, "max_n must be 0 or at least min_n=6"),
        ({"tokenizer": "words"}, TypeError, "tokenizer must be a function"),
        ({"min_count": 100, "word_ngrams": 1}, ValueError, "no word occurs at least 100 times"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        FastTextClassifier(**options).fit(["a b", "b a"], [0, 1])


@needs_jit
def test_bad_input_changes_nothing(learned: FastTextClassifier):
    before = model_of(learned)
    for texts, y, error, message in (
        ("a text", ["a"], TypeError, r"pass \[text\]"),
        (["a", 3], [0, 1], TypeError, r"texts\[1\] is int"),
        (["a", "b"], [0], ValueError, "y must have one class for each"),
        ([], [], ValueError, "."),
        (["a", "b"], ["1", 2], TypeError, "y must"),
        (["a", "b"], [0.5, 1.5], ValueError, "continuous"),
    ):
        with pytest.raises(error, match=message):
            learned.fit(texts, y)
    with pytest.raises(ValueError, match="k must be"):
        learned.top_classes(["a"], 0)
    assert model_of(learned) is before
    with pytest.raises(NotFittedError):
        clone(learned).predict(["a"])
    with pytest.raises(NotFittedError):
        FastTextClassifier().save("nowhere")


@needs_jit
@pytest.mark.parametrize("weighting", ["tfidf", "mean"])
def test_any_learning_rate_gives_probabilities(weighting: str):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 150)
    texts = [" ".join(f"w{word}" for word in rng.integers(5 * label, 5 * label + 8, 8)) for label in labels]
    for learning_rate in (1.0, 2.0, 1000.0):
        settings = {"weighting": weighting, "learning_rate": learning_rate}
        classifier = FastTextClassifier(10, n_epochs=10, random_state=0, **settings).fit(texts, labels)
        probabilities = classifier.predict_proba(texts)
        assert np.isfinite(classifier.transform(texts)).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        best, scores = classifier.top_classes(texts, 3)
        assert np.isfinite(scores).all()
        assert (np.diff(scores, axis=1) <= 0.0).all()
        assert (best[:, 0] == labels).mean() > 0.6


def test_vectors_that_diverge_are_refused(monkeypatch: pytest.MonkeyPatch):
    def diverge(vectors: Any, *_: Any) -> None:
        vectors.inputs[:] = np.nan

    classifier = FastTextClassifier(2, max_n=0, random_state=0).fit(["a", "b"], [0, 1])
    before = classifier.predict_proba(["a"])
    monkeypatch.setattr("cmt_numba.text._labelled.learn_labelled", diverge)
    with pytest.raises(ValueError, match=r"diverged with learning_rate=0\.2: use"):
        classifier.fit(["a", "b"], [0, 1])
    np.testing.assert_array_equal(classifier.predict_proba(["a"]), before)
