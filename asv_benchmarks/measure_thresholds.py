"""Measure label sets with and without a threshold that is learned: the mean F1 of queries, and labels predicted.

Beside ``CMTMultilabelClassifier`` with the thresholds 0 and "f1" stands scikit-learn's ``LinearSVC`` for each label,
with the threshold 0 and with one that is chosen on the same share of examples held out::

    python asv_benchmarks/measure_thresholds.py --data path/to/folder --sets bibtex delicious debtags

The folder of data is described in ``compare_multilabel.py``.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from compare_multilabel import LabelledSet, read_set
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTMultilabelClassifier
from cmt_numba.estimators._thresholds import threshold_of


def mean_f1(predicted: Any, wanted: Any) -> float:
    """Return the mean F1 of label sets, 1 for a row that has no label and is given none."""
    predicted, wanted = (scipy.sparse.csr_array(labels, dtype=np.int64) for labels in (predicted, wanted))
    right = np.asarray(predicted.multiply(wanted).sum(axis=1)).ravel()
    total = np.diff(predicted.indptr) + np.diff(wanted.indptr)
    return float(np.mean(np.where(total > 0, 2 * right / np.maximum(total, 1), 1.0)))


def scores_of_all(X: Any, Y: Any, queries: Any) -> np.ndarray:
    """Return the scores of a linear support vector machine for each label."""
    Y, scores = scipy.sparse.csc_array(Y), np.full((queries.shape[0], Y.shape[1]), -1.0, np.float32)
    for label in range(Y.shape[1]):
        has = np.zeros(X.shape[0], np.int64)
        has[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        if 0 < has.sum() < has.size:
            machine = LinearSVC(C=1.0, dual=True, max_iter=200, random_state=0).fit(X, has)
            scores[:, label] = machine.decision_function(queries)
    return scores


def one_against_all(data: LabelledSet) -> list[tuple[str, Any]]:
    """Return what machines predict with the threshold 0, and with a threshold chosen on examples held out."""
    X, Y = scipy.sparse.csr_array(data.X), scipy.sparse.csr_array(data.Y)
    order = np.random.default_rng(0).permutation(X.shape[0])
    n = min(2000, X.shape[0] // 5)
    held = scores_of_all(X[order[n:]], Y[order[n:]], X[order[:n]])
    row, _ = (places.ravel() for places in np.indices(held.shape))
    wanted = Y[order[:n]].astype(bool)
    threshold = threshold_of(row, held.ravel(), wanted.toarray().ravel(), np.diff(wanted.indptr))
    scores = scores_of_all(X, Y, data.queries)
    return [("LinearSVC, 0", scores > 0.0), (f"LinearSVC, chosen {threshold:.2f}", scores > threshold)]


def ours(data: LabelledSet) -> list[tuple[str, Any]]:
    """Return what ours predicts with the threshold 0, and with one that is learned."""
    found: list[tuple[str, Any]] = []
    for threshold in (0.0, "f1"):
        start = time.process_time()
        classifier = CMTMultilabelClassifier(threshold=threshold, random_state=0).fit(data.X, data.Y)
        took = time.process_time() - start
        chosen = f"f1: {classifier.threshold_:.2f}" if threshold == "f1" else "0"
        found.append((f"ours, {chosen} ({took:.1f} s to fit)", classifier.predict(data.queries)))
    return found


def main() -> None:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["bibtex", "debtags"])
    parser.add_argument("--without-machines", action="store_true", help="leave out LinearSVC")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # machines that have not converged
    for name in options.sets:
        data = read_set(options.data / name)
        answers = ours(data) + ([] if options.without_machines else one_against_all(data))
        lines = [
            [learner, mean_f1(found, data.answers), scipy.sparse.csr_array(found).sum() / data.queries.shape[0]]
            for learner, found in answers
        ]
        wanted = scipy.sparse.csr_array(data.answers).nnz / data.queries.shape[0]
        print(f"{name}: {wanted:.2f} labels a query")
        print(tabulate(lines, ["learner, threshold", "mean F1", "labels predicted"], floatfmt=".3f"), flush=True)


if __name__ == "__main__":
    main()
