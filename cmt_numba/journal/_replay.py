"""Replaying the changes of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..persistence import FileFormatError
from ._entries import Entry
from ._operations import operation_of

if TYPE_CHECKING:
    from ._tree import DurableTree


def recover(tree: DurableTree, go_through: Callable[[], bool]) -> bool:
    """Replay the journal of a tree; return whether the tree is identical to the one before.

    Version 1 counted replaced memories as returned when it replayed a journal, but not when they were replaced. Its
    entries are therefore replayed as they were made and, if the result differs, as version 1 replayed them.

    Raises
    ------
    FileFormatError
        If the journal is invalid.
    """
    error: FileFormatError | None = None
    try:
        exact = go_through()
    except FileFormatError as raised:
        exact, error = False, raised
    if not exact and tree._is_ambiguous:
        tree._as_reopened = True
        try:
            return go_through()
        except FileFormatError:
            if error is None:
                tree._as_reopened = False
                return go_through()
        finally:
            tree._as_reopened = False
    if error is not None:
        raise error
    return exact


def redo(tree: DurableTree, entry: Entry, exact: bool) -> None:
    """Replay an entry. Raise LookupError, TypeError or ValueError if this is impossible."""
    if entry.journal != tree._folder.identity:
        raise ValueError("it is of another journal")
    operation = operation_of(entry.name, entry.version)
    arguments = operation.called(entry.arguments)
    tree._is_ambiguous |= not operation.notes_returned and tree._forest.eviction.minds_queries
    if entry.version > 1:
        tree._to_forget = np.empty(0, np.int64) if entry.forgotten is None else entry.forgotten
    try:
        tree._do(operation, arguments)
        if tree._to_forget is not None and tree._to_forget.size > 0:
            raise ValueError("it lists more evicted memories than were evicted")
    except (LookupError, TypeError, ValueError):
        # If the trees differ from those before, a node that a query explored may not exist. Such errors are ignored;
        # a missing memory is detected by the number of memories.
        if exact:
            raise
    finally:
        tree._to_forget = None


@contextmanager
def refusing_entry(path: Path, sequence: int) -> Iterator[None]:
    """Turn errors about an entry into errors that name it."""
    try:
        yield
    except FileFormatError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"entry {sequence} is not valid: {error}") from error
