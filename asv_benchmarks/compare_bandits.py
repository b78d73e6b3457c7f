"""Compare the policies of ``cmt_numba.bandits`` with each other and with MABWiser.

    python asv_benchmarks/compare_bandits.py intents --data path/to/folder
    python asv_benchmarks/compare_bandits.py memories --data path/to/folder
    python asv_benchmarks/compare_bandits.py mabwiser

- intents: the requests of 40 intents of clinc150 (``clinc150/train.jsonl.gz``, https://github.com/clinc/oos-eval) in
  random order, 4,800 rounds. The action is an intent, and the reward is 1 if it is that of the request. Contexts are
  tf-idf vectors; linear policies get the first components of their singular value decomposition. Prints the mean reward
  of each fifth of the rounds, and microseconds of CPU time for a round.
- memories: the same rounds, where a tree and ``CMTRetriever`` begin with one example of each intent and are told a
  single reward a round, beside a linear model for each intent in NumPy.
- mabwiser: LinUCB of MABWiser (https://github.com/fidelity/mabwiser) and ours on the same rewards, for several numbers
  of arms and features: whether both choose alike, and the CPU time to choose and to learn, row by row and in batches.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import gzip
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from tabulate import tabulate

from cmt_numba import CMTRetriever, ContextualMemoryTree
from cmt_numba.bandits import (
    Chosen,
    CMTBandit,
    EpsilonGreedy,
    LinearThompson,
    LinUCB,
    SquareCB,
)

N_INTENTS, N_COMPONENTS, EPSILON = 40, 64, 0.05


# Intents


def read_intents(folder: Path, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return the requests of some intents in random order, and the intent of each."""
    with gzip.open(folder / "clinc150" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    labels = sorted({row["label"] for row in rows})
    number = {labels[i]: j for j, i in enumerate(rng.choice(len(labels), N_INTENTS, replace=False))}
    rows = [row for row in rows if row["label"] in number]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    return [row["text"] for row in rows], np.array([number[row["label"]] for row in rows])


def simulate(policy: Any, X: Any, wanted: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the reward of each round, and the CPU time of a round in microseconds."""
    delayed = hasattr(policy, "reward")
    rewards, start = np.zeros(wanted.size), 0.0
    for i in range(wanted.size):
        if i == 1:
            start = time.process_time()  # everything is compiled
        chosen = policy.act(X[i : i + 1])
        rewards[i] = chosen.actions[0] == wanted[i]
        if delayed:
            policy.reward(chosen.ids, rewards[i : i + 1])
        else:
            policy.learn(X[i : i + 1], chosen.actions, rewards[i : i + 1], chosen.propensities)
    return rewards, (time.process_time() - start) / wanted.size * 1e6


class Memory:
    """A memory that begins with an example of each intent, and is told a single reward a round."""

    def __init__(self, examples: Any, seed: int, *, retriever: bool = False, **options: Any) -> None:
        self.is_retriever = retriever
        if retriever:
            self.memory: Any = CMTRetriever(random_state=seed).fit(examples, list(range(N_INTENTS)))
        else:
            self.memory = ContextualMemoryTree(random_state=seed, **options)
            self.memory.insert(examples)

    def act(self, contexts: Any) -> Chosen:
        """Return the memory that is found, whose number is the intent."""
        self.hits = self.memory.query(contexts, epsilon=EPSILON)
        return Chosen(self.hits.ids[:, 0], self.hits.propensities[:, 0])

    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        """Learn what it was worth."""
        if self.is_retriever:
            self.memory.feedback(contexts, actions, rewards)
        else:
            self.memory.update(contexts, self.hits, rewards)


class LinearModels:
    """A linear model of the reward of each intent, learned by steps of least mean squares in NumPy."""

    def __init__(self, examples: Any, seed: int) -> None:
        self.weights, self.rng = examples.toarray(), np.random.default_rng(seed)

    def act(self, contexts: Any) -> Chosen:
        """Return the intent of the largest product."""
        best = int(np.argmax(contexts @ self.weights.T))
        if self.rng.random() < EPSILON:
            best = int(self.rng.integers(N_INTENTS))
        return Chosen(np.array([best]), np.ones(1))

    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        """Learn what it was worth."""
        self.weights[actions[0]] += 0.3 * (rewards[0] - self.weights[actions[0]] @ contexts.toarray()[0]) * contexts


def compare_memories(data: Path, seeds: int) -> None:
    """Print how memories that begin with an example of each intent learn from single rewards."""
    players: dict[str, Callable[[Any, int], Any]] = {
        "tree": Memory,
        "tree, ranking only": lambda examples, seed: Memory(examples, seed, scorer_loss="ranking"),
        "CMTRetriever": lambda examples, seed: Memory(examples, seed, retriever=True),
        "linear, NumPy": LinearModels,
    }
    table = []
    for name, make in players.items():
        fifths = []
        for seed in range(seeds):
            texts, wanted = read_intents(data, np.random.default_rng(seed))
            words = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
            first = np.unique(wanted, return_index=True)[1]
            rest = np.setdiff1d(np.arange(wanted.size), first)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the loss that cannot learn
                rewards, _ = simulate(make(words[first], seed), words[rest], wanted[rest])
            fifths.append([part.mean() for part in np.array_split(rewards, 5)])
        table.append([name, *(f"{value:.3f}" for value in np.mean(fifths, axis=0))])
        print(table[-1], flush=True)
    print(tabulate(table, headers=["mean reward by fifths", "1", "2", "3", "4", "5"], disable_numparse=True))


def compare_intents(data: Path, seeds: int) -> None:
    """Print how policies learn intents."""
    policies: dict[str, Callable[[int], Any]] = {
        "CMTBandit": lambda seed: CMTBandit(N_INTENTS, random_state=seed),
        "CMTBandit, Thompson": lambda seed: CMTBandit(N_INTENTS, exploration="thompson", beta=0.1, random_state=seed),
        "LinUCB": lambda seed: LinUCB(N_INTENTS, alpha=0.3, random_state=seed),
        "LinearThompson": lambda seed: LinearThompson(N_INTENTS, scale=0.1, random_state=seed),
        "SquareCB": lambda seed: SquareCB(N_INTENTS, gamma=50, random_state=seed),
        "EpsilonGreedy, contextual": lambda seed: EpsilonGreedy(N_INTENTS, contextual=True, random_state=seed),
        "EpsilonGreedy": lambda seed: EpsilonGreedy(N_INTENTS, random_state=seed),
    }
    found: dict[str, list[tuple[np.ndarray, float]]] = {name: [] for name in policies}
    for seed in range(seeds):
        texts, wanted = read_intents(data, np.random.default_rng(seed))
        words = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
        components = normalize(TruncatedSVD(N_COMPONENTS, random_state=0).fit_transform(words))
        for name, make in policies.items():
            X = words if name.startswith("CMT") else components
            rewards, micros = simulate(make(seed), X, wanted)
            found[name].append((np.array([part.mean() for part in np.array_split(rewards, 5)]), micros))
    table = [
        [
            name,
            *(f"{value:.3f}" for value in np.mean([fifths for fifths, _ in runs], axis=0)),
            f"{min(us for _, us in runs):.0f}",
        ]
        for name, runs in found.items()
    ]
    print(tabulate(table, headers=["mean reward by fifths", "1", "2", "3", "4", "5", "us"], disable_numparse=True))


# MABWiser


def compare_mabwiser(n_rows: int = 2000, n_single: int = 300) -> None:
    """Print whether both libraries choose alike, and how many times as long MABWiser takes."""
    table = []
    for n_actions, n_features in ((3, 5), (10, 20), (20, 6), (100, 20), (100, 100)):
        same, ratios, micros = measure_mabwiser(n_actions, n_features, n_rows, n_single)
        pairs = [f"{ours:.1f} ({ratio:.1f}x)" for ours, ratio in zip(micros, ratios, strict=True)]
        table.append([n_actions, n_features, f"{same:.1%}", *pairs])
        print(table[-1], flush=True)
    headers = ["arms", "features", "same choices", "choose one row", "learn one row", "choose a batch", "learn a batch"]
    print(f"us of CPU time for a row, and how many times as long MABWiser takes; batches of {n_rows}")
    print(tabulate(table, headers=headers, disable_numparse=True, tablefmt="github"))


def measure_mabwiser(
    n_actions: int, n_features: int, n_rows: int, n_single: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the share of equal choices, the ratios of the times, and our times for a row in microseconds."""
    from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    X, asked = rng.normal(size=(2, n_rows, n_features))
    actions, rewards = rng.integers(0, n_actions, n_rows), (rng.random(n_rows) < 0.3).astype(float)
    theirs = MAB(list(range(n_actions)), LearningPolicy.LinUCB(alpha=0.7, l2_lambda=1.0))
    theirs.fit(actions, rewards, X)
    ours = LinUCB(n_actions, alpha=0.7, random_state=0).learn(X, actions, rewards)
    same = float(np.mean(np.array(theirs.predict(asked)) == ours.act(asked).actions))
    ours.learn(X[:1], actions[:1], rewards[:1])  # everything is compiled
    calls: list[tuple[int, Callable[[Any], Any], Callable[[Any], Any]]] = [
        (n_single, lambda i: theirs.predict(asked[[i]]), lambda i: ours.act(asked[[i]])),
        (
            n_single,
            lambda i: theirs.partial_fit(actions[[i]], rewards[[i]], X[[i]]),
            lambda i: ours.learn(X[[i]], actions[[i]], rewards[[i]]),
        ),
        (1, lambda i: theirs.predict(asked), lambda i: ours.act(asked)),
        (1, lambda i: theirs.partial_fit(actions, rewards, X), lambda i: ours.learn(X, actions, rewards)),
    ]
    taken = []
    for n_calls, *both in calls:
        times = np.zeros((5, 2))
        for repetition in range(5):
            for j, call in enumerate(both):
                start = time.process_time()
                for i in range(n_calls):
                    call(i)
                times[repetition, j] = time.process_time() - start
        taken.append(times.min(axis=0) / (n_rows if n_calls == 1 else n_calls) * 1e6)
    them, us = np.array(taken).T
    return same, them / us, us


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("intents", "memories", "mabwiser"))
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the data of intents and memories")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    arguments = parser.parse_args()
    if arguments.part in ("intents", "memories") and arguments.data is None:
        parser.error(f"{arguments.part} needs --data")
    if arguments.part == "intents":
        compare_intents(arguments.data, arguments.seeds)
    elif arguments.part == "memories":
        compare_memories(arguments.data, arguments.seeds)
    else:
        compare_mabwiser()


if __name__ == "__main__":
    main()
