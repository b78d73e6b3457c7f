"""Objects that are saved to files and loaded as a whole."""

from __future__ import annotations

import os
from typing import Self

import numpy as np

from ._container import Contents
from ._trees import read_object, refusing, write_object

Arrays = dict[str, np.ndarray]


class Saved:
    """What has contents for a file, and can be made of them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this to a file. What is loaded from it goes on as this does.

        Parameters
        ----------
        path : path-like
            The file; replaced at once if it is there already.

        Raises
        ------
        OSError
            If the file cannot be written.
        TypeError, ValueError
            If something cannot be saved; nothing has been written then.
        """
        write_object(path, self._contents, self._made_of)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what :meth:`save` has written.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged or holds something else.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (cls.__name__,), mmap=False)
        with refusing(path):
            return cls._made_of(contents)

    def _contents(self) -> Contents:
        raise NotImplementedError

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        raise NotImplementedError


def as_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays of a part of an object, under names that begin with that of the part."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def of_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays that :func:`as_part` was given."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
