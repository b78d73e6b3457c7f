"""Every benchmark runs, with the first of its parameters."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT, needs_jit

pytestmark = needs_jit

KINDS = ("time_", "peakmem_", "track_")


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make the benchmarks importable, without the cache that they choose for Numba."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "asv_benchmarks"), *sys.path])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    yield "benchmarks"
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.mark.parametrize("module", ["memories", "search"])
def test_benchmarks(benchmarks: str, module: str):
    classes = inspect.getmembers(importlib.import_module(f"{benchmarks}.{module}"), inspect.isclass)
    classes = [a_class for _, a_class in classes if hasattr(a_class, "params")]
    assert classes
    for a_class in classes:
        parameters = [values[0] for values in a_class.params]
        methods = [name for name in dir(a_class) if name.startswith(KINDS)]
        assert methods
        for name in methods:
            benchmark: Any = a_class()
            benchmark.setup(*parameters)
            result = getattr(benchmark, name)(*parameters)
            assert (result is None) != name.startswith("track_")


def test_start(benchmarks: str):
    start = importlib.import_module(f"{benchmarks}.start").Start()
    for name in [name for name in dir(start) if name.startswith("timeraw_")]:
        compile(getattr(start, name)(), name, "exec")
