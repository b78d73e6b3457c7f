"""Subcommands with options, and timing. Import this module before any library that reads the number of threads."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        self._parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
        self._subcommands = self._parser.add_subparsers(required=True, metavar="COMMAND")

    def add(self, *arguments: Argument) -> Callable[[Command], Command]:
        """Return a decorator that makes a function a subcommand of the same name, with its docstring as help."""

        def register(function: Command) -> Command:
            doc = function.__doc__ or ""
            parser = self._subcommands.add_parser(
                function.__name__.replace("_", "-"),
                help=doc.splitlines()[0],
                description=inspect.cleandoc(doc),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            for names, options in arguments:
                parser.add_argument(*names, **options)
            parser.set_defaults(run=function)
            return function

        return register

    @property
    def names(self) -> list[str]:
        """The names of the subcommands."""
        return list(self._subcommands.choices)

    def main(self) -> None:
        """Run the command line."""
        options = self._parser.parse_args()
        options.run(options)


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[Any, float]:
    """Return the result of a function, and the seconds that it takes: CPU time by default."""
    start = clock()
    value = work()
    return value, clock() - start
