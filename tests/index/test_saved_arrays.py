"""Tests that saved arrays depend only on the changes of an index."""

import numpy as np

from cmt_numba._index import DenseIndex


def test_saved_arrays_have_no_arbitrary_values():
    X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    saved = []
    for filler in (7, 9):
        filled = [np.full(size, filler, np.uint8) for size in (128, 256, 1024, 4096) for _ in range(300)]
        del filled  # new arrays may reuse this memory
        index = DenseIndex(4, "cosine", 0)
        index.insert(X)
        index.remove(np.array([3]))
        saved.append({name: array.tobytes() for name, array in index.arrays()[0].items()})
    assert saved[0] == saved[1]
