"""The script that measures how much depends on constants, as far as it prints what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def printed(results: Path) -> list[list[str]]:
    """Return the rows of all tables."""
    script = ROOT / "asv_benchmarks/classifiers.py"
    command = [sys.executable, str(script), "sensitivity", "--print", "--results", str(results)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    lines = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]


def test_unmeasured_constants_are_named(tmp_path: Path):
    """Every constant that is listed is one, too: a script that does not find it fails."""
    results = tmp_path / "results.jsonl"
    runs = {
        "as it is": [0.2, 0.4, 0.9, 0.9],  # further seeds tell only how far they differ
        "estimators._label_index._DENSE_TREES * 0.5": [0.5, 0.5],
        "estimators._label_index._DENSE_TREES * 2.0": [0.2, 0.2],
    }
    measured = {"case": "coil100", "train_seconds": 2.0, "query_microseconds": 3.0, "candidates": 7.0}
    lines = [json.dumps({"run": run, "errors": errors, **measured}) for run, errors in runs.items()]
    results.write_text("\n".join(lines) + "\n")
    rows = {row[0]: row for row in printed(results)}
    assert len(rows) > 50
    trees = rows.pop("`_label_index._DENSE_TREES`")
    assert trees[1] == "8"
    assert trees[3:6] == ["0.5000 / 0.3000 / 0.2000", "+0.2000, coil100, half", "7 / 7 / 7"]
    assert trees[6:] == ["2.00 / 2.00 / 2.00", "3 / 3 / 3"]
    assert all(row[3:] == ["not measured"] * 5 for row in rows.values())
