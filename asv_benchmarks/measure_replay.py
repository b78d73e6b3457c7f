"""Replay made logs of pools of articles with policies that learn.

    python asv_benchmarks/measure_replay.py

The logs are as in section 5 of Li et al. (2010), whose own is not public: pools of 20 articles, of which some are
replaced now and then, shown at random to users whose clicks depend on the features of both. Policies learn from a share
of the rewards. Prints the click-through rate by replay relative to that of random choice, and the difference from that
of the hybrid LinUCB on the same logs, both as the mean of several logs with its 95 % interval by Student's t.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import t
from tabulate import tabulate

from cmt_numba.bandits import (
    UCB1,
    EpsilonGreedy,
    HybridLinUCB,
    LinUCB,
    Omniscient,
    SquareCB,
    WarmEpsilonGreedy,
    WarmUCB1,
)
from cmt_numba.bandits.evaluation import Log, replay

POOL, N_POOLS, N_FEATURES, N_REPLACED = 20, 10, 6, 2
REFERENCE = "HybridLinUCB"

Maker = Callable[[Log, np.ndarray, int], Any]
POLICIES: dict[str, Maker] = {
    "EpsilonGreedy": lambda log, features, seed: EpsilonGreedy(epsilon=0.1, random_state=seed),
    "UCB1": lambda log, features, seed: UCB1(scale=0.1, random_state=seed),
    "WarmEpsilonGreedy": lambda log, features, seed: warmed(
        WarmEpsilonGreedy(epsilon=0.1, random_state=seed), log, features
    ),
    "WarmUCB1": lambda log, features, seed: warmed(WarmUCB1(scale=0.1, random_state=seed), log, features),
    "EpsilonGreedy, contextual": lambda log, features, seed: EpsilonGreedy(
        epsilon=0.1, contextual=True, random_state=seed
    ),
    "LinUCB": lambda log, features, seed: LinUCB(alpha=0.2, random_state=seed),
    REFERENCE: lambda log, features, seed: HybridLinUCB(alpha=0.2, action_features=features, random_state=seed),
    "SquareCB": lambda log, features, seed: SquareCB(gamma=50, random_state=seed),
}


class Sparing:
    """A policy that learns from a share of the rewards only."""

    def __init__(self, policy: Any, share: float) -> None:
        self.policy, self.share, self.rng = policy, share, np.random.default_rng(17)

    def act(self, contexts: Any, actions: Any) -> Any:
        """Choose as the policy does."""
        return self.policy.act(contexts, actions)

    def learn(self, *columns: Any) -> None:
        """Learn, or not."""
        if self.rng.random() < self.share:
            self.policy.learn(*columns)


def warmed(policy: Any, log: Log, features: np.ndarray) -> Any:
    """Return a policy that was trained on the first tenth of the events."""
    return policy.warm_up(log.take(slice(0, len(log) // 10)), features)


def made_log(n: int, seed: int) -> tuple[Log, np.ndarray]:
    """Return a log of uniform choices from pools that change, and the features of all articles."""
    rng = np.random.default_rng(seed)
    every = max(1, n // N_POOLS)
    articles = rng.dirichlet(np.full(N_FEATURES - 1, 0.15), POOL + N_REPLACED * N_POOLS)
    features = np.column_stack([articles, np.ones(articles.shape[0])])
    users = np.column_stack([rng.dirichlet(np.full(N_FEATURES - 1, 0.15), n), np.ones(n)])
    taste = np.zeros((N_FEATURES, N_FEATURES))
    taste[:-1, :-1] = rng.normal(size=(N_FEATURES - 1, N_FEATURES - 1)) * 2.0
    appeal = rng.normal(size=features.shape[0]) * 0.3
    oldest = np.minimum(np.arange(n) // every, N_POOLS) * N_REPLACED
    allowed = oldest[:, None] + np.arange(POOL)
    actions = allowed[np.arange(n), rng.integers(0, POOL, n)]
    logits = np.einsum("nd,de,ne->n", users, taste, features[actions]) + appeal[actions] - 3.5
    clicks = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(float)
    return Log(actions, clicks, users, allowed=allowed), features


def omniscient(log: Log) -> float:
    """Return the value of choosing the article that is best in hindsight, whoever the user is."""
    policy = Omniscient(random_state=0).learn(log.contexts, log.actions, log.rewards)
    return replay(policy, log, learn=False).value


def interval(values: np.ndarray) -> str:
    """Return the mean over logs, which are the first axis, and half of the width of its interval."""
    n = values.shape[0]
    width = float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return f"{values.mean():.2f} ± {width:.2f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=40_000, metavar="N", help="of a log")
    parser.add_argument("--logs", type=int, default=4, metavar="N")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 0.3, 0.2, 0.1, 0.05, 0.01], metavar="S")
    arguments = parser.parse_args()
    n, shares, start = arguments.events, arguments.shares, time.process_time()
    relative = np.zeros((arguments.logs, len(POLICIES), len(shares)))
    hindsight = np.zeros(arguments.logs)
    for seed in range(arguments.logs):
        log, features = made_log(n, seed)
        chance = log.rewards.mean()
        hindsight[seed] = omniscient(log) / chance
        for i, make in enumerate(POLICIES.values()):
            for j, share in enumerate(shares):
                relative[seed, i, j] = replay(Sparing(make(log, features, seed), share), log).value / chance
        print(f"log {seed}: {time.process_time() - start:.0f} s of CPU time", flush=True)
    headers = ["share of rewards", *(f"{share:.0%}" for share in shares)]
    rows = [[name, *(interval(relative[:, i, j]) for j in range(len(shares)))] for i, name in enumerate(POLICIES)] + [
        ["Omniscient", interval(hindsight)]
    ]
    print(f"click-through rate relative to random choice, {n:,} events, {arguments.logs} logs")
    print(tabulate(rows, headers=headers, disable_numparse=True, tablefmt="github"))
    difference = relative - relative[:, [list(POLICIES).index(REFERENCE)]]
    rows = [[name, *(interval(difference[:, i, j]) for j in range(len(shares)))] for i, name in enumerate(POLICIES)]
    print(f"difference from {REFERENCE}")
    print(tabulate(rows, headers=headers, disable_numparse=True, tablefmt="github"))


if __name__ == "__main__":
    main()
