"""Searches by words and vectors: ``MemoryStore`` with texts, and bm25s with faiss."""

from __future__ import annotations

from shared.commands import DATA, Commands, argument, print_table, timed

import argparse
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from shared.labelled_sets import read_lines
from shared.texts import Texts, bible, bm25s_search, bm25s_tokens, packages

from cmt_numba import MemoryStore
from cmt_numba.text._encoders import Encoder

commands = Commands(__doc__)

N_QUERIES, N_REWARDED, N_SHOWN, N_TOGETHER, K, DEPTH = 1000, 500, 5, 25, 10, 50
DISCOUNTS = 1.0 / np.log2(np.arange(2, K + 2))


class Collection(NamedTuple):
    """Texts to search, queries and the positions of the relevant texts for each query."""

    texts: list[str]
    queries: list[str]
    relevant: list[list[int]]


def of_pairs(texts: Texts, n: int) -> Collection:
    """Return the first ``n`` stored texts with the queries for them."""
    some = np.flatnonzero(texts.answers < n)[:N_QUERIES]
    return Collection(texts.stored[:n], [texts.queries[i] for i in some], [[int(texts.answers[i])] for i in some])


def paragraphs(folder: Path, n: int) -> Collection:
    """Return paragraphs, with first sentences of other paragraphs of the same articles as queries."""
    rng = np.random.default_rng(0)
    stored, asked = (read_lines(folder / f"wikipara1k/{part}.jsonl.gz") for part in ("train", "test"))
    stored = [stored[i] for i in rng.permutation(len(stored))[:n]]
    asked = [asked[i] for i in rng.permutation(len(asked))[:N_QUERIES]]
    of_article: dict[str, list[int]] = {}
    for i, line in enumerate(stored):
        of_article.setdefault(line["label"], []).append(i)
    asked = [line for line in asked if line["label"] in of_article]
    queries = [re.split(r"(?<=[.!?])\s", line["text"])[0] for line in asked]
    return Collection([line["text"] for line in stored], queries, [of_article[line["label"]] for line in asked])


COLLECTIONS: dict[str, Callable[[Path], Collection]] = {
    "bible": lambda folder: of_pairs(bible(folder, "BBE"), 10_000),
    "packages": lambda folder: of_pairs(packages(folder, 20_000), 20_000),
    "paragraphs": lambda folder: paragraphs(folder, 8_000),
}


def quality(found: np.ndarray, relevant: list[list[int]]) -> tuple[float, float]:
    """Return the mean nDCG and recall of the best ``K`` results."""
    gains, recalls = [], []
    for row, right in zip(found.tolist(), relevant, strict=True):
        hits, most = np.isin(row, right), min(K, len(right))
        gains.append((hits * DISCOUNTS).sum() / DISCOUNTS[:most].sum())
        recalls.append(hits.sum() / most)
    return float(np.mean(gains)), float(np.mean(recalls))


def fuse_ranks(rankings: list[np.ndarray]) -> np.ndarray:
    """Return the best results by the sum of reciprocal ranks (Cormack et al., 2009)."""
    best = []
    for rows in zip(*rankings, strict=True):
        scores: dict[int, float] = {}
        for row in rows:
            for rank, key in enumerate(key for key in row.tolist() if key is not None and key >= 0):
                scores[key] = scores.get(key, 0.0) + 1.0 / (61 + rank)
        order = sorted(scores, key=lambda key: (-scores[key], key))[:K]
        best.append(order + [-1] * (K - len(order)))
    return np.array(best)


def vectors_of(name: str, data: Collection, kept: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of texts and queries by the encoder "use". They are kept in a folder if one is given."""
    path = None if kept is None else kept / f"{name}.npz"
    if path is not None and path.exists():
        arrays = np.load(path)
        return arrays["X"], arrays["Q"]
    encode = Encoder("use", most_remembered=10**6).encode
    X, Q = encode(data.texts), encode(data.queries)
    if path is not None:
        np.savez(path, X=X, Q=Q)
    return X, Q


def searches(data: Collection, X: np.ndarray, Q: np.ndarray) -> Iterator[tuple[str, Callable[[int, int], np.ndarray]]]:
    """Yield the name of each search, and a function that answers a span of queries."""
    store = MemoryStore(random_state=0)
    store.add(range(len(X)), X, texts=data.texts)

    def ask(first: int, stop: int, k: int = K) -> np.ndarray:
        return store.query(Q[first:stop], k, texts=data.queries[first:stop]).keys

    def by_words(first: int, stop: int, k: int = K) -> np.ndarray:
        return store.query(texts=data.queries[first:stop], k=k).keys

    def by_ranks(first: int, stop: int) -> np.ndarray:
        return fuse_ranks([store.query(Q[first:stop], DEPTH).keys, by_words(first, stop, DEPTH)])

    yield "store, vectors", lambda first, stop: store.query(Q[first:stop], K).keys
    yield "store, words", by_words
    yield "store, reciprocal ranks", by_ranks
    yield "store, both", ask
    for first in range(0, N_REWARDED, N_TOGETHER):
        shown = ask(first, first + N_TOGETHER, N_SHOWN)
        right = data.relevant[first : first + N_TOGETHER]
        rewards = np.array([np.isin(row, own) for row, own in zip(shown, right, strict=True)], float)
        store.feedback(Q[first : first + N_TOGETHER], shown, rewards, texts=data.queries[first : first + N_TOGETHER])
    yield f"store, both, after {N_REWARDED} queries with rewards", ask
    if find_spec("bm25s") and find_spec("faiss"):
        import faiss  # type: ignore[import-untyped]

        words, vectors = bm25s_search(data.texts), faiss.IndexFlatIP(X.shape[1])
        vectors.add(X)

        def by_both(first: int, stop: int) -> np.ndarray:
            ranked = words(bm25s_tokens(data.queries[first:stop]), DEPTH)
            return fuse_ranks([vectors.search(Q[first:stop], DEPTH)[1], ranked])

        yield "bm25s and faiss, reciprocal ranks", by_both


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS)),
    argument("--vectors", type=Path, help="folder that keeps the vectors of texts for later runs"),
)
def hybrid(options: argparse.Namespace) -> None:
    """Compare searches by words, by vectors and by both: nDCG and recall at 10, and the time of single queries.

    The texts are verses of the King James Version with queries from another translation, package summaries with noisy
    queries, both as in ``shared/texts.py``, and paragraphs (``wikipara1k`` in ``shared/labelled_sets.py``) with first
    sentences of other paragraphs of the same articles. The first 500 queries earn rewards for five results, the others
    are measured. Vectors are those of the encoder "use", whose time is not counted. Times are the median of
    microseconds of CPU time on one thread. Needs the extra ``use``; bm25s and faiss are optional.
    """
    for name in options.sets:
        data = COLLECTIONS[name](options.data)
        X, Q = vectors_of(name, data, options.vectors)
        n, rows = len(data.queries), []
        for search, answer in searches(data, X, Q):
            found = np.concatenate([answer(first, min(first + 100, n)) for first in range(N_REWARDED, n, 100)])
            times = [timed(lambda i=i: answer(i, i + 1))[1] for i in range(N_REWARDED, min(n, N_REWARDED + 200))]  # type: ignore[misc]  # noqa: B023
            rows.append([search, *quality(found, data.relevant[N_REWARDED:]), 1e6 * float(np.median(times))])
        headers = ["search", f"nDCG@{K}", f"recall@{K}", "us/query"]
        print_table(headers, rows, f"{name}: {len(X)} texts, {n - N_REWARDED} queries")


if __name__ == "__main__":
    commands.main()
