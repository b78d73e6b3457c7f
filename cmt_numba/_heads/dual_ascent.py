"""Kernels: the step of dual coordinate ascent for support vector machines with squared slack."""

from .._jit import inner


@inner
def dual_step(short, curvature, weight):
    """Return the change of a dual variable with the value ``weight``, which must not become negative.

    ``short`` is the shortfall of the margin. A step of 1 reduces the shortfall by ``curvature``, which is the squared
    length of the vector added to the model, plus the softness.
    """
    return max(short / curvature, -weight)
