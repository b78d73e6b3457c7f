"""Saving and loading vectorizers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from cmt_numba.text import BM25Vectorizer

TEXTS = ["the red fox sleeps", "a blue whale", "red planets are far", "the blue planet", "red and blue"] * 3
TOPICS = ["animal", "animal", "planet", "planet", "colour"] * 3
QUERIES = ["Which planets are red?", "foxes", ""]


def assert_same_keys(one: Any, other: Any, transform: str = "transform") -> None:
    expected, found = getattr(one, transform)(QUERIES), getattr(other, transform)(QUERIES)
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": None, "k1": np.float64(1.2)},
        {"analyzer": "char_wb", "ngram_range": (2, 3), "norm": "l2"},
        {"n_features": 50, "stop_words": ["the"]},
    ],
)
def test_bm25_files_give_the_same_keys(options: dict[str, Any], tmp_path: Path):
    learned = BM25Vectorizer(**options)
    keys = learned.fit_transform(TEXTS)
    learned.learn_weights(["red planet"] * 2, keys, [[2, 0]] * 2, [[1, 0]] * 2)
    learned.save(tmp_path / "keys")
    loaded = BM25Vectorizer.load(tmp_path / "keys", mmap=True)
    assert_same_keys(learned, loaded)
    assert_same_keys(learned, loaded, "transform_documents")
    assert loaded.get_params() == learned.get_params()
    assert_same_keys(learned.partial_fit(["a red whale"]), loaded.partial_fit(["a red whale"]))


def test_bm25_files_hold_no_functions(tmp_path: Path):
    learned = BM25Vectorizer(analyzer=str.split).fit(TEXTS)
    learned.save(tmp_path / "keys")
    loaded = BM25Vectorizer.load(tmp_path / "keys")
    assert loaded.analyzer == "word"
    assert_same_keys(learned, loaded.set_params(analyzer=str.split))
    with pytest.raises(TypeError, match="terms must be text to be saved"):
        BM25Vectorizer(analyzer=lambda text: [(word,) for word in text.split()]).fit(TEXTS).save(tmp_path / "keys")
    with pytest.raises(NotFittedError):
        BM25Vectorizer().save(tmp_path / "keys")
