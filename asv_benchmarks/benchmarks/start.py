"""Start-up time of a new process: imports, and the first calls with and without compiled kernels on disk."""

import os
import subprocess
import sys
import tempfile
import time

_FIRST_CALLS = """
import numpy, cmt_numba
X = numpy.random.default_rng(0).normal(size=(100, 16))
tree = cmt_numba.ContextualMemoryTree(random_state=0)
tree.insert(X)
tree.query(X)
"""

_FIRST_FIT = """
import numpy, cmt_numba
X = numpy.random.default_rng(0).normal(size=(100, 16))
cmt_numba.CMTClassifier(random_state=0).fit(X, numpy.arange(100) % 10).predict(X)
"""

_FIRST_MULTILABEL = """
import numpy, cmt_numba
X = numpy.random.default_rng(0).normal(size=(100, 16))
cmt_numba.CMTMultilabelClassifier(random_state=0).fit(X, numpy.arange(1000).reshape(100, 10) % 7 < 2).predict(X)
"""

_FIRST_VALUES = """
import numpy, cmt_numba
X = numpy.random.default_rng(0).normal(size=(100, 16))
cmt_numba.CMTRetriever(random_state=0).fit(X, X[:, :4]).predict(X)
"""

_FIRST_STORE = """
import numpy, cmt_numba
X = numpy.random.default_rng(0).normal(size=(100, 16))
store = cmt_numba.MemoryStore(random_state=0)
store.add(numpy.arange(100), X)
store.query(X)
"""

_FIRST_TEXTS = """
from cmt_numba.text import TextClassifier
TextClassifier(random_state=0).fit(["turn on", "turn off"] * 5, ["on", "off"] * 5).predict(["switch on"])
"""

_PROGRAMS = {
    "insert and query": _FIRST_CALLS,
    "classifier": _FIRST_FIT,
    "multilabel": _FIRST_MULTILABEL,
    "retriever": _FIRST_VALUES,
    "store": _FIRST_STORE,
    "text classifier": _FIRST_TEXTS,
}


class Start:
    """Times of new processes that find compiled kernels on disk."""

    def setup_cache(self) -> None:
        """Compile the kernels."""
        for calls in (_FIRST_CALLS, _FIRST_FIT):
            subprocess.run([sys.executable, "-c", calls], check=True)

    def timeraw_import_of_dependencies(self) -> str:
        """Import the dependencies of the package, without the package."""
        return "import numba, numpy, scipy.sparse"

    def timeraw_import(self) -> str:
        """Import the package."""
        return "import cmt_numba"

    def timeraw_first_calls(self) -> str:
        """Import, insert and query."""
        return _FIRST_CALLS

    def timeraw_first_fit(self) -> str:
        """Import, fit a classifier and predict."""
        return _FIRST_FIT


class Compile:
    """Time to compile the kernels of a process's first calls. ``Start`` measures the same calls with a warm cache."""

    params = (list(_PROGRAMS),)
    param_names = ("calls",)
    timeout = 600

    def track_cold_start(self, calls: str) -> float:
        """Return the seconds that a process with an empty cache takes to import the package and make the calls."""
        program = _PROGRAMS[calls]
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            return time.perf_counter() - start

    track_cold_start.unit = "seconds"  # type: ignore[attr-defined]
