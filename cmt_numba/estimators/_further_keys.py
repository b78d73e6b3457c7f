"""What it is worth to be like a further key of a memory, a query that was rewarded, in terms of the memory's own key.

Queries may be more like each other than like what they ask for, in their words or in their length. So the nearest of
former queries says less of what is wanted than the nearest of the keys, and how much less depends on the data. It is
learned from rewards: for both, how probable it is that the nearest is right, by its similarity. A similarity to a
further key counts as the similarity to an own key that is right as often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

OWN, FURTHER = 0, 1

_FIRST = np.array([6.0, -3.0])  # of slope and intercept, before any evidence: alike for both
_VARIANCES = np.array([4.0, 4.0])
_KEPT = 0.999  # of the evidence, when further evidence comes: further keys become more
_FLATTEST = 0.5  # slope


class Worth(NamedTuple):
    """For own and for further keys, how probable it is that the nearest is right: logistic in its similarity.

    Learned one observation at a time, by the normal approximation of the posterior (Spiegelhalter and Lauritzen, 1990).
    """

    means: np.ndarray  # float64 (2, 2): slope and intercept of each
    precisions: np.ndarray  # float64 (2, 2, 2)

    @classmethod
    def first(cls) -> Worth:
        """Return what is believed before any evidence: both are worth the same."""
        return cls(np.tile(_FIRST, (2, 1)), np.tile(np.diag(1.0 / _VARIANCES), (2, 1, 1)))

    def seen(self, kind: int, similarities: np.ndarray, right: np.ndarray) -> Worth:
        """Return what is believed when the nearest keys of a kind have been seen to be right or wrong."""
        means, precisions = self.means.copy(), self.precisions.copy()
        mean, precision = means[kind], precisions[kind]
        for similarity, is_right in zip(similarities.tolist(), right.tolist(), strict=True):
            x = np.array([similarity, 1.0])
            p = 1.0 / (1.0 + np.exp(-np.clip(mean @ x, -30.0, 30.0)))
            precision *= _KEPT
            precision += p * (1.0 - p) * np.outer(x, x) + (1.0 - _KEPT) * np.diag(1.0 / _VARIANCES)
            mean += np.linalg.solve(precision, x) * (is_right - p)
        return Worth(means, precisions)

    def in_terms_of_own(self, similarities: np.ndarray) -> np.ndarray:
        """Return the similarities to own keys that are worth as much as these to further ones: at most 1, float32."""
        own, further = self.means[OWN], self.means[FURTHER]
        slope = max(own[0], _FLATTEST)
        worth = (max(further[0], _FLATTEST) * similarities + further[1] - own[1]) / slope
        return np.minimum(worth, 1.0).astype(np.float32)
