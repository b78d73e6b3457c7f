"""Compare ways to find the nearest of very many dense rows, and votes of neighbours under several similarities.

    python asv_benchmarks/compare_neighbors.py --data folder --sets "coil100, 18 views" "omniglot, 10 drawers"

The sets: ``labelled_sets.py``. Prints recall of the ten nearest by cosine against processor time on one thread, all
queries in one call, after seconds to build: of our lists with several numbers of probes, of faiss's inverted file with
the same landmarks (``--no-share`` lets it train its own), of its locality-sensitive hashing, of scikit-learn's KDTree
and BallTree, and of a matrix product. All times are medians of ``--rounds`` in turns. Then prints for each number of
probes how long we take compared with faiss. ``--votes`` prints errors of votes instead, and ``--trees 100000`` what
exact searches of VPTree and BallTree take in that many random points of few features. Needs tabulate, and faiss-cpu for
its rows, which are left out otherwise.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from labelled_sets import SETS, LabelledSet
from sklearn.neighbors import BallTree, KDTree
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.estimators._votes import VOTES
from cmt_numba.neighbors import LandmarkClassifier, LandmarkIndex
from cmt_numba.sequences import VPTree

WANTED = 10
PROBES = (1, 2, 4, 8, 16, 32, 64)
_TREE_QUERIES = 200  # of KDTree and BallTree, which take long

Search = Callable[[np.ndarray], np.ndarray]


def ours(index: LandmarkIndex, n_probes: int) -> Search:
    """Return our search of some lists."""

    def search(asked: np.ndarray) -> np.ndarray:
        index.n_probes = n_probes
        return index.query(asked, WANTED).ids

    return search


def faiss_engines(X: np.ndarray, index: LandmarkIndex, share: bool) -> Iterator[tuple[str, Search]]:
    """Yield the searches of faiss."""
    import faiss

    faiss.omp_set_num_threads(1)
    quantizer = faiss.IndexFlatIP(X.shape[1])
    lists = faiss.IndexIVFFlat(quantizer, X.shape[1], index.n_lists_, faiss.METRIC_INNER_PRODUCT)
    if share:
        quantizer.add(index.landmarks_)
    lists.train(X)
    lists.add(X)
    for n_probes in PROBES:

        def search(asked: np.ndarray, n_probes: int = n_probes) -> np.ndarray:
            lists.nprobe = n_probes
            return lists.search(asked, WANTED)[1]

        yield f"faiss IVF, {n_probes}", search
    for n_bits in (256, 1024):
        hashing = faiss.IndexLSH(X.shape[1], n_bits, True, False)
        hashing.add(X)

        def look_up(asked: np.ndarray, hashing: Any = hashing) -> np.ndarray:
            rough = hashing.search(asked, 10 * WANTED)[1]
            scores = np.einsum("ij,ikj->ik", asked, X[rough])
            return np.take_along_axis(rough, np.argsort(-scores, axis=1)[:, :WANTED], axis=1)

        yield f"faiss LSH, {n_bits} bits, 100 compared", look_up


def product(X: np.ndarray) -> Search:
    """Return exact search by a matrix product."""

    def search(asked: np.ndarray) -> np.ndarray:
        found = []
        for first in range(0, asked.shape[0], 256):
            scores = asked[first : first + 256] @ X.T
            best = np.argpartition(scores, -WANTED, axis=1)[:, -WANTED:]
            found.append(np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), 1), 1))
        return np.concatenate(found)

    return search


def compare(data: LabelledSet, options: argparse.Namespace) -> None:
    """Print the comparison of searches."""
    X, asked = (np.ascontiguousarray(rows, np.float32) for rows in (data.X, data.queries))
    began = process_time()
    index = LandmarkIndex("cosine", n_lists=options.lists, random_state=0)
    index.insert(X)
    print(f"{X.shape[0]} rows of {X.shape[1]}, {asked.shape[0]} queries; {index.n_lists_} lists,", end=" ")
    print(f"built in {process_time() - began:.1f} s", flush=True)
    engines: dict[str, Search] = {f"LandmarkIndex, {n}": ours(index, n) for n in PROBES}
    if find_spec("faiss"):
        engines |= faiss_engines(X, index, not options.no_share)
    engines["matrix product"] = product(X)
    for kind in (KDTree, BallTree):
        tree = kind(X)
        engines[kind.__name__] = lambda rows, tree=tree: tree.query(rows, WANTED, return_distance=False)
    exact = engines["matrix product"](asked)
    times: dict[str, list[float]] = {name: [] for name in engines}
    recalls = {}
    for _ in range(options.rounds):
        for name, search in engines.items():
            some = asked[:_TREE_QUERIES] if name.endswith("Tree") else asked
            began = process_time()
            found = search(some)
            times[name].append(1e6 * (process_time() - began) / some.shape[0])
            recalls[name] = (found[:, :, None] == exact[: some.shape[0], None]).any(axis=2).mean()
    medians = {name: float(np.median(values)) for name, values in times.items()}
    rows = [(name, recalls[name], medians[name]) for name in engines]
    print(tabulate(rows, ("engine", "recall at 10", "us a query"), floatfmt=("", ".3f", ".0f")))
    if find_spec("faiss"):
        ratios = [f"{n}: {medians[f'LandmarkIndex, {n}'] / medians[f'faiss IVF, {n}']:.2f}" for n in PROBES]
        print("times as long as faiss, by probes:", ", ".join(ratios), flush=True)


def votes(data: LabelledSet, options: argparse.Namespace) -> None:
    """Print the errors of votes."""
    rows = []
    X, asked, answers = np.asarray(data.X), data.queries, data.answers
    for metric in ("cosine", "euclidean", "gaussian", "laplacian"):
        classifier = LandmarkClassifier(metric=metric, n_probes=options.vote_probes, random_state=0).fit(X, data.y)
        for weights in ("uniform", "score"):
            row: list[Any] = [metric, weights]
            for n_neighbors in (1, 3, 5, 10):
                classifier.set_params(n_neighbors=n_neighbors, weights=weights)
                row.append(float(np.mean(classifier.predict(asked) != answers)))
            rows.append(row)
    trees = CMTClassifier(method="neighbors", random_state=0).fit(X, data.y)
    for weights in VOTES:
        row = ["CMTClassifier", weights]
        for n_neighbors in (1, 3, 5, 10):
            trees.set_params(n_neighbors=n_neighbors, weights=weights)
            row.append(float(np.mean(trees.predict(asked) != answers)))
        rows.append(row)
    print(tabulate(rows, ("similarity", "votes", "1", "3", "5", "10"), floatfmt=".4f"), flush=True)


def compare_trees(n: int, n_queries: int) -> None:
    """Print times and distances computed by exact trees over points that are uniform in a cube."""
    rows, rng = [], np.random.default_rng(0)
    VPTree(random_state=0).insert(rng.random((50, 2)))  # compiles
    for n_features in (2, 4, 8):
        X, asked = rng.random((n, n_features)), rng.random((n_queries, n_features))
        began = process_time()
        ours = VPTree(random_state=0)
        ours.insert(X)
        built, began = process_time() - began, process_time()
        theirs = BallTree(X)
        times = [built, process_time() - began]
        ours.query(asked[:2])
        theirs.reset_n_calls()
        lengths, counts = [], []
        for k in (1, WANTED):
            began = process_time()
            found = ours.query(asked, k)
            times.append(1e6 * (process_time() - began) / n_queries)
            began = process_time()
            lengths.append(theirs.query(asked, k)[0])
            times.append(1e6 * (process_time() - began) / n_queries)
            np.testing.assert_allclose(found.distances, lengths[-1], rtol=1e-4, atol=1e-6)
            counts += [found.n_computed.mean(), theirs.get_n_calls() / n_queries]
            theirs.reset_n_calls()
        for i, name in enumerate(("VPTree", "BallTree")):
            rows.append((n_features, name, times[i], times[i + 2], counts[i], times[i + 4], counts[i + 2]))
    head = ("features", "tree", "s to build", "us a query", "distances", f"us for {WANTED}", "distances")
    print(tabulate(rows, head, floatfmt=("", "", ".1f", ".0f", ".0f", ".0f", ".0f")))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare ways to find nearest neighbours.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["synthetic, 100 shots"])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--lists", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-share", action="store_true")
    parser.add_argument("--votes", action="store_true")
    parser.add_argument("--vote-probes", type=int, default=16)
    parser.add_argument("--trees", type=int, metavar="POINTS")
    options = parser.parse_args()
    if options.trees:
        compare_trees(options.trees, options.queries)
        return
    if options.data is None:
        parser.error("--data is needed")
    for name in options.sets:
        print(name, flush=True)
        data = SETS[name](options.data)
        some = np.random.default_rng(0).permutation(data.answers.size)[: options.queries]
        data = data._replace(queries=data.queries[some], answers=data.answers[some])
        (votes if options.votes else compare)(data, options)


if __name__ == "__main__":
    main()
