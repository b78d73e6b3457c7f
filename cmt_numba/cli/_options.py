"""The options of the commands. A command receives them as one object. This module is fast to import."""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import getdoc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from ._output import printable

FORMATS = ("svmlight", "xc", "vw", "csv", "jsonl", "parquet", "npz")
WARMUP_KINDS = ("tree", "store", "classifier", "multilabel", "retriever", "bandit", "text", "sequences")
TASKS = ("multiclass", "multilabel")
RIVALS = ("majority", "exact", "means", "linear", "bm25")  # see :class:`cmt_numba.evaluation.Rival`

Options = SimpleNamespace
"""The arguments and options of a running command, by name."""

_EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)  # caused by the input or the environment


class CommandGroup(click.Group):
    """A group of commands that reports errors in one line."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Run a command, and exit with the status 1 after an unexpected error, and 2 after another error."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            with self.make_context("cmt-numba", list(words) or ["--help"], obj=words) as context:
                self.invoke(context)
        except click.exceptions.Exit as finished:  # the help was printed
            sys.exit(finished.exit_code)
        except BrokenPipeError:
            raise
        except Exception as error:
            if "--traceback" in words:
                raise
            is_expected = isinstance(error, (*_EXPECTED, click.ClickException))
            reason = _reason(error)
            if not is_expected:
                reason = f"unexpected {type(error).__name__}: {reason}; cmt-numba --traceback ... shows the traceback"
            print(f"cmt-numba: {printable(' '.join(reason.split()))}", file=sys.stderr)
            sys.exit(2 if is_expected else 1)


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}".removesuffix(": ")
    if isinstance(error, ModuleNotFoundError) and error.name in ("pandas", "pyarrow"):
        return f"{error.name} is missing: pip install 'cmt-numba[cli]'"
    if isinstance(error, OSError) and error.strerror:  # omit the error number
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def command(group: click.Group, *parameters: Callable[[Any], Any]) -> Callable[[Callable[[Options], None]], Any]:
    """Add a function to a group as a command, which receives all arguments and options as one object.

    Its docstring becomes the help.
    """

    def add(function: Callable[[Options], None]) -> Callable[[Options], None]:
        run: Any = lambda **given: function(Options(**given))  # noqa: E731
        for parameter in reversed(parameters):
            run = parameter(run)
        group.command(function.__name__, help=help_of(function))(run)
        return function

    return add


def help_of(function: Any) -> str:
    """Return the docstring of a function, in which Click keeps the lines of code blocks."""
    return (getdoc(function) or "").replace("```sh\n", "\b\n").replace("```", "")


def option(flags: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an option. The value of an option must not look like another option, as in ``--text --model my.cmt``."""
    return click.option(*flags.split(), help=help, metavar=metavar, callback=_checked, **settings)


def _checked(_: Any, param: click.Parameter, value: Any) -> Any:
    for one in value if isinstance(value, tuple) else [value]:
        if isinstance(one, str | Path) and str(one).startswith("--"):
            raise ValueError(f"{param.opts[0]} requires a value, but is followed by {one}")
    return value


def command_line() -> str:
    """Return the command line of the running command."""
    return shlex.join(["cmt-numba", *click.get_current_context().obj])


def choice(flags: str, help: str, names: Sequence[str], **settings: Any) -> Any:
    """Return an option whose value is one of some names."""
    return option(flags, help, type=click.Choice(names), **settings)


def count(flags: str, help: str, metavar: str = "N", **settings: Any) -> Any:
    """Return an option whose value is a positive integer."""
    return option(flags, help, metavar, type=click.IntRange(min=1), **settings)


flag = partial(option, is_flag=True)
number = partial(option, type=float)
column = partial(option, metavar="COLUMN")
file = partial(option, metavar="FILE", type=click.Path(path_type=Path))
argument = partial(click.argument, type=click.Path(path_type=Path))

DATA = argument("data", metavar="DATA")
FORMAT = choice("--format", "Format of DATA (default: detected from its name or first line).", FORMATS)
PROGRESS = option("--progress/--no-progress", "Show a progress bar (default: only on a terminal).", default=None)
JSON = file("--json", "Write the result as JSON to a file, or to standard output (-).")
REPORT = file("--report", "Write an HTML report with plots.")
SEED = option("--seed", "Random seed.", "N", type=click.IntRange(min=0), default=0)
MODEL = file("--model -m", "Model file.", required=True)
batch_size = partial(count, "--batch-size", "Maximum number of rows per batch.")

READING = (
    DATA,
    FORMAT,
    choice("--task", "Task (default: multilabel if a row has several labels or, in svmlight, none).", TASKS),
    count("--features", "Number of features of sparse data. Saves a pass over the file."),
    column("--label", "Label column of a table (default: 'label', or else the last column)."),
    column("--text", "Text column of a table; other columns are then ignored. May be repeated.", multiple=True),
    option(
        "--kind",
        "Kind of a table column: text, category or number (default: detected from its values). May be repeated.",
        "COLUMN=KIND",
        multiple=True,
    ),
    column("--ignore", "Column of a table to ignore. May be repeated.", multiple=True),
    option(
        "--bits",
        "Hash into 2**BITS features: words of texts with several labels or in batches, names of Vowpal Wabbit.",
        "BITS",
        type=click.IntRange(1, 30),
        default=18,
    ),
    file("--labels", "File with labels of a scipy.sparse matrix."),
    PROGRESS,
)
TRAINING = (
    *READING,
    count("--passes", "Maximum number of training passes (default: depends on the loss)."),
    option("--set", "Another parameter, such as aggressiveness=0.3. May be repeated.", "NAME=VALUE", multiple=True),
    option("--jobs", "Number of threads. -1 uses all processors.", "N", type=int, default=1),
    SEED,
)
APPLYING = (
    DATA,
    MODEL,
    FORMAT,
    PROGRESS,
    file("--output -o", "Output file, or - for standard output.", default=Path("-")),
    batch_size(default=1000),
)
