"""Parsing of labels, which are integers or names."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import scipy.sparse

MOST_LABELS = 2**31 - 1

_END_OF_CLASSES = 2**53  # float64 represents all smaller integers exactly


def whole_number(text: str) -> int | None:
    """Parse an integer such as "7" or "7.0". Return None if the text is not an integer below 2**53."""
    try:
        number: float = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return None
    return int(number) if number % 1 == 0 and abs(number) < _END_OF_CLASSES else None


def is_name(text: str) -> bool:
    """Return whether a label is a name rather than a number."""
    try:
        float(text)
    except ValueError:
        return True
    return False


def label_list(text: str) -> list[int] | None:
    """Parse labels such as "3,1,4". Return None if the text is not a list of integers."""
    if not text.strip():
        return []
    numbers = [whole_number(part) for part in text.split(",")]
    return None if None in numbers else [number for number in numbers if number is not None]


def complaint_about_labels(labels: Sequence[int], n_labels: int | None) -> str | None:
    """Return an error message if the labels of a row are invalid, or else None."""
    end = MOST_LABELS if n_labels is None else n_labels
    for label in labels:
        if label < 0:
            return f"label {label} is negative: multilabel labels must be numbered from 0"
        if label >= end:
            return f"label {label} is too large: labels must be between 0 and {end - 1}"
    return None


def indicator(lists: Sequence[Sequence[int]], n_labels: int) -> scipy.sparse.csr_array:
    """Return the int8 indicator matrix of the label lists, with at least ``max(n_labels, 1)`` columns."""
    indices = np.fromiter(chain.from_iterable(lists), np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(labels) for labels in lists], dtype=np.int64)])
    width = max(n_labels, int(indices.max(initial=0)) + 1)
    matrix = scipy.sparse.csr_array((np.ones(indices.size, np.int8), indices, offsets), (len(lists), width))
    matrix.sum_duplicates()
    matrix.data[:] = 1  # sums of duplicate labels exceed 1
    return matrix
