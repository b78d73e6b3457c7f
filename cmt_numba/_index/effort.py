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

N_COLUMNS = 2 * RANKS.size + 2
"""Number of columns of an array of samples."""

N_CONTRAST_COLUMNS = 2 * RANKS.size
"""Number of columns of an array of contrasts."""

SAMPLES_PER_QUERY_BETWEEN = 4
"""For so many samples, one query between stored vectors is measured."""

_WANTED = np.array([4, 6, 10, 16, 25, 50, 100])
_N_FARTHER = 17  # the gaps of 2, 4, 8, ... times as many vectors as the last of these are estimated

_TARGETS, _EPSILONS = [0.5, 0.95, 0.99, 0.999], [1.0, 1.6, 1.9, 2.5]
"""Standard errors of estimates that searches allow for, by target recall."""

_USUAL, _MARGIN = 0.9, 1.4  # queries are unlike samples beyond this quantile of squared distances, times the margin
_MISSED_BY_LISTS = 0.8  # part of the missed vectors whose lists are not reached
_MISSED_IF_ALIKE = 0.6  # the same if samples are alike and enough of them miss vectors
_MISSED_IF_UNLIKE = 0.4  # the same if the query is unlike samples
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
    samples : ndarray of float32, shape (n_samples, 34)
        The latest samples, oldest first. The columns are: for vectors of the ranks in ``RANKS``, the gap at which a
        search reaches the list of the vector, NaN if there are fewer vectors; the same without near copies of the
        sample, per distance of the vector; whether the sample has near copies; and the number of groups, nearest first,
        in which the lists of all these vectors are.
    contrasts : ndarray of float32, shape (n_contrasts, 32)
        What queries unlike the stored vectors need, oldest first. The columns are: the squared distance of a stored
        vector from the nearest of as many others as each of ``RANKS`` says, for inner products the nearest by angle,
        and the gaps per such distance. The distances are NaN if the row is a query halfway between two stored vectors.
    n_measured : int
        Number of samples measured so far, including replaced ones.
    n_features : int
        Number of features of the vectors.
    metric : str
        The metric. By inner products, a few long vectors are the neighbours of many samples.
    """

    def __init__(
        self, samples: np.ndarray, contrasts: np.ndarray, n_measured: int, n_features: int, metric: str
    ) -> None:
        self.samples, self.contrasts, self.n_measured = samples, contrasts, n_measured
        self._n_features, self._metric = n_features, metric
        self._gaps = _Quantiles(samples[:, : RANKS.size])
        self._slopes: _Quantiles | None = None
        if samples[:, -2].sum() > _WITH_COPIES * len(samples):
            self._slopes = _Quantiles(samples[:, RANKS.size : -2])
        self._usual = np.full(len(_RANKS_OF_GAPS), _LARGEST, np.float32)
        self._slopes_if_unlike: list[_Quantiles] = []
        is_between = np.isnan(contrasts[:, 0])
        if not is_between.all():
            usual = _MARGIN * np.quantile(contrasts[~is_between, : RANKS.size], _USUAL, axis=0)
            before = np.searchsorted(RANKS, [1, *_WANTED[:-1] + 1], "right") - 1  # the least rank that has this gap
            self._usual[:] = usual[-1]
            self._usual[: _WANTED.size] = usual[before]
            is_far = contrasts[:, RANKS.size - 1] > usual[-1]
            parts = [contrasts[is_kind, RANKS.size :] for is_kind in (is_between, is_far)]
            self._slopes_if_unlike = [_Quantiles(slopes) for slopes in parts if len(slopes) > 0]
        self._efforts = {target: self._effort(target) for target in (0.95, 0.99)}

    @property
    def have_copies(self) -> bool:
        """Whether many samples have near copies."""
        return self._slopes is not None

    @property
    def are_alike(self) -> bool:
        """Whether samples are less informative, because they have near copies or the same neighbours."""
        return self.have_copies or self._metric == "inner_product"

    def with_samples(self, more: np.ndarray, contrasts: np.ndarray, most: int = N_SAMPLES) -> Gaps:
        """Return the efforts with further samples and contrasts, and at most the ``most`` latest samples in all."""
        samples = np.concatenate([self.samples, more])[-most:]
        contrasts = np.concatenate([self.contrasts, contrasts])[-(most + most // SAMPLES_PER_QUERY_BETWEEN) :]
        return Gaps(samples, contrasts, self.n_measured + len(more), self._n_features, self._metric)

    def _missed_if_alike(self, missed: float) -> float:
        """Return the part of the misses to allow for lists that are not reached, if samples are alike.

        The fewer samples miss vectors, the smaller it is, by a standard error of their number.
        """
        n_missed = max(missed * len(self.samples), 1.0)
        return min(_MISSED_IF_ALIKE, 1.0 - 1.0 / math.sqrt(n_missed))

    def _effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        missed = 1.0 - target_recall
        share = 1.0 - (self._missed_if_alike(missed) if self.are_alike else _MISSED_BY_LISTS) * missed
        gaps = self._gaps.at(share)
        slopes = np.zeros_like(gaps) if self._slopes is None else self._slopes.at(share)
        epsilon = float(np.interp(target_recall, _TARGETS, _EPSILONS)) * (1.0 + _CORRELATED / self._n_features)
        n_groups = NEAR_GROUPS
        if len(self.samples) > 0:
            n_groups = max(
                math.ceil(np.quantile(self.samples[:, -1], 1.0 - _MISSED_BY_GROUPS * missed, method="higher")), n_groups
            )
        share = 1.0 - _MISSED_IF_UNLIKE * missed
        if_unlike = np.max([np.zeros_like(gaps), *(slopes.at(share) for slopes in self._slopes_if_unlike)], axis=0)
        return held(ListEffort(_RANKS_OF_GAPS, gaps, slopes, self._usual, if_unlike, epsilon, n_groups))

    def effort(self, target_recall: float) -> Any:
        """Return a ``ListEffort``, held for kernels."""
        effort = self._efforts.get(target_recall)
        if effort is None:
            effort = self._efforts[target_recall] = self._effort(target_recall)
        return effort


_RANKS_OF_GAPS = np.concatenate([_WANTED, _WANTED[-1] << np.arange(1, _N_FARTHER + 1)]).astype(np.float32)
