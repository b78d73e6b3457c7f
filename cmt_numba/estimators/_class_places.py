"""Positions of the classes of a batch among all classes."""

from typing import NamedTuple

import numpy as np

from ._labels import are_among, check_expected, distinct_classes, in_one_type


class ClassPlaces(NamedTuple):
    """The positions of the classes of a batch among all classes."""

    classes: np.ndarray  # all classes including the new ones, sorted
    added: np.ndarray  # int64: insertion positions of the new classes, as for numpy.insert
    of_batch: np.ndarray  # int64: ascending positions in ``classes`` of the batch's distinct classes


def place_classes(
    known: np.ndarray | None, y: np.ndarray, expected: np.ndarray | None
) -> tuple[ClassPlaces, np.ndarray]:
    """Return the positions of a batch's classes, and each row's index into ``ClassPlaces.of_batch``."""
    found, of_rows = distinct_classes(y)
    if found.size == 1 and expected is None and known is not None and found.dtype == known.dtype:
        place = np.searchsorted(known, found)
        if place[0] < known.size and known[place[0]] == found[0]:
            return ClassPlaces(known, np.empty(0, np.int64), place), of_rows
    if known is None:
        known = (found if expected is None else expected)[:0]
    if expected is None:
        if known.size > 0:
            known, found = in_one_type("y", known, found)
        expected = found
    else:
        known, found, expected = in_one_type("y", known, found, expected)
        expected = np.unique(expected)
        check_expected(found, expected)
    new = expected[~are_among(known, expected)]
    added = np.searchsorted(known, new)
    classes = np.insert(known, added, new) if new.size > 0 else known
    return ClassPlaces(classes, added, np.searchsorted(classes, found)), of_rows
