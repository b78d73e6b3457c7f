"""Compare memories that learn from rewards which memory to return."""

from shared.commands import DATA, Commands, argument, print_table, timed  # before other libraries

# isort: split
import argparse
from pathlib import Path
from typing import Any

import numpy as np
from shared.reward_kinds import KINDS, RewardKind
from shared.reward_learners import LEARNERS, ONE_AT_A_TIME, Store
from shared.reward_tasks import Asked, Task, tasks_of

from cmt_numba import MemoryStore

BATCH = 10
WINDOW = 300  # number of queries over which rewards are averaged
HEADERS = [
    "learner",
    "held out",
    "best of 5",
    "late",
    "held out, after",
    "loss",
    "rewards for +0.05",
    "ms",
    "claimed gain",
]

commands = Commands(__doc__)


class Outcome:
    """What a learner earned on a task: figures, and the expected reward of each query of the stream."""

    def __init__(self, figures: list[float], earned: np.ndarray, milliseconds: float, claim: float) -> None:
        self.figures, self.earned, self.milliseconds, self.claim = figures, earned, milliseconds, claim

    def loss(self, other: "Outcome") -> float:
        """Return how much less than another learner this one earned in the worst fifth of the stream."""
        fifths = [[part.mean() for part in np.array_split(each.earned, 5)] for each in (other, self)]
        return max(0.0, float(np.max(np.subtract(*fifths))))

    def lead(self, other: "Outcome", least: float) -> float:
        """Return the number of queries until this learner earns more than another by ``least``; NaN if never."""
        gains = np.convolve(self.earned - other.earned, np.ones(WINDOW) / WINDOW, "valid")
        return float(np.argmax(gains >= least) + WINDOW) if (gains >= least).any() else np.nan


def run(task: Task, learner: Any, k: int, kind: RewardKind, seed: int, n_queries: int | None) -> Outcome:
    """Stream queries through a learner, which receives the rewards of the memories that it returned."""
    rng, n = np.random.default_rng(1000 + seed), min(n_queries or task.stream.wanted.size, task.stream.wanted.size)
    learner.start(task.keys)
    earned, spent = np.zeros(n), 0.0
    for first in range(0, n, BATCH):
        rows = slice(first, min(first + BATCH, n))
        Q, wanted = task.stream.rows[rows], task.stream.wanted[rows]
        ids, asking = timed(learner.query, Q, k)
        expected = task.expected(wanted, ids, is_late=first >= n // 2)
        earned[rows] = expected[:, 0]
        rewards = kind.rewards((rng.random(expected.shape) < expected).astype(float), rng)
        kept = rng.random(len(ids)) < kind.share
        spent += asking
        if kept.any():
            spent += timed(learner.learn, Q[kept], ids[kept], rewards[kept])[1]

    def test(asked: Asked) -> np.ndarray:
        ids = np.vstack([learner.query(asked.rows[i : i + 256], 5) for i in range(0, asked.wanted.size, 256)])
        return task.expected(asked.wanted, ids, is_late=True)

    held = test(task.held)
    learner.insert(task.late_keys)
    figures = [held[:, 0].mean(), held.max(axis=1).mean(), test(task.late)[:, 0].mean(), test(task.held)[:, 0].mean()]
    learned = learner.store.learned() if isinstance(learner, Store) else None
    return Outcome(figures, earned, 1e3 * spent / n, np.nan if learned is None else learned.gain)


@commands.add(
    argument("--data", type=Path, metavar="FOLDER", help="see shared/labelled_sets.py; by default only made-up tasks"),
    argument("--tasks", nargs="+", metavar="WORD", help="only tasks whose names contain one of these words"),
    argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS)),
    argument("--k", nargs="+", type=int, default=[1, 5], help="number of memories shown for each query"),
    argument("--rewards", nargs="+", default=["clean", "flipped 0.1"], choices=list(KINDS), help="kinds of rewards"),
    argument("--seeds", nargs="+", type=int, default=[0, 1, 2]),
    argument("--queries", type=int, help="maximum number of queries in the stream"),
)
def stream(options: argparse.Namespace) -> None:
    """Stream queries through memories that learn from the rewards of the memories that they return.

    For each task, prints means over seeds: the reward of the first result for held-out queries, the best reward of five
    results, the reward of queries for memories that arrived after the stream, and of held-out queries after those have
    arrived; the largest loss against static search in any fifth of the stream; the number of queries after which the
    reward is 0.05 above that of static search; the milliseconds of CPU time of a query with its rewards, in batches of
    10; and the gain that the store claims. Some learners need vowpalwabbit.
    """
    for name, make in tasks_of(options.data).items():
        if options.tasks and not any(word in name for word in options.tasks):
            continue
        tasks = [make(seed) for seed in options.seeds]
        for k in options.k:
            for kind in options.rewards:
                print_table(HEADERS, _compared(tasks, k, KINDS[kind], options), f"{name}, k = {k}, {kind}")


def _compared(tasks: list[Task], k: int, kind: RewardKind, options: argparse.Namespace) -> list[list[Any]]:
    """Return a row of the table for each learner."""
    table: list[list[Any]] = []
    static: list[Outcome] = []
    for name in dict.fromkeys(["static", *options.learners]):
        shown = 1 if name in ONE_AT_A_TIME else k
        seeds = zip(options.seeds, tasks, strict=True)
        outcomes = [run(task, LEARNERS[name](), shown, kind, seed, options.queries) for seed, task in seeds]
        static = static or outcomes
        pairs = list(zip(outcomes, static, strict=True))
        loss, lead = max(one.loss(other) for one, other in pairs), [one.lead(other, 0.05) for one, other in pairs]
        milliseconds = np.mean([one.milliseconds for one in outcomes])
        claim = np.mean([one.claim for one in outcomes])
        table.append(
            [name, *np.mean([one.figures for one in outcomes], axis=0), loss, np.mean(lead), milliseconds, claim]
        )
    return table


@commands.add(
    DATA,
    argument("--learners", nargs="+", default=["MemoryStore", "Rocchio", "value per memory"], choices=list(LEARNERS)),
    argument("--k", nargs="+", type=int, default=[1, 3, 5], help="number of memories shown for each query"),
    argument("--seeds", nargs="+", type=int, default=[0, 1, 2]),
)
def kinds(options: argparse.Namespace) -> None:
    """Compare learners by the kinds of rewards that users give, on questions and answers of threads.

    The table has the mean reward of the first result for held-out queries, as if all rewards were clean.
    """
    tasks = {seed: tasks_of(options.data)["threads"](seed) for seed in options.seeds}

    def held_out(learner: str, kind: RewardKind, k: int) -> float:
        runs = [run(task, LEARNERS[learner](), k, kind, seed, None) for seed, task in tasks.items()]
        return float(np.mean([outcome.figures[0] for outcome in runs]))

    print(f"static search: {held_out('static', KINDS['clean'], 1):.3f}, whatever the rewards")
    rows = [
        [name, *(" / ".join(f"{held_out(learner, kind, k):.3f}" for learner in options.learners) for k in options.k)]
        for name, kind in KINDS.items()
    ]
    print_table([" / ".join(options.learners), *(f"k = {k}" for k in options.k)], rows)


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


main = commands.main

if __name__ == "__main__":
    main()
