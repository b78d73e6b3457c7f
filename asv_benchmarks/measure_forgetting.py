"""Measure how much ``CMTClassifier`` is, after it has forgotten, like one that was never given what went.

From each set a tenth of the classes is removed, and then a share of the examples left. The same rows are asked of a
classifier that has learned only the rest. Prints the errors of both on the queries of classes left, how many of their
answers agree, how many answers name a class that has gone, and the seconds that the removals took::

    python asv_benchmarks/measure_forgetting.py --data path/to/folder

The folder of data is described in ``labelled_sets.py``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
from labelled_sets import LabelledSet, coil, omniglot, texts_with_labels
from tabulate import tabulate

from cmt_numba import CMTClassifier

MOST_ASKED = 1000


def measured(labelled: LabelledSet, share: float) -> list[float]:
    """Return what becomes of a classifier that forgets a tenth of its classes and a share of the other examples."""
    X, y, queries, answers = labelled
    generator = np.random.default_rng(0)
    classes = np.unique(y)
    gone = generator.choice(classes, classes.size // 10, replace=False)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    classifier.predict(queries[:1])
    left = np.flatnonzero(~np.isin(y, gone))
    ids = generator.choice(left, int(share * left.size), replace=False)
    start = process_time()
    classifier.remove_classes(gone)
    if ids.size > 0:
        classifier.remove(ids)
    took = process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "classifier.cmt")
        classifier = CMTClassifier.load(Path(folder) / "classifier.cmt")
    rest = np.setdiff1d(left, ids)
    other = CMTClassifier(random_state=0).fit(X[rest], y[rest])
    asked = np.flatnonzero(np.isin(answers, classifier.classes_))
    asked = np.sort(generator.permutation(asked)[:MOST_ASKED])
    found, expected, right = classifier.predict(queries[asked]), other.predict(queries[asked]), answers[asked]
    all_found = classifier.predict(queries)
    return [
        float(np.mean(found != right)),
        float(np.mean(expected != right)),
        float(np.mean(found == expected)),
        int(np.isin(all_found, np.setdiff1d(y, y[rest])).sum()),
        took,
    ]


def main() -> None:
    """Print a line for each set and share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    sets = {
        "clinc150, 20": texts_with_labels(folder, "clinc150", 20),
        "clinc150, all": texts_with_labels(folder, "clinc150", 1000),
        "coil100, 18": coil(folder, 18),
        "omniglot, 10": omniglot(folder, 10),
    }
    lines = []
    for name, labelled in sets.items():
        for share in (0.0, 0.1, 0.3):
            lines.append([name, share, *measured(labelled, share)])
            print(lines[-1], flush=True)
    header = ["set", "examples removed", "error", "error of the rest", "agreement", "answers gone", "s to remove"]
    print(tabulate(lines, header, floatfmt=("", ".1f", ".4f", ".4f", ".4f", ".0f", ".3f"), tablefmt="github"))


if __name__ == "__main__":
    main()
