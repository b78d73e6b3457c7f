"""BM25 weights against the formula, and the validation of texts and parameters."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from plain_bm25 import bm25
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import estimator_checks, get_tags

from cmt_numba.text import BM25Vectorizer, FastTextClassifier, SubwordVectors, TextClassifier

DOCUMENTS = [
    "In the beginning was the word",
    "the light shines in the darkness",
    "a light, a small light!",
    "He was not the light",
    "no one has ever seen",
]
QUERIES = ["the small light", "word word of the beginning", "nothing known here: unseen"]

words = st.lists(st.sampled_from(list("abcdefg")), max_size=12).map(" ".join)


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray()


@settings(max_examples=60, deadline=None)
@example(
    ["a b c d e"], [""], 2.4056226420907736, 0.0, 0.0, 0.0, "append"
)  # a case where sums of squares depend on rounding
@given(
    st.lists(words, min_size=1, max_size=8).filter(lambda texts: any(texts)),
    st.lists(words, min_size=1, max_size=4),
    st.floats(0, 3),
    st.floats(0, 1),
    st.floats(0, 3),
    st.floats(0, 1),
    st.sampled_from(["append", None]),
)
def test_inner_products_are_bm25(documents, queries, k1, b, k3, query_idf, norm):
    vectorizer = BM25Vectorizer(k1=k1, b=b, k3=k3, query_idf=query_idf, norm=norm)
    stored = dense(vectorizer.fit_transform(documents))
    scores = dense(vectorizer.transform(queries)) @ stored.T
    assert_allclose(scores, bm25(documents, queries, k1, b, k3), rtol=1e-4, atol=1e-5)
    if norm == "append":
        assert_allclose(np.linalg.norm(stored, axis=1), vectorizer.length_, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"norm": "l2"}, {"norm": None, "n_features": 64}])
def test_rows_are_float32_with_sorted_indices(options):
    vectorizer = BM25Vectorizer(**options)
    for rows in (vectorizer.fit_transform(DOCUMENTS), vectorizer.transform(QUERIES)):
        assert rows.format == "csr"
        assert rows.dtype == np.float32
        before = rows.indices.copy()
        rows.has_sorted_indices = False
        rows.sort_indices()
        assert_array_equal(rows.indices, before)
        rows.check_format()


@pytest.mark.parametrize("options", [{}, {"norm": "l2"}, {"norm": None}, {"n_features": 32}])
def test_fit_transform_is_fit_and_transform_documents(options):
    stored = BM25Vectorizer(**options).fit_transform(DOCUMENTS)
    again = BM25Vectorizer(**options).fit(DOCUMENTS).transform_documents(DOCUMENTS)
    assert_allclose(dense(stored), dense(again), rtol=1e-6)


def test_unit_length():
    stored = BM25Vectorizer(norm="l2").fit_transform([*DOCUMENTS, "?"])
    assert_allclose(np.linalg.norm(dense(stored), axis=1), [1, 1, 1, 1, 1, 0], rtol=1e-6)


def test_stored_vectors_need_not_depend_on_document_frequencies():
    vectorizer = BM25Vectorizer(n_features=256, norm=None, query_idf=1.0, b=0.0).fit(DOCUMENTS)
    stored = dense(vectorizer.transform_documents(DOCUMENTS))
    later = [*DOCUMENTS, "a new word", "the new light"]
    vectorizer.partial_fit(later[len(DOCUMENTS) :])
    assert_array_equal(dense(vectorizer.transform_documents(DOCUMENTS)), stored)
    scores = dense(vectorizer.transform(QUERIES)) @ stored.T
    assert_allclose(scores, bm25(later, QUERIES, 1.5, 0.0, 1.0)[:, : len(DOCUMENTS)], rtol=1e-4, atol=1e-6)


def test_hashed_terms_have_the_weights_of_a_vocabulary():
    scores = []
    for n_features in (None, 2**16):
        vectorizer = BM25Vectorizer(n_features=n_features)
        stored = vectorizer.fit_transform(DOCUMENTS)
        scores.append(dense(vectorizer.transform(QUERIES) @ stored.T))
    assert_allclose(*scores, rtol=1e-5)


@pytest.mark.parametrize("n_features", [None, 512])
def test_counting_in_parts_is_counting_at_once(n_features):
    in_parts, at_once = BM25Vectorizer(n_features=n_features), BM25Vectorizer(n_features=n_features)
    known = [*DOCUMENTS, "the word has light", "not the small darkness darkness"]
    at_once.fit(known)
    for part in (known[:5], known[5:6], known[6:]):
        in_parts.partial_fit(part)
    assert_array_equal(in_parts.document_frequency_, at_once.document_frequency_)
    assert (in_parts.n_documents_, in_parts.n_terms_) == (at_once.n_documents_, at_once.n_terms_)
    assert_array_equal(dense(in_parts.transform(QUERIES)), dense(at_once.transform(QUERIES)))


def test_later_documents_that_are_too_long_are_scaled_down():
    vectorizer = BM25Vectorizer().fit(["a b", "a c"])
    plain = dense(BM25Vectorizer(norm=None).fit(["a b", "a c"]).transform_documents(["b c", "a"]))
    stored = dense(vectorizer.transform_documents(["b c", "a"]))
    assert np.linalg.norm(plain[0]) > vectorizer.length_
    assert_allclose(np.linalg.norm(stored, axis=1), vectorizer.length_, rtol=1e-6)
    assert stored[0, -1] < 1e-3 < stored[1, -1]


@pytest.mark.parametrize(
    "options",
    [
        {"analyzer": "char", "ngram_range": (2, 3)},
        {"analyzer": "char_wb", "ngram_range": (3, 3), "lowercase": False},
        {"ngram_range": (1, 2), "stop_words": ["the"]},
        {"token_pattern": r"[a-z]+", "strip_accents": "unicode"},
        {"tokenizer": str.split},
        {"analyzer": str.split},
        {"min_df": 2},
        {"max_df": 0.5, "min_df": 0.3},
    ],
)
def test_terms_are_those_of_scikit_learn(options):
    if "tokenizer" in options:
        options = options | {"token_pattern": None}
    elif "analyzer" not in options:
        options = {"token_pattern": r"(?u)\b\w+\b"} | options
    counter = CountVectorizer(**options)
    counts = counter.fit_transform(DOCUMENTS)
    vectorizer = BM25Vectorizer(norm=None, **options)
    stored = vectorizer.fit_transform(DOCUMENTS)
    assert vectorizer.vocabulary_ == counter.vocabulary_
    assert_array_equal(dense(stored) > 0, dense(counts) > 0)
    assert_array_equal(vectorizer.document_frequency_, np.bincount(counts.indices))
    assert_array_equal(vectorizer.get_feature_names_out(), counter.get_feature_names_out())


def test_names_of_columns():
    assert BM25Vectorizer(norm="append").fit(["b a"]).get_feature_names_out().tolist() == ["a", "b", "norm"]
    assert BM25Vectorizer(norm="l2", n_features=2).fit(["b a"]).get_feature_names_out().tolist() == ["hash0", "hash1"]


def test_fitting_again_forgets():
    vectorizer = BM25Vectorizer(n_features=8).fit(DOCUMENTS)
    vectorizer.set_params(n_features=64).fit(["another text"])
    assert vectorizer.n_documents_ == 1
    assert vectorizer.transform(["another"]).shape == (1, 65)


BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"k1": -1.0}, "k1 must be between"),
    ({"k3": math.nan}, "k3 must be between"),
    ({"b": 1.5}, "b must be between"),
    ({"query_idf": "half"}, "query_idf must be a real number"),
    ({"norm": "l1"}, "norm must be one of"),
    ({"n_features": 0}, "n_features must be between"),
    ({"analyzer": "words"}, "'analyzer' parameter"),
    ({"ngram_range": (2, 1)}, "ngram_range must be"),
    ({"ngram_range": (0, 1)}, "ngram_range must be"),
    ({"min_df": -1}, "'min_df' parameter"),
    ({"lowercase": "yes"}, "'lowercase' parameter"),
    ({"n_features": 8, "min_df": 2}, "max_df and min_df need a vocabulary"),
    ({"max_df": 0}, "exclude all terms|'max_df' parameter"),
    ({"stop_words": "german"}, "stop_words"),
]

BAD_TEXTS: list[tuple[Any, str]] = [
    ("a single text", "pass \\[text\\]"),
    (7, "must be an iterable of texts"),
    ([], "at least one text"),
    (["a", None], r"\[1\] is NoneType"),
    ([b"bytes"], r"\[0\] is bytes"),
    (np.array([["a", "b"]]), "one-dimensional"),
]


@pytest.mark.parametrize(("options", "match"), BAD_PARAMETERS)
def test_bad_parameters(options, match):
    vectorizer = BM25Vectorizer(**options)
    with pytest.raises((TypeError, ValueError), match=match):
        vectorizer.fit(DOCUMENTS)
    assert not hasattr(vectorizer, "document_frequency_")


@pytest.mark.parametrize(("texts", "match"), BAD_TEXTS)
@pytest.mark.parametrize("method", ["fit", "fit_transform", "partial_fit", "transform", "transform_documents"])
def test_bad_texts_change_nothing(texts, match, method):
    vectorizer = BM25Vectorizer().fit(DOCUMENTS)
    before = pickle.dumps(vectorizer)
    with pytest.raises((TypeError, ValueError), match=match):
        getattr(vectorizer, method)(texts)
    assert pickle.dumps(vectorizer) == before


def test_texts_without_terms():
    with pytest.raises(ValueError, match="at least one term"):
        BM25Vectorizer().fit(["?!", ""])
    vectorizer = BM25Vectorizer().fit([*DOCUMENTS, "?"])
    assert vectorizer.transform(["unseen"]).nnz == 0
    assert_allclose(dense(vectorizer.transform_documents([""]))[0, -1], vectorizer.length_)


def test_methods_need_documents():
    for method in ("transform", "transform_documents"):
        with pytest.raises(NotFittedError):
            getattr(BM25Vectorizer(), method)(["text"])
    with pytest.raises(NotFittedError):
        BM25Vectorizer().get_feature_names_out()


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_set_params,
    ],
)
def test_it_is_an_estimator_of_scikit_learn(check):
    check("BM25Vectorizer", BM25Vectorizer())


def test_tags_describe_the_input():
    tags = get_tags(BM25Vectorizer())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array


def test_lone_surrogates_are_refused_by_all():
    texts, classes = ["fine", "cut off \ud83d here"], ["a", "b"]
    learners = {
        "texts": [
            lambda given: TextClassifier().fit(given, classes),
            lambda given: FastTextClassifier().fit(given, classes),
            lambda given: SubwordVectors(min_count=1).fit(given),
            lambda given: TextClassifier(random_state=0).fit(["a", "b"], classes).predict(given),
        ],
        "documents": [
            lambda given: BM25Vectorizer().fit(given),
            lambda given: BM25Vectorizer(analyzer="char", n_features=16).fit(given),
        ],
        "words": [lambda given: SubwordVectors(min_count=1).fit(["fine words"]).word_vectors(given)],
    }
    for name, each in learners.items():
        for learn in each:
            with pytest.raises(ValueError, match=rf"{name}\[1\] must be valid Unicode, .* U\+D83D at position 8"):
                learn(texts)


def test_files_hold_no_functions(tmp_path: Path):
    learned = BM25Vectorizer(analyzer=str.split).fit(DOCUMENTS)
    learned.save(tmp_path / "keys")
    loaded = BM25Vectorizer.load(tmp_path / "keys")
    assert loaded.analyzer == "word"
    again = loaded.set_params(analyzer=str.split).transform(DOCUMENTS)
    np.testing.assert_array_equal(again.toarray(), learned.transform(DOCUMENTS).toarray())
    with pytest.raises(TypeError, match="terms must be text to be saved"):
        BM25Vectorizer(analyzer=lambda text: [(word,) for word in text.split()]).fit(DOCUMENTS).save(tmp_path / "keys")
    with pytest.raises(NotFittedError):
        BM25Vectorizer().save(tmp_path / "keys")
