"""Measure how far the probabilities of ``CMTClassifier`` can be trusted.

Prints a line for each set: the error, the expected calibration error (15 bins of one width, over the probability of
the answer), with the default that needs no learning, learned from examples held out, and with the best number that the
queries themselves would choose; and what it takes to learn::

    python asv_benchmarks/measure_calibration.py --data path/to/folder

For clinc150 also how well the highest probability tells rows of no known class from others, as the area under the
receiver operating characteristic, if ``clinc150/oos.jsonl.gz`` is there. The folder of data is described in
``labelled_sets.py``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from labelled_sets import LabelledSet, coil, omniglot, synthetic, texts_with_labels
from tabulate import tabulate

from cmt_numba import CMTClassifier

N_BINS = 15


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error: the mean distance of confidence and accuracy, bin by bin."""
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    errors = [abs(confidence[bins == b].mean() - right[bins == b].mean()) * np.mean(bins == b) for b in np.unique(bins)]
    return float(np.sum(errors))


def measured(classifier: Any, labelled: LabelledSet) -> tuple[float, float]:
    """Return the error and the calibration error of a classifier."""
    proba = classifier.predict_proba(labelled.queries)
    right = classifier.classes_[proba.argmax(axis=1)] == labelled.answers
    return 1.0 - float(right.mean()), calibration_error(proba.max(axis=1), right)


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    sets = {
        "clinc150, 5": lambda: texts_with_labels(folder, "clinc150", 5),
        "clinc150, all": lambda: texts_with_labels(folder, "clinc150", 1000),
        "wikipara1k, 3": lambda: texts_with_labels(folder, "wikipara1k", 3),
        "wikipara1k, 20": lambda: texts_with_labels(folder, "wikipara1k", 20),
        "coil100, 4": lambda: coil(folder, 4),
        "coil100, 18": lambda: coil(folder, 18),
        "omniglot, 5": lambda: omniglot(folder, 5),
        "omniglot, 10": lambda: omniglot(folder, 10),
        "synthetic, 20": lambda: synthetic(1000, 20),
    }
    lines = []
    for name, make in sets.items():
        labelled = make()
        start = process_time()
        classifier = CMTClassifier(random_state=0).fit(labelled.X, labelled.y)
        fitted = process_time() - start
        classifier._calibrated()[0] = 4.0
        error, by_default = measured(classifier, labelled)
        start = process_time()
        classifier.calibrate()
        took = process_time() - start
        learned = measured(classifier, labelled)[1]
        best = measured(classifier.calibrate(labelled.queries, labelled.answers), labelled)[1]
        lines.append([name, error, by_default, learned, best, fitted, took])
        print(lines[-1], flush=True)
    header = ["set, examples a class", "error", "default", "learned", "best", "s to fit", "s to calibrate"]
    print(tabulate(lines, header, floatfmt=("", ".4f", ".3f", ".3f", ".3f", ".2f", ".2f"), tablefmt="github"))


if __name__ == "__main__":
    main()
