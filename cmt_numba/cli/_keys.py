"""Keys of texts: the vectorizers that ``fit --keys`` chooses from."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Keys(StrEnum):
    """What texts become: see :mod:`cmt_numba.text`, and scikit-learn's TfidfVectorizer for words and characters."""

    words = "words"
    characters = "characters"
    bm25 = "bm25"
    subword = "subword"
    hybrid = "hybrid"


def new_vectorizer(keys: Keys, *, task: str | None, jobs: int, seed: int) -> Any:
    """Return a vectorizer that is not fitted."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    from ..text import BM25Vectorizer, FastTextClassifier, HybridVectorizer, SubwordVectors

    if keys is Keys.words:
        return TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    if keys is Keys.characters:
        return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, dtype=np.float32)
    if keys is Keys.bm25:
        return BM25Vectorizer(norm="l2")  # estimators learn from stored vectors
    subword = SubwordVectors(min_count=1, pooling="sif", n_jobs=jobs, random_state=seed)
    if keys is Keys.subword:
        return subword
    several = task == "multilabel"  # which a classifier with one class for each text cannot learn from
    return HybridVectorizer(dense=subword if several else FastTextClassifier(n_jobs=jobs, random_state=seed))
