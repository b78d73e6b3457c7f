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
from .._forest.state import N_MEMORIES, NONE
from .._heads.examples import StoredExamples, draw_examples, some_examples
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
    examples: StoredExamples, n_new: int, competing: np.ndarray, generator: np.random.Generator
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return the newest ``n_new`` examples after others drawn from those before, and the labels and slots of all.

    Half of the others are drawn from all examples. The other half are drawn by how much labels compete, which is how
    often they are among those ``competing``: first one of these and then one of the label's examples. It takes time in
    proportion to what is drawn, however many examples and labels there are.
    """
    n = int(examples.keys.totals[N_MEMORIES])
    n_old = n - n_new
    drawn = np.empty(0, np.int64)
    if n_old > 0:
        half = _REPLAYED * n_new // 2
        of_all = generator.integers(n_old, size=half)
        of_competing = _drawn_by_label(examples, n_old, competing, half, generator)
        if of_competing.size == 0:  # no label that competes had come before: then all are drawn from all
            of_competing = generator.integers(n_old, size=half)
        drawn = np.unique(np.concatenate([of_all, of_competing]))
    slots = np.concatenate([drawn, np.arange(n_old, n)])
    return some_examples(examples, slots), examples.label_of[slots].astype(np.int64), slots


def _drawn_by_label(
    examples: StoredExamples, n_old: int, competing: np.ndarray, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the slots of ``size`` examples that came before slot ``n_old``, each of one of the labels; or none."""
    labels, slots = np.sort(competing), np.empty(competing.size, np.int64)
    draw_examples(examples.lists, labels, np.zeros(labels.size), n_old, slots)
    labels = labels[slots != NONE]  # others are new
    if labels.size == 0:
        return labels
    labels, slots = np.sort(generator.choice(labels, size)), np.empty(size, np.int64)
    draw_examples(examples.lists, labels, generator.random(size), n_old, slots)
    return slots


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
