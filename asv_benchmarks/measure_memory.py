"""Compare the memory that forests take with what ``cmt_numba.sizing.predict_nbytes`` foretells.

::

    python asv_benchmarks/measure_memory.py
    python asv_benchmarks/measure_memory.py --data folder
    python asv_benchmarks/measure_memory.py --most-memories 2e4

Dense keys are random; sparse ones have features drawn uniformly or as unequally as words are. With ``--data`` texts of
public data as well (see ``labelled_sets.py``), of which 2,000 are the sample. Each set is inserted at once; then once
more in small batches, which leaves more room unused.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from labelled_sets import read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree
from cmt_numba.sizing import predict_nbytes

_SAMPLE = 2000
_SMALL_BATCH = 0.002  # of all keys


class Configuration(NamedTuple):
    """A set of keys and a forest."""

    name: str
    n: int
    n_features: int  # or what they are of
    cells: int  # of a sparse key
    n_trees: int
    leaf_multiplier: float
    copies: bool = False


_CONFIGURATIONS = [
    Configuration("dense", 1_000, 16, 0, 1, 4.0),
    Configuration("dense", 1_000, 512, 0, 16, 4.0),
    Configuration("dense", 10_000, 64, 0, 16, 1.0),
    Configuration("dense", 30_000, 128, 0, 4, 4.0, copies=True),
    Configuration("dense", 60_000, 32, 0, 8, 2.0, copies=True),
    Configuration("dense", 100_000, 16, 0, 4, 10.0),
    Configuration("dense", 200_000, 16, 0, 1, 1.0),
    Configuration("dense", 200_000, 64, 0, 2, 4.0),
    Configuration("uniform", 1_000, 500, 10, 1, 4.0),
    Configuration("uniform", 20_000, 5_000, 20, 4, 4.0),
    Configuration("uniform", 20_000, 1_000_000, 20, 1, 10.0),
    Configuration("words", 5_000, 20_000, 12, 16, 1.0),
    Configuration("words", 50_000, 50_000, 12, 2, 4.0),
    Configuration("words", 200_000, 100_000, 12, 1, 4.0),
]
_OF_TEXTS = [
    Configuration("clinc150", 0, 0, 0, 1, 1.0),
    Configuration("clinc150", 0, 0, 0, 4, 4.0),
    Configuration("bible", 0, 0, 0, 1, 4.0),
    Configuration("bible", 0, 0, 0, 8, 10.0),
    Configuration("wikipara1k", 0, 0, 0, 1, 4.0),
    Configuration("wikipara1k", 0, 0, 0, 4, 10.0),
]


def draw_sparse(configuration: Configuration, rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Return sparse keys whose features are all as common, or as words are."""
    n, d, cells = configuration.n, configuration.n_features, configuration.cells
    common = np.arange(1.0, d + 1) ** -1.0 if configuration.name == "words" else np.ones(d)
    features = rng.choice(d, size=(n, cells), p=common / common.sum())
    rows = np.repeat(np.arange(n), cells)
    keys = scipy.sparse.csr_array((np.ones(n * cells, np.float32), (rows, features.reshape(-1))), shape=(n, d))
    keys.sum_duplicates()
    keys.data *= (1.0 - np.log(common))[keys.indices].astype(np.float32)
    return keys


def read_texts(folder: Path, name: str) -> list[str]:
    """Return the texts that a set stores."""
    if name == "bible":
        return [line["text"]["KJV"] for line in read_lines(folder / "bible/verses.jsonl.gz") if "KJV" in line["text"]]
    return [line["text"] for line in read_lines(folder / name / "train.jsonl.gz")]


def sets_of_keys(most: float, data: Path | None) -> Iterator[tuple[Configuration, Any]]:
    """Return the configurations of up to ``most`` memories, and those of texts, with the keys in random order."""
    rng = np.random.default_rng(0)
    for configuration in _CONFIGURATIONS:
        if configuration.n > most:
            continue
        if configuration.name == "dense":
            yield configuration, rng.standard_normal((configuration.n, configuration.n_features), dtype=np.float32)
        else:
            yield configuration, draw_sparse(configuration, rng)
    for configuration in _OF_TEXTS if data else []:
        texts = read_texts(data, configuration.name)
        keys = scipy.sparse.csr_array(TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts))
        keys = keys[rng.permutation(keys.shape[0])]
        yield configuration._replace(n=keys.shape[0], n_features=keys.shape[1]), keys


def grown(configuration: Configuration, keys: Any, n_batches: int) -> int:
    """Return the bytes of a forest grown in ``n_batches`` batches."""
    tree = ContextualMemoryTree(
        configuration.n_trees, leaf_multiplier=configuration.leaf_multiplier, n_threads=1, random_state=0
    )
    for batch in np.array_split(np.arange(keys.shape[0]), min(n_batches, keys.shape[0])):
        tree.insert(keys[batch[0] : batch[-1] + 1])
    if configuration.copies:
        tree.compact()
    return tree.nbytes


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare the memory of forests with what is foretold.")
    parser.add_argument("--data", type=Path, help="folder of public data")
    parser.add_argument("--most-memories", type=float, default=1e6, help="leave out larger sets that are not of texts")
    options = parser.parse_args()
    table = []
    for configuration, keys in sets_of_keys(options.most_memories, options.data):
        how = {name: getattr(configuration, name) for name in ("n_trees", "leaf_multiplier", "copies")}
        n, d = keys.shape
        foretold, by_number = [predict_nbytes(n, d, **how)] * 2
        cells = float(d)
        if scipy.sparse.issparse(keys):
            cells = keys.nnz / n
            foretold = predict_nbytes(n, sample=keys[:_SAMPLE], **how)
            by_number = predict_nbytes(n, d, cells_per_key=cells, **how)
        taken, of_batches = (grown(configuration, keys, n_batches) for n_batches in (1, int(1 / _SMALL_BATCH)))
        row = [configuration.name, f"{n:,}", f"{d:,}", f"{cells:.1f}", *how.values(), f"{taken / 1e6:.2f}"]
        row += [f"{foretold / taken - 1:+.1%}", f"{by_number / taken - 1:+.1%}", f"{of_batches / taken:.2f}"]
        print(*row, flush=True)
        table.append(row)
    headers = [
        "keys",
        "memories",
        "features",
        "cells",
        "trees",
        "c",
        "copies",
        "MB",
        "error",
        "error without\na sample",
    ]
    print(tabulate(table, [*headers, "in batches,\ntimes as much"], disable_numparse=True))


if __name__ == "__main__":
    main()
