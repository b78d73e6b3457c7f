"""Stores of vectors with keys and payloads."""

from ._checks import DuplicateKeyError
from ._memory_store import MemoryStore
from ._recall import Effort
from ._results import Items, Result, Results

__all__ = ["DuplicateKeyError", "Effort", "Items", "MemoryStore", "Result", "Results"]
