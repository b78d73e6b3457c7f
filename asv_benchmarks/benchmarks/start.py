"""What a new process waits for: imports, and the first calls with and without compiled kernels on disk."""

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


class Start:
    """Times of new processes."""

    def setup_cache(self) -> None:
        """Have the kernels compiled."""
        subprocess.run([sys.executable, "-c", _FIRST_CALLS], check=True)

    def timeraw_import_of_dependencies(self) -> str:
        """Import what the package needs, without the package."""
        return "import numba, numpy, scipy.sparse"

    def timeraw_import(self) -> str:
        """Import the package."""
        return "import cmt_numba"

    def timeraw_first_calls(self) -> str:
        """Import, insert and query."""
        return _FIRST_CALLS


class Compile:
    """Compilation of what a first insert and query need."""

    def track_cold_start(self) -> float:
        """Return how long a process takes to import, insert and query with an empty cache."""
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            subprocess.run([sys.executable, "-c", _FIRST_CALLS], check=True, env=environment)
            return time.perf_counter() - start

    track_cold_start.unit = "seconds"  # type: ignore[attr-defined]
    track_cold_start.timeout = 300  # type: ignore[attr-defined]
