"""Compare the benchmarks of two versions of the package in turns, so that noise affects both equally.

::

    python asv_benchmarks/compare_versions.py HEAD~3                      # with the working tree
    python asv_benchmarks/compare_versions.py v1.0 HEAD --bench 'Insert|Estimator' --rounds 9
    python asv_benchmarks/compare_versions.py HEAD --bench 'time_insert.dense, 10000' --clock cpu
    python asv_benchmarks/compare_versions.py HEAD HEAD --wheel --most 1.15   # the machine code of wheels

Each version runs the benchmarks of this checkout (``benchmarks/``) in a process of its own, with its own package. For
each case the processes take turns, and each result is the minimum over all rounds. Prints both results and their ratio.
A time or memory that is more than ``--most`` times as high is marked, and then the exit status is 1. The benchmarks
``time_*``, ``peakmem_*`` and ``track_*`` are run. Results of ``track_*`` do not affect the exit status, but are marked
if they differ. Each memory peak is that of a separate process, setup included.

A version is a commit, or a folder with a checkout. Commits are checked out to a temporary folder, and every version has
its own cache of compiled kernels. The script names and skips benchmarks that a version cannot run, for example because
it lacks a private function.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import math
import os
import pickle
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("time_", "peakmem_", "track_")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
_SHORTEST = 0.05  # seconds; shorter calls are repeated until they take this long, unless they must run once
_MOST_REPEATED = 1000


class Case(NamedTuple):
    """A benchmark with some of its parameters."""

    module: str
    a_class: str
    method: str
    choice: int  # index of the combination of parameters
    label: str


def cases_of(module: str, found: Any) -> Iterator[Case]:
    """Yield the cases of the classes of a module."""
    for class_name, a_class in inspect.getmembers(found, inspect.isclass):
        methods = [name for name in dir(a_class) if name.startswith(KINDS)]
        if a_class.__module__ == found.__name__:
            for method, (i, values) in itertools.product(methods, enumerate(choices_of(a_class))):
                label = f"{module}.{class_name}.{method}({', '.join(map(str, values))})"
                yield Case(module, class_name, method, i, label)


def choices_of(a_class: Any) -> list[tuple[Any, ...]]:
    """Return the combinations of parameters of a class of benchmarks. A single parameter need not be in a tuple."""
    axes = getattr(a_class, "params", ())
    if axes and not isinstance(axes[0], (tuple, list)):
        axes = (axes,)
    return list(itertools.product(*axes))


class Worker:
    """Runs cases on request, in a process with one version of the package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._failed: dict[Path, Exception] = {}  # so that a slow setup that failed is not repeated for each case

    def _class_of(self, case: Case) -> Any:
        return getattr(importlib.import_module(f"{self._package}.{case.module}"), case.a_class)

    def list(self, modules: list[str]) -> dict[str, Any]:
        """Return the cases of some modules, and the modules that cannot be imported with the reasons."""
        cases: list[Case] = []
        missing = {}
        for module in modules:
            try:
                cases += cases_of(module, importlib.import_module(f"{self._package}.{module}"))
            except Exception as error:
                missing[module] = f"{type(error).__name__}: {error}"
        return {"cases": cases, "missing": missing}

    def _shared(self, a_class: Any) -> tuple[Any, ...]:
        """Return what ``setup_cache`` prepares for the benchmarks of a class, kept in the current folder."""
        make = getattr(a_class, "setup_cache", None)
        if make is None:
            return ()
        kept = Path(f"{make.__module__}.{make.__qualname__}.shared")
        if kept in self._failed:
            raise self._failed[kept]
        if not kept.exists():
            try:
                made = make(a_class())
            except Exception as error:
                self._failed[kept] = error
                raise
            kept.write_bytes(pickle.dumps(() if made is None else (made,)))
        shared: tuple[Any, ...] = pickle.loads(kept.read_bytes())
        return shared

    @contextlib.contextmanager
    def _ready(self, case: Case) -> Iterator[Callable[[], Any]]:
        """Set up a case for the duration of the block."""
        a_class = self._class_of(case)
        arguments = (*self._shared(a_class), *choices_of(a_class)[case.choice])
        benchmark = a_class()
        getattr(benchmark, "setup", lambda *_: None)(*arguments)
        try:
            yield lambda: getattr(benchmark, case.method)(*arguments)
        finally:
            getattr(benchmark, "teardown", lambda *_: None)(*arguments)

    def count(self, case: Case, clock: str) -> int:
        """Return the number of repetitions for one measurement of a case, after one call that compiles its kernels."""
        fixed: int = getattr(self._class_of(case), "number", 0)
        with self._ready(case) as call:
            call()
            if fixed:
                return fixed
            start = CLOCKS[clock]()
            call()
            taken = CLOCKS[clock]() - start
        return min(_MOST_REPEATED, math.ceil(_SHORTEST / max(taken, _SHORTEST / _MOST_REPEATED)))

    def time(self, case: Case, clock: str, n: int) -> float:
        """Return the seconds per call, from ``n`` calls after a fresh setup."""
        with self._ready(case) as call:
            start = CLOCKS[clock]()
            for _ in range(n):
                call()
            return (CLOCKS[clock]() - start) / n

    def peakmem(self, case: Case) -> float:
        """Return the peak memory of the process in bytes, after a call."""
        with self._ready(case) as call:
            call()
        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)

    def track(self, case: Case) -> float:
        """Return the value that a ``track_`` benchmark returns."""
        with self._ready(case) as call:
            return float(call())

    def serve(self) -> None:
        """Answer requests, one line of JSON each, until the input ends. Benchmarks print to another stream."""
        with os.fdopen(os.dup(1), "w") as answers:
            os.dup2(2, 1)
            for line in sys.stdin:
                name, *arguments = json.loads(line)
                if name != "list":
                    arguments[0] = Case(*arguments[0])
                try:
                    answer = {"value": getattr(self, name)(*arguments)}
                except NotImplementedError:
                    answer = {"skipped": "has no such parameters"}
                except Exception as error:
                    answer = {"skipped": f"{type(error).__name__}: {error}"}
                print(json.dumps(answer), file=answers, flush=True)


class CannotRunError(Exception):
    """A version cannot run a case."""


class Version:
    """A version of the package, and the process that runs it."""

    def __init__(self, name: str, checkout: Path, folder: Path, benchmarks: Path, **settings: str) -> None:
        self.name = name
        self._command = [sys.executable, str(Path(__file__).resolve()), "--worker", benchmarks.name]
        temporary = folder / "temporary"  # where the benchmarks keep compiled kernels
        temporary.mkdir(parents=True)
        paths = (str(checkout), str(benchmarks.parent))
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary), **settings}
        self._environment["NUMBA_CACHE_DIR"] = str(temporary)
        self._folder = folder
        self._process = self._start()

    def _start(self) -> Any:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, text=True, cwd=self._folder, env=self._environment
        )

    def ask(self, *request: Any) -> Any:
        """Return the answer of the process. Raises CannotRunError if it fails, RuntimeError if the process ended."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.name} ended at {request}: see what it has written above")
        found = json.loads(answer)
        if "skipped" in found:
            raise CannotRunError(found["skipped"])
        return found["value"]

    def peakmem(self, case: Case) -> Any:
        """Return the memory peak of a case, in a process that does nothing else."""
        usual, self._process = self._process, self._start()
        try:
            return self.ask("peakmem", case)
        finally:
            self.close()
            self._process = usual

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def figures_of(case: Case, versions: list[Version], n_rounds: int, clock: str) -> list[float]:
    """Return the result of each version. Raises CannotRunError with the name of a version that cannot run the case."""

    def asked(version: Version, *request: Any) -> Any:
        try:
            return version.peakmem(case) if request[0] == "peakmem" else version.ask(*request)
        except CannotRunError as reason:
            raise CannotRunError(f"{version.name}: {reason}") from None

    if not case.method.startswith("time_"):
        name = case.method.split("_")[0]
        return [asked(version, name, case) for version in versions]
    n = max(asked(version, "count", case, clock) for version in versions)
    rounds = [[asked(version, "time", case, clock, n) for version in versions] for _ in range(n_rounds)]
    return [min(figures) for figures in zip(*rounds, strict=True)]


def judge(case: Case, before: float, after: float, most: float) -> str:
    """Return the mark of a case, or an empty string."""
    if case.method.startswith("track_"):
        return "" if before == after else "differs"
    return "higher" if after > most * before else ""


def compare(versions: list[Version], options: argparse.Namespace) -> int:
    """Print the results of all selected cases; return how many are above the limit."""
    modules = sorted(path.stem for path in options.benchmarks.glob("[!_]*.py"))
    listed = [version.ask("list", modules) for version in versions]
    for version, found in zip(versions, listed, strict=True):
        for module, reason in found["missing"].items():
            print(f"left out: {module} ({version.name}: {reason})")
    common = {tuple(case) for case in listed[0]["cases"]} & {tuple(case) for case in listed[1]["cases"]}
    cases = [Case(*case) for case in listed[1]["cases"] if tuple(case) in common]
    chosen = [case for case in cases if re.search(options.bench, case.label)]
    n_higher = 0
    print(
        f"{versions[0].name:>12s}{versions[1].name:>14s}{'ratio':>8s}  seconds ({options.clock}), bytes, or as tracked"
    )
    for case in chosen:
        try:
            before, after = figures_of(case, versions, options.rounds, options.clock)
        except CannotRunError as reason:
            print(f"{'left out':>34s}  {case.label} ({reason})", flush=True)
            continue
        ratio, mark = after / before if before else math.nan, judge(case, before, after, options.most)
        n_higher += mark == "higher"
        print(f"{before:12.5g}{after:14.5g}{ratio:8.3f}  {case.label}{' ' * bool(mark)}{mark.upper()}", flush=True)
    return n_higher


@contextlib.contextmanager
def checked_out(version: str, folder: Path) -> Iterator[Path]:
    """Yield the folder of a version: the given folder, or a temporary checkout of the given commit."""
    if Path(version).is_dir():
        yield Path(version).resolve()
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), version], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Compare the benchmarks of two versions, in turns.")
    parser.add_argument("before", help="commit, or folder with a checkout")
    parser.add_argument("after", nargs="?", default=str(ROOT), help="commit or folder; default: the working tree")
    parser.add_argument(
        "--bench", default="", help="run only cases that match this regular expression, such as 'Insert.time_'"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the minimum counts")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: CPU time of all threads, less noisy")
    parser.add_argument("--most", type=float, default=1.03, help="mark higher ratios than this")
    parser.add_argument(
        "--benchmarks", type=Path, default=ROOT / "asv_benchmarks" / "benchmarks", help="folder of benchmarks"
    )
    parser.add_argument("--wheel", action="store_true", help="compile AFTER like the wheels with compiled kernels")
    options = parser.parse_args()
    settings = runpy.run_path(str(ROOT / ".ci" / "build_wheel.py"))["compiler_settings"]() if options.wheel else {}
    options.benchmarks = options.benchmarks.resolve()
    names = [Path(name).name if Path(name).is_dir() else name for name in (options.before, options.after)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        versions = []
        for role, version, name in zip(("before", "after"), (options.before, options.after), names, strict=True):
            checkout = stack.enter_context(checked_out(version, folder / f"{role} checkout"))
            own = settings if role == "after" else {}
            versions.append(Version(name[:12], checkout, folder / role, options.benchmarks, **own))
            stack.callback(versions[-1].close)
        n_higher = compare(versions, options)
    if n_higher:
        print(f"{n_higher} cases are more than {options.most} times as high")
    return int(n_higher > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.path.pop(0)  # the folder of this script
        Worker(sys.argv[2]).serve()
    else:
        sys.exit(main())
