"""Query a tree from many threads while one thread changes it, and check and count the answers.

``python tests/scripts/stress_threads.py --seconds 60`` prints the queries per second. The tests of concurrency run the
same code for a moment.
"""

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmt_numba import ContextualMemoryTree

_N_FEATURES = 32
_K = 3


class Bookkeeping:
    """The lifetimes of memories, by a clock that ticks before and after every change.

    A query may find a memory from the tick before its insert to the tick after its removal.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.since: dict[int, int] = {}
        self.until: dict[int, int] = {}
        self.held: list[int] = []
        self.next_id = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def insert(self, tree: ContextualMemoryTree, keys: np.ndarray) -> None:
        expected = range(self.next_id, self.next_id + len(keys))
        now = self.tick()
        self.since.update(dict.fromkeys(expected, now))
        ids = tree.insert(keys)
        assert ids.tolist() == list(expected)
        self.next_id += len(keys)
        self.held.extend(expected)

    def remove(self, tree: ContextualMemoryTree, ids: list[int]) -> None:
        tree.remove(ids)
        now = self.tick()
        self.until.update(dict.fromkeys(ids, now))

    def were_there(self, ids: np.ndarray, began: int, ended: int) -> bool:
        """Return whether each memory may have been stored at some time between two ticks."""
        never = ended + 1
        return all(
            self.since.get(memory_id, never) <= ended and self.until.get(memory_id, never) > began
            for memory_id in ids[ids >= 0].tolist()  # a leaf may hold fewer than ``k`` memories
        )


@dataclass
class Counts:
    """The numbers of operations of the threads."""

    seconds: float = 0.0
    queries: list[int] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)
    longest_wait: float = 0.0

    @property
    def queries_per_second(self) -> float:
        """Return the queries per second of all threads."""
        return sum(self.queries) / self.seconds


class Stress:
    """A tree, the lifetimes of its memories, and threads that use it.

    Parameters
    ----------
    n_memories : int
        Approximate number of stored memories.
    n_readers : int
        Threads that query.
    seed : int
        Seed of all random numbers.
    options
        Options of the tree.
    """

    def __init__(self, n_memories: int, n_readers: int, seed: int = 0, **options: Any) -> None:
        rng = np.random.default_rng(seed)
        self.keys = rng.normal(size=(4 * n_memories, _N_FEATURES)).astype(np.float32)
        self.n_memories, self.n_readers = n_memories, n_readers
        self.tree = ContextualMemoryTree(random_state=seed, **options)
        self.books = Bookkeeping()
        self.books.insert(self.tree, self.keys[:n_memories])
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._seed = seed

    def run(self, seconds: float, *, changing: bool) -> Counts:
        """Run all readers and, if ``changing``, a writer for some seconds.

        Raises the error of a thread, if there is one.
        """
        counts = Counts(queries=[0] * self.n_readers)
        self._stopped.clear()
        works: list[Callable[[], None]] = [
            lambda reader=reader: self._read(reader, counts) for reader in range(self.n_readers)
        ]
        if changing:
            works.append(lambda: self._change(counts))
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        self._stopped.wait(seconds)
        self._stopped.set()
        for thread in threads:
            thread.join()
        counts.seconds = time.perf_counter() - began
        if self.errors:
            raise self.errors[0]
        return counts

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            self._stopped.set()

    def _read(self, reader: int, counts: Counts) -> None:
        rng = np.random.default_rng([self._seed, reader])
        blocks = self.keys[rng.permutation(len(self.keys))[:1024]].reshape(-1, 1, _N_FEATURES)
        while not self._stopped.is_set():
            block = blocks[counts.queries[reader] % len(blocks)]
            began, asked = self.books.clock, time.perf_counter()
            hits = self.tree.query(block, k=_K)
            waited, ended = time.perf_counter() - asked, self.books.clock
            if not self.books.were_there(hits.ids, began, ended):
                raise AssertionError(f"{hits.ids} were not all there between {began} and {ended}")
            counts.queries[reader] += 1
            counts.longest_wait = max(counts.longest_wait, waited)

    def _change(self, counts: Counts) -> None:
        rng = np.random.default_rng([self._seed, self.n_readers])
        books, tree = self.books, self.tree

        def insert() -> None:
            books.insert(tree, self.keys[rng.integers(len(self.keys), size=rng.choice([1, 1, 10, 500]))])

        def remove() -> None:
            n = len(books.held) - self.n_memories
            chosen = set(rng.choice(books.held, size=max(1, n), replace=False).tolist())
            books.held = [memory_id for memory_id in books.held if memory_id not in chosen]
            books.remove(tree, list(chosen))

        def update() -> None:
            rows = self.keys[rng.integers(len(self.keys), size=rng.choice([1, 50]))]
            hits = tree.query(rows, k=_K, epsilon=0.5)
            tree.update(rows, hits, rng.random(hits.ids.shape))

        def reroute() -> None:
            tree.reroute(int(rng.choice([1, 100])))

        changes, n_done = (insert, remove, update, reroute), 0
        while not self._stopped.is_set() or n_done < len(changes):  # makes each change at least once
            change = changes[n_done % len(changes)]
            change()
            n_done += 1
            counts.changes[change.__name__] = counts.changes.get(change.__name__, 0) + 1

    def check(self) -> None:
        """Raise an error if the tree is invalid or differs from the bookkeeping."""
        self.tree.check_invariants()
        if sorted(self.tree.ids.tolist()) != sorted(self.books.held):
            raise AssertionError("the tree holds other memories than those inserted and not removed")


def main() -> None:
    """Print the queries per second with and without a writer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds with the writer")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds before and after, without the writer")
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--trees", type=int, default=2)
    arguments = parser.parse_args()
    stress = Stress(arguments.memories, arguments.readers, n_trees=arguments.trees)
    stress.run(1.0, changing=True)  # compile all kernels
    rates = []
    for seconds, changing in ((arguments.alone, False), (arguments.seconds, True), (arguments.alone, False)):
        counts = stress.run(seconds, changing=changing)
        rates.append(counts.queries_per_second)
        print(
            f"{'with' if changing else 'without'} a writer, {counts.seconds:.1f} s: "
            f"{rates[-1]:,.0f} queries/s, longest {1e3 * counts.longest_wait:.1f} ms, changes {counts.changes}",
            flush=True,
        )
    stress.check()
    print(f"ratio {2 * rates[1] / (rates[0] + rates[2]):.3f}; the tree is sound, and every answer was there")


if __name__ == "__main__":
    main()
