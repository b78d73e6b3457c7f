"""Readers for lines of labels and features, which scikit-learn parses: svmlight and Extreme Classification."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse

from ._files import FormatError, first_line
from ._labels import END_OF_CLASSES, MAX_LABELS, check_labels, indicator
from ._source import Batch, ReadOptions, Source

_MOST_FEATURES = 2**31 - 1  # the limit of kernels, repeated here because importing kernels imports Numba
_Parser = Callable[[Sequence[bytes], ReadOptions, int], tuple[Any, Any]]
_NO_FEATURES = b"0:0\n"  # instead of a blank line, which scikit-learn skips


class SvmlightSource(Source):
    """A file with lines of the form ``label feature:value feature:value ... # comment``.

    Feature numbers are column numbers. If a file numbers features from 1, column 0 is empty. A line may have several
    labels (``1,4,7``) or none.
    """

    format = "svmlight"
    suffixes = (".svm", ".svmlight", ".libsvm")

    def _scanned(self) -> ReadOptions:
        options = self.options
        if options.n_features is not None and (options.task is not None or not options.with_labels):
            return options
        last, several = 0, False
        for line in chain.from_iterable(lines for _, lines in self._blocks()):
            line = line.partition(b"#")[0]
            head, colon, _ = line.rpartition(b":")
            index = head.rsplit(None, 1)[-1:]  # features are in ascending order, so the last one is the largest
            if index and index[0].isdigit():
                last = max(last, int(index[0]))
            several = several or b"," in line or (bool(colon) and b":" in line.split(None, 1)[0])
        task = options.task or ("multilabel" if several else "multiclass")
        return replace(options, n_features=options.n_features or min(last + 1, _MOST_FEATURES), task=task)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        yield from _parsed_blocks(self, self._blocks(), _parsed, options, 0, MAX_LABELS)


class ExtremeSource(Source):
    """A file of the Extreme Classification Repository.

    The header line is ``rows features labels``. Each other line has the form ``label,label,... feature:value ...``,
    with features in any order. A blank line is a row without labels and features.
    """

    format = "xc"
    suffixes = (".xc",)

    def _scanned(self) -> ReadOptions:
        _, least, _ = self._header()
        n_features = self.options.n_features or least
        if self.options.task == "multiclass":
            raise FormatError(self.path, "has several labels per row, as the format is xc; choose the task multilabel")
        if n_features < least:
            raise FormatError(self.path, f"n_features must be at least {least}, got {n_features}", line=1)
        return replace(self.options, task="multilabel", n_features=n_features)

    def _header(self) -> tuple[int, int, int]:
        found = re.fullmatch(rb"\s*(\d+)\s+([1-9]\d*)\s+(\d+)\s*", first_line(self.path))
        if found is None:
            raise FormatError(self.path, "must be three integers: rows, features, labels", line=1)
        n_rows, n_features, n_labels = map(int, found.groups())
        if max(n_features, n_labels) > _MOST_FEATURES:
            reason = f"must have at most {_MOST_FEATURES} features and labels, got {n_features} and {n_labels}"
            raise FormatError(self.path, reason, line=1)
        return n_rows, n_features, n_labels

    def _rows(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield blocks of the lines after the header, the first line that is not blank."""
        in_rows = False
        for number, lines in self._blocks():
            start = 0
            if not in_rows:
                start = next((i for i, line in enumerate(lines, 1) if line.strip()), len(lines))
                in_rows = bool(lines[start - 1].strip())
            yield number + start, [line if line.strip() else _NO_FEATURES for line in lines[start:]]

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        n_rows, _, n_labels = self._header()
        n_seen = 0
        for chunk in _parsed_blocks(self, self._rows(), _parsed_in_any_order, options, n_labels, n_labels):
            n_seen += chunk.X.shape[0]
            yield chunk
        if n_seen != n_rows:
            raise FormatError(self.path, f"has {n_seen} rows, but its header states {n_rows}; use a complete copy")


def _parsed_blocks(
    source: Source, blocks: Iterable[Any], parse: _Parser, options: ReadOptions, n_labels: int, max_labels: int
) -> Iterator[Batch]:
    """Yield parsed blocks, whose indicator matrices of labels have at least ``n_labels`` columns."""
    for number, lines in blocks:
        try:
            X, y = parse(lines, options, max_labels)
        except ValueError:
            place, reason = _first_fault(lines, lambda lines: parse(lines, options, max_labels))
            raise FormatError(source.path, reason, line=number + place) from None
        if options.task == "multilabel" and y is not None:
            y = indicator(y, n_labels)
            n_labels = y.shape[1]
        yield Batch(X, y)


def _first_fault(lines: Sequence[bytes], parse: Callable[[Sequence[bytes]], Any]) -> tuple[int, str]:
    """Return the place of the first invalid line, and what is wrong."""

    def fault(lines: Sequence[bytes]) -> str:
        try:
            parse(lines)
        except ValueError as error:
            return str(error)
        return ""

    place = bisect_left(range(len(lines)), True, key=lambda i: fault(lines[: i + 1]) != "")
    return place, fault([lines[place]])


def _parsed_in_any_order(lines: Sequence[bytes], options: ReadOptions, max_labels: int) -> tuple[Any, Any]:
    try:
        return _parsed(lines, options, max_labels)
    except ValueError:
        return _parsed(list(map(_with_sorted_features, lines)), options, max_labels)


def _with_sorted_features(line: bytes) -> bytes:
    def feature(word: Any) -> int:
        return int(word.partition(b":")[0]) if b":" in word else -1

    return b" ".join(sorted(line.split(), key=feature)) + b"\n"


def _parsed(lines: Sequence[bytes], options: ReadOptions, max_labels: int) -> tuple[Any, Any]:
    """Return the rows, and their classes or lists of labels. Raise ValueError if a line is invalid."""
    from sklearn.datasets import load_svmlight_file  # slow to import

    several = options.task == "multilabel" or not options.with_labels
    try:
        X, labels = load_svmlight_file(BytesIO(b"".join(lines)), dtype=np.float32, multilabel=several, zero_based=True)
    except (ValueError, OverflowError, IndexError) as error:
        form = "label,label,... feature:value ..." if several else "label feature:value ... with one integer label"
        raise ValueError(f"must have the format {form} and ascending integer features: {error}") from None
    n_features = options.n_features or X.shape[1]
    if not np.isfinite(X.data).all():
        raise ValueError("has a value that is not finite in float32")
    if X.shape[1] > n_features and X.nnz > 0:
        raise ValueError(f"feature {X.shape[1] - 1} is too large: features must be between 0 and {n_features - 1}")
    X = scipy.sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], n_features))
    if not options.with_labels:
        return X, None
    numbers = np.array(list(chain.from_iterable(labels)) if several else labels, np.float64)
    is_invalid = ~(np.abs(numbers) < END_OF_CLASSES) | (numbers % 1 != 0)
    if is_invalid.any():
        raise ValueError(f"label {numbers[is_invalid][0]:g} is not an integer")
    if several:
        check_labels([int(numbers.min(initial=0)), int(numbers.max(initial=0))], max_labels)
    return X, labels if several else numbers.astype(np.int64)
