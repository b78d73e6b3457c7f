"""Models of texts in files and pickles."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError
from test_forged_texts import MODELS, QUERIES, TEXTS, TOPICS, bm25, encode

from cmt_numba.text import BM25Vectorizer, FastTextClassifier, TextClassifier


def answers(model: Any) -> list[Any]:
    if isinstance(model, TextClassifier):
        return [model.predict_proba(QUERIES), model.ids_]
    if isinstance(model, FastTextClassifier):
        return [model.predict_proba(QUERIES), *model.top_classes(QUERIES, 2)]
    keys = [getattr(model, name)(QUERIES) for name in ("transform", "transform_documents") if hasattr(model, name)]
    return [each.toarray() if scipy.sparse.issparse(each) else each for each in keys]


def assert_same(one: Any, other: Any) -> None:
    for expected, found in zip(answers(one), answers(other), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [*MODELS, "bm25 of characters"])
def test_files_pickles_and_another_fit_go_on_as_the_model(name: str, tmp_path: Path):
    make = {"bm25 of characters": partial(bm25, analyzer="char_wb", ngram_range=(2, 3), k1=np.float64(1.2))} | MODELS
    model, path = make[name](), tmp_path / "model"
    model.save(path)
    ways: list[dict[str, Any]] = [{}] if isinstance(model, TextClassifier) else [{}, {"mmap": True}]
    of_files = [type(model).load(path, **how) for how in ways]
    seed_and_encoder = {"random_state", "encoder"}  # which files do not hold
    for loaded in of_files:
        differing = {key for key, value in loaded.get_params().items() if value != model.get_params()[key]}
        assert differing <= seed_and_encoder
        if name.endswith("with an encoder"):
            loaded.set_params(encoder=encode)
    others = [make[name](), pickle.loads(pickle.dumps(model)), *of_files]
    for other in others:
        assert_same(model, other)
    if hasattr(model, "partial_fit"):
        labels = [TOPICS[:2]] if isinstance(model, TextClassifier) else []
        for each in (model, *others):
            each.partial_fit([f"another {text}" for text in TEXTS[:2]], *labels)
            assert_same(model, each)


def test_bm25_files_hold_no_functions(tmp_path: Path):
    learned = BM25Vectorizer(analyzer=str.split).fit(TEXTS)
    learned.save(tmp_path / "keys")
    loaded = BM25Vectorizer.load(tmp_path / "keys")
    assert loaded.analyzer == "word"
    assert_same(learned, loaded.set_params(analyzer=str.split))
    with pytest.raises(TypeError, match="terms must be text to be saved"):
        BM25Vectorizer(analyzer=lambda text: [(word,) for word in text.split()]).fit(TEXTS).save(tmp_path / "keys")
    with pytest.raises(NotFittedError):
        BM25Vectorizer().save(tmp_path / "keys")
