"""How files of earlier versions of the format load.

Whenever what is in a file changes, the version of the format goes up by one, a function that makes the contents of a
file of the version before into that of the new one is entered here, and files of the new version become fixtures of the
tests. An array that is new, for example, is added with what it stands for where nobody has used it.
"""

from collections.abc import Callable
from typing import Any

from . import _container
from ._container import Contents


def _with_bound(contents: Contents) -> Contents:
    """Give trees, and those of estimators, the options that say how many memories they may hold: any number."""
    attributes = _mapping(contents.fields.get("attributes"))
    trees = [contents.fields, _mapping(attributes.get("forest_")), _mapping(attributes.get("examples_"))]
    for options in (_mapping(tree.get("options")) for tree in trees):
        if options:
            options |= {"max_memories": None, "eviction": "least_recently_returned"}
    return contents


def _mapping(value: Any) -> dict[str, Any]:
    """Return what may be in a file's place for a mapping, or an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}


UPGRADES: dict[int, Callable[[Contents], Contents]] = {2: _with_bound}
"""By version, from 2 on: what a file of the version before would hold had this version written it."""


def upgraded(contents: Contents) -> Contents:
    """Return the contents of a file as this version would have written them."""
    for version in range(contents.version + 1, _container.FORMAT_VERSION + 1):
        contents = UPGRADES[version](contents)
    return contents
