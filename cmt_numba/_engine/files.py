"""Forests in files and in pickles."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np

from .._concurrency.rwlock import changes
from .._forest.structures import writeable
from ..persistence._container import Contents
from ..persistence._trees import check_state, read_object, refusing, state_of, take, tree_contents, write_object
from .forest import Forest

_FORMER = {"n_links": 0, "keep": "all"}
"""Options that files leave out, so that without them they are as those of versions that did not know them."""

KIND = "ContextualMemoryTree"
"""The kind of object that files hold."""


class StoredForest(Forest):
    """A forest that can be saved, loaded, pickled and copied."""

    def _named_options(self) -> dict[str, Any]:
        """Return the options as the constructor takes them."""
        raise NotImplementedError

    def _set_up(self, options: dict[str, Any], n_threads: int | None) -> None:
        """Check options as the constructor takes them, and become an empty forest with them."""
        raise NotImplementedError

    @changes  # nothing, but other changes must wait
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees, their memories and all that they have learned to a file.

        An existing file is replaced when the new one is complete, so that a crash leaves one or the other. See
        :mod:`cmt_numba.persistence` for the format.

        Parameters
        ----------
        path : path-like
            The file. A symbolic link is followed.

        Raises
        ------
        InvariantError
            If an invariant of the trees is violated, which is a bug. Nothing has been written then.
        OSError
            If the file cannot be written, or ``path`` is not a regular file: a folder, a device, a named pipe.
        """
        write_object(
            path,
            lambda: Contents(KIND, *self._contents()),
            lambda read: type(self)._made_of(read.fields, read.arrays, thorough=True),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return the tree that :meth:`save` has written. It goes on exactly as the saved one would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file into memory instead of reading it. This takes no time, whatever the size of the file, and
            processes that map the same file share its memory. What a process changes is copied first, so it does not
            reach the file. Only the header is checked for damage. Map only files that you trust, and do not change
            them in place.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, of a later version, or not a tree's. The message says which.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (KIND,), mmap=mmap)
        with refusing(path):
            return cls._made_of(contents.fields, contents.arrays, thorough=not mmap)

    @classmethod
    def _made_of(
        cls, fields: dict[str, Any], arrays: dict[str, np.ndarray], *, thorough: bool, values: bool = True
    ) -> Self:
        """Return the tree with the contents of a file. See :func:`check_state` for what is validated.

        Raises
        ------
        InvariantError, TypeError, ValueError
            If these are not the contents of a tree.
        """
        tree = cls.__new__(cls)
        tree._become(fields, arrays)
        if tree._state is not None:
            check_state(tree._state, thorough=thorough, values=values)
            tree._check_bound()
            tree._eviction.restore(arrays, tree._state)
            tree._links.restore(arrays, tree._state, thorough=thorough, values=values)
        return tree

    def _become(self, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        n_threads = take(fields, "n_threads", int, type(None))
        self._set_up(take(fields, "options", dict), n_threads)
        self._streams, self._state = state_of(fields, arrays, self._options)

    def _contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, options = self._state, self._named_options()
        for name, former in _FORMER.items():
            if options[name] == former:
                del options[name]
        if state is None:
            return tree_contents(options, self._n_threads, self._streams, None)
        with self._lock.instant:  # queries that explore or are noted by the policy go on while the tree is saved
            state = state._replace(streams=state.streams.copy())
            noted = self._eviction.contents(state) | self._links.contents(state)
        fields, arrays = tree_contents(options, self._n_threads, self._streams, state)
        return fields, arrays | noted

    @changes  # nothing, but other changes must wait
    def __getstate__(self) -> dict[str, Any]:
        fields, arrays = self._contents()
        return {"fields": fields, "arrays": {name: array.copy() for name, array in arrays.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: writeable(array) for name, array in state["arrays"].items()}
        self._become(state["fields"], arrays)
        if self._state is not None:
            self._eviction.restore(arrays, self._state)
            self._links.restore(arrays, self._state, thorough=False)
