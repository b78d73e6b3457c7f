"""Compare memories that learn from rewards which memory to return."""

from shared.commands import DATA, Commands, argument, mean_over, print_table

import argparse
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from shared.reward_kinds import KINDS, RewardKind
from shared.reward_learners import LEARNERS
from shared.reward_tasks import Asked, Task, tasks_of

from cmt_numba import MemoryStore
from cmt_numba._feedback import state as states

BATCH = 10
OF_THREADS = [("clean", 1), ("clean", 3), ("clicks", 5), ("flipped 0.2", 3), ("outcome", 5)]

commands = Commands(__doc__)


def run(task: Task, learner: Any, k: int, kind: RewardKind, seed: int, n_queries: int | None = None) -> list[float]:
    """Stream queries through a learner, which receives the rewards of the memories that it returned.

    Return the mean rewards of the first results: for held-out queries, and for those of memories that arrive later.
    """
    rng, n = np.random.default_rng(1000 + seed), min(n_queries or task.stream.wanted.size, task.stream.wanted.size)
    easier = np.random.default_rng(seed).normal(size=task.keys.shape[1])  # queries in this direction are easy
    learner.start(task.keys)
    for first in range(0, n, BATCH):
        rows = slice(first, min(first + BATCH, n))
        Q, wanted = task.stream.rows[rows], task.stream.wanted[rows]
        ids = learner.query(Q, k)
        expected = task.expected(wanted, ids, is_late=first >= n // 2)
        right = (rng.random(expected.shape) < expected).astype(float)
        if kind.of_queries:
            right[:] = (Q @ easier > 0.0)[:, None]
        rewards = kind.rewards(right, rng)
        kept = rng.random(len(ids)) < kind.share
        if kept.any():
            learner.learn(Q[kept], ids[kept], rewards[kept])

    def test(asked: Asked) -> float:
        ids = np.vstack([learner.query(asked.rows[i : i + 256], 1) for i in range(0, asked.wanted.size, 256)])
        return float(task.expected(asked.wanted, ids, is_late=True).mean())

    held = test(task.held)
    learner.insert(task.late_keys)
    return [held, test(task.late)]


def earned(tasks: dict[int, Task], learner: str, k: int, kind: str, n_queries: int | None = None) -> list[float]:
    """Return the results of :func:`run`, averaged over tasks of several seeds."""
    return mean_over(tasks, lambda seed: run(tasks[seed], LEARNERS[learner](), k, KINDS[kind], seed, n_queries))


TASKS = argument("--tasks", nargs="+", default=[""], metavar="WORD", help="tasks whose names contain one of these")


@commands.add(
    argument("--data", type=Path, metavar="FOLDER", help="see shared/labelled_sets.py; by default only made-up tasks"),
    TASKS,
    argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS)),
    argument("--k", type=int, default=5, help="number of memories shown for each query"),
    argument("--rewards", default="clean", choices=list(KINDS), help="kind of rewards"),
    argument("--seeds", nargs="+", type=int, default=[0, 1, 2]),
    argument("--queries", type=int, help="maximum number of queries in the stream"),
)
def stream(options: argparse.Namespace) -> None:
    """Stream queries through memories that learn from the rewards of the memories that they return.

    Prints for each task and learner the mean reward of the first result over seeds: for held-out queries, and for
    queries of memories that arrived after the stream.
    """
    rows = []
    for name, make in tasks_of(options.data, options.tasks).items():
        tasks = {seed: make(seed) for seed in options.seeds}
        how = options.k, options.rewards, options.queries
        means = [earned(tasks, learner, *how) for learner in options.learners]
        rows.append([name, *np.transpose(means).ravel()])
        print(rows[-1], file=sys.stderr, flush=True)
    print_table(["task", *options.learners, *(f"late: {name}" for name in options.learners)], rows)


@commands.add(
    DATA,
    argument("--learners", nargs="+", default=["MemoryStore", "Rocchio", "value per memory"], choices=list(LEARNERS)),
    argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="kinds of rewards"),
    argument("--k", nargs="+", type=int, default=[1, 3, 5], help="number of memories shown for each query"),
    argument("--seeds", nargs="+", type=int, default=[0, 1, 2]),
)
def kinds(options: argparse.Namespace) -> None:
    """Compare learners by the kinds of rewards that users give, on questions and answers of threads.

    The table has the mean reward of the first result for held-out queries, as if all rewards were clean.
    """
    tasks = {seed: tasks_of(options.data)["threads"](seed) for seed in options.seeds}

    def cell(kind: str, k: int) -> str:
        return ", ".join(f"{earned(tasks, learner, k, kind)[0]:.3f}" for learner in options.learners)

    print(f"static search: {earned(tasks, 'static', 1, 'clean')[0]:.3f}, whatever the rewards")
    rows = [[kind, *(cell(kind, k) for k in options.k)] for kind in options.kinds]
    print_table([", ".join(options.learners), *(f"k = {k}" for k in options.k)], rows)


@commands.add(
    DATA,
    TASKS,
    argument("--seeds", nargs="+", type=int, default=[0, 1]),
    argument("--queries", type=int, default=1500, help="maximum number of queries in the stream"),
)
def parts(options: argparse.Namespace) -> None:
    """Switch the parts of scores off one by one, and print how much less reward the first results earn.

    The columns are the mean and the largest loss over the tasks of ``stream``, for held-out queries and for queries of
    late memories, and the losses for some rewards of ``kinds``.
    """
    makers, names = tasks_of(options.data), list(tasks_of(options.data, options.tasks))
    cases = [(name, 5, "clean") for name in names] + [("threads", k, kind) for kind, k in OF_THREADS]
    tasks = {name: {seed: makers[name](seed) for seed in options.seeds} for name in {*names, "threads"}}

    def without(switched: list[str]) -> np.ndarray:
        is_off = np.isin(states.PART_NAMES, switched)
        weights, precision = np.where(is_off, 0.0, states.FIRST_WEIGHTS), np.where(is_off, 1e12, states.FIRST_PRECISION)
        with patch.multiple(states, FIRST_WEIGHTS=weights, FIRST_PRECISION=precision):  # rewards do not change them
            return np.array([earned(tasks[name], "MemoryStore", k, kind, options.queries) for name, k, kind in cases])

    places = [name for name in states.PART_NAMES if name.endswith(("place", "places"))]
    groups = {name: [name] for name in states.PART_NAMES if name not in ("constant", "similarity", *places)}
    full, rows = without([]), []
    for group, switched in (groups | {"places": places}).items():
        losses = full - without(switched)
        most = [f"{loss.mean():.3f}, {loss.max():.3f} ({names[loss.argmax()]})" for loss in losses[: len(names)].T]
        rows.append([group, *most, ", ".join(f"{loss:.3f}" for loss in losses[len(names) :, 0])])
        print(rows[-1], file=sys.stderr, flush=True)
    print_table(["without", "tasks", "late", ", ".join(f"{kind} {k}" for kind, k in OF_THREADS)], rows)


@commands.add(DATA, argument("--k", type=int, default=3), argument("--seeds", type=int, nargs="+", default=[0, 1]))
def eviction(options: argparse.Namespace) -> None:
    """Compare policies of eviction: a store has room for 30 % of the memories, and the others arrive during a stream.

    Tasks are those of ``stream``. The table has the mean expected reward of the first result in the last quarter.
    """
    rows = []
    for name, make in tasks_of(options.data).items():
        policies = {
            policy: np.mean([last_rewards(make(seed), policy, options.k, seed) for seed in options.seeds])
            for policy in ("least_useful", "least_recently_returned", "oldest")
        }
        rows.append([name, *policies.values()])
    print_table(["task", *policies], rows)


def last_rewards(task: Task, policy: str, k: int, seed: int, n_at_a_time: int = 20) -> float:
    """Return the mean expected reward of the first result in the last quarter of a stream."""
    rng, n, n_rows = np.random.default_rng(seed), task.keys.shape[0], task.stream.wanted.size
    order, room = rng.permutation(n), int(0.3 * n)
    store = MemoryStore(max_items=room, eviction=policy, random_state=0)
    store.add(order[:room].tolist(), task.keys[order[:room]])
    expected = []
    for start in range(0, n_rows, n_at_a_time):
        rows = slice(start, start + n_at_a_time)
        shares = np.array([start, min(start + n_at_a_time, n_rows)]) / n_rows
        if (new := order[slice(*(room + shares * (n - room)).astype(int))]).size:
            store.add(new.tolist(), task.keys[new])
        shown = store.query(task.stream.rows[rows], k).keys
        ids = np.where(shown == None, -1, shown).astype(np.int64)  # noqa: E711
        chances = task.expected(task.stream.wanted[rows], ids, is_late=2 * start >= n_rows)
        store.feedback(task.stream.rows[rows], shown, (rng.random(ids.shape) < chances).astype(float))
        expected.append(chances[:, 0].mean())
    return float(np.mean(expected[-len(expected) // 4 :]))


if __name__ == "__main__":
    commands.main()
