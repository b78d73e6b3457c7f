"""Compare the first answer of a search before and after learning from rewards: linear and boosted re-ranking.

    python asv_benchmarks/compare_rerankers.py --data path/to/folder --sets "bible, BBE" --rewarded 100 2000

Expects the files that ``compare_text.py`` describes, ``flickr8k/images.jsonl.gz`` with a line ``{"captions": [...]}``
of five captions for each picture, and ``entitymatch/NAME.records.jsonl.gz`` and ``.pairs.jsonl.gz``: a line for each
record, with its ``id`` and ``table`` ("A" or "B"), and one ``{"a": ..., "b": ..., "label": ...}`` for each pair of
records that people have compared. Flickr8k: four captions of each picture are stored, and its fifth asks for it.
Entity matching: records of table B are stored, and those of table A ask for their match; a third of them, and not 2,000
queries, is asked.

A ``CMTRetriever`` on BM25 keys finds 20 texts for each query. Those of the rewarded queries are rewarded with 1 if they
are right and with 0 if not. Printed is the share of other queries whose first answer is right: as the search has it,
after ``CMTRetriever.feedback``, and re-ranked by models that have learned from the same rewards, where "validated" is
the boosted one with ``validate=True`` and "margins" the boosted one with a further feature, by how much the routers'
margins fall short on the way to the document's leaf; then how many have a right answer among the 20; and microseconds
for a query, of processor time on one thread, for the search with its keys and for re-ranking by each model. Needs
tabulate, and xgboost for its columns, which are left out otherwise.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from compare_text import bible, packages
from labelled_sets import read_lines
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from tabulate import tabulate

from cmt_numba import CMTRetriever, ContextualMemoryTree
from cmt_numba.reranking import Reranker
from cmt_numba.text import BM25Vectorizer

N_QUERIES, N_FOUND, N_LEAVES = 2000, 20, 64


class Task(NamedTuple):
    """Texts to store and what each stands for; queries, and what is right for each. Those asked come first."""

    stored: list[str]
    values: np.ndarray
    queries: list[str]
    answers: np.ndarray
    n_asked: int


def one_text_each(texts: Any) -> Task:
    """Return a task where each text stands for itself."""
    return Task(texts.stored, np.arange(len(texts.stored)), texts.queries, texts.answers, N_QUERIES)


def flickr(folder: Path) -> Task:
    """Return four captions of each picture, and the fifth of some."""
    captions = [line["captions"] for line in read_lines(folder / "flickr8k/images.jsonl.gz")]
    asked = np.random.RandomState(0).permutation(len(captions))[: 2 * N_QUERIES]
    stored = [caption for each in captions for caption in each[:4]]
    return Task(stored, np.repeat(np.arange(len(captions)), 4), [captions[i][4] for i in asked], asked, N_QUERIES)


def entities(folder: Path, name: str) -> Task:
    """Return the records of one table, and those of another that have a match; the first match counts."""
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
    found["margins"] = None
    if find_spec("xgboost"):
        from xgboost import XGBRanker, XGBRegressor

        options = {"n_estimators": 100, "max_depth": 4, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
        found["XGBoost, squared"] = XGBRegressor(**options)
        found["XGBoost, pairwise"] = XGBRanker(objective="rank:pairwise", **options)
    return found


def margins(tree: ContextualMemoryTree, keys: Any, ids: np.ndarray) -> np.ndarray:
    """Return by how much routers fall short of being sure of the way to the leaves of memories: shape of ``ids``.

    That is what a search for the leaves goes by, the least of all trees. Keys are sparse, ids those of the tree.
    """
    state, keys = tree._forest.allocated(), normalize(keys)
    slots = np.searchsorted(state.keys.ids[: len(tree)], np.maximum(ids, 0))  # in order, as nothing was removed
    least = np.full(ids.shape, np.inf, np.float32)
    for nodes, leaves, table, leaf_of in zip(
        state.nodes, state.leaves, state.routers.table, state.leaf_of, strict=True
    ):
        starts, sizes = nodes["table_start"].astype(np.int64) << 4, np.where(nodes["table_bits"] > 0, 1, 0)
        sizes <<= nodes["table_bits"]
        cells = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        owners, used = np.repeat(np.arange(nodes.size), sizes), table["feature"][cells] >= 0
        routers = scipy.sparse.csr_array(
            (table["weight"][cells][used], (table["feature"][cells][used], owners[used])), (keys.shape[1], nodes.size)
        )
        of_nodes = (keys @ routers).toarray() + nodes["bias"]
        leaf, short = leaf_of[slots].astype(np.int64), np.zeros(ids.shape, np.float32)
        place, node = ~leaf, leaves["parent"][leaf].astype(np.int64)
        while (node >= 0).any():
            right = nodes["child"][node][..., 1] == place
            margin = np.where(right, 1.0, -1.0) * np.take_along_axis(of_nodes, np.maximum(node, 0), 1)
            short += np.where(node >= 0, np.maximum(0.0, state.parameters.sure_margin - margin), 0.0)
            place, node = node, np.where(node >= 0, nodes["parent"][node], -1)
        least = np.minimum(least, short)
    return least


def measured(task: Task, n_rewarded: list[int]) -> Iterator[list[Any]]:
    """Yield a row for each number of rewarded queries."""
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(task.stored)
    retriever = CMTRetriever("key", n_probes=N_LEAVES, random_state=0).fit(keys, task.stored)
    retriever.query(vectorizer.transform(task.queries[:2]), N_FOUND)
    start = process_time()
    asked_keys = vectorizer.transform(task.queries)
    hits = retriever.query(asked_keys, N_FOUND)
    searching = 1e6 * (process_time() - start) / len(task.queries)
    right = task.values[np.maximum(hits.ids, 0)] == task.answers[:, None]
    right &= hits.ids >= 0
    asked, n = hits.between(0, task.n_asked), task.n_asked
    queries, answers = task.queries[:n], task.answers[:n]
    short = margins(retriever.forest_, asked_keys, hits.ids)
    of_pair = {
        (query, task.stored[i]): value
        for query, found, values in zip(task.queries, hits.ids, short, strict=True)
        for i, value in zip(found, values, strict=True)
    }
    feature = lambda queries, documents: [of_pair[pair] for pair in zip(queries, documents, strict=True)]  # noqa: E731
    first_right = lambda ids: np.mean(task.values[ids[:, 0]] == answers)  # noqa: E731
    plain = BM25Vectorizer(norm=None).fit(task.stored)
    for n_learned in n_rewarded:
        log = slice(n, min(n + n_learned, len(task.queries)))
        shown = hits.between(log.start, log.stop)
        taught = deepcopy(retriever).feedback(asked_keys[log], shown.ids, np.where(shown.ids >= 0, right[log], 0.0))
        row = [log.stop - log.start, right[:n, 0].mean(), first_right(taught.query(asked_keys[:n], 1).ids)]
        times = [searching]
        for name, model in models().items():
            start = process_time()
            reranker = Reranker(model, vectorizer=plain, validate=name == "validated", random_state=0)
            if name == "margins":
                reranker.set_params(features=[*reranker.features, feature])
            reranker.fit(task.queries[log], task.stored, shown, right[log].astype(float))
            learned = process_time()
            found = reranker.rerank(queries, task.stored, asked, 1)
            times.append(1e6 * (process_time() - learned) / n)
            row.append(first_right(found.ids))
        yield [*row, right[:n].any(axis=1).mean(), *(f"{time:.0f}" for time in times)]


def main() -> None:
    """Print a row for each set and number of rewarded queries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rewarded", type=int, nargs="+", default=[100, 2000], help="numbers of rewarded queries")
    arguments = parser.parse_args()
    headers = ["set", "rewarded", "search", "feedback", *models(), f"in {N_FOUND}", "search, us"]
    headers += [f"{name}, us" for name in models()]
    rows = []
    for name in arguments.sets:
        for row in measured(TASKS[name](arguments.data), arguments.rewarded):
            rows.append([name, *row])
            print(rows[-1], flush=True)
    print(tabulate(rows, headers, "github", floatfmt=".3f"))


if __name__ == "__main__":
    main()
