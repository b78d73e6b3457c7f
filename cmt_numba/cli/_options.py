"""Options shared by several commands, and their conversion."""

from __future__ import annotations

import ast
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..formats import ReadOptions


class Format(StrEnum):
    """Formats of data files."""

    svmlight = "svmlight"
    xc = "xc"
    vw = "vw"
    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"
    npz = "npz"


class WarmupKind(StrEnum):
    """Kinds of objects to compile kernels for, see :func:`cmt_numba.warmup`."""

    tree = "tree"
    store = "store"
    classifier = "classifier"
    multilabel = "multilabel"
    retriever = "retriever"
    bandit = "bandit"
    text = "text"
    sequences = "sequences"


class TaskName(StrEnum):
    """Kinds of labels: one class per row, or any number of labels."""

    multiclass = "multiclass"
    multilabel = "multilabel"


class TextKeys(StrEnum):
    """Kinds of keys for texts: see :mod:`cmt_numba.text`, and TfidfVectorizer for words and characters."""

    words = "words"
    characters = "characters"
    bm25 = "bm25"
    subword = "subword"
    hybrid = "hybrid"


class RivalName(StrEnum):
    """Models to compare a result with, see :class:`cmt_numba.evaluation.Rival`."""

    majority = "majority"
    exact = "exact"
    means = "means"
    linear = "linear"
    bm25 = "bm25"


WORDS = "cmt_numba.words"
"""Key of the command line in the context of a command."""

_reading = partial(typer.Option, rich_help_panel="How to read the data")
_learning = partial(typer.Option, rich_help_panel="How to train")

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Data file: svmlight (.svm), Extreme Classification Repository (.xc), Vowpal Wabbit (.vw), .csv, .tsv, "
        ".jsonl, .parquet (or a folder of these) or .npz. Text may be compressed (.gz).",
    ),
]
ModelToAsk = Annotated[Path, typer.Option("--model", "-m", metavar="FILE", help="Model file.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Output file.")]
FormatOption = Annotated[
    Format | None, _reading("--format", help="Format of the file; by default determined from its name.")
]
TaskOption = Annotated[
    TaskName | None, _reading("--task", help="Task; by default multilabel if a row has several labels.")
]
Features = Annotated[
    int | None,
    _reading("--features", metavar="N", min=1, help="Number of features of sparse data; saves a pass over the file."),
]
Bits = Annotated[
    int,
    _reading("--bits", metavar="BITS", min=1, max=30, help="Hash words and names of features into 2**BITS features."),
]
Label = Annotated[
    str | None,
    _reading(
        "--label",
        metavar="COLUMN",
        help="Column of a table with the labels; by default 'label' or, if there is none, the last.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    _reading(
        "--kind",
        metavar="COLUMN=KIND",
        help="Kind of a column of a table: text, category or number; by default inferred from its values. "
        "May be repeated.",
    ),
]
Text = Annotated[
    list[str] | None,
    _reading("--text", metavar="COLUMN", help="Column of a table whose words are the features; may be repeated."),
]
KeysOption = Annotated[
    TextKeys | None,
    _reading(
        "--keys",
        help="Learn features of the text columns and save them in the model: tf-idf of words or of characters, BM25, "
        "vectors of words and their parts, or words and learned vectors. By default words are hashed and counted.",
    ),
]
Ignore = Annotated[
    list[str] | None, _reading("--ignore", metavar="COLUMN", help="Column of a table to ignore; may be repeated.")
]
Labels = Annotated[
    Path | None, _reading("--labels", metavar="FILE", help="File with the labels of a scipy.sparse matrix.")
]
Trees = Annotated[
    int | None, _learning("--trees", metavar="N", min=1, help="Number of trees; by default chosen from the data.")
]
Probes = Annotated[
    int | None,
    _learning("--probes", metavar="N", min=1, help="Number of leaves to search; by default chosen from the data."),
]
Passes = Annotated[
    int | None,
    _learning(
        "--passes", metavar="N", min=1, help="Passes over the examples for routers and head; by default 2 and 5."
    ),
]
Settings = Annotated[
    list[str] | None,
    _learning(
        "--set",
        metavar="NAME=VALUE",
        help="Any other parameter of CMTClassifier or CMTMultilabelClassifier, such as aggressiveness=0.3; may be "
        "repeated.",
    ),
]
Jobs = Annotated[int, _learning("--jobs", metavar="N", help="Number of threads; -1 uses all processors.")]
Seed = Annotated[int, _learning("--seed", metavar="N", min=0, help="Random seed.")]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar; by default only on a terminal.")
]
BatchRows = Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help="Largest number of rows per batch.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report with plots to this file.")
]

Without = Annotated[
    list[RivalName] | None,
    typer.Option(
        "--without", metavar="RIVAL", help=f"Omit a rival from the comparison of --batch: {', '.join(RivalName)}."
    ),
]

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON to a file, or to standard output with -."),
]


def read_options(
    data_format: Format | None,
    task: TaskName | None,
    features: int | None,
    bits: int,
    label: str | None,
    text: list[str] | None,
    ignore: list[str] | None,
    labels: Path | None,
    keys: TextKeys | None = None,
    kinds: list[str] | None = None,
    with_kinds: bool = False,
) -> ReadOptions:
    """Return the options for reading a file. With ``with_kinds`` and without ``text``, columns have kinds.

    Raises
    ------
    ValueError
        If there are no text columns to make keys of, or kinds that cannot be used.
    """
    from ..formats import ReadOptions

    if kinds and text:
        raise ValueError("--text makes every column text; to mix kinds of columns, write --kind COLUMN=text instead")
    if kinds and not with_kinds:
        raise ValueError("--kind needs all rows at once; omit --kind, or do not read in batches")

    if keys is not None and not text:
        raise ValueError(f"--keys {keys} needs columns of text: select them with --text")

    return ReadOptions(
        format=data_format,
        task=task,
        n_features=features,
        n_bits=bits,
        label=label,
        text=tuple(text or ()),
        ignore=tuple(ignore or ()),
        labels_file=None if labels is None else str(labels),
        as_text=keys is not None,
        kinds=tuple(kinds or ()) if with_kinds and not text else None,
    )


def new_estimator(
    options: ReadOptions,
    *,
    trees: int | None,
    probes: int | None,
    passes: int | None,
    settings: list[str] | None,
    jobs: int,
    seed: int,
    streaming: bool,
) -> Any:
    """Return an unfitted estimator for data that is read with these options.

    Classes in tables of numbers or categories overlap more than classes of texts, and the logistic loss handles overlap
    better.

    Raises
    ------
    ValueError
        If a setting is malformed or names an unknown parameter.
    """
    from .. import CMTClassifier, CMTMultilabelClassifier

    estimator: Any = CMTMultilabelClassifier()
    if options.task != "multilabel":
        mixed = any(not column.endswith("=text") for column in options.kinds or ())
        estimator = CMTClassifier(loss="logistic") if mixed else CMTClassifier()
    estimator.set_params(store_examples=not streaming, n_trees=trees, n_probes=probes, n_jobs=jobs, random_state=seed)
    if passes is not None:
        estimator.set_params(n_router_passes=passes, n_head_passes=passes)
    known = estimator.get_params()
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if name not in known or not equals:
            raise ValueError(
                f"--set must be NAME=VALUE, got {setting!r}; NAME must be one of {', '.join(sorted(known))}"
            )
        estimator.set_params(**{name: _value(text)})
    return estimator


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
