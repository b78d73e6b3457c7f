"""How much error and time depend on the constants of ``shared/tuned_constants.py``."""

from shared.commands import Commands, argument  # before libraries that read the number of threads

# isort: split
import argparse
import contextlib
import importlib
import json
import pkgutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.sensitivity_cases import CASES, NEED_DATA, SLOW
from shared.tuned_constants import CONSTANTS, Constant
from tabulate import tabulate

import cmt_numba

commands = Commands(__doc__)

SCRIPT = Path(__file__).parents[1] / "classifiers.py"
SEEDS = (0, 1)
FACTORS = (0.5, 2.0)


class Run(NamedTuple):
    """One value of one constant, or no change if there is no constant."""

    constant: Constant | None
    factor: float
    cases: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return a string that identifies the run."""
        return "as it is" if self.constant is None else f"{self.constant.module}.{self.constant.name} * {self.factor}"


def scaled(value: Any, factor: float) -> Any:
    """Return a multiple of a number, of the same type. Integers stay at least 1 and change if possible."""
    if isinstance(value, int):
        return max(1, round(value * factor))
    return type(value)(value * factor)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names_in(part)


def depends_on(function: Any, module: types.ModuleType, name: str, seen: set[int]) -> bool:
    """Return whether a compiled function, or one that it calls, reads a module's attribute."""
    python = getattr(function, "py_func", None)
    if python is None or id(python) in seen:
        return False
    seen.add(id(python))
    names = set(_names_in(python.__code__))
    if python.__globals__ is vars(module) and name in names:
        return True
    return any(depends_on(python.__globals__.get(other), module, name, seen) for other in names)


def _kernels_reading(constant: Constant) -> Iterator[Any]:
    module = importlib.import_module(f"cmt_numba.{constant.module}")
    for found in pkgutil.walk_packages(cmt_numba.__path__, "cmt_numba."):
        if found.name.split(".")[1] in ("cli", "report", "__main__"):
            continue
        for function in vars(importlib.import_module(found.name)).values():
            if hasattr(function, "py_func") and depends_on(function, module, constant.name, set()):
                yield function


def is_compiled(constant: Constant) -> bool:
    """Return whether a kernel reads a constant."""
    return any(True for _ in _kernels_reading(constant))


def compile_anew(constant: Constant) -> None:
    """Exclude from Numba's cache the kernels that read a constant."""
    from numba.core.caching import NullCache

    for function in _kernels_reading(constant):
        function._cache = NullCache()


@contextlib.contextmanager
def changed(run: Run) -> Iterator[None]:
    """Change a constant during the block."""
    if run.constant is None:
        yield
        return
    module = importlib.import_module(f"cmt_numba.{run.constant.module}")
    before = getattr(module, run.constant.name)
    setattr(module, run.constant.name, scaled(before, run.factor))
    try:
        yield
    finally:
        setattr(module, run.constant.name, before)


def work(runs: list[Run], data: Path | None) -> None:
    """Execute all runs, set by set, and print a line for each set of a run.

    No kernel may depend on a constant that several runs change.
    """
    for run in runs:
        if run.constant is not None and is_compiled(run.constant):
            compile_anew(run.constant)
    for case in dict.fromkeys(case for run in runs for case in run.cases):
        measure = CASES[case](data)
        warm = False
        for run in runs:
            if case in run.cases:
                with changed(run):
                    if not warm:
                        measure(SEEDS[0])  # compile the kernels to be timed
                        warm = True
                    outcomes = [measure(seed) for seed in (range(4) if run.constant is None else SEEDS)]
                line = {"run": run.key, "case": case, "errors": [outcome.error for outcome in outcomes]}
                for field in ("train_seconds", "query_microseconds", "candidates"):
                    line[field] = float(np.mean([getattr(outcome, field) for outcome in outcomes]))
                print(json.dumps(line), flush=True)


def all_runs(estimators: list[str], has_data: bool, has_time: bool) -> Iterator[Run]:
    """Yield all runs, the one without changes first."""
    constants = [constant for name in estimators for constant in CONSTANTS[name]]

    def possible(cases: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(case for case in cases if (has_data or case not in NEED_DATA) and (has_time or case not in SLOW))

    yield Run(None, 1.0, possible(tuple(dict.fromkeys(case for constant in constants for case in constant.cases))))
    for constant in constants:
        for factor in FACTORS:
            yield Run(constant, factor, possible(constant.cases))
    for constant in constants:
        for factor in constant.extremes:
            yield Run(constant, factor, possible(constant.cases))


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stored outcomes, by run and set."""
    results: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        outcome = json.loads(line)
        results.setdefault(outcome["run"], {})[outcome["case"]] = outcome
    return results


def execute(runs: list[Run], data: Path | None, results: Path) -> None:
    """Execute runs in a process of their own, and append their outcomes to the results."""
    command = [sys.executable, str(SCRIPT), "sensitivity", "--work", json.dumps(runs)]
    command += ["--data", str(data)] if data else []
    with results.open("a") as file:
        subprocess.run(command, stdout=file, check=False)  # failed runs are reported as not measured


def _outcomes(constant: Constant, factor: float, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the outcomes of a constant multiplied by a factor, by set. The factor 1.0 means no change."""
    found = results.get(Run(constant if factor != 1.0 else None, factor, ()).key, {})
    return {case: found[case] for case in constant.cases if case in found}


def _error(outcome: dict[str, Any]) -> float:
    return float(np.mean(outcome["errors"][: len(SEEDS)]))


def _row(constant: Constant, results: dict[str, dict[str, Any]]) -> list[str]:
    """Return a row of the table, averaged over the sets that were run with all factors."""
    value = getattr(importlib.import_module(f"cmt_numba.{constant.module}"), constant.name)
    row = [f"`{constant.module.split('.')[-1]}.{constant.name}`", f"{value:.4g}", constant.meaning]
    factors = (0.5, 1.0, 2.0, *constant.extremes)
    found = {factor: _outcomes(constant, factor, results) for factor in factors}
    cases = [case for case in constant.cases if all(case in found[factor] for factor in (0.5, 1.0, 2.0))]
    if not cases:
        return [*row, *["not measured"] * 5]
    factors = tuple(factor for factor in factors if all(case in found[factor] for case in cases))

    def means(of: Callable[[Any], float], form: str) -> str:
        numbers = [f"{np.mean([of(found[factor][case]) for case in cases]):{form}}" for factor in factors]
        further = [f"{number} at {factor:g}x" for number, factor in zip(numbers[3:], factors[3:], strict=True)]
        return " / ".join(numbers[:3]) + (f" ({', '.join(further)})" if further else "")

    changes = [
        (_error(found[factor][case]) - _error(found[1.0][case]), case, factor)
        for factor in (0.5, 2.0)
        for case in cases
    ]
    change, case, factor = max(changes, key=lambda entry: abs(entry[0]))
    most = f"{change:+.4f}, {case}, {'half' if factor == 0.5 else 'double'}" if change else "none"
    row += [means(_error, ".4f"), most]
    row.append("" if np.isnan(found[1.0][cases[0]]["candidates"]) else means(lambda o: o["candidates"], ".0f"))
    return [*row, means(lambda o: o["train_seconds"], ".2f"), means(lambda o: o["query_microseconds"], ".0f")]


def describe(estimator: str, results: dict[str, dict[str, Any]]) -> str:
    """Return the table of an estimator's constants."""
    headers = ["constant", "value", "meaning", "error: half / default / double", "largest change on one set"]
    headers += ["labels scored", "train, s", "us/query"]
    rows = [_row(constant, results) for constant in CONSTANTS[estimator]]
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)


def describe_noise(results: dict[str, dict[str, Any]]) -> str:
    """Return the difference of each set's error between seeds, without any change."""
    rows = [
        [case, f"{np.mean(outcome['errors']):.4f}", f"{np.std(outcome['errors'], ddof=1) / len(SEEDS) ** 0.5:.4f}"]
        for case, outcome in results.get("as it is", {}).items()
    ]
    return tabulate(
        rows, ["set", "error", "standard error of a mean over two seeds"], tablefmt="pipe", disable_numparse=True
    )


@commands.add(
    argument("--data", type=Path, help="folder of public data; without it, only sets that need none are run"),
    argument("--results", type=Path, default=Path("sensitivity.jsonl"), help="results are read from and appended here"),
    argument("--only", nargs="+", choices=list(CONSTANTS), default=list(CONSTANTS)),
    argument("--print", action="store_true", help="only print the results in the file"),
    argument("--slow", action="store_true", help="also run the sets that take minutes"),
    argument("--work", help=argparse.SUPPRESS),
)
def sensitivity(options: argparse.Namespace) -> None:
    """Measure how much error and time depend on each constant.

    Each constant is halved and doubled, and some are also set to an extreme value. All cases that depend on it are run
    again. Prints the tables of ``docs/measurements/tuning.md``, one for each estimator. For every constant, a table has
    the error, the labels scored per row, and the CPU time to train and to answer with the constant halved, unchanged
    and doubled. These are averaged over two seeds and over the sets of the constant. The table also names the set whose
    error changes most. Results that are already in the file are not measured again, so the command can be stopped at
    any time.

    Constants are frozen into kernels at compile time. So each value of a constant that kernels read has a process of
    its own, which recompiles the kernels that depend on it and does not cache them. The values of all other constants
    share a process. The splits are smaller than in the comparisons, because sensitivity is measured, not accuracy.
    """
    if options.work:
        runs = [
            Run(constant and Constant(*constant), factor, tuple(cases))
            for constant, factor, cases in json.loads(options.work)
        ]
        work(runs, options.data)
        return
    shared: list[Run] = []
    separate: list[Run] = []
    for run in [] if options.print else all_runs(options.only, options.data is not None, options.slow):
        done = read_results(options.results).get(run.key, {})
        run = run._replace(cases=tuple(case for case in run.cases if case not in done))
        if run.cases:
            (separate if run.constant is not None and is_compiled(run.constant) else shared).append(run)
    for runs in [shared, *([run] for run in separate)]:
        if runs:
            print(", ".join(run.key for run in runs), flush=True, file=sys.stderr)
            execute(runs, options.data, options.results)
    results = read_results(options.results)
    for estimator in options.only:
        print(f"\n{estimator}\n\n{describe(estimator, results)}")
    print(f"\nSeeds\n\n{describe_noise(results)}")
