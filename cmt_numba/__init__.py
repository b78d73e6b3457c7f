"""Contextual Memory Trees: a learned, online key-value memory with logarithmic-time operations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._hits import Exploration, Hits
from ._invariants import InvariantError, Leaves
from ._version import __version__
from .persistence import FileFormatError
from .tree import ContextualMemoryTree

if TYPE_CHECKING:
    from .estimators import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
    from .tuning import tune

__all__ = [
    "CMTClassifier",
    "CMTMultilabelClassifier",
    "CMTRetriever",
    "ContextualMemoryTree",
    "Exploration",
    "FileFormatError",
    "Hits",
    "InvariantError",
    "Leaves",
    "__version__",
    "tune",
]

_NEEDING_SCIKIT_LEARN = {  # which takes long to import
    "CMTClassifier": "estimators",
    "CMTMultilabelClassifier": "estimators",
    "CMTRetriever": "estimators",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name in _NEEDING_SCIKIT_LEARN:
        return getattr(import_module(f".{_NEEDING_SCIKIT_LEARN[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
