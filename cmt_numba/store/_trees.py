"""The trees of stores, in memory and in folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..journal import Durability, DurableTree, RecordedTree
from ._records import TABLES

StoreTree = DurableTree | RecordedTree

_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


def tree_in_folder(path: Path, options: dict[str, Any], durability: Durability, *, read_only: bool) -> DurableTree:
    """Return the tree of a store in a folder. The database of its journal also holds the records."""
    return DurableTree._with_tables(
        path, options, durability, read_only=read_only, with_defaults=with_defaults, tables=TABLES
    )


def insert_and_evict(tree: StoreTree, keys: Any) -> np.ndarray:
    """Insert memories, and return the ids of those that were evicted."""
    if isinstance(tree, DurableTree):
        tree.insert(keys)
        return tree._last_evicted
    tree.start_recording()
    tree.insert(keys)
    return tree.evicted
