"""The measuring scripts run, on little data, and print what they promise."""

import gzip
import importlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from conftest import ROOT, load_script, needs_jit

pytestmark = needs_jit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a script with arguments, such as a subcommand, and returns what it prints."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")  # as scripts do for good
    monkeypatch.syspath_prepend(str(ROOT / "asv_benchmarks"))

    def run_script(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        script = load_script(f"asv_benchmarks/{name}.py")
        monkeypatch.setattr(script, "_SECONDS_ASKED", 0.0, raising=False)  # does not repeat queries for exact times
        script.main()
        return capsys.readouterr().out

    return run_script


def test_every_script_and_subcommand_has_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    names = {path.stem for path in (ROOT / "asv_benchmarks").glob("*.py")}
    assert names >= {"bandits", "classifiers", "stores"}
    monkeypatch.syspath_prepend(str(ROOT / "asv_benchmarks"))
    for name in names:
        script = load_script(f"asv_benchmarks/{name}.py")
        assert script.commands.names
        for subcommand in ("", *script.commands.names):
            monkeypatch.setattr(sys, "argv", [name, *filter(None, [subcommand]), "--help"])
            with pytest.raises(SystemExit) as left:
                script.main()
            assert left.value.code == 0
            assert capsys.readouterr().out.split("[-h]")[0].rstrip().endswith(f" {subcommand or name}")


@pytest.fixture
def verses(tmp_path: Path) -> Path:
    """Write 300 texts, each in a second version that lacks a word, and some in the first version alone."""
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("abcdefghij", k=4)) for _ in range(500)]
    lines = []
    for i in range(300):
        words = rng.choices(vocabulary, k=12)
        lines.append({"text": {"old": " ".join(words)} | ({} if i % 50 == 0 else {"new": " ".join(words[1:])})})
    path = tmp_path / "verses.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_text(run: Callable[..., str], verses: Path):
    arguments = ["--keys", "old", "--queries", "new", "--trees", "1", "4", "--repeats", "1"]
    printed = run("texts", "trees", str(verses), *arguments)
    assert "300 keys of " in printed
    assert "294 queries, error of exact search 0.0000" in printed
    table = [line.split() for line in printed.splitlines() if line[:1] in ("1", "4")]
    assert [row[:2] for row in table] == [["1", "1"], ["1", "4"], ["1", "16"], ["1", "64"], ["4", "4"], ["4", "8"]]
    assert [float(table[i][2]) for i in (3, 5)] == [0.0, 0.0]  # with this many leaves the search is exact
    assert "Peak resident memory: " in printed


def test_scale(run: Callable[..., str]):
    printed = run("scale", "growth", "--sizes", "100", "1000", "--features", "4", "--repeats", "1")
    for title in ("insert, mean over the tree's life: ", "next insert: ", "query: "):
        lines = printed.split(title)[1].split("\n\n")[0].splitlines()[1:]
        table = [line.split() for line in lines if line.startswith("1")]
        assert [row[0] for row in table] == ["100", "1,000"]
        assert [row[5] for row in table] == ["1.00", "1.50"]  # log 1000 is 1.5 times log 100
    assert "The invariants held at every size." in printed


PLT = """
import numpy as np

class PLT:
    def __init__(self, folder, threads, seed, verbose):
        self.folder = folder

    def fit(self, X, lists):
        self.keys, self.lists = X, lists

    def load(self):
        open(self.folder, "w").write("a model")

    def predict(self, queries, top_k):
        nearest = np.asarray((queries @ self.keys.T).argmax(axis=1)).ravel()
        return [self.lists[i][:top_k] for i in nearest]
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let other processes find a nearest neighbour where they expect the library of a probabilistic label tree."""
    (tmp_path / "libraries/napkinxc").mkdir(parents=True)
    (tmp_path / "libraries/napkinxc/__init__.py").touch()
    (tmp_path / "libraries/napkinxc/models.py").write_text(PLT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libraries"))


@pytest.mark.usefixtures("stand_in")
def test_comparison(run: Callable[..., str], tmp_path: Path):
    (tmp_path / "clinc150").mkdir()
    for part, ways in (("train", 6), ("test", 2)):
        lines = []
        for i in range(30):
            lines += [{"text": f"intent{i} of all{way * ' please'}", "label": str(i)} for way in range(ways)]
        with gzip.open(tmp_path / f"clinc150/{part}.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, lines)))
    names = ("exact", "means", "linear", "plt", "xr_linear", "ours")
    arguments = ["--sets", "clinc150, 5", "--learners", *names, "--keys", "tfidf", "bm25"]
    arguments += ["--python", "xr_linear=false"]  # a command that fails
    written = tmp_path / "outcomes.json"
    printed = run("classifiers", "compare", "--data", str(tmp_path), *arguments, "--json", str(written))
    assert "clinc150, 5 shots: 150 examples of 30 classes" in printed
    assert "xr_linear is left out: false cannot import pecos" in printed
    lines = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| clinc150")]
    assert [cell.strip() for cell in lines[0]] == ["clinc150, 5 shots", "150 / 30", *["0.000"] * 6]
    assert [cell.strip() for cell in lines[1]] == ["clinc150, 5 shots, BM25 keys", "150 / 30", *["0.000"] * 6]
    outcomes, _ = json.loads(written.read_text()).values()
    learners = {outcome["learner"] for outcome in outcomes}
    assert learners >= {"exact nearest neighbour", "class means", "PLT (napkinXC)", "CMTClassifier"}
    assert all(outcome["error"] == 0 for outcome in outcomes)
    assert all(outcome["query_microseconds"] > 0 for outcome in outcomes)


def write_labels(folder: Path, rng: np.random.Generator) -> None:
    """Write a set of six labels, several of which a row may have, that its first features tell."""
    folder.mkdir()
    Y = rng.random((300, 6)) < 0.3
    X = scipy.sparse.csr_array(Y @ np.eye(6, 20) + 0.05 * rng.random((300, 20)))
    for part, rows in (("train", slice(0, 250)), ("test", slice(250, 300))):
        scipy.sparse.save_npz(folder / f"X_{part}.npz", X[rows])
        scipy.sparse.save_npz(folder / f"Y_{part}.npz", scipy.sparse.csr_array(Y[rows].astype(float)))


def test_multilabel_comparison(run: Callable[..., str], tmp_path: Path, rng: np.random.Generator):
    write_labels(tmp_path / "few", rng)
    arguments = ["--data", str(tmp_path), "--sets", "few", "--learners", "ours", "one_against_all"]
    printed = run("classifiers", "multilabel", *arguments)
    lines = [line.split() for line in printed.splitlines() if line.startswith(("CMT", "LinearSVC"))]
    assert len(lines) == 2
    for line in lines:
        wrong, first, gain, share = (float(line[i]) for i in (-10, -9, -6, -3))
        assert wrong < 0.5
        assert first == gain > 0.8
        assert share == 1.0
    sampled = run("classifiers", "multilabel", *arguments, "--most-labels", "3", "--sample-labels", "2")
    (line,) = (line.split() for line in sampled.splitlines() if line.startswith("LinearSVC"))
    assert line[-10] == "nan"
    assert float(line[-2]) >= 0


def test_candidates_comparison(run: Callable[..., str], tmp_path: Path, rng: np.random.Generator):
    write_labels(tmp_path / "bibtex", rng)
    printed = run("classifiers", "candidates", "--data", str(tmp_path), "--sets", "bibtex")
    lines = {line[:12].strip(): line[12:].split() for line in printed.splitlines() if line[:1] != "|"}
    assert "| bibtex | " in " ".join(printed.split())
    assert {"default", "all labels", "index only", "trees only", "both"} <= set(lines)
    assert lines["default"][:5] == lines["all labels"][:5]
    assert float(lines["default"][0]) > 0.8
    assert lines["default"][3:5] == ["6", "6"]


@pytest.mark.usefixtures("stand_in")
def test_extreme_comparison(run: Callable[..., str], tmp_path: Path, rng: np.random.Generator):
    write_labels(tmp_path / "few", rng)
    arguments = ["--data", str(tmp_path), "--sets", "few", "--learners", "plt", "xr_linear", "--python"]
    printed = run("classifiers", "extreme", *arguments, "xr_linear=false")
    assert "xr_linear is left out: false cannot import pecos" in printed
    (line,) = (line.split() for line in printed.splitlines() if line.startswith("plt"))
    assert float(line[1]) == float(line[4]) > 0.8  # precision and nDCG at 1
    assert all(float(cell) > 0 for cell in line[1:8])


def test_synthetic_sets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "asv_benchmarks"))
    data = importlib.import_module("shared.labelled_sets").synthetic(20, 3)
    assert data.X.shape == (60, 128)
    assert data.queries.shape == (200, 128)
    assert sorted(data.y) == sorted([*range(20)] * 3)


def test_a_store_is_a_method_of_vibe(run: Callable[..., str], tmp_path: Path):
    shown = run("stores", "singles", "--data", str(tmp_path), "--n", "1500", "--k", "20", "--sets", "scattered")
    recalls = [float(line.split()[2]) for line in shown.splitlines() if "CMTStore" in line]
    assert len(recalls) == 4
    assert min(recalls) > 0.7
