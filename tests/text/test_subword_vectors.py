"""SubwordVectors: training against plain NumPy, text vectors, unseen words, files and bad input."""

from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import model_of, text_skipgram
from internals import text_vocabulary as vocabulary
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cmt_numba import ContextualMemoryTree
from cmt_numba.text import SubwordVectors

FRUIT, TOOLS = ("apple", "pear", "plum", "cherry"), ("hammer", "saw", "drill", "wrench")


def sentences(n: int = 400, seed: int = 0) -> list[str]:
    """Return texts about fruit or tools. All texts share some words."""
    rng = np.random.default_rng(seed)
    return [
        " ".join(["the", *rng.choice(FRUIT if i % 2 else TOOLS, 4), "of", "sweet" if i % 2 else "steel"])
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def learned() -> SubwordVectors:
    return SubwordVectors(16, min_count=1, subsample=0.0, n_epochs=20, random_state=0).fit(sentences())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


# Kernels


def plain_skipgram(
    inputs: np.ndarray, outputs: np.ndarray, parts: list[list[int]], text: list[int], rate: float
) -> None:
    """Learn from a text with ``window=1`` and without negatives."""
    for middle, word in enumerate(text):
        for near in (middle - 1, middle + 1):
            if 0 <= near < len(text):
                hidden = inputs[parts[word]].mean(axis=0)
                error = rate * (1.0 - 1.0 / (1.0 + np.exp(-outputs[text[near]] @ hidden)))
                inputs[parts[word]] += error * outputs[text[near]]
                outputs[text[near]] += error * hidden


def plain_cbow(inputs: np.ndarray, outputs: np.ndarray, parts: list[list[int]], text: list[int], rate: float) -> None:
    for middle, word in enumerate(text):
        near = [text[i] for i in (middle - 1, middle + 1) if 0 <= i < len(text)]
        hidden = np.mean([inputs[parts[other]].mean(axis=0) for other in near], axis=0)
        error = rate * (1.0 - 1.0 / (1.0 + np.exp(-outputs[word] @ hidden)))
        gradient = error * outputs[word]
        outputs[word] += error * hidden
        for other in near:
            for part in parts[other]:
                inputs[part] += gradient


@pytest.mark.parametrize("is_cbow", [False, True])
def test_kernels_learn_as_plain_python_does(is_cbow: bool, rng: np.random.Generator):
    parts = [[0, 3, 4], [1, 4], [2]]
    inputs, outputs = (rng.normal(size=(n, 6)).astype(np.float32) for n in (5, 3))
    expected = inputs.astype(np.float64), outputs.astype(np.float64)
    texts = [[0, 1, 2, 1], [2], [1, 0]]
    for text in texts:
        if len(text) > 1:
            (plain_cbow if is_cbow else plain_skipgram)(*expected, parts, text, 0.1)
    starts = np.cumsum([0, *map(len, parts)])
    shares, aliases = vocabulary.alias_table(np.ones(3))
    words = text_skipgram.Words(starts, np.concatenate(parts).astype(np.int32), np.ones(3, np.float32), shares, aliases)
    ends = np.cumsum([0, *map(len, texts)])
    text_skipgram.learn_texts(
        *(text_skipgram.FeatureVectors(inputs, outputs), words, np.concatenate(texts).astype(np.int32), ends),
        *(text_skipgram.SkipgramSettings(1, 0, is_cbow, 0.1), np.zeros(1, np.uint64), 0),
    )
    np.testing.assert_allclose(inputs, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [[1.0], [3.0, 1.0], [0.1, 5.0, 0.0, 2.0, 0.3], [0.0, 0.0]])
def test_alias_tables_have_the_weights(weights: list[float]):
    shares, aliases = vocabulary.alias_table(np.array(weights))
    n = len(weights)
    drawn = shares / n
    np.add.at(drawn, aliases, (1.0 - shares) / n)
    expected = np.array(weights) / sum(weights) if sum(weights) else np.full(n, 1 / n)
    np.testing.assert_allclose(drawn, expected, atol=1e-6)


# Vocabulary


def test_parts_of_words():
    known = vocabulary.Vocabulary((3, 4), 1000)
    known.add(["ab", "abc"], n_whole=1)
    assert known.rows_of("ab").tolist() == [0]
    assert list(known.buckets("ab")) == list(known.buckets("ab"))
    grams = {"<ab", "abc", "bc>", "<abc", "abc>"}
    assert len(list(known.buckets("abc"))) == len(grams)
    assert len(list(known.buckets("ab"))) == len({"<ab", "ab>", "<ab>"})
    assert known.rows_of("abc").size == 1 + len(grams)
    assert set(known.rows_of("abcd")) <= set(range(known.n_parts))  # only the n-grams that it shares with abc
    assert known.rows_of("abcd").size >= 3
    assert known.rows_of("xyz").size == 0


def test_a_corpus_keeps_texts_apart():
    corpus = vocabulary.Corpus()
    corpus.add([["a", "b", "a"], [], ["c"]])
    corpus.add([["b", "c"]])
    assert corpus.counts().tolist() == [2, 2, 2]
    tokens, starts = corpus.encoded({"c": 0, "a": 1})
    assert tokens.tolist() == [1, 1, 0, 0]
    assert starts.tolist() == [0, 2, 2, 3, 4]


# Training


@needs_jit
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_words_of_the_same_texts_have_similar_vectors(method: str):
    vectors = SubwordVectors(16, method=method, min_count=1, subsample=0.0, n_epochs=20, random_state=0)
    vectors.fit(sentences())
    fruit, tools = vectors.word_vectors(FRUIT), vectors.word_vectors(TOOLS)
    alike = [cosine(a, b) for group in (fruit, tools) for i, a in enumerate(group) for b in group[i + 1 :]]
    unlike = [cosine(a, b) for a in fruit for b in tools]
    assert min(alike) > max(unlike)
    near = [word for word, _ in vectors.nearest_words("apple", 3)]
    assert set(near) == {"pear", "plum", "cherry"}


@needs_jit
def test_words_never_seen_are_near_those_spelt_alike(learned: SubwordVectors):
    assert "hammers" not in learned
    assert "hammer" in learned
    unseen, hammer, cherry = learned.word_vectors(["hammers", "hammer", "cherry"])
    assert cosine(unseen, hammer) > cosine(unseen, cherry)
    assert not learned.word_vectors(["qqqq"]).any()


@needs_jit
def test_texts_are_keys(learned: SubwordVectors):
    texts = sentences(40, seed=1)
    keys = learned.transform(texts)
    assert keys.dtype == np.float32
    expected = [learned.word_vectors(text.split()).mean(axis=0) for text in texts]
    np.testing.assert_allclose(keys, expected, atol=1e-6)
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(keys)
    found = tree.query(learned.transform(["apples and pears", "hammers and saws"])).ids[:, 0]
    assert (found % 2).tolist() == [1, 0]
    assert not learned.transform(["", "qqqq"]).any()


@needs_jit
def test_smooth_inverse_frequency_removes_what_is_common(learned: SubwordVectors):
    smooth = clone(learned).set_params(pooling="sif").fit(sentences())
    keys = smooth.transform(sentences(40, seed=1))
    assert abs(keys @ model_of(smooth).common).max() < 1e-4
    assert abs(learned.transform(sentences(40, seed=1)) @ model_of(smooth).common).max() > 0.1
    weights = dict(zip(smooth.words_, model_of(smooth)._weights(), strict=True))
    assert weights["the"] < weights["sweet"] < weights["apple"]


@needs_jit
def test_analogies_exclude_the_given_words(learned: SubwordVectors):
    found = learned.analogies("apple", "sweet", "saw", 3)
    assert len(found) == 3
    assert not {"apple", "sweet", "saw"} & {word for word, _ in found}


@needs_jit
def test_analogies_by_products(learned: SubwordVectors):
    directions = learned.word_vectors(learned.words_)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    place = {word: i for i, word in enumerate(learned.words_)}
    near = (directions @ directions[[place[word] for word in ("apple", "sweet", "saw")]].T + 1.0) / 2.0
    expected = dict(zip(learned.words_, near[:, 1] * near[:, 2] / (near[:, 0] + 0.001), strict=True))
    found = learned.analogies("apple", "sweet", "saw", 3, method="mul")
    best = sorted(expected.keys() - {"apple", "sweet", "saw"}, key=expected.__getitem__, reverse=True)[:3]
    assert [word for word, _ in found] == best
    assert found[0][1] == pytest.approx(expected[best[0]], rel=1e-4)
    with pytest.raises(ValueError, match="method must be"):
        learned.analogies("apple", "sweet", "saw", method="cosine")


# Seeds, streams, threads


@needs_jit
def test_another_seed_gives_other_vectors():
    one, other = (SubwordVectors(8, min_count=1, random_state=seed).fit(sentences(60)) for seed in (5, 6))
    assert (one.transform(sentences(5)) != other.transform(sentences(5))).any()


@needs_jit
def test_streams_add_words_when_they_come_often_enough():
    vectors = SubwordVectors(8, min_count=3, subsample=0.0, n_expected_words=10**4, random_state=0)
    vectors.partial_fit(["one two two", "two one"])
    assert vectors.words_ == ["two"]
    before = vectors.word_vectors(["two"])
    vectors.partial_fit(["one three one two"] * 2)
    assert vectors.words_ == ["two", "one"]
    assert vectors.counts_.tolist() == [5, 6]
    assert vectors.word_vectors(["one"]).any()
    assert (vectors.word_vectors(["two"]) != before).any()
    vectors.fit(["four four four"])
    assert vectors.words_ == ["four"]


@needs_jit
def test_several_threads_learn_as_well():
    vectors = SubwordVectors(16, min_count=1, subsample=0.0, n_epochs=20, n_jobs=2, random_state=0).fit(sentences())
    apple, pear, saw = vectors.word_vectors(["apple", "pear", "saw"])
    assert cosine(apple, pear) > cosine(apple, saw)


@needs_jit
def test_most_frequent_words_can_be_whole():
    vectors = SubwordVectors(8, min_count=1, n_whole_words=2, random_state=0).fit(sentences(60))
    sizes = np.diff(model_of(vectors).vocabulary.starts)
    assert sizes[:2].tolist() == [1, 1]
    assert (sizes[2:] > 1).all()
    without = SubwordVectors(8, min_count=1, max_n=0, random_state=0).fit(sentences(60))
    assert model_of(without).vectors.inputs.shape[0] == len(without.words_)


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components"),
        ({"method": "glove"}, ValueError, "method"),
        ({"min_n": 5, "max_n": 4}, ValueError, "max_n must be 0 or at least min_n=5"),
        ({"subsample": -1.0}, ValueError, "subsample"),
        ({"learning_rate": float("nan")}, ValueError, "learning_rate"),
        ({"tokenizer": "words"}, TypeError, "tokenizer must be a function"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"min_count": 100}, ValueError, "no word occurs at least 100 times"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        SubwordVectors(**{"n_components": 4, "min_count": 1} | options).fit(["a b", "b a"])


@needs_jit
def test_bad_texts_change_nothing(learned: SubwordVectors):
    before = model_of(learned)
    for texts, message in (("a text", r"pass \[text\]"), (["a", 3], r"texts\[1\] is int"), (None, "iterable of texts")):
        for method in (learned.fit, learned.partial_fit, learned.transform):
            with pytest.raises(TypeError, match=message):
                method(texts)
    assert model_of(learned) is before
    with pytest.raises(ValueError, match="n_components must still be 16 in partial_fit"):
        clone(learned).fit(sentences(20)).set_params(n_components=8).partial_fit(["a b"])
    with pytest.raises(ValueError, match="16 finite numbers"):
        learned.nearest_words(np.ones(3))
    with pytest.raises(NotFittedError):
        SubwordVectors().transform(["a"])


@needs_jit
def test_vectors_that_diverge_are_refused():
    texts = [" ".join(f"w{(i * j) % 30}" for j in range(8)) for i in range(400)]
    learned = SubwordVectors(8, min_count=1, subsample=0.0, random_state=0).fit(texts)
    before = learned.transform(texts)
    learned.learning_rate = 1000.0
    for fit in (learned.fit, learned.partial_fit):
        with pytest.raises(ValueError, match=r"diverged with learning_rate=1000\.0: use"):
            fit(texts)
        np.testing.assert_array_equal(learned.transform(texts), before)
