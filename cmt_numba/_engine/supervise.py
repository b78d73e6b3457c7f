"""The supervised protocol of the paper (section 4): query, reward and update in passes over the rows."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .._change import progress_bar, spans
from .._forest import NONE, Rows, as_matrix, joined, rewarded_memories, rewarded_pairs, without_own
from .._validation import check_rewards

_ROWS_IN_A_BLOCK = 256  # number of rows between two updates
_WORTH_REBUILDING = 1 / 3  # minimum fraction of memories in groups for a rebuild


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
    """Learn from blocks of rows by queries and updates of the tree; return the mean reward of the last pass."""
    own_ids = np.full(rows.n_rows, NONE, np.int64) if how.own_ids is None else how.own_ids
    matrix, n_wanted = as_matrix(rows), how.k + (how.own_ids is not None)
    total, pairs = 0.0, np.empty((0, 2), np.int64)
    with progress_bar(how.n_passes * rows.n_rows, "learn", progress) as report:
        for _ in range(how.n_passes):
            order, total, found_together = orders.permutation(rows.n_rows), 0.0, [pairs]
            for first, stop in spans(rows.n_rows, _ROWS_IN_A_BLOCK):
                block = order[first:stop]
                queries, own = matrix[block], own_ids[block]
                hits = without_own(tree.query(queries, n_wanted, how.n_probes, how.epsilon), own, how.k)
                rewards = check_rewards(how.reward(block, hits.ids), hits.ids)
                tree.update(queries, hits, rewards, key_learning_rate=how.key_learning_rate)
                if how.own_ids is not None or not how.updates_teach:
                    _teach(tree, queries, *rewarded_memories(hits, own, rewards))
                found_together.append(rewarded_pairs(hits, own, rewards))
                total += float(np.sum(rewards[:, 0], where=hits.ids[:, 0] != NONE))
                report(stop - first)
            ids, groups = joined(np.concatenate(found_together))
            pairs = np.column_stack([ids, groups])
            with suppress(KeyError):
                _rebuild_if_worthwhile(tree, ids, groups)
    return total / rows.n_rows


def _teach(tree: Any, queries: Any, taught: np.ndarray, best: np.ndarray) -> None:
    with suppress(KeyError):  # another thread may remove a memory
        if taught.size > 0:
            tree.teach(queries[taught], best)


def _rebuild_if_worthwhile(tree: Any, ids: np.ndarray, groups: np.ndarray) -> None:
    """Rebuild the trees if enough memories are in groups, not counting groups of more than half."""
    stored = np.isin(ids, tree.ids)
    ids, groups = ids[stored], groups[stored]
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    n, size = tree.n_memories, sizes[group]
    if np.count_nonzero((size > 1) & (2 * size <= n)) >= max(1.0, _WORTH_REBUILDING * n):
        tree.rebuild(ids, groups)
