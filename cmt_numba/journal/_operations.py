"""The operations of journal entries. This table is part of the format.

Names and versions of operations, and the names and defaults of their arguments, never change their meaning. If a method
or its parameters are renamed in Python, only the right-hand sides here change. An operation with a new meaning gets a
new version, and the old version stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..tree import ContextualMemoryTree

CURRENT = 2
"""The version of the operations in new entries."""

SNAPSHOT = "snapshot"
"""The name of the entry of a snapshot, which is not an operation."""

Arguments = dict[str, Any]


class Operation(NamedTuple):
    """The operation of an entry."""

    method: Callable[..., Any]
    parameters: dict[str, str]  # of the method, by the names of arguments in entries
    defaults: Mapping[str, Any] = MappingProxyType({})  # of arguments that an entry may omit
    notes_returned: bool = True  # whether it may change the least-recently-used list

    def stored(self, arguments: Arguments) -> Arguments:
        """Return arguments under their names in entries."""
        return {name: arguments[parameter] for name, parameter in self.parameters.items()}

    def called(self, stored: Arguments) -> Arguments:
        """Return the arguments of an entry under the parameter names of the method.

        Raises
        ------
        ValueError
            If an argument is missing or unknown.
        """
        unknown = sorted(stored.keys() - self.parameters.keys())
        if unknown:
            raise ValueError(f"it has an unknown argument {unknown[0]!r:.50}")
        given = {**self.defaults, **stored}
        for name in self.parameters:
            if name not in given:
                raise ValueError(f"it has no argument {name!r}")
        return {parameter: given[name] for name, parameter in self.parameters.items()}


OPERATIONS: dict[tuple[str, int], Operation] = {
    ("insert", 2): Operation(ContextualMemoryTree.insert, {"keys": "X"}),
    ("update", 2): Operation(
        ContextualMemoryTree.update,
        {"keys": "X", "hits": "hits", "rewards": "rewards", "rate": "key_learning_rate"},
        {"rate": 0.0},
    ),
    ("teach", 2): Operation(
        ContextualMemoryTree.teach, {"keys": "X", "ids": "ids", "passes": "n_passes", "afresh": "afresh"}
    ),
    ("remove", 2): Operation(ContextualMemoryTree.remove, {"ids": "ids"}),
    ("replace", 2): Operation(ContextualMemoryTree.replace, {"ids": "ids", "keys": "X"}),
    ("reroute", 2): Operation(ContextualMemoryTree.reroute, {"number": "n"}),
    ("rebuild", 2): Operation(ContextualMemoryTree.rebuild, {"ids": "ids", "groups": "groups"}),
    ("compact", 2): Operation(ContextualMemoryTree.compact, {"copies": "copies"}),
    ("draw", 2): Operation(ContextualMemoryTree._draw_word, {}),
    ("return", 2): Operation(ContextualMemoryTree._enter_returned, {"ids": "ids"}),
    ("scorer", 2): Operation(ContextualMemoryTree._set_scorer, {"weights": "weights", "squares": "squares"}),
    # Version 1: replaced memories did not count as returned.
    ("insert", 1): Operation(ContextualMemoryTree.insert, {"X": "X"}),
    ("update", 1): Operation(ContextualMemoryTree.update, {"X": "X", "hits": "hits", "rewards": "rewards"}),
    ("teach", 1): Operation(
        ContextualMemoryTree.teach,
        {"X": "X", "ids": "ids", "n_passes": "n_passes", "afresh": "afresh"},
        {"n_passes": 1, "afresh": False},
    ),
    ("remove", 1): Operation(ContextualMemoryTree.remove, {"ids": "ids"}),
    ("replace", 1): Operation(ContextualMemoryTree.replace, {"ids": "ids", "X": "X"}, notes_returned=False),
    ("reroute", 1): Operation(ContextualMemoryTree.reroute, {"n": "n"}),
    ("compact", 1): Operation(ContextualMemoryTree.compact, {"copies": "copies"}, {"copies": True}),
    ("draw_word", 1): Operation(ContextualMemoryTree._draw_word, {}),
    ("enter_returned", 1): Operation(ContextualMemoryTree._enter_returned, {"ids": "ids"}),
}


def operation_of(name: str, version: int) -> Operation:
    """Return the operation of an entry.

    Raises
    ------
    ValueError
        If it is unknown.
    """
    if (name, version) not in OPERATIONS:
        raise ValueError(f"its operation {name!r:.50} of version {version} is unknown")
    return OPERATIONS[name, version]
