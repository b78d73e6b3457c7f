"""Options of the commands, as dataclasses, and functions that apply them."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, CallbackParam, Context, Option

if TYPE_CHECKING:
    from ..formats import ReadOptions, Source

Format = StrEnum("Format", "svmlight xc vw csv jsonl parquet npz")
WarmupKind = StrEnum("WarmupKind", "tree store classifier multilabel retriever bandit text sequences")
Task = StrEnum("Task", "multiclass multilabel")
TextKeys = StrEnum("TextKeys", "words characters bm25 subword")  # tf-idf of words or characters, or another vectorizer
RivalName = StrEnum("RivalName", "majority exact means linear bm25")  # see :class:`cmt_numba.evaluation.Rival`

WORDS = "cmt_numba.words"  # key of the command-line arguments in a command's context


def option(help_text: str, metavar: str | None = None, default: Any = None, flags: str = "", **settings: Any) -> Any:
    """Return the description of an option, a field of a dataclass. By default, its flag is the name of the field."""
    described = {"flags": flags, "help": help_text, "metavar": metavar, "callback": _checked, **settings}
    return field(default=default, metadata=described)


def _checked(param: CallbackParam, value: Any) -> Any:
    """Raise ValueError for an option in the place of another option's value, as in ``--text --model my.cmt``."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str | Path) and str(one).startswith("--"):
            raise ValueError(f"{param.opts[0]} requires a value, but is followed by {one}")
    return value


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Offer the options of a command by Typer: parameters with :func:`option` as default, and fields of dataclasses."""
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            hints: Any = get_type_hints(parameter.annotation)
            parameters += [_parameter(one.name, one, hints[one.name]) for one in fields(parameter.annotation)]
        elif isinstance(parameter.default, Field):
            parameters.append(_parameter(name, parameter.default, parameter.annotation))
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**given: Any) -> None:
        objects = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **objects)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _parameter(name: str, described: Field[Any], kind: Any) -> Parameter:
    """Return a parameter of a command for an option."""
    settings = dict(described.metadata)
    flags = settings.pop("flags") or "--" + name.replace("_", "-")
    annotated: Any = Annotated
    default = Parameter.empty if described.default is MISSING else described.default
    annotation = annotated[kind, Option(*flags.split(), **settings)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def command_line(ctx: Context) -> str:
    """Return the command line of a running command."""
    return shlex.join(["cmt-numba", *ctx.meta[WORDS]])


_reading = partial(option, rich_help_panel="Reading options")
_learning = partial(option, rich_help_panel="Training options")
_model = partial(option, metavar="FILE", default=MISSING, flags="--model -m")
_format = _reading("Format of the file (default: detected from its name or first line).")
progress_option = option("Show a progress bar (default: only on a terminal).", flags="--progress/--no-progress")
_batch_size = partial(option, "Maximum number of rows per batch.", "N", min=1)
json_option = option("Write the result as JSON to a file, or to standard output (-).", "FILE")
report_option = option("Write an HTML report with plots.", "FILE")
seed_option = _learning("Random seed.", "N", 0, min=0)

Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="Data file: svmlight (.svm), Extreme Classification Repository (.xc), Vowpal Wabbit (.vw), .csv, .tsv, "
        ".jsonl, .parquet (or a folder of Parquet files) or .npz. Text files may be compressed (.gz).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options for reading a data file."""

    format: Format | None = _format
    task: Task | None = _reading("Task (default: multilabel if a row has several labels or, in svmlight, none).")
    features: int | None = _reading("Number of features of sparse data. Saves a pass over the file.", "N", min=1)
    bits: int = _reading("Hash words and feature names into 2**BITS features.", "BITS", 18, min=1, max=30)
    label: str | None = _reading("Label column of a table (default: 'label', or else the last column).", "COLUMN")
    text: list[str] | None = _reading(
        "Text column of a table; other columns are then ignored. May be repeated.", "COLUMN"
    )
    kind: list[str] | None = _reading(
        "Kind of a table column: text, category or number (default: detected from its values). May be repeated.",
        "COLUMN=KIND",
    )
    ignore: list[str] | None = _reading("Column of a table to ignore. May be repeated.", "COLUMN")
    labels: Path | None = _reading("File with labels of a scipy.sparse matrix.", "FILE")
    progress: bool | None = progress_option

    def open(self, data: Path, *, with_kinds: bool) -> Source:
        """Open a data file. Without ``with_kinds``, tables become arrays of numbers and hashed words.

        Raise ValueError if options name columns, but the format of the file has none.
        """
        from ..formats import ReadOptions, TableSource, open_data

        if self.kind and self.text:
            raise ValueError("--kind cannot be combined with --text; write --kind COLUMN=text instead of --text COLUMN")
        if self.kind and not with_kinds:
            raise ValueError("--kind cannot be combined with --streaming or --progressive; omit one of them")
        options = ReadOptions(
            format=self.format,
            task=self.task,
            n_features=self.features,
            n_bits=self.bits,
            label=self.label,
            text=tuple(self.text or ()),
            ignore=tuple(self.ignore or ()),
            labels_file=None if self.labels is None else str(self.labels),
            kinds=tuple(self.kind or ()) if with_kinds and not self.text else None,
        )
        source = open_data(data, options)
        for name in ("label", "text", "ignore"):
            if getattr(self, name) is not None and not isinstance(source, TableSource):
                raise ValueError(f"--{name} names a column, but {data} has the format {source.format}; omit it")
        return source


@dataclass(frozen=True, kw_only=True)
class InfoOptions(ReadingOptions):
    """Options of ``cmt-numba info``."""

    json: bool = option("Print JSON.", default=False)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(ReadingOptions):
    """Options for reading a data file and training a classifier on it."""

    passes: int | None = _learning("Maximum number of training passes (default: depends on the loss).", "N", min=1)
    set: list[str] | None = _learning(
        "Another parameter of CMTClassifier or CMTMultilabelClassifier, such as aggressiveness=0.3. May be repeated.",
        "NAME=VALUE",
    )
    jobs: int = _learning("Number of threads. -1 uses all processors.", "N", 1)
    seed: int = seed_option

    def estimator(self, options: ReadOptions, *, streaming: bool = False, keys: TextKeys | None = None) -> Any:
        """Return an unfitted estimator for data that is read with ``options``.

        Texts without ``keys`` get a TextClassifier. Tables with numbers or categories get the logistic loss: their
        classes overlap more than classes of texts.
        """
        from .. import CMTClassifier, CMTMultilabelClassifier
        from ..text import TextClassifier

        if options.as_text and keys is None:
            for name in ("passes", "set"):
                if getattr(self, name) is not None:
                    raise ValueError(f"--{name} cannot be combined with --text; omit it, or use fit --keys")
            return TextClassifier(random_state=self.seed)
        estimator: Any = CMTMultilabelClassifier()
        if options.task != "multilabel":
            mixed = any(not column.endswith("=text") for column in options.kinds or ())
            estimator = CMTClassifier(loss="logistic") if mixed else CMTClassifier()
        estimator.set_params(store_examples=not streaming, n_jobs=self.jobs, random_state=self.seed)
        if self.passes is not None:
            estimator.set_params(n_head_passes=self.passes)
        known = estimator.get_params()
        for setting in self.set or []:
            name, equals, text = setting.partition("=")
            if name not in known or not equals:
                raise ValueError(f"--set must be NAME=VALUE, got {setting!r}, NAME one of {', '.join(sorted(known))}")
            estimator.set_params(**{name: _value(text)})
        return estimator


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions):
    """Options of ``cmt-numba fit``."""

    model: Path = _model("Model file to write.")
    keys: TextKeys | None = _reading(
        "Features of the text columns, which are saved in the model: tf-idf of words or characters, BM25, or subword "
        "vectors (default: a text classifier without such features).",
    )
    streaming: bool = option("Train in batches, for a file larger than memory.", default=False)
    batch_size: int = _batch_size(default=10_000)
    holdout: float | None = option(
        "Fraction of rows on which to test a preliminary model (default: 0.1). The saved model learns all rows. "
        "0 skips the test.",
        "SHARE",
        min=0.0,
        max=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(TrainingOptions):
    """Options of ``cmt-numba evaluate``."""

    test: Path | None = option("Data file with test rows.", "FILE")
    test_labels: Path | None = option("File with the labels of the test rows in a scipy.sparse matrix.", "FILE")
    progressive: bool = option(
        "Either predict each row before learning it, in one pass over the file, or train on some rows and test on the "
        "other rows.",
        default=False,
        flags="--progressive/--batch",
    )
    seeds: int = option("Number of --batch runs, with different seeds.", "N", 3, min=1)
    ray: str | None = option(
        "Run --batch on Ray: the address of a cluster, or local for this machine.", "ADDRESS|local"
    )
    holdout: float = option("Fraction of rows to test on, without --test.", "SHARE", 0.2)
    batch_size: int = _batch_size(default=1000)
    without: list[RivalName] | None = option(
        f"Rival to omit from the --batch comparison: {', '.join(RivalName)}. May be repeated.", "RIVAL"
    )
    json: Path | None = json_option
    report: Path | None = report_option


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options for reading a data file for a model."""

    model: Path = _model("Model file.")
    format: Format | None = _format
    progress: bool | None = progress_option


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(ModelOptions):
    """Options of ``cmt-numba update``."""

    batch_size: int = _batch_size(default=10_000)


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(ModelOptions):
    """Options for predicting the rows of a data file."""

    output: Path = option("Output file, or - for standard output.", "FILE", Path("-"), flags="--output -o")
    batch_size: int = _batch_size(default=1000)


@dataclass(frozen=True, kw_only=True)
class QueryOptions(PredictionOptions):
    """Options of ``cmt-numba query``."""

    k: int | None = option(
        "Number of labels per row (default: one class, or all predicted labels).", "K", flags="-k", min=1
    )
    json: bool = option("Write one JSON object per row.", default=False)
    csv: bool = option("Write a CSV table: row, rank, label and score.", default=False)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictionOptions):
    """Options of ``cmt-numba predict``."""

    probabilities: bool = option("Add the class's probability, after a tab.", default=False)
    reject_below: float | None = option(
        "Write an empty class (-1 among numbers) if its probability is lower, because the row may belong to none of "
        "the classes.",
        "P",
        min=0.0,
        max=1.0,
    )
    explain: bool = option("Add the features that support the class, after a tab.", default=False)
