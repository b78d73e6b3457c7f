"""BM25 in plain Python."""

import math
from collections import Counter

import numpy as np

from cmt_numba._words import terms_of


def bm25(documents: list[str], queries: list[str], k1: float, b: float, k3: float) -> np.ndarray:
    """Return the BM25 score of each document for each query, computed term by term."""
    terms = [Counter(terms_of(document)) for document in documents]
    mean_length = sum(sum(counts.values()) for counts in terms) / len(documents)
    scores = np.zeros((len(queries), len(documents)))
    for row, query in enumerate(queries):
        for term, n in Counter(terms_of(query)).items():
            n_with = sum(term in counts for counts in terms)
            idf = math.log(1 + (len(documents) - n_with + 0.5) / (n_with + 0.5))
            for column, counts in enumerate(terms):
                if term in counts:
                    tf, length = counts[term], sum(counts.values())
                    saturated = tf / (tf + k1 * (1 - b + b * length / mean_length))
                    scores[row, column] += idf * saturated * n * (k3 + 1) / (n + k3)
    return scores
