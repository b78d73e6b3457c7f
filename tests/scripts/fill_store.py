"""Change a store on a disk that is full at times, and see what is there after each change.

Give an empty folder on a small file system of its own. A file beside the store leaves it a random rest of the disk, and
makes room again. A change must be made, or fail with a ``JournalError`` that says that the disk is full and leave keys,
payloads and vectors as they were; the store must go on, and open again, with what all changes that were made give.

    mount -t tmpfs -o size=3m tmpfs small
    python tests/scripts/fill_store.py small 300 --keep codes --links 4
"""

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from kill_store import change, contents, equal, new_store

from cmt_numba import MemoryStore
from cmt_numba._engine.options import KEEP
from cmt_numba.journal import JournalError

_MOST_LEFT = 150_000  # bytes of the disk
_BYTES = 0, 20_000  # of the journal, above which a snapshot replaces it


class Disk:
    """A small file system."""

    def __init__(self, folder: Path, random: np.random.Generator) -> None:
        self._folder, self._filler, self._random = folder, folder / "filler", random

    def fill(self) -> None:
        """Leave a random rest."""
        found = os.statvfs(self._folder)
        n_bytes = found.f_bavail * found.f_frsize - int(self._random.integers(_MOST_LEFT))
        with self._filler.open("ab") as file:
            file.write(bytes(max(0, n_bytes)))

    def empty(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)


def check_reason(error: Exception) -> None:
    """Raise an error again unless it says that the disk is full."""
    if not any(word in str(error) for word in ("full", "space")):
        raise error


def open_again(folder: Path, disk: Disk, n_bytes: int, options: dict[str, Any]) -> MemoryStore:
    """Open a store, after making room if it needs some."""
    try:
        return new_store(folder, n_bytes=n_bytes, **options)
    except (JournalError, OSError) as error:
        check_reason(error)
        disk.empty()
        return new_store(folder, n_bytes=n_bytes, **options)


def fill_while_changing(folder: Path, n: int, seed: int, options: dict[str, Any]) -> int:
    """Make changes while the disk is full at times; return how many have failed."""
    random = np.random.default_rng(seed)
    disk = Disk(folder, random)
    store, reference = open_again(folder / "store", disk, 0, options), new_store(None, **options)
    number = n_failed = 0
    while number + n_failed < n:
        draw = random.random()
        if draw < 0.5:
            disk.fill()
        elif draw < 0.9:
            disk.empty()
        try:
            change(store, number)
        except JournalError as error:
            check_reason(error)
            n_failed += 1
        else:
            change(reference, number)
            number += 1
        assert equal(contents(store), contents(reference)), f"after {number} changes there are other memories"
        if random.random() < 0.1:
            store.close()
            store = open_again(folder / "store", disk, int(random.choice(_BYTES)), options)
            assert equal(contents(store), contents(reference)), f"after {number} changes it opens with others"
    disk.empty()
    store.close()
    return n_failed


def main() -> int:
    """Run the command line; an assertion fails if anything was lost, or made though it was said to have failed."""
    parser = argparse.ArgumentParser(description="Change a store on a disk that is full at times.")
    parser.add_argument("folder", type=Path, help="an empty folder on a small file system")
    parser.add_argument("number", type=int, help="how many changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", choices=KEEP, default="all")
    parser.add_argument("--links", type=int, default=24)
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # no snapshot could be taken
    n_failed = fill_while_changing(given.folder, given.number, given.seed, {"keep": given.keep, "n_links": given.links})
    print(f"{given.number} changes, {n_failed} failed; nothing lost, and the others were made")
    return 0


if __name__ == "__main__":
    sys.exit(main())
