"""Trees that many benchmarks share: grown once for each version of the sources, then read from disk."""

import pickle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cmt_numba import ContextualMemoryTree

from .keys import FORMS, Matrix, exact_neighbours, make_data

SIZES = (1_000, 100_000)
"""Numbers of memories. ``asv_benchmarks/scale.py`` measures millions."""

GROWN = [(form, n) for form in FORMS for n in SIZES]
"""The form of the keys and the number of memories of each tree."""

_SOME = 10_000
_ASKED_EXACTLY = 200
NEIGHBOURS = 10


class Grown(NamedTuple):
    """A tree, with queries and their correct answers."""

    tree: ContextualMemoryTree
    ids: np.ndarray
    some_keys: Matrix  # the first of the inserted keys
    queries: Matrix
    answers: np.ndarray  # ids that the queries should find
    neighbours: np.ndarray  # ids that exact search finds for the first queries


class WithTrees:
    """Base class of the benchmarks of grown trees, which run in the folder that contains the trees."""

    timeout = 900

    def setup_cache(self) -> None:
        """Grow all trees."""
        for form, n in GROWN:
            data = make_data(form, n)
            tree = ContextualMemoryTree(n_threads=1, random_state=0)
            ids = tree.insert(data.keys)
            exact = exact_neighbours(data.keys, data.queries[:_ASKED_EXACTLY], NEIGHBOURS)
            grown = Grown(tree, ids, data.keys[:_SOME], data.queries, ids[data.answers], ids[exact])
            with _path(form, n).open("wb") as file:
                pickle.dump(grown, file, pickle.HIGHEST_PROTOCOL)


def read_grown(form: str, n: int) -> Grown:
    """Return one of the trees, or skip the benchmark if that tree has not been grown."""
    if (form, n) not in GROWN:
        raise NotImplementedError
    with _path(form, n).open("rb") as file:
        grown: Grown = pickle.load(file)
    return grown


def _path(form: str, n: int) -> Path:
    return Path(f"{form}-{n}.pickle")
