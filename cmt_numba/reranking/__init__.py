"""Re-ranking: a learned model of rewards improves the order of search results."""

from ._reranker import Reranker

__all__ = ["Reranker"]
