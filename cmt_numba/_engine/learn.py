"""Learning from rewards (UPDATE, Algorithm 3) and from known correct memories."""

from functools import partial

import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .._change import Workers, changes, spans
from .forest import Forest
from .query import search

_ROWS_AT_ONCE = 512  # number of rows whose moved keys readers see at the same time; a multiple of 16


@changes
def update_rows(
    forest: Forest,
    rows: kernels.Rows,
    hits: kernels.Hits,
    rewards: np.ndarray,
    progress: bool = False,
    key_learning_rate: float = 0.0,
) -> None:
    """Learn from rewards: ``rewards[i, j]``, float32, is that of hit ``j`` of row ``i``; the last may have none."""
    if forest.n_memories == 0:
        return
    evidence, pairs, compared = forest.evidence, hits, rewards
    is_single = rewards.shape[1] == 1 and forest.teaches
    if is_single:
        others = kernels.unexplored(rows.n_rows, 2)
        search(forest, rows, forest.n_trees, others)
        pairs = kernels.with_runners_up(hits, others)
    evidence.weigh(forest.view(), kernels.Feedback(rows, pairs, rewards))
    if is_single:
        compared = np.full((rows.n_rows, 2), 0.5 * evidence.mean_reward, np.float32)
        compared[:, 0] = rewards[:, 0]
    if not evidence.is_enough:
        evidence.wait(rows, pairs, compared)
        return
    if evidence.waiting:
        _learn(forest, *evidence.joined(), False, key_learning_rate)
        evidence.waiting.clear()
    _learn(forest, rows, pairs, compared, progress, key_learning_rate)


def _learn(
    forest: Forest, rows: kernels.Rows, hits: kernels.Hits, rewards: np.ndarray, progress: bool, key_rate: float
) -> None:
    _learn_rewards(forest, rows, hits, rewards, progress)
    _move_keys(forest, rows, hits, rewards, key_rate)
    if forest.teaches:
        _teach_rewarded(forest, rows, hits, rewards)


def _teach_rewarded(forest: Forest, rows: kernels.Rows, hits: kernels.Hits, rewards: np.ndarray) -> None:
    taught, best = kernels.rewarded_memories(hits, np.full(rows.n_rows, kernels.NONE), rewards)
    slots = forest.slots_of(best)
    stored = np.flatnonzero(slots != kernels.NONE)
    if stored.size > 0:
        right = taught[stored]
        _teach(forest, rows if right.size == rows.n_rows else rows.take(right), slots[stored], 1, False)


def _learn_rewards(forest: Forest, rows: kernels.Rows, hits: kernels.Hits, rewards: np.ndarray, progress: bool) -> None:
    state = forest.allocated()
    if state.scorer.theta.size == 0:
        forest.put(state._replace(scorer=forests.Scorer(*np.zeros((2, rows.n_features), np.float32))))
    parameters = state.parameters
    at, feedback = np.zeros(forest.n_trees, np.int64), kernels.Feedback(rows, hits, rewards)

    def learn(run: Workers, start: int, stop: int) -> None:
        of_rows = feedback
        if stop - start < rows.n_rows:
            of_rows = kernels.Feedback(rows.between(start, stop), hits.between(start, stop), rewards[start:stop])
        forests.update_scorer(forest.view(), parameters.scorer_loss, of_rows)
        forest.on_each_tree(run, forests.update_trees, forests.Turn(at, stop), feedback)

    forest.in_steps(rows.n_rows, "update", progress, learn)


def _move_keys(forest: Forest, rows: kernels.Rows, hits: kernels.Hits, rewards: np.ndarray, rate: float) -> None:
    """Move dense keys according to rewards. Memories stay in their leaves."""
    if rows.sparse or rate == 0.0:
        return
    ids, explored = hits.ids[:, : rewards.shape[1]], hits.exploration.node != kernels.NONE
    slots = np.where(explored[:, None], kernels.NONE, forest.slots_of(ids.reshape(-1)).reshape(ids.shape))
    for first, stop in spans(rows.n_rows, _ROWS_AT_ONCE):
        moves = kernels.moves_of(slots[first:stop], rewards[first:stop])
        forest.lock.step(partial(kernels.move_keys, forest.view(), rows.between(first, stop), moves, rate))


@changes
def teach_rows(
    forest: Forest, rows: kernels.Rows, ids: np.ndarray, n_passes: int = 1, afresh: bool = False, progress: bool = False
) -> None:
    """Train routers to route row ``i`` to the memory ``ids[i]``. Raises KeyError if an id is not stored."""
    slots = forest.known_slots(ids)
    if afresh:
        for t in range(forest.n_trees):
            forest.lock.step(partial(forests.forget_routes, forest.view(), t))
    _teach(forest, rows, slots, n_passes, progress)


def _teach(forest: Forest, rows: kernels.Rows, slots: np.ndarray, n_passes: int, progress: bool) -> None:
    seed = forest.draw_word()
    orders = np.random.Generator(np.random.PCG64(seed)) if rows.n_rows > 1 else None  # creating a generator takes 30 us
    for _ in range(n_passes):
        order = np.zeros(1, np.int64) if orders is None else orders.permutation(rows.n_rows)
        lesson = forests.RouterLesson(rows, order, slots)
        at = np.zeros((forest.n_trees, 2), np.int64)
        at[:, 1] = kernels.NONE

        def teach(run: Workers, _start: int, stop: int) -> None:
            forest.on_each_tree(run, forests.teach_trees, lesson, at, stop)  # noqa: B023

        forest.in_steps(rows.n_rows, "teach", progress, teach)
