"""The effort that a target recall needs, measured on stored vectors and on queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._jit import held
from .lists import NEAR_GROUPS
from .search import ListEffort

N_SAMPLES = 256
"""Number of samples on which the effort is measured."""

N_MEASURED = 256
"""Number of samples measured while as many vectors are added as there are."""

N_MEASURED_OF_OTHERS = 512
"""The same if samples have near copies, or if vectors are replaced or removed, because efforts then change sooner."""

MORE_IF_ALIKE = 2
"""How many times as many samples are measured if they are alike."""

N_RECENT = 192
"""Number of samples that are kept when vectors are replaced or removed, because older samples knew other vectors."""

N_MEASURED_OF_LISTS = 1024
"""Number of samples measured while the number of lists doubles but that of vectors stays the same."""

N_AT_ONCE = 32
"""Number of samples that are measured together."""

N_REFERENCES = 32
"""Number of random vectors from which the usual distance of vectors is estimated."""

COPY = 0.2
"""Vectors nearer than this part of the usual distance may be near copies."""

RANKS = np.array([1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 37, 50, 75, 100, 128])
"""The ranks of the nearest vectors of which a sample has the gaps."""

N_COLUMNS = 2 * RANKS.size + 3
"""Number of columns of an array of samples."""

_WANTED = np.array([4, 6, 10, 16, 25, 50, 100])
_N_FARTHER = 17  # the gaps of 2, 4, 8, ... times as many vectors as the last of these are estimated

_TARGETS, _EPSILONS = [0.5, 0.95, 0.99, 0.999], [1.0, 1.6, 1.9, 2.5]
"""Standard errors of estimates that searches allow for, by target recall."""

_USUAL = 0.9  # fraction of samples that are not far from the nearest center
_MISSED_BY_LISTS = 0.8  # part of the missed vectors whose lists are not reached
_MISSED_IF_ALIKE = 0.6  # the same if samples are alike
_MISSED_BY_GROUPS = 0.2  # part of the missed vectors whose groups are not compared
_CORRELATED = 8.0  # with few features, errors of estimates depend on each other
_WITH_COPIES = 0.05  # fraction of samples with near copies from which on queries without copies are considered
_LARGEST = 1e30  # a gap that all lists are within


class _Quantiles:
    """Quantiles of the gaps of the nearest 4, 6, 10, ... vectors, ascending."""

    def __init__(self, gaps: np.ndarray) -> None:
        gaps = np.minimum(gaps, _LARGEST)
        order = np.argsort(gaps, axis=None)[: np.count_nonzero(~np.isnan(gaps))]  # NaN are last
        self._ordered, column = gaps.reshape(-1)[order], order % RANKS.size
        before = np.concatenate([[0], RANKS[:-1]])
        weights = np.clip(_WANTED[:, None] - before, 0, RANKS - before).astype(np.float32)
        self._sums = np.cumsum(weights[:, column], axis=1)

    def at(self, share: float) -> np.ndarray:
        """Return a quantile for each number of nearest vectors, and estimates for more vectors."""
        gaps = np.full(_WANTED.size, _LARGEST)
        if self._ordered.size > 0:
            places = [np.searchsorted(sums, share * sums[-1]) for sums in self._sums]
            gaps = np.maximum.accumulate(self._ordered[np.minimum(places, self._ordered.size - 1)])
        growth = (gaps[-1] - gaps[-3]) / 2  # from a fourth as many vectors
        farther = gaps[-1] + growth * np.arange(1, _N_FARTHER + 1)
        return np.minimum(np.concatenate([gaps, farther]), _LARGEST).astype(np.float32)


class Gaps:
    """The efforts for target recalls.

    Efforts are computed when samples are added, not by the next search. Objects do not change, so that a search can
    replace the one of its index while other threads search.

    Parameters
    ----------
    samples : ndarray of float32, shape (n_samples, 35)
        The latest samples, oldest first. The columns are: for vectors of the ranks in ``RANKS``, the gap at which a
        search reaches the list of the vector, NaN if there are fewer vectors; the same without near copies of the
        sample, per distance of the vector; whether the sample has near copies; the number of groups, nearest first, in
        which the lists of all these vectors are; and the squared distance of the sample from the nearest center, NaN
        for a query: queries that are farther away than stored vectors usually are keep their wider gaps.
    n_measured : int
        Number of samples measured so far, including replaced ones.
    n_features : int
        Number of features of the vectors.
    metric : str
        The metric. By inner products, a few long vectors are the neighbours of many samples.
    """

    def __init__(self, samples: np.ndarray, n_measured: int, n_features: int, metric: str) -> None:
        self.samples, self.n_measured = samples, n_measured
        self._n_features, self._metric = n_features, metric
        self._gaps = _Quantiles(samples[:, : RANKS.size])
        self._slopes: _Quantiles | None = None
        if samples[:, -3].sum() > _WITH_COPIES * len(samples):
            self._slopes = _Quantiles(samples[:, RANKS.size : -3])
        self._efforts = {target: self._effort(target) for target in (0.95, 0.99)}

    @property
    def have_copies(self) -> bool:
        """Whether many samples have near copies."""
        return self._slopes is not None

    @property
    def are_alike(self) -> bool:
        """Whether samples are less informative, because they have near copies or the same neighbours."""
        return self.have_copies or self._metric == "inner_product"

    def with_samples(self, more: np.ndarray, most: int = N_SAMPLES) -> Gaps:
        """Return the efforts with further samples, and at most the ``most`` latest ones in all."""
        samples = np.concatenate([self.samples, more])[-most:]
        return Gaps(samples, self.n_measured + len(more), self._n_features, self._metric)

    def _effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        missed = 1.0 - target_recall
        share = 1.0 - (_MISSED_IF_ALIKE if self.are_alike else _MISSED_BY_LISTS) * missed
        gaps = self._gaps.at(share)
        slopes = np.zeros_like(gaps) if self._slopes is None else self._slopes.at(share)
        epsilon = float(np.interp(target_recall, _TARGETS, _EPSILONS)) * (1.0 + _CORRELATED / self._n_features)
        n_groups, apart = NEAR_GROUPS, _LARGEST
        if len(self.samples) > 0:
            n_groups = max(
                math.ceil(np.quantile(self.samples[:, -2], 1.0 - _MISSED_BY_GROUPS * missed, method="higher")), n_groups
            )
            of_stored = self.samples[~np.isnan(self.samples[:, -1]), -1]
            if of_stored.size > 0:
                apart = max(float(np.quantile(of_stored, _USUAL, method="higher")), 1e-12)
        return held(ListEffort(_RANKS_OF_GAPS, gaps, slopes, epsilon, n_groups, apart))

    def effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        effort = self._efforts.get(target_recall)
        if effort is None:
            effort = self._efforts[target_recall] = self._effort(target_recall)
        return effort


_RANKS_OF_GAPS = np.concatenate([_WANTED, _WANTED[-1] << np.arange(1, _N_FARTHER + 1)]).astype(np.float32)
