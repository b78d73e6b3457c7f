"""Re-ranking: a learned model of rewards puts what a search has found into a better order."""

from ._reranker import Reranker

__all__ = ["Reranker"]
