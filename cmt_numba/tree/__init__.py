"""The Contextual Memory Tree: a learned, online key-value memory."""

from ._folder import fingerprint
from ._tree import OPTIONS, ContextualMemoryTree, forest_of, options_of

ContextualMemoryTree.__module__ = __name__  # module path in pickles

__all__ = ["ContextualMemoryTree"]
