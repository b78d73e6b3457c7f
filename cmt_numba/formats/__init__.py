"""Readers for data files. A reader returns all rows at once, or batches of bounded size."""

from ._registry import FORMATS, open_data
from ._source import Batch, ReadOptions, Source, features_of, form_of
from ._tables import TableSource, kinds_of
from ._text import FormatError

__all__ = ["FormatError", "open_data"]
