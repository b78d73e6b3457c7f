"""Measure calls with a single row, and those of other libraries."""

from shared.commands import DATA, Commands, argument, print_table, timed  # before other libraries

# isort: split
import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from shared.labelled_sets import LabelledSet, texts_with_labels, vw_lines
from shared.vectors import components, graph_of

from cmt_numba import CMTClassifier, ContextualMemoryTree, MemoryStore
from cmt_numba.bandits import CMTBandit
from cmt_numba.text import TextClassifier

commands = Commands(__doc__)

N_CLASSES, N_FEATURES, N_WARM = 77, 128, 100
Call = Callable[[int], Any]


class Rows:
    """Texts of 77 intents as rows in every format, each sliced in advance because slicing a SciPy row is slow."""

    def __init__(self, data: LabelledSet) -> None:
        kept = np.flatnonzero(np.isin(data.y, np.unique(data.y)[:N_CLASSES]))
        self.y, self.sparse = np.unique(data.y[kept], return_inverse=True)[1], data.X[kept]
        self.texts = [(data.texts or ([], []))[0][i] for i in kept]
        self.dense = components(self.sparse, N_FEATURES)
        self.each = {form: [getattr(self, form)[i : i + 1] for i in range(1000)] for form in ("sparse", "dense")}


def classify(rows: Rows, form: str) -> dict[str, Call]:
    """Return predictions of one row, and of the product with the class means."""
    X, each = getattr(rows, form), rows.each[form]
    classifier = CMTClassifier(random_state=0).fit(X, rows.y)
    means = np.array([np.asarray(X[rows.y == label].mean(axis=0)).ravel() for label in range(N_CLASSES)], np.float32).T
    return {"ours": lambda i: classifier.predict(each[i]), "NumPy": lambda i: np.argmax(each[i] @ means)}


def learn(rows: Rows, form: str) -> dict[str, Call]:
    """Return functions that learn row by row, the other by Vowpal Wabbit, one against all."""
    n, X = rows.y.size // 2, getattr(rows, form)
    classifier = CMTClassifier(random_state=0).fit(X[:n], rows.y[:n])
    calls: dict[str, Call] = {"ours": lambda i: classifier.partial_fit(X[n + i : n + i + 1], rows.y[n + i : n + i + 1])}
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        return calls
    workspace, lines = Workspace(f"--oaa {N_CLASSES} --quiet"), vw_lines(X[n:], (rows.y[n:] + 1)[:, None])
    return calls | {"Vowpal Wabbit": lambda i: workspace.learn(lines[i])}


def classify_texts(rows: Rows) -> dict[str, Call]:
    """Return a function that classifies one text."""
    classifier = TextClassifier(random_state=0).fit(rows.texts, rows.y)
    return {"ours": lambda i: classifier.predict([rows.texts[i]])}


def play(rows: Rows) -> dict[str, Call]:
    """Return a function that plays a round of a bandit over all classes."""
    bandit, each = CMTBandit(n_actions=N_CLASSES, random_state=0), rows.each["sparse"]

    def round_of(i: int) -> None:
        chosen = bandit.act(each[i])
        bandit.reward(chosen.ids, (chosen.actions == rows.y[i]).astype(float))

    return {"ours": round_of}


def remember(rows: Rows, call: str) -> dict[str, Call]:
    """Return calls of a tree, of a store and of hnswlib over 5,000 dense rows."""
    stored, each = rows.dense[np.arange(5000) % len(rows.dense)], rows.each["dense"]
    stored = stored + 0.03 * np.random.default_rng(0).normal(size=stored.shape).astype(np.float32)
    tree, store = ContextualMemoryTree(random_state=0), MemoryStore(random_state=0, n_threads=1)
    tree.insert(stored)
    store.add(range(5000), stored)
    calls: dict[str, Call] = {"tree": lambda i: tree.query(each[i], 10), "store": lambda i: store.query(each[i], 10)}
    if call == "change":
        calls = {"tree": lambda i: tree.insert(each[i]), "store": lambda i: store.upsert([i], each[i])}
    try:
        graph = graph_of(stored)[0]
    except ImportError:
        return calls
    graph.set_ef(100)
    if call == "change":
        return calls | {"hnswlib": lambda i: graph.add_items(each[i], [i], num_threads=1)}
    return calls | {"hnswlib": lambda i: graph.knn_query(each[i], 10, num_threads=1)}


CALLS: dict[str, Callable[[Rows], dict[str, Call]]] = {
    "predict, sparse": lambda rows: classify(rows, "sparse"),
    "predict, dense": lambda rows: classify(rows, "dense"),
    "predict, text": classify_texts,
    "partial_fit, sparse": lambda rows: learn(rows, "sparse"),
    "partial_fit, dense": lambda rows: learn(rows, "dense"),
    "act and reward": play,
    "query": lambda rows: remember(rows, "query"),
    "insert or upsert": lambda rows: remember(rows, "change"),
}


@commands.add(DATA, argument("--calls", nargs="+", default=list(CALLS), choices=CALLS))
def rows(options: argparse.Namespace) -> None:
    """Measure calls with one row: the mean CPU time of 900 calls in microseconds, and the longest call.

    The rows are texts of 77 intents of ``clinc150``, as tf-idf words ("sparse") or 128 components of these ("dense").
    Rivals that are not installed are skipped.
    """
    data, table = Rows(texts_with_labels(options.data, "clinc150", 1000)), []
    for name in options.calls:
        for who, call in CALLS[name](data).items():
            for i in range(N_WARM):
                call(i)
            times = np.array([timed(call, i)[1] for i in range(N_WARM, 1000)])
            table.append([name, who, 1e6 * times.mean(), 1e6 * times.max()])
    print_table(["call", "by", "CPU us/call", "longest"], table, digits=".0f")


main = commands.main

if __name__ == "__main__":
    main()
