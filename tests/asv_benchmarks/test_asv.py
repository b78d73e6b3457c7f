"""Every benchmark runs, if not with all of its parameters."""

import importlib
import inspect
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF, ROOT, needs_jit

from cmt_numba import ContextualMemoryTree

pytestmark = needs_jit

KINDS = ("time_", "peakmem_", "track_")
FEW = 1000


@pytest.fixture(scope="module")
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def benchmarks(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ModuleType]]:
    """Import the benchmarks once, for they have kernels, and leave them little to grow."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "asv_benchmarks"), *sys.path])
    monkeypatch.chdir(tmp_path_factory.mktemp("benchmarks"))  # where they keep trees for each other
    names = [path.stem for path in sorted((ROOT / "asv_benchmarks" / "benchmarks").glob("[!_]*.py"))]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    monkeypatch.setattr(modules["trees"], "GROWN", [("dense", FEW)])
    monkeypatch.setattr(modules["files"], "FORMS", ("dense",))
    monkeypatch.setattr(modules["files"], "SIZES", (FEW,))
    monkeypatch.setattr(modules["files"].WithFiles, "params", (("dense",), (FEW,)))
    monkeypatch.setattr(modules["files"].Journal, "n_rows", 50)
    for module in modules.values():
        for name, few in (("_SINGLE", 5), ("_SHOTS", 3), ("_QUERIES", 50)):
            monkeypatch.setattr(module, name, few, raising=False)
    monkeypatch.setattr(modules["learning"], "LABELS", 100)
    monkeypatch.setattr(modules["stores"], "SIZES", (FEW,))
    for a_class in (modules["stores"].Add, modules["stores"].Feedback):
        monkeypatch.setattr(a_class, "params", ((FEW,),))
    monkeypatch.setattr(modules["texts"], "LABELS", 20)
    monkeypatch.setattr(modules["estimators"], "LABELS", 100)
    monkeypatch.setattr(modules["estimators"], "LABELS_OF_SEVERAL", 100)
    yield modules
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.mark.parametrize("module", ["estimators", "files", "learning", "memories", "search", "stores", "texts"])
def test_benchmarks(benchmarks: dict[str, ModuleType], module: str):
    classes = [a_class for _, a_class in inspect.getmembers(benchmarks[module], inspect.isclass)]
    classes = [a_class for a_class in classes if any(name.startswith(KINDS) for name in dir(a_class))]
    assert classes
    caches: dict[Any, Any] = {}
    for a_class in classes:
        make_cache = getattr(a_class, "setup_cache", None)
        if make_cache not in caches:
            caches[make_cache] = None if make_cache is None else make_cache(a_class())
        cache = caches[make_cache]
        first = [values[0] for values in a_class.params]
        choices = [first] if len(first) > 1 else [[value] for value in a_class.params[0]]
        names = [name for name in dir(a_class) if name.startswith(KINDS)]
        for name, choice in itertools.product(names, choices):
            benchmark: Any = a_class()
            parameters = choice if cache is None else [cache, *choice]
            getattr(benchmark, "setup", lambda *_: None)(*parameters)
            result = getattr(benchmark, name)(*parameters)
            getattr(benchmark, "teardown", lambda *_: None)(*parameters)
            if name.startswith("track_"):
                assert np.isfinite(result)
                assert result >= 0.0
            else:
                assert result is None


def test_start(benchmarks: dict[str, ModuleType]):
    start = benchmarks["start"].Start()
    for name in [name for name in dir(start) if name.startswith("timeraw_")]:
        compile(getattr(start, name)(), name, "exec")


def test_configuration_names_what_the_package_needs():
    configuration = json.loads((ROOT / "asv_benchmarks" / "asv.conf.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}  # type: ignore[index]
    assert needed <= set(configuration["matrix"]["req"])


@pytest.mark.parametrize("form", ["dense", "text"])
def test_exact_neighbours(benchmarks: dict[str, ModuleType], form: str):
    data = benchmarks["keys"].make_data(form, 300, 20)
    found = benchmarks["keys"].exact_neighbours(data.keys, data.queries, 5)
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(data.keys)
    np.testing.assert_array_equal(found, tree.query(data.queries, k=5, n_probes=EVERY_LEAF).ids)
