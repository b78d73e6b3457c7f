"""Feature weights for sparse rows, which make rare features count more than frequent features.

In word counts, such as those of ``CountVectorizer`` and ``HashingVectorizer``, features that all classes share dominate
the mean of a class. Training on a few examples per class cannot correct this. Features are therefore weighted by their
inverse document frequency, unless the rows are weighted already. Rows of the package's own vectorizers say so
(``WeightedRows``). Values of other weighted rows grow with the rarity of features. If they grow a little, held-out
examples decide.
"""

from typing import NamedTuple

import numpy as np

from .._kernels import Rows, rescaled
from ._input import Factors

FEATURE_WEIGHTS = ("auto", "idf", "scale", "none")  # valid values of ``feature_weights``
MAX_WEIGHTED = 1 << 24  # maximum number of features for weighting. Their counts take 64 MB.
_FEWEST_ROWS = 16  # number of rows needed to decide whether rows are already weighted
_ROWS_LOOKED_AT = 2000
_MAX_DENSE = 0.1  # maximum fraction of nonzero cells; denser rows are tables or images, not bags of words
# Exponent of the inverse document frequency in values: about 0 for counts, 0.6 for BM25 and 0.9 for tf-idf.
_WEIGHTED, _IN_DOUBT = 0.4, (0.2, 0.55)
_MAX_FREQUENT = 0.5  # features of more rows are not compared; all rows may have one, such as a constant
_CUT_OFF = 0.9  # rows with less than this fraction of the usual number of features seem to lack some
_MIN_SPREAD = 1e-3  # smallest usable variance of the logarithm of the inverse document frequency


class FeatureWeights(NamedTuple):
    """Document frequencies, from which feature weights are computed."""

    counts: np.ndarray  # float32 (n_features,): total weight of the rows with each feature
    n_rows: float  # total weight of all rows
    is_used: bool  # whether to weight features; if not, they are only counted
    are_weighted: bool = False  # whether the first rows were marked as weighted already

    def of_features(self, features: np.ndarray) -> np.ndarray:
        """Return the smoothed inverse document frequency of some features, at least 1."""
        return 1.0 + np.log((1.0 + self.n_rows) / (1.0 + self.counts[features]))


def count_features(kind: str, rows: Rows, row_weights: Factors, *, are_weighted: bool) -> FeatureWeights | None:
    """Count the features of some rows. Return None if features are never weighted.

    ``kind`` is one of ``FEATURE_WEIGHTS``. With "auto", features are weighted if rows look like word counts: sparse,
    with values that do not grow with the rarity of features, and not ``are_weighted``, that is marked as weighted.
    """
    if kind in ("scale", "none") or not rows.sparse or rows.n_features > MAX_WEIGHTED:
        return None
    lengths = np.diff(rows.offsets)
    shares = None if row_weights is None else np.repeat(row_weights, lengths)
    counts = np.bincount(rows.indices, shares, rows.n_features).astype(np.float32)
    total = float(rows.n_rows if row_weights is None else row_weights.sum(dtype=np.float64))
    found = FeatureWeights(counts, total, is_used=True, are_weighted=are_weighted)
    return found if kind == "idf" else found._replace(is_used=not are_weighted and _are_counts(rows, found))


def add_counts(weights: FeatureWeights, kind: str, rows: Rows, row_weights: Factors) -> FeatureWeights:
    """Return feature weights that also count ``rows``. The array of counts is updated in place."""
    lengths = np.diff(rows.offsets)
    np.add.at(weights.counts, rows.indices, 1.0 if row_weights is None else np.repeat(row_weights, lengths))
    total = rows.n_rows if row_weights is None else row_weights.sum(dtype=np.float64)
    more = weights._replace(n_rows=weights.n_rows + float(total), is_used=True)
    if kind == "idf":
        return more
    # A few rows are not enough to decide whether rows are already weighted.
    is_decided = weights.are_weighted or weights.n_rows >= _FEWEST_ROWS
    return more._replace(is_used=weights.is_used if is_decided else _are_counts(rows, more))


def weigh(weights: FeatureWeights | None, rows: Rows) -> Rows:
    """Return rows with weighted features, scaled to unit length."""
    if weights is None or not weights.is_used:
        return rows
    values = rows.values * weights.of_features(rows.indices).astype(np.float32)
    return rescaled(rows._replace(values=values))


def seem_cut_off(weights: FeatureWeights, rows: Rows) -> bool:
    """Return whether rows of new classes have only known features, and fewer than earlier rows."""
    if rows.n_rows < _FEWEST_ROWS or (weights.counts[rows.indices] == 0.0).any():
        return False
    usual = float(weights.counts.sum(dtype=np.float64)) / weights.n_rows
    return rows.indices.size < _CUT_OFF * usual * rows.n_rows


def are_in_doubt(weights: FeatureWeights, rows: Rows) -> bool:
    """Return whether the values of rows do not show clearly whether their features are weighted."""
    if weights.are_weighted or not _may_be_counts(rows):
        return False
    return _IN_DOUBT[0] < _exponent_of_rarity(rows, weights) < _IN_DOUBT[1]


def _are_counts(rows: Rows, weights: FeatureWeights) -> bool:
    return _may_be_counts(rows) and _exponent_of_rarity(rows, weights) < _WEIGHTED


def _may_be_counts(rows: Rows) -> bool:
    return rows.n_rows >= _FEWEST_ROWS and rows.values.size <= _MAX_DENSE * rows.n_rows * rows.n_features


def _exponent_of_rarity(rows: Rows, weights: FeatureWeights) -> float:
    """Model values as a power of the inverse document frequency; return the exponent, or infinity if none fits.

    Least squares on logarithms, centered within each row because each row has its own scale, estimate the exponent.
    """
    some = rows.take(np.arange(0, rows.n_rows, -(-rows.n_rows // _ROWS_LOOKED_AT)))
    of_rows = np.repeat(np.arange(some.n_rows), np.diff(some.offsets))
    compared = (some.values != 0.0) & (weights.counts[some.indices] <= _MAX_FREQUENT * weights.n_rows)
    of_rows, values, features = of_rows[compared], np.abs(some.values[compared]), some.indices[compared]
    rarity, size = np.log(weights.of_features(features)), np.log(values.astype(np.float64))
    n_cells = np.maximum(np.bincount(of_rows, minlength=some.n_rows), 1)
    for logarithms in (rarity, size):
        logarithms -= (np.bincount(of_rows, logarithms, some.n_rows) / n_cells)[of_rows]
    spread = float(rarity @ rarity)
    return float(rarity @ size) / spread if spread > _MIN_SPREAD * max(1, rarity.size) else np.inf
