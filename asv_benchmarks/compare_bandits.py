"""Compare the policies of ``cmt_numba.bandits`` with each other, with MABWiser and with Vowpal Wabbit.

    python asv_benchmarks/compare_bandits.py intents --data path/to/folder
    python asv_benchmarks/compare_bandits.py memories --data path/to/folder
    python asv_benchmarks/compare_bandits.py mabwiser
    python asv_benchmarks/compare_bandits.py scale --data path/to/folder
    python asv_benchmarks/compare_bandits.py vowpal --data path/to/folder

- intents: the requests of 40 intents of clinc150 (``clinc150/train.jsonl.gz``, https://github.com/clinc/oos-eval) in
  random order, 4,800 rounds. The action is an intent, and the reward is 1 if it is that of the request. Contexts are
  tf-idf vectors; linear policies get the first components of their singular value decomposition. Prints the mean reward
  of each fifth of the rounds, and microseconds of CPU time for a round.
- memories: the same rounds, where a tree and ``CMTRetriever`` begin with one example of each intent and are told a
  single reward a round, beside a linear model for each intent in NumPy.
- mabwiser: LinUCB of MABWiser (https://github.com/fidelity/mabwiser) and ours on the same rewards: whether both choose
  alike, and microseconds of CPU time to choose and to learn one row.
- scale: ``CMTBandit`` over 1,000, 31,102 and 300,000 software packages (``packages/summaries.jsonl.gz``, a JSON object
  with a ``summary`` of some ten words in each line). Keys are tf-idf vectors of the summaries, and a context is half of
  the words of one; the reward is 1 for its package. Prints microseconds of CPU time for a decision and for a reward, in
  batches of 100 and one by one, and the mean reward of the last half.
- vowpal: the same rounds one by one, for the same CPU time, by ``CMTBandit`` and by Vowpal Wabbit (the extra
  ``peers``), with an epsilon of 0.05, SquareCB and its approximation for many actions. Filling trees is not counted.
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
SIZES = (1000, 31_102, 300_000)


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


def compare_mabwiser(n_rows: int = 2000, n_actions: int = 10, n_features: int = 20) -> None:
    """Print whether both libraries choose alike, and how long they take."""
    from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    X, actions, rewards = (
        rng.normal(size=(n_rows, n_features)),
        rng.integers(0, n_actions, n_rows),
        (rng.random(n_rows) < 0.3).astype(float),
    )
    asked = rng.normal(size=(500, n_features))
    theirs = MAB(list(range(n_actions)), LearningPolicy.LinUCB(alpha=0.7, l2_lambda=1.0))
    theirs.fit(actions, rewards, X)
    ours = LinUCB(n_actions, alpha=0.7, random_state=0).learn(X, actions, rewards)
    alike = np.mean(np.array(theirs.predict(asked)) == ours.act(asked).actions)
    print(f"the same choices in {alike:.1%} of {asked.shape[0]} rows")
    table = []
    for name, choose, learn in (
        ("MABWiser", theirs.predict, lambda i: theirs.partial_fit(actions[[i]], rewards[[i]], X[[i]])),
        ("ours", ours.act, lambda i: ours.learn(X[[i]], actions[[i]], rewards[[i]])),
    ):
        micros = []
        for call in (lambda i, choose=choose: choose(asked[[i]]), learn):
            start = time.process_time()
            for i in range(500):
                call(i)
            micros.append((time.process_time() - start) / 500 * 1e6)
        start = time.process_time()
        choose(asked)
        micros.append((time.process_time() - start) / 500 * 1e6)
        start = time.process_time()
        if name == "ours":
            ours.learn(X, actions, rewards)
        else:
            theirs.partial_fit(actions, rewards, X)
        micros.append((time.process_time() - start) / n_rows * 1e6)
        table.append([name, *micros])
    table.append(["ratio", *(a / b for a, b in zip(table[0][1:], table[1][1:], strict=True))])
    headers = ["us", "choose one row", "learn one row", "choose a row of 500", f"learn a row of {n_rows}"]
    print(tabulate(table, headers=headers, floatfmt=".1f"))


# Scale


def read_packages(data: Path, n: int, n_rounds: int, rng: np.random.Generator) -> tuple[Any, Any, Any, list[str], list]:
    """Return keys of packages, contexts and the package of each; summaries, and the words of contexts."""
    with gzip.open(data / "packages" / "summaries.jsonl.gz", "rt", encoding="utf-8") as file:
        summaries = [json.loads(line)["summary"] for line, _ in zip(file, range(n), strict=False)]
    words = TfidfVectorizer(sublinear_tf=True)
    keys = words.fit_transform(summaries)
    wanted = rng.integers(0, n, n_rounds)
    halves = [" ".join(rng.permutation(summaries[i].split())[::2]) for i in wanted]
    return keys, words.transform(halves), wanted, summaries, halves


def compare_scale(data: Path, n_rounds: int = 5000, batch: int = 100) -> None:
    """Print what a decision among many actions costs, in batches and one by one."""
    table = []
    for n in SIZES:
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
            x, start = X[i : i + 1], time.process_time()
            bandit.act(x)
            single.append(time.process_time() - start)
        micros = [*(times / (n_rounds - batch) * 1e6), np.median(single) * 1e6]
        table.append([f"{n:,}", *micros, f"{rewards[n_rounds // 2 :].mean():.3f}"])
    headers = ["actions", "us to act", "us to learn", "us to act, one row", "mean reward"]
    print(tabulate(table, headers=headers, floatfmt=".0f", disable_numparse=[0, 4]))


# Vowpal Wabbit


class Vowpal:
    """Vowpal Wabbit's exploration over actions with features, each of which it is sent in every round."""

    def __init__(self, options: str, summaries: list[str]) -> None:
        import vowpalwabbit

        self.vw = vowpalwabbit.Workspace(f"--cb_explore_adf {options} -q sa -b 22 --quiet")
        self.lines = ["|a " + _plain(text) for text in summaries]
        self.rng = np.random.default_rng(0)

    def choose(self, i: int, text: str) -> int:
        """Return the action drawn."""
        self.shared = "shared |s " + _plain(text)
        self.probabilities = np.maximum(self.vw.predict([self.shared, *self.lines]), 0.0)
        self.chosen = int(self.rng.choice(len(self.lines), p=self.probabilities / self.probabilities.sum()))
        return self.chosen

    def learn(self, reward: float) -> None:
        """Learn the reward of the action chosen last."""
        lines, at = list(self.lines), self.chosen
        lines[at] = f"0:{-reward}:{self.probabilities[at]} {lines[at]}"
        self.vw.learn([self.shared, *lines])


class Ours:
    """``CMTBandit``, one row at a time."""

    def __init__(self, keys: Any, X: Any) -> None:
        bandit = CMTBandit(n_trees=1, n_candidates=32, epsilon=0.05, random_state=0)
        self.X, self.bandit = X, bandit.add_actions(np.arange(keys.shape[0]), keys)

    def choose(self, i: int, text: str) -> int:
        """Return the action drawn."""
        self.decision = self.bandit.act(self.X[i : i + 1])
        return int(self.decision.actions[0])

    def learn(self, reward: float) -> None:
        """Learn the reward of the action chosen last."""
        self.bandit.reward(self.decision.ids, [reward])


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text.lower())


def compare_vowpal(data: Path, seconds: float, n_rounds: int = 20_000) -> None:
    """Print what Vowpal Wabbit and ours earn in equal time."""
    table = []
    for n in SIZES:
        keys, X, wanted, summaries, halves = read_packages(data, n, n_rounds, np.random.default_rng(0))
        players: dict[str, Callable[[], Any]] = {
            "CMTBandit": lambda keys=keys, X=X: Ours(keys, X),
            "VW, epsilon": lambda s=summaries: Vowpal("--epsilon 0.05", s),
            "VW, SquareCB": lambda s=summaries: Vowpal("--squarecb", s),
            "VW, large": lambda s=summaries: Vowpal("--epsilon 0.05 --large_action_space --max_actions 20", s),
        }
        for name, make in players.items():
            player, rewards, choosing = make(), [], []
            player.choose(0, halves[0])
            player.learn(0.0)  # everything is compiled
            start = time.process_time()
            while len(rewards) < n_rounds and time.process_time() - start < seconds:
                i, began = len(rewards), time.process_time()
                action = player.choose(i, halves[i])
                choosing.append(time.process_time() - began)
                rewards.append(float(action == wanted[i]))
                player.learn(rewards[-1])
            last = np.mean(rewards[len(rewards) // 2 :])
            table.append([f"{n:,}", name, len(rewards), f"{np.median(choosing) * 1e6:,.0f}", f"{last:.4f}"])
            print(table[-1], flush=True)
    headers = ["actions", "", "rounds", "us to act", "mean reward of the last half"]
    print(tabulate(table, headers=headers, disable_numparse=True))


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("intents", "memories", "mabwiser", "scale", "vowpal"))
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the data of intents and scale")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="of CPU time for each bandit of vowpal"
    )
    arguments = parser.parse_args()
    if arguments.part in ("intents", "memories", "scale", "vowpal") and arguments.data is None:
        parser.error(f"{arguments.part} needs --data")
    if arguments.part == "intents":
        compare_intents(arguments.data, arguments.seeds)
    elif arguments.part == "memories":
        compare_memories(arguments.data, arguments.seeds)
    elif arguments.part == "scale":
        compare_scale(arguments.data)
    elif arguments.part == "vowpal":
        compare_vowpal(arguments.data, arguments.seconds)
    else:
        compare_mabwiser()


if __name__ == "__main__":
    main()
