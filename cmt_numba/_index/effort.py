"""The effort that a target recall needs, measured on stored vectors while the index grows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._jit import held
from .lists import NEAR_GROUPS
from .search import ListEffort

N_SAMPLES = 256
"""Number of stored vectors on which the effort is measured."""

N_MEASURED = 256
"""Number of samples measured while as many vectors change as there are."""

N_MEASURED_OF_LISTS = 1024
"""Number of additional samples while the number of lists doubles but that of vectors stays the same."""

N_NEAREST = 64
"""Number of nearest vectors of each sample."""

_TARGETS, _EPSILONS = [0.5, 0.95, 0.99, 0.999], [1.0, 1.6, 1.9, 2.5]
"""Standard errors of estimates that searches allow for, by target recall."""

N_AT_ONCE = 32
"""Number of samples that are measured together."""

_FEWEST = 2  # the effort for fewer than 2**2 vectors is that for 2**2, because that for one vector is uncertain
_USUAL = 0.9  # fraction of samples that are not far from the nearest center
_MISSED_BY_GROUPS = 0.2  # part of the missed vectors whose groups are not compared
_POWERS = 24  # gaps for 1, 2, 4, ... vectors
_CORRELATED = 8.0  # with few features, errors of estimates depend on each other


class Gaps:
    """For a sample of stored vectors, the gap at which a search finds each of the nearest other vectors.

    Efforts are computed while the index changes, not by the first search.

    Parameters
    ----------
    samples : ndarray of float32, shape (n_samples, 66)
        The gaps, nearest vectors first, NaN if there are fewer; the number of groups whose lists have these vectors;
        and the squared distance of the sample from the nearest center. The oldest sample is replaced first.
    n_measured : int
        Number of samples measured so far, including replaced ones.
    n_features : int
        Number of features of the vectors.
    """

    def __init__(self, samples: np.ndarray, n_measured: int, n_features: int) -> None:
        self.samples, self.n_measured = samples, n_measured
        self._factor = 1.0 + _CORRELATED / n_features
        self._efforts = self._measure((0.95, 0.99))

    def add(self, gaps: np.ndarray) -> None:
        """Add samples, and compute the efforts again."""
        places = (self.n_measured + np.arange(len(gaps))) % N_SAMPLES
        self.n_measured += len(gaps)
        if len(self.samples) < N_SAMPLES:
            self.samples = np.concatenate([self.samples, gaps])[:N_SAMPLES]
        else:
            self.samples[places] = gaps
        self._efforts = self._measure(self._efforts)

    def _measure(self, targets: Iterable[float]) -> dict[float, Any]:
        """Return the efforts for some targets."""
        gaps = [np.sort(self.samples[:, : 1 << power], axis=None) for power in range(N_NEAREST.bit_length())]
        n_groups, apart = np.sort(self.samples[:, -2:], axis=0).T
        return {target: self._effort(target, gaps, n_groups, apart) for target in targets}

    def _effort(self, target_recall: float, measured: list[np.ndarray], n_groups: np.ndarray, apart: np.ndarray) -> Any:
        """Return a ``ListEffort``, held for kernels. Measured numbers are ascending, gaps those for powers of two."""
        n, missed = len(measured), 1.0 - target_recall
        gaps = np.zeros(_POWERS, np.float32)
        gaps[:n] = np.maximum.accumulate([_quantile(some, 1.0 - 0.8 * missed) for some in measured])
        gaps[:_FEWEST] = gaps[_FEWEST]
        gaps[n:] = gaps[n - 1] + (gaps[n - 1] - gaps[n - 3]) / 2 * np.arange(1, _POWERS - n + 1)
        epsilon = float(np.interp(target_recall, _TARGETS, _EPSILONS)) * self._factor
        most = math.ceil(min(_quantile(n_groups, 1.0 - _MISSED_BY_GROUPS * missed), 1e9))
        return held(ListEffort(gaps, epsilon, max(most, NEAR_GROUPS), max(_quantile(apart, _USUAL), 1e-12)))

    def effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        efforts = self._efforts
        if target_recall not in efforts:
            efforts = self._efforts = efforts | self._measure([target_recall])
        return efforts[target_recall]  # another thread may have replaced them


def _quantile(ordered: np.ndarray, share: float) -> float:
    """Return a quantile of ascending numbers without the NaN at their end; 1e30 if there are no others."""
    n = int(ordered.searchsorted(np.inf, "right"))
    if n == 0:
        return 1e30
    below, part = divmod(share * (n - 1), 1.0)
    first, second = ordered[int(below)], ordered[min(int(below) + 1, n - 1)]
    return float(first + part * (second - first))
