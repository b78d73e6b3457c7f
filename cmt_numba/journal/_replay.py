"""Changes of a journal done once more."""

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
    """Have a tree go through its journal; return whether it is the very same as before.

    Version 1 took note of replaced memories as returned when a journal was opened, but not when they were replaced. So
    its entries are gone through as they came about; and once more as they were opened, if this fits better.

    Raises
    ------
    FileFormatError
        If something is wrong with the journal.
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
    """Do a change of the journal. Raises LookupError, TypeError or ValueError if it cannot be done."""
    if entry.journal != tree._folder.identity:
        raise ValueError("it is of another journal")
    operation = operation_of(entry.name, entry.version)
    arguments = operation.called(entry.arguments)
    tree._is_ambiguous |= not operation.notes_returned and tree._eviction.minds_queries
    if entry.version > 1:
        tree._to_forget = np.empty(0, np.int64) if entry.forgotten is None else entry.forgotten
    try:
        tree._do(operation, arguments)
        if tree._to_forget is not None and tree._to_forget.size > 0:
            raise ValueError("more was forgotten than had to be")
    except (LookupError, TypeError, ValueError):
        # Where trees have grown otherwise than before, what a query explored may be no place in them. That is passed
        # over; whether a memory is missing is seen from their number.
        if exact:
            raise
    finally:
        tree._to_forget = None


@contextmanager
def refusing_entry(path: Path, sequence: int) -> Iterator[None]:
    """Turn what is wrong with an entry into an error that names it."""
    try:
        yield
    except FileFormatError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"entry {sequence} is not valid: {error}") from error
