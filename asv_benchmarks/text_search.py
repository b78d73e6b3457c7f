"""Compare text searches: BM25 in a classifier and in bm25s, and re-ranking with rewards."""

from shared.commands import DATA, Commands, argument, print_table, timed  # before other libraries

# isort: split
import argparse
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import read_lines
from shared.products import best_by_product
from shared.texts import TEXT_SETS, TOKEN, Texts, bible, packages
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmt_numba import CMTClassifier, CMTRetriever
from cmt_numba.reranking import Reranker
from cmt_numba.text import BM25Vectorizer

commands = Commands(__doc__)


def by_bm25s(texts: Texts) -> list[float]:
    """Return the error, the seconds to store texts and the microseconds per query of bm25s."""
    import bm25s

    options: dict[str, Any] = {"stopwords": None, "token_pattern": TOKEN, "show_progress": False}
    index, queries = bm25s.BM25(backend="numba"), bm25s.tokenize(texts.queries, **options)
    _, stored = timed(lambda: index.index(bm25s.tokenize(texts.stored, **options), show_progress=False))
    ask = {"k": 1, "n_threads": 1, "show_progress": False, "return_as": "documents"}
    index.retrieve(queries, **ask)  # compile
    found, asked = timed(lambda: index.retrieve(queries, **ask))
    return [float(np.mean(np.asarray(found)[:, 0] != texts.answers)), stored, 1e6 * asked / len(texts.queries)]


def by_keys(texts: Texts, make: Callable[[Any], Callable[[Any], np.ndarray]]) -> list[float]:
    """Return the same for an engine of BM25 keys, without the time to make the keys of queries."""
    vectorizer = BM25Vectorizer()
    make(vectorizer.fit_transform(texts.stored[:300]))(vectorizer.transform(texts.queries[:2]))  # compile
    engine, stored = timed(lambda: make(vectorizer.fit_transform(texts.stored)))
    queries = vectorizer.transform(texts.queries)
    found, asked = timed(engine, queries)
    return [float(np.mean(found != texts.answers)), stored, 1e6 * asked / len(texts.queries)]


def as_classes(keys: Any) -> Callable[[Any], np.ndarray]:
    """Return the predictions of a classifier with a class for each key."""
    classifier = CMTClassifier(store_examples=False, random_state=0).fit(keys, np.arange(keys.shape[0]))
    return classifier.predict


ENGINES: dict[str, Callable[[Texts], list[float]]] = {
    "bm25s": by_bm25s,
    "sparse product": lambda texts: by_keys(texts, lambda keys: lambda asked: best_by_product(asked, keys, 1)[:, 0]),
    "CMTClassifier": lambda texts: by_keys(texts, as_classes),
}


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=TEXT_SETS, default=list(TEXT_SETS)[:3]),
    argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES)),
)
def search(options: argparse.Namespace) -> None:
    """Compare searches of texts that are stored once each: a classifier on BM25 keys, and the library bm25s.

    The texts are those of ``shared/texts.py``. Prints the error of the best answer, seconds to store all texts, and
    microseconds to answer a query in one batch: CPU time on one thread.
    """
    sets = ((name, TEXT_SETS[name](options.data)) for name in options.sets)
    rows = [[name, engine, *ENGINES[engine](texts)] for name, texts in sets for engine in options.engines]
    print_table(["set", "engine", "error", "store, s", "us/query"], rows, digits=".4g")


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


MODELS = {
    "linear": lambda: make_pipeline(StandardScaler(), Ridge()),
    "boosted": lambda: None,
    "validated": lambda: None,
}


def rows_of_task(task: Task, n_rewarded: list[int]) -> Iterator[list[Any]]:
    """Yield a row for each number of rewarded queries."""
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(task.stored)
    retriever = CMTRetriever("key", random_state=0).fit(keys, task.stored)
    retriever.query(vectorizer.transform(task.queries[:2]), N_FOUND)
    asked_keys = vectorizer.transform(task.queries)
    hits = retriever.query(asked_keys, N_FOUND)
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
        for name, make in MODELS.items():
            reranker = Reranker(make(), vectorizer=plain, validate=name == "validated", random_state=0)
            reranker.fit(task.queries[log], task.stored, shown, right[log].astype(float))
            found, seconds = timed(reranker.rerank, queries, task.stored, asked, 1)
            row.append(first_right(found.ids))
        yield [*row, right[:n].any(axis=1).mean(), 1e6 * seconds / n]


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
    microseconds of CPU time per query on one thread to re-rank.
    """
    tasks = ((name, TASKS[name](options.data)) for name in options.sets)
    rows = [[name, *row] for name, task in tasks for row in rows_of_task(task, options.rewarded)]
    print_table(["set", "rewards", "search", "feedback", *MODELS, f"recall at {N_FOUND}", "us/query"], rows)


main = commands.main

if __name__ == "__main__":
    main()
