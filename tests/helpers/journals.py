"""Folders of durable trees for tests."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conftest import FORM_OF
from internals import contents_of, folder_of, forest_of

from cmt_numba import ContextualMemoryTree
from cmt_numba._engine import draw_seed
from cmt_numba.journal import Journal

OPTIONS: dict[str, Any] = {"n_trees": 2, "leaf_multiplier": 1.0, "random_state": 5, "n_threads": 1}


_FEATURES = 12
_numbers = itertools.count()
Opened = Callable[..., ContextualMemoryTree]


def journal_of(tree: ContextualMemoryTree) -> Journal:
    """Return the journal of a tree in a folder."""
    journal: Journal = folder_of(tree).journal
    return journal


def crashed(folder: Path) -> Path:
    """Return a copy of a folder, as if its process had been killed at this moment."""
    left = folder.with_name(f"{folder.name} {next(_numbers)}")
    return Path(shutil.copytree(folder, left))


def entries_in(folder: Path) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(folder / "journal.sqlite")
    found = connection.execute("SELECT sequence, entry FROM entries ORDER BY sequence").fetchall()
    connection.close()
    return found


def execute(folder: Path, *statements: Any) -> None:
    """Run SQL statements on the journal of a closed folder."""
    connection = sqlite3.connect(folder / "journal.sqlite")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.commit()
    connection.close()


def snapshots_in(folder: Path) -> list[str]:
    """Return the names of the snapshots in a folder."""
    return sorted(path.name for path in folder.glob("tree-*.cmt"))


def change(tree: ContextualMemoryTree, form: str, number: int, most: int = 3) -> int:
    """Make the change of this number, or at most ``min(3, most)`` changes; return how many were made.

    The changes depend only on the number and the tree.
    """
    random = np.random.default_rng([number, 5])
    rows = random.normal(size=(random.integers(1, 20), _FEATURES)) * (random.random(_FEATURES) < 0.5)
    X, ids = FORM_OF[form](rows.astype(np.float32)), np.sort(tree.ids)
    draw, noted = random.random(), int(forest_of(tree).eviction.minds_queries)
    if len(tree) < 20 or draw < 0.3 + 0.2 * (len(tree) < 300):
        tree.insert(X)
    elif draw < 0.6:
        tree.remove(random.choice(ids, random.integers(1, 20), replace=False))
    elif draw < 0.7:
        tree.replace(random.choice(ids, X.shape[0], replace=False), X)
    elif draw < 0.8:
        if most == 1:  # draws random numbers first, and then records the returned memories
            draw_seed(forest_of(tree))
            return 1
        hits = tree.query(X, 3, epsilon=0.5)
        if most == 1 + noted:
            return 1 + noted
        tree.update(X, hits, np.clip(hits.scores, 0.0, 1.0))  # rewards that teach
        return 2 + noted
    elif draw < 0.85 and noted:
        tree.query(X, 2)
    elif draw < 0.9:
        tree.teach(X, random.choice(ids, X.shape[0]))
    elif draw < 0.95:
        tree.reroute(10)
    else:
        tree.compact()
    return 1


def same(one: ContextualMemoryTree, other: ContextualMemoryTree) -> bool:
    """Return whether two trees are equal bit for bit, except for spare room."""
    mine, others = contents_of(one)(), contents_of(other)()
    return (
        mine.fields == others.fields
        and mine.arrays.keys() == others.arrays.keys()
        and all(array.tobytes() == others.arrays[name].tobytes() for name, array in mine.arrays.items())
    )
