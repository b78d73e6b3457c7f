"""What a store holds: vectors, keys and payloads, in memory, in a folder and in files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse

from .._engine import ArrayCache, Filter
from .._forest.invariants.errors import InvariantError, require
from .._forest.state import NONE
from .._validation import check_matrix, check_real
from ._checks import Key, check_keys, check_stored
from ._kept import Keeper, made_of, read_file
from ._metrics import check_lengths
from ._recall import Effort, Efforts
from ._records import Records
from ._results import Items, read_payload
from ._search import Search

_VECTORS_AT_ONCE = 10_000  # that are compared with their checksums

T = TypeVar("T")


class Holder:
    """The part of :class:`~cmt_numba.MemoryStore` that holds memories."""

    def _set_target(self, target_recall: float) -> None:
        self._target_recall = check_real("target_recall", target_recall, 0.0, 1.0, above=True)

    def _keep(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._efforts = Efforts()
        self._filters: tuple[int, dict[Any, Filter]] = (-1, {})  # the version of the store, and its filters
        self._remembered: ArrayCache[Filter] = ArrayCache()  # filters of arrays of keys

    def _records(self) -> Records:
        self._keeper.check_open()
        return self._keeper.kept.records

    def _read(self, work: Callable[[Search], T]) -> T:
        """Return what ``work`` returns while the keys of the tree are those of the space."""
        while True:
            self._keeper.check_open()
            before, search = self._keeper.rekeyed, self._keeper.search
            if before % 2 == 0:
                answer = work(search)
                if self._keeper.rekeyed == before:
                    return answer
            with self._keeper.writing:
                pass  # wait until all memories have their keys

    def _check_vectors(self, X: Any) -> Any:
        """Return vectors as float32, in the form of those stored."""
        X = self._check_form(X)
        check_lengths(X, self.metric)
        return X

    def _check_form(self, X: Any) -> Any:
        """Return vectors or queries as float32, in the form of those stored; they may hold anything."""
        self._keeper.check_open()
        X = check_matrix(X, n_features=self.n_features)
        state = self._keeper.kept.tree._forest.state
        if state is None or state.parameters.sparse != isinstance(X, np.ndarray):
            return X
        return scipy.sparse.csr_array(X) if state.parameters.sparse else X.toarray()

    # What it holds

    @property
    def metric(self) -> str:
        """The metric."""
        return self._keeper.space.metric

    @property
    def path(self) -> str | None:
        """The folder; None for a store in memory."""
        return None if self._keeper.path is None else os.fspath(self._keeper.path)

    @property
    def n_features(self) -> int | None:
        """The width of the vectors, set by the first; None before."""
        width = self._keeper.kept.tree.n_features
        return None if width is None else width - self._keeper.space.n_more

    @property
    def max_items(self) -> int | None:
        """The maximum number of memories."""
        most: int | None = self._keeper.kept.tree._forest.options["max_memories"]
        return most

    @property
    def recall(self) -> tuple[Effort, ...]:
        """The recall that was measured, and the leaves that are searched for it, for each kind of query so far."""
        return self._efforts.known()

    def __len__(self) -> int:
        return self._keeper.kept.tree.n_memories

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            return False
        try:
            checked = check_keys(key)
        except ValueError:
            return False
        return bool(self._records().find(checked)[0] >= 0)

    def __iter__(self) -> Iterator[Key]:
        last = -1
        while found := self._records().after(last):
            yield from (key for _, key, _ in found)
            last = found[-1][0]

    def __repr__(self) -> str:
        place = "in memory" if self._keeper.path is None else f"in {self._keeper.path}"
        return f"MemoryStore({place}, metric={self.metric!r}) with {len(self)} memories"

    def get(self, keys: Any) -> Items:
        """Return the vectors and payloads of memories.

        Parameters
        ----------
        keys : str, int or list of them, length n
            Their keys; one key counts as a list of one.

        Returns
        -------
        Items
            Keys, vectors (n, n_features) and payloads.

        Raises
        ------
        KeyError
            If a key is not stored.
        TypeError, ValueError
            If these are no keys.
        """
        checked = check_keys(keys, distinct=False)

        def read(search: Search) -> tuple[Items, bool]:
            records = search.records
            ids = records.find(checked)
            check_stored(checked, ids)
            distinct = ids if ids.size == 1 else np.unique(ids)
            vectors, found, exact = search.read(distinct)
            if len(found) < distinct.size:
                check_stored(checked, np.where(np.isin(ids, vectors.ids), ids, NONE))
            at = vectors.ids.searchsorted(ids)
            payloads = [read_payload(found[i].payload) for i in at.tolist()]
            return Items(checked, vectors.rows[at], payloads), exact

        items, are_exact = self._read(read)
        if not are_exact:  # they were changed meanwhile
            with self._keeper.writing:
                items, are_exact = self._read(read)
                require(are_exact, "vectors are not those that were added")
        return items

    def check_invariants(self) -> None:
        """Check that vectors, keys and payloads belong together, and that nothing of them is damaged on disk.

        This reads everything. Opening a folder reads of the vectors only what searches depend on.

        Raises
        ------
        cmt_numba.InvariantError
            If keys, payloads and vectors do not belong together, or an invariant of the trees is violated.
        cmt_numba.persistence.FileFormatError
            If a file is damaged.
        OSError
            If a file cannot be read.
        """
        with self._keeper.writing:
            self._keeper.check_open()
            kept = self._keeper.kept
            kept.tree.check_invariants()
            require(kept.records.are_indexed(), "the index of the keys is not theirs")
            try:
                kept.check(thorough=True)
            except ValueError as error:
                raise InvariantError(str(error)) from error
            ids = np.sort(kept.tree.ids)
            for first in range(0, ids.size, _VECTORS_AT_ONCE):
                exact = self._keeper.search.read(ids[first : first + _VECTORS_AT_ONCE])[2]
                require(exact, "vectors are not those that were added")

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to one file, which :meth:`load` reads. An existing file is replaced at once or not at all.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        self._keeper.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False, *, target_recall: float = 0.95) -> Self:
        """Return the store in a file, in memory.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the vectors and trees into memory instead of reading them. Map only files that you trust.
        target_recall : float in (0, 1], default 0.95
            As for the constructor.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, of a later version, or not a store's.
        OSError
            If the file cannot be read.
        """
        store = cls.__new__(cls)
        store._set_target(target_recall)
        store._keep(Keeper.of(read_file(path, mmap=mmap)))
        return store

    def sync(self) -> None:
        """Write all changes to disk and wait for it. Without ``sync_every`` above 1 this has been done already."""
        with self._keeper.writing:
            self._keeper.check_open()
            self._keeper.sync()

    def close(self) -> None:
        """Write all changes to disk and close the store, which cannot be used any more."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        with self._keeper.writing:
            self._keeper.check_open()
            contents = self._keeper.kept.tree._lock.change(self._keeper.contents)
            arrays = {name: array.copy() for name, array in contents.arrays.items()}
        return {"contents": contents._replace(arrays=arrays), "target_recall": self._target_recall}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_target(state["target_recall"])
        self._keep(Keeper.of(made_of(state["contents"], thorough=False)))
