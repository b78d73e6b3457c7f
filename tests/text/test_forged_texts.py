"""Forged files of text models, with a wrong array or field and a valid checksum, are refused or do no harm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from forged import check_forgeries

from cmt_numba import InvariantError
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, SubwordVectors, TextClassifier

TEXTS = ["the red fox sleeps", "a blue whale", "red planets are far", "the blue planet", "red and blue"] * 3
TOPICS = ["animal", "animal", "planet", "planet", "colour"] * 3
QUERIES = ["Which planets are red?", "foxes", "", "the blue whale"]


def bm25(**options: Any) -> BM25Vectorizer:
    vectorizer = BM25Vectorizer(**options)
    keys = vectorizer.fit_transform(TEXTS)
    return vectorizer.learn_weights(["red planet"] * 2, keys, [[2, 0]] * 2, [[1, 0]] * 2)


def fasttext(**options: Any) -> FastTextClassifier:
    settings = {"n_epochs": 2, "min_n": 2, "max_n": 3, "n_buckets": 50, "random_state": 0}
    return FastTextClassifier(4, **settings | options).fit(TEXTS, TOPICS)


def subword(**options: Any) -> SubwordVectors:
    settings = {"min_n": 2, "max_n": 3, "n_buckets": 50, "min_count": 2, "n_epochs": 1, "random_state": 0}
    return SubwordVectors(4, **settings | options).fit([*TEXTS, "a rare word"])


def encode(texts: list[str]) -> np.ndarray:
    """Return a vector of three components for each text."""
    return np.array([[1.0, len(text), text.count("e")] for text in texts])


def text_classifier(encoder: Any = None) -> TextClassifier:
    classifier = TextClassifier(encoder, random_state=0).fit(TEXTS, TOPICS)
    return classifier.partial_fit(["a red rose"], ["flower"], ids=["rose"])


MODELS: dict[str, Callable[[], Any]] = {
    "bm25": bm25,
    "bm25 hashed": lambda: bm25(n_features=30, norm="l2", ngram_range=(1, 2)),
    "subword": subword,
    "subword sif": lambda: subword(pooling="sif", method="cbow", n_whole_words=2),
    "fasttext": fasttext,
    "fasttext of means": lambda: fasttext(weighting="mean", word_ngrams=1),
    "text classifier": text_classifier,
    "text classifier with an encoder": lambda: text_classifier(encode),
}


def use(model: Any) -> None:
    """Call the public methods of a model, and check that all results are finite."""
    keys = [getattr(model, name)(QUERIES) for name in ("transform", "transform_documents") if hasattr(model, name)]
    if isinstance(model, TextClassifier):
        if model._model is None:
            return  # the file of an unfitted classifier
        if model._model.dense is not None:
            model.set_params(encoder=encode)
            try:
                model.predict(QUERIES)
            except ValueError:
                return  # the stored vectors are not those of the encoder
        assert np.isfinite(model.predict_proba(QUERIES)).all()
        model.explain(QUERIES[:1])
        model.partial_fit(["a green frog"], model.classes_[:1], ids=["frog"]).remove("frog")
        model.calibrate(TEXTS[:2], model.classes_[:2])
        model.predict(QUERIES)
        return
    if isinstance(model, FastTextClassifier):
        keys += [model.predict_proba(QUERIES), model.top_classes(QUERIES, 3)[1], model.top_classes(QUERIES, 1)[1]]
        model.predict(QUERIES)
    assert len(model.get_feature_names_out()) == keys[0].shape[1]
    if isinstance(model, SubwordVectors):
        keys += [model.word_vectors(["fox", "foxes"]), np.array([score for _, score in model.nearest_words("fox", 3)])]
        keys.append(model.partial_fit(TEXTS).transform(QUERIES))
    if isinstance(model, BM25Vectorizer):
        documents = model.transform_documents(TEXTS)
        model.learn_weights(["red planet"], documents, [[2, 0]], [[1, 0]])
        keys.append(model.partial_fit(["a red whale"]).transform(QUERIES))
    for key in keys:
        assert np.isfinite(key.data if scipy.sparse.issparse(key) else key).all()


@needs_jit
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", MODELS)
def test_wrong_files_are_refused_or_do_no_harm(name: str, tmp_path: Path):
    model = MODELS[name]()
    model.save(tmp_path / "model")
    # Forge only what an encoder adds: loading a CMTClassifier for every forgery is slow.
    apart = ("dense.", "sums.", "vectors.", "stored.t", "stored.i", "model") if name.endswith("encoder") else ()
    check_forgeries((tmp_path / "model").read_bytes(), type(model).load, use, tmp_path / "file", apart)


def test_files_that_cannot_analyse_texts_are_refused(tmp_path: Path):
    for wrong in ({"token_pattern": "("}, {"token_pattern": "(a)(b)"}, {"stop_words": [[]]}):
        contents = bm25()._contents()
        contents.fields["parameters"].update(wrong)
        with pytest.raises((InvariantError, ValueError)):
            BM25Vectorizer._made_of(contents)


def test_a_scorer_of_encoded_texts_must_fit_the_stored_texts():
    for change in (
        lambda dense: dense.pop("model"),
        lambda dense: dense["parameters"].update(max_examples=3),
        lambda dense: dense.update(n_features=2),
    ):
        contents = text_classifier(encode)._contents()
        change(contents.fields["model"]["dense"])
        with pytest.raises((InvariantError, ValueError)):
            TextClassifier._made_of(contents)
