"""Kernels: AdaGrad, a rate of its own for each weight: the longer its gradients have been, the shorter its steps."""

import numpy as np

from .._jit import inner_merged

_TINY = np.float32(1e-20)  # keeps 0 / 0 away where all gradients were 0


@inner_merged
def descend(square, gradient, rate):
    """Return the step against a gradient of a weight whose squared gradients, with this one, come to ``square``."""
    return rate * gradient / np.sqrt(square + _TINY)
