"""Benchmarks of two versions are compared case by case, and what one of them cannot run is left out and named."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = ROOT / "asv_benchmarks" / "compare_versions.py"

PUBLIC = """
from thing import BYTES, ERROR

class Sums:
    params = (["few", "many"], [1, 2])

    def setup_cache(self):
        print("this is no answer")
        return 7

    def setup(self, seven, words, n):
        assert (seven, self.setup_cache()) == (7, 7)
        if words == "many" and n == 2:
            raise NotImplementedError

    def time_sum(self, seven, words, n):
        sum(range(n))

    def track_error(self, seven, words, n):
        return ERROR * n

class Room:
    params = [None]

    def peakmem_list(self, _):
        self.room = bytearray(BYTES)

    def time_failing(self, _):
        raise ValueError("broken")
"""

PRIVATE = """
from thing import _private

class Private:
    def time_it(self):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with benchmarks and two versions of what they measure."""
    sources = {
        "parts/__init__.py": "",
        "parts/public.py": PUBLIC,
        "parts/private.py": PRIVATE,
        "old/thing.py": "BYTES, ERROR = 1, 0.5",
        "new/thing.py": "BYTES, ERROR, _private = 100_000_000, 0.25, None",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    return tmp_path


def compared(folder: Path, before: str, after: str, *options: str) -> tuple[int, list[str]]:
    """Return the exit status of a comparison, and the lines that it prints."""
    versions = [str(folder / before), str(folder / after)]
    command = [sys.executable, str(SCRIPT), *versions, "--benchmarks", str(folder / "parts"), "--rounds", "2", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr, run.stderr
    return run.returncode, run.stdout.splitlines()


def test_comparison(folder: Path):
    status, lines = compared(folder, "old", "new", "--bench", "track_|peakmem|failing|many, ")
    assert lines[0].startswith("left out: private (old: ImportError: cannot import name '_private'")
    assert lines[1].split()[:2] == ["old", "new"]
    rest = {line.split("public.")[1].split(")")[0]: line for line in lines[2:-1]}
    assert rest["Sums.track_error(few, 2"].split() == [
        "1",
        "0.5",
        "0.500",
        "public.Sums.track_error(few,",
        "2)",
        "DIFFERS",
    ]
    assert "(old: has no such parameters)" in rest["Sums.track_error(many, 2"]
    assert "(old: has no such parameters)" in rest["Sums.time_sum(many, 2"]
    assert "left out" not in rest["Sums.time_sum(many, 1"]
    assert "(old: ValueError: broken)" in rest["Room.time_failing(None"]
    assert rest["Room.peakmem_list(None"].endswith("HIGHER")
    assert lines[-1].endswith("cases are more than 1.03 times as high")
    assert status == 1


def test_comparison_with_itself(folder: Path):
    status, lines = compared(folder, "new", "new", "--bench", "track_|it", "--most", "1000", "--clock", "cpu")
    assert status == 0
    assert len(lines) == 1 + 4 + 1
    assert any("private.Private.time_it()" in line for line in lines)
    assert not any("DIFFERS" in line for line in lines)
