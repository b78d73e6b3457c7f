"""Sharded stores on Ray: same results and errors as one store, and no loss when shards die."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kill_shards import kill_shards

from cmt_numba import MemoryStore
from cmt_numba.distributed import ClusterError, NoAnswerError, PartialChangeError, ShardedStore, start
from cmt_numba.distributed._calls import Reply
from cmt_numba.distributed._cluster import ray

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),  # imported by start, not before
    pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc"),
]

D, N = 16, 10_000


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    start(num_cpus=2)
    start()  # a second call has no effect
    yield
    ray().shutdown()


def vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


@pytest.fixture(scope="module")
def one() -> MemoryStore:
    """Return a store without shards, which no test changes."""
    return fill(MemoryStore(random_state=0))


@pytest.fixture(scope="module")
def sharded(cluster: None) -> Iterator[ShardedStore]:
    """Return a sharded store with the same memories, which no test changes."""
    with ShardedStore(2, random_state=0) as store:
        yield fill(store)


def fill(store: Any) -> Any:
    store.add([f"k{i}" for i in range(N)], vectors(N), [{"n": i, "odd": i % 2 == 1} for i in range(N)])
    return store


def processes(store: ShardedStore) -> list[int]:
    return list(store._client.actors.ask("process", dict.fromkeys(store.shards, ())).values.values())


def owners_of(store: ShardedStore, keys: Iterable[Any]) -> list[int]:
    """Return the positions of the shards to which keys belong."""
    divided = store._client.topology.divided(list(keys))
    owners = np.concatenate([np.full(part.size, store.shards.index(name)) for name, part in divided.items()])
    return owners[np.argsort(np.concatenate(list(divided.values())))].tolist()


# Results


@pytest.mark.parametrize(
    "where",
    [None, {"odd": True, "n": {"lt": 500}}, ["k5", "k77", "k9999"], lambda payload: payload["n"] >= N - 5],
    ids=["all", "dict", "keys", "function"],
)
def test_all_shards_together_answer_as_one_store(one: MemoryStore, sharded: ShardedStore, where: Any):
    Q = vectors(70, 1)
    expected, found = (store.query(Q, 8, where, target_recall=1.0) for store in (one, sharded))
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)
    assert found.payloads == expected.payloads
    assert found.missing_shards == ()


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
        store._client.actors._timeout = 0.5
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
            assert len(store._client.actors._peers["shard-000"][0].pending) == 3  # and no more are stored
            with pytest.raises(NoAnswerError, match="shard-000"):
                len(store)
            store._client.actors._peers["shard-000"][0].pending.clear()  # makes room for a change
            with pytest.raises(PartialChangeError) as caught:
                store.upsert(range(20, 40), X[20:])
            assert caught.value.made == [i for i in range(20, 40) if owners[i] == 1]
            assert caught.value.unknown == [i for i in range(20, 40) if owners[i] == 0]
            assert caught.value.not_made == []
        finally:
            os.kill(stopped, signal.SIGCONT)
        store._client.actors._timeout = 60.0
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
        shard, replica = (peer.handle for peer in store._client.actors._peers["shard-000"])
        get = ray().get
        get(replica.wait.remote())
        version = store._client.topology.version

        def of_replica(rows: slice) -> list[int]:
            """Return the answer of the replica itself."""
            while not isinstance(
                read := get(replica.read.remote(version, (0, 0), "query", X[rows], None, 1, None, 1.0, None)), Reply
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
            except ray().exceptions.RayActorError:
                time.sleep(0.1)


def test_killed_shards_lose_and_duplicate_nothing():
    """Run the script for a short time."""
    told, n_moves = kill_shards(3, seed=0, n_clients=2, n_shards=2, mean_seconds=0.3, resizing=True)
    assert all(client.n_changes > 0 for client in told)
    assert n_moves > 0
