"""Contextual Memory Trees: a learned, online key-value memory with logarithmic-time operations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._forest import Leaves
    from ._kernels import Exploration, Explored, Hits, InvariantError, ShownHits
    from ._warmup import warmup
    from .estimators import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
    from .persistence import FileFormatError
    from .store import MemoryStore
    from .tree import ContextualMemoryTree

__all__ = [
    "CMTClassifier",
    "CMTMultilabelClassifier",
    "CMTRetriever",
    "ContextualMemoryTree",
    "FileFormatError",
    "InvariantError",
    "MemoryStore",
    "__version__",
    "warmup",
]

# Names whose modules are slow to import (Numba, scikit-learn) or rarely needed (SQLite) are imported on first use. The
# command line therefore starts immediately, and an interrupt during a later import leaves no traceback.
_NAMES = {
    "_forest": ("Leaves",),
    "_kernels": ("Exploration", "Explored", "Hits", "InvariantError", "ShownHits"),
    "_warmup": ("warmup",),
    "estimators": ("CMTClassifier", "CMTMultilabelClassifier", "CMTRetriever"),
    "persistence": ("FileFormatError",),
    "store": ("MemoryStore",),
    "tree": ("ContextualMemoryTree",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = (
    "bandits",
    "distributed",
    "evaluation",
    "formats",
    "journal",
    "metrics",
    "neighbors",
    "persistence",
    "report",
    "reranking",
    "rewards",
    "sequences",
    "store",
    "text",
    "tree",
)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
