"""Readers for lines of labels and features, which scikit-learn parses: svmlight and Extreme Classification."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import scipy.sparse

from ._files import FormatError, first_line
from ._options import ReadOptions
from ._source import Source

_MOST_FEATURES = 2**31 - 1  # the limit of kernels, repeated here because importing kernels imports Numba


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
        for _, lines in self._blocks(options):
            for line in lines:
                head, _, _ = line.partition(b"#")[0].rpartition(b":")
                index = head.rsplit(None, 1)[-1:]  # features are in ascending order, so the last one is the largest
                if index and index[0].isdigit():
                    last = max(last, int(index[0]))
            several = several or any(label is None or "," in label for label in self._labels(lines, options))
        task = options.task or ("multilabel" if several else "multiclass")
        return replace(options, n_features=options.n_features or min(last + 1, _MOST_FEATURES), task=task)

    def _blocks(self, options: ReadOptions) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        return self._lines(lambda line: line.lstrip()[:1] not in (b"", b"#"))

    def _labels(self, rows: Sequence[bytes], options: ReadOptions) -> Sequence[str | None]:
        return _labels(rows)

    def _features(self, rows: Sequence[bytes], options: ReadOptions) -> scipy.sparse.csr_array:
        return _features(rows, options, "label feature:value ...")


class ExtremeSource(Source):
    """A file of the Extreme Classification Repository.

    The header line is ``rows features labels``. Each other line has the form ``label,label,... feature:value ...``,
    with features in any order. A blank line is a row without labels and features.
    """

    format = "xc"
    suffixes = (".xc",)

    def _scanned(self) -> ReadOptions:
        header = re.fullmatch(rb"\s*(\d+)\s+([1-9]\d*)\s+(\d+)\s*", first_line(self.path))
        if header is None:
            raise FormatError(self.path, "must be three integers: rows, features, labels", line=1)
        self._n_rows, least, self._n_labels = map(int, header.groups())
        self._max_labels = self._n_labels
        n_features = self.options.n_features or least
        if max(n_features, self._n_labels) > _MOST_FEATURES:
            reason = f"must have at most {_MOST_FEATURES} features and labels, got {n_features} and {self._n_labels}"
            raise FormatError(self.path, reason, line=1)
        if self.options.task == "multiclass":
            raise FormatError(self.path, "has several labels per row, as the format is xc; choose the task multilabel")
        if n_features < least:
            raise FormatError(self.path, f"n_features must be at least {least}, got {n_features}", line=1)
        return replace(self.options, task="multilabel", n_features=n_features)

    def _blocks(self, options: ReadOptions) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        n_seen = 0
        for numbers, lines in self._lines(lambda line: True, n_headers=1):
            n_seen += len(lines)
            yield numbers, lines
        if n_seen != self._n_rows:
            raise FormatError(
                self.path, f"has {n_seen} rows, but its header states {self._n_rows}; use a complete copy"
            )

    def _labels(self, rows: Sequence[bytes], options: ReadOptions) -> Sequence[str | None]:
        return _labels(rows)

    def _features(self, rows: Sequence[bytes], options: ReadOptions) -> scipy.sparse.csr_array:
        rows = [line if line.strip() else b"0:0\n" for line in rows]  # scikit-learn skips blank lines
        form = "label,label,... feature:value ..."
        try:
            return _features(rows, options, form)
        except ValueError:
            return _features(list(map(_with_sorted_features, rows)), options, form)


def _labels(lines: Sequence[bytes]) -> list[str | None]:
    """Return the first word of each line, or None if it is a feature."""
    words = [line.split(None, 1)[:1] for line in lines]
    return [word[0].decode(errors="replace") if word and b":" not in word[0] else None for word in words]


def _features(lines: Sequence[bytes], options: ReadOptions, form: str) -> scipy.sparse.csr_array:
    from sklearn.datasets import load_svmlight_file  # slow to import

    try:
        X, _ = load_svmlight_file(BytesIO(b"".join(lines)), dtype=np.float32, multilabel=True, zero_based=True)
    except (ValueError, OverflowError, IndexError) as error:
        raise ValueError(f"must have the format {form} and ascending integer features: {error}") from None
    n_features = options.n_features or X.shape[1]
    if not np.isfinite(X.data).all():
        raise ValueError("has a value that is not finite in float32")
    if X.shape[1] > n_features and X.nnz > 0:
        raise ValueError(f"feature {X.shape[1] - 1} is too large: features must be between 0 and {n_features - 1}")
    return scipy.sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], n_features))


def _with_sorted_features(line: bytes) -> bytes:
    def feature(word: Any) -> int:
        return int(word.partition(b":")[0]) if b":" in word else -1

    return b" ".join(sorted(line.split(), key=feature)) + b"\n"
