"""Reranking of search results by a model of rewards."""

from ._reranker import Reranker

__all__ = ["Reranker"]
