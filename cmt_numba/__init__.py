"""Contextual Memory Trees: a learned, online key-value memory with logarithmic-time operations."""

from typing import TYPE_CHECKING, Any

from ._hits import Exploration, Hits
from ._invariants import InvariantError
from ._version import __version__
from .tree import ContextualMemoryTree

if TYPE_CHECKING:
    from .estimators import CMTClassifier

__all__ = ["CMTClassifier", "ContextualMemoryTree", "Exploration", "Hits", "InvariantError", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "CMTClassifier":  # scikit-learn takes long to import, and only estimators need it
        from .estimators import CMTClassifier

        return CMTClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
