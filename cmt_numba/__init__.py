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
    from .journal import DurableTree
    from .tuning import tune

for _public in (Exploration, Hits, Leaves):
    _public.__module__ = __name__  # where pickles find them, wherever they are defined

__all__ = [
    "CMTClassifier",
    "CMTMultilabelClassifier",
    "CMTRetriever",
    "ContextualMemoryTree",
    "DurableTree",
    "Exploration",
    "FileFormatError",
    "Hits",
    "InvariantError",
    "Leaves",
    "__version__",
    "tune",
]

_IMPORTED_WHEN_USED = {  # with what takes long to import, like scikit-learn, or few need, like SQLite
    "CMTClassifier": "estimators",
    "CMTMultilabelClassifier": "estimators",
    "CMTRetriever": "estimators",
    "DurableTree": "journal",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name in _IMPORTED_WHEN_USED:
        return getattr(import_module(f".{_IMPORTED_WHEN_USED[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
