"""Reader for NumPy arrays and SciPy sparse matrices in ``.npz`` files."""

import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ._source import Batch, ReadOptions, Source
from ._text import FormatError, check_file


class ArraysSource(Source):
    """A file with arrays ``X`` and ``y`` or ``Y``, or a sparse matrix written by ``scipy.sparse.save_npz``.

    The labels of a sparse matrix come from a second file (``labels_file``), a ``.npy`` or ``.npz`` file. The whole
    file is read into memory.
    """

    format = "npz"
    suffixes = (".npz",)
    unit = "row"

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        self._loaded: tuple[Any, Any] | None = None

    def _scanned(self) -> ReadOptions:
        X, y = self._arrays()
        if y is None:
            return replace(self.options, n_features=X.shape[1])
        task = "multilabel" if y.ndim == 2 else "multiclass"
        if self.options.task not in (None, task):
            reason = f"has {task} labels, but the task is {self.options.task}; choose the task {task}"
            raise FormatError(self.path, reason)
        named = task == "multiclass" and y.dtype.kind not in "iu"
        return replace(self.options, n_features=X.shape[1], task=task, named_labels=named)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        X, y = self._arrays()
        for first in range(0, X.shape[0], self.rows_in_a_chunk):
            stop = min(first + self.rows_in_a_chunk, X.shape[0])
            yield Batch(X[first:stop], None if y is None else y[first:stop], stop)

    def _arrays(self) -> tuple[Any, Any]:
        if self._loaded is None:
            X, y = self._found()
            if not scipy.sparse.issparse(X):
                X = np.asarray(X)
            if X.ndim != 2 or X.dtype.kind not in "fiub" or X.shape[1] == 0:
                raise FormatError(
                    self.path, f"X must be numbers of shape (rows, features), got {X.dtype} of shape {X.shape}"
                )
            width = self.options.n_features
            if scipy.sparse.issparse(X):
                X = scipy.sparse.csr_array(X, dtype=np.float32)
                if width is not None and width > X.shape[1]:
                    X = scipy.sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], width))
            else:
                with np.errstate(over="ignore"):
                    X = X.astype(np.float32)
            if width is not None and X.shape[1] != width:
                raise FormatError(self.path, f"X must have {width} features, got {X.shape[1]}")
            self._check_finite(X)
            self._loaded = X, self._checked_labels(y, X.shape[0])
            self.extent = X.shape[0]
        return self._loaded

    def _check_finite(self, X: Any) -> None:
        if scipy.sparse.issparse(X):
            bad = np.flatnonzero(~np.isfinite(X.data))
            rows = np.searchsorted(X.indptr, bad[:1], side="right")
        else:
            rows = np.flatnonzero(~np.isfinite(X).all(axis=1))[:1] + 1
        if rows.size > 0:
            raise FormatError(
                self.path, "X must be finite in float32, but it contains NaN or infinity", row=int(rows[0])
            )

    def _checked_labels(self, y: Any, n_rows: int) -> Any:
        if not self.options.with_labels:
            return None
        if y is None:
            raise FormatError(self.path, "has no array y or Y with labels; add one, or name a labels file")
        if y.ndim not in (1, 2) or y.shape[0] != n_rows or y.dtype.kind not in "fiubU":
            reason = (
                f"labels must be numbers or text of shape ({n_rows},) or ({n_rows}, n_labels), "
                f"got {y.dtype} of shape {y.shape}"
            )
            raise FormatError(self.path, reason)
        if y.ndim == 2:
            Y = scipy.sparse.csr_array(y)
            if not np.isfinite(Y.data).all():
                raise FormatError(self.path, "Y must be finite, but it contains NaN or infinity")
            Y = scipy.sparse.csr_array(Y != 0, dtype=np.int8)
            Y.sort_indices()
            return Y
        if y.dtype.kind == "U":
            return y
        is_wrong = ~np.isfinite(y) | (np.trunc(y) != y)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise FormatError(self.path, f"labels must be integers or text, got {y[row]} in row {row}")
        return y.astype(np.int64)

    def _found(self) -> tuple[Any, Any]:
        arrays = _contents(self.path)
        second = self.options.labels_file
        if scipy.sparse.issparse(arrays):
            X, y = arrays, None
        elif isinstance(arrays, dict):
            if "X" not in arrays:
                raise FormatError(
                    self.path, f"must contain an array X, but contains {', '.join(arrays) or 'no arrays'}"
                )
            X, y = arrays["X"], arrays.get("y", arrays.get("Y"))
        else:
            X, y = arrays, None
        if second is not None and self.options.with_labels:
            y = _contents(Path(second))
            if isinstance(y, dict):
                names = [name for name in ("y", "Y") if name in y] or list(y)[:1]
                if not names:
                    raise FormatError(second, "has no array of labels; name it y or Y")
                y = y[names[0]]
        return X, y


def _contents(path: Path) -> Any:
    """Return an array, a dictionary of arrays, or a sparse matrix. Reject pickled objects."""
    check_file(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            with loaded:
                if not {"format", "shape", "data"} <= set(loaded.files):
                    return {name: loaded[name] for name in loaded.files}
        matrix = scipy.sparse.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)
        return scipy.sparse.csr_array(matrix)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FormatError(path, f"is not a valid file of arrays: {' '.join(str(error).split())}") from error
