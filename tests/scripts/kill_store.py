"""Kill processes while they change a store in a folder, as many times as wanted, and see what is there afterwards.

Each process opens the folder, adds, upserts and deletes memories and gives feedback, and tells after each change how
many changes were acknowledged, until it is killed (SIGKILL) at a random moment. The folder must then open with exactly
the keys, payloads and vectors that the same changes give elsewhere, with nothing missing that was acknowledged. POSIX
only.

    python tests/scripts/kill_store.py 1000 --metric euclidean --max-items 60
"""

import argparse
import struct
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from killed import told_until_killed

from cmt_numba import DurableTree, MemoryStore
from cmt_numba._engine.options import KEEP
from cmt_numba.store._metrics import METRICS

_LONGEST_LIFE = 0.4  # seconds
_FEATURES = 6
_BYTES = 0, 20_000, 1 << 26  # of the journal, above which a snapshot replaces it
_TOLD = struct.Struct("<q")

Contents = tuple[list[Any], np.ndarray, list[Any]]


def new_store(
    path: Path | None,
    metric: str = "cosine",
    max_items: int | None = None,
    keep: str = "all",
    n_links: int = 24,
    *,
    n_bytes: int = 0,
) -> MemoryStore:
    """Return the store in a folder or an empty one in memory, with a snapshot after so many bytes of changes."""
    options: dict[str, Any] = {"n_trees": 2, "random_state": 7, "n_threads": 1, "max_items": max_items, "keep": keep}
    options["n_links"] = n_links
    if path is not None:
        options |= {"snapshot_bytes": n_bytes, "snapshot_seconds": 0.0 if n_bytes == 0 else 10.0}
    return MemoryStore(path, metric, **options)


def change(store: MemoryStore, number: int) -> None:
    """Make the change of this number. Which one it is depends on the number and the contents of the store alone."""
    random = np.random.default_rng([number, 3])
    keys = sorted(store)
    if number == 0:
        store.create_index("n")
    if len(keys) < 10 or random.random() < 0.4:
        n = int(random.integers(1, 20))
        X = (random.normal(size=(n, _FEATURES)) * (1 + number % 7)).astype(np.float32)
        store.add([f"{number}.{i}" for i in range(n)], X, [{"n": number, "i": i} for i in range(n)])
        return
    chosen = [str(key) for key in random.choice(keys, min(len(keys), 5), replace=False)]
    X = random.normal(size=(len(chosen) + 1, _FEATURES)).astype(np.float32)
    draw = random.random()
    if draw < 0.4:
        store.upsert([*chosen, f"{number}"], X, [{"n": number}] * X.shape[0])
    elif draw < 0.8:
        store.delete(chosen)
    elif draw < 0.9:
        store.feedback(X[1:], chosen, random.random(len(chosen)))
    else:
        store.compact()


def contents(store: MemoryStore) -> Contents:
    """Return all that is in a store, after checking that its parts fit each other."""
    store._contents.check_open()  # which opens a folder again after a failure
    store.check_invariants()
    keys = sorted(store)
    if not keys:
        return [], np.empty((0, _FEATURES)), []
    items = store.get(keys)
    return keys, items.vectors, items.payloads


def equal(one: Contents, other: Contents) -> bool:
    """Return whether the contents of two stores are the same, bit for bit."""
    return one[0] == other[0] and one[2] == other[2] and bool(np.array_equal(one[1], other[1]))


def kill_while_changing(path: Path, number: int, seconds: float, options: dict[str, Any]) -> int:
    """Have a process make changes from a number on, and kill it; return how many it has acknowledged."""

    def work(tell: Callable[..., None]) -> None:
        with new_store(path, **options) as store:
            for following in count(number):
                change(store, following)
                tell(following + 1)

    told = told_until_killed(work, _TOLD, seconds)
    return told[0] if told else number


def n_changes(store: MemoryStore) -> int:
    """Return how many entries the journal of a store has had."""
    tree = store._contents.tree
    assert isinstance(tree, DurableTree)
    return tree.sequence


def kill_changes(n: int, seed: int, **options: Any) -> int:
    """Kill ``n`` processes and check the store after each; return how many changes there were."""
    random = np.random.default_rng(seed)
    compiling, number = new_store(None, **options), 0
    while number < 60:
        change(compiling, number)
        number += 1
    number = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        new_store(Path(folder) / "reference", **options) as reference,
    ):
        path = Path(folder) / "store"
        for _ in range(n):
            how = options | {"n_bytes": int(random.choice(_BYTES))}
            acknowledged = kill_while_changing(path, number, random.random() * _LONGEST_LIFE, how)
            with new_store(path, **how) as store:
                before = contents(reference)
                while n_changes(reference) < n_changes(store):
                    before = contents(reference)
                    change(reference, number)
                    number += 1
                assert number >= acknowledged, f"{acknowledged} changes were acknowledged, but {number} are there"
                if n_changes(reference) > n_changes(store):  # other keys for all are a change of their own
                    keys, vectors, payloads = contents(store)
                    assert (keys, payloads) == (before[0], before[2])
                    rounding = 1e-3 if options.get("keep") != "codes" else 0.02 * np.abs(before[1]).max()
                    np.testing.assert_allclose(vectors, before[1], rtol=1e-3, atol=rounding)
                    change(store, number - 1)
                assert n_changes(reference) == n_changes(store)
                assert equal(contents(store), contents(reference)), f"after {number} changes there are other memories"
    return number


def main() -> int:
    """Run the command line; an assertion fails if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes while they change a store in a folder.")
    parser.add_argument("number", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--metric", choices=METRICS, default="cosine")
    parser.add_argument("--max-items", type=int)
    parser.add_argument("--keep", choices=KEEP, default="all")
    parser.add_argument("--links", type=int, default=24)
    given = parser.parse_args()
    options = {"metric": given.metric, "max_items": given.max_items, "keep": given.keep, "n_links": given.links}
    n = kill_changes(given.number, given.seed, **options)
    print(f"{given.number} killed, {n} changes; nothing lost, and keys, payloads and vectors belong together")
    return 0


if __name__ == "__main__":
    sys.exit(main())
