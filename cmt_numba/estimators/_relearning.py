"""When a classifier that learns online learns again from all examples that it has stored, and from what.

A head that learns in batches knows nothing of what its earlier examples asked for: each batch moves the scorers of the
labels that it competes with, and nothing takes back what is too much. So labels without new examples fade, and the
error stays above that of one ``fit``. Therefore a few earlier examples are learned again beside each new one, half of
them of labels that compete with the new ones, each from the dual variables that it had (``stored_duals.py``); and
whenever the number of examples has grown by a share, the head starts again from the means of all examples, and is
trained on all of them. The work for n examples, in any number of batches, is that of a constant number of passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse

from .._forest.rows import Rows, as_matrix
from .._forest.state import N_MEMORIES
from .._heads.examples import Examples
from .._heads.label_scorers import Head, new_head, with_labels
from .._validation import check_rows

PASSES_ONLINE = 2
"""Passes over a batch and the earlier examples beside it. More would fit the head to these few."""

_REPLAYED = 8  # earlier examples that are learned again beside each new one
_GROWTH = 0.25  # of the number of examples, after which all are learned again: so each is five times, on average
_FEWEST = 16  # new examples, below which the online steps do


def is_due(n_examples: int, n_learned: int) -> bool:
    """Return whether so many examples have come since all were learned last that they are to be learned again.

    Nothing is due as long as none have been learned.
    """
    return n_learned > 0 and n_examples - n_learned >= max(_FEWEST, _GROWTH * n_learned)


def replayed(
    examples: Examples, n_new: int, competing: np.ndarray, generator: np.random.Generator
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return the newest ``n_new`` examples after others drawn from those before, and the labels and slots of all.

    Half of the others are drawn from all labels, half by how much labels compete: numbers, shape (n_labels,).
    """
    keys, n, d = examples.keys, int(examples.keys.totals[N_MEMORIES]), examples.parameters.n_features
    n_old = n - n_new
    drawn = np.empty(0, np.int64)
    if n_old > 0:
        share = competing / np.maximum(1, np.bincount(examples.label_of[:n_old], minlength=competing.size))
        chances = share[examples.label_of[:n_old]]
        up_to = np.cumsum(chances + max(1.0, chances.sum()) / n_old)
        at = generator.random(_REPLAYED * n_new) * up_to[-1]
        drawn = np.minimum(np.unique(np.searchsorted(up_to, at, side="right")), n_old - 1)
    chosen = np.concatenate([drawn, np.arange(n_old, n)])
    labels = examples.label_of[chosen].astype(np.int64)
    if not examples.parameters.sparse:
        values = keys.values[: n * d].reshape(n, d)[chosen].reshape(-1)
        return Rows(values, keys.indices, np.arange(0, values.size + 1, d, dtype=np.int64), d, False), labels, chosen
    starts, lengths = keys.spans[chosen, 0], np.diff(keys.spans[chosen], axis=1)[:, 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    cells = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return Rows(keys.values[cells], keys.indices[cells], offsets, d, True), labels, chosen


@contextmanager
def former_head_on_failure(classifier: Any) -> Iterator[None]:
    """Give a classifier back the head that it has now, if what is done meanwhile fails or is interrupted.

    Its stored dual variables belong to the head.
    """
    before = classifier.head_, classifier._duals
    try:
        yield
    except BaseException:
        classifier.head_, classifier._duals = before
        raise


def head_of_means(head: Head, rows: Rows, labels: np.ndarray, weights: np.ndarray | None = None) -> Head:
    """Return a head like another one that has learned nothing but the mean example of each label."""
    means, lengths = means_of(rows, labels, np.arange(rows.n_rows), int(labels.max()) + 1, weights)
    return with_labels(new_head(head.parameters), means, lengths)


def means_of(
    rows: Rows, of_labels: np.ndarray, of_rows: np.ndarray, n_labels: int, weights: np.ndarray | None = None
) -> tuple[Rows, np.ndarray]:
    """Return the mean row of each label, scaled to length 1, and the length of their sum as float32.

    The entries of ``of_labels`` and ``of_rows`` say which row belongs to which label; rows count by their ``weights``.
    """
    shares = np.ones(of_rows.size, np.float32) if weights is None else weights[of_rows]
    members = scipy.sparse.csr_array((shares, (of_labels, of_rows)), (n_labels, rows.n_rows))
    sums = members @ as_matrix(rows)
    lengths = np.sqrt(np.asarray((sums * sums).sum(axis=1), np.float32))
    return check_rows(sums, sparse=rows.sparse), lengths
