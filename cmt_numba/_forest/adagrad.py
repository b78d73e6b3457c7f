"""Kernels: the AdaGrad step, which divides each weight's learning rate by the root of its summed squared gradients."""

import numpy as np

from .._jit import inner

_TINY = np.float32(1e-20)  # avoids 0 / 0 while all gradients are 0


@inner
def descend(square, gradient, rate):
    """Return the AdaGrad step; ``square`` is the sum of squared gradients including this one."""
    return rate * gradient / np.sqrt(square + _TINY)
