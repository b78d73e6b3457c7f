"""The commands and their help.

Help must appear immediately, so commands import slow modules such as scikit-learn when they run.
"""

import errno
import json
import os
from typing import Any

import click

from .._display import ResultTable
from .._version import MAGIC, __version__
from . import _options as given
from ._bandit import bandit
from ._options import APPLYING, READING, TRAINING, CommandGroup, Options, argument, choice, command, count, flag, option
from ._output import check_files, show_table, to_json_text, write_result

_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 120}


@click.group(cls=CommandGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="cmt-numba", message="%(prog)s %(version)s", help="Print the version.")
@click.option("--traceback", is_flag=True, help="Show the traceback of an error.")
def app(traceback: bool) -> None:
    """Classify with very many classes or labels, using Contextual Memory Trees.

    DATA is a file: svmlight (.svm), Extreme Classification Repository (.xc), Vowpal Wabbit (.vw), .csv, .tsv, .jsonl,
    .parquet (or a folder of Parquet files) or .npz. Text files may be compressed (.gz). Example with a file of
    lines such as `7 12:1 40:0.5` (a class, then feature:value pairs):

    ```sh
    cmt-numba info train.svm
    cmt-numba evaluate train.svm
    cmt-numba fit train.svm --model my.cmt
    cmt-numba predict new.svm --model my.cmt
    ```
    """


app.help = given.help_of(app.callback)
app.add_command(bandit)


@command(
    app,
    *TRAINING,
    given.file("--model -m", "Model file to write.", required=True),
    flag("--streaming", "Train in batches, for a file larger than memory."),
    given.batch_size(default=10_000),
    given.number(
        "--holdout",
        "Fraction of rows that test a model before all rows train it (default: 0.1; 0: no test).",
        "SHARE",
        type=click.FloatRange(0.0, 0.5),
    ),
)
def fit(options: Options) -> None:
    """Train a model on a data file and save it.

    With --text, the model is a TextClassifier. With --streaming, which counts hashed words, it is a CMTClassifier; with
    several labels per row, it is a CMTMultilabelClassifier.

    ```sh
    cmt-numba fit train.svm --model my.cmt
    cmt-numba fit huge.svm.gz --model my.cmt --streaming --features 50000
    cmt-numba fit news.csv --text title --text body --label topic --model news.cmt
    ```
    """
    from ..persistence import file_to_write
    from . import _training

    check_files(inputs=(options.data, options.labels), outputs=(options.model,))
    file_to_write(options.model)
    if options.holdout and options.streaming:
        raise ValueError("--holdout cannot be combined with --streaming, which tests no model; omit one of them")
    pairs = (_training.fit_in_batches if options.streaming else _training.fit)(options)
    show_table(ResultTable.of_pairs(f"Written to {options.model}", pairs), err=True)


@command(
    app,
    *TRAINING,
    given.file("--test", "Data file with test rows."),
    given.file("--test-labels", "File with the labels of the test rows in a scipy.sparse matrix."),
    option("--progressive/--batch", "Predict each row before learning it, or train on some rows and test on others."),
    count("--seeds", "Number of --batch runs, with different seeds.", default=3),
    option("--ray", "Run --batch on Ray: the address of a cluster, or local for this machine.", "ADDRESS|local"),
    given.number("--holdout", "Fraction of rows to test on, without --test.", "SHARE", default=0.2),
    given.batch_size(default=1000),
    choice("--without", "Rival to omit from the comparison. May be repeated.", given.RIVALS, multiple=True),
    given.JSON,
    given.REPORT,
)
def evaluate(options: Options) -> None:
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

    inputs = (options.data, options.labels, options.test, options.test_labels)
    check_files(inputs=inputs, outputs=(options.report, options.json))
    if options.test_labels is not None and options.test is None:
        raise ValueError("--test-labels requires --test; name the file with the test rows")
    if options.progressive and options.ray is not None:
        raise ValueError("--ray cannot be combined with --progressive, which learns row by row; omit one of them")
    if options.progressive and options.test is not None:
        raise ValueError("--test cannot be combined with --progressive, which tests on DATA; omit one of them")
    result = (_training.evaluate_progressively if options.progressive else _training.evaluate_in_batches)(options)
    if options.report is not None:
        write_report(options.report, result, title=options.data.name, command=given.command_line())
    write_result({"data": str(options.data), "result": result.as_dict()}, result_tables(result), options.json)


@command(
    app,
    *APPLYING,
    count("-k", "Number of labels per row (default: one class, or all predicted labels).", "K"),
    flag("--json", "Write one JSON object per row."),
    flag("--csv", "Write a CSV table: row, rank, label and score."),
)
def query(options: Options) -> None:
    """Predict the best labels of each row of a data file, with their scores.

    The data is read with the same options as the training data, and its labels are ignored. Rows are numbered from 0.

    ```sh
    cmt-numba query new.svm --model my.cmt
    cmt-numba query new.svm --model my.cmt -k 5 --json > answers.jsonl
    ```
    """
    from ._query import answers, open_rows, write_answers

    if options.json and options.csv:
        raise ValueError("--json and --csv cannot be combined; choose one")
    with open_rows(options) as (model, rows, file):
        write_answers(answers(model, rows, options.k), file, options)


@command(
    app,
    *APPLYING,
    flag("--probabilities", "Add the class's probability, after a tab."),
    option(
        "--reject-below",
        "Write an empty class (-1 among numbers) if its probability is lower.",
        "P",
        type=click.FloatRange(0.0, 1.0),
    ),
    flag("--explain", "Add the features that support the class, after a tab."),
)
def predict(options: Options) -> None:
    """Predict the label of each row of a data file.

    The output has one line per row, with several labels separated by commas. The data is read with the same options as
    the training data, and its labels are ignored.

    ```sh
    cmt-numba predict new.svm --model my.cmt > labels.txt
    cmt-numba predict new.csv --model news.cmt --probabilities --reject-below 0.5 --explain
    ```
    """
    from ._query import open_rows, write_predictions

    with open_rows(options) as (model, rows, file):
        write_predictions(model, rows, file, options)


@command(
    app,
    argument("store", metavar="STORE"),
    click.argument("words", metavar="WORDS...", nargs=-1, required=True),
    count("-k", "Number of memories to print.", "K", default=10),
    option("--where", 'Filter on payload fields, such as \'{"year": {"gte": 2020}}\'.', "JSON"),
    flag("--json", "Print one JSON object per memory."),
)
def search(options: Options) -> None:
    """Search the texts of STORE, the folder or file of a MemoryStore, by words, and print the best memories.

    ```sh
    cmt-numba search notes what does E17 mean
    cmt-numba search notes router -k 3 --where '{"year": {"gte": 2020}}' --json
    ```
    """
    from ..store import MemoryStore

    store, words = options.store, " ".join(options.words)
    if not store.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(store))
    wanted = None if options.where is None else _filter_of(options.where)
    with MemoryStore.load(store) if store.is_file() else MemoryStore(store, read_only=True) as opened:
        found = [result._asdict() for result in opened.query(texts=words, k=options.k, where=wanted)[0]]
    if options.json:
        for result in found:
            print(to_json_text(result))
    elif found:
        show_table(ResultTable.of_records(f"{store}: {words}", found))


def _filter_of(where: str) -> dict[str, Any]:
    try:
        found = json.loads(where)
    except ValueError as error:
        raise ValueError(f"--where must be JSON: {error}") from error
    if not isinstance(found, dict):
        raise TypeError(f'--where must be a JSON object such as {{"year": 2020}}, got {where:.50}')
    return found


@command(app, given.DATA, given.MODEL, given.FORMAT, given.PROGRESS, given.batch_size(default=10_000))
def update(options: Options) -> None:
    """Train a model further on the rows of a data file, which may have new classes, and save it.

    The data is read with the same options as the training data.

    ```sh
    cmt-numba update more.svm --model my.cmt
    ```
    """
    from ._query import learn_more

    n_rows = learn_more(options)
    show_table(ResultTable.of_pairs(f"Written to {options.model}", [("new rows", n_rows)]), err=True)


@command(app, *READING, flag("--json", "Print JSON."))
def info(options: Options) -> None:
    """Describe a model, or the rows and labels of a data file.

    ```sh
    cmt-numba info train.svm
    cmt-numba info my.cmt --json
    ```
    """
    is_model = False
    if options.data.is_file():
        with options.data.open("rb") as file:
            is_model = file.read(len(MAGIC)) == MAGIC
    described: dict[str, dict[str, Any]]
    if is_model:
        from ..evaluation import to_json
        from ._models import describe_model, load_model

        described = to_json(describe_model(load_model(options.data)))
    else:
        from ._data import describe_data

        described = {"data": describe_data(options)}
    if options.json:
        print(to_json_text(described, indent=2))
        return
    for name, pairs in described.items():
        show_table(ResultTable.of_pairs(f"{options.data}: {name}", pairs.items()))


@command(
    app,
    click.argument("kinds", metavar="[KIND]...", nargs=-1, type=click.Choice(given.WARMUP_KINDS)),
    count("--jobs", "Number of processes (default: one per processor)."),
    given.PROGRESS,
)
def warmup(options: Options) -> None:
    """Compile kernels ahead of time, for example when building a container image.

    KIND is a part of the package: tree, store, classifier, multilabel, retriever, bandit, text or sequences (default:
    all).

    ```sh
    cmt-numba warmup
    cmt-numba warmup classifier --jobs 2
    ```
    """
    from .. import warmup

    warmup(options.kinds or given.WARMUP_KINDS, n_jobs=options.jobs, progress=options.progress)
