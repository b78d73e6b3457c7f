"""Readers of data files: each gives a file as a whole, or in batches without ever holding more than a little of it."""

from ._errors import FormatError
from ._registry import FORMATS, open_data
from ._source import Batch, ReadOptions, Source

__all__ = ["FORMATS", "Batch", "FormatError", "ReadOptions", "Source", "open_data"]
