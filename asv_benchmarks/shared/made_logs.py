"""Classification as a bandit: features of classes, and policies that make logs."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from .labelled_sets import read_lines

SETS_OF_LOGS = ("clinc150", "wikipara1k", "omniglot")


def rows_of_classes(folder: Path, name: str, n_classes: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return the features of the rows of some classes in random order, sparse for texts, and their classes."""
    if name == "omniglot":
        with np.load(folder / "omniglot_background" / "hog.npz") as arrays:
            X, y = normalize(arrays["X"].astype(np.float64)), arrays["y"]
    else:
        rows = read_lines(folder / name / "train.jsonl.gz")
        X, y = np.array([row["text"] for row in rows], object), np.array([row["label"] for row in rows])
    kept = rng.permutation(np.flatnonzero(np.isin(y, rng.choice(np.unique(y), n_classes, replace=False))))
    X, y = X[kept], np.unique(y[kept], return_inverse=True)[1]
    return (X if name == "omniglot" else TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(X)), y


def logging_policies(X: Any, y: np.ndarray, n_learned: int) -> dict[str, np.ndarray]:
    """Return the probabilities of actions by policies that learned from a few of the first rows."""
    k = int(y.max()) + 1
    few, many = (np.concatenate([np.flatnonzero(y[:n_learned] == c)[:shots] for c in range(k)]) for shots in (2, 8))
    weak, good = (LogisticRegression(C=10.0).fit(X[rows], y[rows]).predict_proba(X) for rows in (few, many))
    sharp = weak**2 / (weak**2).sum(axis=1, keepdims=True)
    best, best_of_good = np.eye(k)[weak.argmax(axis=1)], np.eye(k)[good.argmax(axis=1)]
    policies = {"uniform": 0.0 * best, "epsilon 0.2": 0.8 * best, "softmax": 0.9 * sharp}
    policies |= {"good": 0.9 * best_of_good, "bad": 0.9 * np.roll(best, 1, axis=1)}
    return {name: P + (1.0 - P.sum(axis=1, keepdims=True)) / k for name, P in policies.items()}
