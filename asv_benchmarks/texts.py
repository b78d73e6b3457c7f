"""Compare text searches and classifiers: BM25, trees, and re-ranking."""

from __future__ import annotations

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import MOST_QUERIES, read_lines
from shared.products import best_by_product
from shared.texts import TEXT_SETS, TOKEN, Texts, bible, packages
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from tabulate import tabulate
from topics import learned_keys

from cmt_numba import CMTClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.reranking import Reranker
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, TextClassifier
from cmt_numba.text._encoders import Encoder

commands = Commands(__doc__)

N_WARMING = 300  # texts used to compile kernels


class Result(NamedTuple):
    """The results of an engine: seconds for all stored texts, microseconds per query."""

    error: float
    vectorise: float
    insert: float
    query_vector: float
    query: float


def by_bm25s(texts: Texts, backend: str) -> Result:
    """Search with bm25s."""
    import bm25s

    options: dict[str, Any] = {"stopwords": None, "token_pattern": TOKEN, "show_progress": False}
    tokens, vectorise = timed(lambda: bm25s.tokenize(texts.stored, **options))
    index = bm25s.BM25(backend=backend)
    _, insert = timed(lambda: index.index(tokens, show_progress=False))
    queries, vectors = timed(lambda: bm25s.tokenize(texts.queries, **options))
    ask = {"k": 1, "n_threads": 1, "show_progress": False, "return_as": "documents"}
    index.retrieve(queries, **ask)  # compile
    found, query = timed(lambda: index.retrieve(queries, **ask))
    return _result(texts, np.asarray(found)[:, 0], vectorise, insert, vectors, query)


def _with_classifier(keys: Any) -> Callable[[Any], np.ndarray]:
    classifier = CMTClassifier(store_examples=False, random_state=0).fit(keys, np.arange(keys.shape[0]))
    return classifier.predict


def _with_product(keys: Any) -> Callable[[Any], np.ndarray]:
    return lambda queries: best_by_product(queries, keys, 1)[:, 0]


ENGINES: dict[str, Callable[[Any], Callable[[Any], np.ndarray]]] = {
    "sparse product": _with_product,
    "CMTClassifier": _with_classifier,
}


def by_keys(texts: Texts, engine: str) -> Result:
    """Search with one of the engines that store keys."""
    vectorizer = BM25Vectorizer()
    keys, vectorise = timed(lambda: vectorizer.fit_transform(texts.stored))
    queries, vectors = timed(lambda: vectorizer.transform(texts.queries))
    ENGINES[engine](keys[:N_WARMING])(queries[:2])  # compile
    answer, insert = timed(lambda: ENGINES[engine](keys))
    answer(queries[:2])
    found, query = timed(lambda: answer(queries))
    return _result(texts, found, vectorise, insert, vectors, query)


def _result(texts: Texts, found: np.ndarray, vectorise: float, insert: float, vectors: float, query: float) -> Result:
    scale = 1e6 / len(texts.queries)
    return Result(float((found != texts.answers).mean()), vectorise, insert, scale * vectors, scale * query)


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=TEXT_SETS, default=list(TEXT_SETS)[:3]),
    argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES)),
)
def search(options: argparse.Namespace) -> None:
    """Compare searches of texts that are stored once each: a classifier on BM25 keys, and the library bm25s.

    The texts are those of ``shared/texts.py``.

    Prints for each engine the error of the best answer, seconds to vectorise and to store all texts, and microseconds
    to vectorise and to answer a query in one batch: CPU time on one thread. Kernels are compiled before timing. Needs
    tabulate. bm25s is skipped unless installed.
    """
    for name in options.sets:
        texts = TEXT_SETS[name](options.data)
        rows = {}
        if find_spec("bm25s") is not None:
            rows = {f"bm25s, {backend}": by_bm25s(texts, backend) for backend in ("numpy", "numba")}
        for engine in options.engines:
            rows[engine] = by_keys(texts, engine)
        print(f"\n{name}\n")
        headers = ["engine", "error", "vectorise, s", "store, s", "vectorise, us/query", "answer, us/query"]
        print(tabulate([[engine, *row] for engine, row in rows.items()], headers, "github", floatfmt=".4g"), flush=True)


LEAVES_OF_ONE_TREE = (1, 4, 16, 64)
LEAVES_OF_EACH = (1, 2)
"""Numbers of leaves to search: in total for one tree, per tree for a forest."""


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    return timed(work, clock=time.perf_counter)[1]


def read_pairs(path: Path, keys: str, queries: str) -> tuple[list[str], list[str], np.ndarray]:
    """Return the texts to store, the queries, and the position of the answer to each query."""
    versions = [line["text"] for line in read_lines(path) if line["text"].get(keys)]
    asked = [i for i, version in enumerate(versions) if version.get(queries)]
    return [version[keys] for version in versions], [versions[i][queries] for i in asked], np.array(asked)


def self_consistency(tree: ContextualMemoryTree, X: Any) -> float:
    """Return the fraction of keys that find themselves, or a key equal to them, in one leaf of each tree."""
    hits = tree.query(X)
    same = hits.ids[:, 0] == np.arange(X.shape[0])
    equal = hits.scores[:, 0] > 1 - 1e-6
    return float(np.mean(same | equal))


@commands.add(
    argument("path", type=Path, help="file of JSON lines"),
    argument("--keys", required=True, help="version of the texts to store"),
    argument("--queries", required=True, help="version of the texts to query with"),
    argument("--trees", type=int, nargs="+", default=[1, 4, 8, 16], help="numbers of trees to try"),
    argument("--repeats", type=int, default=3, help="number of interleaved runs; medians are printed"),
    argument("--seed", type=int, default=0),
)
def trees(options: argparse.Namespace) -> None:
    """Measure retrieval of texts by paraphrases: error, self-consistency, time and memory.

    Every text is a memory and a separate class; the queries are paraphrases. The data is a file of JSON
    lines (plain or gzip), each with a ``text`` that holds several versions, such as a verse in several translations::

        {"text": {"KJV": "In the beginning God created ...", "ASV": "In the beginning God created ..."}}

    The published measurements use the 31,102 verses of the Bible in the King James and the American Standard Version,
    both in the public domain (for example from github.com/scrollmapper/bible_databases).

    Keys are tf-idf words. Needs scikit-learn and tabulate.
    """
    texts, questions, answers = read_pairs(options.path, options.keys, options.queries)
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform(texts)
    queries = vectorizer.transform(questions)
    before_trees = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ContextualMemoryTree(random_state=0).insert(X[:500])  # compiles, or loads from the cache on disk

    def grown(n_trees: int) -> ContextualMemoryTree:
        tree = ContextualMemoryTree(n_trees, random_state=options.seed)
        tree.insert(X)
        return tree

    vectorizing: list[float] = []
    inserting: dict[int, list[float]] = {n_trees: [] for n_trees in options.trees}
    for _ in range(options.repeats):
        vectorizing.append(seconds_of(lambda: clone(vectorizer).fit_transform(texts)))
        for n_trees, times in inserting.items():
            times.append(seconds_of(lambda n_trees=n_trees: grown(n_trees)))
    vectorizer_seconds = statistics.median(vectorizing)
    table = []
    for n_trees in options.trees:
        tree = grown(n_trees)
        tree.check_invariants()
        insert_seconds = statistics.median(inserting[n_trees])
        of_tree = [
            f"{insert_seconds:.2f}",
            f"{insert_seconds / vectorizer_seconds:.2f}",
            f"{insert_seconds / statistics.median(inserting[options.trees[0]]):.2f}",
            f"{self_consistency(tree, X):.4f}",
            f"{tree.nbytes / 1e6:.0f}",
            tree.depth,
        ]
        leaves = LEAVES_OF_ONE_TREE if n_trees == 1 else [n_trees * each for each in LEAVES_OF_EACH]
        for n_leaves in leaves:
            error = float(np.mean(tree.query(queries, n_probes=n_leaves).ids[:, 0] != answers))
            times = [seconds_of(lambda: tree.query(queries, n_probes=n_leaves)) for _ in range(options.repeats)]  # noqa: B023
            table.append(
                [n_trees, n_leaves, f"{error:.4f}", f"{1e6 * statistics.median(times) / answers.size:.1f}", *of_tree]
            )
            of_tree = [""] * len(of_tree)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(texts):,} keys of {X.shape[1]:,} features, {X.nnz / X.shape[0]:.1f} non-zero per key;")
    exact = np.mean(best_by_product(queries, X, 1)[:, 0] != answers)
    print(f"{len(questions):,} queries, error of exact search {exact:.4f};")
    print(f"vectorising took {vectorizer_seconds:.2f} s.\n")
    headers = ["trees", "leaves", "error", "us/query", "insert, s", "relative to\nvectorising"]
    headers += [f"relative to\n{options.trees[0]} tree(s)", "self-\nconsistency", "MB", "depth"]
    print(tabulate(table, headers, disable_numparse=True))
    print(f"\nPeak resident memory: {peak / 1024:.0f} MB ({before_trees / 1024:.0f} MB before the first tree).")


N_QUERIES, N_FOUND = 2000, 20


class Task(NamedTuple):
    """Texts to store with their values, and queries with their correct values; the test queries come first."""

    stored: list[str]
    values: np.ndarray
    queries: list[str]
    answers: np.ndarray
    n_asked: int


def one_text_each(texts: Any) -> Task:
    """Return a task where each text is its own value."""
    return Task(texts.stored, np.arange(len(texts.stored)), texts.queries, texts.answers, N_QUERIES)


def flickr(folder: Path) -> Task:
    """Return four captions of each picture as stored texts, and the fifth captions of some pictures as queries."""
    captions = [line["captions"] for line in read_lines(folder / "flickr8k/images.jsonl.gz")]
    asked = np.random.RandomState(0).permutation(len(captions))[: 2 * N_QUERIES]
    stored = [caption for each in captions for caption in each[:4]]
    return Task(stored, np.repeat(np.arange(len(captions)), 4), [captions[i][4] for i in asked], asked, N_QUERIES)


def entities(folder: Path, name: str) -> Task:
    """Return the records of one table as texts, and the matching records of the other table as queries."""
    records = read_lines(folder / f"entitymatch/{name}.records.jsonl.gz")
    texts = {
        line["id"]: " ".join(str(value) for field, value in line.items() if field not in ("id", "table"))
        for line in records
    }
    stored = [line["id"] for line in records if line["table"] == "B"]
    place = {record: i for i, record in enumerate(stored)}
    matches = {}
    for pair in read_lines(folder / f"entitymatch/{name}.pairs.jsonl.gz"):
        if pair["label"] == 1:
            matches.setdefault(pair["a"], place[pair["b"]])
    asked = [sorted(matches)[i] for i in np.random.RandomState(0).permutation(len(matches))]
    answers = np.array([matches[record] for record in asked])
    queries = [texts[record] for record in asked]
    return Task([texts[record] for record in stored], np.arange(len(stored)), queries, answers, len(asked) // 3)


TASKS: dict[str, Callable[[Path], Task]] = {
    "bible, BBE": lambda folder: one_text_each(bible(folder, "BBE")),
    "packages, 30,000": lambda folder: one_text_each(packages(folder, 30_000, n_queries=2 * N_QUERIES)),
    "flickr8k": flickr,
    "amazon-google": lambda folder: entities(folder, "amazon-google"),
    "abt-buy": lambda folder: entities(folder, "abt-buy"),
    "walmart-amazon": lambda folder: entities(folder, "walmart-amazon"),
}


def models() -> dict[str, Any]:
    """Return the models that re-rank."""
    found: dict[str, Any] = {"linear": make_pipeline(StandardScaler(), Ridge()), "boosted": None, "validated": None}
    if find_spec("xgboost"):
        from xgboost import XGBRanker, XGBRegressor

        options = {"n_estimators": 100, "max_depth": 4, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
        found["XGBoost, squared"] = XGBRegressor(**options)
        found["XGBoost, pairwise"] = XGBRanker(objective="rank:pairwise", **options)
    return found


def rows_of_task(task: Task, n_rewarded: list[int]) -> Iterator[list[Any]]:
    """Yield a row for each number of rewarded queries."""
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(task.stored)
    retriever = CMTRetriever("key", random_state=0).fit(keys, task.stored)
    retriever.query(vectorizer.transform(task.queries[:2]), N_FOUND)
    start = process_time()
    asked_keys = vectorizer.transform(task.queries)
    hits = retriever.query(asked_keys, N_FOUND)
    searching = 1e6 * (process_time() - start) / len(task.queries)
    right = task.values[np.maximum(hits.ids, 0)] == task.answers[:, None]
    right &= hits.ids >= 0
    asked, n = hits.between(0, task.n_asked), task.n_asked
    queries, answers = task.queries[:n], task.answers[:n]
    first_right = lambda ids: np.mean(task.values[ids[:, 0]] == answers)  # noqa: E731
    plain = BM25Vectorizer(norm=None).fit(task.stored)
    for n_learned in n_rewarded:
        log = slice(n, min(n + n_learned, len(task.queries)))
        shown = hits.between(log.start, log.stop)
        taught = deepcopy(retriever).feedback(asked_keys[log], shown.ids, np.where(shown.ids >= 0, right[log], 0.0))
        row = [log.stop - log.start, right[:n, 0].mean(), first_right(taught.query(asked_keys[:n], 1).ids)]
        times = [searching]
        for name, model in models().items():
            reranker = Reranker(model, vectorizer=plain, validate=name == "validated", random_state=0)
            reranker.fit(task.queries[log], task.stored, shown, right[log].astype(float))
            found, seconds = timed(reranker.rerank, queries, task.stored, asked, 1)
            times.append(1e6 * seconds / n)
            row.append(first_right(found.ids))
        yield [*row, right[:n].any(axis=1).mean(), *(f"{time:.0f}" for time in times)]


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=TASKS, default=list(TASKS)),
    argument("--rewarded", type=int, nargs="+", default=[100, 2000], help="numbers of rewarded queries"),
)
def rerankers(options: argparse.Namespace) -> None:
    """Compare the first result of a search before and after learning from rewards, by linear and boosted re-ranking.

    Expects the files that ``shared/texts.py`` describes, ``flickr8k/images.jsonl.gz`` with a line ``{"captions":
    [...]}`` of five captions for each picture, and ``entitymatch/NAME.records.jsonl.gz`` and ``.pairs.jsonl.gz``.
    Records have a line each with an ``id`` and a ``table`` ("A" or "B"). Pairs have a line ``{"a": ..., "b": ...,
    "label": ...}`` for each pair of records that people have compared. Flickr8k: four captions of each picture are
    stored, and the fifth is the query. Entity matching: records of table B are stored, and those of table A are
    queries; a third of them is measured, instead of 2,000 queries.

    A ``CMTRetriever`` on BM25 keys finds 20 texts for each query. For the rewarded queries, correct texts get the
    reward 1 and others 0. Prints the accuracy of the first result on other queries: by the search alone, after
    ``CMTRetriever.feedback``, and re-ranked by models that have learned from the same rewards. "validated" is the
    boosted model with ``validate=True``. Then prints the fraction of queries with a correct text among the 20, and
    microseconds of CPU time per query on one thread, for the search with its keys and for re-ranking by each model.
    Needs tabulate. xgboost is skipped unless installed.
    """
    headers = ["set", "rewarded queries", "search", "feedback", *models(), f"recall at {N_FOUND}", "search, us"]
    headers += [f"{name}, us" for name in models()]
    rows = []
    for name in options.sets:
        for row in rows_of_task(TASKS[name](options.data), options.rewarded):
            rows.append([name, *row])
            print(rows[-1], flush=True)
    print(tabulate(rows, headers, "github", floatfmt=".3f"))


class Taught(NamedTuple):
    """Texts with classes to learn from, queries, and out-of-scope questions."""

    texts: list[str]
    labels: np.ndarray
    queries: list[str]
    answers: np.ndarray
    others: list[str]

    def shots(self, n: int | None, seed: int) -> Taught:
        """Return at most ``n`` texts of each class, in another order."""
        order: Any = np.random.default_rng(seed).permutation(len(self.texts))
        if n is not None:
            seen: Counter[Any] = Counter()
            order = [i for i in order if (seen.update([self.labels[i]]) or seen[self.labels[i]]) <= n]
        return self._replace(texts=[self.texts[i] for i in order], labels=self.labels[order])

    def of_classes(self, kept: np.ndarray) -> Taught:
        """Return the texts of some classes."""
        here, asked = np.isin(self.labels, kept), np.isin(self.answers, kept)
        texts = [self.texts[i] for i in np.flatnonzero(here)]
        queries = [self.queries[i] for i in np.flatnonzero(asked)]
        return self._replace(texts=texts, labels=self.labels[here], queries=queries, answers=self.answers[asked])


def taught(folder: Path) -> Taught:
    """Return the texts of a folder."""
    train, test = (read_lines(folder / f"{part}.jsonl.gz") for part in ("train", "test"))
    chosen = np.random.default_rng(0).permutation(len(test))[:MOST_QUERIES]
    test = [test[i] for i in chosen]
    out = read_lines(folder / "oos.jsonl.gz") if (folder / "oos.jsonl.gz").exists() else []
    parts = [[line["text"] for line in lines] for lines in (train, test, out)]
    labels, answers = (np.array([line["label"] for line in lines]) for lines in (train, test))
    return Taught(parts[0], labels, parts[1], answers, parts[2])


def rival_classifiers() -> dict[str, Callable[[], Any]]:
    """Return the rivals: linear models and FastTextClassifier, on words and with characters."""
    words = {"sublinear_tf": True, "token_pattern": TOKEN}

    def both() -> Any:
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
        return make_union(TfidfVectorizer(**words), characters)

    return {
        "LinearSVC, words": lambda: make_pipeline(TfidfVectorizer(**words), LinearSVC()),
        "LinearSVC, and characters": lambda: make_pipeline(both(), LinearSVC()),
        "logistic, words": lambda: make_pipeline(TfidfVectorizer(**words), LogisticRegression(C=10.0)),
        "logistic, and characters": lambda: make_pipeline(both(), LogisticRegression(C=10.0)),
        "FastTextClassifier, words": lambda: FastTextClassifier(max_n=0, random_state=0),
        "FastTextClassifier": lambda: FastTextClassifier(random_state=0),
    }


def encoder_rivals(encoder: str) -> dict[str, Callable[[], Any]]:
    """Return classifiers on the vectors of an encoder alone. Each text is encoded once."""
    encode = FunctionTransformer(Encoder(encoder, most_remembered=10**6).encode)
    return {
        f"logistic, {encoder}": lambda: make_pipeline(encode, LogisticRegression(C=10.0)),
        f"CMTClassifier, {encoder}": lambda: make_pipeline(encode, CMTClassifier(random_state=0)),
    }


def calibration_error(classifier: Any, texts: list[str], answers: np.ndarray) -> float:
    """Return the expected calibration error, with ten bins of the highest probability."""
    proba = classifier.predict_proba(texts)
    sure, right = proba.max(axis=1), classifier.classes_[proba.argmax(axis=1)] == answers
    bins = np.minimum((10 * sure).astype(int), 9)
    return float(sum(abs((sure[bins == b] - right[bins == b]).sum()) for b in range(10)) / sure.size)


def out_of_scope(classifier: Any, data: Taught) -> float:
    """Return the area under the curve when the highest probability separates questions in scope from others."""
    sure = [classifier.top_classes(texts, 1)[1][:, 0] for texts in (data.queries, data.others)]
    return float(roc_auc_score(np.repeat([1, 0], [len(part) for part in sure]), np.concatenate(sure)))


def live_error(learner: Callable[[], Any], data: Taught) -> list[float]:
    """Return the errors after adding a fifth of the classes text by text, and after one fit on all classes.

    The first two errors are on the later classes, the others on the earlier ones.
    """
    classes = np.random.default_rng(1).permutation(np.unique(data.labels))
    later, known = (data.of_classes(some) for some in np.split(classes, [classes.size // 5]))
    live, refit = learner().fit(known.texts, known.labels), learner().fit(data.texts, data.labels)
    for text, label in zip(later.texts, later.labels, strict=True):
        live.partial_fit([text], [label])
    pairs = [(part, one) for part in (later, known) for one in (live, refit)]
    return [float(np.mean(one.predict(part.queries) != part.answers)) for part, one in pairs]


@commands.add(
    argument("folders", type=Path, nargs="+", help="folders with train.jsonl.gz and test.jsonl.gz"),
    argument("--shots", nargs="+", default=["5", "20", "all"], help="texts per class"),
    argument("--seeds", type=int, default=3),
    argument("--encoder", choices=["use"]),
    argument("--alone", action="store_true", help="leave out the other libraries"),
)
def classifier(options: argparse.Namespace) -> None:
    """Compare ``TextClassifier`` with linear models and ``FastTextClassifier``, on words and with characters.

    The folders have lines ``{"text": ..., "label": ...}`` and may have out-of-scope questions in ``oos.jsonl.gz``.

    Prints errors (averaged over seeds), seconds to fit and microseconds to classify one text: CPU time on one thread.
    For ``TextClassifier``, also prints the calibration error, the area under the curve for out-of-scope questions,
    megabytes of the file, the mean time and the longest time to learn one text and, with the fewest shots, errors on
    classes that are added later text by text, compared with a classifier that has learned all classes in one fit. With
    ``--encoder``, also compares classifiers on the vectors of the encoder alone. Needs tabulate.
    """
    ours = {"TextClassifier": lambda: TextClassifier(random_state=0)}
    if options.encoder:
        ours[f"TextClassifier, {options.encoder}"] = lambda: TextClassifier(options.encoder, random_state=0)
    learners = ours if options.alone else ours | rival_classifiers()
    if options.encoder and not options.alone:
        learners |= encoder_rivals(options.encoder)
    for folder in options.folders:
        data, rows, further = taught(folder), [], []
        for name, learner in learners.items():
            learner().fit(data.texts[:N_WARMING], data.labels[:N_WARMING]).predict(data.queries[:1])  # compile
            row: list[Any] = [name]
            for shots in options.shots:
                n = None if shots == "all" else int(shots)
                fitted = [fit_timed(learner, data.shots(n, seed)) for seed in range(1 if n is None else options.seeds)]
                row.append(np.mean([np.mean(one.predict(data.queries) != data.answers) for one, _ in fitted]))
                row.append(np.mean([seconds for _, seconds in fitted]))
                if name in ours:
                    further.append([name, shots, *np.mean([facts(one, data) for one, _ in fitted], axis=0)])
            rows.append([*row, 1e6 * seconds_of_each(fitted[0][0].predict, [[text] for text in data.queries])])
        headers = [h for shots in options.shots for h in (f"{shots} shots", "fit, s")]
        print(
            f"\n{folder.name}\n", tabulate(rows, ["", *headers, "classify one, us"], "github", floatfmt=".3f"), sep="\n"
        )
        names = ["", "shots", "calibration error", "out of scope", "file, MB", "learn one, us", "longest, ms"]
        print("\n", tabulate(further, names, "github", floatfmt=".3f"), sep="", flush=True)
        few = data.shots(int(options.shots[0]), 0)
        live = [[name, *live_error(learner, few)] for name, learner in ours.items()]
        names = ["", "later, live", "later, all at once", "others, live", "others, all at once"]
        print("\n", tabulate(live, names, "github", floatfmt=".3f"), sep="", flush=True)


def doubled(learner: Callable[[], Any], data: Taught) -> list[Any]:
    """Return errors and calibration errors: of half of the texts, after adding the rest one by one, and of one fit."""
    order = np.random.default_rng(0).permutation(len(data.texts))
    half = order[: order.size // 2], order[order.size // 2 :]
    live = learner().fit([data.texts[i] for i in half[0]], data.labels[half[0]])
    before = calibration_error(live, data.queries, data.answers)
    for i in half[1]:
        live.partial_fit([data.texts[i]], [data.labels[i]])
    refit = learner().fit(data.texts, data.labels)
    errors = [float(np.mean(one.predict(data.queries) != data.answers)) for one in (live, refit)]
    return [before, *(calibration_error(one, data.queries, data.answers) for one in (live, refit)), *errors]


def corrected(learner: Callable[[], Any], data: Taught, most: int) -> list[Any]:
    """Return results of correcting wrong answers with ``partial_fit``.

    They are the number of corrections, the fraction that is right directly afterwards, microseconds per correction,
    and the error on the other queries after all corrections and after one fit on all texts.
    """
    live = learner().fit(data.texts, data.labels)
    wrong = np.flatnonzero(live.predict(data.queries) != data.answers)
    wrong = wrong[: min(most, 2 * wrong.size // 3)]
    others = np.setdiff1d(np.arange(data.answers.size), wrong)
    stick, seconds = [], []
    for i in wrong:
        text, label = [data.queries[i]], [data.answers[i]]
        seconds.append(timed(live.partial_fit, text, label)[1])
        stick.append(live.predict(text)[0] == label[0])
    texts, labels = [data.queries[i] for i in wrong], data.answers[wrong]
    refit = learner().fit(data.texts + texts, np.concatenate([data.labels, labels]))
    asked, right = [data.queries[i] for i in others], data.answers[others]
    errors = [float(np.mean(one.predict(asked) != right)) for one in (live, refit)]
    return [wrong.size, np.mean(stick), 1e6 * np.median(seconds), *errors]


@commands.add(
    argument("folders", type=Path, nargs="+", help="folders with train.jsonl.gz and test.jsonl.gz"),
    argument("--shots", type=int, nargs="+", default=[5, 20], help="texts per class"),
    argument("--corrections", type=int, default=200),
    argument("--classes", type=int, default=150, help="number of random classes"),
    argument("--draws", type=int, default=3, help="number of random draws of classes and texts"),
)
def live(options: argparse.Namespace) -> None:
    """Measure a ``TextClassifier`` that learns text by text: calibration, corrections, and later classes.

    The folders have lines ``{"text": ..., "label": ...}``. The first table has the calibration error after a fit on
    half of the texts, after the other half was added one by one, and after one fit on all texts, with errors. The
    second corrects wrong answers. The third adds a fifth of the classes text by text. All are means over the draws.
    Needs tabulate.
    """
    rows: tuple[list[Any], ...] = ([], [], [])
    learner = lambda: TextClassifier(random_state=0)  # noqa: E731
    for folder in options.folders:
        data = taught(folder)
        for shots in options.shots:
            results: tuple[list[Any], ...] = ([], [], [])
            for draw in range(options.draws):
                classes = np.random.default_rng(draw).permutation(np.unique(data.labels))[: options.classes]
                few = data.of_classes(classes).shots(shots, draw)
                results[0].append(doubled(learner, few))
                results[1].append(corrected(learner, few, options.corrections))
                results[2].append(live_error(learner, few))
            for table, found in zip(rows, results, strict=True):
                table.append([folder.name, shots, *np.mean(found, axis=0)])
    headers = (
        ["calibration, half", "added singly", "refit", "error, added singly", "refit"],
        ["corrections", "right afterwards", "us each", "error of others, live", "refit"],
        ["later, live", "later, refit", "others, live", "others, refit"],
    )
    for table, names in zip(rows, headers, strict=True):
        print("\n", tabulate(table, ["set", "shots", *names], "github", floatfmt=".3f"), sep="", flush=True)


@commands.add(
    argument("folder", type=Path, help="clinc150"),
    argument("--classes", type=int, nargs="+", default=[1, 2, 10, 30]),
    argument("--shots", type=int, default=5),
    argument("--draws", type=int, default=5),
)
def rejection(options: argparse.Namespace) -> None:
    """Measure ``reject_below=0.5`` with a few classes, on related and on out-of-scope texts.

    Prints the fractions of related texts that are rejected and of out-of-scope texts that are accepted, and the area
    under the curve, averaged over draws of classes. Needs tabulate.
    """
    data, rows = taught(options.folder), []
    for n in options.classes:
        results = []
        for draw in range(options.draws):
            classes = np.random.default_rng(draw).permutation(np.unique(data.labels))[:n]
            few = data.of_classes(classes).shots(options.shots, draw)
            fitted = TextClassifier(random_state=0).fit(few.texts, few.labels)
            rejected = [np.mean(fitted.top_classes(texts, 1)[1] < 0.5) for texts in (few.queries, few.others)]
            results.append([rejected[0], 1.0 - rejected[1], out_of_scope(fitted, few)])
        rows.append([n, *np.mean(results, axis=0)])
    names = ["classes", "related, rejected", "out of scope, accepted", "area under the curve"]
    print(tabulate(rows, names, "github", floatfmt=".3f"))


def fit_timed(learner: Callable[[], Any], data: Taught) -> tuple[Any, float]:
    """Return a fitted classifier, and the seconds to fit it."""
    return timed(lambda: learner().fit(data.texts, data.labels))


def seconds_of_each(work: Callable[..., Any], *arguments: list[Any]) -> float:
    """Return the mean seconds of a call over lists of arguments."""
    calls = list(zip(*arguments, strict=True))[:N_WARMING]
    return timed(lambda: [work(*given) for given in calls])[1] / len(calls)


def facts(classifier: Any, data: Taught) -> list[float]:
    """Return the calibration error, out-of-scope detection, file size and learning times of a fitted classifier."""
    auc = out_of_scope(classifier, data) if data.others else np.nan
    with tempfile.NamedTemporaryFile() as file:
        classifier.save(file.name)
        size = Path(file.name).stat().st_size
    error = calibration_error(classifier, data.queries, data.answers)
    pairs = list(zip(data.queries, data.answers, strict=True))[:N_WARMING]
    learned = [timed(classifier.partial_fit, [pair[0]], [pair[1]])[1] for pair in pairs]
    return [error, auc, size / 1e6, 1e6 * np.mean(learned[1:]), 1e3 * max(learned[1:])]


FOREIGN = {
    "wie ist das Wetter morgen": "weather",
    "réserve un vol pour Paris": "book_flight",
    "¿cuál es el saldo de mi cuenta?": "balance",
    "我的信用卡丢了": "report_lost_card",
    "qual è la capitale della Francia": "no intent",
}


@commands.add(argument("folder", type=Path, help="clinc150"), argument("--shots", type=int, default=5))
def languages(options: argparse.Namespace) -> None:
    """Classify texts in languages that are not in the training data, with ``encoder="use"``. Needs tabulate."""
    data = taught(options.folder).shots(options.shots, 0)
    fitted = TextClassifier("use", random_state=0).fit(data.texts, data.labels)
    best, chances = fitted.top_classes(list(FOREIGN), 1)
    rows = zip(FOREIGN, FOREIGN.values(), fitted.classes_[best[:, 0]], chances[:, 0], strict=True)
    print(tabulate(rows, ["text", "meaning", "answer", "probability"], "github", floatfmt=".2f"))


commands.include(learned_keys.commands)
main = commands.main

if __name__ == "__main__":
    main()
