"""BM25 (Robertson et al., 1995; idf as in Lucene).

A term of a document counts ``idf * tf / (tf + s[0] + s[1] * length)`` with the constants ``s`` of
:func:`saturation_of`, times ``tf * (k3 + 1) / (tf + k3)`` for the ``tf`` of the query.
"""

import math
from typing import Any, TypeVar

import numpy as np

Number = TypeVar("Number", float, np.ndarray)

K1, B, K3 = 1.5, 0.75, 1.0
"""The usual parameters: saturation of repeated terms, influence of the length, and saturation of terms in queries."""


def idf_of(n_texts: int, frequency: Number) -> Number:
    """Return the weight of a term that occurs in ``frequency`` of ``n_texts`` texts."""
    log1p: Any = math.log1p if type(frequency) is int else np.log1p  # for a number, NumPy is slow
    weight: Number = log1p((n_texts - frequency + 0.5) / (frequency + 0.5))
    return weight


def query_weight(count: Number, k3: float = K3) -> Number:
    """Return the weight of a term that occurs this number of times in a query, without the idf."""
    return count * (k3 + 1.0) / (count + k3)


def saturation_of(n_texts: int, length: float, k1: float = K1, b: float = B) -> tuple[float, float]:
    """Return the constants ``s`` for texts with this total length."""
    return k1 * (1.0 - b), k1 * b * max(n_texts, 1) / max(length, 1.0)


def text_weights(counts: Any, saturation: tuple[float, float]) -> np.ndarray:
    """Return the weight of each cell of term counts, the rows of a CSR array, without the idf."""
    lengths = np.repeat(np.asarray(counts.sum(axis=1, dtype=np.float64)), np.diff(counts.indptr))
    return np.asarray(counts.data / (counts.data + (saturation[0] + saturation[1] * lengths)))
