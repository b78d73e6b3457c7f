"""Compare bandits over 1,000, 31,102 and 300,000 actions: ``CMTBandit`` and those that look at all actions.

    python asv_benchmarks/compare_many_actions.py scale --data path/to/folder
    python asv_benchmarks/compare_many_actions.py rivals --data path/to/folder --plot rewards.png

Actions are software packages (``packages/summaries.jsonl.gz``, a JSON object with a ``summary`` of some ten words in
each line). Keys are tf-idf vectors of the summaries, and a context is half of the words of one; the reward is 1 for its
package.

- scale: microseconds of CPU time for a decision and for a reward, in batches of 100 and one by one, and the mean reward
  of the last half of 5,000 rounds.
- rivals: ``CMTBandit`` has 100,000 rounds in batches of 100. Others have as much CPU time: a tree that explores with an
  epsilon, in batches too; LinUCB on the first 64 components of the singular value decomposition, where its matrices
  fit; and Vowpal Wabbit (the extra ``peers``) with an epsilon, SquareCB and its approximation for many actions, to
  which every round sends all actions. Each is given one round at least. Filling trees and decompositions are not
  counted. Prints the mean reward by fifths of the rounds, and how long all rounds would take at this pace; plots the
  mean reward over CPU time.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree
from cmt_numba.bandits import CMTBandit, LinUCB

SIZES = (1000, 31_102, 300_000)
N_ROUNDS, BATCH, EPSILON, N_COMPONENTS = 100_000, 100, 0.05, 64
MOST_OF_LINUCB = 1000  # actions, each of which has four matrices
MOST_OF_VOWPAL = 31_102  # actions, beyond which its slower two are left out


def read_packages(data: Path, n: int, n_rounds: int, rng: np.random.Generator) -> tuple[Any, Any, Any, list[str], list]:
    """Return keys of packages, contexts and the package of each; summaries, and the words of contexts."""
    with gzip.open(data / "packages" / "summaries.jsonl.gz", "rt", encoding="utf-8") as file:
        summaries = [json.loads(line)["summary"] for line, _ in zip(file, range(n), strict=False)]
    words = TfidfVectorizer(sublinear_tf=True)
    keys = words.fit_transform(summaries)
    wanted = rng.integers(0, n, n_rounds)
    halves = [" ".join(rng.permutation(summaries[i].split())[::2]) for i in wanted]
    return keys, words.transform(halves), wanted, summaries, halves


def compare_scale(data: Path, sizes: list[int], n_rounds: int = 5000, batch: int = 100) -> None:
    """Print what a decision among many actions costs, in batches and one by one."""
    table = []
    for n in sizes:
        keys, X, wanted, _, _ = read_packages(data, n, n_rounds, np.random.default_rng(0))
        bandit = CMTBandit(n_trees=1, n_candidates=32, random_state=0).add_actions(np.arange(n), keys)
        rewards, times, single = np.zeros(n_rounds), np.zeros(2), []
        for first in range(0, n_rounds, batch):
            span, start = slice(first, first + batch), time.process_time()
            decisions = bandit.act(X[span])
            acted = time.process_time()
            rewards[span] = decisions.actions == wanted[span]
            bandit.reward(decisions.ids, rewards[span])
            if first > 0:  # everything is compiled
                times += acted - start, time.process_time() - acted
        for i in range(min(1000, n_rounds)):
            x, start = X[i : i + 1], time.perf_counter()
            bandit.act(x)
            single.append(time.perf_counter() - start)
        micros = [*(times / (n_rounds - batch) * 1e6), np.percentile(single, 5) * 1e6]
        table.append([f"{n:,}", *micros, f"{rewards[n_rounds // 2 :].mean():.3f}"])
    headers = ["actions", "us to act", "us to learn", "us to act, one row (5th percentile)", "mean reward"]
    print(tabulate(table, headers=headers, floatfmt=".0f", disable_numparse=[0, 4]))


# Rivals


class Ours:
    """``CMTBandit``."""

    batch = BATCH

    def __init__(self, keys: Any, X: Any) -> None:
        bandit = CMTBandit(n_trees=1, n_candidates=32, epsilon=EPSILON, random_state=0)
        self.X, self.bandit = X, bandit.add_actions(np.arange(keys.shape[0]), keys)

    def choose(self, span: slice) -> np.ndarray:
        """Return the actions chosen in some rounds."""
        self.decisions = self.bandit.act(self.X[span])
        return self.decisions.actions

    def learn(self, rewards: np.ndarray) -> None:
        """Learn their rewards."""
        self.bandit.reward(self.decisions.ids, rewards)


class Tree:
    """A tree over the keys that explores by itself."""

    batch = BATCH

    def __init__(self, keys: Any, X: Any) -> None:
        self.X, self.tree = X, ContextualMemoryTree(n_trees=1, random_state=0)
        self.tree.insert(keys)

    def choose(self, span: slice) -> np.ndarray:
        """Return the memories found in some rounds, whose numbers are those of the actions."""
        self.span, self.hits = span, self.tree.query(self.X[span], epsilon=EPSILON)
        return self.hits.ids[:, 0]

    def learn(self, rewards: np.ndarray) -> None:
        """Learn their rewards."""
        self.tree.update(self.X[self.span], self.hits, rewards)


class Linear:
    """LinUCB over all actions, on components of the contexts."""

    batch = BATCH

    def __init__(self, keys: Any, X: Any) -> None:
        self.X = normalize(TruncatedSVD(N_COMPONENTS, random_state=0).fit(keys).transform(X))
        self.policy = LinUCB(keys.shape[0], alpha=0.3, random_state=0)

    def choose(self, span: slice) -> np.ndarray:
        """Return the actions chosen in some rounds."""
        self.span, self.chosen = span, self.policy.act(self.X[span])
        return self.chosen.actions

    def learn(self, rewards: np.ndarray) -> None:
        """Learn their rewards."""
        self.policy.learn(self.X[self.span], self.chosen.actions, rewards, self.chosen.propensities)


class Vowpal:
    """Vowpal Wabbit's exploration over actions with features, each of which it is sent in every round."""

    batch = 1

    def __init__(self, options: str, summaries: list[str], halves: list[str]) -> None:
        import vowpalwabbit

        self.vw = vowpalwabbit.Workspace(f"--cb_explore_adf {options} -q sa -b 22 --quiet")
        self.lines = ["|a " + _plain(text) for text in summaries]
        self.halves, self.rng = halves, np.random.default_rng(0)

    def choose(self, span: slice) -> np.ndarray:
        """Return the action drawn in one round."""
        self.shared = "shared |s " + _plain(self.halves[span.start])
        self.probabilities = np.maximum(self.vw.predict([self.shared, *self.lines]), 0.0)
        self.chosen = int(self.rng.choice(len(self.lines), p=self.probabilities / self.probabilities.sum()))
        return np.array([self.chosen])

    def learn(self, rewards: np.ndarray) -> None:
        """Learn its reward."""
        lines, at = list(self.lines), self.chosen
        lines[at] = f"0:{-rewards[0]}:{self.probabilities[at]} {lines[at]}"
        self.vw.learn([self.shared, *lines])


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text.lower())


def play(player: Any, wanted: np.ndarray, seconds: float, least: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return rewards, the CPU time at the end of each batch in seconds, and that of choosing for a round."""
    n, rewards, times, choosing = 0, np.zeros(wanted.size), [], 0.0
    start = time.process_time()
    while n < wanted.size and (n < least or time.process_time() - start < seconds):
        span, began = slice(n, n + player.batch), time.process_time()
        actions = player.choose(span)
        choosing += time.process_time() - began
        rewards[span] = actions == wanted[span]
        player.learn(rewards[span])
        n += actions.size
        times.append(time.process_time() - start)
    return rewards[:n], np.array(times), choosing / n


def compare_rivals(data: Path, sizes: list[int], n_rounds: int, plot: Path | None) -> None:
    """Print, and plot, what bandits earn in equal time."""
    table, curves = [], {}
    for n in sizes:
        keys, X, wanted, summaries, halves = read_packages(data, n, n_rounds, np.random.default_rng(0))
        players: dict[str, Callable[[], Any]] = {
            "CMTBandit": lambda keys=keys, X=X: Ours(keys, X),
            "tree": lambda keys=keys, X=X: Tree(keys, X),
            "LinUCB": lambda keys=keys, X=X: Linear(keys, X),
            "VW, epsilon": lambda s=summaries, h=halves: Vowpal(f"--epsilon {EPSILON}", s, h),
            "VW, SquareCB": lambda s=summaries, h=halves: Vowpal("--squarecb", s, h),
            "VW, large": lambda s=summaries, h=halves: Vowpal(
                f"--epsilon {EPSILON} --large_action_space --max_actions 20", s, h
            ),
        }
        seconds = np.inf
        for name, make in players.items():
            most = {"LinUCB": MOST_OF_LINUCB, "VW, SquareCB": MOST_OF_VOWPAL, "VW, large": MOST_OF_VOWPAL}
            if n > most.get(name, n):
                continue
            player = make()
            if n == sizes[0] and not name.startswith("VW"):
                play(player, wanted[: 2 * BATCH], np.inf, 0)  # everything is compiled
                player = make()
            rewards, times, choosing = play(player, wanted, seconds, 1)
            seconds = min(seconds, float(times[-1]))
            whole = times[-1] / rewards.size * n_rounds
            fifths = [f"{part.mean():.3f}" if part.size else "" for part in np.array_split(rewards, 5)]
            table.append([f"{n:,}", name, f"{rewards.size:,}", f"{choosing * 1e6:,.0f}", f"{whole:,.0f}", *fifths])
            table[-1].append(f"{rewards.mean():.3f}")
            print(table[-1], flush=True)
            curves[n, name] = times, np.cumsum(rewards)[player.batch - 1 :: player.batch]
    headers = ["actions", "", "rounds", "us to act", "s for all", *map(str, range(1, 6)), "mean reward"]
    print(tabulate(table, headers=headers, disable_numparse=True, tablefmt="github"))
    if plot is not None:
        draw_curves(curves, plot)


def draw_curves(curves: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]], plot: Path) -> None:
    """Plot mean rewards over CPU time."""
    from matplotlib import pyplot as plt

    sizes = sorted({n for n, _ in curves})
    figure, axes = plt.subplots(1, len(sizes), figsize=(4 * len(sizes), 3.5), sharey=True, squeeze=False)
    for (n, name), (times, earned) in curves.items():
        batch = BATCH if name in ("CMTBandit", "tree", "LinUCB") else 1
        axis = axes[0, sizes.index(n)]
        axis.plot(times[: earned.size], earned / np.arange(batch, (earned.size + 1) * batch, batch), label=name)
        axis.set(title=f"{n:,} actions", xlabel="seconds of CPU time", xscale="log")
    axes[0, 0].set_ylabel("mean reward so far")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(plot)


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("scale", "rivals"))
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N", help="numbers of actions")
    parser.add_argument("--rounds", type=int, default=N_ROUNDS, metavar="N", help="of CMTBandit beside its rivals")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="of what rivals earn, .png or .svg")
    arguments = parser.parse_args()
    if arguments.part == "scale":
        compare_scale(arguments.data, arguments.sizes)
    else:
        compare_rivals(arguments.data, arguments.sizes, arguments.rounds, arguments.plot)


if __name__ == "__main__":
    main()
