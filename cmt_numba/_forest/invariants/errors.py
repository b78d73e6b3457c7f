"""The one error of all checks."""

import numpy as np


class InvariantError(AssertionError):
    """The state of a tree contradicts itself; the message says where."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with this message unless something holds."""
    if not holds:
        raise InvariantError(message)
