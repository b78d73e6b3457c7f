"""Query and change memories in folders for an hour, kill their processes again and again, and check what is left.

    python tests/scripts/load.py --minutes 60             # a kill every 5 minutes; needs the extra ``ray``
    python tests/scripts/load.py texts bandit --minutes 20

Each kind has a process with two threads that query and one that makes changes: a store with texts, vectors and rewards,
which four processes follow, a text classifier with corrections and with new classes of ten texts in one call, a bandit,
and a store in two shards. Stores get rewards as users give them: clean, clicks, coins, one outcome for all results.

Half of the kills (SIGKILL) come at any moment: the folder, opened again, must contain every change that was
acknowledged. Before the others, fixed queries are answered, and the folder must give the same answers. After every
third kill, the memories of the store move to a new folder, which takes the place of the old one while its readers go
on. The contents of each kind stop growing early, so its memory must too. Linux only.
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cmt_numba import MemoryStore
from cmt_numba.bandits import CMTBandit
from cmt_numba.distributed import ShardedStore, start
from cmt_numba.text import TextClassifier

FEATURES = 64
MEMORIES = 5_000
CLASSES = 20
ACTIONS = 200
BATCH = 10
READERS = 4
REFRESH = 0.5  # seconds
NEW_CLASS_EVERY = 25  # changes
TEXTS_OF_A_NEW_CLASS = 10
KEPT_CHANGES = 300  # of the text classifier
KILLS_BETWEEN_SWAPS = 3
TALKING = threading.Lock()
WORDS = [f"{first}{second}" for first in "bdfgklmnprstvz" for second in ("ab", "al", "en", "ir", "os", "un")]


def vectors(n: int, seed: int) -> np.ndarray:
    """Return random rows."""
    return np.random.default_rng(seed).normal(size=(n, FEATURES)).astype(np.float32)


def sentences(n: int, seed: int) -> list[str]:
    """Return random sentences of eight words."""
    return [" ".join(words) for words in np.random.default_rng(seed).choice(WORDS, size=(n, 8))]


def rewards_of(right: np.ndarray, i: int) -> np.ndarray:
    """Return rewards for memories of which some are right, each time of another kind."""
    rng = np.random.default_rng(i)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: right,
        lambda: np.where(rng.random(right.size) < 0.2, 1.0 - right, right),
        lambda: (rng.random(right.size) < 0.4 + 0.2 * right).astype(float),  # a base rate
        lambda: right * (rng.random(right.size) < [1.0, 0.6, 0.45]),  # clicks
        lambda: rng.integers(0, 2, right.size).astype(float),  # coins
        lambda: np.ones(right.size),
        lambda: right.max(),  # one outcome
    ]
    return np.atleast_2d(kinds[i % len(kinds)]())


class ServedStore:
    """A store whose memories are replaced continually, and which learns from rewards."""

    def __init__(self, folder: Path) -> None:
        self.store: Any = MemoryStore(folder, random_state=0)

    def change(self, i: int) -> None:
        """Replace some memories, and reward a result."""
        numbers = range(BATCH * i, BATCH * (i + 1))
        keys = [*(f"k{number % MEMORIES}" for number in numbers), "last"]
        self.store.upsert(keys, vectors(BATCH + 1, i), [{"change": i}] * (BATCH + 1), sentences(BATCH + 1, i))
        found = self.store.query(vectors(1, i), 3, texts=sentences(1, i)).keys
        right = np.array([str(key)[-1] in "13579" for key in found[0]], float)
        rewards = rewards_of(right, i)
        self.store.feedback(vectors(1, i), found, rewards if rewards.size > 1 else rewards[0], texts=sentences(1, i))

    def n_changes(self) -> int:
        """Return how many changes the store contains."""
        return self.store["last"].payload["change"] + 1 if "last" in self.store else 0

    def query(self, i: int) -> None:
        """Answer a query with one row."""
        self.store.query(vectors(1, i % 100), 5, texts=sentences(1, i % 100))

    def answers(self) -> Any:
        """Return the answers to fixed queries."""
        return self.store.query(vectors(50, 1), 5, target_recall=1.0, texts=sentences(50, 1)).keys.tolist()


class ServedShards(ServedStore):
    """The same in two shards."""

    def __init__(self, folder: Path) -> None:
        start()
        self.store = ShardedStore(2, folder, random_state=0)


class ServedTexts:
    """A text classifier that learns texts and classes, is corrected, and forgets the oldest texts.

    The ids of the texts of a change start at the number of the change times ``TEXTS_OF_A_NEW_CLASS``.
    """

    def __init__(self, folder: Path) -> None:
        self.classifier = TextClassifier.open(folder, random_state=0)

    def change(self, i: int) -> None:
        """Learn a text or a new class, correct a text, and forget the oldest."""
        rng = np.random.default_rng(i)
        first = TEXTS_OF_A_NEW_CLASS * i
        if i >= CLASSES and i % NEW_CLASS_EVERY == 0:
            texts = [f"{WORDS[i % len(WORDS)]} {text}" for text in sentences(TEXTS_OF_A_NEW_CLASS, i)]
            self.classifier.partial_fit(texts, [f"new {i}"] * len(texts), [*range(first, first + len(texts))])
        elif i < CLASSES:
            self.classifier.partial_fit([f"class {i} {sentences(1, i)[0]}"], [f"class {i}"], [first])
        else:
            label = f"class {rng.integers(CLASSES)}"
            self.classifier.partial_fit([f"{label} {sentences(1, i)[0]}"], [label], [first])
        if i % 10 == 9 and i > CLASSES:
            self.classifier.relabel([first], [f"class {rng.integers(CLASSES)}"])
        if i > KEPT_CHANGES:
            oldest = TEXTS_OF_A_NEW_CLASS * (i - KEPT_CHANGES)
            self.classifier.remove([one for one in self.classifier.ids_ if one < oldest])

    def n_changes(self) -> int:
        """Return how many changes the classifier contains; the end of the last one may be missing."""
        ids = getattr(self.classifier, "ids_", None)
        return 0 if ids is None else int(max(ids)) // TEXTS_OF_A_NEW_CLASS + 1

    def query(self, i: int) -> None:
        """Classify a text."""
        self.classifier.predict(sentences(1, i % 100))

    def answers(self) -> Any:
        """Return the answers to fixed queries."""
        return self.classifier.predict_proba(sentences(50, 1)).tolist()


class ServedBandit:
    """A bandit over actions with keys."""

    def __init__(self, folder: Path) -> None:
        self.bandit = CMTBandit.open(folder, max_memories=2_000, random_state=0)

    def change(self, i: int) -> None:
        """Decide and learn."""
        if i == 0:
            self.bandit.add_actions(np.arange(ACTIONS), vectors(ACTIONS, 0))
        chosen = self.bandit.act(vectors(1, i))
        self.bandit.reward(chosen.ids, np.array([float(i % 3 == 0)]))

    def n_changes(self) -> int:
        """Return how many rewards the bandit has learned."""
        return self.bandit.n_rewards

    def query(self, i: int) -> None:
        """Compute the probabilities of actions."""
        self.bandit.probabilities(vectors(1, i % 100))

    def answers(self) -> Any:
        """Return the answers to fixed queries."""
        return self.bandit.probabilities(vectors(50, 1)).tolist()


KINDS: dict[str, Callable[[Path], Any]] = {
    "store": ServedStore,
    "texts": ServedTexts,
    "bandit": ServedBandit,
    "shards": ServedShards,
}


def say(**line: Any) -> None:
    """Send a line to the process that started this one."""
    with TALKING:  # several threads say something
        print(json.dumps(line), flush=True)


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve(kind: str, folder: Path, pause: float) -> None:
    """Serve and report each minute until a line arrives; then give the last answers, and wait to be killed."""
    served = KINDS[kind](folder)
    if served.n_changes() == 0:
        for i in range(MEMORIES // BATCH // 5 if kind in ("store", "shards") else 30):
            served.change(i)
    n_changes = served.n_changes()
    say(n_changes=n_changes, answers=served.answers())
    stopped = threading.Event()
    latencies: dict[str, list[float]] = {"query": [], "change": []}

    def loop(name: str, i: int) -> None:
        try:
            while not stopped.wait(pause):
                started = time.perf_counter()
                getattr(served, name)(i)
                latencies[name].append(time.perf_counter() - started)
                i += 1
                if name == "change":
                    say(acknowledged=i)
        except BaseException as error:
            say(error=repr(error))
            raise

    threads = [threading.Thread(target=loop, args=("query", i)) for i in range(2)]
    threads.append(threading.Thread(target=loop, args=("change", n_changes)))
    for thread in threads:
        thread.start()
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
    while not asked.wait(60.0):
        if not all(latencies.values()):  # a busy machine still compiles
            continue
        queries, changes = (np.array(times) * 1e3 for times in latencies.values())
        for times in latencies.values():
            times.clear()
        half, most = np.percentile(queries, [50, 99])
        say(
            figures=f"{resident_megabytes():5.0f} {queries.size:7,} {half:8.2f} {most:7.1f} {queries.max():7.0f}"
            f" {changes.size:7,} {np.median(changes):8.2f} {changes.max():7.0f}"
        )
    stopped.set()
    for thread in threads:
        thread.join()
    say(answers=served.answers())
    threading.Event().wait()


def follow(folder: str, pause: float, ends: float, results: Any) -> None:
    """Read the store of another process until the end, and report the queries, the longest, and the memory."""
    n_queries, longest, last = 0, 0.0, -1
    megabytes, started_at = [resident_megabytes()], time.time()
    try:
        with MemoryStore(folder, read_only=True, refresh_every=REFRESH) as store:
            while time.time() < ends:
                started = time.perf_counter()
                store.query(vectors(1, n_queries % 100), 5, texts=sentences(1, n_queries % 100))
                longest = max(longest, time.perf_counter() - started)
                everything = store.query(vectors(1, 1), 2 * MEMORIES, target_recall=1.0).payloads[0]
                changes = [payload["change"] for payload in everything if payload is not None]
                change = max(changes)
                assert change >= last, f"change {change} after {last}"
                assert changes.count(change) == BATCH + 1, f"a part of change {change}"
                n_queries, last = n_queries + 1, change
                if len(megabytes) <= (time.time() - started_at) // 60:
                    megabytes.append(resident_megabytes())
                time.sleep(pause)
        memory = ", ".join(f"{megabytes[place]:.0f}" for place in (0, len(megabytes) // 2, -1))
        results.put(f"{n_queries:,} queries, the longest {1e3 * longest:.0f} ms, up to change {last}; MB: {memory}")
    except BaseException as error:
        results.put(f"ERROR {error!r}")


def swap(folder: Path, n: int) -> None:
    """Add the memories of a store to a new folder, and put it in the place of the old one."""
    built = folder.with_name(f"{folder.name}.built")
    with MemoryStore(folder, read_only=True) as old, MemoryStore(built, random_state=0) as new:
        found = old.get()
        new.add(found.keys, found.vectors, found.payloads, found.texts)
    folder.rename(folder.with_name(f"{folder.name}.{n}"))
    built.rename(folder)


class Supervisor(threading.Thread):
    """Starts the process of a kind, kills it again and again, and compares what it said before and after."""

    def __init__(self, kind: str, folder: Path, given: argparse.Namespace, ends: float) -> None:
        super().__init__()
        self.kind, self.folder, self.given, self.ends = kind, folder / kind, given, ends
        self.acknowledged, self.answers, self.n_kills, self.n_swaps = 0, None, 0, 0
        self.errors: list[str] = []
        self.has_opened = threading.Event()

    def run(self) -> None:
        command = [sys.executable, __file__, self.kind, "--serve", str(self.folder), "--pause", str(self.given.pause)]
        while time.time() < self.ends and not self.errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert process.stdin is not None
            assert process.stdout is not None
            opened = json.loads(process.stdout.readline() or '{"error": "does not open"}')
            self._compare(opened)
            self.has_opened.set()
            kill = threading.Timer(60 * self.given.kill_every, self._end, [process, self.n_kills % 2 == 1])
            kill.start()
            self.answers = None
            for line in process.stdout:
                self._hear(process, json.loads(line) if line.endswith("\n") else {})
            kill.cancel()
            process.wait()
            self.n_kills += 1
            if self.kind == "store" and self.n_kills % KILLS_BETWEEN_SWAPS == 0:
                swap(self.folder, self.n_swaps)
                self.n_swaps += 1
                self.answers = None  # the new folder has learned nothing from rewards

    def _compare(self, opened: dict[str, Any]) -> None:
        if "error" in opened:
            self.errors.append(opened["error"])
        elif self.acknowledged and opened["n_changes"] - self.acknowledged not in (0, 1):
            self.errors.append(f"{opened['n_changes']} changes, but {self.acknowledged} were acknowledged")
        elif self.answers is not None and opened["answers"] != self.answers:
            self.errors.append("other answers after a kill")

    def _end(self, process: subprocess.Popen[str], asks: bool) -> None:
        if asks:  # the answers come first, then the kill
            process.stdin.write("answer\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        else:
            process.send_signal(signal.SIGKILL)

    def _hear(self, process: subprocess.Popen[str], said: dict[str, Any]) -> None:
        self.acknowledged = said.get("acknowledged", self.acknowledged)
        if "figures" in said:
            print(f"{self.kind:8} {said['figures']}", flush=True)
        if "error" in said:
            self.errors.append(said["error"])
        if "answers" in said:
            self.answers = said["answers"]
        if "answers" in said or "error" in said:
            process.send_signal(signal.SIGKILL)


def main() -> None:
    """Serve all kinds, and exit with 1 if one of them went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", help="by default all: " + ", ".join(KINDS))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=5.0, help="minutes between kills")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between the operations of a thread")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.kinds = given.kinds or list(KINDS)
    if given.serve is not None:
        serve(given.kinds[0], given.serve, given.pause)
        return
    ends = time.time() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        supervisors = [Supervisor(kind, Path(temporary), given, ends) for kind in given.kinds]
        print("kind        MB queries median ms   99 % longest changes median ms longest", flush=True)
        for supervisor in supervisors:
            supervisor.start()
        spawning = multiprocessing.get_context("spawn")
        results, readers = spawning.Queue(), []
        if "store" in given.kinds:
            supervisors[given.kinds.index("store")].has_opened.wait()
            folder = str(Path(temporary) / "store")
            readers = [
                spawning.Process(target=follow, args=(folder, given.pause, ends, results)) for _ in range(READERS)
            ]
        for reader in readers:
            reader.start()
        for supervisor in supervisors:
            supervisor.join()
        reports = [results.get() for _ in readers]
    for report in reports:
        print("reader:", report)
    for supervisor in supervisors:
        counts = f"{supervisor.acknowledged:,} changes, {supervisor.n_kills} kills, {supervisor.n_swaps} swaps,"
        print(f"{supervisor.kind}: {counts}", end=" ")
        print(*supervisor.errors or ["no error"], sep="; ")
    sys.exit(any(supervisor.errors for supervisor in supervisors) or any("ERROR" in report for report in reports))


if __name__ == "__main__":
    main()
