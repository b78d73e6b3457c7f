"""Vocabularies in files: plain arrays, and what must hold of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._forest.invariants.errors import require
from ..persistence._columns import read_array
from ._counting import MOST
from ._vocabulary import Vocabulary


def vocabulary_arrays(known: Vocabulary) -> dict[str, np.ndarray]:
    """Return the arrays of a vocabulary; its words are for the caller to store."""
    return {
        "counts": known.counts,
        "starts": known.starts,
        "parts": known.parts,
        "word_rows": np.array(known.word_rows, np.int64),
        "buckets": np.array(list(known.row_of_bucket), np.int64),
        "bucket_rows": np.array(list(known.row_of_bucket.values()), np.int64),
    }


def read_vocabulary(words: list[Any], arrays: dict[str, np.ndarray], like: Vocabulary, n_parts: int) -> Vocabulary:
    """Return the vocabulary of a file, with the n-grams of another one.

    Raises
    ------
    InvariantError, ValueError
        If the arrays do not fit together.
    """
    known, n = Vocabulary(like.lengths, like.n_buckets), len(words)
    known.n_parts = n_parts
    require(all(type(word) is str for word in words) and len(set(words)) == n, "words must be distinct strings")
    known.words, known.id_of = words, {word: i for i, word in enumerate(words)}
    known.counts = read_array("counts", arrays, np.int64)
    sound = known.counts.shape == (n,) and bool(np.all((known.counts >= 0) & (known.counts < MOST)))
    require(sound, "there must be a count for each word")
    known.starts, known.parts = read_array("starts", arrays, np.int64), read_array("parts", arrays, np.int32)
    sound = known.starts.shape == (n + 1,) and known.starts[0] == 0 and known.starts[-1] == known.parts.size
    require(sound and bool(np.all(np.diff(known.starts) > 0)), "each word must have parts")
    known.word_rows = _rows("word_rows", arrays, n, n_parts)
    buckets = read_array("buckets", arrays, np.int64)
    rows = _rows("bucket_rows", arrays, buckets.size, n_parts)
    known.row_of_bucket = dict(zip(buckets.tolist(), rows, strict=True))
    require(len(known.row_of_bucket) == buckets.size, "buckets must be distinct")
    inside = bool(np.all((known.parts >= 0) & (known.parts < n_parts)))
    require(inside, "parts of words must be among those that have vectors")
    return known


def _rows(name: str, arrays: dict[str, np.ndarray], n: int, n_parts: int) -> list[int]:
    rows = read_array(name, arrays, np.int64)
    require(rows.shape == (n,) and bool(np.all((rows >= 0) & (rows < n_parts))), f"{name} must be rows of vectors")
    listed: list[int] = rows.tolist()
    return listed
