"""Texts that are stored once each, with queries for them: verses of the Bible, and packages.

``bible/verses.jsonl.gz`` is described in ``shared/labelled_sets.py``. ``packages/summaries.jsonl.gz`` has a line
``{"name": ..., "summary": ...}`` for each software package. Verses of the King James Version are stored, and those of
another translation are queries. Packages are stored with their names. The queries are the words of a package: two
fifths are left out at random, and a tenth is misspelt.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .labelled_sets import MOST_QUERIES, read_lines

TOKEN = r"(?u)\b\w+\b"
DROPPED, MISSPELT = 0.4, 0.1


class Texts(NamedTuple):
    """Texts to store, queries, and the position of the correct text for each query."""

    stored: list[str]
    queries: list[str]
    answers: np.ndarray


def bible(folder: Path, asked: str) -> Texts:
    """Return verses of the King James Version, and queries from another translation."""
    verses = [line["text"] for line in read_lines(folder / "bible/verses.jsonl.gz")]
    there = [i for i, verse in enumerate(verses) if verse.get(asked)]
    answers = np.random.RandomState(0).permutation(there)[:MOST_QUERIES]
    return Texts([verse.get("KJV") or "" for verse in verses], [verses[i][asked] for i in answers], answers)


def misspelt(word: str, rng: np.random.Generator) -> str:
    """Return a word with two neighbouring letters exchanged."""
    i = int(rng.integers(len(word) - 1))
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def packages(folder: Path, n_stored: int, n_queries: int = 2000) -> Texts:
    """Return names and summaries of packages, and queries made from some of their words."""
    lines = read_lines(folder / "packages/summaries.jsonl.gz")
    rng = np.random.default_rng(0)
    words = [re.findall(TOKEN, f"{line['name']} {line['summary']}".lower()) for line in lines]
    words = [words[i] for i in rng.permutation(len(words))[:n_stored]]
    answers = rng.permutation(len(words))[:n_queries]
    queries = []
    for i in answers:
        kept = [word for word in words[i] if rng.random() >= DROPPED] or words[i]
        queries.append(" ".join(misspelt(w, rng) if len(w) > 3 and rng.random() < MISSPELT else w for w in kept))
    return Texts([" ".join(text) for text in words], queries, answers)


def bm25s_tokens(texts: list[str]) -> Any:
    """Return the tokens of texts for bm25s."""
    import bm25s  # type: ignore[import-not-found]

    return bm25s.tokenize(texts, stopwords=None, token_pattern=TOKEN, show_progress=False)


def bm25s_search(texts: list[str]) -> Callable[[Any, int], np.ndarray]:
    """Return a search of bm25s, which takes tokens of queries and a number of results, and returns positions."""
    import bm25s

    index = bm25s.BM25(backend="numba")
    index.index(bm25s_tokens(texts), show_progress=False)
    ask = {"n_threads": 1, "show_progress": False, "return_as": "documents"}
    return lambda tokens, k: np.asarray(index.retrieve(tokens, k=k, **ask))
