"""Reader for NumPy arrays and SciPy sparse matrices in ``.npz`` files."""

import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ._files import FormatError, check_file
from ._source import Batch, ReadOptions, Source


class ArraysSource(Source):
    """A file with arrays ``X`` and ``y`` or ``Y``, or a sparse matrix written by ``scipy.sparse.save_npz``.

    The labels of a sparse matrix come from a second file (``labels_file``), a ``.npy`` or ``.npz`` file. The whole
    file is read into memory.
    """

    format = "npz"
    suffixes = (".npz",)

    def _scanned(self) -> ReadOptions:
        X, y = self._arrays
        options = replace(self.options, n_features=X.shape[1])
        if y is None:
            return options
        task = "multilabel" if y.ndim == 2 else "multiclass"
        if options.task not in (None, task):
            raise self._error(f"has {task} labels, but the task is {options.task}; choose the task {task}")
        return replace(options, task=task, named_labels=y.dtype.kind == "U")

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        yield Batch(*self._arrays)

    def _error(self, reason: str, row: int | None = None) -> FormatError:
        return FormatError(self.path, reason, row=row)

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        """The checked rows, and their labels, if they are read."""
        arrays = _contents(self.path, "X")
        if "X" not in arrays:
            raise self._error(f"must contain an array X, but contains {', '.join(arrays) or 'no arrays'}")
        X = self._checked_rows(arrays["X"])
        if not self.options.with_labels:
            return X, None
        if self.options.labels_file is not None:
            arrays = _contents(self.options.labels_file, "y")
            if len(arrays) == 1:
                arrays = {"y": next(iter(arrays.values()))}
        y = arrays.get("y", arrays.get("Y"))
        if y is None:
            raise self._error("has no array y or Y with labels; add one, or name a labels file")
        return X, self._checked_labels(y, X.shape[0])

    def _checked_rows(self, X: Any) -> Any:
        if X.ndim != 2 or X.dtype.kind not in "fiub" or X.shape[1] == 0:
            raise self._error(f"X must be numbers of shape (rows, features), got {X.dtype} of shape {X.shape}")
        width, sparse = self.options.n_features or X.shape[1], scipy.sparse.issparse(X)
        if sparse and width > X.shape[1]:
            X.resize(X.shape[0], width)
        if X.shape[1] != width:
            raise self._error(f"X must have {width} features, got {X.shape[1]}")
        with np.errstate(over="ignore"):
            X = X.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(X.data if sparse else X))
        if bad.size > 0:
            row = int(X.indptr.searchsorted(bad[0], side="right")) if sparse else int(bad[0]) // width + 1
            raise self._error("X must be finite in float32, but it contains NaN or infinity", row)
        return X

    def _checked_labels(self, y: Any, n_rows: int) -> Any:
        if y.ndim not in (1, 2) or y.shape[0] != n_rows or y.dtype.kind not in "fiubU":
            wanted = f"labels must be numbers or text of shape ({n_rows},) or ({n_rows}, n_labels)"
            raise self._error(f"{wanted}, got {y.dtype} of shape {y.shape}")
        if y.ndim == 2:
            Y = scipy.sparse.csr_array(y)
            if not np.isfinite(Y.data).all():
                raise self._error("Y must be finite, but it contains NaN or infinity")
            Y = scipy.sparse.csr_array(Y != 0, dtype=np.int8)
            Y.sort_indices()
            return Y
        if y.dtype.kind == "U":
            return y
        is_wrong = ~np.isfinite(y) | (np.trunc(y) != y)
        if is_wrong.any():
            raise self._error(f"labels must be integers or text, got {y[is_wrong][0]}", int(is_wrong.argmax()) + 1)
        return y.astype(np.int64)


def _contents(path: str | PathLike[str], name: str) -> dict[str, Any]:
    """Return the arrays of a file. A single array or sparse matrix gets the given name. Reject pickled objects."""
    path = Path(path)
    check_file(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {name: loaded}
            if not {"format", "shape", "data"} <= set(loaded.files):
                return dict(loaded)
        matrix = scipy.sparse.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)
        return {name: scipy.sparse.csr_array(matrix)}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FormatError(path, f"is not a valid file of arrays: {' '.join(str(error).split())}") from error
