"""Standardised features of dense rows, with an intercept.

Scorers are trained on rows of unit length. In a table, features with large values or a large mean would dominate such
rows, and a row could not say how large it was. Features are therefore centered and divided by their standard deviation,
and a constant feature, whose weight is the intercept, is appended.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .._heads import Head, HeadLoss, dense_parts
from .._kernels import Rows, kind_of, standardize_rows
from .._validation import check_rows, refuse_row, unmasked
from ._input import Factors
from ._neighbors import lengths_unless_unit

FEWEST_ROWS, FEWEST_OF_A_CLASS = 16, 5  # rows, in all and on average for each class, needed to measure scales
# Rows with more features are rather images or embeddings than tables, so standardisation has to prove better.
MAX_OF_A_TABLE = 100
MAX_LABELS_OF_A_TABLE = 1024  # rows of more classes are rather images or embeddings, too
_FIXED = 1e300  # number of rows that stands for given scales, which more rows never change
_VALUES_AT_ONCE = 1 << 16  # values in a block of rows, which stays in the cache
_GROWTH = 1.25  # growth of the number of rows after which measured scales are used
_OF_FEATURES = kind_of(np.float64, "features")
_CONSTANT = 1e-6  # features whose deviation is below this fraction of their mean have only rounding errors
_LARGEST = 1e39  # exceeds all means and deviations of float32 features
_LARGEST_INVERSE = 1e170  # exceeds the inverse of all deviations whose square is a positive float64
_MAX_ROWS = 1e100  # exceeds all total weights of rows
_LARGEST_WEIGHT = 1e30  # scores of larger weights would overflow float32
_NO_INDICES = np.empty(0, np.int32)
_LARGEST_SUM = 1e15  # squares of larger sums of examples would overflow float32


class FeatureScales(NamedTuple):
    """The mean and the deviation of each feature, as measured so far and as used by the scorers."""

    n_rows: float  # total weight of the measured rows
    means: Annotated[np.ndarray, _OF_FEATURES]
    squares: Annotated[np.ndarray, _OF_FEATURES]  # total squared deviation from the mean
    center: Annotated[np.ndarray, _OF_FEATURES]  # mean that is subtracted
    inverse: Annotated[np.ndarray, _OF_FEATURES]  # factor of the difference, 0 for a constant feature
    n_used: float  # ``n_rows`` when ``center`` and ``inverse`` were measured
    is_used: bool  # whether to standardise rows; if not, features are only measured
    keeps_lengths: bool = False  # whether standardised rows keep their lengths, as logistic regression needs

    @property
    def is_fixed(self) -> bool:
        """Whether the scales were given instead of measured."""
        return self.n_used >= _FIXED

    @property
    def constant(self) -> float:
        """The value of the appended feature, which is as large as the others together."""
        return float(np.sqrt(self.means.size))

    def are_valid(self, n_features: int) -> bool:
        """Return whether there is a scale for each feature, which more rows cannot make infinite."""
        if not 0.0 < self.n_rows <= _MAX_ROWS:
            return False
        max_squares = self.n_rows * _LARGEST**2
        bounds = ((-_LARGEST, _LARGEST), (0.0, max_squares), (-_LARGEST, _LARGEST), (0.0, _LARGEST_INVERSE))
        parts = (self.means, self.squares, self.center, self.inverse)
        return all(
            part.size == n_features and bool(np.all((part >= lowest) & (part <= highest)))
            for part, (lowest, highest) in zip(parts, bounds, strict=True)
        )

    def inverse_measured(self) -> np.ndarray:
        """Return the inverse of each measured deviation."""
        deviations = np.sqrt(self.squares / self.n_rows)
        varies = deviations > _CONSTANT * np.abs(self.means)
        return np.divide(1.0, deviations, out=np.zeros_like(deviations), where=varies)

    def refreshed(self) -> "FeatureScales":
        """Return scales that use the latest measurement."""
        return self._replace(center=self.means.copy(), inverse=self.inverse_measured(), n_used=self.n_rows)


def fixed_scales(scales: Any, n_features: int) -> FeatureScales:
    """Check given means and standard deviations of features: float64, shape (2, n_features). Return them as scales."""
    unmasked("scales", scales)
    try:
        given = np.asarray(scales, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"scales must be an array of numbers: {error}") from error
    if given.shape != (2, n_features):
        raise ValueError(f"scales must have the shape (2, {n_features}), got {given.shape}")
    if not (np.abs(given) <= _LARGEST).all() or (given[1] < 0.0).any():
        raise ValueError(
            f"scales must be finite and at most {_LARGEST:g}, with standard deviations that are not negative"
        )
    center, deviations = given
    fixed = FeatureScales(1.0, center, deviations**2, center, deviations, _FIXED, True)
    return fixed._replace(inverse=fixed.inverse_measured())


def scales_of_table(X: np.ndarray, n_classes: int, kind: str) -> np.ndarray | None:
    """Return means and deviations of the features of a dense table, or None if ``kind`` leaves it as it is."""
    rows, lengths = check_rows(X), lengths_unless_unit(X)
    if lengths is None or not (kind == "scale" or (kind == "auto" and is_table(rows, n_classes))):
        return None
    measured = measure_scales(rows, lengths, None, is_used=True)
    return np.stack([measured.means, np.sqrt(measured.squares / measured.n_rows)])


def is_table(rows: Rows, n_classes: int, *, has_all: bool = False) -> bool:
    """Return whether dense rows seem to be a table, and enough to measure scales unless they are all rows to come."""
    enough = has_all or rows.n_rows >= max(FEWEST_ROWS, FEWEST_OF_A_CLASS * n_classes)
    return enough and rows.n_features <= MAX_OF_A_TABLE and n_classes <= MAX_LABELS_OF_A_TABLE


def measure_scales(rows: Rows, lengths: np.ndarray, weights: Factors, *, is_used: bool) -> FeatureScales:
    """Measure the features of dense rows. ``lengths`` are their lengths before they were scaled to unit length."""
    nothing = np.zeros(rows.n_features)
    return add_rows(FeatureScales(0.0, nothing, nothing, nothing, nothing, 0.0, is_used), rows, lengths, weights)


def add_rows(scales: FeatureScales, rows: Rows, lengths: np.ndarray, weights: Factors) -> FeatureScales:
    """Return scales that also measure some rows (Chan et al., 1979), and use them if the number has grown enough."""
    step = max(1, _VALUES_AT_ONCE // rows.n_features)
    n_rows, means, squares = scales.n_rows, scales.means, scales.squares
    for first in range(0, rows.n_rows, step):
        X = original_rows(rows, lengths, slice(first, first + step))
        shares = np.ones(X.shape[0]) if weights is None else weights[first : first + step].astype(np.float64)
        n, n_new = n_rows, float(shares.sum())
        n_rows += n_new
        of_new = shares @ X / n_new
        shift = of_new - means
        squares = squares + shares @ (X - of_new) ** 2 + shift**2 * (n * n_new / n_rows)
        means = means + shift * (n_new / n_rows)
    more = scales._replace(n_rows=n_rows, means=means, squares=squares)
    return more.refreshed() if n_rows >= _GROWTH * scales.n_used else more


def original_rows(rows: Rows, lengths: np.ndarray, span: slice) -> np.ndarray:
    """Return some rows as they were before they were scaled to unit length."""
    finite = np.minimum(lengths[span, None], np.finfo(np.float32).max)
    return rows.values.reshape(-1, rows.n_features)[span] * finite.astype(np.float64)


def standardize(scales: FeatureScales, X: np.ndarray, lengths: np.ndarray) -> Rows:
    """Return rows times their lengths, standardised with the constant feature, and scaled to unit length.

    Rows of a logistic regression keep their lengths. Raises ValueError if a value of ``X`` (float32) is not finite.
    """
    values = np.empty((len(X), X.shape[1] + 1), np.float32)
    bad_row = standardize_rows(X, lengths, scales.center, scales.inverse, not scales.keeps_lengths, values)
    if bad_row >= 0:
        refuse_row(bad_row, X[bad_row], _NO_INDICES)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int64)
    return Rows(values.reshape(-1), _NO_INDICES, offsets, values.shape[1], False)


def move_scorers(head: Head, old: FeatureScales, new: FeatureScales) -> None:
    """Change the scorers of a dense head from rows of ``old`` scales to rows of ``new`` scales, in place.

    The differences between the scores of a row keep their signs, unless a weight would become too large for float32.
    The sums of examples change as their examples do, up to the lengths of these.
    """
    weights, sums = dense_parts(head)
    shift = new.center - old.center
    per_unit = weights[:, :-1] * old.inverse
    moved = per_unit * np.divide(1.0, new.inverse, out=np.zeros_like(shift), where=new.inverse > 0.0)
    intercepts = weights[:, -1] + per_unit @ shift / old.constant
    weights[:, :-1] = np.clip(moved, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    weights[:, -1] = np.clip(intercepts, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    if head.parameters.loss != HeadLoss.MIRA:
        return  # only MIRA keeps sums of examples
    deviations = np.divide(1.0, old.inverse, out=np.zeros_like(shift), where=old.inverse > 0.0)
    moved = (sums[:, :-1] * deviations - sums[:, -1:] * (shift / old.constant)) * new.inverse
    sums[:, :-1] = np.clip(moved, -_LARGEST_SUM, _LARGEST_SUM)
    head.labels["sum_square"][0, : len(sums)] = np.einsum("ij,ij->i", sums, sums)
