"""Readers for data files. A reader returns all rows at once, or batches of bounded size."""

from ._files import FormatError
from ._open import FORMATS, open_data
from ._options import ReadOptions
from ._source import Batch, Source
from ._tables import TableSource, kinds_of

__all__ = ["FormatError", "open_data"]
