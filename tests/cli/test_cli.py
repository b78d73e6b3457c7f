"""The command line: learning, asking, evaluating and describing, on small files of made-up data."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import ROOT, needs_jit
from internals import cli_app, cli_models
from sklearn.datasets import dump_svmlight_file

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, __version__
from cmt_numba._warmup import KINDS
from cmt_numba.evaluation import RIVALS, batch_evaluation, growing_batches, progressive_validation
from cmt_numba.formats import FORMATS, open_data

pytest.importorskip("click")
pytest.importorskip("rich")
pandas = pytest.importorskip("pandas")

from click.testing import CliRunner, Result  # noqa: E402

from cmt_numba.cli import _options  # noqa: E402

COMMANDS = ("fit", "evaluate", "query", "predict", "info")


def run(*words: Any) -> Result:
    return CliRunner().invoke(cli_app.app, [str(word) for word in words])


def succeed(*words: Any) -> str:
    """Run a command that has to succeed, and return what it prints."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(*words: Any) -> str:
    """Run a command that has to fail in the right manner, and return its complaint."""
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    complaint = result.stderr
    assert complaint.startswith("cmt-numba: ")
    assert complaint.count("\n") == 1
    return complaint


def texts(n: int = 240, n_classes: int = 12, n_features: int = 60, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Return sparse rows that have words of their class and others, and these classes, of which 5 is the first."""
    rng = np.random.default_rng(seed)
    own = np.random.default_rng(7).integers(0, n_features, (n_classes, 6))
    y = rng.integers(0, n_classes, n)
    X = np.zeros((n, n_features), np.float32)
    for row, label in zip(X, y, strict=True):
        np.add.at(row, rng.choice(own[label], 4), 1.0)
        np.add.at(row, rng.integers(0, n_features, 2), 1.0)
    X[0, -1] = 1.0
    return scipy.sparse.csr_matrix(X), y + 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files that the tests read."""
    folder = tmp_path_factory.mktemp("files")
    for name, n, seed in (("train.svm", 240, 0), ("test.svm", 50, 1)):
        X, y = texts(n, seed=seed)
        dump_svmlight_file(X, y, str(folder / name))
    X, y = texts(150)
    Y = np.zeros((150, 18), np.int64)
    Y[np.arange(150), y] = 1
    Y[np.arange(150), y // 2] = 1
    rows = [
        ",".join(map(str, np.flatnonzero(labels))) + " " + " ".join(f"{j}:{row[j]}" for j in np.flatnonzero(row))
        for row, labels in zip(X.toarray(), Y, strict=True)
    ]
    (folder / "several.xc").write_text("\n".join(["150 60 18", *rows]) + "\n")
    words = [" ".join(f"word{j}" for j in np.flatnonzero(row)) for row in X.toarray()]
    frame = pandas.DataFrame({"topic": [f"topic {label}" for label in y], "body": words, "id": np.arange(150)})
    frame.to_csv(folder / "news.csv", index=False)
    frame[["id", "body"]].to_csv(folder / "news_unlabelled.csv", index=False)
    return folder


@needs_jit
def test_learn_describe_ask(folder: Path, tmp_path: Path):
    model = tmp_path / "my.cmt"
    result = run("fit", folder / "train.svm", "--model", model, "--passes", 2, "--set", "aggressiveness=0.8")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "held-out rows" in result.stderr
    X, y = texts()
    estimator = CMTClassifier(n_head_passes=2, aggressiveness=0.8, n_jobs=1, random_state=0)
    estimator.fit(scipy.sparse.csr_array(X), y)

    described = json.loads(succeed("info", model, "--json"))
    assert described["model"]["estimator"] == "CMTClassifier"
    assert described["model"]["features"] == 60
    assert described["model"]["classes"] == 12
    assert described["parameters"]["aggressiveness"] == 0.8
    assert "CMTClassifier" in succeed("info", model)

    queries, _ = texts(50, seed=1)
    predicted = estimator.predict(queries).tolist()
    lines = succeed("query", folder / "test.svm", "--model", model).splitlines()
    assert [int(line.split("\t")[0]) for line in lines] == predicted
    answers = [
        json.loads(line)
        for line in succeed(
            "query", folder / "test.svm", "-m", model, "-k", 3, "--json", "--batch-size", 7
        ).splitlines()
    ]
    assert [answer["row"] for answer in answers] == list(range(50))
    assert [answer["labels"][0] for answer in answers] == predicted
    places, scores = estimator.top_classes(queries, 3)
    assert [answer["labels"] for answer in answers] == estimator.classes_[places].tolist()
    assert np.allclose([answer["scores"] for answer in answers], scores)
    with pytest.raises(ValueError, match="k must be"):
        estimator.top_classes(queries, 0)
    output = tmp_path / "answers.csv"
    assert succeed("query", folder / "test.svm", "-m", model, "-k", 2, "--csv", "-o", output) == ""
    table = list(csv.DictReader(io.StringIO(output.read_text())))
    assert [int(line["label"]) for line in table if line["rank"] == "1"] == predicted
    assert len(table) == 100


@needs_jit
def test_learn_in_a_stream(folder: Path, tmp_path: Path):
    model = tmp_path / "my.cmt"
    succeed("fit", folder / "train.svm", "-m", model, "--streaming", "--batch-size", 100, "--seed", 3)
    estimator = CMTClassifier(store_examples=False, n_jobs=1, random_state=3)
    X, y = texts()
    for first in (0, 100, 200):
        estimator.partial_fit(X[first : first + 100], y[first : first + 100])
    learned = cli_models.load_model(model).estimator
    queries, _ = texts(50, seed=1)
    assert learned.examples_ is None
    assert np.array_equal(learned.predict(queries), estimator.predict(queries))
    assert np.array_equal(learned.top_classes(queries)[1], estimator.top_classes(queries)[1])


@needs_jit
def test_several_labels(folder: Path, tmp_path: Path):
    model = tmp_path / "tags.cmt"
    succeed("fit", folder / "several.xc", "-m", model)
    data = open_data(folder / "several.xc").read()
    estimator = CMTMultilabelClassifier(n_jobs=1, random_state=0).fit(data.X, data.y)
    predicted = estimator.predict(data.X)
    answers = [json.loads(line) for line in succeed("query", folder / "several.xc", "-m", model, "--json").splitlines()]
    assert [sorted(answer["labels"]) for answer in answers] == [
        sorted(predicted.indices[predicted.indptr[i] : predicted.indptr[i + 1]].tolist()) for i in range(150)
    ]
    assert all(answer["scores"] == sorted(answer["scores"], reverse=True) for answer in answers)
    alone = succeed("predict", folder / "several.xc", "-m", model).splitlines()
    assert [list(map(int, filter(None, line.split(",")))) for line in alone] == [
        sorted(one["labels"]) for one in answers
    ]
    best = succeed("query", folder / "several.xc", "-m", model, "-k", 1).splitlines()
    assert [int(line.split("\t")[0]) for line in best] == estimator.top_labels(data.X, 1)[0][:, 0].tolist()

    result = json.loads(succeed("evaluate", folder / "several.xc", "--progressive", "--json", "-"))["result"]
    assert result["task"] == "multilabel"
    assert result["n_examples"] == 150
    assert 0.0 < result["metrics"]["hamming"] < 3.0
    described = json.loads(succeed("info", folder / "several.xc", "--json"))["data"]
    assert described["labels"] == np.count_nonzero(data.y.sum(axis=0))
    assert described["labels per row"] == data.y.nnz / 150


@needs_jit
def test_no_labels_at_all(tmp_path: Path):
    (tmp_path / "bare.svm").write_text(" 1:1\n 2:1\n")
    model = tmp_path / "bare.cmt"
    assert run("fit", tmp_path / "bare.svm", "-m", model).exit_code == 0
    assert succeed("query", tmp_path / "bare.svm", "-m", model, "-k", 2) == "\n\n"
    succeed("evaluate", tmp_path / "bare.svm", "--progressive", "--json", "-")


@needs_jit
def test_words_and_names(folder: Path, tmp_path: Path):
    model = tmp_path / "news.cmt"
    options = ("--text", "body", "--label", "topic", "--bits", 12)
    succeed("fit", folder / "news.csv", "-m", model, *options)
    lines = succeed("query", folder / "news_unlabelled.csv", "-m", model).splitlines()
    truth = pandas.read_csv(folder / "news.csv")["topic"]
    assert np.mean([line.split("\t")[0] for line in lines] == truth) > 0.95
    described = json.loads(succeed("info", folder / "news.csv", *options, "--json"))["data"]
    assert described["classes"] == 12
    assert described["features"] == 4096


@needs_jit
def test_evaluate_progressively(folder: Path, tmp_path: Path):
    path, html = tmp_path / "result.json", tmp_path / "a.html"
    shown = succeed("evaluate", folder / "train.svm", "--progressive", "--json", path, "--report", html)
    written = json.loads(path.read_text())
    X, y = texts()
    estimator = CMTClassifier(store_examples=False, n_jobs=1, random_state=0)
    expected = progressive_validation(estimator, growing_batches(scipy.sparse.csr_array(X), y)).as_dict()
    assert written["result"]["metrics"] == expected["metrics"]
    assert written["result"]["curve"] == expected["curve"]
    assert f"{expected['metrics']['error']:.4f}" in shown
    assert f"evaluate {folder / 'train.svm'} --progressive" in (tmp_path / "a.html").read_text()


def test_every_rival_can_be_left_out():
    assert [*_options.RIVALS] == [*RIVALS]


@needs_jit
def test_evaluate_in_batches(folder: Path, tmp_path: Path):
    options = ("--seeds", 2, "--passes", 1, "--json", "-", "--report", tmp_path / "a.html")
    written = json.loads(succeed("evaluate", folder / "train.svm", "--test", folder / "test.svm", *options))
    (X, y), (queries, answers) = texts(), texts(50, seed=1)
    estimator = CMTClassifier(n_jobs=1, n_head_passes=1)
    expected = batch_evaluation(estimator, X, y, queries, answers, seeds=(0, 1)).as_dict()
    assert written["result"]["metrics"] == expected["metrics"]
    assert written["result"]["n_test"] == 50
    assert (tmp_path / "a.html").exists()
    held_out = json.loads(succeed("evaluate", folder / "train.svm", *options, "--holdout", 0.25))
    assert held_out["result"]["n_test"] == 60
    names = [one["name"] for one in held_out["result"]["rivals"]]
    assert names == ["estimator", "majority", "exact", "means", "linear"]
    shown = succeed("evaluate", folder / "train.svm", "--seeds", 1, "--without", "linear", "--without", "exact")
    assert "leaves" not in shown
    assert "nearest class mean" in shown
    assert "linear model" not in shown


@needs_jit
def test_test_data_may_be_wider(folder: Path, tmp_path: Path):
    wide = tmp_path / "wide.svm"
    wide.write_text((folder / "test.svm").read_text() + "5 99:1\n")
    options = ("--seeds", 1, "--json", "-")
    for train, test in ((folder / "train.svm", wide), (wide, folder / "train.svm")):
        assert json.loads(succeed("evaluate", train, "--test", test, *options))["result"]["n_test"] in (51, 240)
    model = tmp_path / "my.cmt"
    succeed("fit", folder / "train.svm", "-m", model)
    assert (
        "line 51: feature 99 is too large: features must be between 0 and 59" in run("query", wide, "-m", model).stderr
    )
    succeed("fit", folder / "train.svm", "-m", model, "--features", 100)
    succeed("query", wide, "-m", model)


@needs_jit
def test_progress_bar(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = run("evaluate", folder / "train.svm", "--progressive", "--progress", "--json", "-")
    size = f"{(folder / 'train.svm').stat().st_size / 1000:.2f}k"
    assert f"{size}/{size}" in result.stderr
    assert "rows=240" in result.stderr
    assert "predicting" not in run("evaluate", folder / "train.svm", "--progressive", "--json", "-").stderr
    fitted = run("fit", folder / "train.svm", "-m", tmp_path / "my.cmt", "--progress").stderr
    assert all(part in fitted for part in ("scanning", "reading", "pass"))
    assert cli_models.load_model(tmp_path / "my.cmt").estimator.verbose is False
    assert "pass" not in run("fit", folder / "train.svm", "-m", tmp_path / "my.cmt").stderr


def test_describe_data(folder: Path):
    described = json.loads(succeed("info", folder / "train.svm", "--json"))["data"]
    X, y = texts()
    labels, counts = np.unique(y, return_counts=True)
    assert described == {
        "format": "svmlight",
        "task": "multiclass",
        "rows": 240,
        "features": 60,
        "sparse": True,
        "features per row": X.nnz / 240,
        "density": X.nnz / (240 * 60),
        "classes": labels.size,
        "examples per class, mean": 240 / labels.size,
        "examples per class, median": np.median(counts),
        "most frequent class": described["most frequent class"],
        "examples of that class": counts.max(),
    }
    assert counts[labels.tolist().index(int(described["most frequent class"]))] == counts.max()
    assert "240" in succeed("info", folder / "train.svm")


def test_complaints_about_data(folder: Path, tmp_path: Path):
    broken = tmp_path / "broken.svm"
    broken.write_text("1 0:1\n2 x:1\n")
    for words in (("info",), ("evaluate",), ("evaluate", "--progressive"), ("fit", "-m", tmp_path / "my.cmt")):
        assert f"{broken}, line 2: must have the format label feature:value" in fail(words[0], broken, *words[1:])
        assert "does not exist" in fail(words[0], tmp_path / "none.svm", *words[1:])
        assert "is a directory" in fail(words[0], tmp_path, *words[1:])
    assert not (tmp_path / "my.cmt").exists()
    for option in ("--label", "--text", "--ignore"):
        complaint = fail("info", folder / "train.svm", option, "a")
        assert f"{option} names a column, but {folder / 'train.svm'} has the format svmlight" in complaint
    os.mkfifo(tmp_path / "pipe.svm")
    assert "write the data to a file" in fail("info", tmp_path / "pipe.svm")
    assert "NAME=VALUE" in fail("evaluate", folder / "train.svm", "--set", "colour=red")
    assert "loss must be one of" in fail("evaluate", folder / "train.svm", "--set", "loss=red")
    assert "--test cannot be combined with --progressive" in fail(
        "evaluate", folder / "train.svm", "--progressive", "--test", broken
    )
    assert "--ray cannot be combined with --progressive" in fail(
        "evaluate", folder / "train.svm", "--progressive", "--ray", "local"
    )
    assert "--holdout cannot be combined with --streaming" in fail(
        "fit", folder / "train.svm", "-m", tmp_path / "my.cmt", "--streaming", "--holdout", 0.2
    )
    assert "--test-labels requires --test" in fail("evaluate", folder / "train.svm", "--test-labels", broken)
    assert "choose the task multilabel" in fail("info", folder / "several.xc", "--task", "multiclass")
    assert run("--traceback", "info", broken).exception.__class__.__name__ == "FormatError"


@needs_jit
def test_complaints_about_models(folder: Path, tmp_path: Path):
    data, model = folder / "train.svm", tmp_path / "my.cmt"
    assert "No such file" in fail("query", data, "-m", model)
    assert "is not a cmt-numba file" in fail("query", data, "-m", data)
    assert "No such file" in fail("fit", data, "-m", tmp_path / "none" / "my.cmt")
    succeed("fit", data, "-m", model)
    (tmp_path / "words.csv").write_text("word,label\nred,1\n")
    assert "contains 'red', which is not a number" in fail("query", tmp_path / "words.csv", "-m", model)
    (tmp_path / "words.csv").unlink()
    assert "cannot be combined" in fail("query", data, "-m", model, "--json", "--csv")
    assert [path.name for path in tmp_path.iterdir()] == ["my.cmt"]  # nothing unfinished is left
    content = model.read_bytes()
    model.write_bytes(content[: len(content) // 2])
    assert "is truncated" in fail("info", model)
    CMTClassifier().save(model)
    assert "contains no options for reading data" in fail("query", data, "-m", model)


HELP = """
import sys
from cmt_numba.cli import main

sys.argv = ["cmt-numba", "--help"]
try:
    main()
finally:
    print(sorted({"numba", "numpy", "scipy", "sklearn"} & set(sys.modules)))
"""


def test_help_imports_no_slow_modules():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Contextual Memory Trees" in done.stdout
    assert done.stdout.endswith("\n[]\n")


def test_names_are_those_of_the_library():
    """They are written down once more, for what knows them takes long to import."""
    assert set(_options.FORMATS) == set(FORMATS)
    assert _options.WARMUP_KINDS == KINDS


def test_warmup_compiles_the_given_kinds(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    monkeypatch.setattr("cmt_numba._warmup.warmup", lambda kinds, **options: asked.append((kinds, options)))
    assert run("warmup", "tree", "--jobs", "2", "--no-progress").exit_code == 0
    assert run("warmup").exit_code == 0
    assert asked == [(("tree",), {"n_jobs": 2, "progress": False}), (KINDS, {"n_jobs": None, "progress": None})]
    assert run("warmup", "forest").exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples(command: str):
    help_text = succeed(command, "--help")
    assert f" cmt-numba {command} " in help_text
    assert command in succeed("--help")


def test_usage():
    assert succeed("--version") == f"cmt-numba {__version__}\n"
    for words in ("nonsense", "fit", "query a --model", "--none", "bandit", "evaluate a --seeds 0"):
        fail(*words.split())


def test_without_the_extra():
    code = "import sys; sys.modules['click'] = None; from cmt_numba.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "cmt-numba: click is missing: pip install 'cmt-numba[cli]'\n"
    done = subprocess.run([sys.executable, "-m", "cmt_numba", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"cmt-numba {__version__}\n"


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.csv").write_text("x,label\n1,2\n")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "pandas is missing: pip install 'cmt-numba[cli]'" in fail("info", tmp_path / "a.csv")


def started(*words: Any, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cmt_numba", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_interrupt_while_it_starts(folder: Path, tmp_path: Path):
    """At the first import of what takes long, from where an interrupt would come out with a traceback."""
    (tmp_path / "numba.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = started("evaluate", folder / "train.svm", env={**os.environ, "PYTHONPATH": path})
    output, complaint = process.communicate(timeout=300)
    assert (process.returncode, output, complaint) == (130, "", "")


def test_a_closed_output_ends_the_command(folder: Path):
    for words in (("info", folder / "train.svm", "--json"), ("--help",)):
        process = started(*words)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.communicate(timeout=300)[1] == ""
        assert process.returncode == 1


@needs_jit
@pytest.mark.skipif(sys.platform == "win32", reason="the shell is POSIX")
def test_an_output_that_cannot_be_written_is_an_error(folder: Path, tmp_path: Path):
    model = tmp_path / "my.cmt"
    succeed("fit", folder / "train.svm", "-m", model)
    predict = f"predict '{folder / 'test.svm'}' -m '{model}'"
    cases = [("--help >&-", "standard output: it is closed")]
    if Path("/dev/full").exists():
        cases += [(f"{words} >/dev/full", "No space left on device") for words in ("--help", predict)]
    for words, reason in cases:
        command = f"exec '{sys.executable}' -m cmt_numba {words}"
        result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
        assert result.returncode == 2
        assert re.fullmatch(f"cmt-numba: (standard output: )?{reason}\n", result.stderr)


def test_a_file_that_cannot_be_read_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    for words in (("info", folder / "train.svm"), ("fit", folder / "train.svm", "-m", folder / "none.cmt")):
        assert "train.svm' is not readable" in fail(*words)


def test_a_failed_allocation_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def look_through(*_: Any) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("cmt_numba.cli._data.scan", look_through)
    assert "not enough memory: std::bad_alloc" in fail("info", folder / "train.svm")


@needs_jit
def test_outputs_are_checked_before_the_work(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("_query", "_training"):  # a command that reads its data would fail otherwise
        monkeypatch.setattr(f"cmt_numba.cli.{module}.scan", None)
    data, none = folder / "train.svm", tmp_path / "none" / "file"
    assert "Is a directory" in fail("fit", data, "-m", tmp_path)
    assert "is not a regular file" in fail("fit", data, "-m", os.devnull)
    assert "No such file" in fail("fit", data, "-m", none)
    for option in ("--report", "--json"):
        assert "No such file" in fail("evaluate", data, option, none)
        assert "Is a directory" in fail("evaluate", data, option, tmp_path)
    assert "No such file" in fail("query", data, "-m", none, "-o", none)


def test_second_files_of_labels(folder: Path, tmp_path: Path):
    np.save(tmp_path / "y.npy", np.zeros(240, int))
    assert "contains labels" in fail("info", folder / "train.svm", "--labels", tmp_path / "y.npy")
    options = ("--test", folder / "test.svm", "--test-labels", tmp_path / "y.npy")
    assert "contains labels" in fail("evaluate", folder / "train.svm", *options)


@needs_jit
def test_objects_and_labels_alone(tmp_path: Path):
    data, model = tmp_path / "news.jsonl", tmp_path / "news.cmt"
    rows = [{"label": f"topic {i % 3}", "text": f"word{i % 3} more{i % 7}", "id": i} for i in range(60)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert open_data(data, text=("text",)).read().y.tolist() == [row["label"] for row in rows]
    succeed("fit", data, "-m", model, "--text", "text", "--bits", 10)
    best = [line.split("\t")[0] for line in succeed("query", data, "-m", model).splitlines()]
    output = tmp_path / "labels.txt"
    assert succeed("predict", data, "-m", model, "-o", output) == ""
    assert output.read_text().splitlines() == best == [row["label"] for row in rows]
