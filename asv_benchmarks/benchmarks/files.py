"""Save and load trees: time, memory and file sizes."""

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, make_data

SIZES = (10_000, 100_000)
_NEW = Path("new.cmt")


class WithFiles:
    """Base class of the benchmarks of saved files, which run in the folder that contains the files."""

    params = (FORMS, SIZES)
    param_names = ("form", "memories")

    def setup_cache(self) -> None:
        """Grow and save a tree of each kind."""
        for form, n in product(FORMS, SIZES):
            tree = ContextualMemoryTree(n_threads=1, random_state=0)
            tree.insert(make_data(form, n).keys)
            tree.save(_path(form, n))


class Save(WithFiles):
    """Save a tree."""

    def setup(self, form: str, n: int) -> None:
        """Load the tree to save."""
        self.tree = ContextualMemoryTree.load(_path(form, n))

    def time_save(self, form: str, n: int) -> None:
        """Save over an existing file."""
        self.tree.save(_NEW)

    def track_bytes_per_memory(self, form: str, n: int) -> float:
        """Return the bytes per memory of the file or folder."""
        path = _path(form, n)
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file()) / n

    track_bytes_per_memory.unit = "bytes"  # type: ignore[attr-defined]


class Load(WithFiles):
    """Load a tree in a process that has no other tree."""

    def setup(self, form: str, n: int) -> None:
        """Make a query and compile all kernels."""
        self.query = make_data(form, n).queries[:1]
        self.time_map_and_ask_one_row(form, n)

    def time_load(self, form: str, n: int) -> None:
        """Load everything into memory."""
        ContextualMemoryTree.load(_path(form, n))

    def time_map_and_ask_one_row(self, form: str, n: int) -> None:
        """Map the file and answer one query, which loads only the parts that it reads."""
        ContextualMemoryTree.load(_path(form, n), mmap=True).query(self.query)

    def peakmem_load(self, form: str, n: int) -> None:
        """Load everything into memory."""
        ContextualMemoryTree.load(_path(form, n))


class Journal:
    """Insert into a durable tree in a folder, and into a tree in memory."""

    params = ((1, 100, 10_000), ("journaled", "journaled, synced in the end", "plain"))
    param_names = ("rows", "tree")
    number = 1
    warmup_time = 0
    repeat = 3
    n_rows = 10_000

    def setup(self, n: int, kind: str) -> None:
        """Compile all kernels and make an empty tree."""
        self.keys = make_data("dense", self.n_rows).keys
        options: dict[str, Any] = {"n_threads": 1, "random_state": 0}
        ContextualMemoryTree(**options).insert(self.keys[:1000])
        if kind == "plain":
            self.tree = ContextualMemoryTree(**options)
            return
        self.folder = TemporaryDirectory(dir=".")
        sync_every = 1 if kind == "journaled" else 1_000_000
        self.tree = ContextualMemoryTree.open(Path(self.folder.name) / "tree", sync_every=sync_every, **options)

    def time_insert(self, n: int, kind: str) -> None:
        """Insert rows in batches: at most 10,000 rows and at most 1,000 batches."""
        for first in range(0, min(self.n_rows, 1000 * n), n):
            self.tree.insert(self.keys[first : first + n])
        if kind != "plain":
            self.tree.sync()

    def teardown(self, n: int, kind: str) -> None:
        """Delete the folder."""
        if kind != "plain":
            self.tree.close()
            self.folder.cleanup()


def _path(form: str, n: int) -> Path:
    return Path(f"{form}-{n}.cmt")
