"""Compare how CMTClassifier answers dense rows with matrix products that anyone could write, on one thread.

Error and microseconds of processor time a row, in batches of 1, of 1,000 and of all rows, on coil100, Omniglot and the
synthetic set of ``labelled_sets.py`` with several numbers of classes::

    python asv_benchmarks/compare_plans.py --data path/to/folder --classes 1000 5000 10000
    python asv_benchmarks/compare_plans.py --classes 1000000 --shots 1 --repeats 1 --product-queries 1000

The rivals are one product with the class means, one with the classifier's own scorers, and an inverted file in a few
lines of NumPy: landmarks by k-means, for each landmark a list of the scorers that score best for it, and each row
scored against the list of its nearest landmark (``--no-lists`` leaves these out). Ways are timed in turn, several
times, and the least time counts.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from labelled_sets import LabelledSet, coil, omniglot, synthetic
from sklearn.preprocessing import normalize
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba._heads.products import all_scorers

BATCHES = (1, 1000, None)
ROWS_AT_ONCE, CLASSES_AT_ONCE = 1000, 10_000  # of a product, 40 MB
SAMPLED_FOR_A_LIST = 100  # vectors that k-means looks at
Way = Callable[[np.ndarray], np.ndarray]


def product(weights: np.ndarray, classes: np.ndarray) -> Way:
    """Return the class whose vector has the greatest product with a row, for each row, in blocks that BLAS likes."""
    scores = np.empty((ROWS_AT_ONCE, CLASSES_AT_ONCE), np.float32)

    def best(X: np.ndarray) -> np.ndarray:
        found, largest = np.empty(len(X), np.int64), np.full(len(X), -np.inf, np.float32)
        for i in range(0, len(X), ROWS_AT_ONCE):
            for j in range(0, len(weights), CLASSES_AT_ONCE):
                some, rows = weights[j : j + CLASSES_AT_ONCE], X[i : i + ROWS_AT_ONCE]
                block = np.matmul(rows, some.T, out=scores[: len(rows), : len(some)])
                at = block.argmax(axis=1)
                value = np.take_along_axis(block, at[:, None], axis=1)[:, 0]
                better = np.flatnonzero(value > largest[i : i + ROWS_AT_ONCE])
                found[i + better], largest[i + better] = j + at[better], value[better]
        return classes[found]

    return best


def landmarks_of(weights: np.ndarray) -> np.ndarray:
    """Return landmarks by k-means over some of the vectors, if there are very many."""
    rng = np.random.default_rng(0)
    n_lists = min(500, int(np.sqrt(len(weights))))
    units = normalize(weights[rng.permutation(len(weights))[: SAMPLED_FOR_A_LIST * n_lists]])
    landmarks = units[:n_lists]
    for _ in range(8):
        sums = np.zeros_like(landmarks)
        np.add.at(sums, nearest(landmarks, units), units)
        landmarks = np.where(sums.any(axis=1)[:, None], normalize(sums), landmarks)
    return landmarks


def inverted_file(weights: np.ndarray, classes: np.ndarray, landmarks: np.ndarray, n_listed: int) -> Way:
    """Return the best class in the list of each row's nearest landmark."""
    n_lists = len(landmarks)
    lists = [np.argpartition(-(weights @ landmark), n_listed - 1)[:n_listed] for landmark in landmarks]
    packed = [weights[members] for members in lists]

    def best(X: np.ndarray) -> np.ndarray:
        near = (X @ landmarks.T).argmax(axis=1)
        order = np.argsort(near, kind="stable")
        ends, found = np.searchsorted(near[order], np.arange(n_lists + 1)), np.empty(len(X), np.int64)
        for j in range(n_lists):
            rows = order[ends[j] : ends[j + 1]]
            if rows.size > 0:
                found[rows] = lists[j][(X[rows] @ packed[j].T).argmax(axis=1)]
        return classes[found]

    return best


def nearest(landmarks: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the nearest landmark of each vector."""
    parts = [(units[i : i + 1000] @ landmarks.T).argmax(axis=1) for i in range(0, len(units), 1000)]
    return np.concatenate(parts)


def ways(data: LabelledSet, lists: bool) -> Iterator[tuple[str, float, Way]]:
    """Yield ways to answer: their names, the seconds that it took to make them ready, and what answers."""
    before, began = peak_gigabytes(), time.process_time()
    classifier = CMTClassifier(random_state=0).fit(data.X, data.y)
    fitted, after_fit = time.process_time() - began, peak_gigabytes()
    classifier.predict(data.queries[:1])
    print(f"fit {fitted:.1f} s; peak memory {before:.2f} GB before, {after_fit:.2f} after it", end="")
    print(f", {peak_gigabytes():.2f} when ready to answer")
    yield "CMTClassifier", time.process_time() - began, classifier.predict
    classes, positions = np.unique(data.y, return_inverse=True)
    means = np.zeros((classes.size, data.X.shape[1]), np.float32)
    np.add.at(means, positions, data.X)
    yield "product with class means", 0.0, product(normalize(means), classes)
    scorers = all_scorers(classifier.head_)
    assert scorers is not None
    weights, of_label = np.ascontiguousarray(scorers.weights.T), classes[classifier._class_of_label]
    yield "product with scorers", 0.0, product(weights, of_label)
    if lists:
        began = time.process_time()
        landmarks = landmarks_of(weights)
        made = time.process_time() - began
        for n_listed in (750, 1500, 3000):
            if 2 * n_listed <= classes.size:
                began = time.process_time()
                listed = inverted_file(weights, of_label, landmarks, n_listed)
                yield f"inverted file, {n_listed} listed", made + time.process_time() - began, listed


def peak_gigabytes() -> float:
    """Return the most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def compare(data: LabelledSet, repeats: int, product_queries: int, lists: bool) -> list[list[float | str]]:
    """Return error, seconds to make ready and microseconds a row for each way.

    Products answer the first ``product_queries`` only, and all errors are of these.
    """
    everything = list(ways(data, lists))
    queries = np.ascontiguousarray(data.queries, np.float32)
    least = np.full((len(everything), len(BATCHES)), np.inf)
    for i, batch in enumerate(BATCHES):
        n_calls = 50 if batch == 1 else 1
        for _ in range(repeats):
            for j, (name, _, way) in enumerate(everything):
                n_rows = min(batch or len(queries), asked_of(name, queries, product_queries))
                began = time.process_time()
                for call in range(n_calls):
                    way(queries[call : call + n_rows])
                least[j, i] = min(least[j, i], 1e6 * (time.process_time() - began) / n_calls / n_rows)
    asked, answers = queries[:product_queries], data.answers[:product_queries]
    errors = [float(np.mean(way(asked) != answers)) for _, _, way in everything]
    return [[name, errors[j], seconds, *least[j]] for j, (name, seconds, _) in enumerate(everything)]


def asked_of(name: str, queries: np.ndarray, product_queries: int) -> int:
    """Return how many of the queries a way is asked."""
    return min(len(queries), product_queries) if name.startswith("product") else len(queries)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare plans for dense rows.")
    parser.add_argument("--data", type=Path, help="folder of data; without it, only synthetic sets")
    parser.add_argument(
        "--classes", type=int, nargs="*", default=[1000, 5000, 10_000, 50_000], help="of synthetic sets"
    )
    parser.add_argument("--shots", type=int, default=5, help="of each class of synthetic sets")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--product-queries",
        type=int,
        default=4000,
        help="most that products with all classes answer, and that errors are of",
    )
    parser.add_argument("--no-lists", action="store_true", help="leave out the inverted files")
    options = parser.parse_args()
    sets: dict[str, Callable[[], LabelledSet]] = {}
    if options.data is not None:
        sets["coil100, 4 views"] = lambda: coil(options.data, 4)
        sets["omniglot, 10 drawers"] = lambda: omniglot(options.data, 10)
    for n_classes in options.classes:
        sets[f"synthetic, {n_classes} classes"] = lambda n_classes=n_classes: synthetic(n_classes, options.shots)
    for name, read in sets.items():
        data = read()
        print(f"\n{name}: {data.X.shape[0]} examples of {np.unique(data.y).size} classes, {data.X.shape[1]} features")
        headers = ["way", "error", "ready s", "us, batch of 1", "batch of 1,000", f"batch of {len(data.answers):,}"]
        print(
            tabulate(
                compare(data, options.repeats, options.product_queries, not options.no_lists),
                headers,
                floatfmt=("", ".4f", ".2f", ".1f", ".1f", ".1f"),
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
