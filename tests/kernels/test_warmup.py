"""Compiling before anything is needed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, needs_jit
from internals import warmup_room

import cmt_numba

UNAWARE = """
import sys
from numba.core import event
from cmt_numba import _warmup

with event.install_recorder("numba:compile") as recorder:
    _warmup.make_calls(sys.argv[1])
dispatchers = {event.data["dispatcher"] for _, event in recorder.buffer}
print(sorted(str(dispatcher) for dispatcher in dispatchers if dispatcher.stats.cache_path is not None))
"""

LEARNING = """
import numpy as np
from numba.core import event
from cmt_numba import MemoryStore

rng, words = np.random.default_rng(0), [f"word{i}" for i in range(300)]
texts = [" ".join(rng.choice(words, 8)) for _ in range(400)]
X = rng.normal(size=(400, 16)).astype(np.float32)
with event.install_recorder("numba:compile") as recorder:
    for vectors in (None, X):
        store = MemoryStore(random_state=0)
        store.add(range(400), vectors, texts=texts)
        for i in range(30):
            x, text = None if vectors is None else X[i : i + 1], [" ".join(rng.choice(words, 5))]
            shown = store.query(x, 3, texts=text).keys
            store.feedback(x, shown, np.full((1, 3), i % 2.0), texts=text)
        store.delete([2])
dispatchers = {event.data["dispatcher"] for _, event in recorder.buffer}
print(sorted(str(dispatcher) for dispatcher in dispatchers if dispatcher.stats.cache_path is not None))
"""


@pytest.mark.parametrize("part", ["insert", *warmup_room.KINDS])
def test_calls_can_be_made(part: str):
    warmup_room.make_calls(part)


@needs_jit
@pytest.mark.parametrize(("part", "program"), [("classifier", UNAWARE), ("store", LEARNING)])
def test_compiled_kernels_are_loaded(part: str, program: str):
    """A second process with the same or similar calls compiles nothing: no kernel is missing."""
    warmup_room.make_calls(part)
    done = subprocess.run([sys.executable, "-c", program, part], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_shared_kernels_are_compiled_first(monkeypatch: pytest.MonkeyPatch):
    run: list[str] = []

    monkeypatch.setattr(warmup_room._Process, "compile", lambda process, part: run.append(part))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    cmt_numba.warmup(["classifier", "tree", "classifier"], n_jobs=1)
    assert run == ["insert", "classifier", "tree"]
    run.clear()
    cmt_numba.warmup([])
    assert run == []
    cmt_numba.warmup("tree", n_jobs=1)
    assert run == ["insert", "tree"]


def test_a_process_that_is_killed_is_reported_with_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    (tmp_path / "python").write_text("#!/bin/sh\necho 'compiling kernels' >&2\nkill -9 $$\n")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match="compiling for 'insert' failed with status -9: compiling kernels"):
        cmt_numba.warmup(n_jobs=1)


@pytest.mark.parametrize(
    ("given", "environment", "reason"),
    [
        ({"kinds": ["forest"]}, {}, "bandit, text, sequences, got 'forest'"),
        ({"n_jobs": 0}, {}, "n_jobs must be at least 1"),
        ({}, {"CMT_NUMBA_CACHE": "0"}, "cached with CMT_NUMBA_CACHE=0"),
        ({}, {"NUMBA_DISABLE_JIT": "1"}, "cached with NUMBA_DISABLE_JIT=1"),
    ],
)
def test_invalid_arguments_of_warmup(
    given: dict[str, Any], environment: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("NUMBA_DISABLE_JIT", "CMT_NUMBA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=reason):
        cmt_numba.warmup(**given)
