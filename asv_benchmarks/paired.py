"""Compare two versions by the benchmarks of airspeed velocity, in turn and by processor time, on a busy machine.

::

    git worktree add ../old v0.3.0
    python asv_benchmarks/paired.py compare ../old . --modules stores texts --repeats 5

Each version runs in a process of its own, from the sources in a folder. For each benchmark and parameters, both
processes take turns; the lowest time of each counts. Values that are tracked are computed once. A ratio below 1 means
that the second version is faster, smaller or more accurate; for recall and self-consistency, above 1.
"""

from shared.commands import Commands, argument

import contextlib
import importlib
import inspect
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

commands = Commands(__doc__)
HERE = Path(__file__).resolve().parent
MODULES = ("estimators", "files", "learning", "memories", "search", "stores", "texts")


def benchmarks_of(module: str, *, quick: bool) -> list[tuple[str, str, int]]:
    """Return the class and method of each benchmark of a time or a value, and the index of its parameters."""
    found = []
    for name, kind in inspect.getmembers(importlib.import_module(f"benchmarks.{module}"), inspect.isclass):
        methods = [method for method in dir(kind) if method.startswith(("time_", "track_"))]
        n_choices = 1 if quick else len(list(itertools.product(*_parameters(kind))))
        found += [(name, method, place) for place in range(n_choices) for method in methods]
    return found


def _parameters(kind: Any) -> Any:
    parameters = getattr(kind, "params", ())
    return parameters if not parameters or isinstance(parameters[0], list | tuple) else (parameters,)


@commands.add()
def serve(_: Any) -> None:
    """Run the benchmarks that standard input names, one per line, and print their results."""
    answers, sys.stdout = sys.stdout, sys.stderr
    caches: dict[Any, Any] = {}
    for line in sys.stdin:
        module, name, method, place = json.loads(line)
        result = None
        with contextlib.suppress(Exception):  # an earlier version may lack what is measured
            kind = getattr(importlib.import_module(f"benchmarks.{module}"), name)
            result = run(kind, method, place, caches)
        print(json.dumps(result), file=answers, flush=True)


def run(kind: Any, method: str, place: int, caches: dict[Any, Any]) -> float:
    """Return the processor time in seconds of one call, or the tracked value."""
    make_cache = getattr(kind, "setup_cache", None)
    if make_cache is not None and make_cache not in caches:
        caches[make_cache] = make_cache(kind())
    cached = caches.get(make_cache)
    choice = list(itertools.product(*_parameters(kind)))[place]
    parameters = choice if cached is None else (cached, *choice)
    ready = ("ready", kind, place)
    benchmark = caches.get(ready)
    if benchmark is None:
        benchmark = kind()
        if hasattr(benchmark, "setup"):
            benchmark.setup(*parameters)
        for key in [key for key in caches if isinstance(key, tuple)]:
            del caches[key]
        if getattr(kind, "number", 0) != 1:  # calls do not change what was set up
            caches[ready] = benchmark
    began = process_time()
    value = getattr(benchmark, method)(*parameters)
    seconds = process_time() - began
    if hasattr(benchmark, "teardown"):
        benchmark.teardown(*parameters)
    return seconds if value is None else float(value)


def started(folder: Path, scratch: Path) -> subprocess.Popen[str]:
    """Start the process of a version."""
    environment = {"PYTHONPATH": os.pathsep.join([str(folder.resolve()), str(HERE)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "paired.py"), "serve"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=scratch, env=os.environ | environment, **pipes)


def asked(process: subprocess.Popen[str], job: Any) -> float | None:
    """Return the result of a benchmark, or None if the version cannot do it."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(job), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


@commands.add(
    argument("folders", type=Path, nargs=2, help="the sources of two versions"),
    argument("--modules", nargs="+", choices=MODULES, default=MODULES),
    argument("--repeats", type=int, default=5),
    argument("--quick", action="store_true", help="use the first parameters of each benchmark only"),
)
def compare(given: Any) -> None:
    """Print a row for each benchmark: the mean of the ratios over its parameters, and their range."""
    sys.path.insert(0, str(HERE))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        processes = [
            started(folder, Path(scratch)) for folder, scratch in zip(given.folders, (first, second), strict=True)
        ]
        print("| benchmark | after / before |\n|---|---|", flush=True)
        for module in given.modules:
            ratios: dict[str, list[float]] = {}
            for name, method, place in benchmarks_of(module, quick=given.quick):
                n_times = given.repeats + 1 if method.startswith("time_") else 1  # the first call compiles
                turns = [
                    [asked(process, (module, name, method, place)) for process in processes] for _ in range(n_times)
                ]
                before, after = zip(*turns[1 - len(turns) :] if n_times > 1 else turns, strict=True)
                if None not in before and None not in after and min(before) > 0.0:
                    ratios.setdefault(f"{module}.{name}.{method}", []).append(min(after) / min(before))
            for benchmark, found in ratios.items():
                mean = statistics.geometric_mean(max(one, 1e-9) for one in found)
                span = f" ({min(found):.2f}-{max(found):.2f})" if len(found) > 1 else ""
                print(f"| {benchmark} | {mean:.2f}{span} |", flush=True)
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    commands.main()
