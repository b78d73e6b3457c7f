"""Contextual Memory Trees: a learned, online key-value memory with logarithmic-time operations."""

from ._hits import Exploration, Hits
from ._invariants import InvariantError
from ._version import __version__
from .tree import ContextualMemoryTree

__all__ = ["ContextualMemoryTree", "Exploration", "Hits", "InvariantError", "__version__"]
