"""What fitted estimators check of the rows that they are asked about."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import sound

DTYPES = [np.float32, np.float64]

_ROWS_LOOKED_AT = 1000
_SELDOM = 0.05  # of the rows: how large a feature is that is not 0 in fewer says little
_UNEQUAL = 100.0  # times the first quartile


def checked_matrix(estimator: Any, X: Any) -> Any:
    """Return rows for a fitted estimator: of the width that it was fitted with, in a form that ``check_rows`` takes.

    What :func:`~sklearn.utils.validation.validate_data` does for frames, lists and names of features takes longer than
    to answer a row, so arrays that leave nothing of it to be done pass it by. Whether numbers are finite is looked at
    by ``check_rows``.

    Raises
    ------
    NotFittedError
        If the estimator has not been fitted.
    TypeError, ValueError
        If ``X`` is nothing that the estimator can use.
    """
    if not hasattr(estimator, "forest_"):
        check_is_fitted(estimator, "forest_")  # which takes longer than to answer a row
    if (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in DTYPES
        and X.shape[0] > 0
        and X.shape[1] == estimator.n_features_in_
        and not hasattr(estimator, "feature_names_in_")
    ):
        return X
    return validate_data(estimator, sound(X), accept_sparse="csr", dtype=DTYPES, reset=False)


def warn_of_scales(X: Any) -> None:
    """Warn if some dense features are much larger than others: rows are scaled to length 1, so only they would count.

    How large a feature is, is the root mean square of its entries that are not 0; so one-hot columns, tf-idf and images
    raise no alarm.
    """
    if not isinstance(X, np.ndarray) or X.shape[1] < 2:
        return
    some = X[:: -(-X.shape[0] // _ROWS_LOOKED_AT)].astype(np.float64, copy=False)
    n_entries = np.count_nonzero(some, axis=0)
    counts = n_entries > _SELDOM * some.shape[0]
    if np.count_nonzero(counts) < 2:
        return
    with np.errstate(over="ignore"):
        sizes = np.sqrt(np.sum(some[:, counts] ** 2, axis=0) / n_entries[counts])
    usual = np.quantile(sizes, 0.25, method="lower")
    if np.isfinite(sizes).all() and sizes.max() > _UNEQUAL * usual:
        largest = np.flatnonzero(counts)[sizes.argmax()]
        warnings.warn(
            f"features differ by orders of magnitude: feature {largest} is about {sizes.max() / usual:.0f} times as "
            "large as others, which will hardly count; scale them, as with "
            "make_pipeline(StandardScaler(), CMTClassifier())",
            UserWarning,
            stacklevel=2,
        )
