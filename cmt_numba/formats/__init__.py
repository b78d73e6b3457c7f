"""Readers for data files. A reader returns all rows at once, or batches of bounded size."""

from ._files import FormatError
from ._kinds import kinds_of
from ._registry import FORMATS, open_data
from ._source import Batch, ReadOptions, Source
from ._tables import TableSource

__all__ = ["FormatError", "open_data"]
