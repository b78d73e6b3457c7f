"""The comparison with peers: what it measures, how it judges, and what it says."""

import importlib
import json
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import ROOT, needs_jit, text_like

for package in ("matplotlib", "tabulate"):
    pytest.importorskip(package)

ALWAYS_INSTALLED = {"trees", "CMTClassifier", "paper tree", "numpy product", "scipy product", "inverted index"}
ALWAYS_INSTALLED |= {"sklearn brute", "sklearn KDTree"}
EXTRA = {"faiss HNSW", "faiss IVF", "faiss flat", "hnswlib", "nmslib HNSW", "nmslib inverted", "VW CMT", "VW EMT"}
"""All others but pynndescent, which takes minutes to compile."""


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    """Import the modules of the comparison, and forget them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "asv_benchmarks"))
    names = ("compare", "contract", "curves", "inverted_index", "processes", "registry", "results")
    names += ("tables", "task", "worker")
    yield SimpleNamespace(**{name: importlib.import_module(f"peers.{name}") for name in names})
    sys.path.remove(str(ROOT / "asv_benchmarks"))
    for name in [name for name in sys.modules if name not in before and name.split(".")[0] == "peers"]:
        del sys.modules[name]


def make_task(peers: Any, sparse: bool, n_rows: int = 400, n_queries: int = 60) -> Any:
    """Return rows around 40 centres, and queries that are rows with noise."""
    rng = np.random.default_rng(5)
    if sparse:
        X = text_like(n_rows, 300, 12, seed=3)
        scale = 1.0 / np.sqrt(X.multiply(X).sum(axis=1))
        X = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ X)
        queries = X[rng.permutation(n_rows)[:n_queries]].copy()
        queries.data *= rng.uniform(0.5, 1.5, queries.nnz)
    else:
        X = np.repeat(rng.normal(size=(40, 12)), n_rows // 40, axis=0) + 0.3 * rng.normal(size=(n_rows, 12))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        queries = X[rng.permutation(n_rows)[:n_queries]] + 0.05 * rng.normal(size=(n_queries, 12))
    similar = queries @ X.T
    nearest = (similar.toarray() if sparse else similar).argmax(axis=1)
    y = np.array([f"class {i // 10}" for i in range(n_rows)])
    return peers.task.make_task(X, y, queries, y[nearest])


# Judging


def test_a_task_has_numbers_for_labels_and_survives_a_folder(peers: Any, tmp_path: Path):
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    task = peers.task.make_task(X, np.array(["b", "a", "b", "c"]), queries, np.array(["c", "a", "d", "b", "A"]))
    assert task.y.tolist() == [1, 0, 1, 2]
    assert sorted(task.answers) == [-1, -1, 0, 1, 2]
    assert task.X.dtype == task.queries.dtype == np.float32
    right = {tuple(row): answer for row, answer in zip(queries.astype(np.float32), (2, 0, -1, 1, -1), strict=True)}
    assert [right[tuple(row)] for row in task.queries] == task.answers.tolist()
    assert peers.task.make_task(X, task.y, queries, task.answers, most_queries=2).answers.size == 2
    for one in (task, make_task(peers, sparse=True)):
        folder = tmp_path / str(one.y.size)
        folder.mkdir()
        peers.task.save_task(one, folder)
        again = peers.task.load_task(folder)
        assert abs(again.X - one.X).max() == 0
        assert abs(again.queries - one.queries).max() == 0
        np.testing.assert_array_equal(again.y, one.y)
        np.testing.assert_array_equal(again.answers, one.answers)
        assert again.shape == one.shape


def test_recall_counts_equally_near_rows_once(peers: Any):
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    task = peers.task.Task(X, np.arange(4), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 3]))
    judge = peers.task.Judge(task)
    assert judge.recall(np.array([[0], [3]])) == 1.0
    assert judge.recall(np.array([[1], [3]])) == 1.0  # as near as row 0
    assert judge.recall(np.array([[2], [3]])) == 0.5
    assert judge.recall(np.array([[0, 0], [3, 2]])) == 0.75  # the same row twice is one row
    assert judge.recall(np.array([[0, 1], [3, -1]])) == 0.75
    assert judge.recall(np.array([[1]])) == 1.0  # of the first query only
    assert judge.error(np.array([0, 2])) == 0.5


@pytest.mark.parametrize("sparse", [False, True])
def test_recall_is_that_of_sorted_products(peers: Any, sparse: bool):
    task = make_task(peers, sparse)
    similar = task.queries @ task.X.T
    order = np.argsort(-(similar.toarray() if sparse else similar), axis=1, kind="stable")
    judge = peers.task.Judge(task)
    assert judge.recall(order[:, :10]) == 1.0
    assert judge.recall(order[:, 5:15]) == pytest.approx(0.5, abs=0.02)  # more only where rows are equally near
    assert judge.recall(order[:, -10:]) < 0.05


# Peers


@needs_jit
@pytest.mark.parametrize("name", sorted(ALWAYS_INSTALLED | EXTRA))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_peers_find_what_they_promise(peers: Any, name: str, tmp_path: Path):
    peer = peers.registry.find_peer(name)
    if name in EXTRA:
        pytest.importorskip(peer.package)
    for sparse in [kind for kind in (False, True) if (peer.sparse if kind else peer.dense)]:
        task = make_task(peers, sparse)
        folder = tmp_path / str(sparse)
        folder.mkdir()
        peers.task.save_task(task, folder)
        judge = peers.task.Judge(task)
        worker = peers.worker.Worker(name, folder, 1)
        build = peer.builds(task.shape, quick=True)[-1]
        assert json.loads(json.dumps(build)) == build
        for _ in range(2):  # builds start afresh
            built = worker.build(build)
            assert built.seconds > 0
        asked = worker.measure(worker._peer.settings(build, quick=True)[-1], limit=5.0)
        assert asked.n_queries == task.answers.size == asked.labels.size
        assert min(asked.us, asked.single_us) > 0
        error = judge.error(asked.labels)
        assert error <= (0.0 if peer.exact else 0.7)
        assert sorted(asked.ids_at) == ([1, 10] if peer.finds_rows else [])
        for k, ids in asked.ids_at.items():
            assert ids.shape == (task.answers.size, k)
            recall = judge.recall(ids)
            assert recall >= (1.0 if peer.exact else 0.2)
        for build, setting in peer.streams(task.shape)[:1]:
            streamed = worker.stream(build, setting, limit=5.0)
            assert streamed.n_inserted == 200
            assert streamed.inserts_per_second > 0
            assert streamed.error < 0.9
        worker.close()


@needs_jit
def test_inverted_index_finds_the_same_with_and_without_pruning(peers: Any):
    rng = np.random.default_rng(1)
    X = scipy.sparse.csr_matrix(text_like(2000, 400, 15, seed=4))
    queries = scipy.sparse.csr_matrix(text_like(80, 400, 15, seed=5))
    queries = scipy.sparse.vstack([queries, queries[:1] * 0.0], format="csr")  # and one that has nothing
    for signs in (1.0, rng.choice([-1.0, 1.0], X.nnz)):
        X.data = np.abs(X.data) * np.asarray(signs, np.float32)
        shape = peers.contract.Shape(2000, 400, 1, True)
        index = peers.inverted_index.InvertedIndex(shape, 1, Path())
        index.prepare(X, np.zeros(2000, np.int64))
        index.build()
        products = (queries @ X.T).toarray()
        for k in (1, 7, 2000):
            best = -np.sort(-products, axis=1)[:, :k]
            for pruned in (False, True):
                index.set(pruned=pruned)
                ids = index.ask(queries, k)
                assert all(np.unique(row).size == k for row in ids)
                np.testing.assert_allclose(np.take_along_axis(products, ids, axis=1), best, rtol=1e-4, atol=1e-4)
    assert index.ask(queries, 2001)[0, -1] == -1


# Curves


def test_frontier_and_verdict(peers: Any):
    dot, curves = peers.curves.Dot, peers.curves
    theirs = [dot(0.3, 1.0), dot(0.2, 2.0), dot(0.25, 3.0), dot(0.1, 10.0), dot(0.1, 20.0), dot(0.2, 2.5)]
    assert curves.frontier(theirs) == [dot(0.3, 1.0), dot(0.2, 2.0), dot(0.1, 10.0)]
    assert curves.frontier([]) == []
    ours = [dot(0.15, 0.5), dot(0.09, 9.0), dot(0.12, 30.0)]
    levels = curves.compare(ours, theirs)
    assert [level.ratio for level in levels] == pytest.approx([0.5, 0.25, 0.9])
    assert curves.verdict(levels).startswith("nowhere behind; closest at 0.1000: 9.0 us to 10.0 us = 0.90")
    levels = curves.compare(ours[:1], theirs)
    assert [level.ratio for level in levels] == [0.5, 0.25, float("inf")]
    assert curves.verdict(levels) == "behind at 0.1000: never, they take 10.0 us"
    levels = curves.compare([dot(0.15, 3.0), dot(0.1, 10.0)], theirs)
    assert curves.verdict(levels) == "behind at 0.3000: 3.0 us to 1.0 us = 3.00; 0.2000: 3.0 us to 2.0 us = 1.50"
    assert curves.fastest_within(ours, 0.12) == dot(0.09, 9.0)
    assert curves.fastest_within(ours, 0.05) is None


def make_entrant(peers: Any, peer: str, build: dict[str, Any], error: float, us: list[float], **more: Any) -> Any:
    point = peers.results.Point({"effort": 1}, 100, [error] * len(us), us, [10 * value for value in us])
    point.recall, point.us_at = {"1": 1 - error, "10": 0.5}, {"1": us, "10": us}
    entrant = peers.results.Entrant(peer, build, more.pop("ours", False), more.pop("exact", False), points=[point])
    entrant.seconds, entrant.n_cpus = more.pop("seconds", [1.0]), [1.0]
    entrant.peak_mb, entrant.kept_mb = more.pop("peak_mb", [100.0]), [50.0]
    return entrant


def test_tables_show_medians_and_ratios(peers: Any):
    settings = {"passes": 3, "alpha": 0.9, "c": 4, "d": 5}
    entrants = [
        make_entrant(peers, "VW CMT", settings, 0.4, [300.0, 200.0, 900.0], seconds=[60.0, 90.0, 80.0], peak_mb=[3000]),
        make_entrant(peers, "paper tree", {**settings, "later": "learn"}, 0.3, [2.0, 3.0, 4.0], ours=True),
        make_entrant(peers, "paper tree", {**settings, "c": 8, "later": "learn"}, 0.2, [5.0], ours=True),
        make_entrant(peers, "numpy product", {}, 0.1, [50.0], exact=True),
        make_entrant(peers, "CMTClassifier", {}, 0.1, [10.0], ours=True),
    ]
    result = peers.results.SetResult({"n_rows": 9, "n_features": 3, "n_classes": 2, "sparse": False}, entrants)
    lines = peers.tables.equal_settings_table(result).splitlines()
    assert len(lines) == 4  # two lines of headings; ours of equal settings; the classifier that is as good
    cells = lines[2].split("  ")
    cells = [cell.strip() for cell in cells if cell.strip()]
    assert cells[1:] == [
        "learn",
        "0.4000",
        "0.3000",
        "80.00",
        "1.000",
        "80.0",
        "300.0",
        "3.00",
        "100.0",
        "3000",
        "100.0",
        "0.0333",
    ]
    assert "CMTClassifier" in lines[3]
    assert "numpy product: nowhere behind; closest at 0.1000: 10.0 us to 50.0 us = 0.20" in peers.tables.verdicts(
        result
    )
    exact = peers.tables.exact_table(result).splitlines()[2].split()
    assert exact[2:7] == ["0.1000", "50.0", "0.1000", "10.0", "0.2000"]
    entrants[-1].points[0].error = [0.11]  # on sparse rows as good as exact search, on dense ones not
    assert len(peers.tables.exact_table(result).splitlines()[2].split()) == 4
    result.shape["sparse"] = True
    assert "0.2000" in peers.tables.exact_table(result)


def test_results_survive_a_file_and_earlier_ones_fill_gaps(peers: Any, tmp_path: Path):
    shape = {"n_rows": 9, "n_features": 3, "n_classes": 2, "sparse": False}
    stream = peers.results.Stream({"M": 8}, {"ef": 5}, [1000.0], [3.0], [0.1])
    old = peers.results.SetResult(
        shape,
        [make_entrant(peers, "hnswlib", {"M": 8}, 0.1, [5.0]), make_entrant(peers, "trees", {}, 0.2, [9.0], ours=True)],
        {"hnswlib": [stream]},
        {"faiss flat": "the package faiss is not installed"},
    )
    results = peers.results.Results({"python": "3"}, {"a set": old})
    results.save(tmp_path / "results.json")
    assert peers.results.load_results(tmp_path / "results.json") == results
    new = peers.results.SetResult(shape, [make_entrant(peers, "trees", {}, 0.1, [4.0], ours=True)])
    peers.results.merge_earlier(new, old)
    assert [(entrant.peer, entrant.points[0].us) for entrant in new.entrants] == [("trees", [4.0]), ("hnswlib", [5.0])]
    assert new.streams == old.streams
    assert "the package faiss is not installed" in peers.tables.report("a set", new)


# The whole


@needs_jit
def test_a_comparison_in_processes(peers: Any, tmp_path: Path):
    said: list[str] = []
    plan = peers.compare.Plan(["trees", "numpy product", "scipy product"], n_runs=2, quick=True, say=said.append)
    result = peers.compare.measure_set(make_task(peers, sparse=False), plan)
    assert result.left_out == {"scipy product": "does not take dense rows"}
    assert [entrant.peer for entrant in result.entrants] == ["trees", "trees", "numpy product"]
    for entrant in result.entrants:
        assert entrant.problem is None
        assert len(entrant.seconds) == len(entrant.peak_mb) == 2
        assert entrant.points
        assert all(len(point.us) == len(point.single_us) == len(point.us_at["10"]) == 2 for point in entrant.points)
    exact = result.entrants[-1].points[0]
    assert exact.recall == {"1": 1.0, "10": 1.0}
    assert exact.error == [0.0, 0.0]
    assert [len(stream.us_a_query) for stream in result.streams["trees"]] == [2]
    assert result.streams["numpy product"] == []
    text = peers.tables.report("a set", result)
    for words in ("Builds", "trees", "recall@10", "numpy product: ", "cannot insert", "share of its time"):
        assert words in text


def test_peers_that_are_missing_or_unknown(peers: Any, monkeypatch: pytest.MonkeyPatch):
    shape = peers.contract.Shape(10, 3, 2, False)
    monkeypatch.setattr(peers.registry.find_peer("hnswlib"), "package", "no_such_package")
    able, left_out = peers.compare.able_peers(peers.compare.Plan(["hnswlib", "numpy product"]), shape)
    assert list(able) == ["numpy product"]
    assert left_out == {"hnswlib": "the package no_such_package is not installed"}
    with pytest.raises(ValueError, match=r"peers must be among trees, .*, not 'hnsw'"):
        peers.compare.able_peers(peers.compare.Plan(["hnsw"]), shape)


def test_processes_that_fail_or_take_too_long(peers: Any, tmp_path: Path):
    before = set(multiprocessing.active_children())
    peers.task.save_task(make_task(peers, sparse=False), tmp_path)
    process = peers.processes.PeerProcess("numpy product", tmp_path, 1, patience=60.0)
    with pytest.raises(peers.processes.PeerError, match="no_such_method"):
        process.call("no_such_method")
    with pytest.raises(peers.processes.PeerError, match="took longer than 0 s"):
        peers.processes.PeerProcess("numpy product", tmp_path, 1, patience=0.0)
    assert set(multiprocessing.active_children()) <= before
