"""Objects that are saved to files and loaded as a whole."""

from __future__ import annotations

import os
from typing import Self, TypeVar

import numpy as np

from ._container import Contents
from ._trees import read_object, refusing, write_object

Arrays = dict[str, np.ndarray]

S = TypeVar("S", bound="Saved")


class Saved:
    """What has contents for a file, and can be made of them.

    A class that other threads may change meanwhile locks :meth:`save`; one whose arrays are better mapped than read
    passes ``mmap`` on to :meth:`_loaded`. The name of the class tells its files from others.
    """

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
        return cls._loaded(path, mmap=False)

    @classmethod
    def _loaded(cls, path: str | os.PathLike[str], *, mmap: bool) -> Self:
        return object_of((cls,), path, mmap=mmap)

    def _contents(self) -> Contents:
        """Return what a file holds of this."""
        raise NotImplementedError

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        """Return what contents describe. Raises InvariantError, TypeError or ValueError if they are not valid."""
        raise NotImplementedError


def object_of(classes: tuple[type[S], ...], path: str | os.PathLike[str], *, mmap: bool = False) -> S:
    """Return the object of one of some classes that a file holds.

    Raises
    ------
    FileFormatError
        If the file is damaged or holds something else.
    OSError
        If the file cannot be read.
    """
    kinds = {kind.__name__: kind for kind in classes}
    contents = read_object(path, tuple(kinds), mmap=mmap)
    with refusing(path):
        return kinds[contents.kind]._made_of(contents)


def as_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays of a part of an object, under names that begin with that of the part."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def of_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays that :func:`as_part` was given."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
