"""Files of text models with a wrong array or field and a valid checksum: refused, or loaded as a model that works."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from mutations import parsed, sealed

from cmt_numba.persistence import FileFormatError
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, HybridVectorizer, SubwordVectors

TEXTS = ["the red fox sleeps", "a blue whale", "red planets are far", "the blue planet", "red and blue"] * 3
TOPICS = ["animal", "animal", "planet", "planet", "colour"] * 3
QUERIES = ["Which planets are red?", "foxes", "", "the blue whale"]

NUMBERS = (0, 1, -1, 3, 2**31, 2**62, -(2**63), 10**400, 0.5, -0.5, 1e-320, 1e308)
OTHERS = (None, True, "", "key", "(", "(a)(b)", [], {}, [0], {"a": 1}, [[]], ["", ""], [1e300, -5])


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


MODELS: dict[str, Callable[[], Any]] = {
    "bm25": bm25,
    "bm25 hashed": lambda: bm25(n_features=30, norm="l2", ngram_range=(1, 2)),
    "subword": subword,
    "subword sif": lambda: subword(pooling="sif", method="cbow", n_whole_words=2),
    "softmax": fasttext,
    "hierarchical": lambda: fasttext(loss="hierarchical", weighting="mean"),
    "negative": lambda: fasttext(loss="negative", word_ngrams=1),
    "hybrid": lambda: HybridVectorizer(weight="held_out", dense=fasttext()).fit(TEXTS, TOPICS),
    "hybrid of bm25": lambda: HybridVectorizer(bm25(), subword(pooling="sif")).fit(TEXTS, TOPICS),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[type, bytes]]:
    """Return the class and the file of each model."""
    path = tmp_path_factory.mktemp("texts") / "model"
    found = {}
    for name, new in MODELS.items():
        model = new()
        model.save(path)
        found[name] = (type(model), path.read_bytes())
    return found


def use(model: Any) -> None:
    """Use a model as users do. Whatever it computes is finite."""
    keys = [getattr(model, name)(QUERIES) for name in ("transform", "transform_documents") if hasattr(model, name)]
    if isinstance(model, FastTextClassifier):
        keys += [model.predict_proba(QUERIES), model.top_classes(QUERIES, 3)[1], model.top_classes(QUERIES, 1)[1]]
        model.predict(QUERIES)
    if not isinstance(model, HybridVectorizer):
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


def outcome(kind: type, forged: bytes, path: Path) -> str:
    path.write_bytes(forged)
    try:
        model = kind.load(path)  # type: ignore[attr-defined]
    except FileFormatError:
        return "refused"
    use(model)
    return "works"


def forged_arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield wrong versions of an array: of other values, and of other lengths."""
    is_real = array.dtype.kind == "f"
    least, most = (
        (np.finfo if is_real else np.iinfo)(array.dtype).min,
        (np.finfo if is_real else np.iinfo)(array.dtype).max,
    )
    values = [0, 1, least, most, *((np.nan, np.inf, -1.0) if is_real else (most // 2, 7))]
    for value in values:
        yield np.full_like(array, value)
        for place in (0, -1):
            one = array.copy()
            one.reshape(-1)[place : None if place else 1] = value
            yield one
    yield array[:-1]
    yield array[:0]
    yield np.concatenate([array, array])
    yield array[::-1]


def forged_values(value: Any) -> Iterator[Any]:
    """Yield a JSON value with each of its parts replaced or left out."""
    yield from NUMBERS
    yield from OTHERS
    if isinstance(value, list):
        for i in sorted({0, len(value) - 1} & set(range(len(value)))):
            yield from ([*value[:i], part, *value[i + 1 :]] for part in forged_values(value[i]))
        yield value[:-1]
        yield value + value[:1]
    if isinstance(value, dict):
        for key in value:
            yield from (value | {key: part} for part in forged_values(value[key]))
            yield {other: part for other, part in value.items() if other != key}


@needs_jit
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", MODELS)
def test_wrong_arrays_are_refused_or_do_no_harm(files: dict[str, Any], name: str, tmp_path: Path):
    kind, file = files[name]
    described, arrays = parsed(file)
    outcomes = []
    for i, entry in enumerate(described["arrays"]):
        array = np.frombuffer(arrays[i], entry["dtype"]).reshape(entry["shape"])
        if array.dtype == np.uint8:
            wrong = [
                np.frombuffer(json.dumps(value).encode(), np.uint8)
                for value in forged_values(json.loads(array.tobytes()))
            ]
        else:
            wrong = list(forged_arrays(array))
        for forgery in wrong:
            header = described | {"arrays": [dict(one) for one in described["arrays"]]}
            header["arrays"][i]["shape"] = forgery.shape
            contents = [*arrays[:i], np.ascontiguousarray(forgery).tobytes(), *arrays[i + 1 :]]
            try:
                outcomes.append(outcome(kind, sealed(header, contents), tmp_path / "file"))
            except Exception as error:
                raise AssertionError(f"{entry['name']} {forgery!r:.300}") from error
    assert {"refused", "works"} >= set(outcomes)
    assert "refused" in outcomes


@needs_jit
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", MODELS)
def test_wrong_fields_are_refused_or_do_no_harm(files: dict[str, Any], name: str, tmp_path: Path):
    kind, file = files[name]
    described, arrays = parsed(file)
    for fields in forged_values(described["fields"]):
        header = described | {"arrays": [dict(one) for one in described["arrays"]], "fields": fields}
        try:
            outcome(kind, sealed(header, arrays), tmp_path / "file")
        except Exception as error:
            raise AssertionError(f"{fields!r}") from error
