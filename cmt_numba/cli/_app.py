"""The commands and their help.

Help must appear immediately, so commands import slow modules such as scikit-learn when they run.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from .._display import ResultTable
from .._version import __version__
from . import _options as given
from ._bandit import app as bandit_commands
from ._options import WarmupKind, option, with_options
from ._output import check_files, is_model_file, printable, show_table, to_json_text, write_result

_EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)  # caused by the input or the environment


class _Commands(TyperGroup):
    """A command group that reports errors in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[given.WORDS] = list(args)
        if not args:  # this prints the help
            return super().parse_args(ctx, args)
        with _one_line_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _one_line_errors(ctx):
            return super().invoke(ctx)


@contextmanager
def _one_line_errors(ctx: Any) -> Iterator[None]:
    try:
        yield
    except (typer.Abort, typer.Exit, BrokenPipeError):
        raise  # the user has cancelled the command, the help was printed, or the output pipe is closed
    except Exception as error:
        if ctx.params.get("traceback"):
            raise
        reason = str(error)
        is_expected = isinstance(error, _EXPECTED)
        if isinstance(error, MemoryError):
            reason = f"not enough memory: {reason}" if reason else "not enough memory"
        elif isinstance(error, ModuleNotFoundError) and error.name in ("pandas", "pyarrow"):
            reason = f"{error.name} is missing: pip install 'cmt-numba[cli]'"
        elif isinstance(error, OSError) and error.strerror:  # omit the error number
            reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        elif hasattr(error, "format_message"):  # a usage error, found by Typer
            reason, is_expected = error.format_message(), True
        elif not is_expected:
            reason = f"unexpected {type(error).__name__}: {reason}; cmt-numba --traceback ... shows the traceback"
        print(f"cmt-numba: {printable(' '.join(reason.split()))}", file=sys.stderr)
        raise typer.Exit(2 if is_expected else 1) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cmt-numba {__version__}")
        raise typer.Exit


app.add_typer(bandit_commands, name="bandit")


@app.callback()
def commands(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, Option("--traceback", help="Show the traceback of an error.")] = False,
) -> None:
    """Classify with very many classes or labels, using Contextual Memory Trees.

    Example with a file of lines such as `7 12:1 40:0.5` (a class, then feature:value pairs):

    ```sh
    cmt-numba info train.svm
    cmt-numba evaluate train.svm
    cmt-numba fit train.svm --model my.cmt
    cmt-numba predict new.svm --model my.cmt
    ```
    """


@app.command()
@with_options
def fit(data: given.Data, options: given.FitOptions) -> None:
    """Train a model on a data file and save it.

    With --text, the model is a TextClassifier. It is a CMTClassifier with --keys, and with --streaming, which counts
    hashed words; with several labels per row, it is a CMTMultilabelClassifier.

    ```sh
    cmt-numba fit train.svm --model my.cmt
    cmt-numba fit huge.svm.gz --model my.cmt --streaming --features 50000
    cmt-numba fit news.csv --text title --text body --label topic --model news.cmt
    cmt-numba fit news.csv --text title --label topic --keys bm25 --model news.cmt
    ```
    """
    from ..persistence import file_to_write
    from . import _training

    check_files(inputs=(data, options.labels), outputs=(options.model,))
    file_to_write(options.model)
    if options.keys is not None and options.streaming:
        raise ValueError("--keys cannot be combined with --streaming, as it needs all texts in memory; omit one")
    if options.keys is not None and not options.text:
        raise ValueError(f"--keys {options.keys} requires text columns; name them with --text")
    if options.holdout and options.streaming:
        raise ValueError("--holdout cannot be combined with --streaming, which tests no model; omit one of them")
    pairs = (_training.fit_in_batches if options.streaming else _training.fit)(data, options)
    show_table(ResultTable.of_pairs(f"Written to {options.model}", pairs), err=True)


@app.command()
@with_options
def evaluate(ctx: typer.Context, data: given.Data, options: given.EvaluateOptions) -> None:
    """Evaluate a classifier and report its errors and its speed.

    The report compares it with simple models (rivals): the most frequent class, exact search, class means, a linear
    model and, for tables with text, BM25. A rival that takes minutes is measured on fewer rows or skipped. With --text,
    the classifier is a TextClassifier, and rivals use tf-idf, unless rows have several labels or --progressive is set.

    With --progressive, rows are processed in the order of the file, in batches that grow to --batch-size. Shuffle a
    file that is sorted by class.

    ```sh
    cmt-numba evaluate train.svm
    cmt-numba evaluate train.svm --test test.svm --report result.html
    cmt-numba evaluate huge.svm --progressive --json -
    ```
    """
    from ..report import result_tables, write_report
    from . import _training

    inputs = (data, options.labels, options.test, options.test_labels)
    check_files(inputs=inputs, outputs=(options.report, options.json))
    if options.test_labels is not None and options.test is None:
        raise ValueError("--test-labels requires --test; name the file with the test rows")
    if options.progressive and options.ray is not None:
        raise ValueError("--ray cannot be combined with --progressive, which learns row by row; omit one of them")
    if options.progressive and options.test is not None:
        raise ValueError("--test cannot be combined with --progressive, which tests on DATA; omit one of them")
    result: Any
    if options.progressive:
        result = _training.evaluate_progressively(data, options)
    elif options.test is not None:
        result = _training.evaluate_on_test_file(data, options.test, options)
    else:
        result = _training.evaluate_on_held_out_rows(data, options)
    if options.report is not None:
        write_report(options.report, result, title=data.name, command=given.command_line(ctx))
    write_result({"data": str(data), "result": result.as_dict()}, result_tables(result), options.json)


@app.command()
@with_options
def query(data: given.Data, options: given.QueryOptions) -> None:
    """Predict the best labels of each row of a data file, with their scores.

    The data is read with the same options as the training data, and its labels are ignored. Rows are numbered from 0.

    ```sh
    cmt-numba query new.svm --model my.cmt
    cmt-numba query new.svm --model my.cmt -k 5 --json > answers.jsonl
    ```
    """
    from ._query import answers, open_rows, write_csv, write_json, write_lines

    if options.json and options.csv:
        raise ValueError("--json and --csv cannot be combined; choose one")
    write = write_json if options.json else write_csv if options.csv else write_lines
    with open_rows(data, options) as (rows, file):
        write(answers(rows, options.k), file)


@app.command()
@with_options
def predict(data: given.Data, options: given.PredictOptions) -> None:
    """Predict the label of each row of a data file.

    The output has one line per row, with several labels separated by commas. The data is read with the same options as
    the training data, and its labels are ignored.

    ```sh
    cmt-numba predict new.svm --model my.cmt > labels.txt
    cmt-numba predict new.csv --model news.cmt --probabilities --reject-below 0.5 --explain
    ```
    """
    from ._query import open_rows, write_classes, write_labels

    with open_rows(data, options) as (rows, file):
        is_plain = options.reject_below is None and not options.probabilities and not options.explain
        write_labels(rows, file) if is_plain else write_classes(rows, file, options)


@app.command()
@with_options
def search(
    store: Annotated[Path, Argument(metavar="STORE", help="Folder or file of a MemoryStore with texts.")],
    words: Annotated[list[str], Argument(metavar="WORDS...", help="Words to search for.")],
    k: int = option("Number of memories to print.", "K", 10, flags="-k", min=1),
    where: str | None = option('Filter on payload fields, such as \'{"year": {"gte": 2020}}\'.', "JSON"),
    as_json: bool = option("Print one JSON object per memory.", default=False, flags="--json"),
) -> None:
    """Search the texts of a store by their words, and print the best memories.

    ```sh
    cmt-numba search notes what does E17 mean
    cmt-numba search notes router -k 3 --where '{"year": {"gte": 2020}}' --json
    ```
    """
    from ..store import MemoryStore

    if not store.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(store))
    wanted = None if where is None else _filter_of(where)
    with MemoryStore.load(store) if store.is_file() else MemoryStore(store, read_only=True) as opened:
        results = opened.query(texts=" ".join(words), k=k, where=wanted)
        found = [result._asdict() for result in results[0]]
    if as_json:
        for result in found:
            print(to_json_text(result))
    elif found:
        show_table(ResultTable.of_records(f"{store}: {' '.join(words)}", found))


def _filter_of(where: str) -> dict[str, Any]:
    try:
        found = json.loads(where)
    except ValueError as error:
        raise ValueError(f"--where must be JSON: {error}") from error
    if not isinstance(found, dict):
        raise TypeError(f'--where must be a JSON object such as {{"year": 2020}}, got {where:.50}')
    return found


@app.command()
@with_options
def update(data: given.Data, options: given.UpdateOptions) -> None:
    """Train a model further on the rows of a data file, which may have new classes, and save it.

    The data is read with the same options as the training data.

    ```sh
    cmt-numba update more.svm --model my.cmt
    ```
    """
    from ._query import learn_more

    n_rows = learn_more(data, options)
    show_table(ResultTable.of_pairs(f"Written to {options.model}", [("new rows", n_rows)]), err=True)


@app.command()
@with_options
def info(
    path: Annotated[Path, Argument(metavar="MODEL|DATA", help="Model file or data file.")],
    options: given.InfoOptions,
) -> None:
    """Describe a model, or the rows and labels of a data file.

    ```sh
    cmt-numba info train.svm
    cmt-numba info my.cmt --json
    ```
    """
    described: dict[str, dict[str, Any]]
    if is_model_file(path):
        from ..evaluation import to_json
        from ._models import describe_model, load_model

        described = to_json(describe_model(load_model(path)))
    else:
        from ._data import describe_data

        described = {"data": describe_data(options.open(path, with_kinds=True), options.progress)}
    if options.json:
        print(to_json_text(described, indent=2))
        return
    for name, pairs in described.items():
        show_table(ResultTable.of_pairs(f"{path}: {name}", pairs.items()))


@app.command()
@with_options
def warmup(
    kinds: Annotated[
        list[WarmupKind] | None, Argument(metavar="[KIND]...", help=f"{', '.join(WarmupKind)} (default: all).")
    ] = None,
    jobs: int | None = option("Number of processes (default: one per processor).", "N", min=1),
    progress: bool | None = given.progress_option,
) -> None:
    """Compile kernels ahead of time, for example when building a container image.

    ```sh
    cmt-numba warmup
    cmt-numba warmup classifier --jobs 2
    ```
    """
    from .. import warmup

    warmup(kinds or list(WarmupKind), n_jobs=jobs, progress=progress)
