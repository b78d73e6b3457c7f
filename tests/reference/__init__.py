"""A slow Contextual Memory Tree in plain Python, which the kernels must match step by step.

This is the specification: it follows the algorithms of Sun et al. (Contextual Memory Trees, ICML 2019) by their
numbers, with objects for nodes, leaves and memories, dicts from feature to weight, and Python's own numbers. Sums are
float64, so results agree with those of the kernels up to the rounding of float32.
"""

from ._evidence import log_odds_of
from ._forest import Forest
from ._nodes import Leaf, Memory, Node, Place
from ._random import SplitMix64
from ._tree import Tree

__all__ = ["Forest", "Leaf", "Memory", "Node", "Place", "SplitMix64", "Tree", "log_odds_of"]
