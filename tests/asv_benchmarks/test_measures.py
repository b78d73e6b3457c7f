"""The measuring scripts run, on little data, and print what their help promises."""

import gzip
import importlib
import json
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
        script.commands.main()
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
                script.commands.main()
            assert left.value.code == 0
            assert capsys.readouterr().out.split("[-h]")[0].rstrip().endswith(f" {subcommand or name}")


def test_growth(run: Callable[..., str]):
    printed = run("scale", "growth", "--sizes", "100", "1000", "--features", "4", "--repeats", "1", "--queries", "50")
    for title in ("insert, mean over the tree's life: ", "query: "):
        lines = [line.split("|")[1:-1] for line in printed.split(title)[1].split("\n\n")[1].splitlines()[2:]]
        assert [line[0].strip() for line in lines] == ["100", "1,000"]
        assert float(lines[0][3]) == 1.0
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
    names = ("exact", "means", "linear", "plt", "xr_linear", "all", "ours")
    arguments = ["--sets", "clinc150, 5", "--learners", *names, "--keys", "tfidf", "bm25"]
    arguments += ["--python", "xr_linear=false"]  # a command that fails
    printed = run("classifiers", "compare", "--data", str(tmp_path), *arguments)
    assert "xr_linear is left out: false cannot import pecos" in printed
    tables = [
        [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| clinc150")][i::2] for i in (0, 1)
    ]
    for table, name in zip(tables, ("clinc150, 5 shots", "clinc150, 5 shots, BM25 keys"), strict=True):
        errors, times, _ = table
        assert errors[0].strip() == f"{name}: 150 / 30"
        assert [float(cell) for cell in errors[1:]] == [0.0] * 6
        assert all(float(cell.replace(",", "")) > 0 for cell in times[1:])


def write_labels(folder: Path, rng: np.random.Generator) -> None:
    """Write a set of six labels, several of which a row may have, that its first features tell."""
    folder.mkdir()
    Y = rng.random((300, 6)) < 0.3
    X = scipy.sparse.csr_array(Y @ np.eye(6, 20) + 0.05 * rng.random((300, 20)))
    for part, rows in (("train", slice(0, 250)), ("test", slice(250, 300))):
        scipy.sparse.save_npz(folder / f"X_{part}.npz", X[rows])
        scipy.sparse.save_npz(folder / f"Y_{part}.npz", scipy.sparse.csr_array(Y[rows].astype(float)))


@pytest.mark.usefixtures("stand_in")
def test_multilabel_comparison(run: Callable[..., str], tmp_path: Path, rng: np.random.Generator):
    write_labels(tmp_path / "few", rng)
    arguments = ["--data", str(tmp_path), "--sets", "few", "--python", "xr_linear=false"]
    printed = run("classifiers", "multilabel", *arguments)
    assert "xr_linear is left out: false cannot import pecos" in printed
    lines = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| few")]
    assert [line[1].strip() for line in lines] == ["ours", "plt"]
    for line in lines:
        first, several, gain, scored, *costs = (float(cell) for cell in line[2:])
        assert first > 0.8
        assert 0.2 < several < 0.5
        assert min(gain, scored) > 0.8
        assert all(cost >= 0 for cost in costs)


def test_thresholds(run: Callable[..., str], tmp_path: Path, rng: np.random.Generator):
    write_labels(tmp_path / "few", rng)
    printed = run("classifiers", "thresholds", "--data", str(tmp_path), "--sets", "few")
    lines = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| few")]
    assert [line[1].strip() for line in lines] == ["default", "0", "SVM"]
    assert all(float(line[i]) > 0.7 for line in lines for i in (2, 3, 4))


def test_synthetic_sets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "asv_benchmarks"))
    data = importlib.import_module("shared.labelled_sets").synthetic(20, 3)
    assert data.X.shape == (60, 128)
    assert data.queries.shape == (200, 128)
    assert sorted(data.y) == sorted([*range(20)] * 3)


def test_lists_that_searches_reach(run: Callable[..., str]):
    shown = run("scale", "lists", "--sizes", "1500", "3000", "--features", "32")
    cells = [line.split("|") for line in shown.splitlines()]
    reached = np.array([row[2:5] for row in cells if len(row) > 5 and row[1].strip() in ("1,500", "3,000")], float)
    assert reached.shape == (4, 3)
    assert (reached[:, 2] <= reached[:, 0]).all()


def test_recalls_of_distributions(run: Callable[..., str]):
    shown = run("recalls", "table", "--names", "10 near copies, 64", "--n", "3000")
    lines = [line.split("|")[2:-1] for line in shown.splitlines() if line.startswith("| 10 near copies, 64, ")]
    assert np.array(lines, float).shape == (3, 12)
    assert np.array(lines, float).min() > 0.9


def test_rivals_of_stores(run: Callable[..., str], tmp_path: Path):
    shown = run("stores", "rivals", "--data", str(tmp_path), "--n", "1500", "--sets", "scattered")
    lines = [line.split("|")[1:-1] for line in shown.splitlines() if line.startswith(("| store", "| product"))]
    assert [line[0].strip() for line in lines] == ["store", "product"]
    assert all("(1.00)" in cell for cell in lines[0][2:])
