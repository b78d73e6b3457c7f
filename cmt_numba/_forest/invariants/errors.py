"""The error of all checks."""

import numpy as np


class InvariantError(AssertionError):
    """An invariant is violated; the message says which."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with this message unless something holds."""
    if not holds:
        raise InvariantError(message)
