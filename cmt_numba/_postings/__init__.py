"""Inverted indexes: of the weights of label scorers, of sparse vectors and of texts."""

from .list_search import LabelAnswers, LabelBounds, Questions, all_of, label_bounds, rank_listed
from .lists import (
    Digest,
    Postings,
    heavy_cells,
    keep_best_labels,
    list_by_feature,
    meet_labels,
    no_postings,
    offsets_of,
)
from .rows import AllowedRows
from .sparse_index import SparseIndex
from .text_index import TextIndex, WordStatistics
from .text_search import WeighedWords, rank_by_parts

__all__ = [
    "AllowedRows",
    "Digest",
    "LabelAnswers",
    "LabelBounds",
    "Postings",
    "Questions",
    "SparseIndex",
    "TextIndex",
    "WeighedWords",
    "WordStatistics",
    "all_of",
    "heavy_cells",
    "keep_best_labels",
    "label_bounds",
    "list_by_feature",
    "meet_labels",
    "no_postings",
    "offsets_of",
    "rank_by_parts",
    "rank_listed",
]
