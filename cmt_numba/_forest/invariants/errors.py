"""The exception that all checks raise."""

import numpy as np


class InvariantError(AssertionError):
    """Raised if an invariant is violated. The message states the invariant."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with ``message`` unless the condition ``holds``."""
    if not holds:
        raise InvariantError(message)
