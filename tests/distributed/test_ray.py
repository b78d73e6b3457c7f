"""On Ray, sharded stores and classifiers give the results of one process and survive crashes, and so do evaluations."""

import json
import os
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from internals import ask_shards, cli_app, client_of, distributed_calls, distributed_cluster, peers_of, set_timeout
from kill_shards import kill_shards
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier
from cmt_numba.distributed import (
    ClusterError,
    NoAnswerError,
    PartialChangeError,
    ShardedClassifier,
    ShardedStore,
    evaluate,
    start,
)
from cmt_numba.evaluation import batch_evaluation
from cmt_numba.journal import JournalError

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),  # imported by start, not before
    pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc"),
]

D, N_CLASSES = 24, 80


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    start(num_cpus=2)
    start()  # a second call has no effect
    yield
    distributed_cluster.ray().shutdown()


def examples(n_each: int, seed: int, noise: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy examples of classes, each of which is similar to some others."""
    centers = np.repeat(np.random.default_rng(0).normal(size=(N_CLASSES // 4, D)), 4, axis=0)
    centers += 0.4 * np.random.default_rng(1).normal(size=(N_CLASSES, D))
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(N_CLASSES), n_each))
    return (centers[y] + noise * np.random.default_rng(seed).normal(size=(y.size, D))).astype(np.float32), y


X, Y = examples(6, 2)
QUERIES, ANSWERS = examples(10, 3)


@pytest.fixture(scope="module")
def sharded(cluster: None) -> Iterator[ShardedClassifier]:
    """Return a classifier with two shards, which no test changes."""
    with ShardedClassifier(2, random_state=0) as classifier:
        with pytest.raises(NotFittedError, match="is not fitted"):
            classifier.predict(X)
        yield classifier.fit(X, Y)


def test_shards_have_the_error_of_one_classifier(sharded: ShardedClassifier):
    one = CMTClassifier(random_state=0).fit(X, Y)
    predicted = sharded.predict(QUERIES)
    assert predicted.dtype == Y.dtype
    assert sharded.score(QUERIES, ANSWERS) == np.mean(predicted == ANSWERS) > 0.5
    assert sharded.score(QUERIES, ANSWERS) >= one.score(QUERIES, ANSWERS) - 0.02
    assert sharded.classes_.tolist() == list(range(N_CLASSES))
    positions, scores = sharded.top_classes(QUERIES, 30)
    np.testing.assert_array_equal(sharded.classes_[positions[:, 0]], predicted)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == row.size for row in (positions[i][np.isfinite(scores[i])] for i in range(50)))
    assert (sharded.shards, sharded.path) == (("shard-000", "shard-001"), None)


def test_each_example_is_learned_by_its_shard_and_some_by_a_second(sharded: ShardedClassifier):
    owned = [set(facts.classes.tolist()) for facts in ask_shards(sharded, "facts")]
    assert sum(map(len, owned)) == N_CLASSES
    assert len(set.union(*owned)) == N_CLASSES
    assert Y.size < sum(ask_shards(sharded, "n_examples")) < 2 * Y.size


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c.fit(X[:1], ["a"]), ValueError, "at least 2 classes"),
        (lambda c: c.partial_fit(X, Y[1:]), ValueError, "480 rows"),
        (lambda c: c.partial_fit(X * np.nan, Y), ValueError, "NaN"),
        (lambda c: c.partial_fit(X[:, :3], Y), ValueError, "24 features"),
        (lambda c: c.partial_fit(X[:2], ["a", "b"]), TypeError, "labels of the same type as the known labels"),
        (lambda c: c.predict(X[:, :3]), ValueError, "24 features"),
        (lambda c: c.top_classes(X, 0), ValueError, "k must be"),
        (lambda c: c.score(X, Y[1:]), ValueError, "480 rows"),
    ],
)
def test_bad_input_is_refused_before_anything_changes(
    sharded: ShardedClassifier, call: Callable[[ShardedClassifier], Any], error: type[Exception], words: str
):
    before = ask_shards(sharded, "n_examples")
    with pytest.raises(error, match=words):
        call(sharded)
    assert ask_shards(sharded, "n_examples") == before


def test_a_copy_in_another_process_asks_the_same_shards(sharded: ShardedClassifier):
    def ask(copy: ShardedClassifier) -> tuple[np.ndarray, str]:
        with pytest.raises(ClusterError, match="only the process") as caught:
            copy.partial_fit(X, Y)
        return copy.predict(QUERIES[:20]), str(caught.value)

    answers, _ = distributed_cluster.ray().get(distributed_cluster.ray().remote(ask).remote(sharded))
    np.testing.assert_array_equal(answers, sharded.predict(QUERIES[:20]))


def test_it_learns_online_in_a_folder_and_survives_its_processes(tmp_path: Path):
    path, names = tmp_path / "classifier", np.array([f"class {i}" for i in range(2 * N_CLASSES)])
    half = Y < N_CLASSES // 2
    with ShardedClassifier(2, path, random_state=0) as classifier:
        classifier.partial_fit(X[half], names[Y[half]])
        os.kill(ask_shards(classifier, "process")[0], signal.SIGKILL)
        for rows in np.array_split(np.flatnonzero(~half), 3):
            classifier.partial_fit(X[rows], names[Y[rows]])
        assert classifier.score(QUERIES, names[ANSWERS]) > 0.5
        assert classifier.classes_.tolist() == sorted(names[:N_CLASSES])
        held, answers = ask_shards(classifier, "n_examples"), classifier.top_classes(QUERIES, 3)
        assert sum(facts.classes.size for facts in ask_shards(classifier, "facts")) == N_CLASSES
    with pytest.raises(JournalError, match="closed"):
        classifier.predict(X)
    with ShardedClassifier(path=path, random_state=0) as again:
        assert ask_shards(again, "n_examples") == held
        for part, before in zip(again.top_classes(QUERIES, 3), answers, strict=True):
            np.testing.assert_array_equal(part, before)
        set_timeout(again._asking, 0.5)
        stopped = ask_shards(again, "process")[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            with pytest.raises(NoAnswerError, match="shard-001"):
                again.top_classes(QUERIES, 3)
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_a_shard_in_memory_loses_its_classes_with_its_process():
    with ShardedClassifier(1, random_state=0) as classifier:
        classifier.fit(X[:40], Y[:40])
        os.kill(ask_shards(classifier, "process")[0], signal.SIGKILL)
        with pytest.raises(ClusterError, match="shard-000 has died"):
            classifier.predict(X)
        with pytest.raises(ClusterError, match="shard-000 has died"):
            classifier.partial_fit(X, Y)


def test_evaluation_gives_the_numbers_of_one_process():
    estimators = {str(c): CMTClassifier(aggressiveness=c) for c in (0.3, 3.0)}
    how: dict[str, Any] = {"folds": 2, "seeds": (0, 5), "rivals": ("means",), "details": True}
    results = evaluate(estimators, X, Y, **how)
    assert list(results) == list(estimators)
    for name, estimator in estimators.items():
        expected, found = batch_evaluation(estimator, X, Y, **how), results[name]
        assert found.per_seed == expected.per_seed
        assert len(found.per_seed) == 4
        assert (found.confused, found.calibration) == (expected.confused, expected.calibration)
    assert results["0.3"].metrics != results["3.0"].metrics


def test_the_command_evaluates_on_ray(tmp_path: Path):
    from click.testing import CliRunner

    np.savetxt(
        tmp_path / "data.csv",
        np.column_stack([X, Y]),
        "%.6g",
        ",",
        header=f"{','.join(map(str, range(D)))},label",
        comments="",
    )
    words = ["evaluate", str(tmp_path / "data.csv"), "--seeds", "2", "--without", "linear", "--json", "-"]
    found, expected = (CliRunner().invoke(cli_app.app, [*words, *more]) for more in (["--ray", "local"], []))
    assert json.loads(found.stdout)["result"]["per_seed"] == json.loads(expected.stdout)["result"]["per_seed"]


@pytest.mark.parametrize(
    ("estimators", "options", "words"),
    [
        ({}, {}, "at least one estimator"),
        ({"a": CMTClassifier()}, {"folds": 1}, "folds"),
        ({"a": CMTClassifier(), "b": CMTClassifier(aggressiveness=-1.0)}, {}, "aggressiveness must be"),
    ],
)
def test_evaluation_says_what_is_wrong(estimators: dict[str, Any], options: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        evaluate(estimators, X, Y, seeds=(0,), **options)


def test_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # since the evaluation writes files
    text = (ROOT / "docs/distributed.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) >= 2
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"distributed.md, block {number}", "exec"), names)


def vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 16)).astype(np.float32)


def processes(store: ShardedStore) -> list[int]:
    return list(client_of(store).actors.ask("process", dict.fromkeys(store.shards, ())).values.values())


def owners_of(store: ShardedStore, keys: Iterable[Any]) -> list[int]:
    """Return the positions of the shards to which keys belong."""
    divided = client_of(store).topology.divided(list(keys))
    owners = np.concatenate([np.full(part.size, store.shards.index(name)) for name, part in divided.items()])
    return owners[np.argsort(np.concatenate(list(divided.values())))].tolist()


# Changes, folders and files


def test_shards_are_added_and_removed_while_the_store_is_used(tmp_path: Path):
    keys, X, Q = [f"k{i}" for i in range(400)], vectors(400), vectors(5, 1)
    store = ShardedStore(1, tmp_path / "store", timeout=300.0, random_state=0)  # a busy machine starts shards slowly
    store.add(keys, X, [{"n": i} for i in range(400)])
    store.create_index("n")
    expected = store.query(Q, 400, target_recall=1.0)
    copy = pickle.loads(pickle.dumps(store))  # the copy does not receive the new topologies

    def resize() -> None:
        assert store.add_shard() == "shard-001"
        assert store.remove_shard() == "shard-001"
        assert store.add_shard() == "shard-002"  # names are not reused
        assert store.remove_shard("shard-000") == "shard-000"

    with ThreadPoolExecutor(1) as executor:
        resized, n = executor.submit(resize), 0
        while not resized.done() or n < 5:
            for each in (store, copy):
                found = each.query(Q, 400, target_recall=1.0)
                np.testing.assert_array_equal(found.keys, expected.keys)
                np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)
                assert each.query(Q, 1, where=keys[n : n + 3]).payloads[0][0]["n"] in range(n, n + 3)
                each.upsert(keys[n : n + 20], X[n : n + 20], [{"n": i} for i in range(n, n + 20)])
                assert each.get(keys[n]).payloads == [{"n": n}]
                assert len(each) == 400
            n += 1
            time.sleep(0.1)  # or calls would slow down the start of processes
        resized.result()
    assert copy.shards == store.shards == ("shard-002",)
    assert sorted(store) == sorted(keys)
    assert not (tmp_path / "store" / "shard-000").exists()
    with pytest.raises(RuntimeError, match="process that opened"):
        copy.add_shard()
    with pytest.raises(ValueError, match="must be one of shard-002, got"):
        store.remove_shard("shard-000")
    with pytest.raises(ValueError, match="only shard"):
        store.remove_shard()

    store.close()
    with ShardedStore(path=tmp_path / "store") as store:
        assert sorted(store) == sorted(keys)


# Faults


def test_shards_that_do_not_answer_are_named(tmp_path: Path):
    X = vectors(40)
    with ShardedStore(2, tmp_path / "store", random_state=0, max_pending=3) as store:
        store.upsert(range(20), X[:20])  # the first call of a kind has more time
        store.delete([19])
        store.query(X, 5)
        set_timeout(client_of(store).actors, 0.5)
        names, owners = store.shards, owners_of(store, range(40))
        stopped = processes(store)[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            for _ in range(5):
                found = store.query(X, 19)
                assert found.missing_shards == found[:3].missing_shards == names[:1]
                assert {key for key in found.keys[0].tolist() if key is not None} == {
                    i for i in range(19) if owners[i] == 1
                }
            assert len(peers_of(client_of(store).actors)["shard-000"][0].pending) == 3  # the limit of pending calls
            with pytest.raises(NoAnswerError, match="shard-000"):
                len(store)
            peers_of(client_of(store).actors)["shard-000"][0].pending.clear()  # makes room for a change
            with pytest.raises(PartialChangeError) as caught:
                store.upsert(range(20, 40), X[20:])
            assert caught.value.made == [i for i in range(20, 40) if owners[i] == 1]
            assert caught.value.unknown == [i for i in range(20, 40) if owners[i] == 0]
            assert caught.value.not_made == []
        finally:
            os.kill(stopped, signal.SIGCONT)
        set_timeout(client_of(store).actors, 60.0)
        deadline = time.monotonic() + 60.0
        while len(store) < 39 and time.monotonic() < deadline:  # until pending calls are completed
            time.sleep(0.05)
        assert len(store) == 39
        assert store.query(X, 19).missing_shards == ()


def test_a_shard_in_memory_loses_its_contents_with_its_process():
    with ShardedStore(1, random_state=0) as store:
        store.add(range(20), vectors(20))
        os.kill(processes(store)[0], signal.SIGKILL)
        with pytest.raises(ClusterError, match="shard-000 has died"):
            store.query(vectors(2))


def test_replicas_answer_while_a_shard_is_restarted(tmp_path: Path):
    X, options = vectors(100), {"random_state": 0}
    with ShardedStore(1, tmp_path / "store", n_replicas=1, timeout=300.0, **options) as store:
        store.add(range(50), X[:50])
        shard, replica = (peer.handle for peer in peers_of(client_of(store).actors)["shard-000"])
        get = distributed_cluster.ray().get
        get(replica.wait.remote())
        version = client_of(store).topology.version

        def of_replica(rows: slice) -> list[int]:
            """Return the answer of the replica itself."""
            while not isinstance(
                read := get(replica.read.remote(version, (0, 0), "query", X[rows], None, 1, None, 1.0, None)),
                distributed_calls.Reply,
            ):
                get(replica.wait.remote())
            return read.value.keys[:, 0].tolist()

        store.upsert(range(50, 60), X[50:60])
        store.delete([0])
        assert of_replica(slice(1, 60)) == store.query(X[1:60], 1).keys[:, 0].tolist() == list(range(1, 60))
        process = get(shard.process.remote())
        os.kill(process, signal.SIGSTOP)
        try:
            for _ in range(3):
                assert store.query(X[1:60], 1).keys[:, 0].tolist() == list(range(1, 60))
        finally:
            os.kill(process, signal.SIGCONT)
        os.kill(process, signal.SIGKILL)
        assert store.query(X[1:60], 1).keys[:, 0].tolist() == list(range(1, 60))
        store.upsert(range(60, 70), X[60:70])  # in the new process, which the replica does not follow yet
        assert store.query(X[1:70], 1).keys[:, 0].tolist() == list(range(1, 70))
        assert of_replica(slice(1, 70)) == list(range(1, 70))
        os.kill(get(replica.process.remote()), signal.SIGKILL)
        store.upsert(range(70, 80), X[70:80])
        assert store.query(X[1:80], 1).keys[:, 0].tolist() == list(range(1, 80))
        while True:  # until the replica is copied again
            try:
                assert of_replica(slice(1, 80)) == list(range(1, 80))
                break
            except distributed_cluster.ray().exceptions.RayActorError:
                time.sleep(0.1)


def test_killed_shards_lose_and_duplicate_nothing():
    """Run the script for a short time."""
    told, n_moves = kill_shards(3, seed=0, n_clients=2, n_shards=2, mean_seconds=0.3, resizing=True)
    assert all(client.n_changes > 0 for client in told)
    assert n_moves > 0
