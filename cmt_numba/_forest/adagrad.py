"""Kernels: AdaGrad, where each weight has its own rate, which falls with the sum of its squared gradients."""

import numpy as np

from .._jit import inner_merged

_TINY = np.float32(1e-20)  # avoids 0 / 0 where all gradients were 0


@inner_merged
def descend(square, gradient, rate):
    """Return the step against a gradient. ``square`` is the sum of the squared gradients, this one included."""
    return rate * gradient / np.sqrt(square + _TINY)
