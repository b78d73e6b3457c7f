"""Measure how near learning in batches comes to one fit, and whether classes fade that get no new examples.

    python asv_benchmarks/measure_online.py --data path/to/folder

Expects ``clinc150`` in the folder, as ``labelled_sets.py`` describes it. The dense set is synthetic: 1,000 classes with
10 examples each. Prints the error of ``fit`` and of ``partial_fit`` in batches of several sizes, with seconds; and
the accuracy for 100 intents before and after the other 50 came, five at a time, by ``partial_fit`` alone. Each is also
measured without stored examples, of which none can be learned again. Needs tabulate.
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
from labelled_sets import LabelledSet, synthetic, texts_with_labels
from tabulate import tabulate

from cmt_numba import CMTClassifier

BATCHES = (100, 1000)
N_OLD, AT_ONCE = 100, 5


def learned(batches: list[np.ndarray], examples: LabelledSet, store: bool) -> tuple[CMTClassifier, float]:
    """Return a classifier that has learned batches of examples, and the seconds of processor time that it took."""
    classifier = CMTClassifier(store_examples=store, random_state=0)
    start = process_time()
    for batch in batches:
        classifier.partial_fit(examples.X[batch], examples.y[batch])
    return classifier, process_time() - start


def online_rows(examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield a row of the first table for each way to learn."""
    n = examples.y.size
    learned([np.arange(200), np.arange(200, 300)], examples, True)  # compiles
    start = process_time()
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y)
    yield ["fit", "", 1.0 - fitted.score(examples.queries, examples.answers), process_time() - start]
    for size in BATCHES:
        for store in (True, False):
            batches = np.array_split(np.arange(n), -(-n // size))
            classifier, seconds = learned(batches, examples, store)
            yield [f"batches of {size}", store, 1.0 - classifier.score(examples.queries, examples.answers), seconds]


def fading_rows(examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield a row of the second table for each way to learn."""
    intents = np.random.RandomState(0).permutation(np.unique(examples.y))
    old, new = intents[:N_OLD], intents[N_OLD:]
    asked = np.isin(examples.answers, old)
    queries, answers = examples.queries[asked], examples.answers[asked]
    first = np.flatnonzero(np.isin(examples.y, old))
    later = [np.flatnonzero(np.isin(examples.y, some)) for some in np.array_split(new, new.size // AT_ONCE)]
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y).score(queries, answers)
    for store in (True, False):
        before, _ = learned([first], examples, store)
        after, _ = learned([first, *later], examples, store)
        yield [store, before.score(queries, answers), after.score(queries, answers), fitted]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shots", type=int, default=100, help="examples of each intent")
    arguments = parser.parse_args()
    headers = ["", "examples stored", "error", "seconds"]
    print(tabulate(online_rows(synthetic(1000, 10)), headers, "github", floatfmt=".4g"), flush=True)
    intents = texts_with_labels(arguments.data, "clinc150", arguments.shots)
    headers = ["examples stored", "old intents alone", "after new ones", "one fit on all"]
    print(f"\n{tabulate(fading_rows(intents), headers, 'github', floatfmt='.4f')}")


if __name__ == "__main__":
    main()
