"""The effort that a target recall needs, measured on stored vectors while the index grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._jit import held
from .lists import NEAR_GROUPS
from .sample_search import find_quantiles
from .search import ListEffort

N_SAMPLES = 256
"""Number of stored vectors on which the effort is measured."""

N_MEASURED = 256
"""Number of samples measured while as many vectors change as there are."""

N_NEAREST = 64
"""Number of nearest vectors of each sample."""

_TARGETS, _EPSILONS = [0.5, 0.95, 0.99, 0.999], [1.0, 1.6, 1.9, 2.5]
"""Standard errors of estimates that searches allow for, by target recall."""

N_MEASURED_OF_LISTS = 1024
"""Number of samples measured besides while the number of lists doubles and that of vectors does not change."""

N_AT_ONCE = 32
"""Number of samples that are measured together."""

_FEWEST = 2  # the effort for fewer than 2**2 vectors is that for 2**2, because that for one vector is uncertain
_USUAL = 0.9  # fraction of samples that are not far from the nearest center
_MISSED_BY_GROUPS = 0.2  # part of the missed vectors whose groups are not compared
_POWERS = 24  # gaps for 1, 2, 4, ... vectors
_FURTHER = np.arange(1, _POWERS - N_NEAREST.bit_length() + 1) / 2  # for more vectors, gaps grow as for the last ones
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
        targets, n = sorted(targets), N_NEAREST.bit_length()
        shares = np.array([1.0 - (1.0 - target) * 0.8 for target in targets])
        measured, apart = np.empty((len(targets), n)), np.empty(1)
        find_quantiles(self.samples, shares, _USUAL, measured, apart)
        gaps = np.empty((len(targets), _POWERS), np.float32)
        gaps[:, :n] = measured
        gaps[:, :_FEWEST] = measured[:, _FEWEST, None]
        gaps[:, n:] = measured[:, -1:] + (measured[:, -1:] - measured[:, -3, None]) * _FURTHER
        epsilons = np.interp(targets, _TARGETS, _EPSILONS) * self._factor
        n_groups = np.full(len(targets), NEAR_GROUPS)
        if (self.samples[:, -2] > NEAR_GROUPS).any():
            shares = 1.0 - _MISSED_BY_GROUPS * (1.0 - np.array(targets))
            n_groups = np.maximum(np.ceil(np.quantile(self.samples[:, -2], shares)), NEAR_GROUPS)
        least = max(float(apart[0]), 1e-12)
        return {
            target: held(ListEffort(of_target, float(epsilon), int(n), least))
            for target, of_target, epsilon, n in zip(targets, gaps, epsilons, n_groups, strict=True)
        }

    def effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        efforts = self._efforts
        if target_recall not in efforts:
            efforts = self._efforts = efforts | self._measure([target_recall])
        return efforts[target_recall]  # another thread may have replaced them
