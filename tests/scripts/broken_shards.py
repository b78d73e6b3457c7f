"""Break sharded stores with faults, and compare them with a dict of the expected contents; see `break_folders.py`.

If a change of several shards fails, some of the shards may have made it. Each of its keys must then be as before or as
after the change. Linux only; needs the extra ``ray``.
"""

import os
import resource
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from faults import Countdown, interrupt, n_bytes
from kill_shards import shard_processes

from cmt_numba.distributed import ClusterError, MoveError, NoAnswerError, PartialChangeError, ShardedStore, start
from cmt_numba.journal import JournalError

WIDTH = 4
METRICS = ("cosine", "inner_product", "euclidean")
MAGNITUDES = (1e-18, 1.0, 1.0, 1e6, 1e18)
FAILURES = (PartialChangeError, ClusterError, NoAnswerError, MoveError, JournalError, OSError, KeyboardInterrupt)
REFUSED = (ValueError, TypeError, KeyError)

Memories = dict[str, tuple[bytes, Any]]  # vectors and payloads
Random = np.random.Generator
Made = tuple[Callable[[], Any], Memories]
Change = Callable[[ShardedStore, Memories, Random], Made]


class WrongError(Exception):
    """A store does not open, or holds the wrong memories."""


# Changes: each draws its arguments and returns the call that makes it, and the expected memories afterwards


def vectors(n: int, random: Random) -> np.ndarray:
    return (random.normal(size=(n, WIDTH)) * random.choice(MAGNITUDES)).astype(np.float32)


def some_keys(memories: Memories, random: Random) -> list[str]:
    return [str(key) for key in random.choice(sorted(memories), min(5, len(memories)), replace=False)]


def put(method: str) -> Change:
    """Return the change that adds memories, or also replaces some."""

    def change(store: ShardedStore, memories: Memories, random: Random) -> Made:
        old = some_keys(memories, random) if method == "upsert" and memories else []
        keys = [*old, *(f"{random.integers(10**12)}" for _ in range(int(random.integers(1, 12))))]
        X, payloads = vectors(len(keys), random), [{"n": i} for i in range(len(keys))]
        new = {key: (X[i].tobytes(), payloads[i]) for i, key in enumerate(keys)}
        return lambda: getattr(store, method)(keys, X, payloads), memories | new

    return change


def delete(store: ShardedStore, memories: Memories, random: Random) -> Made:
    keys = some_keys(memories, random)
    return lambda: store.delete(keys), {key: memory for key, memory in memories.items() if key not in keys}


def reward(store: ShardedStore, memories: Memories, random: Random) -> Made:
    keys = some_keys(memories, random)
    return lambda: store.feedback(vectors(len(keys), random), keys, np.ones(len(keys))), memories


def resize(store: ShardedStore, memories: Memories, random: Random) -> Made:
    if len(store.shards) > 2:
        return lambda: store.remove_shard(store.shards[int(random.integers(len(store.shards)))]), memories
    return store.add_shard, memories


CHANGES: dict[str, Change] = {
    "add": put("add"),
    "another add": put("add"),
    "upsert": put("upsert"),
    "delete": delete,
    "feedback": reward,
    "resize": resize,
}
INVALID: dict[str, Callable[[ShardedStore], Any]] = {
    "width": lambda store: store.add(["x", "y"], np.ones((2, WIDTH + 1))),
    "type of keys": lambda store: store.add([1, 2], np.ones((2, WIDTH))),
    "NaN": lambda store: store.add(["x", "y"], np.full((2, WIDTH), np.nan)),
    "keys": lambda store: store.delete(["nowhere"]),
}


# Faults


@contextmanager
def killed_shard(path: Path, random: Random) -> Iterator[None]:
    """Kill the process of a shard during the block."""
    processes = shard_processes()
    process, seconds = int(random.choice(processes)), float(random.random() * 0.05)

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def full_disk(path: Path, random: Random) -> Iterator[None]:
    """Limit the size of files of the shards to slightly more than the largest one."""
    most = n_bytes(path) + int(random.integers(20_000))
    processes = shard_processes()
    for process in processes:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def interrupted(path: Path, random: Random) -> Iterator[None]:
    """Interrupt the client at one of its calls."""
    with Countdown(int(random.integers(3000)), interrupt, writes=False):
        yield


CONDITIONS: dict[str, Any] = {"killed shard": killed_shard, "full disk": full_disk, "interrupt": interrupted}


# Trials


def contents(store: ShardedStore) -> Memories:
    """Return all memories of a store."""
    keys = sorted(store)
    if not keys:
        return {}
    items = store.get(keys)
    return {key: (items.vectors[i].tobytes(), items.payloads[i]) for i, key in enumerate(keys)}


def require(found: Memories, *allowed: Memories) -> None:
    """Fail unless each memory is as in one of the allowed states."""
    for key in sorted(found.keys() | set[str]().union(*allowed)):
        if all(found.get(key) != memories.get(key) for memories in allowed):
            at_fault = "lost" if key not in found else "there" if found[key] not in allowed[0].values() else "changed"
            raise WrongError(f"memory {key} is {at_fault}")


def go_on(store: ShardedStore, found: Memories, wanted: Memories) -> None:
    """Complete a change that was made in part, as a client would."""
    gone = [key for key in found if key not in wanted]
    if gone:
        store.delete(gone)
    missing = [key for key, memory in wanted.items() if found.get(key) != memory]
    if missing:
        X = np.stack([np.frombuffer(wanted[key][0], np.float32) for key in missing])
        store.upsert(missing, X, [wanted[key][1] for key in missing])


def try_folder(path: Path, seed: int, n: int, n_faults: Counter[str], history: list[str]) -> None:
    """Change a store in a folder ``n`` times while faults strike."""
    random, memories = np.random.default_rng(seed), Memories()
    options: dict[str, Any] = {"n_shards": 2, "metric": str(random.choice(METRICS)), "random_state": 7}
    how = {"timeout": 120.0, "snapshot_bytes": 5000, "sync_every": int(random.choice([1, 100]))}
    store = ShardedStore(path=path, **how, **options)
    try:
        for _ in range(n):
            fault = str(random.choice(["none", "invalid argument", "reopening", "copy while open", *CONDITIONS]))
            name = "add" if len(memories) < 10 else str(random.choice(sorted(CHANGES)))
            history.append(f"{name} with {fault}")
            call, wanted = CHANGES[name](store, memories, random)
            condition = CONDITIONS[fault](path, random) if fault in CONDITIONS else nullcontext()
            try:
                with condition:
                    call()
            except FAILURES as error:
                if fault not in CONDITIONS:
                    raise WrongError("a change fails without a fault") from error
                if name == "resize":
                    with suppress(*FAILURES):
                        store.finish_move()
                found = contents(store)
                require(found, memories, wanted)
                go_on(store, found, wanted)
            memories = wanted
            if fault == "invalid argument":
                refuse(store, str(random.choice(sorted(INVALID))))
            elif fault == "reopening":
                store.close()
                store = ShardedStore(path=path, **how)
            elif fault == "copy while open":
                require_copy(path, memories)
            n_faults[fault] += fault != "none"
            require(contents(store), memories)
    finally:
        store.close()


def refuse(store: ShardedStore, name: str) -> None:
    try:
        INVALID[name](store)
    except REFUSED:
        return
    raise WrongError(f"invalid {name} accepted")


def require_copy(path: Path, memories: Memories) -> None:
    """Copy a folder that is open, and fail unless the copy has the same contents."""
    other = path.with_name("copy")
    shutil.copytree(path, other)
    try:
        with ShardedStore(path=other) as store:
            require(contents(store), memories)
    finally:
        shutil.rmtree(other)


def break_shards(n: int, seed: int, most: int = 5) -> tuple[Counter[str], list[str]]:
    """Make ``n`` faults strike sharded stores; return how many of each kind, and all errors."""
    start(num_cpus=2)
    n_faults, wrong = Counter[str](), list[str]()
    random = np.random.default_rng([seed, 99])
    while n_faults.total() < n and len(wrong) < most:
        one, history = int(random.integers(1 << 31)), list[str]()
        with tempfile.TemporaryDirectory() as folder:
            try:
                try_folder(Path(folder) / "store", one, min(60, n), n_faults, history)
            except Exception as error:
                cause = f" ({error.__cause__!r})" if error.__cause__ else ""
                wrong.append(f"seed {one}, {history[-4:]}: {type(error).__name__}: {error}{cause}")
    return n_faults, wrong
