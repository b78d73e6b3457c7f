"""Opening and reading of data files with progress bars, and their descriptions. This module is fast to import."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse

from ..formats import Batch, ReadOptions, Source, TableSource, kinds_of, open_data
from ._options import Options
from ._output import print_note


def open_source(given: Options, *, in_batches: bool) -> Source:
    """Open a data file.

    Its tables become frames whose columns have kinds, or texts. ``in_batches``, they become arrays of numbers, or
    hashed words. Raise ValueError if options name columns, but the format of the file has none.
    """
    if given.kind and given.text:
        raise ValueError("--kind cannot be combined with --text; write --kind COLUMN=text instead of --text COLUMN")
    if given.kind and in_batches:
        raise ValueError("--kind cannot be combined with --streaming or --progressive; omit one of them")
    options = ReadOptions(
        format=given.format,
        task=given.task,
        n_features=given.features,
        label=given.label,
        ignore=given.ignore,
        labels_file=None if given.labels is None else str(given.labels),
    )
    source = open_data(given.data, options)
    for name in ("label", "text", "ignore", "kind"):
        if getattr(given, name) and not isinstance(source, TableSource):
            raise ValueError(f"--{name} names a column, but {given.data} has the format {source.format}; omit it")
    n_bits = given.bits if in_batches or not isinstance(source, TableSource) else None
    kinds = None if in_batches or given.text else given.kind
    return open_data(given.data, options, text=given.text, n_bits=n_bits, kinds=kinds)


@contextmanager
def _progress_bar(source: Source, name: str, progress: bool | None, *, leave: bool = False) -> Iterator[Any]:
    """Show the position in a file while it is read; by default only on a terminal."""
    from tqdm import tqdm

    hidden = None if progress is None else not progress  # with None, tqdm shows the bar only on a terminal
    options: Any = {"unit": "B", "unit_scale": True, "disable": hidden, "leave": leave, "file": sys.stderr}
    with tqdm(total=source.extent, desc=name, **options) as bar:
        source.watch = lambda position: bar.update(position - bar.n)
        yield bar


def scan(source: Source, progress: bool | None) -> ReadOptions:
    """Resolve the options of a source, with a progress bar, and return them."""
    with _progress_bar(source, "scanning", progress):
        return source.resolved()


def read_all(source: Source, progress: bool | None) -> Batch:
    """Read all rows of a source, with a progress bar, and return them."""
    with _progress_bar(source, "reading", progress):
        return source.read()


def read_batches(
    source: Source,
    size: int | Callable[[int], int],
    name: str,
    progress: bool | None,
    measures: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Batch]:
    """Yield batches of rows, with a progress bar that also shows ``measures``, which the caller may change."""
    n_rows = 0
    with _progress_bar(source, name, progress, leave=True) as bar:
        for batch in source.batches(size):
            yield batch
            n_rows += batch.X.shape[0]
            bar.set_postfix({**measures, "rows": f"{n_rows:,}"})


def _listed_kinds(options: ReadOptions) -> str:
    kinds = [f"{name} ({kind})" for name, kind in kinds_of(options.kinds or ()).items()]
    return ", ".join([*kinds, f"{options.label} (label)"])


def show_kinds(options: ReadOptions) -> None:
    """Print the column kinds of a table, and suggest the option for columns of texts."""
    ignored = f" Ignored: {', '.join(options.ignore)}." if options.ignore else ""
    print_note(f"Columns: {_listed_kinds(options)}. Use --kind COLUMN=KIND to change a kind.{ignored}")
    _suggest_text(options)


def _suggest_text(options: ReadOptions) -> None:
    texts = [f"--text {name}" for name, kind in kinds_of(options.kinds or ()).items() if kind == "text"]
    if texts and options.task == "multiclass":
        print_note(f"Try {' '.join(texts)}: it trains a text classifier, usually better if the texts decide the class.")


def describe_data(given: Options) -> dict[str, Any]:
    """Return statistics of the rows and labels of a file, computed in one pass."""
    source = open_source(given, in_batches=bool(given.text))
    options = scan(source, given.progress)
    counts: Counter[Any] = Counter()
    n_rows = n_cells = n_features = n_empty = 0
    sparse = False
    for X, y in read_batches(source, 1000, "reading", given.progress):
        n_rows += X.shape[0]
        n_features, sparse = X.shape[1], scipy.sparse.issparse(X)
        n_cells += X.count_nonzero() if sparse else int(np.count_nonzero(X))
        if scipy.sparse.issparse(y):
            n_empty += int(np.count_nonzero(np.diff(y.indptr) == 0))
        counts.update((y.indices if scipy.sparse.issparse(y) else y).tolist())
    most, n_most = next(iter(counts.most_common(1)), (None, None))
    if options.label_names and most is not None:
        most = options.label_names[most]
    several = options.task == "multilabel"
    one = "label" if several else "class"
    described = {
        "format": options.format,
        "task": options.task,
        "rows": n_rows,
        "features": n_features,
        "sparse": sparse,
        "features per row": n_cells / n_rows,
        "density": n_cells / (n_rows * n_features),
        "labels" if several else "classes": len(counts),
        f"examples per {one}, mean": counts.total() / len(counts) if counts else None,
        f"examples per {one}, median": float(np.median(list(counts.values()))) if counts else None,
        f"most frequent {one}": None if most is None else str(most),
        f"examples of that {one}": n_most,
    }
    if several:
        described |= {"labels per row": counts.total() / n_rows, "rows without labels": n_empty}
    if options.kinds:
        described["columns"] = _listed_kinds(options)
        _suggest_text(options)
    return described
