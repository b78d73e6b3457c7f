"""Compare searches of texts by words, and re-ranking with rewards."""

from shared.commands import DATA, Commands, argument, print_table, timed

import argparse
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import read_lines
from shared.texts import TOKEN, Texts, bible, bm25s_search, bm25s_tokens, packages
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmt_numba import CMTRetriever, MemoryStore
from cmt_numba.reranking import Reranker
from cmt_numba.text import BM25Vectorizer

commands = Commands(__doc__)

ASKED = 10


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


class StoreOfTexts:
    """Texts in a ``MemoryStore``, whose terms include prefixes of words, or with the words of the rivals."""

    def __init__(self, tokenizer: Any = None, *, fuzzy: bool = False) -> None:
        self.store, self.fuzzy = MemoryStore(random_state=0, n_threads=1, tokenizer=tokenizer), fuzzy

    def add(self, first: int, texts: list[str]) -> None:
        """Store texts with the ids from ``first`` on."""
        self.store.add(range(first, first + len(texts)), texts=texts)
        self.ask(texts[:1])  # reads the words of all texts, if they are needed

    def change(self, new: int, text: str, old: int) -> None:
        """Store a text and delete another."""
        self.store.add(new, texts=text)
        self.store.delete(old)

    def ask(self, queries: list[str]) -> list[int]:
        """Return the id of the best text for each query."""
        found = self.store.query(texts=queries, k=ASKED, fuzzy=self.fuzzy)
        return [row[0] if row[0] is not None else -1 for row in found.keys.tolist()]


class Bm25s:
    """The library bm25s, which makes a new index for each change."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def add(self, first: int, texts: list[str]) -> None:
        """Store texts with the ids from ``first`` on."""
        self.texts.update(enumerate(texts, first))
        self.ids, self.search = list(self.texts), bm25s_search(list(self.texts.values()))

    def change(self, new: int, text: str, old: int) -> None:
        """Store a text and delete another."""
        del self.texts[old]
        self.add(new, [text])

    def ask(self, queries: list[str]) -> list[int]:
        """Return the id of the best text for each query."""
        return [self.ids[row[0]] for row in self.search(bm25s_tokens(queries), ASKED)]


class Tantivy:
    """The library tantivy, which commits each change."""

    def __init__(self) -> None:
        import tantivy

        self.tantivy, schema = tantivy, tantivy.SchemaBuilder()
        schema.add_text_field("text", stored=False, tokenizer_name="default", index_option="position")
        schema.add_integer_field("id", stored=True, indexed=True)
        self.index = tantivy.Index(schema.build())
        self.writer = self.index.writer(heap_size=128_000_000, num_threads=1)

    def add(self, first: int, texts: list[str]) -> None:
        """Store texts with the ids from ``first`` on."""
        for i, text in enumerate(texts, first):
            self.writer.add_document(self.tantivy.Document(text=text, id=i))
        self._commit()

    def change(self, new: int, text: str, old: int) -> None:
        """Store a text and delete another."""
        self.writer.add_document(self.tantivy.Document(text=text, id=new))
        self.writer.delete_documents_by_term("id", old)
        self._commit()

    def _commit(self) -> None:
        self.writer.commit()
        self.index.reload()
        self.searcher = self.index.searcher()

    def ask(self, queries: list[str]) -> list[int]:
        """Return the id of the best text for each query."""
        found = []
        for query in queries:
            words = " ".join(re.findall(TOKEN, query.lower()))
            hits = self.searcher.search(self.index.parse_query(words, ["text"]), ASKED).hits
            found.append(self.searcher.doc(hits[0][1])["id"][0] if hits else -1)
        return found


def _ask_alone(engine: Any, queries: list[str]) -> None:
    for query in queries:
        engine.ask([query])


def _change_and_ask(engine: Any, texts: Texts, n: int) -> None:
    for i in range(n):
        engine.change(len(texts.stored) + i, texts.stored[i] + " anew", i)
        engine.ask([texts.queries[i]])


@commands.add(
    DATA,
    argument("--sizes", nargs="+", type=int, default=[20_000, 300_000]),
    argument("--changes", type=int, default=20),
)
def engines(options: argparse.Namespace) -> None:
    """Compare searches of package summaries with bm25s and tantivy, also while texts are added and deleted.

    Times are microseconds of CPU time of all threads: to store a text, for each query alone and in a batch, and for a
    change of two texts followed by a query. Ten texts are found for each query; the error is that of the first.
    """
    made: dict[str, Callable[[], Any]] = {
        "store": StoreOfTexts,
        "store, fuzzy": lambda: StoreOfTexts(fuzzy=True),
        "store, whole words": lambda: StoreOfTexts(lambda text: re.findall(TOKEN, text.lower())),
        "bm25s": Bm25s,
        "tantivy": Tantivy,
    }
    for size in options.sizes:
        texts, rows = packages(options.data, size, 500), []
        for name, make in made.items():
            engine = make()
            engine.add(0, texts.stored[:300])
            engine.ask(texts.queries[:3])  # compile
            engine.ask(texts.queries[:1])
            engine = make()
            _, stored = timed(engine.add, 0, texts.stored)
            _, alone = timed(_ask_alone, engine, texts.queries[:200])
            found, batch = timed(engine.ask, texts.queries)
            _, changed = timed(_change_and_ask, engine, texts, options.changes)
            error = float(np.mean(np.array(found) != texts.answers))
            seconds = stored / size, alone / 200, batch / len(texts.queries), changed / options.changes
            rows.append([name, error, *(1e6 * one for one in seconds)])
        print_table(
            ["engine", "error", "store", "query alone", "query in batch", "change and query"], rows, f"{size} texts"
        )


if __name__ == "__main__":
    commands.main()
