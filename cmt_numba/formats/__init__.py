"""Readers for data files. A reader returns all rows at once, or batches of bounded size."""

from ._kinds import kinds_of
from ._registry import FORMATS, features_of, open_data
from ._source import Batch, FormatError, ReadOptions, Source
from ._tables import TableSource

__all__ = ["FormatError", "open_data"]
