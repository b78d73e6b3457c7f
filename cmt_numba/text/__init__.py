"""Texts as keys."""

from ._subword_vectors import SubwordVectors

__all__ = ["SubwordVectors"]
