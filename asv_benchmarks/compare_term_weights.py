"""Compare BM25 with weights of terms that are learned, from rewards and from further examples.

    python asv_benchmarks/compare_term_weights.py --data path/to/folder

Expects the files that ``compare_text.py`` describes. Packages: 2,000 queries are answered by BM25, and the ten packages
that each is given are rewarded, 1 for the right one and 0 for others. The rewards of some of the queries, whose number
is in the table, teach the weights of terms (``BM25Vectorizer.learn_weights``), and 2,000 other queries are asked.
Bible: three translations of each verse are stored, and those of a fourth are asked; BM25 answers with the verse of the
best of all texts, ``CMTClassifier`` learns from them as examples. All searches but the classifier's are exact. Needs
tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from compare_text import packages
from labelled_sets import MOST_QUERIES, read_lines
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.text import BM25Vectorizer

N_REWARDED = (0, 20, 100, 500, 2000)
N_ASKED, N_SHOWN, BLOCK = 2000, 10, 250
STORED, ASKED = ("KJV", "YLT", "Darby"), ("ASV", "BBE")


def exact(queries: Any, keys: Any, k: int) -> np.ndarray:
    """Return the positions of the ``k`` best keys for each query, the best first."""
    by_term, found = keys.T.tocsr(), []
    for first in range(0, queries.shape[0], BLOCK):
        scores = (queries[first : first + BLOCK] @ by_term).toarray()
        best = np.argpartition(-scores, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(found)


def from_rewards(folder: Path, n_stored: int) -> Iterator[list[Any]]:
    """Yield the number of rewarded queries, the error of other queries, and the seconds to learn."""
    texts = packages(folder, n_stored, n_queries=2 * N_ASKED)
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(texts.stored)
    shown = exact(vectorizer.transform(texts.queries[N_ASKED:]), keys, N_SHOWN)
    rewards = shown == texts.answers[N_ASKED:, None]
    for n in N_REWARDED:
        vectorizer.term_weights_ = None
        start = process_time()
        if n > 0:
            vectorizer.learn_weights(texts.queries[N_ASKED : N_ASKED + n], keys, shown[:n], rewards[:n])
        seconds = process_time() - start
        best = exact(vectorizer.transform(texts.queries[:N_ASKED]), keys, 1)[:, 0]
        yield [n, np.mean(best != texts.answers[:N_ASKED]), seconds]


def from_examples(folder: Path, asked: str) -> list[Any]:
    """Return the errors of BM25 and of classifiers that have learned from the same texts."""
    verses = [line["text"] for line in read_lines(folder / "bible/verses.jsonl.gz")]
    there = [i for i, verse in enumerate(verses) if verse.get(asked)]
    answers = np.random.RandomState(0).permutation(there)[:MOST_QUERIES]
    of_verse = np.array([i for name in STORED for i, verse in enumerate(verses) if verse.get(name)])
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform([verse[name] for name in STORED for verse in verses if verse.get(name)])
    queries = vectorizer.transform([verses[i][asked] for i in answers])
    errors = [np.mean(of_verse[exact(queries, keys, 1)[:, 0]] != answers)]
    for n_passes in (0, 5):
        classifier = CMTClassifier(n_head_passes=n_passes, store_examples=False, random_state=0).fit(keys, of_verse)
        errors.append(1.0 - classifier.score(queries, answers))
    return [asked, *errors]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--packages", type=int, default=30_000, help="number of packages stored")
    parser.add_argument("--asked", nargs="*", choices=ASKED, default=ASKED, help="translations asked")
    arguments = parser.parse_args()
    rows = from_rewards(arguments.data, arguments.packages)
    print(tabulate(rows, ["rewarded queries", "error", "seconds to learn"], "github", floatfmt=".4f"), flush=True)
    if arguments.asked:
        rows = (from_examples(arguments.data, asked) for asked in arguments.asked)
        headers = ["asked in", "BM25", "CMTClassifier, means", "CMTClassifier"]
        print(f"\n{tabulate(rows, headers, 'github', floatfmt='.4f')}")


if __name__ == "__main__":
    main()
