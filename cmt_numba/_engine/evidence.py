"""Evidence that rewards depend on memories, and the rewards that wait for it."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels

_MOST_WAITING = 1024  # number of latest rows that wait


class SavedEvidence(NamedTuple):
    """The contents of :class:`RewardEvidence` in a file."""

    sums: Annotated[np.ndarray, kernels.kind_of(np.float64, forests.N_SUMS)]
    groups: Annotated[np.ndarray, kernels.kind_of(np.float64, forests.N_GROUPS, 2)]
    values: Annotated[np.ndarray, kernels.kind_of(np.float32, "cells")]  # of waiting rows, see :class:`kernels.Rows`
    indices: Annotated[np.ndarray, kernels.kind_of(np.int32, "cells with features")]
    offsets: Annotated[np.ndarray, kernels.kind_of(np.int64, "ends")]
    ids: Annotated[np.ndarray, kernels.kind_of(np.int64, "rows", "memories")]
    rewards: Annotated[np.ndarray, kernels.kind_of(np.float32, "rows", "memories")]


class RewardEvidence:
    """Evidence that rewards depend on memories. Until there is enough, the latest rows wait and teach nothing."""

    def __init__(self) -> None:
        self.sums = forests.Evidence(np.zeros(forests.N_SUMS), np.zeros((forests.N_GROUPS, 2)))
        self.log_odds = -np.inf  # that rewards depend on memories
        self.waiting: list[kernels.Feedback] = []  # of equal width

    @property
    def nbytes(self) -> int:
        """Number of bytes of the queries that wait."""
        return sum(some.rows.values.nbytes + some.rows.indices.nbytes for some in self.waiting)

    @property
    def mean_reward(self) -> float:
        """The recent mean of single rewards."""
        return float(self.sums.sums[forests.MEANS])

    @property
    def is_enough(self) -> bool:
        """Whether rewards depend on memories more likely than not."""
        return bool(self.log_odds > 0.0)

    def weigh(self, view: Any, feedback: kernels.Feedback) -> None:
        """Add rewards."""
        self.log_odds = forests.weigh_rewards(view, self.sums, feedback)

    def wait(self, rows: kernels.Rows, hits: kernels.Hits, rewards: np.ndarray) -> None:
        """Keep copies of rows that explored no internal node, and forget the oldest ones beyond the limit."""
        kept = np.flatnonzero(hits.exploration.node == kernels.NONE)[-_MOST_WAITING:]
        if self.waiting and self.waiting[0].rewards.shape[1] != rewards.shape[1]:
            self.waiting.clear()
        self._append(rows.take(kept), hits.ids[kept, : rewards.shape[1]], rewards[kept])
        n = sum(some.rows.n_rows for some in self.waiting)
        while n - self.waiting[0].rows.n_rows >= _MOST_WAITING:
            n -= self.waiting.pop(0).rows.n_rows

    def _append(self, rows: kernels.Rows, ids: np.ndarray, rewards: np.ndarray) -> None:
        hits = kernels.no_hits(*ids.shape)._replace(ids=ids)
        self.waiting.append(kernels.Feedback(rows, hits, rewards))

    def joined(self) -> kernels.Feedback:
        """Join the waiting rows, of which there is at least one batch."""
        parts = [some.rows for some in self.waiting]
        lengths = np.concatenate([np.diff(rows.offsets) for rows in parts])
        rows = parts[0]._replace(
            values=np.concatenate([rows.values for rows in parts]),
            indices=np.concatenate([rows.indices for rows in parts]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
        )
        ids = np.concatenate([some.hits.ids for some in self.waiting])
        rewards = np.concatenate([some.rewards for some in self.waiting])
        return kernels.Feedback(rows, kernels.no_hits(*ids.shape)._replace(ids=ids), rewards)

    def saved(self) -> SavedEvidence | None:
        """Return the contents for a file, or None if there were no rewards."""
        if not self.waiting:
            cells = np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64)
            none = np.empty((0, 0), np.int64), np.empty((0, 0), np.float32)
            return SavedEvidence(*self.sums, *cells, *none) if self.sums.sums.any() else None
        rows, hits, rewards = self.joined()
        return SavedEvidence(*self.sums, rows.values, rows.indices, rows.offsets, hits.ids, rewards)

    def restore(self, saved: SavedEvidence, parameters: Any) -> None:
        """Fill with the contents of a file. Raises InvariantError if they are invalid."""
        kernels.check_layout(saved, {})
        n, d, offsets = len(saved.ids), parameters.n_features, saved.offsets
        finite = all(map(kernels.all_finite, (saved.sums, saved.groups, saved.values)))
        kernels.require(finite and saved.groups[:, 1].min() >= 0, "the evidence of rewards is invalid")
        kernels.require(offsets.size == n + 1, "waiting rows are incomplete")
        kernels.require(kernels.all_within(saved.rewards, 0, 1), "waiting rewards must be between 0 and 1")
        if parameters.sparse:
            cells = kernels.check_cells(saved.indices, offsets, d)
            valid = cells == kernels.SORTED_CELLS and saved.values.size == saved.indices.size
        else:
            valid = saved.indices.size == 0 and np.array_equal(offsets, np.arange(n + 1) * d)
            valid = valid and saved.values.size == n * d
        kernels.require(valid, "the cells of waiting rows are invalid")
        self.sums = forests.Evidence(saved.sums.copy(), saved.groups.copy())
        if n > 0:
            rows = kernels.Rows(saved.values, saved.indices, offsets, d, parameters.sparse)
            self._append(rows, saved.ids, saved.rewards)
