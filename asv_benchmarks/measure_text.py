"""Measure retrieval of texts by other wordings: error, self-consistency, time and memory.

Every text is a memory and a class of its own; the queries say the same in other words. The data is a file of JSON
lines (plain or gzip), each with a ``text`` that holds several versions, such as a verse in several translations::

    {"text": {"KJV": "In the beginning God created ...", "ASV": "In the beginning God created ..."}}

The figures come from the 31,102 verses of the Bible in the King James and the American Standard Version, both in the
public domain (for example from github.com/scrollmapper/bible_databases)::

    python asv_benchmarks/measure_text.py verses.jsonl.gz --keys KJV --queries ASV
    python asv_benchmarks/measure_text.py verses.jsonl.gz --keys KJV --queries ASV --hashed --trees 1 4

Keys are tf-idf words; with ``--hashed`` the words are hashed into 2**20 features. Needs scikit-learn and tabulate.
"""

import argparse
import gzip
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree

LEAVES_OF_ONE_TREE = (1, 4, 16, 64)
LEAVES_OF_EACH = (1, 2)
"""Leaves searched: in all for one tree, for each tree of several."""


def seconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def read_pairs(path: Path, keys: str, queries: str) -> tuple[list[str], list[str], np.ndarray]:
    """Return the texts to store, the texts to ask for, and for each of these the position of its answer."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        versions = [json.loads(line)["text"] for line in file]
    versions = [version for version in versions if version.get(keys)]
    asked = [i for i, version in enumerate(versions) if version.get(queries)]
    return [version[keys] for version in versions], [versions[i][queries] for i in asked], np.array(asked)


def make_vectorizer(hashed: bool) -> Any:
    """Return what turns texts into sparse tf-idf rows."""
    if not hashed:
        return TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    words = HashingVectorizer(n_features=2**20, alternate_sign=False, norm=None, dtype=np.float32)
    return make_pipeline(words, TfidfTransformer(sublinear_tf=True))


def exact_error(X: Any, queries: Any, answers: np.ndarray) -> float:
    """Return the error of exact cosine search."""
    X_by_feature = X.T.tocsr()
    batches = [queries[first : first + 256] for first in range(0, queries.shape[0], 256)]
    best = np.concatenate([(batch @ X_by_feature).toarray().argmax(axis=1) for batch in batches])
    return float(np.mean(best != answers))


def self_consistency(tree: ContextualMemoryTree, X: Any) -> float:
    """Return how many keys find themselves, or a key equal to them, in one leaf of each tree."""
    hits = tree.query(X)
    same = hits.ids[:, 0] == np.arange(X.shape[0])
    equal = hits.scores[:, 0] > 1 - 1e-6
    return float(np.mean(same | equal))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure retrieval of texts by other wordings.")
    parser.add_argument("path", type=Path, help="file of JSON lines")
    parser.add_argument("--keys", required=True, help="version to store")
    parser.add_argument("--queries", required=True, help="version to ask with")
    parser.add_argument("--hashed", action="store_true", help="hash words into 2**20 features")
    parser.add_argument("--trees", type=int, nargs="+", default=[1, 4, 8, 16], help="numbers of trees to try")
    parser.add_argument("--repeats", type=int, default=3, help="number of interleaved runs; times are medians")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    texts, questions, answers = read_pairs(options.path, options.keys, options.queries)
    vectorizer = make_vectorizer(options.hashed)
    X = vectorizer.fit_transform(texts)
    queries = vectorizer.transform(questions)
    before_trees = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ContextualMemoryTree(random_state=0).insert(X[:500])  # compiles, or loads from the cache on disk

    def grown(n_trees: int) -> ContextualMemoryTree:
        tree = ContextualMemoryTree(n_trees, random_state=options.seed)
        tree.insert(X)
        return tree

    vectorizing: list[float] = []
    inserting: dict[int, list[float]] = {n_trees: [] for n_trees in options.trees}
    for _ in range(options.repeats):
        vectorizing.append(seconds(lambda: make_vectorizer(options.hashed).fit_transform(texts)))
        for n_trees, times in inserting.items():
            times.append(seconds(lambda n_trees=n_trees: grown(n_trees)))
    vectorizer_seconds = statistics.median(vectorizing)

    table = []
    for n_trees in options.trees:
        tree = grown(n_trees)
        tree.check_invariants()
        insert_seconds = statistics.median(inserting[n_trees])
        of_tree = [
            f"{insert_seconds:.2f}",
            f"{insert_seconds / vectorizer_seconds:.2f}",
            f"{insert_seconds / statistics.median(inserting[options.trees[0]]):.2f}",
            f"{self_consistency(tree, X):.4f}",
            f"{tree.nbytes / 1e6:.0f}",
            tree.depth,
        ]
        leaves = LEAVES_OF_ONE_TREE if n_trees == 1 else [n_trees * each for each in LEAVES_OF_EACH]
        for n_leaves in leaves:
            error = float(np.mean(tree.query(queries, n_probes=n_leaves).ids[:, 0] != answers))
            times = [seconds(lambda: tree.query(queries, n_probes=n_leaves)) for _ in range(options.repeats)]  # noqa: B023
            table.append(
                [n_trees, n_leaves, f"{error:.4f}", f"{1e6 * statistics.median(times) / answers.size:.1f}", *of_tree]
            )
            of_tree = [""] * len(of_tree)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    print(f"{len(texts):,} keys of {X.shape[1]:,} features, {X.nnz / X.shape[0]:.1f} of them present in each;")
    print(f"{len(questions):,} queries, error of exact search {exact_error(X, queries, answers):.4f};")
    print(f"making the keys out of text took {vectorizer_seconds:.2f} seconds.\n")
    headers = ["trees", "leaves", "error", "us per\nquery", "insert\nseconds", "of making\nkeys"]
    headers += [f"of {options.trees[0]}\ntrees", "self-\nconsistency", "MB", "depth"]
    print(tabulate(table, headers, disable_numparse=True))
    print(f"\nPeak resident memory: {peak / 1024:.0f} MB ({before_trees / 1024:.0f} MB before the first tree).")


if __name__ == "__main__":
    main()
