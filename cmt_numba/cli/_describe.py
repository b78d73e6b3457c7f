"""Descriptions of data files and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ..evaluation import profile
from ..formats import Batch
from ._model_files import Model
from ._streams import Stream


def describe_data(batches: Stream, task: str | None) -> dict[str, Any]:
    """Return statistics of the rows and labels of a file, from a single pass."""
    n_cells = 0
    counts: dict[Any, int] = {}
    n_features, sparse, n_empty = 0, False, 0
    for batch in batches:
        n_features, sparse = batch.X.shape[1], scipy.sparse.issparse(batch.X)
        n_cells += batch.X.count_nonzero() if sparse else int(np.count_nonzero(batch.X))
        n_empty += _count_labels(batch, counts)
    n_labelled = sum(counts.values())
    most = max(counts, key=lambda label: counts[label]) if counts else None
    described = {
        "task": task,
        "rows": batches.n_rows,
        "features": n_features,
        "sparse": sparse,
        "features a row": n_cells / batches.n_rows,
        "density": n_cells / (batches.n_rows * n_features),
        "labels" if task == "multilabel" else "classes": len(counts),
        "examples of each, mean": n_labelled / len(counts) if counts else None,
        "examples of each, median": float(np.median(list(counts.values()))) if counts else None,
        "most frequent": None if most is None else str(most),
        "examples of the most frequent": None if most is None else counts[most],
    }
    if task == "multilabel":
        described |= {"labels a row": n_labelled / batches.n_rows, "rows without labels": n_empty}
    return described


def _count_labels(batch: Batch, counts: dict[Any, int]) -> int:
    """Add the labels of a batch to the counts, and return the number of rows without labels."""
    if batch.y is None:
        return 0
    sparse = scipy.sparse.issparse(batch.y)
    labels, n = np.unique(batch.y.indices if sparse else batch.y, return_counts=True)
    for label, count in zip(labels.tolist(), n.tolist(), strict=True):
        counts[label] = counts.get(label, 0) + count
    return int(np.count_nonzero(np.diff(batch.y.indptr) == 0)) if sparse else 0


def describe_model(model: Model) -> dict[str, dict[str, Any]]:
    """Return the type of a model, its parameters, and the shape of its trees."""
    estimator = model.estimator
    grown = estimator.forest_.n_memories > 0  # false if no example had a label
    return {
        "model": {
            "estimator": type(estimator).__name__,
            "version": model.version,
            "task": model.options.task,
            "format of the data": model.options.format,
            **({} if model.vectorizer is None else {"keys": type(model.vectorizer).__name__}),
            "features": int(estimator.n_features_in_),
            "classes": int(estimator.classes_.size),
        },
        "parameters": estimator.get_params(),
        "trees": profile(estimator).as_dict() if grown else {},
    }
