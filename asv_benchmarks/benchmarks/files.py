"""Trees in files: time to write and to read, memory, and how large the files are."""

import pickle
from itertools import product
from pathlib import Path

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, make_data
from .trees import WithTrees, read_grown

_SIZES = (10_000, 100_000)
_NEW = Path("new.cmt")


class Pickle(WithTrees):
    """Trees as pickles."""

    params = (FORMS, _SIZES)
    param_names = ("form", "memories")

    def setup(self, form: str, n: int) -> None:
        """Take a tree and pickle it once."""
        self.tree = read_grown(form, n).tree
        self.pickled = pickle.dumps(self.tree, pickle.HIGHEST_PROTOCOL)

    def time_dump(self, form: str, n: int) -> None:
        """Write."""
        pickle.dumps(self.tree, pickle.HIGHEST_PROTOCOL)

    def time_load(self, form: str, n: int) -> None:
        """Read."""
        pickle.loads(self.pickled)


class WithFiles:
    """What benchmarks of the package's own files have in common; they run in the folder that the files are in."""

    params = (FORMS, _SIZES)
    param_names = ("form", "memories")

    def setup_cache(self) -> None:
        """Grow and save a tree of each kind."""
        if not hasattr(ContextualMemoryTree, "save"):
            return
        for form, n in product(FORMS, _SIZES):
            tree = ContextualMemoryTree(n_threads=1, random_state=0)
            tree.insert(make_data(form, n).keys)
            tree.save(_path(form, n))

    def setup(self, form: str, n: int) -> None:
        """Pass over versions of the package that have no files."""
        if not hasattr(ContextualMemoryTree, "save"):
            raise NotImplementedError


class Save(WithFiles):
    """Save a tree."""

    def setup(self, form: str, n: int) -> None:
        """Load what is to be saved."""
        super().setup(form, n)
        self.tree = ContextualMemoryTree.load(_path(form, n))

    def time_save(self, form: str, n: int) -> None:
        """Write, over what was written before."""
        self.tree.save(_NEW)

    def track_bytes_per_memory(self, form: str, n: int) -> float:
        """Return what the file, or the folder, takes for each memory."""
        path = _path(form, n)
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file()) / n

    track_bytes_per_memory.unit = "bytes"  # type: ignore[attr-defined]


class Load(WithFiles):
    """Load a tree, in a process that has no other."""

    def setup(self, form: str, n: int) -> None:
        """Make a query, and have everything compiled."""
        super().setup(form, n)
        self.query = make_data(form, n).queries[:1]
        self.time_map_and_ask_one_row(form, n)

    def time_load(self, form: str, n: int) -> None:
        """Load everything into memory."""
        ContextualMemoryTree.load(_path(form, n))

    def time_map_and_ask_one_row(self, form: str, n: int) -> None:
        """Load only what a single query touches."""
        ContextualMemoryTree.load(_path(form, n), mmap=True).query(self.query)

    def peakmem_load(self, form: str, n: int) -> None:
        """Load everything into memory."""
        ContextualMemoryTree.load(_path(form, n))


def _path(form: str, n: int) -> Path:
    return Path(f"{form}-{n}.cmt")
