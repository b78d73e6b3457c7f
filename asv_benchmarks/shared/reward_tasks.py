"""Tasks in which rewards teach what similarity does not know.

A task has memories with keys, a stream of queries, held-out queries, and memories that arrive late, with queries of
their own. The reward of returning memory ``m`` for a query that wants label ``y`` is 1 with probability ``worth[m]`` if
``labels[m] == y``, and otherwise 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from .labelled_sets import read_lines
from .vectors import components

N_HELD, N_STREAM = 1500, 4000
FORMS = ("dense", "sparse")


class Asked(NamedTuple):
    """Queries, and the label that each wants."""

    rows: Any
    wanted: np.ndarray


class Task(NamedTuple):
    """A task. Late memories follow the others in ``labels``, ``later`` and ``worth``."""

    keys: Any
    late_keys: Any
    labels: np.ndarray
    later: np.ndarray  # the labels in the second half of the stream and afterwards
    worth: np.ndarray
    stream: Asked
    held: Asked
    late: Asked

    def expected(self, wanted: np.ndarray, ids: np.ndarray, *, is_late: bool) -> np.ndarray:
        """Return the expected reward of each returned memory; 0 for the id -1."""
        labels = self.later if is_late else self.labels
        return np.where(ids >= 0, (labels[ids] == wanted[:, None]) * self.worth[ids], 0.0)


def vectors(texts: list[str], form: str) -> Any:
    """Return rows of tf-idf ("sparse") or their 128 strongest components ("dense")."""
    rows = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", dtype=np.float32).fit_transform(texts)
    if form == "sparse":
        return rows.tocsr()
    return components(rows, 128)


def clicks(
    data: Path, seed: int, form: str, *, n_each: int = 3, worths: tuple[float, ...] = (1.0,), flipped: float = 0.0
) -> Task:
    """Return the texts of ``clinc150``: ``n_each`` of each intent are articles, the others users' questions.

    In the second half of the stream, the articles of a share ``flipped`` of the intents answer another intent.
    """
    rng, examples = np.random.default_rng(seed), read_lines(data / "clinc150" / "train.jsonl.gz")
    names, labels = np.unique([example["label"] for example in examples], return_inverse=True)
    kept = np.concatenate([rng.permutation(np.flatnonzero(labels == i))[:44] for i in range(names.size)])
    X, y = vectors([examples[i]["text"] for i in kept], form), labels[kept]
    is_late = np.isin(y, rng.permutation(names.size)[:30])
    is_key = np.zeros(y.size, bool)
    for i in range(names.size):
        is_key[rng.permutation(np.flatnonzero(y == i))[:n_each]] = True
    early, late = np.flatnonzero(is_key & ~is_late), np.flatnonzero(is_key & is_late)
    asked = rng.permutation(np.flatnonzero(~is_key & ~is_late))
    held, asked = asked[:N_HELD], asked[N_HELD:]
    stream = np.concatenate([rng.permutation(asked) for _ in range(-(-N_STREAM // asked.size))])[:N_STREAM]
    moved = rng.permutation(np.unique(y[early]))
    moved = moved[: int(flipped * moved.size)]
    other = dict(zip(moved.tolist(), np.roll(moved, 1).tolist(), strict=True))
    before = y[np.append(early, late)]
    after = np.array([other.get(label, label) for label in before.tolist()])
    worth = np.append(rng.choice(worths, early.size), np.ones(late.size))
    last = np.flatnonzero(~is_key & is_late)
    parts = (Asked(X[rows], y[rows]) for rows in (stream, held, last))
    return Task(X[early], X[late], before, after, worth, *parts)


def _pairs(keys: Any, queries: Any, n: int, n_asked: int, n_late: int, seed: int) -> Task:
    """Return a task with a query for each memory. Held-out queries want memories that the stream does not ask for."""
    rng = np.random.default_rng(seed)
    stream = np.concatenate([rng.permutation(n_asked) for _ in range(-(-N_STREAM // n_asked))])[:N_STREAM]
    labels = np.arange(n + n_late)
    parts = (Asked(queries[rows], rows) for rows in (stream, np.arange(n_asked, n), np.arange(n, n + n_late)))
    return Task(keys[:n], keys[n : n + n_late], labels, labels, np.ones(n + n_late), *parts)


def verses(data: Path, seed: int, form: str) -> Task:
    """Return verses of one translation of the Bible as queries for those of another."""
    rows = [row["text"] for row in read_lines(data / "bible" / "verses.jsonl.gz")]
    rows = [row for row in rows if row.get("KJV") and row.get("BBE")]
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:4000]]
    X = vectors([row["KJV"] for row in rows] + [row["BBE"] for row in rows], form)
    size = np.asarray(abs(X).sum(axis=1)).reshape(2, -1).min(axis=0)
    kept = np.flatnonzero(size > 1e-6)
    return _pairs(X[kept], X[kept + len(rows)], 2500, 2000, 500, seed)


def threads(data: Path, seed: int) -> Task:
    """Return encoded answers of question threads (``stackfaq``). Half of the paraphrases of a question form the stream.

    One thread in ten arrives late, and all its paraphrases are asked at the end.
    """
    folder, rng = data / "stackfaq", np.random.default_rng(seed)
    keys, queries = (normalize(np.load(folder / f"use_{name}.npy")).astype(np.float32) for name in ("docs", "queries"))
    labels, wanted = (
        np.array([row["thread"] for row in read_lines(folder / f"{name}.jsonl.gz")]) for name in ("docs", "queries")
    )
    names = rng.permutation(np.unique(labels))
    late = names[: names.size // 10]
    is_late, is_last, in_stream = np.isin(labels, late), np.isin(wanted, late), np.zeros(wanted.size, bool)
    for name in names[late.size :]:
        own = rng.permutation(np.flatnonzero(wanted == name))
        in_stream[own[: own.size // 2]] = True
    asked = np.flatnonzero(in_stream)
    stream = np.concatenate([rng.permutation(asked) for _ in range(2)])
    parts = (Asked(queries[rows], wanted[rows]) for rows in (stream, ~in_stream & ~is_last, is_last))
    every = np.append(labels[~is_late], labels[is_late])
    return Task(keys[~is_late], keys[is_late], every, every, np.ones(every.size), *parts)


def noisy_features(seed: int) -> Task:
    """Return 64 informative features and 128 of noise, which a weight for each feature solves."""
    rng, n, n_late = np.random.default_rng(seed), 1000, 200
    Z = rng.normal(size=(n + n_late, 64))

    def blurred(rows: np.ndarray, noise: float) -> np.ndarray:
        rows = rows + noise * rng.normal(size=rows.shape)
        return np.hstack([rows, 1.2 * rng.normal(size=(len(rows), 128))]).astype(np.float32)

    keys, labels = blurred(Z, 0.0), np.arange(n + n_late)
    parts = (rng.integers(0, n, 3000), rng.integers(0, n, N_HELD), rng.integers(n, n + n_late, 800))
    asked = (Asked(blurred(Z[wanted], 0.7), wanted) for wanted in parts)
    return Task(keys[:n], keys[n:], labels, labels, np.ones(n + n_late), *asked)


def rotated(seed: int) -> Task:
    """Return queries that are noisy keys, half of which a fixed rotation has moved: a map of queries solves it."""
    rng, n = np.random.default_rng(seed), 3000
    Z = rng.normal(size=(n, 64))
    turn = np.linalg.qr(rng.normal(size=(64, 64)))[0]
    queries = Z + 0.8 * Z @ turn + 0.6 * rng.normal(size=Z.shape)
    return _pairs(normalize(Z).astype(np.float32), normalize(queries).astype(np.float32), 2500, 2000, 500, seed)


def topics(seed: int, worths: tuple[float, ...] = (1.0,), flipped: float = 0.0) -> Task:
    """Return 100 topics with four memories each. Queries of a topic are only somewhat similar to its memories."""
    rng, n_topics, n_late, n_each = np.random.default_rng(seed), 100, 20, 4
    centers, habits = rng.normal(size=(2, n_topics + n_late, 48))
    labels = np.repeat(np.arange(n_topics + n_late), n_each)

    def near(wanted: np.ndarray, habit: float) -> np.ndarray:
        rows = centers[wanted] + habit * habits[wanted] + 1.3 * rng.normal(size=(wanted.size, 48))
        return normalize(rows).astype(np.float32)

    keys, n = near(labels, 0.0), n_topics * n_each
    moved = rng.permutation(n_topics)[: int(flipped * n_topics)]
    other = dict(zip(moved.tolist(), np.roll(moved, 1).tolist(), strict=True))
    later = np.array([other.get(label, label) for label in labels.tolist()])
    worth = np.append(rng.choice(worths, n), np.ones(n_late * n_each))
    parts = (rng.integers(0, n_topics, N_STREAM), rng.integers(0, n_topics, N_HELD))
    late = rng.integers(n_topics, n_topics + n_late, 800)
    asked = (Asked(near(wanted, 0.7), wanted) for wanted in (*parts, late))
    return Task(keys[:n], keys[n:], labels, later, worth, *asked)


_WORTHS = (0.1, 0.3, 0.5, 0.9)
MADE: dict[str, Callable[[int], Task]] = {
    "noisy features": noisy_features,
    "rotated": rotated,
    "topics": topics,
    "popular topics": partial(topics, worths=_WORTHS),
    "flipped topics": partial(topics, flipped=0.2),
}
"""Tasks that need no data, by name."""

FROM_DATA: dict[str, Callable[..., Task]] = {
    "clicks": clicks,
    "popular": partial(clicks, n_each=8, worths=_WORTHS),
    "flips": partial(clicks, flipped=0.2),
    "verses": verses,
}
"""Tasks from a data folder, by name. Each is made of dense and of sparse rows."""


def tasks_of(data: Path | None, words: Sequence[str] = ("",)) -> dict[str, Callable[[int], Task]]:
    """Return functions that make a task from a seed, by name; only tasks whose names contain one of the words."""
    every = MADE
    if data is not None:
        made = {f"{name}, {form}": partial(make, data, form=form) for name, make in FROM_DATA.items() for form in FORMS}
        every = MADE | {"threads": partial(threads, data)} | made
    return {name: make for name, make in every.items() if any(word in name for word in words)}
