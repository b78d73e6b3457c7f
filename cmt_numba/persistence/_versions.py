"""How files of earlier versions of the format load.

Whenever what is in a file changes, the version of the format goes up by one, a function that makes the contents of a
file of the version before into that of the new one is entered here, and files of the new version become fixtures of the
tests. An array that is new, for example, is added with what it stands for where nobody has used it.
"""

from collections.abc import Callable

from . import _container
from ._container import Contents

UPGRADES: dict[int, Callable[[Contents], Contents]] = {}
"""By version, from 2 on: what a file of the version before would hold had this version written it."""


def upgraded(contents: Contents) -> Contents:
    """Return the contents of a file as this version would have written them."""
    for version in range(contents.version + 1, _container.FORMAT_VERSION + 1):
        contents = UPGRADES[version](contents)
    return contents
