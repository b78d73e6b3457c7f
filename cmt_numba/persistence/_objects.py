"""Saving and loading of objects."""

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np

from .._kernels import InvariantError
from ._container import Contents, FileFormatError, file_to_write, read_contents, write_contents
from ._fields import WithFields

S = TypeVar("S", bound="Saved")


def write_object(
    path: str | os.PathLike[str], gather: Callable[[], Contents], made_of: Callable[[Contents], Any], mode: int = 0o666
) -> None:
    """Write a tree or an estimator to a file, after checking that its contents can be loaded.

    - ``gather``: a function that returns the contents. It is called only if the path can be written.
    - ``made_of``: a function that creates an object from contents. It raises InvariantError, TypeError or ValueError if
      the contents are invalid.
    - ``mode``: the permissions of a new file, before the umask.
    """
    file_to_write(path)
    contents = gather()
    arrays = {name: np.ascontiguousarray(array) for name, array in contents.arrays.items()}
    made_of(contents._replace(fields=json.loads(json.dumps(contents.fields, allow_nan=False)), arrays=arrays))
    write_contents(path, contents, mode)


def read_object(
    path: str | os.PathLike[str], kinds: tuple[str, ...], *, mmap: bool, unread: Collection[str] = ()
) -> Contents:
    """Return the contents of an object of one of ``kinds``; arrays ``unread`` are mapped without verification."""
    contents = read_contents(path, mmap=mmap, unread=unread)
    if contents.kind not in kinds:
        raise FileFormatError(path, f"must contain an object of type {' or '.join(kinds)}, got {contents.kind!r}")
    return contents


@contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors about invalid contents into FileFormatError, which names the file."""
    try:
        yield
    except (InvariantError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"has invalid contents: {error}") from error


class Saved(WithFields):
    """An object that can be saved to a file and loaded from it. The file contains the name of the class.

    Subclasses whose objects other threads may change override :meth:`save` to lock the object. Subclasses with large
    arrays override :meth:`load` to take the option ``mmap``.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this object to a file. The loaded object behaves exactly like this one.

        An existing file is replaced atomically. The file is written only if :meth:`load` can read it back. See
        :mod:`cmt_numba.persistence` for the format.
        """
        write_object(path, self._contents, self._made_of)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load an object that :meth:`save` has written."""
        return object_of((cls,), path)


def object_of(
    classes: tuple[type[S], ...], path: str | os.PathLike[str], *, mmap: bool = False, thorough: bool = True
) -> S:
    """Load an object of any of ``classes`` from a file."""
    kinds = {kind._name_in_files(): kind for kind in classes}
    contents = read_object(path, tuple(kinds), mmap=mmap)
    with refusing(path):
        return kinds[contents.kind]._made_of(contents, thorough=thorough)
