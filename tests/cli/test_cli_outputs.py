"""What commands write: never over an input, without control characters, and no traceback whatever they read."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit

pytest.importorskip("click")
pytest.importorskip("rich")
pandas = pytest.importorskip("pandas")

from test_cli import fail, run, succeed  # noqa: E402

ESCAPE = "\x1b[31m[bold]red\x7f\x9b\u2028"  # control characters of terminals, and a line separator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, a model of it, a log, and their twins under other names."""
    folder = tmp_path_factory.mktemp("outputs")
    rows = [f"red car {i % 7},a\nblue sky {i % 5},{ESCAPE}" for i in range(40)]
    (folder / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    (folder / "test.csv").write_bytes((folder / "t.csv").read_bytes())
    log = "action,reward,p\n" + "".join(f"{i % 3},{i % 2},0.3333\n" for i in range(60))
    (folder / "log.csv").write_text(log)
    np.savez(folder / "arrays.npz", np.eye(4, dtype=np.float32))
    np.save(folder / "labels.npy", np.arange(4))
    (folder / "data").mkdir()
    pandas.read_csv(folder / "t.csv").to_parquet(folder / "data" / "part.parquet")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    assert run("fit", folder / "t.csv", "--text", "text", "--model", folder / "m.cmt").exit_code == 0
    return folder / "m.cmt"


COLLISIONS = [
    ("fit t.csv --model OUT", "t.csv"),
    ("fit data --model OUT", "data/part.parquet"),
    ("fit arrays.npz --labels labels.npy --model OUT", "labels.npy"),
    ("evaluate t.csv --json OUT", "t.csv"),
    ("evaluate t.csv --report OUT", "t.csv"),
    ("evaluate t.csv --test test.csv --json OUT", "test.csv"),
    ("evaluate t.csv --test test.csv --report OUT", "test.csv"),
    ("evaluate arrays.npz --labels labels.npy --report OUT", "labels.npy"),
    ("evaluate arrays.npz --labels t.csv --test test.csv --test-labels labels.npy --json OUT", "labels.npy"),
    ("query t.csv --model m.cmt --output OUT", "t.csv"),
    ("query t.csv --model m.cmt --output OUT", "m.cmt"),
    ("predict t.csv --model m.cmt --output OUT", "t.csv"),
    ("predict t.csv --model m.cmt --output OUT", "m.cmt"),
    ("bandit evaluate log.csv --policy random --json OUT", "log.csv"),
    ("bandit evaluate log.csv --policy random --report OUT", "log.csv"),
    ("bandit evaluate log.csv --policy m.cmt --json OUT", "m.cmt"),
]


@needs_jit
@pytest.mark.parametrize("link", ["same name", "other spelling", "symbolic link", "hard link"])
def test_an_output_that_is_an_input_is_refused(
    folder: Path, model: Path, link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    for i, (command, victim) in enumerate(COLLISIONS):
        output = {"same name": victim, "other spelling": f"./data/../{victim}"}.get(link, str(tmp_path / f"{i}"))
        if link == "symbolic link":
            os.symlink(folder / victim, output)
        elif link == "hard link":
            os.link(folder / victim, output)
        before = (folder / victim).read_bytes()
        assert f"the output {Path(output)} is the same file as the input" in fail(
            *command.replace("OUT", output).split()
        ), command
        assert (folder / victim).read_bytes() == before


def test_two_outputs_that_are_one_file_are_refused(folder: Path, tmp_path: Path):
    for command in (("evaluate", folder / "t.csv"), ("bandit", "evaluate", folder / "log.csv", "--policy", "random")):
        os.symlink(tmp_path / "new", tmp_path / "link")
        for other in ("new", "link"):
            complaint = fail(*command, "--json", tmp_path / "new", "--report", tmp_path / other)
            assert "is the same file as the output" in complaint
        (tmp_path / "link").unlink()
    assert not (tmp_path / "new").exists()


@needs_jit
def test_an_output_remains_if_the_input_is_damaged(folder: Path, model: Path, tmp_path: Path):
    output, data = tmp_path / "labels.txt", tmp_path / "bad.csv"
    data.write_text((folder / "t.csv").read_text(encoding="utf-8") + "red,a,more\n", encoding="utf-8")
    output.write_text("of yesterday")
    for command in ("predict", "query"):
        fail(command, data, "--model", model, "--batch-size", 10, "--output", output)
        assert {path.name: path.read_text() for path in tmp_path.glob("*.txt")} == {"labels.txt": "of yesterday"}
    succeed("predict", folder / "t.csv", "--model", model, "--output", output)
    assert len(output.read_text().splitlines()) == 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "labels.txt"]


@needs_jit
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there is no /dev/stdout")
def test_outputs_may_be_pipes(folder: Path, model: Path):
    command = [sys.executable, "-m", "cmt_numba", "predict", folder / "t.csv", "-m", model, "-o", "/dev/stdout"]
    assert len(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()) == 80


@needs_jit
def test_a_standard_output_that_is_the_input_is_refused(folder: Path, model: Path, tmp_path: Path):
    data = tmp_path / "t.csv"
    data.write_bytes((folder / "t.csv").read_bytes())
    words = [sys.executable, "-m", "cmt_numba", "predict", str(data), "--model", str(model)]
    with data.open("a") as file:
        done = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "the output - is the same file as the input" in done.stderr
    assert data.read_bytes() == (folder / "t.csv").read_bytes()


@needs_jit
def test_control_characters_are_escaped_in_all_output(folder: Path, model: Path):
    data = folder / "t.csv"
    ask = ("--model", model, "-k", 2)
    printed = {
        "lines": succeed("query", data, *ask),
        "csv": succeed("query", data, *ask, "--csv"),
        "json": succeed("query", data, *ask, "--json"),
        "labels": succeed("predict", data, "--model", model),
        "info": succeed("info", data),
        "info as json": succeed("info", data, "--json"),
        "evaluation": succeed("evaluate", data, "--seeds", 1, "--json", "-"),
        "error": fail("info", ESCAPE),
    }
    for name, text in printed.items():
        assert not set(text) & set("\x1b\x7f\x9b\u2028"), name
    assert "\\x1b[31m[bold]red" in printed["lines"]
    answers = [json.loads(line) for line in printed["json"].split("\n")[:-1]]
    assert {label for answer in answers for label in answer["labels"]} == {"a", ESCAPE}
    assert json.loads(printed["info as json"])["data"]["most frequent class"] in ("a", ESCAPE)


def rows(values: list[Any]) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


BAD_FILES = {
    "empty.jsonl": rows([{}, {}]),
    "null.jsonl": rows([{"text": None, "label": None}] * 3),
    "mixed.jsonl": rows([{"text": "a", "label": "x"}, {}, {"text": 3, "label": ["y", None]}]),
    "names.jsonl": rows([{"": "a"}, {"": 1}]),
    "huge.jsonl": rows([{"text": 10**400, "label": 10**30}] * 3),
    "one.csv": "label\na\nb\n",
    "quotes.csv": 'text,label\n"open,a\n',
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("command", ["fit", "info", "evaluate"])
def test_bad_tables_give_one_line(name: str, command: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(BAD_FILES[name])
    options = ["--model", tmp_path / "new.cmt"] if command == "fit" else []
    result = run(command, path, *options)
    assert result.exit_code in (0, 2), result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith(("Columns: ", "Try "))]
    assert result.exit_code == 0 or (len(lines) == 1 and lines[0].startswith("cmt-numba: "))


def test_rows_without_fields_are_refused(tmp_path: Path):
    (tmp_path / "e.jsonl").write_text("{}\n{}\n")
    for command in (["fit", "--model", tmp_path / "x.cmt"], ["info"], ["evaluate"]):
        assert "e.jsonl: has no columns" in fail(*command, tmp_path / "e.jsonl")


def test_unusable_logs_give_one_line(folder: Path, tmp_path: Path):
    def complaint(name: str, data: bytes, *words: Any) -> str:
        (tmp_path / name).write_bytes(data)
        return fail("bandit", "evaluate", tmp_path / name, "--policy", "random", "--propensity", "p", *words)

    log = (folder / "log.csv").read_bytes()
    for interval in ("bernstein", "chernoff", "bootstrap", "normal"):
        assert "confidence must be below 1" in complaint("a.csv", log, "--confidence", 1, "--interval", interval)
        tiny = log.replace(b"0.3333", b"1e-200")
        assert "set tau to a value above 0" in complaint("b.csv", tiny, "--interval", interval)
    assert "is damaged or incomplete" in complaint("c.csv.gz", gzip.compress(log)[:60])
    assert "is damaged or incomplete" in complaint("d.csv.gz", b"\x1f\x8bxxxx")


def test_an_unexpected_error_gives_one_line(monkeypatch: pytest.MonkeyPatch, folder: Path):
    def fail_unexpectedly(*_: Any, **__: Any) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr("cmt_numba.cli._data.open_data", fail_unexpectedly)
    result = run("info", folder / "t.csv")
    assert result.exit_code == 1
    assert result.stderr.startswith("cmt-numba: unexpected KeyError: 'a\\nb'; cmt-numba --traceback")
    assert result.stderr.count("\n") == 1
    assert isinstance(run("--traceback", "info", folder / "t.csv").exception, KeyError)
