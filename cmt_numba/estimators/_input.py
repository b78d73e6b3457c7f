"""What fitted estimators check of the rows that they are asked about."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import sound

DTYPES = [np.float32, np.float64]


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
    check_is_fitted(estimator, "forest_")
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
