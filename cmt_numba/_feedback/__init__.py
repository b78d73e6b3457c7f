"""The feedback model: learns from rewards which memories to return for a query."""

from .model import ExplainedResult, FeedbackModel, LearnedPart, LearnedSummary
from .search import LearnedSearch, WithOthers, join_candidates, score_sparse
from .state import N_PASSED, PART_NAMES
