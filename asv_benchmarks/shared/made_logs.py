"""Classification as a bandit problem: features of classes, and policies that make logs."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from .labelled_sets import read_lines
from .vectors import components

SETS_OF_LOGS = ("clinc150", "wikipara1k", "omniglot")


def rows_of_classes(folder: Path, name: str, n_classes: int | None, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return the features of the rows of some classes in random order, sparse for texts, and their classes.

    The classes are the largest ones if ``n_classes`` is None.
    """
    if name == "omniglot":
        with np.load(folder / "omniglot_background" / "hog.npz") as arrays:
            X, y = normalize(arrays["X"].astype(np.float64)), arrays["y"]
    else:
        rows = read_lines(folder / name / "train.jsonl.gz")
        X, y = np.array([row["text"] for row in rows], object), np.array([row["label"] for row in rows])
    labels, counts = np.unique(y, return_counts=True)
    largest = labels[np.argsort(-counts, kind="stable")[:N_CLASSES]]
    chosen = largest if n_classes is None else rng.choice(labels, n_classes, replace=False)
    kept = rng.permutation(np.flatnonzero(np.isin(y, chosen)))
    X, y = X[kept], np.unique(y[kept], return_inverse=True)[1]
    return (X if name == "omniglot" else TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(X)), y


def logging_policies(X: Any, y: np.ndarray, n_learned: int) -> dict[str, np.ndarray]:
    """Return the action probabilities of policies that learned from the first few rows."""
    k = int(y.max()) + 1
    few, many = (np.concatenate([np.flatnonzero(y[:n_learned] == c)[:shots] for c in range(k)]) for shots in (2, 8))
    weak, good = (LogisticRegression(C=10.0).fit(X[rows], y[rows]).predict_proba(X) for rows in (few, many))
    best, best_of_good = np.eye(k)[weak.argmax(axis=1)], np.eye(k)[good.argmax(axis=1)]
    policies = {"epsilon 0.2": 0.8 * best, "good": 0.9 * best_of_good, "bad": 0.9 * np.roll(best, 1, axis=1)}
    return {name: P + (1.0 - P.sum(axis=1, keepdims=True)) / k for name, P in policies.items()}


class World(NamedTuple):
    """Contexts with the expected rewards of all actions, and two policies."""

    X: np.ndarray
    rewards: np.ndarray  # (n, actions)
    logging: np.ndarray  # (n, actions): probabilities
    target: np.ndarray


N_CLASSES, N_COMPONENTS, N_ACTIONS = 30, 24, 200


def world_of(folder: Path, kind: str) -> World:
    """Return the largest classes of a set as actions, or many actions with rare rewards."""
    rng = np.random.default_rng(0)
    if kind not in SETS_OF_LOGS:
        X, tastes = rng.normal(size=(5000, 8)), rng.normal(size=(8, N_ACTIONS))
        scores = X @ tastes / 3.0
        rewards = 0.15 / (1.0 + np.exp(-scores))
        noise = rng.normal(size=scores.shape)
        weak, good = softmax(scores + noise, axis=1), softmax(3.0 * scores + noise, axis=1)
        return World(X, rewards, 0.8 * weak + 0.2 / N_ACTIONS, good)
    X, y = rows_of_classes(folder, kind, None, rng)
    X = components(X, N_COMPONENTS)
    few, many = (np.concatenate([np.flatnonzero(y == c)[:shots] for c in range(N_CLASSES)]) for shots in (2, 8))
    weak = LogisticRegression(C=3.0, max_iter=500).fit(X[few], y[few]).predict_proba(X)
    good = LogisticRegression(C=30.0, max_iter=500).fit(X[many], y[many]).predict_proba(X)
    return World(X, np.eye(N_CLASSES)[y], 0.7 * weak + 0.3 / N_CLASSES, 0.95 * good + 0.05 / N_CLASSES)
