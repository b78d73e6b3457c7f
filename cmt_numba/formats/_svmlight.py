"""Readers for svmlight (libsvm) files and for files of the Extreme Classification Repository."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ._source import Batch, ReadOptions, Source
from ._text import MOST_LABELS, FormatError, LineBlock, check_labels, first_line, indicator, label_list, read_blocks

_MOST_FEATURES = 2**31 - 1  # the limit of kernels, repeated here because importing kernels imports Numba
_FLOAT32_MOST = float(np.finfo(np.float32).max)


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
        n_features, several_labels = 0, False
        for block in read_blocks(self.path, self.block_bytes):
            n_features, several_labels = _scan_block(self.path, block, n_features, several_labels)
            self._watch(block.position)
        task = options.task or ("multilabel" if several_labels else "multiclass")
        return replace(options, n_features=options.n_features or max(1, n_features), task=task)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        n_labels = 0
        for block in read_blocks(self.path, self.block_bytes):
            chunk = _parsed(self.path, block, _Rules(options, n_labels))
            if options.task == "multilabel" and chunk.y is not None:
                n_labels = chunk.y.shape[1]
            if chunk.X.shape[0] > 0:
                yield chunk


class ExtremeSource(Source):
    """A file of the Extreme Classification Repository.

    The header line is ``rows features labels``. Each other line has the form ``label,label,... feature:value ...``,
    with features in any order.
    """

    format = "xc"
    suffixes = (".xc",)

    def _scanned(self) -> ReadOptions:
        _, n_features, _ = self._header()
        if self.options.task == "multiclass":
            reason = "has the format xc, whose rows may have several labels; choose the task multilabel"
            raise FormatError(self.path, reason)
        if self.options.n_features is not None and self.options.n_features < n_features:
            reason = f"n_features must be at least {n_features}, got {self.options.n_features}"
            raise FormatError(self.path, reason, line=1)
        return replace(self.options, task="multilabel", n_features=self.options.n_features or n_features)

    def _header(self) -> tuple[int, int, int]:
        found = re.fullmatch(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*", first_line(self.path))
        if found is None or int(found[2]) == 0:
            raise FormatError(self.path, "must be three integers: rows, features, labels", line=1)
        if max(int(found[2]), int(found[3])) > _MOST_FEATURES:
            reason = f"must have at most {_MOST_FEATURES} features and labels, got {int(found[2])} and {int(found[3])}"
            raise FormatError(self.path, reason, line=1)
        return int(found[1]), int(found[2]), int(found[3])

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        n_rows, _, n_labels = self._header()
        n_seen = 0
        for block in _without_first_line(read_blocks(self.path, self.block_bytes)):
            chunk = self._parsed(block, _Rules(options, n_labels, n_labels, ascending=False))
            n_seen += chunk.X.shape[0]
            if chunk.X.shape[0] > 0:
                yield chunk
        if n_seen != n_rows:
            reason = f"has {n_seen} rows, but its header states {n_rows}; use a complete copy"
            raise FormatError(self.path, reason)

    def _parsed(self, block: LineBlock, rules: "_Rules") -> Batch:
        # scikit-learn skips blank lines, but in this format they are rows without labels and features.
        batch = _parsed(self.path, block._replace(data=_BLANK.sub(b"0:0", block.data)), rules)
        if batch.y is not None and batch.y.shape[1] > (rules.n_labels or 0):
            list(_parsed_slowly(self.path, block, rules))  # raises an error with the line number
        return batch


_BLANK = re.compile(rb"(?m)^[ \t\r]*$(?=\n)")


class _Rules(NamedTuple):
    """Constraints on the lines of a file."""

    options: ReadOptions  # resolved options, which have a number of features
    least_labels: int  # minimum number of columns of the indicator matrix
    n_labels: int | None = None  # number of labels, if known
    ascending: bool = True  # whether the features of a line must be in ascending order


def _parsed(path: Path, block: LineBlock, rules: _Rules) -> Batch:
    from sklearn.datasets import load_svmlight_file  # slow to import

    n_features, several = rules.options.n_features, rules.options.task == "multilabel" or not rules.options.with_labels
    # Python code parses blocks that scikit-learn rejects. It is slower, but errors name the line and the reason.
    try:
        X, labels = load_svmlight_file(
            BytesIO(block.data), n_features=n_features, dtype=np.float32, multilabel=several, zero_based=True
        )
        if np.isfinite(X.data).all():
            return Batch(scipy.sparse.csr_array(X), _as_y(labels, rules), block.position)
    except (ValueError, OverflowError, IndexError):
        pass
    rows = list(_parsed_slowly(path, block, rules))
    offsets = np.concatenate([[0], np.cumsum([len(row.features) for row in rows], dtype=np.int64)])
    indices = np.fromiter((index for row in rows for index in row.features), np.int32)
    values = np.fromiter((value for row in rows for value in row.features.values()), np.float32)
    X = scipy.sparse.csr_array((values, indices, offsets), (len(rows), n_features))
    X.sort_indices()
    labels = [row.labels if several else row.labels[0] for row in rows]
    return Batch(X, _as_y(labels, rules), block.position)


def _parsed_slowly(path: Path, block: LineBlock, rules: _Rules) -> "Iterator[_Row]":
    for number, line in enumerate(block.data.splitlines(), block.first_line):
        try:
            row = _parsed_line(line, rules)
        except ValueError as error:
            raise FormatError(path, str(error), line=number) from None
        if row is not None:
            yield row


def _scan_block(path: Path, block: LineBlock, end: int, several: bool) -> tuple[int, bool]:
    """Return the number of features up to and including a block, and whether any line has several labels or none.

    Malformed lines raise errors later, in :func:`_parsed`.
    """
    for number, line in enumerate(block.data.splitlines(), block.first_line):
        if b"#" in line:
            line = line.partition(b"#")[0]
        # Features are in ascending order, so the last feature has the largest number.
        colon = line.rfind(b":")
        start = max(line.rfind(b" ", 0, colon), line.rfind(b"\t", 0, colon)) + 1
        index = line[start:colon]
        if colon > 0 and index.isdigit():
            if int(index) >= end:
                end = int(index) + 1
                if end > _MOST_FEATURES:
                    reason = f"feature {int(index)} is too large: features must be below {_MOST_FEATURES}"
                    raise FormatError(path, reason, line=number)
            if not several:
                several = b"," in line or b":" in line.split(None, 1)[0]
        elif not several and b"," in line:
            several = True
    return end, several


class _Row(NamedTuple):
    labels: list[int]
    features: dict[int, float]


def _parsed_line(line: bytes, rules: _Rules) -> _Row | None:
    """Parse a line. Return None if it has only blanks and comments; raise ValueError if it is malformed."""
    parts = line.partition(b"#")[0].decode("utf-8", "replace").split()
    if not parts:
        return None
    unlabelled = ":" in parts[0]
    if unlabelled and rules.options.task == "multiclass" and rules.options.with_labels:
        raise ValueError(f"has no label: it starts with the feature {parts[0]!r}")
    labels = [] if unlabelled or not rules.options.with_labels else _parsed_labels(parts[0], rules)
    pairs = parts if unlabelled else parts[1:]
    if pairs and pairs[0].startswith("qid:"):
        pairs = pairs[1:]
    features: dict[int, float] = {}
    last = -1
    for pair in pairs:
        index, value = _parsed_pair(pair)
        if index in features:
            raise ValueError(f"feature {index} occurs twice")
        if rules.ascending and index < last:
            raise ValueError(f"feature {index} follows feature {last}: features must be in ascending order")
        features[index] = value
        last = index
    last, most = max(features, default=0), rules.options.n_features
    if most is not None and last >= most:
        raise ValueError(f"feature {last} is too large: features must be between 0 and {most - 1}")
    return _Row(labels, features)


def _parsed_labels(text: str, rules: _Rules) -> list[int]:
    labels = label_list(text)
    if labels is None:
        raise ValueError(f"label {text!r} is not an integer")
    if rules.options.task == "multiclass":
        if len(labels) != 1:
            raise ValueError(f"has several labels, {text!r}; choose the task multilabel")
        return labels
    check_labels(labels, rules.n_labels)
    return labels


def _parsed_pair(pair: str) -> tuple[int, float]:
    name, _, number = pair.partition(":")
    try:
        index = int(name)
        value = float(number)
    except ValueError:
        raise ValueError(f"{pair!r} must have the format feature:value, with an integer and a number") from None
    if index < 0:
        raise ValueError(f"feature {index} is negative")
    if not isfinite(value) or not abs(value) <= _FLOAT32_MOST:
        raise ValueError(f"{pair!r} is not finite in float32")
    return index, value


def _as_y(labels: Sequence[Any], rules: _Rules) -> Any:
    """Return labels as an array of classes or an indicator matrix. Raise ValueError if a label is invalid."""
    if not rules.options.with_labels:
        return None
    if rules.options.task == "multiclass":
        y = np.asarray(labels)
        if y.size > 0 and not np.all(np.abs(y) < 2.0**53):  # also false for NaN
            raise ValueError("labels must be finite and below 2**53")
        whole = y.astype(np.int64)
        if not np.array_equal(whole, y):
            raise ValueError("labels must be integers")
        return whole
    lowest = min((min(row, default=0) for row in labels), default=0)
    highest = max((max(row, default=0) for row in labels), default=0)
    if not 0 <= lowest <= highest < MOST_LABELS or any(label % 1 for row in labels for label in row):
        raise ValueError("labels must be non-negative integers")
    return indicator(labels, rules.least_labels)


def _without_first_line(blocks: Iterator[LineBlock]) -> Iterator[LineBlock]:
    """Remove the first non-blank line, the header, from a sequence of blocks."""
    skipped = False
    for block in blocks:
        if skipped:
            yield block
            continue
        start = len(block.data) - len(block.data.lstrip())
        end = block.data.find(b"\n", start) + 1
        skipped = start < len(block.data)
        if skipped and end > 0:
            yield LineBlock(block.data[end:], block.first_line + block.data[:end].count(b"\n"), block.position)
