"""Which labels are looked at for a row: all of them, or candidates that are searched for.

The plan depends on the number of labels and on the user's settings, never on the rows, so a row's answer does not
depend on its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .._heads.inference_weights import Digest
from .._heads.products import AllScorers, all_scorers

if TYPE_CHECKING:
    from ._label_forest import LabelForest

MOST_SCORED = 8192
"""Labels that are all scored for dense rows."""

MOST_SCORED_SPARSE = 1024
"""Labels that are all scored for sparse rows, for which searches are cheaper."""

_LAID_OUT: WeakKeyDictionary[LabelForest, tuple[Digest, AllScorers | None]] = WeakKeyDictionary()


def scorers_laid_out(forest: LabelForest) -> AllScorers | None:
    """Return the scorers of all labels for products, or None if there are none that are worth a product.

    Those of sparse heads are laid out once and kept, beside the estimator and not in it: they are no part of what it
    has learned, and files and copies do without them.
    """
    head = forest.head_
    if not head.parameters.sparse:
        return all_scorers(head)
    kept = _LAID_OUT.get(forest)
    if kept is None or kept[0] is not head.digest:
        kept = _LAID_OUT[forest] = head.digest, all_scorers(head)
    return kept[1]
