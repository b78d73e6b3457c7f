"""Models in files: an estimator, and how the data that it has learned from was read.

The files hold pickles, which can run any code when they are loaded: load only files that you trust. A first line in
plain text keeps other files from being loaded by mistake; it does not make a file safe.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ._version import __version__
from .formats import ReadOptions

_NAME = b"cmt-numba model"
_FIRST_LINE = _NAME + b" " + __version__.encode() + b"\n"


class Model(NamedTuple):
    """What a file of a model holds.

    Attributes
    ----------
    estimator : estimator
        A :class:`CMTClassifier` or :class:`CMTMultilabelClassifier` that has learned.
    options : ReadOptions
        How its data was read.
    """

    estimator: Any
    options: ReadOptions


def save_model(path: Path, model: Model) -> None:
    """Write a model; a file that is there already is replaced at once, when the new one is complete.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    import joblib

    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(_FIRST_LINE)
            joblib.dump(tuple(model), file)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_model(path: Path) -> Model:
    """Read a model. Only for files that you trust: they can run any code.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no model, or one of another version.
    """
    import joblib

    with path.open("rb") as file:
        first_line = file.readline(100)
        if not first_line.startswith(_NAME):
            raise ValueError(f"{path} is not a model that this program has written")
        if first_line != _FIRST_LINE:
            version = first_line[len(_NAME) :].decode("ascii", "replace").strip()
            raise ValueError(f"{path} was written by version {version}, which version {__version__} cannot read")
        try:
            return Model(*joblib.load(file))
        except Exception as error:  # unpickling what is cut off can raise anything
            raise ValueError(f"{path} is damaged or cut off") from error


def is_model(path: Path) -> bool:
    """Return whether a file looks like a model, without loading it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_NAME)) == _NAME
