"""Compare the multi-label classifier with a linear one against all, on one thread.

    python asv_benchmarks/compare_multilabel.py --data path/to/folder --sets bibtex debtags

A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices as scipy
saves them, features and indicators of labels. Prints for each learner the wrong labels a query (the Hamming loss times
the number of labels), the precision at 1, 3 and 5, seconds to train and microseconds a query. One against all,
scikit-learn's LinearSVC for each label, is left out where there are more than ``--most-labels`` of them. Needs
scikit-learn and tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTMultilabelClassifier

PARTS = ("X_train", "Y_train", "X_test", "Y_test")
N_RANKED = 5


def read_set(folder: Path) -> list[Any]:
    """Return the four matrices of a set, rows of features of unit length."""
    X, Y, queries, answers = (scipy.sparse.csr_array(scipy.sparse.load_npz(folder / f"{part}.npz")) for part in PARTS)
    return [normalize(X.astype(np.float32)), Y != 0, normalize(queries.astype(np.float32)), answers != 0]


def ours(X: Any, Y: Any, queries: Any) -> tuple[Any, np.ndarray, float, float]:
    """Return the labels predicted, the best labels, seconds to train and seconds to predict."""
    CMTMultilabelClassifier(random_state=0).fit(X[:50], Y[:50]).predict(queries[:5])  # lets numba compile
    start = time.perf_counter()
    learner = CMTMultilabelClassifier(random_state=0).fit(X, Y)
    trained = time.perf_counter()
    predicted = learner.predict(queries)
    done = time.perf_counter()
    return predicted != 0, learner.top_labels(queries, N_RANKED)[0], trained - start, done - trained


def one_against_all(X: Any, Y: Any, queries: Any) -> tuple[Any, np.ndarray, float, float]:
    """Return the same of a linear support vector machine for each label that some examples have and some have not."""
    scores = np.full((queries.shape[0], Y.shape[1]), -np.inf)
    columns = Y.tocsc()
    training = predicting = 0.0
    for label in range(Y.shape[1]):
        has = columns[:, [label]].toarray().ravel()
        if not has.any() or has.all():
            continue
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner = LinearSVC().fit(X, has)
        trained = time.perf_counter()
        scores[:, label] = learner.decision_function(queries)
        training += trained - start
        predicting += time.perf_counter() - trained
    return scipy.sparse.csr_array(scores > 0), np.argsort(-scores, axis=1)[:, :N_RANKED], training, predicting


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare the multi-label classifier with one against all.")
    parser.add_argument("--data", type=Path, required=True, help="folder of sets")
    parser.add_argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"])
    parser.add_argument("--most-labels", type=int, default=1000, help="of a set that one against all is trained on")
    options = parser.parse_args()
    learners: dict[str, Callable[..., Any]] = {
        "CMTMultilabelClassifier": ours,
        "LinearSVC, one against all": one_against_all,
    }
    for name in options.sets:
        X, Y, queries, answers = read_set(options.data / name)
        rows = []
        for learner, run in learners.items():
            if run is one_against_all and Y.shape[1] > options.most_labels:
                continue
            predicted, best, training, predicting = run(X, Y, queries)
            n = answers.shape[0]
            right = np.zeros(best.shape)
            row, rank = np.nonzero(best >= 0)
            right[row, rank] = np.asarray(answers[row, best[row, rank]]).ravel()
            precision = [right[:, :k].mean() for k in (1, 3, 5)]
            rows.append([learner, (predicted != answers).nnz / n, *precision, training, predicting / n * 1e6])
        print(f"\n{name}: {X.shape[0]} examples, {Y.shape[1]} labels, {answers.nnz / answers.shape[0]:.2f} a query")
        headers = ["learner", "wrong labels", "P@1", "P@3", "P@5", "train s", "us a query"]
        print(tabulate(rows, headers, floatfmt=("", ".4f", ".4f", ".4f", ".4f", ".2f", ".1f")), flush=True)


if __name__ == "__main__":
    main()
