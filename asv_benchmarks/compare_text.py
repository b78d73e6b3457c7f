"""Compare search of texts that are stored once each: trees and classifier on BM25 keys with the library bm25s.

    python asv_benchmarks/compare_text.py --data path/to/folder --sets "bible, BBE" "packages, 30,000"

Expects ``bible/verses.jsonl.gz`` as ``labelled_sets.py`` describes it, and ``packages/summaries.jsonl.gz`` with a line
``{"name": ..., "summary": ...}`` for each software package. Verses of the King James Version are stored, and those of
another translation are queries. Packages are stored with their names, and the queries are their own words, of which two
fifths are left out at random and a tenth misspelt.

Prints for each engine the error of the best answer, seconds to vectorise and to store all texts, and microseconds to
vectorise and to answer a query in one batch: processor time on one thread. Kernels are compiled before. Needs tabulate,
and bm25s for its rows, which are left out otherwise.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from labelled_sets import MOST_QUERIES, read_lines
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.text import BM25Vectorizer

TOKEN = r"(?u)\b\w+\b"
DROPPED, MISSPELT = 0.4, 0.1
N_WARMING = 300  # texts that kernels are compiled with


class Texts(NamedTuple):
    """Texts to store, queries, and the position of the text that each query asks for."""

    stored: list[str]
    queries: list[str]
    answers: np.ndarray


class Result(NamedTuple):
    """How an engine did: seconds for all stored texts, microseconds for a query."""

    error: float
    vectorise: float
    insert: float
    query_vector: float
    query: float


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
    """Return names and summaries of packages, and queries of some of their words."""
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


SETS: dict[str, Callable[[Path], Texts]] = {
    "bible, ASV": lambda folder: bible(folder, "ASV"),
    "bible, BBE": lambda folder: bible(folder, "BBE"),
    "packages, 30,000": lambda folder: packages(folder, 30_000),
    "packages, 300,000": lambda folder: packages(folder, 300_000),
}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work returns, and the seconds of processor time that it took."""
    start = process_time()
    value = work()
    return value, process_time() - start


def by_bm25s(texts: Texts, backend: str) -> Result:
    """Search with bm25s."""
    import bm25s

    options: dict[str, Any] = {"stopwords": None, "token_pattern": TOKEN, "show_progress": False}
    tokens, vectorise = timed(lambda: bm25s.tokenize(texts.stored, **options))
    index = bm25s.BM25(backend=backend)
    _, insert = timed(lambda: index.index(tokens, show_progress=False))
    queries, vectors = timed(lambda: bm25s.tokenize(texts.queries, **options))
    ask = {"k": 1, "n_threads": 1, "show_progress": False, "return_as": "documents"}
    index.retrieve(queries, **ask)  # compiles
    found, query = timed(lambda: index.retrieve(queries, **ask))
    return _result(texts, np.asarray(found)[:, 0], vectorise, insert, vectors, query)


def _with_classifier(keys: Any) -> Callable[[Any], np.ndarray]:
    classifier = CMTClassifier(store_examples=False, random_state=0).fit(keys, np.arange(keys.shape[0]))
    return classifier.predict


def _with_retriever(keys: Any) -> Callable[[Any], np.ndarray]:
    retriever = CMTRetriever(random_state=0).fit(keys, [[i] for i in range(keys.shape[0])])
    return lambda queries: retriever.kneighbors(queries, 1, return_distance=False)[:, 0]


def _with_tree(keys: Any) -> Callable[[Any], np.ndarray]:
    tree = ContextualMemoryTree(n_trees=8, n_threads=1, random_state=0)
    tree.insert(keys)
    return lambda queries: tree.query(queries).ids[:, 0]


def _with_product(keys: Any) -> Callable[[Any], np.ndarray]:
    by_term, block = keys.T.tocsr(), 250

    def answer(queries: Any) -> np.ndarray:
        starts = range(0, queries.shape[0], block)
        return np.concatenate([(queries[i : i + block] @ by_term).toarray().argmax(axis=1) for i in starts])

    return answer


ENGINES: dict[str, Callable[[Any], Callable[[Any], np.ndarray]]] = {
    "sparse product": _with_product,
    "CMTClassifier": _with_classifier,
    "8 trees": _with_tree,
    "CMTRetriever": _with_retriever,
}


def by_keys(texts: Texts, engine: str, **options: Any) -> Result:
    """Search with one of the engines that store keys."""
    vectorizer = BM25Vectorizer(**options)
    keys, vectorise = timed(lambda: vectorizer.fit_transform(texts.stored))
    queries, vectors = timed(lambda: vectorizer.transform(texts.queries))
    ENGINES[engine](keys[:N_WARMING])(queries[:2])  # compiles
    answer, insert = timed(lambda: ENGINES[engine](keys))
    answer(queries[:2])
    found, query = timed(lambda: answer(queries))
    return _result(texts, found, vectorise, insert, vectors, query)


def _result(texts: Texts, found: np.ndarray, vectorise: float, insert: float, vectors: float, query: float) -> Result:
    scale = 1e6 / len(texts.queries)
    return Result(float((found != texts.answers).mean()), vectorise, insert, scale * vectors, scale * query)


def main() -> None:
    """Print one table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS)[:3])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--norm", choices=["append", "l2"], default="append")
    arguments = parser.parse_args()
    for name in arguments.sets:
        texts = SETS[name](arguments.data)
        rows = {}
        if find_spec("bm25s") is not None:
            rows = {f"bm25s, {backend}": by_bm25s(texts, backend) for backend in ("numpy", "numba")}
        for engine in arguments.engines:
            rows[engine] = by_keys(texts, engine, norm=arguments.norm)
        print(f"\n{name}\n")
        headers = ["", "error", "vectorise, s", "store, s", "vectorise a query, us", "query, us"]
        print(tabulate([[engine, *row] for engine, row in rows.items()], headers, "github", floatfmt=".4g"), flush=True)


if __name__ == "__main__":
    main()
