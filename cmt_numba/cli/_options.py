"""Options shared by several commands, and functions that apply them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

if TYPE_CHECKING:
    from ..formats import ReadOptions, Source

Format = StrEnum("Format", "svmlight xc vw csv jsonl parquet npz")
WarmupKind = StrEnum("WarmupKind", "tree store classifier multilabel retriever bandit text sequences")
Task = StrEnum("Task", "multiclass multilabel")
TextKeys = StrEnum("TextKeys", "words characters bm25 subword")  # tf-idf of words or characters, or another vectorizer
RivalName = StrEnum("RivalName", "majority exact means linear bm25")  # see :class:`cmt_numba.evaluation.Rival`

WORDS = "cmt_numba.words"  # key of the command-line arguments in a command's context


def option(flag: str, help_text: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return the description of an option for Typer."""
    return Option(flag, help=help_text, metavar=metavar, **settings)


_reading = partial(option, rich_help_panel="Reading options")
_learning = partial(option, rich_help_panel="Training options")

Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="Data file: svmlight (.svm), Extreme Classification Repository (.xc), Vowpal Wabbit (.vw), .csv, .tsv, "
        ".jsonl, .parquet (or a folder of Parquet files) or .npz. Text files may be compressed (.gz).",
    ),
]
ModelToAsk = Annotated[Path, Option("--model", "-m", metavar="FILE", help="Model file.")]
Output = Annotated[Path, Option("--output", "-o", metavar="FILE", help="Output file, or - for standard output.")]
FormatOption = Annotated[
    Format | None, _reading("--format", "Format of the file (default: detected from its name or first line).")
]
KeysOption = Annotated[
    TextKeys | None,
    _reading(
        "--keys",
        "Features of the text columns, which are saved in the model: tf-idf of words or characters, BM25, "
        "subword vectors, or words with learned vectors (default: a text classifier without such features).",
    ),
]
Seed = Annotated[int, _learning("--seed", "Random seed.", "N", min=0)]
Progress = Annotated[
    bool | None, option("--progress/--no-progress", "Show a progress bar (default: only on a terminal).")
]
BatchRows = Annotated[int, option("--batch-size", "Maximum number of rows per batch.", "N", min=1)]
ReportFile = Annotated[Path | None, option("--report", "Write an HTML report with plots.", "FILE")]

Without = Annotated[
    list[RivalName] | None,
    option(
        "--without", f"Rival to omit from the --batch comparison: {', '.join(RivalName)}. May be repeated.", "RIVAL"
    ),
]

JsonFile = Annotated[
    Path | None, option("--json", "Write the result as JSON to a file, or to standard output (-).", "FILE")
]


@dataclass(frozen=True)
class ReadingOptions:
    """Options for reading a data file."""

    data_format: FormatOption = None
    task: Annotated[
        Task | None, _reading("--task", "Task (default: multilabel if a row has several labels or, in svmlight, none).")
    ] = None
    features: Annotated[
        int | None, _reading("--features", "Number of features of sparse data. Saves a pass over the file.", "N", min=1)
    ] = None
    bits: Annotated[
        int, _reading("--bits", "Hash words and feature names into 2**BITS features.", "BITS", min=1, max=30)
    ] = 18
    label: Annotated[
        str | None,
        _reading(
            "--label", "Label column of a table (default: 'label' or, if it does not exist, the last column).", "COLUMN"
        ),
    ] = None
    text: Annotated[
        list[str] | None,
        _reading("--text", "Text column of a table; other columns are then ignored. May be repeated.", "COLUMN"),
    ] = None
    kinds: Annotated[
        list[str] | None,
        _reading(
            "--kind",
            "Kind of a table column: text, category or number (default: detected from its values). May be repeated.",
            "COLUMN=KIND",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None, _reading("--ignore", "Column of a table to ignore. May be repeated.", "COLUMN")
    ] = None
    labels: Annotated[Path | None, _reading("--labels", "File with labels of a scipy.sparse matrix.", "FILE")] = None

    def open(self, data: Path, *, with_kinds: bool, as_text: bool = False) -> Source:
        """Open a data file. Raise ValueError if options name columns, but its format has none."""
        from ..formats import TableSource, open_data

        options = self._options(with_kinds=with_kinds)
        source = open_data(data, options)
        for name in ("label", "text", "ignore"):
            if getattr(self, name) is not None and not isinstance(source, TableSource):
                raise ValueError(f"--{name} names a column, but {data} has the format {source.format}; omit it")
        return open_data(data, replace(options, as_text=True)) if as_text else source

    def _options(self, *, with_kinds: bool) -> ReadOptions:
        """Return the options for a source. Without ``with_kinds``, tables become arrays of numbers and hashed words."""
        from ..formats import ReadOptions

        if self.kinds and self.text:
            raise ValueError("--kind cannot be combined with --text; write --kind COLUMN=text instead of --text COLUMN")
        if self.kinds and not with_kinds:
            raise ValueError("--kind cannot be combined with --streaming or --progressive; omit one of them")
        return ReadOptions(
            format=self.data_format,
            task=self.task,
            n_features=self.features,
            n_bits=self.bits,
            label=self.label,
            text=tuple(self.text or ()),
            ignore=tuple(self.ignore or ()),
            labels_file=None if self.labels is None else str(self.labels),
            kinds=tuple(self.kinds or ()) if with_kinds and not self.text else None,
        )


@dataclass(frozen=True)
class TrainingOptions:
    """Options for training a classifier."""

    trees: Annotated[
        int | None, _learning("--trees", "Number of trees (default: depends on the data).", "N", min=1)
    ] = None
    probes: Annotated[
        int | None, _learning("--probes", "Number of leaves to search (default: depends on the data).", "N", min=1)
    ] = None
    passes: Annotated[
        int | None,
        _learning(
            "--passes",
            "Number of training passes over the examples (default: 2 for routers, 5 for label scorers).",
            "N",
            min=1,
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        _learning(
            "--set",
            "Another parameter of CMTClassifier or CMTMultilabelClassifier, such as aggressiveness=0.3. May be "
            "repeated.",
            "NAME=VALUE",
        ),
    ] = None
    jobs: Annotated[int, _learning("--jobs", "Number of threads. -1 uses all processors.", "N")] = 1
    seed: Seed = 0

    def text_classifier(self) -> Any:
        """Return an unfitted :class:`TextClassifier`. Raise ValueError for an option that it does not have."""
        from ..text import TextClassifier

        for name in ("trees", "probes", "passes", "settings"):
            if getattr(self, name) is not None:
                option = "set" if name == "settings" else name
                raise ValueError(f"--{option} cannot be combined with --text; omit it, or use fit --keys")
        return TextClassifier(random_state=self.seed)

    def estimator(self, options: ReadOptions, *, streaming: bool) -> Any:
        """Return an unfitted estimator for data that is read with ``options``.

        Tables with numbers or categories get the logistic loss: their classes overlap more than classes of texts.
        """
        from .. import CMTClassifier, CMTMultilabelClassifier

        estimator: Any = CMTMultilabelClassifier()
        if options.task != "multilabel":
            mixed = any(not column.endswith("=text") for column in options.kinds or ())
            estimator = CMTClassifier(loss="logistic") if mixed else CMTClassifier()
        estimator.set_params(store_examples=not streaming, n_trees=self.trees, n_probes=self.probes)
        estimator.set_params(n_jobs=self.jobs, random_state=self.seed)
        if self.passes is not None:
            estimator.set_params(n_router_passes=self.passes, n_head_passes=self.passes)
        known = estimator.get_params()
        for setting in self.settings or []:
            name, equals, text = setting.partition("=")
            if name not in known or not equals:
                raise ValueError(f"--set must be NAME=VALUE, got {setting!r}, NAME one of {', '.join(sorted(known))}")
            estimator.set_params(**{name: _value(text)})
        return estimator


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a group of options by its fields, which Typer offers as options."""
    parameters: list[Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        if parameter.annotation in (ReadingOptions, TrainingOptions):
            groups[name] = parameter.annotation
            hints = get_type_hints(parameter.annotation, include_extras=True)
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
                for field in fields(parameter.annotation)
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**given: Any) -> None:
        objects = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **objects)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
