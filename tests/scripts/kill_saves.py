"""Kill processes while they save, and check that the old or the new file is complete.

Each process saves two trees in turn to one path until it is killed (SIGKILL) at a random moment. The file at the path
must then equal one of the two, byte by byte, and load. POSIX only.

    python tests/scripts/kill_saves.py 10000
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cmt_numba import ContextualMemoryTree

_LONGEST_LIFE = 0.03  # seconds; enough for a few saves


def new_trees(n: int = 3000) -> list[ContextualMemoryTree]:
    """Return two trees of different sizes."""
    trees = []
    for i in (1, 2):
        trees.append(ContextualMemoryTree(random_state=i, n_threads=1))
        trees[-1].insert(np.random.default_rng(i).normal(size=(i * n, 32)))
    return trees


def kill_while_saving(path: Path, trees: list[ContextualMemoryTree], seconds: float) -> None:
    """Start a process that saves the trees in turn, and kill it after some time."""
    begun, begins = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(begins, b".")
        while True:
            for tree in trees:
                tree.save(path)
    os.read(begun, 1)
    os.close(begun)
    os.close(begins)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def kill_saves(n: int, seed: int, trees: list[ContextualMemoryTree]) -> tuple[int, int]:
    """Kill ``n`` processes; return the number of complete files, and of unfinished temporary files next to them."""
    random = np.random.default_rng(seed)
    n_whole = n_unfinished = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.cmt"
        sound = set()
        for tree in trees:
            tree.save(path)
            sound.add(path.read_bytes())
        for _ in range(n):
            kill_while_saving(path, trees, random.random() * _LONGEST_LIFE)
            if path.read_bytes() in sound:
                ContextualMemoryTree.load(path)
                n_whole += 1
            for unfinished in Path(folder).glob(".tree.cmt.*.part"):
                unfinished.unlink()
                n_unfinished += 1
        assert [entry.name for entry in Path(folder).iterdir()] == ["tree.cmt"]
    return n_whole, n_unfinished


def main() -> int:
    """Run the command line; return 1 if a file was lost."""
    parser = argparse.ArgumentParser(description="Kill processes while they save.")
    parser.add_argument("number", type=int, help="number of processes to kill")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    n_whole, n_unfinished = kill_saves(given.number, given.seed, new_trees())
    print(f"{given.number} killed, {n_unfinished} of them while writing; {n_whole} files whole")
    return int(n_whole < given.number)


if __name__ == "__main__":
    sys.exit(main())
