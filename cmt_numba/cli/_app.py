"""The commands and their help.

Help must appear immediately, so commands import slow modules such as scikit-learn when they run.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from .._version import __version__
from . import _options as given
from ._bandit import app as bandit_commands
from ._options import WarmupKind, option
from ._outputs import check_files, is_model_file, open_output, printable, to_json_text

if TYPE_CHECKING:
    from .. import evaluation
    from ..formats import Batch, ReadOptions, Source

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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, words = super().resolve_command(ctx, args)
        _check_values(command, words)
        return name, command, words


def _check_values(command: Any, words: list[str]) -> None:
    """Raise ValueError for an option in the place of another option's value, as in ``--text --model my.cmt``."""
    if words and words[0] in getattr(command, "commands", {}):
        _check_values(command.commands[words[0]], words[1:])
        return
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    names = {name for one in options for name in (*one.opts, *one.secondary_opts)}
    need_values = {name for one in options if not one.is_flag for name in one.opts}
    for word, following in pairwise(words):
        if word in need_values and following in names:
            raise ValueError(f"{word} requires a value, but is followed by {following}")


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
    version: Annotated[bool, option("--version", "Print the version.", callback=_print_version, is_eager=True)] = False,
    traceback: Annotated[bool, option("--traceback", "Show the traceback of an error.")] = False,
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
@given.with_option_groups
def fit(
    data: given.Data,
    model: Annotated[Path, Option("--model", "-m", metavar="FILE", help="Model file to write.")],
    reading: given.ReadingOptions,
    training: given.TrainingOptions,
    keys: given.KeysOption = None,
    streaming: Annotated[bool, option("--streaming", "Train in batches, for a file larger than memory.")] = False,
    batch_size: given.BatchRows = 10_000,
    holdout: Annotated[
        float | None,
        option(
            "--holdout",
            "Fraction of rows on which to test a preliminary model (default: 0.1). The saved model learns all rows. "
            "0 skips the test.",
            "SHARE",
            min=0.0,
            max=0.5,
        ),
    ] = None,
    progress: given.Progress = None,
) -> None:
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
    from rich.console import Console

    from ..formats import open_data
    from ..persistence import file_to_write
    from ._model_files import Model, held_out_pairs, learn, save_model
    from ._streams import look_through, read_all, stream
    from ._tables import show_kinds, show_pairs

    check_files(inputs=(data, reading.labels), outputs=(model,))
    file_to_write(model)
    if keys is not None and streaming:
        raise ValueError("--keys cannot be combined with --streaming, as it needs all texts in memory; omit one")
    if holdout and streaming:
        raise ValueError("--holdout cannot be combined with --streaming, which tests no model; omit one of them")
    if keys is not None and not reading.text:
        raise ValueError(f"--keys {keys} requires text columns; name them with --text")
    source = reading.open(data, with_kinds=not streaming, as_text=keys is not None)
    options = look_through(source, progress)
    show_kinds(options, Console(stderr=True))
    if reading.text and keys is None and not streaming and options.task == "multiclass":
        training.text_classifier()  # checks the options
        source = open_data(data, replace(options, as_text=True, n_features=None))
        options = source.resolved()
    quality: list[tuple[str, Any]] = []
    if streaming:
        with stream(source, batch_size, "learning", progress) as batches:
            made = Model(training.estimator(options, streaming=True), options)
            for X, y in batches.pairs():
                made.estimator.partial_fit(X, y)
    else:
        rows = read_all(source, progress)
        learn_rows = partial(learn, training, options, keys)
        share = 0.1 if holdout is None else holdout
        if share > 0:
            quality = held_out_pairs(learn_rows, rows, share, training.seed)
        made = learn_rows(rows, progress=sys.stderr.isatty() if progress is None else progress)
    save_model(model, made)
    classes = [("classes", int(made.estimator.classes_.size))]
    show_pairs(Console(stderr=True), f"Written to {model}", classes + quality)


@app.command()
@given.with_option_groups
def evaluate(
    ctx: typer.Context,
    data: given.Data,
    reading: given.ReadingOptions,
    training: given.TrainingOptions,
    test: Annotated[Path | None, option("--test", "Data file with test rows.", "FILE")] = None,
    test_labels: Annotated[
        Path | None, option("--test-labels", "File with the labels of the test rows in a scipy.sparse matrix.", "FILE")
    ] = None,
    progressive: Annotated[
        bool,
        option(
            "--progressive/--batch",
            "Either predict each row before learning it, in one pass over the file, "
            "or train on some rows and test on the other rows.",
        ),
    ] = False,
    seeds: Annotated[int, option("--seeds", "Number of --batch runs, with different seeds.", "N", min=1)] = 3,
    ray: Annotated[
        str | None,
        option("--ray", "Run --batch on Ray: the address of a cluster, or local for this machine.", "ADDRESS|local"),
    ] = None,
    holdout: Annotated[float, option("--holdout", "Fraction of rows to test on, without --test.", "SHARE")] = 0.2,
    batch_size: given.BatchRows = 1000,
    without: given.Without = None,
    json_file: given.JsonFile = None,
    report: given.ReportFile = None,
    progress: given.Progress = None,
) -> None:
    """Evaluate a classifier and report its errors, its speed, and the shape of its trees.

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
    from rich.console import Console

    from .. import evaluation
    from ..estimators import trees_of
    from ..evaluation import to_json
    from ..formats import open_data
    from ..report import result_tables, shown_profile, write_report
    from ._columns import keys_of_rows, rivals_but, texts_of_rows
    from ._streams import look_through, stream
    from ._tables import show_kinds, show_table

    check_files(inputs=(data, reading.labels, test, test_labels), outputs=(report, json_file))
    source = reading.open(data, with_kinds=not progressive)
    options = source.options
    known = look_through(source, progress)
    show_kinds(known, Console(stderr=True))
    if reading.text and not progressive and known.task == "multiclass":
        estimator = training.text_classifier()
        options = replace(options, as_text=True)
        source = open_data(data, replace(known, as_text=True, n_features=None))
        known = source.resolved()
    else:
        estimator = training.estimator(known, streaming=progressive)
    if test_labels is not None and test is None:
        raise ValueError("--test-labels requires --test; name the file with the test rows")
    result: evaluation.ProgressiveResult | evaluation.BatchResult
    if progressive:
        if ray is not None:
            raise ValueError("--ray cannot be combined with --progressive, which learns row by row; omit one of them")
        if test is not None:
            raise ValueError("--test cannot be combined with --progressive, which tests on DATA; omit one of them")
        sizes = partial(evaluation.next_batch_size, most=batch_size)
        with stream(source, sizes, "predicting and learning", progress) as batches:
            result = evaluation.progressive_validation(estimator, batches.pairs(), callback=batches.note)
        profile = None if trees_of(estimator) is None else evaluation.profile(estimator)
    else:
        train, tested = _train_and_test(source, options, test, test_labels, progress)
        X, columns = keys_of_rows(train.X, known)
        texts, texts_test = (None if rows is None else texts_of_rows(rows.X, known) for rows in (train, tested))
        evaluated = evaluation.batch_evaluation if ray is None else partial(_evaluated_on_ray, ray)
        result = evaluated(
            estimator,
            X,
            train.y,
            *(() if tested is None else (tested.X if columns is None else columns.transform(tested.X), tested.y)),
            holdout=holdout,
            seeds=range(training.seed, training.seed + seeds),
            rivals=rivals_but(without or (), texts),
            texts=texts,
            texts_test=texts_test,
            details=True,
            progress=sys.stderr.isatty() if progress is None else progress,
        )
        profile = result.profile
    if report is not None:
        command = shlex.join(["cmt-numba", *ctx.meta[given.WORDS]])
        write_report(report, result, title=f"{data.name}", command=command, profile=profile)
    if json_file is not None:
        contents = {"data": str(data), "version": __version__, "result": result.as_dict(), "profile": profile}
        with open_output(json_file) as file:
            file.write(to_json_text(to_json(contents), indent=2) + "\n")
    if json_file != Path("-"):
        for table in result_tables(result, shown_profile(profile)):
            show_table(Console(), table)


@app.command()
def query(
    data: given.Data,
    model: given.ModelToAsk,
    k: Annotated[
        int | None, option("-k", "Number of labels per row (default: one class, or all predicted labels).", "K", min=1)
    ] = None,
    as_json: Annotated[bool, option("--json", "Write one JSON object per row.")] = False,
    as_csv: Annotated[bool, option("--csv", "Write a CSV table: row, rank, label and score.")] = False,
    output: given.Output = Path("-"),
    data_format: given.FormatOption = None,
    batch_size: given.BatchRows = 1000,
    progress: given.Progress = None,
) -> None:
    """Predict the best labels of each row of a data file, with their scores.

    The data is read with the same options as the training data, and its labels are ignored. Rows are numbered from 0.

    ```sh
    cmt-numba query new.svm --model my.cmt
    cmt-numba query new.svm --model my.cmt -k 5 --json > answers.jsonl
    ```
    """
    from ._query import answers, ask, write_csv, write_json, write_lines

    if as_json and as_csv:
        raise ValueError("--json and --csv cannot be combined; choose one")
    write = write_json if as_json else write_csv if as_csv else write_lines
    with ask(model, data, data_format, output, batch_size, progress) as (learned, batches, file):
        write(answers(learned, batches, k), file)


@app.command()
def predict(
    data: given.Data,
    model: given.ModelToAsk,
    probabilities: Annotated[bool, option("--probabilities", "Add the class's probability, after a tab.")] = False,
    reject_below: Annotated[
        float | None,
        option(
            "--reject-below",
            "Write an empty class (-1 among numbers) if its probability is lower, because the row may belong to "
            "none of the classes.",
            "P",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    explain: Annotated[bool, option("--explain", "Add the features that support the class, after a tab.")] = False,
    output: given.Output = Path("-"),
    data_format: given.FormatOption = None,
    batch_size: given.BatchRows = 1000,
    progress: given.Progress = None,
) -> None:
    """Predict the label of each row of a data file.

    The output has one line per row, with several labels separated by commas. The data is read with the same options as
    the training data, and its labels are ignored.

    ```sh
    cmt-numba predict new.svm --model my.cmt > labels.txt
    cmt-numba predict new.csv --model news.cmt --probabilities --reject-below 0.5 --explain
    ```
    """
    from ._query import ask, write_classes, write_labels

    with ask(model, data, data_format, output, batch_size, progress) as (learned, batches, file):
        if probabilities or explain or reject_below is not None:
            write_classes(
                learned, batches, file, reject_below=reject_below, probabilities=probabilities, explain=explain
            )
        else:
            write_labels(learned, batches, file)


@app.command()
def search(
    store: Annotated[Path, Argument(metavar="STORE", help="Folder or file of a MemoryStore with texts.")],
    words: Annotated[list[str], Argument(metavar="WORDS...", help="Words to search for.")],
    k: Annotated[int, option("-k", "Number of memories to print.", "K", min=1)] = 10,
    where: Annotated[
        str | None, option("--where", 'Filter on payload fields, such as \'{"year": {"gte": 2020}}\'.', "JSON")
    ] = None,
    as_json: Annotated[bool, option("--json", "Print one JSON object per memory.")] = False,
) -> None:
    """Search the texts of a store by their words, and print the best memories.

    ```sh
    cmt-numba search notes what does E17 mean
    cmt-numba search notes router -k 3 --where '{"year": {"gte": 2020}}' --json
    ```
    """
    from rich.console import Console

    from .._display import ResultTable
    from ..store import MemoryStore
    from ._tables import show_table

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
        show_table(Console(), ResultTable.of_records(f"{store}: {' '.join(words)}", found))


def _filter_of(where: str) -> dict[str, Any]:
    try:
        found = json.loads(where)
    except ValueError as error:
        raise ValueError(f"--where must be JSON: {error}") from error
    if not isinstance(found, dict):
        raise TypeError(f'--where must be a JSON object such as {{"year": 2020}}, got {where:.50}')
    return found


@app.command()
def update(
    data: given.Data,
    model: given.ModelToAsk,
    data_format: given.FormatOption = None,
    batch_size: given.BatchRows = 10_000,
    progress: given.Progress = None,
) -> None:
    """Train a model further on the rows of a data file, which may have new classes, and save it.

    The data is read with the same options as the training data.

    ```sh
    cmt-numba update more.svm --model my.cmt
    ```
    """
    from rich.console import Console

    from ._query import learn_more
    from ._tables import show_pairs

    n_rows = learn_more(model, data, data_format, batch_size, progress)
    show_pairs(Console(stderr=True), f"Written to {model}", [("new rows", n_rows)])


@app.command()
@given.with_option_groups
def info(
    path: Annotated[Path, Argument(metavar="MODEL|DATA", help="Model file or data file.")],
    reading: given.ReadingOptions,
    as_json: Annotated[bool, option("--json", "Print JSON.")] = False,
    progress: given.Progress = None,
) -> None:
    """Describe a model, or the rows and labels of a data file.

    ```sh
    cmt-numba info train.svm
    cmt-numba info my.cmt --json
    ```
    """
    from rich.console import Console

    from ._streams import look_through, stream
    from ._tables import describe_data, listed_kinds, show_pairs

    described: dict[str, dict[str, Any]]
    if is_model_file(path):
        from ..evaluation import to_json
        from ._model_files import describe_model, load_model, show_model

        model = load_model(path)
        if not as_json:
            show_model(Console(), str(path), model)
            return
        described = to_json(describe_model(model))
    else:
        source = reading.open(path, with_kinds=True)
        options = look_through(source, progress)
        with stream(source, 1000, "reading", progress) as batches:
            data = {"format": options.format, **describe_data(batches, options.task)}
        described = {"data": data | ({"columns": listed_kinds(options)} if options.kinds else {})}
    if as_json:
        print(to_json_text(described, indent=2))
        return
    for name, pairs in described.items():
        show_pairs(Console(), f"{path}: {name}", pairs.items())


@app.command()
def warmup(
    kinds: Annotated[
        list[WarmupKind] | None, Argument(metavar="[KIND]...", help=f"{', '.join(WarmupKind)} (default: all).")
    ] = None,
    jobs: Annotated[
        int | None, option("--jobs", "Number of processes (default: one per processor).", "N", min=1)
    ] = None,
    progress: given.Progress = None,
) -> None:
    """Compile kernels ahead of time, for example when building a container image.

    ```sh
    cmt-numba warmup
    cmt-numba warmup classifier --jobs 2
    ```
    """
    from .. import warmup

    warmup(kinds or list(WarmupKind), n_jobs=jobs, progress=progress)


def _evaluated_on_ray(address: str, estimator: Any, *examples: Any, **options: Any) -> evaluation.BatchResult:
    from ..distributed import evaluate as evaluate_on_ray

    return evaluate_on_ray({"": estimator}, *examples, address=address, **options)[""]


def _train_and_test(
    source: Source, options: ReadOptions, test: Path | None, test_labels: Path | None, progress: bool | None
) -> tuple[Batch, Batch | None]:
    """Return training rows and test rows with the same number of features. Without ``test``, return no test rows."""
    from ..formats import open_data
    from ._streams import read_all

    if test is None:
        return read_all(source, progress), None
    known, labels_file = source.resolved(), None if test_labels is None else str(test_labels)
    alike = replace(known, format=options.format, n_features=options.n_features, labels_file=labels_file)
    tested = open_data(test, alike)
    width = tested.resolved().n_features
    if width is not None and known.n_features is not None:
        width = max(width, known.n_features)
        source = open_data(source.path, replace(known, n_features=width))
        tested = open_data(test, replace(alike, n_features=width))
    return read_all(source, progress), read_all(tested, progress)
