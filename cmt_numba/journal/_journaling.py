"""Wrapping of the methods of trees, so that their calls are journaled, one by one or several as one change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..persistence import FileFormatError
from ._operations import CURRENT, operation_of

if TYPE_CHECKING:
    from ._tree import DurableTree

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], T]


def journaled(name: str, method: Method[P, T], *, synced: bool = True) -> Method[P, T]:
    """Return a method of a tree that journals its calls.

    Parameters
    ----------
    name : str
        The name of the operation in the journal.
    method : function
        The method, which must be deterministic. It must raise LookupError, TypeError and ValueError only before
        anything has changed.
    synced : bool, default True
        Whether the change counts for ``sync_every``. Otherwise it is synced with the next change that counts.
    """
    operation, signature = operation_of(name, CURRENT), inspect.signature(method)
    assert operation.method is method
    assert set(operation.parameters.values()) == set(signature.parameters) - {"self", "progress"}

    @wraps(method)
    def change(self: DurableTree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._in_a_change():
            return method(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()  # defaults may change in later versions
        arguments = bound.arguments
        shown = {"progress": arguments.pop("progress")} if "progress" in arguments else {}
        del arguments["self"]
        answer: T = self._change(name, operation, arguments, shown, synced)
        return answer

    return change


@contextmanager
def as_one(tree: DurableTree) -> Iterator[None]:
    """Sync all changes that are made meanwhile, and what is written to other tables, in one transaction.

    If the block fails before a change was made, because arguments are not valid, what was written to the tables is
    undone. After any other failure the tree rejects further changes; opening the folder again restores it.
    """
    with tree._alone():
        tree._enter_notes()  # queries before the change
        database, before = tree._folder.database, tree._sequence
        tree._as_one = True
        try:
            with tree._writing():
                database.begin()
                database.execute("SAVEPOINT as_one")
            yield
            with tree._writing():
                database.execute("RELEASE as_one")
        except BaseException as error:
            if tree._refusal is None:
                tree._refusal = "a change was not completed, and the tree in memory may differ from the journal"
                not_valid = isinstance(error, LookupError | TypeError | ValueError)
                if not_valid and not isinstance(error, FileFormatError) and tree._sequence == before:
                    with tree._writing():
                        database.execute("ROLLBACK TO as_one")
                        database.execute("RELEASE as_one")
                    tree._refusal = None
            raise
        finally:
            tree._as_one = False
        tree._end_change()
        tree._take_snapshot_if_due()
