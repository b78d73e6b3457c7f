"""Readers of data files, which return a file as a whole or in batches of bounded size."""

from ._errors import FormatError
from ._registry import FORMATS, open_data
from ._source import Batch, ReadOptions, Source

__all__ = ["FORMATS", "Batch", "FormatError", "ReadOptions", "Source", "open_data"]
