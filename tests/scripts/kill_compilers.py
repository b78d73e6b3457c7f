"""Fill a cold cache of kernels from eight processes, kill half of them, and check the signature of each file.

Each process calls small kernels with several types in random order. Afterwards, every entry of every index must name
machine code of its own signature, and a new process must get the right results from the cache. POSIX only.

    python tests/scripts/kill_compilers.py 20
"""

import argparse
import importlib.util
import logging
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
from numba import config

import cmt_numba  # noqa: F401 - imported once, before the forks

N_PROCESSES = 8
_LONGEST_LIFE = 6.0  # seconds until a process is killed; eight processes on two cores compile for about ten
_TYPES = [np.int16, np.int32, np.int64, np.float32, np.float64]
_SOURCE = "from cmt_numba._jit import kernel\n" + "\n".join(
    f"@kernel\ndef add_{n}(values):\n    total = values[0]\n    for i in range(1, values.size):\n"
    f"        total += values[i]\n    return total / 4 + {n}\n"
    for n in range(3)
)


def load_module(folder: Path) -> ModuleType:
    """Import the kernels anew, without machine code."""
    spec = importlib.util.spec_from_file_location("kernels", folder / "kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["kernels"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_all(folder: Path, seed: int) -> None:
    """Call all kernels with all types in random order, and check the results."""
    module = load_module(folder)
    cases = [(n, dtype) for n in range(3) for dtype in _TYPES]
    for i in np.random.default_rng(seed).permutation(len(cases)):
        n, dtype = cases[i]
        assert getattr(module, f"add_{n}")(np.array([1.5, 2.5], dtype)) == dtype(1.5) / 4 + dtype(2.5) / 4 + n


def start(work: Callable[[], None]) -> int:
    """Return the id of a forked process that does the work."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return process


def count_entries(cache: Path) -> tuple[int, int]:
    """Return the number of entries with a file, and of those whose file has another signature."""
    n = n_wrong = 0
    for index in cache.rglob("*.nbi"):
        with index.open("rb") as file:
            pickle.load(file)  # the version of Numba
            _, entries = pickle.loads(file.read())
        for key, name in entries.items():
            parts = pickle.loads((index.parent / name).read_bytes())
            [signature] = [part for part in parts if type(part).__name__ == "Signature"]
            n += 1
            n_wrong += tuple(signature.args) != tuple(key[0])
    return n, n_wrong


def main(n_rounds: int, seed: int) -> None:
    """Fill and check ``n_rounds`` caches."""
    logging.getLogger("cmt_numba").setLevel(logging.ERROR)  # of slow compilation
    random = np.random.default_rng(seed)
    n_entries = n_wrong = n_killed = 0
    for r in range(n_rounds):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "kernels.py").write_text(_SOURCE)
            config.CACHE_DIR = str(folder / "cache")  # type: ignore[attr-defined]
            seeds = [N_PROCESSES * r + i for i in range(N_PROCESSES)]
            began = time.monotonic()
            processes = [start(partial(call_all, folder, seed)) for seed in seeds]
            for process, end in zip(processes[::2], sorted(random.uniform(0.0, _LONGEST_LIFE, 4)), strict=True):
                time.sleep(max(0.0, began + end - time.monotonic()))
                os.kill(process, signal.SIGKILL)
            statuses = [os.waitpid(process, 0)[1] for process in processes]
            assert all(os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL) for status in statuses), statuses
            n_killed += sum(map(os.WIFSIGNALED, statuses))
            checked = start(partial(call_all, folder, 0))
            assert os.waitpid(checked, 0)[1] == 0, "a process got a wrong result from the cache"
            load_module(folder)
            found = count_entries(folder / "cache")
            assert found[0] == 3 * len(_TYPES), "the cache is not complete"
            n_entries, n_wrong = n_entries + found[0], n_wrong + found[1]
    print(f"{n_rounds} caches, {n_killed} processes killed, {n_entries} entries, {n_wrong} of another signature")
    assert n_wrong == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.seed)
