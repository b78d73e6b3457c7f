"""Folders of durable trees for tests."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cmt_numba.journal import DurableTree

OPTIONS: dict[str, Any] = {"n_trees": 2, "leaf_multiplier": 1.0, "random_state": 5, "n_threads": 1}

FORMS_AND_EVICTIONS: list[tuple[str, str | None]] = [
    ("dense", None),
    ("sparse", None),
    ("dense", "least_recently_returned"),
    ("sparse", "oldest"),
    ("sparse", "random"),
]
"""Forms of keys and policies of eviction, None for trees without a bound: each at least once."""

_numbers = itertools.count()
Opened = Callable[..., DurableTree]


def crashed(folder: Path) -> Path:
    """Return a copy of a folder as it would be had its process been killed now."""
    left = folder.with_name(f"{folder.name} {next(_numbers)}")
    return Path(shutil.copytree(folder, left))


def entries_in(folder: Path) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(folder / "journal.sqlite")
    found = connection.execute("SELECT * FROM entries ORDER BY sequence").fetchall()
    connection.close()
    return found


def execute(folder: Path, *statements: Any) -> None:
    """Change the journal of a folder that is closed."""
    connection = sqlite3.connect(folder / "journal.sqlite")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.commit()
    connection.close()


def snapshots_in(folder: Path) -> list[str]:
    """Return the names of the snapshots in a folder."""
    return sorted(path.name for path in folder.glob("tree-*.cmt"))
