"""Single-row calls of cmt_numba and other libraries. Each maker returns a function that makes call number ``i``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from .labelled_sets import few_of_each, read_lines

Call = Callable[[int], Any]

N_CLASSES, N_FEATURES, N_FEATURES_OF_BANDIT, N_STORED = 77, 128, 64, 5000
N_WARM = 100  # calls that compile kernels and grow arrays
N_BUSY = 3


class Rows(NamedTuple):
    """Texts of 77 intents as rows in every format."""

    texts: list[str]
    y: np.ndarray
    sparse: Any
    dense: np.ndarray

    def stored(self) -> np.ndarray:
        """Return 5,000 distinct dense rows near those of the texts."""
        near = self.dense[np.arange(N_STORED) % self.y.size]
        near = near + 0.03 * np.random.default_rng(0).normal(size=near.shape)
        return np.asarray(near / np.linalg.norm(near, axis=1, keepdims=True), np.float32)

    def row(self, i: int, form: str) -> Any:
        """Return row ``i`` in one format."""
        at = i % self.y.size
        return (self.sparse if form == "sparse" else self.dense)[at : at + 1]

    def cut(self, form: str) -> list[Any]:
        """Return 1,000 rows in one format, sliced in advance because slicing a SciPy row is slow."""
        return [self.row(i, form) for i in range(1000)]


def intents(folder: Path) -> Rows:
    """Return the texts of 77 intents of clinc150 in random order, as tf-idf words and as 128 components of these."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    lines = read_lines(folder / "clinc150/train.jsonl.gz")
    labels = np.unique([line["label"] for line in lines])[:N_CLASSES]
    lines = [line for line in lines if line["label"] in set(labels)]
    y = np.searchsorted(labels, [line["label"] for line in lines])
    order = few_of_each(y, 1000)
    texts = [lines[i]["text"] for i in order]
    X = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts)
    dense = normalize(TruncatedSVD(N_FEATURES, random_state=0).fit_transform(X)).astype(np.float32)
    return Rows(texts, y[order], X, dense)


def fitted(rows: Rows, form: str) -> Any:
    """Return a classifier that has learned all rows in one format."""
    from cmt_numba import CMTClassifier

    return CMTClassifier(random_state=0).fit(getattr(rows, form), rows.y)


def predict(form: str) -> Callable[[Rows], Call]:
    """Return a maker of predictions for rows in one format."""

    def make(rows: Rows) -> Call:
        classifier, each = fitted(rows, form), rows.cut(form)
        return lambda i: classifier.predict(each[i % 1000])

    return make


def classify_texts(rows: Rows) -> Call:
    """Return a function that predicts texts with a text classifier."""
    from cmt_numba.text import TextClassifier

    classifier = TextClassifier(random_state=0).fit(rows.texts, rows.y)
    return lambda i: classifier.predict([rows.texts[i % len(rows.texts)]])


def classify_bm25_keys(rows: Rows) -> Call:
    """Return a function that turns texts into BM25 keys and predicts their classes."""
    from cmt_numba import CMTClassifier
    from cmt_numba.text import BM25Vectorizer

    vectorizer = BM25Vectorizer().fit(rows.texts)
    classifier = CMTClassifier(random_state=0).fit(vectorizer.transform(rows.texts), rows.y)
    return lambda i: classifier.predict(vectorizer.transform([rows.texts[i % len(rows.texts)]]))


def learn(form: str) -> Callable[[Rows], Call]:
    """Return a maker of functions that learn row by row, from the first row on."""

    def make(rows: Rows) -> Call:
        from cmt_numba import CMTClassifier

        n = rows.y.size // 2
        classifier = CMTClassifier(random_state=0).fit(getattr(rows, form)[:n], rows.y[:n])
        each = [(rows.row(n + i, form), rows.y[n + i : n + i + 1]) for i in range(n)]
        return lambda i: classifier.partial_fit(*each[i % n])

    return make


def cmt_bandit(rows: Rows) -> Call:
    """Return a function that plays rounds of ``CMTBandit`` over all classes."""
    from cmt_numba.bandits import CMTBandit

    bandit, each = CMTBandit(n_actions=N_CLASSES, random_state=0), rows.cut("sparse")

    def play(i: int) -> None:
        chosen = bandit.act(each[i % 1000])
        bandit.reward(chosen.ids, (chosen.actions == rows.y[i % 1000]).astype(float))

    return play


def lin_ucb(rows: Rows) -> Call:
    """Return a function that plays rounds of LinUCB with a model for each class."""
    from cmt_numba.bandits import LinUCB

    bandit, X = LinUCB(n_actions=N_CLASSES, random_state=0), rows.dense[:, :N_FEATURES_OF_BANDIT]

    def play(i: int) -> None:
        row = X[i % rows.y.size : i % rows.y.size + 1]
        chosen = bandit.act(row)
        bandit.learn(row, chosen.actions, (chosen.actions == rows.y[i % rows.y.size]).astype(float))

    return play


def tree(call: str, n_trees: int = 1) -> Callable[[Rows], Call]:
    """Return a maker of calls of a tree over the dense rows."""

    def make(rows: Rows) -> Call:
        from cmt_numba import ContextualMemoryTree

        trees = ContextualMemoryTree(n_trees=n_trees, random_state=0)
        trees.insert(rows.stored())
        if call == "update":
            hits, reward = [trees.query(rows.row(i, "dense"), epsilon=0.1) for i in range(100)], np.ones(1)
            return lambda i: trees.update(rows.row(i % 100, "dense"), hits[i % 100], reward)
        return lambda i: getattr(trees, call)(rows.row(i, "dense"))

    return make


def store(call: str) -> Callable[[Rows], Call]:
    """Return a maker of calls of a store with 5,000 dense rows."""

    def make(rows: Rows) -> Call:
        from cmt_numba import MemoryStore

        memories = MemoryStore(random_state=0)
        memories.add(list(range(N_STORED)), rows.stored())
        if call == "query":
            return lambda i: memories.query(rows.row(i, "dense"), 10)
        others = rows.stored()[::-1].copy()
        return lambda i: memories.upsert([i % N_STORED], others[i % N_STORED : i % N_STORED + 1])

    return make


OURS: dict[str, Callable[[Rows], Call]] = {
    "text in, class out": classify_texts,
    "text in, class out (BM25)": classify_bm25_keys,
    "predict, sparse": predict("sparse"),
    "predict, dense": predict("dense"),
    "partial_fit, sparse": learn("sparse"),
    "partial_fit, dense": learn("dense"),
    "CMTBandit, act and reward": cmt_bandit,
    "LinUCB, act and learn": lin_ucb,
    "tree.query": tree("query"),
    "tree.insert": tree("insert"),
    "tree.update, 8 trees": tree("update", 8),
    "store.query": store("query"),
    "store.upsert": store("upsert"),
}


def by_product(form: str) -> Callable[[Rows], Call]:
    """Return a maker of predictions by a product with the class means."""

    def make(rows: Rows) -> Call:
        X, each = getattr(rows, form), rows.cut(form)
        means = np.array([np.asarray(X[rows.y == label].mean(axis=0)).ravel() for label in range(N_CLASSES)])
        weights = np.ascontiguousarray(means.T, np.float32)
        return lambda i: np.argmax(each[i % 1000] @ weights)

    return make


def by_bm25s(rows: Rows) -> Call:
    """Return a function that searches for the most similar text by bm25s."""
    import bm25s

    texts = bm25s.BM25()
    texts.index(bm25s.tokenize(rows.texts, show_progress=False), show_progress=False)

    def ask(i: int) -> Any:
        words = bm25s.tokenize([rows.texts[i % len(rows.texts)]], show_progress=False)
        return rows.y[texts.retrieve(words, k=1, show_progress=False)[0][0, 0]]

    return ask


def by_vowpal(form: str) -> Callable[[Rows], Call]:
    """Return a maker of functions that learn row by row with Vowpal Wabbit, one against all."""

    def make(rows: Rows) -> Call:
        from vowpalwabbit import Workspace

        from .labelled_sets import vw_lines

        workspace = Workspace(f"--oaa {N_CLASSES} --quiet")
        lines = vw_lines(getattr(rows, form), (rows.y + 1)[:, None])
        return lambda i: workspace.learn(lines[i % len(lines)])

    return make


def diagonal_ucb(form: str) -> Callable[[Rows], Call]:
    """Return a maker of functions that play rounds of UCB with a diagonal covariance for each class."""

    def make(rows: Rows) -> Call:
        each = [row.toarray() if form == "sparse" else row for row in rows.cut(form)]
        precision, sums = np.ones((2, N_CLASSES, each[0].size))
        sums[:] = 0.0

        def play(i: int) -> None:
            at = np.flatnonzero(each[i % 1000][0])
            x, a = each[i % 1000][0, at], precision[:, at]
            chosen = int(np.argmax((sums[:, at] / a) @ x + 0.1 * np.sqrt((1.0 / a) @ (x * x))))
            precision[chosen, at] += x * x
            sums[chosen, at] += x * (chosen == rows.y[i % 1000])

        return play

    return make


def by_hnswlib(call: str) -> Callable[[Rows], Call]:
    """Return a maker of calls of an hnswlib graph with as many rows as the store."""

    def make(rows: Rows) -> Call:
        import hnswlib

        graph = hnswlib.Index(space="l2", dim=N_FEATURES)
        graph.init_index(2 * N_STORED, 200, 16, random_seed=0)
        graph.add_items(rows.stored(), num_threads=1)
        graph.set_ef(100)
        if call == "query":
            return lambda i: graph.knn_query(rows.row(i, "dense"), 10, num_threads=1)
        first = N_STORED if call == "insert" else 0
        others = rows.stored()[::-1].copy()
        return lambda i: graph.add_items(others[i % N_STORED : i % N_STORED + 1], [first + i % N_STORED], num_threads=1)

    return make


RIVALS: dict[str, tuple[str, Callable[[Rows], Call]]] = {
    "text in, class out": ("bm25s", by_bm25s),
    "text in, class out (BM25)": ("bm25s", by_bm25s),
    "predict, sparse": ("product", by_product("sparse")),
    "predict, dense": ("product", by_product("dense")),
    "partial_fit, sparse": ("vw --oaa", by_vowpal("sparse")),
    "partial_fit, dense": ("vw --oaa", by_vowpal("dense")),
    "CMTBandit, act and reward": ("diagonal UCB", diagonal_ucb("sparse")),
    "LinUCB, act and learn": ("diagonal UCB", diagonal_ucb("dense")),
    "tree.query": ("hnswlib", by_hnswlib("query")),
    "tree.insert": ("hnswlib", by_hnswlib("insert")),
    "store.query": ("hnswlib", by_hnswlib("query")),
    "store.upsert": ("hnswlib", by_hnswlib("upsert")),
}


@contextmanager
def busy_threads(n: int) -> Iterator[None]:
    """Run some threads that are busy in Python during the block."""
    done = threading.Event()

    def work() -> None:
        total = 0
        while not done.is_set():
            for i in range(1000):
                total += i * i

    threads = [threading.Thread(target=work, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def seconds_of(call: Call, first: int, n: int, most: float) -> np.ndarray:
    """Return the seconds of each of up to ``n`` successive calls, which stop after about ``most`` seconds."""
    times = np.empty(n)
    end = perf_counter() + most
    for i in range(n):
        begun = perf_counter()
        call(first + i)
        times[i] = perf_counter() - begun
        if begun > end:
            return times[: i + 1]
    return times


def measured(call: Call, n: int, seconds: float) -> dict[str, float]:
    """Return microseconds per call: CPU time, and quantiles of the wall time alone and next to busy threads."""
    for i in range(N_WARM):
        call(i)
    begun = process_time()
    alone = seconds_of(call, N_WARM, n, seconds)
    figures = {"cpu": 1e6 * (process_time() - begun) / alone.size}
    with busy_threads(N_BUSY):
        busy = seconds_of(call, N_WARM + n, n, seconds)
    for name, times in (("alone", alone), ("busy", busy)):
        figures |= {f"{name} {share}": 1e6 * float(np.quantile(times, share / 100)) for share in (50, 99)}
    return figures


def stalls(rows: Rows, form: str, n: int) -> dict[str, float]:
    """Return the mean and quantiles of the milliseconds to learn ``n`` rows one by one, without any earlier rows."""
    from cmt_numba import CMTClassifier

    def learned(n: int) -> np.ndarray:
        classifier = CMTClassifier(random_state=0)
        classifier.partial_fit(rows.row(0, form), rows.y[:1], classes=np.arange(N_CLASSES))
        return seconds_of(
            lambda i: classifier.partial_fit(rows.row(i, form), rows.y[i % rows.y.size : i % rows.y.size + 1]),
            1, n, np.inf,
        )  # fmt: skip

    learned(1000)  # compile
    times = 1e3 * learned(n)
    return {"mean": float(times.mean())} | {str(q): float(np.quantile(times, q / 100)) for q in (50, 99, 100)}
