"""Wrapping of the methods of trees, so that their calls are journaled."""

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
