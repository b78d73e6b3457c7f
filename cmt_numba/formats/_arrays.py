"""Reader for NumPy arrays and SciPy sparse matrices in ``.npz`` files."""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ._files import FormatError, check_file
from ._options import ReadOptions
from ._source import Source


class ArraysSource(Source):
    """A file with arrays ``X`` and ``y`` or ``Y``, or a sparse matrix written by ``scipy.sparse.save_npz``.

    The labels of a sparse matrix come from a second file (``labels_file``), a ``.npy`` or ``.npz`` file. The whole
    file is read into memory.
    """

    format = "npz"
    suffixes = (".npz",)
    _unit = "row"

    def _scanned(self) -> ReadOptions:
        X, y = self._arrays
        options = replace(self.options, n_features=X.shape[1])
        if y is not None and y.ndim == 2:
            self._n_labels = y.shape[1]
            return replace(options, task="multilabel", named_labels=False)
        return self._with_scanned_labels(options, keeps_text=True)

    def _blocks(self, options: ReadOptions) -> Iterator[tuple[range, range]]:
        n_rows = self._arrays[0].shape[0]
        if n_rows > 0:
            yield range(1, n_rows + 1), range(n_rows)

    def _features(self, rows: Any, options: ReadOptions) -> Any:
        X = self._arrays[0][: len(rows)]
        if not np.isfinite(X.data if scipy.sparse.issparse(X) else X).all():
            raise ValueError("X must be finite in float32, but it contains NaN or infinity")
        return X

    def _labels(self, rows: Any, options: ReadOptions) -> Sequence[Any]:
        y = self._arrays[1][: len(rows)]
        if y.ndim == 1:
            return y.tolist()
        if not np.isfinite(y.data).all():
            raise ValueError("Y must be finite, but it contains NaN or infinity")
        return [tuple(labels.tolist()) for labels in np.split(y.indices, y.indptr[1:-1])]

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        """The rows, and their labels, if they are read."""
        arrays = _contents(self.path, "X")
        if "X" not in arrays:
            raise FormatError(self.path, f"must contain an array X, but contains {', '.join(arrays) or 'no arrays'}")
        X = self._rows(arrays["X"])
        if not self.options.with_labels:
            return X, None
        if self.options.labels_file is not None:
            arrays = _contents(self.options.labels_file, "y")
            if len(arrays) == 1:
                arrays = {"y": next(iter(arrays.values()))}
        y = arrays.get("y", arrays.get("Y"))
        if y is None:
            raise FormatError(self.path, "has no array y or Y with labels; add one, or name a labels file")
        n_rows = X.shape[0]
        if y.ndim not in (1, 2) or y.shape[0] != n_rows or y.dtype.kind not in "fiubU":
            wanted = f"labels must be numbers or text of shape ({n_rows},) or ({n_rows}, n_labels)"
            raise FormatError(self.path, f"{wanted}, got {y.dtype} of shape {y.shape}")
        if y.dtype.kind == "b":
            y = y.astype(np.int8)
        if y.ndim == 2:
            y = scipy.sparse.csr_array(y)
            y.eliminate_zeros()
        return X, y

    def _rows(self, X: Any) -> Any:
        if X.ndim != 2 or X.dtype.kind not in "fiub" or X.shape[1] == 0:
            raise FormatError(
                self.path, f"X must be numbers of shape (rows, features), got {X.dtype} of shape {X.shape}"
            )
        width = self.options.n_features or X.shape[1]
        if scipy.sparse.issparse(X) and width > X.shape[1]:
            X.resize(X.shape[0], width)
        if X.shape[1] != width:
            raise FormatError(self.path, f"X must have {width} features, got {X.shape[1]}")
        with np.errstate(over="ignore"):
            return X.astype(np.float32)


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
