"""Conversions and sums of array-likes for modules that must not import Numba."""

from typing import Any

import numpy as np
import scipy.sparse


class WeightedRows(scipy.sparse.csr_array):  # type: ignore[misc]
    """Sparse rows of a vectorizer that has already weighted their features. Slices have the same type."""


def unmasked(name: str, value: Any) -> Any:
    """Return an array-like unchanged if it has no masked entries."""
    if type(value) is not np.ndarray and np.ma.is_masked(value):
        raise ValueError(f"{name} must not have masked entries: fill them in or remove them")
    return value


def squares_of_rows(X: Any) -> np.ndarray:
    """Return the sum of the squares of each row of an array or a CSR array: float64."""
    if isinstance(X, np.ndarray):
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.bincount(row, np.square(X.data.astype(np.float64)), X.shape[0])


def label_array(name: str, labels: Any) -> np.ndarray:
    """Return labels as an array that preserves every label.

    NumPy's string arrays drop trailing NUL characters. Lists that contain strings with trailing NULs therefore become
    arrays of objects, like strings of NumPy's ``StringDType``, which scikit-learn does not know.
    """
    array = np.asarray(unmasked(name, labels))
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "U" and not hasattr(labels, "dtype"):
        objects = np.asarray(labels, object)
        ends_in_nul = (isinstance(label, str) and label.endswith("\0") for label in objects.flat)
        if objects.shape == array.shape and any(ends_in_nul):
            return objects
    return array
