"""Candidates for the class of a text, from a forest over the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ..tree import ContextualMemoryTree

_N_TREES, _N_LEAVES = 2, 8  # and leaves searched in them together


class ClassForest:
    """The classes of the training texts, found by the vectors of texts.

    Keys are the means of the hidden vectors of each class, less the mean of all classes, which they have in common and
    which tells none apart. Hidden vectors move while they are learned, so the forest is grown anew from time to time.

    Parameters
    ----------
    weighted : scipy.sparse array, shape (n_texts, n_features)
        The weights of the features of each text.
    labels : ndarray of int64, shape (n_texts,)
        The class of each text.
    generator : numpy.random.Generator
        What seeds and classes are drawn from.
    n_threads : int
        Threads of the forest.
    """

    def __init__(self, weighted: Any, labels: np.ndarray, generator: np.random.Generator, n_threads: int) -> None:
        self._weighted = weighted
        counts = np.bincount(labels)
        shares = (1.0 / counts[labels]).astype(np.float32)
        self._means = scipy.sparse.csr_array((shares, (labels, np.arange(labels.size)))) @ weighted
        self._generator = generator
        self._n_threads = n_threads

    def grow(self, inputs: np.ndarray) -> None:
        """Grow the forest anew from the vectors of features: float32, (n_features, d)."""
        keys = self._means @ inputs
        self._centre = keys.mean(axis=0)
        seed = int(self._generator.integers(2**32))
        self._forest = ContextualMemoryTree(_N_TREES, n_threads=self._n_threads, random_state=seed)
        self._forest.insert(keys - self._centre)

    def candidates(self, texts: np.ndarray, inputs: np.ndarray, n: int) -> np.ndarray:
        """Return classes near each text, and after those as many that are drawn at random.

        Parameters
        ----------
        texts : ndarray of int64, shape (n_texts,)
            Rows of the weights.
        inputs : ndarray of float32, shape (n_features, d)
            The vectors of features.
        n : int
            Number of near classes. All classes are equally probable to be drawn; those that are near are left out.

        Returns
        -------
        ndarray of int64, shape (n_texts, 2 * n)
            Classes, with -1 for none.
        """
        near = self._forest.query(self._weighted[texts] @ inputs - self._centre, n, _N_LEAVES).ids
        drawn = self._generator.integers(0, self._forest.n_memories, near.shape)
        return np.hstack([near, np.where((drawn[:, :, None] == near[:, None, :]).any(axis=2), -1, drawn)])
