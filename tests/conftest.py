"""Shared by all tests: Numba's cache, hypothesis profiles, and small sets of keys."""

import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Libraries of linear algebra read these when they are first imported. The suite runs in as many processes as there are
# cores: further threads would only wait for each other.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import scipy.sparse  # noqa: E402
from hypothesis import settings  # noqa: E402

# Keep temporary files in memory, because durable objects wait for the disk thousands of times.
_IN_MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > 4 << 30:
    tempfile.tempdir = _IN_MEMORY

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests/corpus"

collect_ignore = ["scripts/fuzz_coverage.py"]  # needs Atheris, which tests do not

EVERY_LEAF = 10**6
"""More leaves than any tree of the tests has: a search of this many leaves is exact."""


# Numba reads the variable when it is first imported: nothing above may import it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba_cache"))

import numba  # noqa: E402

# A shell without job control has the jobs that it starts in the background ignore interrupts, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are compiled. As plain Python, they take some hundred times longer."""

needs_jit = pytest.mark.skipif(not COMPILED, reason="takes too long without compiled kernels")

FORM_OF: dict[str, Callable[[Any], Any]] = {"dense": np.asarray, "sparse": scipy.sparse.csr_array}
FORMS = pytest.mark.parametrize("form", FORM_OF.values(), ids=FORM_OF)

# The first example of a test may compile kernels, which no deadline allows for.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile kernels once before several processes run the whole suite, each of which would compile them itself."""
    config = session.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.collectonly
    if whole and getattr(config.option, "numprocesses", None) and not numba.config.DISABLE_JIT:
        from cmt_numba import warmup

        warmup(n_jobs=config.option.numprocesses, progress=True)


def load_script(path: str) -> ModuleType:
    """Import a script that belongs to no package, named as seen from the project's root.

    Its folder stays on the path, as when it is run: it may have modules of its own. What it sets in the environment is
    for processes that only run it.
    """
    environment = dict(os.environ)
    if str((ROOT / path).parent) not in sys.path:
        sys.path.append(str((ROOT / path).parent))
    specification = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return module


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Take what there is out of sight of the garbage collector, which would visit all compiled code each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190610)


@pytest.fixture(scope="session")
def dense_keys() -> np.ndarray:
    """Return 300 distinct dense keys of 8 features."""
    keys = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    keys.flags.writeable = False
    return keys


@pytest.fixture(scope="session")
def sparse_keys() -> scipy.sparse.csr_array:
    """Return 300 sparse keys of 500 features, some 15 of them present, common ones more often."""
    return text_like(300, 500, 15, seed=2)


@pytest.fixture(params=["dense", "sparse"])
def keys(request: pytest.FixtureRequest, dense_keys: np.ndarray, sparse_keys: Any) -> Any:
    """Return the dense keys, then the sparse keys."""
    return dense_keys if request.param == "dense" else sparse_keys


@pytest.fixture(scope="session")
def things() -> dict[str, Any]:
    """Return a small object of each kind that can be saved. Tests leave them as they are."""
    from saved import objects

    return objects()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return data files of all formats by their names."""
    from data_files import write_all

    return write_all(tmp_path_factory.mktemp("files"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that does not exist yet."""
    return tmp_path / "tree"


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., Any]]:
    """Give a function that opens a folder of a durable tree; trees still open in the end are closed."""
    from cmt_numba import ContextualMemoryTree

    trees: list[Any] = []

    def open_it(path: Path = folder, **options: Any) -> Any:
        trees.append(ContextualMemoryTree.open(path, **options))
        return trees[-1]

    yield open_it
    for tree in trees:
        tree.close()


def text_like(n: int, n_features: int, n_words: int, seed: int) -> scipy.sparse.csr_array:
    """Return sparse rows whose features are as unequally common as words are."""
    rng = np.random.default_rng(seed)
    common = 1.0 / np.arange(1, n_features + 1)
    features = rng.choice(n_features, size=(n, n_words), p=common / common.sum())
    rarity = np.log(1.0 / common) + 1.0
    rows = np.repeat(np.arange(n), n_words)
    keys = scipy.sparse.csr_array(
        (rarity[features.reshape(-1)], (rows, features.reshape(-1))), shape=(n, n_features), dtype=np.float32
    )
    keys.sum_duplicates()
    return keys
