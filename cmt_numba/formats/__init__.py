"""Readers of data files, which return a file as a whole or in batches of bounded size."""

from ._kinds import kinds_of as kinds_of
from ._registry import FORMATS, open_data
from ._source import Batch, ReadOptions, Source
from ._source import features_of as features_of
from ._source import form_of as form_of
from ._text import FormatError

__all__ = ["FORMATS", "Batch", "FormatError", "ReadOptions", "Source", "open_data"]
