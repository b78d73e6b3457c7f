"""Files of version 0.1.0 of all other kinds than trees, classifiers, retrievers and policies still load."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from make_fixtures import FIXTURES

from cmt_numba import CMTMultilabelClassifier
from cmt_numba.neighbors import LandmarkIndex
from cmt_numba.reranking import Reranker
from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, HybridVectorizer, SubwordVectors

FOLDER = FIXTURES / "kinds_3"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))
X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
TEXTS = ["a red fox runs", "the blue whale swims", "red planets turn", "blue cheese smells", "a fox eats cheese"]
DOCUMENTS = ["a red fox", "red wine", "a blue whale", "blue cheese"]

ASKED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "bm25": (BM25Vectorizer, lambda vectorizer: np.ravel(vectorizer.transform(TEXTS[:3]).sum(axis=1))),
    "subword": (SubwordVectors, lambda vectors: vectors.transform(TEXTS[:3])[:, 0]),
    "fasttext": (FastTextClassifier, lambda classifier: classifier.predict(TEXTS)),
    "hybrid": (HybridVectorizer, lambda vectorizer: vectorizer.transform(TEXTS[:2]).shape),
    "edit": (EditDistance, lambda distance: distance.paired(["abc"], ["abd"])),
    "vptree": (VPTree, lambda tree: tree.query(["abc"], k=1).ids),
    "sequences": (SequenceMemory, lambda memory: memory.query(["hij"], k=1).ids),
    "landmarks": (LandmarkIndex, lambda index: index.query(X[:3], k=1).ids),
    "reranker": (Reranker, lambda ranker: ranker.rerank(["red"], DOCUMENTS, ([[0, 1]], [[0.9, 0.8]])).ids),
    "multilabel": (CMTMultilabelClassifier, lambda tagger: tagger.predict(X[:5])),
}


def test_every_file_is_asked():
    assert set(ASKED) == set(ANSWERS) == {path.stem for path in FOLDER.glob("*.cmt")}


@needs_jit
@pytest.mark.parametrize("name", ASKED)
def test_files_of_the_first_version_answer(name: str):
    kind, ask = ASKED[name]
    found = ask(kind.load(FOLDER / f"{name}.cmt"))
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    expected = np.asarray(ANSWERS[name])
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, atol=0.01)
    else:
        np.testing.assert_array_equal(found, expected)
