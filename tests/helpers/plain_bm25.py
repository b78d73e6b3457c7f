"""BM25 in plain Python."""

import math
import re
from collections import Counter

import numpy as np


def tokens(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def bm25(documents: list[str], queries: list[str], k1: float, b: float, k3: float) -> np.ndarray:
    """Return the BM25 score of each document for each query, computed term by term."""
    terms = [Counter(tokens(document)) for document in documents]
    mean_length = sum(sum(counts.values()) for counts in terms) / len(documents)
    scores = np.zeros((len(queries), len(documents)))
    for row, query in enumerate(queries):
        for term, n in Counter(tokens(query)).items():
            n_with = sum(term in counts for counts in terms)
            idf = math.log(1 + (len(documents) - n_with + 0.5) / (n_with + 0.5))
            for column, counts in enumerate(terms):
                if term in counts:
                    tf, length = counts[term], sum(counts.values())
                    saturated = tf / (tf + k1 * (1 - b + b * length / mean_length))
                    scores[row, column] += idf * saturated * n * (k3 + 1) / (n + k3)
    return scores
