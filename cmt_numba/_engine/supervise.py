"""The supervised protocol of the paper (section 4): query, reward and update in passes over the rows."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._change import progress_bar, spans
from .._kernels import NONE, Rows, as_matrix, joined, rewarded_memories, rewarded_pairs, without_own
from .._validation import check_rewards

_ROWS_IN_A_BLOCK = 256  # number of rows between two updates
_WORTH_REBUILDING = 1 / 3  # minimum fraction of memories in groups for a rebuild
_PART_TRIED, _MAX_TRIED = 8, 512  # an eighth of the rows, at most 512, compares the trees with rebuilt ones


class Supervision(NamedTuple):
    """The parameters of :func:`learn_in_passes`, of its queries and of its updates."""

    reward: Callable[[np.ndarray, np.ndarray], Any]  # of rows and ids, see :data:`cmt_numba.rewards.Reward`
    own_ids: np.ndarray | None  # int64 (n_rows,): id of each row's own memory, omitted from its answers, or -1
    k: int
    n_probes: int
    epsilon: float
    key_learning_rate: float
    n_passes: int
    updates_teach: bool  # whether updates already teach routers the paths to rewarded memories


def learn_in_passes(tree: Any, rows: Rows, how: Supervision, orders: np.random.Generator, progress: bool) -> float:
    """Learn from blocks of rows by queries and updates of the tree; return the mean reward of the last pass.

    The last rows of each pass first compare the trees with rebuilt ones. They are learned afterwards.
    """
    matrix, n_tried = as_matrix(rows), min(_MAX_TRIED, -(-rows.n_rows // _PART_TRIED))
    own_ids = np.full(rows.n_rows, NONE, np.int64) if how.own_ids is None else how.own_ids
    total, pairs = 0.0, np.empty((0, 2), np.int64)
    with progress_bar(how.n_passes * rows.n_rows, "learn", progress) as report:
        for _ in range(how.n_passes):
            order, total = orders.permutation(rows.n_rows), 0.0
            learned, tried = order[n_tried:], order[:n_tried]
            for part in (learned, tried):
                found_together = [pairs]
                for first, stop in spans(part.size, _ROWS_IN_A_BLOCK):
                    block = part[first:stop]
                    rewards, joins = _learn_block(tree, matrix[block], block, own_ids[block], how)
                    total += rewards
                    found_together.append(joins)
                    report(stop - first)
                ids, groups = joined(np.concatenate(found_together))
                pairs = np.column_stack([ids, groups])
                if part is learned:
                    trial = Trial(matrix[tried], own_ids[tried], partial(how.reward, tried))
                    with suppress(KeyError):
                        _rebuild_if_better(tree, ids, groups, trial)
    return total / rows.n_rows


def _learn_block(
    tree: Any, queries: Any, rows: np.ndarray, own: np.ndarray, how: Supervision
) -> tuple[float, np.ndarray]:
    """Query, reward and update; return the sum of the rewards of first memories, and pairs of rewarded memories."""
    n_wanted = how.k + (how.own_ids is not None)
    hits = without_own(tree.query(queries, n_wanted, how.n_probes, how.epsilon), own, how.k)
    rewards = check_rewards(how.reward(rows, hits.ids), hits.ids)
    tree.update(queries, hits, rewards, key_learning_rate=how.key_learning_rate)
    if (how.own_ids is not None or not how.updates_teach) and tree._forest.evidence.is_enough:
        _teach(tree, queries, *rewarded_memories(hits, own, rewards))
    return float(np.sum(rewards[:, 0], where=hits.ids[:, 0] != NONE)), rewarded_pairs(hits, own, rewards)


def _teach(tree: Any, queries: Any, taught: np.ndarray, best: np.ndarray) -> None:
    with suppress(KeyError):  # another thread may remove a memory
        if taught.size > 0:
            tree.teach(queries[taught], best)


class Trial(NamedTuple):
    """Rows that compare trees by the rewards of the first memories that default queries find."""

    queries: Any
    own_ids: np.ndarray
    reward: Callable[[np.ndarray], Any]  # a function of the ids that the queries find

    def total(self, tree: Any) -> float:
        hits = tree.query(self.queries)
        return float(np.sum(check_rewards(self.reward(hits.ids), hits.ids), where=hits.ids != NONE))


def _rebuild_if_better(tree: Any, ids: np.ndarray, groups: np.ndarray, trial: Trial) -> None:
    """Rebuild the trees if enough memories are in groups, and if a rebuilt copy earns more rewards in the trial.

    Groups of more than half of all memories do not count. The copy is without the own memories of the trial's rows,
    which are therefore new to it. If routers cannot separate large groups, rebuilt trees find less.
    """
    stored = np.isin(ids, tree.ids)
    ids, groups = ids[stored], groups[stored]
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    n, size = tree.n_memories, sizes[group]
    if np.count_nonzero((size > 1) & (2 * size <= n)) < max(1.0, _WORTH_REBUILDING * n):
        return
    copy = tree._twin()
    own = np.intersect1d(trial.own_ids, tree.ids)
    if own.size > 0:
        copy.remove(own)
    before, kept = trial.total(copy), np.isin(ids, copy.ids)
    if kept.any():
        copy.rebuild(ids[kept], groups[kept])
    if trial.total(copy) > before:
        tree.rebuild(ids, groups)
