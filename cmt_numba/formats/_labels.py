"""Labels in data files: detection of the task, and conversion to classes or indicator matrices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse

from .._arrays import label_array
from ._options import ReadOptions

_END_OF_CLASSES = 2**53  # float64 represents all smaller integers exactly


class LabelScan:
    """Detection of the task, and of labels that are names rather than numbers.

    With ``keeps_text``, the file distinguishes the text "7" from the number 7.
    """

    def __init__(self, *, keeps_text: bool) -> None:
        self._keeps_text = keeps_text
        self._has_lists = self._has_commas = False
        self._are_named_classes = self._are_named_labels = False  # as cells, or as parts of cells
        self._labels: dict[Any, None] = {}  # all labels, as parts of cells, in order

    def look_at(self, cells: Iterable[Any]) -> None:
        """Look at the labels of more rows. Raise ValueError for a list of numbers and names."""
        for cell in dict.fromkeys(cells):
            labels = _parts(cell)
            self._labels.update(dict.fromkeys(labels))
            if isinstance(cell, tuple):
                self._has_lists = True
                self._are_named_labels |= any(isinstance(label, str) for label in labels)
            elif isinstance(cell, str):
                self._has_commas |= "," in cell
                self._are_named_classes |= self._keeps_text or not _is_number(cell)
                self._are_named_labels |= not all(map(_is_number, labels))
            elif cell is not None:
                self._are_named_classes |= not _is_number(cell)

    def completed(self, options: ReadOptions) -> ReadOptions:
        """Return options with the task and the type of labels, unless they are given, and with all names of labels.

        Raise ValueError if names are mixed with numbers.
        """
        several = self._has_lists or (self._has_commas and not self._are_named_labels)
        task = options.task or ("multilabel" if several else "multiclass")
        named = self._are_named_labels if task == "multilabel" else self._are_named_classes
        texts = [label for label in self._labels if isinstance(label, str)]
        if named and 0 < len(texts) < len(self._labels):
            number = next(label for label in self._labels if not isinstance(label, str))
            mixed = f"text such as {texts[0]!r:.50} with numbers such as {number!r:.50}"
            raise ValueError(f"the labels mix {mixed}: write all of them as text or as numbers")
        named = named if options.named_labels is None else options.named_labels
        names: tuple[str, ...] = ()
        if named and task == "multilabel":
            names = tuple(dict.fromkeys([*options.label_names, *sorted(map(str, self._labels))]))
        return replace(options, task=task, named_labels=named, label_names=names)


def convert_labels(cells: Iterable[Any], options: ReadOptions, n_labels: int, max_labels: int) -> Any:
    """Return the classes of cells, or an indicator matrix with at least ``n_labels`` columns.

    Raise ValueError for an invalid label.
    """
    if options.task == "multilabel":
        places = {name: i for i, name in enumerate(options.label_names)}

        @lru_cache(None, typed=True)
        def place_of(label: Any) -> int:
            return places[str(label)] if options.named_labels else _checked(_number(label), max_labels)

        lists = [[place_of(label) for label in _parts(cell)] for cell in cells]
        return _indicator(lists, max(n_labels, len(places)))

    @lru_cache(None, typed=True)
    def class_of(cell: Any) -> Any:
        if cell is None:
            raise ValueError("has no label")
        return str(cell) if options.named_labels else _number(cell)

    classes = list(map(class_of, cells))
    return label_array("labels", classes) if options.named_labels else np.array(classes, np.int64)


def _checked(label: int, max_labels: int) -> int:
    if label < 0:
        raise ValueError(f"label {label} is negative: multilabel labels must be numbered from 0")
    if label >= max_labels:
        raise ValueError(f"label {label} is too large: labels must be between 0 and {max_labels - 1}")
    return label


def _indicator(lists: Sequence[Sequence[int]], n_labels: int) -> scipy.sparse.csr_array:
    """Return the int8 indicator matrix of the label lists, with at least ``max(n_labels, 1)`` columns."""
    indices = np.fromiter(chain.from_iterable(lists), np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(labels) for labels in lists], dtype=np.int64)])
    width = max(n_labels, int(indices.max(initial=0)) + 1)
    matrix = scipy.sparse.csr_array((np.ones(indices.size, np.int8), indices, offsets), (len(lists), width))
    matrix.sum_duplicates()
    matrix.data[:] = 1  # sums of duplicate labels exceed 1
    return matrix


def _whole_number(text: str) -> int | None:
    """Parse an integer such as "7" or "7.0". Return None if the text is not an integer below 2**53."""
    try:
        number = float(text)
    except ValueError:
        return None
    if "_" in text or number % 1 != 0 or abs(number) >= _END_OF_CLASSES:  # Python would read "1_0" as the number 10
        return None
    return int(number)


def _is_number(label: Any) -> bool:
    """Return whether a label is a number, or a text that is written in the same way, so not "007" or "1e3"."""
    if isinstance(label, str):
        return str(_whole_number(label)) == label
    return isinstance(label, int | float) and not isinstance(label, bool)


def _number(label: Any) -> int:
    number = _whole_number(str(label))
    if number is None:
        raise ValueError(f"label {label!r} is not an integer")
    return number


def _parts(cell: Any) -> Sequence[Any]:
    """Return the labels of a cell, which are separated by commas in a text."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(",")] if cell.strip() else []
    if not isinstance(cell, tuple):
        return [] if cell is None else [cell]
    if not all(isinstance(label, str) for label in cell) and not all(isinstance(x, int | float) for x in cell):
        raise ValueError("labels must be a list of numbers or a list of text")
    return cell
