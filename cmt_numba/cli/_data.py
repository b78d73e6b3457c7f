"""Descriptions of data files. This module is fast to import."""

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse

from ..formats import ReadOptions, Source, kinds_of
from ._output import print_note, read_batches, scan


def listed_kinds(options: ReadOptions) -> str:
    """Return a line that lists the columns of a table with their kinds."""
    kinds = [f"{name} ({kind})" for name, kind in kinds_of(options.kinds or ()).items()]
    return ", ".join([*kinds, f"{options.label} (label)"])


def show_kinds(options: ReadOptions) -> None:
    """Print the column kinds of a table, if any, and suggest the option for columns of texts."""
    if options.kinds:
        ignored = f" Ignored: {', '.join(options.ignore)}." if options.ignore else ""
        print_note(f"Columns: {listed_kinds(options)}. Use --kind COLUMN=KIND to change a kind.{ignored}")
        suggest_text(options)


def suggest_text(options: ReadOptions) -> None:
    """Suggest a text classifier if a table has columns of texts."""
    texts = [f"--text {name}" for name, kind in kinds_of(options.kinds or ()).items() if kind == "text"]
    if texts and options.task == "multiclass":
        print_note(f"Try {' '.join(texts)}: it trains a text classifier, usually better if the texts decide the class.")


def describe_data(source: Source, progress: bool | None) -> dict[str, Any]:
    """Return statistics of the rows and labels of a file, computed in one pass."""
    options = scan(source, progress)
    counts: Counter[Any] = Counter()
    n_rows = n_cells = n_features = n_empty = 0
    sparse = False
    for X, y in read_batches(source, 1000, "reading", progress):
        n_rows += X.shape[0]
        n_features, sparse = X.shape[1], scipy.sparse.issparse(X)
        n_cells += X.count_nonzero() if sparse else int(np.count_nonzero(X))
        if scipy.sparse.issparse(y):
            n_empty += int(np.count_nonzero(np.diff(y.indptr) == 0))
        counts.update((y.indices if scipy.sparse.issparse(y) else y).tolist())
    most, n_most = next(iter(counts.most_common(1)), (None, None))
    several = options.task == "multilabel"
    one = "label" if several else "class"
    if options.label_names and most is not None:
        most = options.label_names[most]
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
        described["columns"] = listed_kinds(options)
        suggest_text(options)
    return described
