"""Subcommands, timing and tables. Import this module before any library that reads the number of threads."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

Command = Callable[[argparse.Namespace], None]
Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Return the arguments of :meth:`argparse.ArgumentParser.add_argument` for an option of a subcommand."""
    return names, options


DATA = argument("--data", type=Path, required=True, metavar="FOLDER", help="see shared/labelled_sets.py")


class Commands:
    """The subcommands of a script.

    Parameters
    ----------
    doc : str
        The docstring of the script.
    """

    def __init__(self, doc: str | None) -> None:
        self._doc = doc or ""
        self._commands: dict[str, tuple[Command, tuple[Argument, ...]]] = {}

    def add(self, *arguments: Argument) -> Callable[[Command], Command]:
        """Return a decorator that makes a function a subcommand of the same name, with its docstring as help."""

        def register(function: Command) -> Command:
            self._commands[function.__name__.replace("_", "-")] = function, arguments
            return function

        return register

    @property
    def names(self) -> list[str]:
        """The names of the subcommands."""
        return list(self._commands)

    def main(self) -> None:
        """Run the command line."""
        script = argparse.ArgumentParser(description=self._doc.splitlines()[0])
        subcommands = script.add_subparsers(required=True, metavar="COMMAND")
        for name, (function, arguments) in self._commands.items():
            doc = function.__doc__ or ""
            parser = subcommands.add_parser(
                name,
                help=doc.splitlines()[0].replace("%", "%%"),
                description=inspect.cleandoc(doc),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            for names, options in arguments:
                parser.add_argument(*names, **options)
            parser.set_defaults(run=function)
        options = script.parse_args()
        options.run(options)


def timed(
    work: Callable[..., Any], *arguments: Any, clock: Callable[[], float] = time.process_time, **named: Any
) -> tuple[Any, float]:
    """Return the result of a call, and the seconds that it takes: CPU time by default."""
    start = clock()
    value = work(*arguments, **named)
    return value, clock() - start


def fastest(work: Callable[..., Any], *arguments: Any, n_runs: int = 3, n_rows: int = 1) -> tuple[Any, float]:
    """Return the result of a call, and its microseconds of CPU time per row: the minimum of several runs."""
    runs = [timed(work, *arguments) for _ in range(n_runs)]
    return runs[0][0], 1e6 * min(seconds for _, seconds in runs) / n_rows


def mean_over(seeds: Iterable[Any], measure: Callable[[Any], Sequence[float]]) -> list[float]:
    """Return the mean of each measurement over seeds, draws or other repetitions."""
    return list(np.mean([measure(seed) for seed in seeds], axis=0))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", digits: str = ".3f") -> None:
    """Print a table in the format of the pages in ``docs/measurements``."""
    title = f"\n{title}\n\n" if title else ""
    print(f"{title}{tabulate(list(rows), headers, 'github', floatfmt=digits)}", flush=True)
