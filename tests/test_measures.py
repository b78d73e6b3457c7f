"""The measuring scripts run, on little data, and print what they promise."""

import json
import random
import sys
from pathlib import Path

import pytest
from conftest import load_script, needs_jit

pytestmark = needs_jit


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> str:
    """Run a script with arguments and return what it prints."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    load_script(f"asv_benchmarks/{name}.py").main()
    return capsys.readouterr().out


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


@pytest.mark.parametrize("hashed", [[], ["--hashed"]])
def test_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verses: Path, hashed: list[str]):
    arguments = ["--keys", "old", "--queries", "new", "--trees", "1", "4", "--repeats", "1", *hashed]
    printed = run(monkeypatch, capsys, "measure_text", str(verses), *arguments)
    assert "300 keys of " in printed
    assert "294 queries, error of exact search 0.0000" in printed
    table = [line.split() for line in printed.splitlines() if line[:1] in ("1", "4")]
    assert [row[:2] for row in table] == [["1", "1"], ["1", "4"], ["1", "16"], ["1", "64"], ["4", "4"], ["4", "8"]]
    assert [float(table[i][2]) for i in (3, 5)] == [0.0, 0.0]  # with so many leaves the search is exact
    assert "Peak resident memory: " in printed


def test_scale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    printed = run(monkeypatch, capsys, "measure_scale", "--sizes", "100", "1000", "--features", "4", "--repeats", "1")
    table = [line.split() for line in printed.splitlines() if line.startswith("1")]
    assert [row[0] for row in table] == ["100", "1,000"]
    assert [row[3] for row in table] == ["1.00", "1.50"]  # log 1000 is half as large again as log 100
    assert "The invariants held at every size." in printed


@pytest.mark.parametrize("sparse", [[], ["--sparse"]])
def test_churn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sparse: list[str]):
    printed = run(monkeypatch, capsys, "measure_churn", "--memories", "200", "--steps", "1000", *sparse)
    assert "1,200 different ids for 1,200 inserts; the invariants hold." in printed
    last = next(line for line in printed.splitlines() if "1,000 steps" in line)
    assert float(last.split("steps: ")[1].split(" ")[0]) < 2.5  # so few memories fill few tables


def test_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    module = load_script("asv_benchmarks/measure_start.py")
    times = iter([9.0, 1.0, 1.5, 0.75])
    monkeypatch.setattr(module, "seconds", lambda *_: next(times))
    monkeypatch.setattr(sys, "argv", ["measure_start", "--repeats", "1"])
    module.main()
    printed = capsys.readouterr().out
    assert "1.50 of the dependencies'" in printed
    assert "0.50 of the import" in printed
    assert "9.00 s" in printed


def test_start_times_a_new_process(tmp_path: Path):
    slept = load_script("asv_benchmarks/measure_start.py").seconds("time.sleep(0.05)", str(tmp_path), "import time")
    assert slept >= 0.05
