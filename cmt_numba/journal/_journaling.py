"""Methods of trees as methods that are entered in the journal."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ._operations import CURRENT, operation_of

if TYPE_CHECKING:
    from ._tree import DurableTree

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], T]


def journaled(name: str, method: Method[P, T], *, synced: bool = True) -> Method[P, T]:
    """Return a method of a tree as one that is entered in the journal.

    Parameters
    ----------
    name : str
        The name of the operation in the journal.
    method : function
        The operation's. It changes the tree: the same way for the same arguments. What it raises of LookupError,
        TypeError and ValueError it must raise before anything has changed.
    synced : bool, default True
        Whether the change counts for ``sync_every``. One that does not waits for the next that does.
    """
    operation, signature = operation_of(name, CURRENT), inspect.signature(method)
    assert operation.method is method
    assert set(operation.parameters.values()) == set(signature.parameters) - {"self", "progress"}

    @wraps(method)
    def change(self: DurableTree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._in_a_change():
            return method(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()  # defaults may be others one day
        arguments = bound.arguments
        shown = {"progress": arguments.pop("progress")} if "progress" in arguments else {}
        del arguments["self"]
        answer: T = self._change(name, operation, arguments, shown, synced)
        return answer

    return change
