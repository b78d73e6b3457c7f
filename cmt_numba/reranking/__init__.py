"""Re-ranking of search results by a learned model of rewards."""

from ._reranker import Reranker

__all__ = ["Reranker"]
