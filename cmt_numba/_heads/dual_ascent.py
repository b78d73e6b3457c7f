"""Kernels: the step of dual coordinate ascent that all support vector machines here take, with squared slack."""

from .._jit import inner


@inner
def dual_step(short, curvature, weight):
    """Return by how much a dual variable, now ``weight``, is to change; it never becomes negative.

    ``short`` is how far a margin falls short, and ``curvature`` how much a step of 1 makes up for: the squared length
    of what is added to the model, and the softness.
    """
    return max(short / curvature, -weight)
