"""Tables for the terminal, and descriptions of data files. This module is fast to import."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._display import ResultTable
from ..formats import Batch, ReadOptions, kinds_of
from ._outputs import printable
from ._streams import Stream


def show_pairs(console: Console, title: str, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print a table of names and values."""
    show_table(console, ResultTable.of_pairs(title, pairs))


def show_table(console: Console, table: ResultTable) -> None:
    """Print a table below its caption."""
    drawn = Table(*table.header, show_header=len(table.header) > 0)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(printable(table.caption), style="bold", highlight=False, markup=False, soft_wrap=True)
    console.print(drawn)


def show_kinds(options: ReadOptions, console: Console) -> None:
    """Print the column kinds of a table, if any."""
    if options.kinds:
        text = f"Columns: {listed_kinds(options)}. Use --kind COLUMN=KIND to change a kind."
        if options.ignore:
            text += f" Ignored: {', '.join(options.ignore)}."
        console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def listed_kinds(options: ReadOptions) -> str:
    """Return a line that lists the columns of a table with their kinds."""
    kinds = [f"{name} ({kind})" for name, kind in kinds_of(options.kinds or ()).items()]
    return ", ".join([*kinds, f"{options.label} (label)"])


def describe_data(batches: Stream, task: str | None) -> dict[str, Any]:
    """Return statistics of the rows and labels of a file, computed in one pass."""
    n_cells = 0
    counts: dict[Any, int] = {}
    n_features, sparse, n_empty = 0, False, 0
    for batch in batches:
        n_features, sparse = batch.X.shape[1], scipy.sparse.issparse(batch.X)
        n_cells += batch.X.count_nonzero() if sparse else int(np.count_nonzero(batch.X))
        n_empty += _count_labels(batch, counts)
    n_labelled = sum(counts.values())
    most = max(counts, key=lambda label: counts[label]) if counts else None
    one = "label" if task == "multilabel" else "class"
    described = {
        "task": task,
        "rows": batches.n_rows,
        "features": n_features,
        "sparse": sparse,
        "features per row": n_cells / batches.n_rows,
        "density": n_cells / (batches.n_rows * n_features),
        "labels" if task == "multilabel" else "classes": len(counts),
        f"examples per {one}, mean": n_labelled / len(counts) if counts else None,
        f"examples per {one}, median": float(np.median(list(counts.values()))) if counts else None,
        f"most frequent {one}": None if most is None else str(most),
        f"examples of that {one}": None if most is None else counts[most],
    }
    if task == "multilabel":
        described |= {"labels per row": n_labelled / batches.n_rows, "rows without labels": n_empty}
    return described


def _count_labels(batch: Batch, counts: dict[Any, int]) -> int:
    """Add the labels of a batch to ``counts``. Return the number of rows without labels."""
    if batch.y is None:
        return 0
    sparse = scipy.sparse.issparse(batch.y)
    labels, n = np.unique(batch.y.indices if sparse else batch.y, return_counts=True)
    for label, count in zip(labels.tolist(), n.tolist(), strict=True):
        counts[label] = counts.get(label, 0) + count
    return int(np.count_nonzero(np.diff(batch.y.indptr) == 0)) if sparse else 0
