"""Measure how long an evaluation takes in one process and as tasks of Ray, and check that both give the same numbers.

::

    python asv_benchmarks/measure_evaluation.py
    python asv_benchmarks/measure_evaluation.py --seeds 10 --settings 0.3 1 3 --processes 8

Four settings of a classifier, each with three seeds, on synthetic examples. Prints the wall time of both, after a first
run that compiles and starts the processes. Needs tabulate and the extra ``ray``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them: a task of Ray has one thread, too

import argparse
import time
from collections.abc import Callable
from typing import Any

from labelled_sets import synthetic
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.distributed import evaluate, start
from cmt_numba.evaluation import BatchResult, batch_evaluation


def timed(work: Callable[[], dict[str, BatchResult]]) -> tuple[dict[str, BatchResult], float]:
    """Return what is evaluated, and the seconds that it takes."""
    started = time.perf_counter()
    results = work()
    return results, time.perf_counter() - started


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure how long an evaluation takes in one process and on Ray.")
    parser.add_argument("--settings", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0], help="of aggressiveness")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    start(num_cpus=given.processes)
    data = synthetic(given.classes, given.shots)
    settings = {f"C {c:g}": CMTClassifier(aggressiveness=c) for c in given.settings}
    how: dict[str, Any] = {"seeds": range(given.seeds), "probes": ()}
    few = {name: settings[name] for name in list(settings)[:1]}
    evaluate(few, data.X, data.y, seeds=range(given.processes), probes=())
    batch_evaluation(few.popitem()[1], data.X[:1000], data.y[:1000], seeds=(0,), probes=())
    alone, seconds_alone = timed(
        lambda: {name: batch_evaluation(one, data.X, data.y, **how) for name, one in settings.items()}
    )
    on_ray, seconds_on_ray = timed(lambda: evaluate(settings, data.X, data.y, **how))
    rows = [[name, *alone[name].metrics["error"], on_ray[name].per_seed == alone[name].per_seed] for name in settings]
    print(tabulate(rows, ["setting", "error", "deviation", "same on Ray"], floatfmt=".4f"))
    print(f"{len(settings) * given.seeds} runs: {seconds_alone:.1f} s in one process, {seconds_on_ray:.1f} s on Ray")


if __name__ == "__main__":
    main()
