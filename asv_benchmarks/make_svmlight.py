"""Write a large svmlight file of made-up texts, for measuring how files larger than memory are read and learned.

::

    python asv_benchmarks/make_svmlight.py texts.svm
    cmt-numba evaluate texts.svm --progressive

Every class has words of its own, which it shares with some other classes; a row has some of these, and otherwise words
as unequally common as those of a language. Values are 1 plus the logarithm of a word's count, as in tf-idf.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

ROWS_AT_ONCE = 10_000
OWN_WORDS = 40
"""Words of each class."""


def lines(n_rows: int, n_classes: int, n_features: int, n_words: int, n_own: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file, ``ROWS_AT_ONCE`` at a time."""
    rng = np.random.default_rng(seed)
    commonness = np.cumsum(1.0 / np.arange(1, n_features + 1))
    commonness /= commonness[-1]
    own = rng.integers(n_features // 50, n_features, (n_classes, OWN_WORDS))
    for first in range(0, n_rows, ROWS_AT_ONCE):
        n = min(ROWS_AT_ONCE, n_rows - first)
        classes = rng.integers(0, n_classes, n)
        words = np.searchsorted(commonness, rng.random((n, n_words)))
        words[:, :n_own] = own[classes[:, None], rng.integers(0, OWN_WORDS, (n, n_own))]
        yield "".join(map(_line, classes.tolist(), np.sort(words, axis=1)))


def _line(label: int, words: np.ndarray) -> str:
    features, counts = np.unique(words, return_counts=True)
    values = 1.0 + np.log(counts)
    pairs = " ".join(f"{word}:{value:.4g}" for word, value in zip(features.tolist(), values.tolist(), strict=True))
    return f"{label} {pairs}\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write a large svmlight file of made-up texts.")
    parser.add_argument("path", type=Path, help="file to write")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("--words", type=int, default=30, help="words of a row")
    parser.add_argument("--own", type=int, default=8, help="how many of them are of the row's class")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sizes = (options.rows, options.classes, options.features, options.words, options.own)
    with options.path.open("w") as file, tqdm(total=options.rows, unit="row", unit_scale=True) as bar:
        for text in lines(*sizes, options.seed):
            file.write(text)
            bar.update(text.count("\n"))


if __name__ == "__main__":
    main()
