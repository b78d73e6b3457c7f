"""Every benchmark runs, if not with all of its parameters; and the bare loop reads what a query reads."""

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
from cmt_numba._validation import check_rows

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
    """Import the benchmarks once, for they have kernels, without the cache that they choose for Numba.

    Leave them little to grow.
    """
    monkeypatch.setattr(sys, "path", [str(ROOT / "asv_benchmarks"), *sys.path])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path_factory.mktemp("benchmarks"))  # where they keep trees for each other
    names = [path.stem for path in sorted((ROOT / "asv_benchmarks" / "benchmarks").glob("[!_]*.py"))]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    monkeypatch.setattr(modules["trees"], "GROWN", [("dense", FEW, n_trees, 1) for n_trees in (1, 4)])
    monkeypatch.setattr(modules["search"], "DIALLED", FEW)
    monkeypatch.setattr(modules["files"], "FORMS", ("dense",))
    monkeypatch.setattr(modules["files"], "SIZES", (FEW,))
    for a_class in (modules["files"].WithFiles, modules["files"].Pickle):
        monkeypatch.setattr(a_class, "params", (("dense",), (FEW,)))
    monkeypatch.setattr(modules["files"].Journal, "n_rows", 50)
    monkeypatch.setattr(modules["floor"].Floor, "n_memories", FEW)
    monkeypatch.setattr(modules["learning"], "LABELS", 100)
    monkeypatch.setattr(modules["estimators"], "LABELS", 100)
    monkeypatch.setattr(modules["estimators"], "LABELS_OF_SEVERAL", 100)
    yield modules
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.mark.parametrize("module", ["estimators", "files", "floor", "learning", "memories", "search"])
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
            try:
                getattr(benchmark, "setup", lambda *_: None)(*parameters)
            except NotImplementedError:
                assert module == "files"
                assert not hasattr(ContextualMemoryTree, "save")
                continue
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


@pytest.mark.parametrize("form", ["dense", "text"])
@pytest.mark.parametrize(("n_trees", "n_probes"), [(1, 1), (3, 2), (3, 3), (3, 17)])
def test_bare_loop_scores_what_a_query_scores(
    benchmarks: dict[str, ModuleType], form: str, n_trees: int, n_probes: int
):
    floor, data = benchmarks["floor"], benchmarks["keys"].make_data(form, FEW, 50)
    tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
    tree.insert(data.keys)
    state, rows = tree._forest.state, check_rows(data.queries)
    assert state is not None
    reads = floor.list_reads(state, rows, n_probes)
    np.testing.assert_array_equal(reads.n_leaves, n_probes)
    best = tree.query(data.queries, n_probes=n_probes).scores[:, 0]
    for loop in floor.bare_loops(state, rows, reads).values():
        np.testing.assert_allclose(loop()[:, 1], best, atol=1e-3)


@pytest.mark.parametrize("form", ["dense", "text"])
def test_search_of_everything_reads_everything_once(benchmarks: dict[str, ModuleType], form: str):
    floor, data = benchmarks["floor"], benchmarks["keys"].make_data(form, FEW, 5)
    tree = ContextualMemoryTree(2, n_threads=1, random_state=0)
    tree.insert(data.keys)
    state, rows = tree._forest.state, check_rows(data.queries)
    assert state is not None
    reads = floor.list_reads(state, rows, EVERY_LEAF)
    n_leaves = tree.leaves().size.size
    np.testing.assert_array_equal(reads.n_leaves, n_leaves)
    nodes, slots = reads.nodes[: reads.node_ends[0]], reads.slots[: reads.slot_ends[0]]
    assert len(set(zip(reads.trees, nodes, strict=False))) == nodes.size == n_leaves - 2  # each tree has one fewer
    np.testing.assert_array_equal(np.sort(slots), np.arange(FEW))


@pytest.mark.parametrize("form", ["dense", "text"])
def test_routers_are_read_from_the_root_down(benchmarks: dict[str, ModuleType], form: str):
    floor, data = benchmarks["floor"], benchmarks["keys"].make_data(form, FEW, 20)
    tree = ContextualMemoryTree(sure_margin=0.0, n_threads=1, random_state=0)  # searches leave no path half-way
    tree.insert(data.keys)
    state, rows = tree._forest.state, check_rows(data.queries)
    assert state is not None
    reads = floor.list_reads(state, rows, 1)
    margins = np.split(_margins(floor, state, rows, reads), reads.node_ends[:-1])
    for nodes, margin in zip(np.split(reads.nodes, reads.node_ends[:-1]), margins, strict=True):
        record = state.nodes[0, nodes]
        sides = (margin + record["bias"] > 0.0).astype(np.int64)
        places = np.take_along_axis(record["child"], sides[:, None], axis=1)[:, 0]
        assert record["parent"][0] == -1
        np.testing.assert_array_equal(places[:-1], nodes[1:])
        assert places[-1] < 0
    loop = floor.bare_loops(state, rows, reads)["floor"]
    np.testing.assert_allclose(loop()[:, 0], [margin.max() for margin in margins], atol=1e-5)


def _margins(floor: ModuleType, state: Any, rows: Any, reads: Any) -> np.ndarray:
    """Return what each router says of the row that meets it, but for its bias."""
    asked = np.repeat(np.arange(rows.n_rows), np.diff(reads.node_ends, prepend=0))
    if state.parameters.sparse:
        weights = state.routers.table.reshape(-1)["weight"][floor.cells_of(state, rows, reads)]
        lengths = np.diff(rows.offsets)[asked]
        values = np.concatenate([rows.values[rows.offsets[row] : rows.offsets[row + 1]] for row in asked])
        return np.add.reduceat(weights * values, np.cumsum(lengths) - lengths)
    d = rows.n_features
    weights = state.routers.weights[0].reshape(-1, 2, d)[reads.nodes, 0]
    return np.sum(weights * rows.values.reshape(-1, d)[asked], axis=1)
