"""Tasks for bandits, and the players that ``bandits.py compare`` runs on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from cmt_numba.bandits import CMTBandit, LinUCB

from .labelled_sets import read_lines
from .vectors import components

EPSILON, N_COMPONENTS = 0.05, 64


class Task(NamedTuple):
    """Contexts in the order of rounds, and the expected reward of each action."""

    X: Any
    n_actions: int
    keys: Any  # None if actions have no keys
    wanted: np.ndarray | None  # the only action that is rewarded, or None
    chances: np.ndarray | None  # probability of a reward of 1 for each action, or None
    batch: int
    searchable: bool  # whether keys have the same features as contexts

    def rewards(self, span: slice, actions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the rewards of actions in some rounds."""
        if self.wanted is not None:
            return (actions == self.wanted[span]).astype(float)
        assert self.chances is not None
        return (rng.random(actions.size) < self.chances[np.arange(span.start, span.stop), actions]).astype(float)


def labelled(folder: Path, name: str, n_actions: int, n_rounds: int, rng: np.random.Generator) -> Task:
    """Return texts of some labels, which are the actions: random labels, or those with the most texts."""
    rows = read_lines(folder / name / "train.jsonl.gz")
    labels, counts = np.unique([row["label"] for row in rows], return_counts=True)
    few = rng.permutation(labels.size)[:n_actions] if name == "clinc150" else np.argsort(-counts)[:n_actions]
    number = {str(label): i for i, label in enumerate(labels[few])}
    rows = [row for row in rows if row["label"] in number]
    rows = [rows[i] for i in rng.permutation(len(rows))[:n_rounds]]
    X = TfidfVectorizer(sublinear_tf=True).fit_transform([row["text"] for row in rows])
    return Task(X, n_actions, None, np.array([number[row["label"]] for row in rows]), None, 1, False)


def keyed(folder: Path, name: str, rng: np.random.Generator) -> Task:
    """Return contexts that describe one of many actions in other words than the action's key, in two passes."""
    if name == "flickr8k":
        images = [row["captions"] for row in read_lines(folder / name / "images.jsonl.gz")[:5540]]
        keys, others = [captions[0] for captions in images], [captions[1:] for captions in images]
    elif name == "packages":
        keys = [row["summary"] for row in read_lines(folder / name / "summaries.jsonl.gz")[:5000]]
        others = [[" ".join(rng.permutation(key.split())[::2]) for _ in range(4)] for key in keys]
    else:
        verses = [row["text"] for row in read_lines(folder / name / "verses.jsonl.gz")]
        verses = [text for text in verses if all(text.get(part) for part in ("KJV", "BBE", "YLT"))]
        verses = [verses[i] for i in rng.permutation(len(verses))[:5540]]
        keys = [text["KJV"] for text in verses]
        others = [[" ".join(rng.permutation(text[part].split())[::3]) for part in ("BBE", "YLT")] for text in verses]
    words = TfidfVectorizer(sublinear_tf=True).fit(keys)
    wanted = np.repeat(np.arange(len(keys)), [len(texts) for texts in others])
    order = rng.permutation(wanted.size)
    X = words.transform([text for texts in others for text in texts])[np.tile(order, 2)]
    return Task(X, len(keys), words.transform(keys), np.tile(wanted[order], 2), None, 100, True)


def bilinear(n_actions: int, same: bool, rng: np.random.Generator, n_rounds: int = 20_000, d: int = 20) -> Task:
    """Return rewards of a logistic function of ``x' M y``, where ``M`` is the identity if spaces are the ``same``.

    Keys of another space have a further feature, which is constant, because keys and contexts with the same number of
    features are assumed to have the same features.
    """
    X, Y = (normalize(rng.normal(size=(n, d))) for n in (n_rounds, n_actions))
    products = X @ (np.eye(d) if same else rng.normal(size=(d, d))) @ Y.T
    chances = 1 / (1 + np.exp(4 - 2.4 * products / products.std()))
    keys = Y if same else np.hstack([Y, np.ones((n_actions, 1))])
    return Task(X, n_actions, keys, None, chances.astype(np.float32), 100, same)


TASKS: dict[str, Callable[[Path, np.random.Generator], Task]] = {
    "clinc150, 77 intents": lambda folder, rng: labelled(folder, "clinc150", 77, 10_000, rng),
    "clinc150, 150 intents": lambda folder, rng: labelled(folder, "clinc150", 150, 10_000, rng),
    "wikipara1k, 77 articles": lambda folder, rng: labelled(folder, "wikipara1k", 77, 10_000, rng),
    "packages": lambda folder, rng: keyed(folder, "packages", rng),
    "flickr8k": lambda folder, rng: keyed(folder, "flickr8k", rng),
    "bible": lambda folder, rng: keyed(folder, "bible", rng),
    "two spaces, 1,000": lambda folder, rng: bilinear(1000, False, rng),
    "two spaces, 30,000": lambda folder, rng: bilinear(30_000, False, rng, 5000),
    "one space, 1,000": lambda folder, rng: bilinear(1000, True, rng),
}


class Ours:
    """``CMTBandit`` with its defaults."""

    def __init__(self, task: Task, seed: int) -> None:
        self.X, self.bandit = task.X, CMTBandit(random_state=seed).add_actions(np.arange(task.n_actions), task.keys)

    def choose(self, span: slice) -> np.ndarray:
        """Return the actions of some rounds."""
        self.decisions = self.bandit.act(self.X[span])
        return self.decisions.actions

    def learn(self, rewards: np.ndarray) -> None:
        """Learn the rewards of some rounds."""
        self.bandit.reward(self.decisions.ids, rewards)


class StaticSearch:
    """Choose the action with the most similar key, whatever the rewards."""

    def __init__(self, task: Task, seed: int) -> None:
        self.X, self.keys = task.X, task.keys.T

    def choose(self, span: slice) -> np.ndarray:
        """Return the actions of some rounds."""
        return np.asarray((self.X[span] @ self.keys).argmax(axis=1)).ravel()

    def learn(self, rewards: np.ndarray) -> None:
        """Learn nothing."""


class DiagonalUCB:
    """A linear model of each action with a variance for each weight, in NumPy."""

    def __init__(self, task: Task, seed: int) -> None:
        self.X, self.ridge = task.X, 0.1
        self.weights, self.squares = np.zeros((2, task.n_actions, task.X.shape[1]), np.float32)

    def choose(self, span: slice) -> np.ndarray:
        """Return the action of one round."""
        row = self.X[span]
        self.at, self.x = row.indices, row.data
        self.variances = (self.x**2 / (self.ridge + self.squares[:, self.at])).sum(axis=1)
        self.means = self.weights[:, self.at] @ self.x
        self.best = int((self.means + 0.15 * np.sqrt(self.variances)).argmax())
        return np.array([self.best])

    def learn(self, rewards: np.ndarray) -> None:
        """Learn the reward of the round."""
        a, step = self.best, (rewards[0] - self.means[self.best]) / (1 + self.variances[self.best])
        self.weights[a, self.at] += step * self.x / (self.ridge + self.squares[a, self.at])
        self.squares[a, self.at] += self.x**2


class LinearUCB:
    """``LinUCB`` on components of sparse contexts."""

    def __init__(self, task: Task, seed: int) -> None:
        sparse = not isinstance(task.X, np.ndarray)
        self.X = components(task.X, N_COMPONENTS) if sparse else task.X
        self.policy = LinUCB(task.n_actions, alpha=0.3, random_state=seed)

    def choose(self, span: slice) -> np.ndarray:
        """Return the actions of some rounds."""
        self.span, self.actions = span, self.policy.act(self.X[span]).actions
        return self.actions

    def learn(self, rewards: np.ndarray) -> None:
        """Learn the rewards of some rounds."""
        self.policy.learn(self.X[self.span], self.actions, rewards)


class Vowpal:
    """Vowpal Wabbit's contextual bandit. Each action is an indicator, crossed with the features of the context."""

    def __init__(self, task: Task, seed: int) -> None:
        import vowpalwabbit

        options = f"--cb_explore_adf --epsilon {EPSILON} --cb_type mtr -q sa -b 22 --quiet --random_seed {seed}"
        self.vw = vowpalwabbit.Workspace(options)
        self.X, self.rng = task.X, np.random.default_rng(seed)
        self.lines = [f"|a a{i}" for i in range(task.n_actions)]

    def choose(self, span: slice) -> np.ndarray:
        """Return the action of one round."""
        row = self.X[span]
        pairs = zip(row.indices.tolist(), row.data.tolist(), strict=True)
        self.shared = "shared |s " + " ".join(f"{i}:{x:.4f}" for i, x in pairs)
        self.probabilities = np.maximum(self.vw.predict([self.shared, *self.lines]), 0.0)
        self.best = int(self.rng.choice(len(self.lines), p=self.probabilities / self.probabilities.sum()))
        return np.array([self.best])

    def learn(self, rewards: np.ndarray) -> None:
        """Learn the reward of the round, as a cost."""
        lines = list(self.lines)
        lines[self.best] = f"0:{-rewards[0]}:{self.probabilities[self.best]} {lines[self.best]}"
        self.vw.learn([self.shared, *lines])


def players_of(task: Task) -> dict[str, Callable[[Task, int], Any]]:
    """Return the players that can play a task."""
    players: dict[str, Callable[[Task, int], Any]] = {"CMTBandit": Ours}
    if task.searchable:
        players["static search"] = StaticSearch
    if task.n_actions <= 1000 or isinstance(task.X, np.ndarray):
        players["LinUCB"] = LinearUCB
    if task.keys is None:
        players |= {"diagonal UCB, NumPy": DiagonalUCB, "Vowpal Wabbit": Vowpal}
    return players
