"""The trees of stores, in memory and in folders."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..journal import DurableTree
from ..tree import ContextualMemoryTree
from ._records import TABLES

_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


class _Recording(ContextualMemoryTree):
    """A tree that tells which memories an insert has evicted."""

    _evicted: list[np.ndarray] | None = None

    def _choose_to_forget(self, n: int) -> np.ndarray:
        chosen = super()._choose_to_forget(n)
        if self._evicted is not None:
            self._evicted.append(chosen)
        return chosen

    def insert_and_tell(self, X: Any) -> np.ndarray:
        """Insert memories, and return the ids of those that were evicted."""
        self._evicted = []
        try:
            self.insert(X)
            return np.concatenate([np.empty(0, np.int64), *self._evicted])
        finally:
            self._evicted = None


class MemoryTree(_Recording):
    """The tree of a store in memory."""

    @classmethod
    def new(cls, options: dict[str, Any]) -> Self:
        """Return an empty tree."""
        return cls(**with_defaults(options))


class FolderTree(_Recording, DurableTree):
    """The tree of a store in a folder. Its journal's database also holds the records."""

    _tables = TABLES

    def _create(self) -> None:
        # Only now it is known that there is none, also if creating one was interrupted before.
        self._become_the_same(ContextualMemoryTree(**with_defaults(self._given[1])))
        super()._create()
