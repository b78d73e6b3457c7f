"""Measure what it takes to start: to import the package, and to insert and query for the first time.

::

    python asv_benchmarks/measure_start.py

Every run is a new process. "Warm" finds compiled kernels in numba's cache on disk, "cold" an empty cache.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

IMPORT_DEPENDENCIES = "import numba, numpy, scipy.sparse"
IMPORT_PACKAGE = "import cmt_numba"
FIRST_CALLS = """
X = numpy.random.default_rng(0).normal(size=(100, 16))
tree = cmt_numba.ContextualMemoryTree(random_state=0)
tree.insert(X)
tree.query(X)
"""


def seconds(timed: str, cache: str, before: str = "pass") -> float:
    """Return how long a new process takes for a piece of code, after another one."""
    program = f"import time\n{before}\nstart = time.perf_counter()\n{timed}\nprint(time.perf_counter() - start)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment, text=True)
    return float(run.stdout)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what it takes to start.")
    parser.add_argument("--repeats", type=int, default=7, help="medians of so many runs, interleaved")
    options = parser.parse_args()

    before = f"import numpy\n{IMPORT_PACKAGE}"
    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(FIRST_CALLS, cache, before)
        times = [
            (seconds(IMPORT_DEPENDENCIES, cache), seconds(IMPORT_PACKAGE, cache), seconds(FIRST_CALLS, cache, before))
            for _ in range(options.repeats)
        ]
    dependencies, package, warm = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"import of the dependencies:          {dependencies:6.2f} s")
    print(f"import of cmt_numba:                 {package:6.2f} s, {package / dependencies:.2f} of the dependencies'")
    print(f"first insert and query, warm cache:  {warm:6.2f} s, {warm / package:.2f} of the import")
    print(f"first insert and query, cold cache:  {cold:6.2f} s")


if __name__ == "__main__":
    main()
