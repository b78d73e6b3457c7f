"""TextKeys of texts on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from conftest import needs_jit
from test_cli import fail, succeed

from cmt_numba import CMTClassifier, FileFormatError
from cmt_numba.cli._model_files import load_model
from cmt_numba.cli._options import TextKeys
from cmt_numba.formats import open_data
from cmt_numba.persistence._container import read_contents, write_contents

KIND_OF = {
    "words": "TfidfVectorizer",
    "characters": "TfidfVectorizer",
    "bm25": "BM25Vectorizer",
    "subword": "SubwordVectors",
}


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table of titles and bodies, with topics and marks."""
    rng = np.random.default_rng(0)
    topics = rng.integers(0, 6, 120)
    own = [f"river{topic} stone{topic}" for topic in topics]
    title = [f"{words} {rng.integers(100)}" for words in own]
    body = [f"{words} und {rng.integers(100)}" for words in own]
    body[3] = None
    frame = pandas.DataFrame({"title": title, "body": body, "topic": topics + 5, "marks": [f"{t},9" for t in topics]})
    path = tmp_path_factory.mktemp("news") / "news.csv"
    frame.to_csv(path, index=False)
    return path


@needs_jit
@pytest.mark.parametrize("keys", list(TextKeys))
def test_keys_are_kept_in_the_model(keys: str, news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    columns = ("--text", "title", "--text", "body")
    succeed("fit", news, "-m", model, *columns, "--label", "topic", "--ignore", "marks", "--keys", keys)
    answers = [int(line.split("\t")[0]) for line in succeed("query", news, "-m", model).splitlines()]
    assert np.mean(answers == pandas.read_csv(news)["topic"]) > 0.9
    described = json.loads(succeed("info", model, "--json"))["model"]
    assert described["keys"] == KIND_OF[keys]
    loaded = load_model(model)
    texts = open_data(news, loaded.options).read().X
    assert texts.shape == (120,)
    assert texts[0].startswith("river")
    np.testing.assert_array_equal(CMTClassifier.load(model).predict(loaded.rows(texts)), answers)


@needs_jit
def test_keys_of_texts_with_several_labels(news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    succeed("fit", news, "-m", model, "--text", "title", "--label", "marks", "--keys", "subword")
    assert succeed("query", news, "-m", model, "-k", 2).count("\n") == 120


def test_complaints_about_keys(news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    given = ("fit", news, "-m", model, "--label", "topic", "--keys")
    assert "--keys words requires text columns; name them with --text" in fail(*given, "words")
    assert "--keys cannot be combined with --streaming" in fail(*given, "bm25", "--text", "title", "--streaming")
    (tmp_path / "train.svm").write_text("1 0:1\n2 1:1\n")
    assert "--text names a column" in fail(
        "fit", tmp_path / "train.svm", "-m", model, "--keys", "words", "--text", "title"
    )
    assert not model.exists()


@needs_jit
@pytest.mark.parametrize(
    "spoil", [{"keys": "words"}, {"keys": {"kind": "Pipeline", "fields": {}}}, {"keys.vocabulary": None}]
)
def test_models_with_damaged_keys_are_refused(spoil: dict[str, Any], news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    succeed("fit", news, "-m", model, "--text", "title", "--label", "topic", "--keys", "words")
    contents = read_contents(model, mmap=False)
    arrays = {name: array for name, array in contents.arrays.items() if name not in spoil}
    write_contents(model, contents._replace(arrays=arrays, fields=contents.fields | spoil))
    with pytest.raises(FileFormatError):
        load_model(model)
