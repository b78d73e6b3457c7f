"""Text classifiers on the command line, probabilities, rejection, explanations, updates, and the reading of tables."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from conftest import needs_jit
from internals import cli_models, persistence_container
from test_cli import fail, run, succeed

from cmt_numba import FileFormatError, MemoryStore
from cmt_numba.formats import open_data
from cmt_numba.text import TextClassifier

TEXTS = {
    "light": ["switch on the lamp", "it is dark in here", "more light please", "turn the lamp on"],
    "music": ["play some jazz", "put on my favourite song", "a song by the Beatles", "play music please"],
}


def write(path: Path, texts: dict[str, list[str]], sep: str = ",") -> Path:
    rows = [(text, label, f"u{i}") for i, (text, label) in enumerate((t, k) for k in texts for t in texts[k])]
    pandas.DataFrame(rows, columns=["text", "label", "id"]).to_csv(path, index=False, sep=sep)
    return path


@needs_jit
def test_texts_are_learned_by_a_text_classifier(tmp_path: Path):
    data, model = write(tmp_path / "requests.csv", TEXTS), tmp_path / "m.cmt"
    succeed("fit", data, "-m", model, "--text", "text")
    assert isinstance(cli_models.load_model(model).estimator, TextClassifier)
    assert "TextClassifier" in succeed("info", model)
    assert succeed("predict", data, "-m", model).split() == [k for k in TEXTS for _ in TEXTS[k]]
    assert succeed("query", data, "-m", model, "-k", 2).count("\t") == 8 * 3

    new = write(tmp_path / "new.csv", {"timer": ["set a timer for the pasta", "a timer for ten minutes"]})
    result = run("update", new, "-m", model)
    assert result.exit_code == 0, result.stderr
    assert succeed("predict", new, "-m", model).split() == ["timer", "timer"]
    assert "--passes cannot be combined with --text" in fail("fit", data, "-m", model, "--text", "text", "--passes", 2)


@needs_jit
def test_probabilities_rejection_and_explanations(tmp_path: Path):
    data, model = write(tmp_path / "requests.csv", TEXTS), tmp_path / "m.cmt"
    for options in (["--text", "text"], ["--kind", "text=text", "--ignore", "id"]):
        succeed("fit", data, "-m", model, *options)
        rows = [row.split("\t") for row in succeed("predict", data, "-m", model, "--probabilities").splitlines()]
        assert all(len(row) == 2 and 0.5 <= float(row[1]) <= 1.0 for row in rows)
        highest = max(float(row[1]) for row in rows)
        lines = succeed("predict", data, "-m", model, "--reject-below", min(1.0, highest + 1e-3)).splitlines()
        assert set(lines) <= {"", *(row[0] for row in rows if float(row[1]) == 1.0)}
        explained = succeed("predict", data, "-m", model, "--explain").splitlines()
        assert "lamp +" in explained[0].split("\t")[1]
    several = tmp_path / "several.xc"
    several.write_text("4 5 3\n" + "0,1 0:1 1:1\n1 2:1\n2 3:1 4:1\n0 0:1\n")
    succeed("fit", several, "-m", model)
    assert "one class per row" in fail("predict", several, "-m", model, "--probabilities")


@needs_jit
def test_texts_are_evaluated_with_a_text_classifier(tmp_path: Path):
    data = write(tmp_path / "requests.csv", {label: texts * 5 for label, texts in TEXTS.items()})
    for test in ([], ["--test", data]):
        printed = succeed("evaluate", data, "--text", "text", "--seeds", 1, *test, "--json", tmp_path / "result.json")
        result = json.loads((tmp_path / "result.json").read_text())["result"]
        assert result["metrics"]["error"][0] == 0.0
        names = {rival["name"] for rival in result["rivals"]}
        assert names == {"estimator", "majority", "exact", "means", "linear", "bm25"}
        assert "nearest example" in printed
    assert "--set cannot be combined with --text" in fail("evaluate", data, "--text", "text", "--set", "alpha=1")


@needs_jit
def test_a_text_classifier_is_suggested_and_unknown_words_are_counted(tmp_path: Path):
    data, model = write(tmp_path / "requests.csv", TEXTS), tmp_path / "m.cmt"
    command = ("fit", data, "-m", model, "--ignore", "id", "--holdout", 0)
    assert "Try --text text" in run(*command).stderr
    assert "Try --text text" in run("info", data).stderr
    assert "Try --text" not in run(*command, "--text", "text").stderr
    assert "words" not in run("predict", data, "-m", model).stderr
    new = write(tmp_path / "new.csv", {"light": ["a brighter lamp", "play"]})
    for options in (["--text", "text"], []):
        succeed(*command, *options)
        for ask in ("predict", "query"):
            assert "1 of 4 words (25.0%) do not occur in the training texts" in run(ask, new, "-m", model).stderr
    succeed("update", new, "-m", model)
    assert "words" not in run("predict", new, "-m", model).stderr


@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_the_header_shows_the_delimiter(sep: str, tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_text(sep.join(['"a;,b"', "c", "label"]) + "\n" + sep.join(["1", "2", "x"]) + "\n")
    batch = open_data(path).read()
    assert batch.X.tolist() == [[1.0, 2.0]]
    assert batch.y.tolist() == ["x"]


@needs_jit
def test_identifiers_are_reported_and_ignored(tmp_path: Path):
    rows = [{"user_id": 1000 + i, "age": 20 + i % 7, "id": i % 3, "label": "ab"[i % 2]} for i in range(40)]
    data, model = tmp_path / "people.csv", tmp_path / "m.cmt"
    pandas.DataFrame(rows).to_csv(data, index=False)
    result = run("fit", data, "-m", model)
    assert "Ignored: user_id." in " ".join(result.stderr.split())
    assert cli_models.load_model(model).options.columns == ("age", "id")
    assert len(succeed("predict", data, "-m", model).splitlines()) == 40
    result = run("fit", data, "-m", model, "--kind", "user_id=number")
    assert cli_models.load_model(model).options.columns == ("user_id", "age", "id")


@needs_jit
def test_texts_of_a_store_are_searched(tmp_path: Path):
    folder, texts = tmp_path / "notes", ["restart the router", "error E17: replace the fuse", "the router shows E17"]
    with MemoryStore(folder, random_state=0) as store:
        store.add(["n1", "n2", "n3"], texts=texts, payloads=[{"year": year} for year in (2019, 2020, 2021)])
        store.save(tmp_path / "notes.cmt")
    for path in (folder, tmp_path / "notes.cmt"):
        printed = succeed("search", path, "fuse", "E17")
        assert printed.index("replace the fuse") < printed.index("shows E17")
        found = succeed("search", path, "router", "--where", '{"year": {"gte": 2020}}', "--json", "-k", 1)
        assert json.loads(found)["key"] == "n3"
        assert json.loads(found)["payload"] == {"year": 2021}
    assert "No such file" in fail("search", tmp_path / "none", "router")
    for where in ("{", "[1]"):
        assert "--where must be" in fail("search", folder, "router", "--where", where)
    command = [sys.executable, "-m", "cmt_numba", "search", str(folder), "router", "--where", '{"yaer": 2020}']
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"^cmt-numba: warning: no payload has the field 'yaer'; .*$", shown, re.MULTILINE)


TEXT_KINDS = ("--kind", "title=text", "--kind", "body=text")


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
def test_texts_with_several_labels_become_weighted_words(news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    succeed("fit", news, "-m", model, "--label", "marks", "--ignore", "topic", *TEXT_KINDS)
    loaded = cli_models.load_model(model)
    assert loaded.options.kinds == ("title=text", "body=text")
    marks = pandas.read_csv(news)["marks"]
    answers = [set(line.split(",")) for line in succeed("predict", news, "-m", model).splitlines()]
    assert np.mean([row == set(one.split(",")) for row, one in zip(answers, marks, strict=True)]) > 0.9
    assert "title: river3" in loaded.features.get_feature_names_out()


@needs_jit
def test_rows_are_tagged_by_name(tmp_path: Path):
    path, model = tmp_path / "rows.jsonl", tmp_path / "tags.cmt"
    tags = [["maps", "city"], ["city"], ["alps", "maps"], []]
    texts = ["map of the city", "city hall", "map of the alps", "nothing"]
    rows = [{"text": text, "label": tag} for text, tag in zip(texts, tags, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 5))
    succeed("fit", path, "-m", model, "--text", "text", "--holdout", "0")
    expected = [sorted(tag) for tag in tags[:3]]
    found = succeed("predict", path, "-m", model).splitlines()[:3]
    assert [sorted(line.split(",")) for line in found] == expected
    answers = [json.loads(line) for line in succeed("query", path, "-m", model, "--json").splitlines()[:3]]
    assert [sorted(answer["labels"]) for answer in answers] == expected
    path.write_text('{"text": "sea shore", "label": ["beach"]}\n' * 5)
    succeed("update", path, "-m", model)
    assert succeed("predict", path, "-m", model).splitlines() == ["beach"] * 5


def test_an_option_is_not_the_value_of_another(news: Path, tmp_path: Path):
    words = ("fit", news, "--label", "topic", "--text", "--model", tmp_path / "news.cmt")
    assert "--text requires a value, but is followed by --model" in fail(*words)
    words = ("bandit", "evaluate", news, "--policy", "--reward", "topic")
    assert "--policy requires a value, but is followed by --reward" in fail(*words)


@needs_jit
@pytest.mark.parametrize(
    "spoil",
    [
        {"keys": "words"},
        {"keys": {"vectorizers": [{"kind": "Pipeline", "fields": {}}]}},
        {"keys.text0.vocabulary": None},
        {"read_options": None},
    ],
)
def test_models_with_damaged_words_are_refused(spoil: dict[str, Any], news: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    succeed("fit", news, "-m", model, "--label", "marks", "--ignore", "topic", *TEXT_KINDS)
    contents = persistence_container.read_contents(model, mmap=False)
    arrays = {name: array for name, array in contents.arrays.items() if name not in spoil}
    fields = contents.fields | {name: value for name, value in spoil.items() if value is not None}
    assert len(arrays) < len(contents.arrays) or fields != contents.fields
    persistence_container.write_contents(model, contents._replace(arrays=arrays, fields=fields))
    with pytest.raises(FileFormatError):
        cli_models.load_model(model)
