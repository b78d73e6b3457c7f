"""Load damaged and forged files in supervised processes.

Every file must load as an object whose trees pass ``check_invariants``, or raise ``FileFormatError``: within 5 seconds,
with at most 4 times the file size plus one mebibyte of memory, and without a crash, even when the object is used. Files
that fail are kept in ``tests/corpus/load``, and the tests load them from then on.

    python tests/scripts/fuzz_load.py 20000
    python tests/scripts/fuzz_load.py 1000000 --seed 7 --jobs 8

With ``NUMBA_BOUNDSCHECK=1``, and a ``NUMBA_CACHE_DIR`` of its own, kernels report every access out of bounds.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1]
CORPUS = TESTS / "corpus/load"

sys.path.append(str(TESTS / "helpers"))

SECONDS = 5.0
_PATIENCE = 60.0  # seconds until a process counts as hanging, even on a busy machine
TIMES_THE_FILE = 4
SPARE_BYTES = 1 << 20
_MOST_ADDRESSES = 16 << 30  # more than libraries use; the memory limit itself is measured


def try_file(path: Path, *, limited: bool = True) -> str:
    """Load a file and use its object; return ``"loaded"`` or ``"refused"``, or raise AssertionError."""
    from saved import FileFormatError, check, load_any

    tracemalloc.start()
    try:
        started = time.process_time()
        loaded = load_any(path)
    except FileFormatError:
        loaded = None
    finally:
        seconds = time.process_time() - started  # CPU time, since other processes may use the machine
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    size = path.stat().st_size
    assert not limited or seconds < SECONDS, f"took {seconds:.1f} s"
    assert not limited or most <= TIMES_THE_FILE * size + SPARE_BYTES, (
        f"took {most} bytes of memory for {size} of the file"
    )
    if loaded is None:
        return "refused"
    check(loaded)
    return "loaded"


def mutation(seed: int, number: int, files: list[bytes]) -> bytes:
    """Return the file with this number."""
    from mutations import mutated

    return mutated(np.random.default_rng([seed, number]), files)


def _work(connection: Any, folder: str, files: list[bytes], seed: int) -> None:
    """Try the files whose numbers arrive, and send the result of each."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = Path(folder) / f"{multiprocessing.current_process().pid}.cmt"
    for file in files:  # compiles or loads all kernels before anything is timed
        path.write_bytes(file)
        assert try_file(path, limited=False) == "loaded"
    connection.send("ready")
    while True:
        number = connection.recv()
        if number is None:
            return
        path.write_bytes(mutation(seed, number, files))
        try:
            outcome = try_file(path)
        except BaseException as error:
            outcome = f"failed: {type(error).__name__}: {error}"
        connection.send(outcome)


class _Watched:
    """A process that tries files. It is replaced when it crashes or hangs."""

    def __init__(self, folder: str, files: list[bytes], seed: int) -> None:
        self._arguments = folder, files, seed
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        assert self._connection.recv() == "ready"

    def outcome(self, number: int) -> str:
        """Return the result of the file with this number."""
        self._connection.send(number)
        try:
            if self._connection.poll(_PATIENCE):
                return str(self._connection.recv())
            failure = "failed: it hangs"
        except EOFError:
            self._process.join()
            failure = f"failed: it crashes, exit code {self._process.exitcode}"
        self._process.kill()
        self._process.join()
        self._start()
        return failure

    def stop(self) -> None:
        self._connection.send(None)
        self._process.join()


def outcomes(numbers: range, seed: int, n_jobs: int, files: list[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the results of the files with these numbers, in any order."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_jobs) as pool:
        watched = list(pool.map(lambda _: _Watched(folder, files, seed), range(n_jobs)))
        try:
            for first in range(numbers.start, numbers.stop, 1000):
                part = range(first, min(first + 1000, numbers.stop))

                def share(i: int, part: range = part) -> list[tuple[int, str]]:
                    return [(number, watched[i].outcome(number)) for number in part[i::n_jobs]]

                for found in pool.map(share, range(n_jobs)):
                    yield from found
        finally:
            for one in watched:
                one.stop()


def sound_files() -> list[bytes]:
    """Return valid files of objects of all kinds."""
    from saved import objects

    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.cmt"
        for thing in objects().values():
            thing.save(path)
            files.append(path.read_bytes())
    return files


def main() -> int:
    """Run the command line; return the number of files that failed."""
    parser = argparse.ArgumentParser(description="Load corrupted files.")
    parser.add_argument("number", type=int, help="number of files")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    given = parser.parse_args()
    files, counts, started = sound_files(), Counter[str](), time.perf_counter()
    numbers = range(given.first, given.first + given.number)
    for number, outcome in outcomes(numbers, given.seed, given.jobs, files):
        counts[outcome.split(":")[0]] += 1
        if outcome.startswith("failed"):
            CORPUS.mkdir(parents=True, exist_ok=True)
            (CORPUS / f"{given.seed}-{number}.cmt").write_bytes(mutation(given.seed, number, files))
            print(f"{number}: {outcome}", flush=True)
    seconds = time.perf_counter() - started
    print(f"{counts['loaded']} loaded, {counts['refused']} refused, {counts['failed']} failed in {seconds:.0f} s")
    return min(counts["failed"], 1)


if __name__ == "__main__":
    sys.exit(main())
