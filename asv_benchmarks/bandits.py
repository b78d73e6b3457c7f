"""Compare the policies of ``cmt_numba.bandits`` and measure their evaluation from logs."""

from shared.commands import DATA, Commands, argument  # before libraries that read the number of threads

# isort: split
import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t
from shared.labelled_sets import read_lines
from shared.made_logs import SETS_OF_LOGS, World, logging_policies, rows_of_classes, world_of
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.bandits import (
    UCB1,
    ArgmaxRegressor,
    Chosen,
    CMTBandit,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    Omniscient,
    SquareCB,
    WarmEpsilonGreedy,
    WarmUCB1,
)
from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate, replay

commands = Commands(__doc__)

N_INTENTS, N_COMPONENTS, EPSILON = 40, 64, 0.05


def read_intents(folder: Path, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return the requests of some intents in random order, and the intent of each."""
    rows = read_lines(folder / "clinc150" / "train.jsonl.gz")
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


class LeastMeanSquares:
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


OF_INTENTS = DATA, argument("--seeds", type=int, default=2, metavar="N")
FIFTHS = ["mean reward by fifths", "1", "2", "3", "4", "5"]


@commands.add(*OF_INTENTS)
def memories(options: argparse.Namespace) -> None:
    """Compare memories that begin with an example of each intent, and receive one reward per round.

    The rounds are those of ``intents``. A linear model for each intent in NumPy is the rival.
    """
    players: dict[str, Callable[[Any, int], Any]] = {
        "tree": Memory,
        "tree, ranking only": lambda examples, seed: Memory(examples, seed, scorer_loss="ranking"),
        "CMTRetriever": lambda examples, seed: Memory(examples, seed, retriever=True),
        "linear, NumPy": LeastMeanSquares,
    }
    table = []
    for name, make in players.items():
        fifths = []
        for seed in range(options.seeds):
            texts, wanted = read_intents(options.data, np.random.default_rng(seed))
            words = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
            first = np.unique(wanted, return_index=True)[1]
            rest = np.setdiff1d(np.arange(wanted.size), first)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the loss that cannot learn
                rewards, _ = simulate(make(words[first], seed), words[rest], wanted[rest])
            fifths.append([part.mean() for part in np.array_split(rewards, 5)])
        table.append([name, *(f"{value:.3f}" for value in np.mean(fifths, axis=0))])
        print(table[-1], flush=True)
    print(tabulate(table, headers=FIFTHS, disable_numparse=True))


@commands.add(*OF_INTENTS)
def intents(options: argparse.Namespace) -> None:
    """Compare policies on requests of 40 intents in random order, 4,800 rounds.

    Expects ``clinc150/train.jsonl.gz`` (https://github.com/clinc/oos-eval). The action is an intent, and the reward is
    1 if it is that of the request. Contexts are tf-idf vectors; linear policies get the first components of their
    singular value decomposition. Prints the mean reward of each fifth of the rounds, and microseconds of CPU time for a
    round.
    """
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
    for seed in range(options.seeds):
        texts, wanted = read_intents(options.data, np.random.default_rng(seed))
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
    print(tabulate(table, headers=[*FIFTHS, "us"], disable_numparse=True))


@commands.add()
def mabwiser(options: argparse.Namespace, n_rows: int = 2000, n_single: int = 300) -> None:
    """Compare LinUCB of MABWiser (https://github.com/fidelity/mabwiser) with ours on the same rewards.

    Prints, for several numbers of arms and features, whether both choose alike, and the CPU time to choose and to
    learn, row by row and in batches.
    """
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


SIZES = (1000, 31_102, 300_000)
N_ROUNDS, BATCH = 100_000, 100
MOST_OF_LINUCB = 1000  # actions, each of which has four matrices
MOST_OF_VOWPAL = 31_102  # actions, beyond which its slower two are left out


def read_packages(data: Path, n: int, n_rounds: int, rng: np.random.Generator) -> tuple[Any, Any, Any, list[str], list]:
    """Return keys of packages, contexts and the package of each; summaries, and the words of contexts."""
    summaries = [line["summary"] for line in read_lines(data / "packages" / "summaries.jsonl.gz")[:n]]
    words = TfidfVectorizer(sublinear_tf=True)
    keys = words.fit_transform(summaries)
    wanted = rng.integers(0, n, n_rounds)
    halves = [" ".join(rng.permutation(summaries[i].split())[::2]) for i in wanted]
    return keys, words.transform(halves), wanted, summaries, halves


OF_PACKAGES = (
    DATA,
    argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N", help="numbers of actions"),
)


@commands.add(*OF_PACKAGES)
def scale(options: argparse.Namespace, n_rounds: int = 5000, batch: int = 100) -> None:
    """Measure what a decision among 1,000, 31,102 and 300,000 actions costs.

    Actions are software packages (``packages/summaries.jsonl.gz``, a JSON object with a ``summary`` of some ten words
    in each line). Keys are tf-idf vectors of the summaries, and a context is half of the words of one; the reward is 1
    for its package. Prints microseconds of CPU time for a decision and for a reward, in batches of 100 and one by one,
    and the mean reward of the last half of the rounds.
    """
    table = []
    for n in options.sizes:
        keys, X, wanted, _, _ = read_packages(options.data, n, n_rounds, np.random.default_rng(0))
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


class CMTPlayer:
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


class ExploringTree:
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


class LinUCBOnComponents:
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


class VowpalPlayer:
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


@commands.add(
    *OF_PACKAGES,
    argument("--rounds", type=int, default=N_ROUNDS, metavar="N", help="of CMTBandit"),
)
def rivals(options: argparse.Namespace) -> None:
    """Compare ``CMTBandit`` over the actions of ``scale`` with bandits that look at all actions.

    ``CMTBandit`` has 100,000 rounds in batches of 100. Others have as much CPU time: a tree that explores with an
    epsilon, in batches too; LinUCB on the first 64 components of the singular value decomposition, where its matrices
    fit; and Vowpal Wabbit (the extra ``peers``) with an epsilon, SquareCB and its approximation for many actions, to
    which every round sends all actions. Each gets at least one round. Filling trees and decompositions are not counted.
    Prints the mean reward by fifths of the rounds, and how long all rounds would take at this pace.
    """
    n_rounds, sizes = options.rounds, options.sizes
    table = []
    for n in sizes:
        keys, X, wanted, summaries, halves = read_packages(options.data, n, n_rounds, np.random.default_rng(0))
        players: dict[str, Callable[[], Any]] = {
            "CMTBandit": lambda keys=keys, X=X: CMTPlayer(keys, X),
            "tree": lambda keys=keys, X=X: ExploringTree(keys, X),
            "LinUCB": lambda keys=keys, X=X: LinUCBOnComponents(keys, X),
            "VW, epsilon": lambda s=summaries, h=halves: VowpalPlayer(f"--epsilon {EPSILON}", s, h),
            "VW, SquareCB": lambda s=summaries, h=halves: VowpalPlayer("--squarecb", s, h),
            "VW, large": lambda s=summaries, h=halves: VowpalPlayer(
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
    headers = ["actions", "", "rounds", "us to act", "s for all", *map(str, range(1, 6)), "mean reward"]
    print(tabulate(table, headers=headers, disable_numparse=True, tablefmt="github"))


CAMPAIGNS = ("all", "men", "women")
TAU, THRESHOLD = 0.02, 3.0


def read_open_bandit(folder: Path, behaviour: str, campaign: str) -> Any:
    """Return the rows of a log."""
    import pandas

    return pandas.read_csv(folder / "openbandit" / behaviour / campaign / f"{campaign}.csv.gz", index_col=0)


def log_of(frame: Any, n_actions: int) -> Log:
    """Return a log whose contexts are indicators of the position and of the user's features."""
    import pandas

    users = pandas.get_dummies(frame[[name for name in frame.columns if name.startswith("user_feature")]])
    contexts = np.column_stack([pandas.get_dummies(frame["position"]), users]).astype(float)
    return Log(
        frame["item_id"].to_numpy(),
        frame["click"].to_numpy(),
        contexts,
        frame["propensity_score"].to_numpy(),
        allowed=np.arange(n_actions),
    )


def by_obp(log: Log, probabilities: np.ndarray, expected: np.ndarray, tau: float) -> dict[str, float]:
    """Return the estimates of Open Bandit Pipeline."""
    from obp import ope

    common: dict[str, Any] = {
        "reward": log.rewards,
        "action": log.actions,
        "pscore": np.maximum(log.propensities, tau),
        "action_dist": probabilities[:, :, None],
        "position": np.zeros(len(log), int),
    }
    model = {"estimated_rewards_by_reg_model": expected[:, :, None]}
    return {
        "ips": ope.InverseProbabilityWeighting().estimate_policy_value(**common),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common),
        "dm": ope.DirectMethod().estimate_policy_value(**common, **model),
        "dr": ope.DoublyRobust().estimate_policy_value(**common, **model),
        "sndr": ope.SelfNormalizedDoublyRobust().estimate_policy_value(**common, **model),
        "switch": _switch().estimate_policy_value(**(common | {"pscore": log.propensities}), **model),
    }


def _switch() -> Any:
    """Return the switch estimator, whose threshold has had two names."""
    from obp import ope

    try:
        return ope.SwitchDoublyRobust(lambda_=THRESHOLD)
    except TypeError:
        return ope.SwitchDoublyRobust(tau=THRESHOLD)


def policies_to_judge(frame: Any, other: Any, n_actions: int) -> dict[str, np.ndarray]:
    """Return the probabilities of the policies to evaluate."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(frame), n_actions))
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    counts = np.ones((4, n_actions))
    np.add.at(counts, (other["position"].to_numpy(), other["item_id"].to_numpy()), 1)
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    return {"softmax": softmax, "other log": frequencies[frame["position"].to_numpy()]}


@commands.add(DATA)
def estimators(options: argparse.Namespace) -> None:
    """Compare the estimators of ``cmt_numba.bandits.evaluation`` with Open Bandit Pipeline on the Open Bandit Dataset.

    The folder holds ``openbandit/{random,bts}/{all,men,women}/*.csv.gz``, the sample of the dataset that comes with the
    package ``obp`` (https://github.com/st-tech/zr-obp), which is needed too, with PyTorch. For each log, policies are
    evaluated that differ from the one that made it: a random softmax for each context, and the other log's frequencies
    of actions by position. Prints the value by each estimator and the largest difference between both libraries, and
    fails if that is above 1e-9.
    """
    table, worst = [], 0.0
    for behaviour, others in (("random", "bts"), ("bts", "random")):
        for campaign in CAMPAIGNS:
            frame, other = (
                read_open_bandit(options.data, behaviour, campaign),
                read_open_bandit(options.data, others, campaign),
            )
            n_actions = 1 + int(max(frame["item_id"].max(), other["item_id"].max()))
            log = log_of(frame, n_actions)
            expected = np.clip(estimate_rewards(log), 0.0, 1.0)
            for name, probabilities in policies_to_judge(frame, other, n_actions).items():
                for tau in (0.0, TAU):
                    ours = evaluate(probabilities, log, expected=expected, tau=tau, threshold=THRESHOLD)
                    theirs = by_obp(log, probabilities, expected, tau)
                    values = {key: estimate.value for key, estimate in ours.estimates.items()}
                    worst = max(worst, *(abs(values[key] - theirs[key]) for key in values))
                    table.append([f"{behaviour}/{campaign}", name, tau, *(f"{value:.6f}" for value in values.values())])
    print(tabulate(table, headers=["log", "policy", "tau", "ips", "snips", "dm", "dr", "sndr", "switch"]))
    print(f"largest difference: {worst:.2e}")
    if worst > 1e-9:
        raise SystemExit("the estimators differ")


@commands.add(DATA, argument("--seeds", type=int, default=3, metavar="N"), argument("--classes", type=int, default=77))
def logs(options: argparse.Namespace) -> None:
    """Compare policies learned from logs, by the share of right actions in rows that are not in the log.

    Classes are actions, and the reward is 1 for the right one. A fifth of the rows is held out. Five policies make a
    log of the others: they choose uniformly, explore a weak classifier by an epsilon or by softmax, explore a good
    classifier, or avoid what the weak one prefers. Rivals are the log's own argmax; one ridge regression for each
    action, without and with weights; and ``LinearSVC`` and ``CMTClassifier`` on the rewarded rows. Prints means over
    seeds with standard errors, and the CPU time of a fit.
    """
    table = []
    for name in SETS_OF_LOGS:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            X, y = rows_of_classes(options.data, name, options.classes, rng)
            n = y.size * 4 // 5
            for policy, P in logging_policies(X, y, n).items():
                actions = (rng.random(n)[:, None] > P[:n].cumsum(axis=1)).sum(axis=1).clip(max=P.shape[1] - 1)
                propensities, rewards = P[np.arange(n), actions], (actions == y[:n]).astype(float)
                log = Log(actions, rewards, X[:n], propensities, np.arange(P.shape[1]))
                good = np.flatnonzero(rewards)
                chosen = {"argmax of the log": P[n:].argmax(axis=1)}
                start = time.process_time()
                learned = ArgmaxRegressor(random_state=0).fit(log)
                seconds = time.process_time() - start
                chosen["ArgmaxRegressor"] = learned.act(X[n:]).actions
                for label, tau in (("ridges", 1.0), ("ridges, weighted", 0.01)):
                    ridges = ArgmaxRegressor(method="regression", tau=tau, random_state=0).fit(log)
                    chosen[label] = ridges.act(X[n:]).actions
                for classifier in (LinearSVC(), CMTClassifier(random_state=0)):
                    label = type(classifier).__name__
                    chosen[label] = classifier.fit(X[good], actions[good]).predict(X[n:])
                right = {label: float(np.mean(own == y[n:])) for label, own in chosen.items()}
                found.setdefault(policy, []).append(right | {"s": seconds})
        for policy, runs in found.items():
            columns = {label: np.array([run[label] for run in runs]) for label in runs[0]}
            seconds = columns.pop("s").mean()
            cells = [f"{v.mean():.3f} ± {v.std() / np.sqrt(v.size):.3f}" for v in columns.values()]
            table.append([name, policy, *cells, f"{seconds:.1f}"])
            print(table[-1], flush=True)
    print(tabulate(table, headers=["set", "log", *columns, "s"], disable_numparse=True, tablefmt="github"))


KINDS_OF_LOGS = (*SETS_OF_LOGS, "many actions")
CLIPPED, METHODS = 0.05, ("betting", "bernstein", "chernoff", "bootstrap", "normal")


def measure_coverage(world: World, n_logs: int, n_rows: int) -> dict[tuple[str, str], list[tuple[float, float, float]]]:
    """Return the estimates of all logs with their intervals, by estimator and kind of interval."""
    rng, found = np.random.default_rng(0), {}
    for _ in range(n_logs):
        rows = rng.integers(0, len(world.target), n_rows)
        logging, target = world.logging[rows], world.target[rows]
        actions = (rng.random(n_rows)[:, None] > logging.cumsum(axis=1)).sum(axis=1).clip(max=target.shape[1] - 1)
        rewards = (rng.random(n_rows) < world.rewards[rows, actions]).astype(float)
        propensities = logging[np.arange(n_rows), actions]
        log = Log(actions, rewards, world.X[rows], propensities, np.arange(target.shape[1]))
        expected = np.clip(estimate_rewards(log), 0.0, 1.0)
        estimates = dict(evaluate(target, log, expected=expected).estimates)
        estimates["switch, 10"] = evaluate(target, log, expected=expected, threshold=10.0).estimates["switch"]
        clipped = evaluate(target, log, expected=expected, tau=CLIPPED).estimates
        estimates |= {f"{name}, tau": clipped[name] for name in ("ips", "dr")}
        for name, estimate in estimates.items():
            for method in METHODS:
                if estimate.has_interval(method):
                    interval = estimate.interval(method, n_resamples=200)
                    found.setdefault((name, method), []).append((estimate.value, *interval))
    return found


@commands.add(
    DATA,
    argument("--logs", type=int, default=500, metavar="N"),
    argument("--rows", type=int, default=1000, metavar="N"),
    argument("--kinds", nargs="+", choices=KINDS_OF_LOGS, default=list(KINDS_OF_LOGS)),
)
def coverage(options: argparse.Namespace) -> None:
    """Measure errors and interval coverage of off-policy estimators on logs whose value is known.

    Classification becomes a bandit: the action is a class, and the reward is 1 if it is the right one, so that the
    value of every policy is known. From clinc150 (intents of requests), wikipara1k (articles of paragraphs) and
    Omniglot (characters of images), 30 classes each, as dense vectors of 24 components, many logs are made: rows are
    drawn with replacement, and actions by a policy that is a mixture of a weak classifier and uniform choice. The
    policy to evaluate is a better classifier. A fourth kind has 200 actions and rare rewards that are drawn at random.
    Prints for each estimator the bias and the root mean squared error over all logs, and for each kind of 95 %
    intervals how many held the value, and their mean width.
    """
    for kind in options.kinds:
        world = world_of(options.data, kind)
        value = float((world.target * world.rewards).sum(axis=1).mean())
        table: dict[str, list[str]] = {}
        for (name, method), cells in measure_coverage(world, options.logs, options.rows).items():
            values, low, high = np.array(cells).T
            errors = values - value
            row = table.setdefault(name, [f"{errors.mean():+.4f}", f"{np.sqrt(np.mean(errors**2)):.4f}"])
            row += [""] * (METHODS.index(method) + 2 - len(row))
            row.append(f"{np.mean((low <= value) & (value <= high)):.0%}, {np.mean(high - low):.2f}")
        print(f"{kind}: value {value:.4f}, {options.logs} logs of {options.rows:,} rows")
        rows = [[name, *cells] for name, cells in table.items()]
        print(tabulate(rows, headers=["estimator", "bias", "rmse", *METHODS], disable_numparse=True, tablefmt="github"))
        print(flush=True)


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


def mean_with_interval(values: np.ndarray) -> str:
    """Return the mean over logs, which are the first axis, and half of the width of its interval."""
    n = values.shape[0]
    width = float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return f"{values.mean():.2f} ± {width:.2f}"


@commands.add(
    argument("--events", type=int, default=40_000, metavar="N", help="of a log"),
    argument("--logs", type=int, default=4, metavar="N"),
    argument("--shares", type=float, nargs="+", default=[1.0, 0.3, 0.2, 0.1, 0.05, 0.01], metavar="S"),
)
def replays(options: argparse.Namespace) -> None:
    """Replay made logs of pools of articles with policies that learn.

    The logs are as in section 5 of Li et al. (2010), whose own is not public: pools of 20 articles, of which some are
    replaced now and then, shown at random to users whose clicks depend on the features of both. Policies learn from a
    share of the rewards. Prints the click-through rate by replay relative to that of random choice, and the difference
    from that of the hybrid LinUCB on the same logs, both as the mean of several logs with its 95 % interval by
    Student's t.
    """
    n, shares, start = options.events, options.shares, time.process_time()
    relative = np.zeros((options.logs, len(POLICIES), len(shares)))
    hindsight = np.zeros(options.logs)
    for seed in range(options.logs):
        log, features = made_log(n, seed)
        chance = log.rewards.mean()
        hindsight[seed] = omniscient(log) / chance
        for i, make in enumerate(POLICIES.values()):
            for j, share in enumerate(shares):
                relative[seed, i, j] = replay(Sparing(make(log, features, seed), share), log).value / chance
        print(f"log {seed}: {time.process_time() - start:.0f} s of CPU time", flush=True)
    headers = ["share of rewards", *(f"{share:.0%}" for share in shares)]
    rows = [
        [name, *(mean_with_interval(relative[:, i, j]) for j in range(len(shares)))] for i, name in enumerate(POLICIES)
    ] + [["Omniscient", mean_with_interval(hindsight)]]
    print(f"click-through rate relative to random choice, {n:,} events, {options.logs} logs")
    print(tabulate(rows, headers=headers, disable_numparse=True, tablefmt="github"))
    difference = relative - relative[:, [list(POLICIES).index(REFERENCE)]]
    rows = [
        [name, *(mean_with_interval(difference[:, i, j]) for j in range(len(shares)))]
        for i, name in enumerate(POLICIES)
    ]
    print(f"difference from {REFERENCE}")
    print(tabulate(rows, headers=headers, disable_numparse=True, tablefmt="github"))


main = commands.main

if __name__ == "__main__":
    main()
