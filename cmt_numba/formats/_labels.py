"""Labels in data files: detection of the task, and conversion to classes or indicator matrices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse

from .._arrays import label_array
from ._files import CellError
from ._source import ReadOptions

MAX_LABELS = 2**31 - 1
END_OF_CLASSES = 2**53  # float64 represents all smaller integers exactly


def _whole_number(text: str) -> int | None:
    """Parse an integer such as "7" or "7.0". Return None if the text is not an integer below 2**53."""
    try:
        number = float(text)
    except ValueError:
        return None
    if "_" in text or number % 1 != 0 or abs(number) >= END_OF_CLASSES:  # Python would read "1_0" as the number 10
        return None
    return int(number)


def _is_number(label: Any) -> bool:
    """Return whether a label is a number, or a text that is written in the same way, so not "007" or "1e3"."""
    if isinstance(label, str):
        return str(_whole_number(label)) == label
    return isinstance(label, int | float) and not isinstance(label, bool)


class LabelScan:
    """Detection of the task, and of labels that are names rather than numbers.

    With ``keeps_text``, the file distinguishes the text "7" from the number 7.
    """

    def __init__(self, *, keeps_text: bool) -> None:
        self._keeps_text = keeps_text
        self._has_lists = self._has_commas = False
        self._are_named_classes = self._are_named_labels = False  # as cells, or as parts of cells
        self._by_type: dict[bool, Any] = {}  # by whether it is a str, the first label
        self._names: set[str] = set()  # all labels, as parts of cells

    def look_at(self, cells: Iterable[Any]) -> None:
        """Look at the labels of more rows."""
        for cell in _distinct(cells)[1]:
            labels = _split(cell)
            for label in labels:
                self._by_type.setdefault(isinstance(label, str), label)
                self._names.add(str(label))
            if isinstance(cell, tuple):
                self._has_lists = True
                self._are_named_labels |= any(isinstance(label, str) for label in cell)
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
        if named and len(self._by_type) == 2:
            mixed = f"text such as {self._by_type[True]!r:.50} with numbers such as {self._by_type[False]!r:.50}"
            raise ValueError(f"the labels mix {mixed}: write all of them as text or as numbers")
        named = named if options.named_labels is None else options.named_labels
        names: tuple[str, ...] = ()
        if named and task == "multilabel":
            names = tuple(dict.fromkeys([*options.label_names, *sorted(self._names)]))
        return replace(options, task=task, named_labels=named, label_names=names)


def convert_labels(cells: Iterable[Any], options: ReadOptions, n_labels: int) -> Any:
    """Return the classes of cells, or an indicator matrix with at least ``n_labels`` columns.

    Raise CellError for the first cell with an invalid label.
    """
    several = options.task == "multilabel"
    places = {name: i for i, name in enumerate(options.label_names)}
    codes, distinct = _distinct(cells)
    values: list[Any] = []
    for code, cell in enumerate(distinct):
        try:
            if not several and cell is None:
                raise ValueError("has no label")
            labels = _split(cell) if several else [cell]
            if options.named_labels:
                found: list[Any] = [places[str(label)] if several else str(label) for label in labels]
            else:
                found = list(map(_number, labels))
                if several:
                    check_labels(found, MAX_LABELS)
            values.append(found if several else found[0])
        except ValueError as error:
            raise CellError(codes.index(code), str(error)) from None
    if several:
        return indicator([values[code] for code in codes], max(n_labels, len(places)))
    classes = [values[code] for code in codes]
    return label_array("labels", classes) if options.named_labels else np.array(classes, np.int64)


def check_labels(labels: Iterable[int], n_labels: int) -> None:
    """Raise ValueError unless all labels are numbered from 0 to ``n_labels - 1``."""
    for label in labels:
        if label < 0:
            raise ValueError(f"label {label} is negative: multilabel labels must be numbered from 0")
        if label >= n_labels:
            raise ValueError(f"label {label} is too large: labels must be between 0 and {n_labels - 1}")


def indicator(lists: Sequence[Sequence[int]], n_labels: int) -> scipy.sparse.csr_array:
    """Return the int8 indicator matrix of the label lists, with at least ``max(n_labels, 1)`` columns."""
    indices = np.fromiter(chain.from_iterable(lists), np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(labels) for labels in lists], dtype=np.int64)])
    width = max(n_labels, int(indices.max(initial=0)) + 1)
    matrix = scipy.sparse.csr_array((np.ones(indices.size, np.int8), indices, offsets), (len(lists), width))
    matrix.sum_duplicates()
    matrix.data[:] = 1  # sums of duplicate labels exceed 1
    return matrix


def _number(label: Any) -> int:
    number = _whole_number(str(label))
    if number is None:
        raise ValueError(f"label {label!r} is not an integer")
    return number


def _split(cell: Any) -> Sequence[Any]:
    """Return the labels of a cell, which are separated by commas in a text."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(",")] if cell.strip() else []
    return cell if isinstance(cell, tuple) else [] if cell is None else [cell]


def _distinct(cells: Iterable[Any]) -> tuple[list[int], list[Any]]:
    """Return the code of each cell and the distinct cells. Lists become tuples, and missing values None."""
    codes: dict[Any, int] = {}
    found = []
    for position, cell in enumerate(cells):
        value = cell if isinstance(cell, str) else _as_value(position, cell)
        found.append(codes.setdefault((type(value), value), len(codes)))  # 1 and True are different labels
    return found, [value for _, value in codes]


def _as_value(position: int, cell: Any) -> Any:
    if not isinstance(cell, list | np.ndarray):
        return None if cell is None or cell != cell else cell  # NaN is a missing value
    labels = tuple(np.asarray(cell, object).tolist())
    if not all(isinstance(label, str) for label in labels) and not all(isinstance(x, int | float) for x in labels):
        raise CellError(position, "labels must be a list of numbers or a list of text")
    return labels
