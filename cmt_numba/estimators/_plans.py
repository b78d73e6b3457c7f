"""Which labels are looked at for a row: all of them, those of similar scorers, or candidates that trees and index find.

The plan depends on the number of labels and on the user's settings, never on the rows, so a row's answer does not
depend on its batch. What products need besides the head is laid out once and kept, beside the estimator and not in it:
it is no part of what it has learned, and files and copies do without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from .._forest.rows import as_matrix
from .._heads.examples import all_examples
from .._heads.index_search import LabelBounds, label_bounds
from .._heads.inference_weights import Digest
from .._heads.label_scorers import Head
from .._heads.landmarks import ROWS_ASKED, ScorerLists, dense_scorers, listed, scaled, vectors_of
from .._heads.products import AllScorers, all_scorers

if TYPE_CHECKING:
    from ..tree import ContextualMemoryTree
    from ._label_forest import LabelForest

MOST_SCORED = 8192
"""Labels that are all scored for dense rows."""

MOST_SCORED_SPARSE = 1024
"""Labels that are all scored for sparse rows, for which searches are cheaper."""

_GROWN: WeakKeyDictionary[LabelForest, tuple[ContextualMemoryTree, ContextualMemoryTree]] = WeakKeyDictionary()
_LAID_OUT: WeakKeyDictionary[LabelForest, tuple[Digest, AllScorers | ScorerLists | None]] = WeakKeyDictionary()
_BOUNDED: WeakKeyDictionary[LabelForest, tuple[Digest, LabelBounds]] = WeakKeyDictionary()


def scorers_laid_out(forest: LabelForest, *, for_one: bool = False) -> AllScorers | None:
    """Return the scorers of all labels for products, or None if there are none that are worth a product.

    Those of a dense head are read where they are, beside what they learn with. ``for_one`` says that there is a single
    row, of which it takes twice as long: then they are copied.
    """
    head = forest.head_
    if head.parameters.sparse:
        laid_out = _kept(forest, partial(all_scorers, head))
    elif for_one and head.digest.halves.shape[0] == forest.forest_.n_memories:
        laid_out = _kept(forest, partial(_without_gaps, head))
    else:
        laid_out = all_scorers(head)
    return laid_out if isinstance(laid_out, AllScorers) else None


def _without_gaps(head: Head) -> AllScorers | None:
    scorers = all_scorers(head)
    return None if scorers is None else scorers._replace(weights=np.ascontiguousarray(scorers.weights.T).T)


def trees_laid_out(forest: LabelForest) -> ContextualMemoryTree:
    """Return trees over the labels of an estimator that has learned without trees."""
    kept = _GROWN.get(forest)
    if kept is None or kept[0] is not forest.forest_:
        kept = _GROWN[forest] = forest.forest_, forest._grown_forest()
    return kept[1]


def lists_laid_out(forest: LabelForest) -> ScorerLists | None:
    """Return the scorers of a dense head in lists, or None if it has learned since it was made ready to be read."""
    if forest.head_.digest.halves.shape[0] != forest.forest_.n_memories:
        return None
    laid_out = _kept(forest, partial(_in_lists, forest))
    return laid_out if isinstance(laid_out, ScorerLists) else None


def _in_lists(forest: LabelForest) -> ScorerLists:
    """Return the lists of a head, made for rows like the examples; without these, for rows like the scorers."""
    scorers, rng = dense_scorers(forest.head_), np.random.default_rng(1)  # others than landmarks begin with
    examples = getattr(forest, "examples_", None)
    if examples is None:
        own = np.sort(rng.permutation(forest.forest_.n_memories)[:ROWS_ASKED])
        return listed(scorers, scaled(vectors_of(scorers, forest.head_.parameters.n_features)[own]), own)
    rows, labels = all_examples(examples)
    some = np.sort(rng.permutation(rows.n_rows)[:ROWS_ASKED])
    return listed(scorers, as_matrix(rows.take(some)), labels[some])


def bounds_laid_out(forest: LabelForest) -> LabelBounds:
    """Return the bounds of the labels of a sparse head all of whose weights its index lists."""
    head, kept = forest.head_, _BOUNDED.get(forest)
    if kept is None or kept[0] is not head.digest:
        biases = np.ascontiguousarray(head.nodes[0, : forest.forest_.n_memories]["bias"])
        kept = _BOUNDED[forest] = head.digest, label_bounds(head.postings, biases)
    return kept[1]


def lay_out_like(other: LabelForest, forest: LabelForest) -> None:
    """Lay out for one forest what has been laid out for another."""
    if other in _LAID_OUT and forest.forest_.n_memories > 0:
        forest._all_scorers(1)
        forest._lists()
    if other in _BOUNDED and forest.forest_.n_memories > 0 and forest._lists_best(1):
        bounds_laid_out(forest)


def hand_over(other: LabelForest, forest: LabelForest) -> None:
    """Keep for one forest what is laid out for another, which has the same head."""
    if other in _LAID_OUT:
        _LAID_OUT[forest] = _LAID_OUT[other]
    if other in _BOUNDED:
        _BOUNDED[forest] = _BOUNDED[other]


def _kept(
    forest: LabelForest, lay_out: Callable[[], AllScorers | ScorerLists | None]
) -> AllScorers | ScorerLists | None:
    """Return what was laid out for the head's digest, or lay it out: scorers that changed have another digest."""
    digest, kept = forest.head_.digest, _LAID_OUT.get(forest)
    if kept is None or kept[0] is not digest:
        kept = _LAID_OUT[forest] = digest, lay_out()
    return kept[1]
