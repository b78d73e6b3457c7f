"""Compare nearest neighbour searches for vectors, points and sequences."""

from shared.commands import DATA, Commands, argument, print_table, timed

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import SETS, LabelledSet, read_lines
from shared.products import best_by_product
from sklearn.neighbors import BallTree

from cmt_numba.neighbors import LandmarkIndex
from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree

commands = Commands(__doc__)

WANTED = 10
PROBES = (1, 2, 4, 8, 16, 32, 64)
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)

Search = Callable[[np.ndarray], np.ndarray]


def ours(index: LandmarkIndex, target: float) -> Search:
    """Return a search with ``LandmarkIndex`` and a target recall."""

    def search(asked: np.ndarray) -> np.ndarray:
        index.target_recall = target
        return index.query(asked, WANTED).ids

    return search


def faiss_engines(X: np.ndarray) -> Iterator[tuple[str, Search]]:
    """Yield the searches of faiss."""
    import faiss

    faiss.omp_set_num_threads(1)
    quantizer = faiss.IndexFlatIP(X.shape[1])
    lists = faiss.IndexIVFFlat(quantizer, X.shape[1], int(2 * np.sqrt(len(X))), faiss.METRIC_INNER_PRODUCT)
    lists.train(X)
    lists.add(X)
    for n_probes in PROBES:

        def search(asked: np.ndarray, n_probes: int = n_probes) -> np.ndarray:
            lists.nprobe = n_probes
            return lists.search(asked, WANTED)[1]

        yield f"faiss IVF, {n_probes}", search


def compare(data: LabelledSet, options: argparse.Namespace) -> None:
    """Print the comparison of searches."""
    X, asked = (np.ascontiguousarray(rows, np.float32) for rows in (data.X, data.queries))
    index = LandmarkIndex("cosine", random_state=0)
    _, built = timed(index.insert, X)
    print(f"{X.shape[0]} rows of {X.shape[1]} features, {asked.shape[0]} queries; {index.n_lists_} lists,", end=" ")
    print(f"built in {built:.1f} s", flush=True)
    engines: dict[str, Search] = {f"LandmarkIndex, target {target}": ours(index, target) for target in TARGETS}
    if find_spec("faiss"):
        engines |= faiss_engines(X)
    engines["matrix product"] = lambda rows: best_by_product(rows, X, WANTED)
    exact = engines["matrix product"](asked)
    times: dict[str, list[float]] = {name: [] for name in engines}
    recalls = {}
    for _ in range(options.rounds):
        for name, search in engines.items():
            found, seconds = timed(search, asked)
            times[name].append(1e6 * seconds / asked.shape[0])
            recalls[name] = (found[:, :, None] == exact[:, None]).any(axis=2).mean()
    medians = {name: float(np.median(values)) for name, values in times.items()}
    rows = [(name, recalls[name], medians[name]) for name in engines]
    print_table(("engine", "recall at 10", "us/query"), rows)


def compare_trees(n: int, n_queries: int) -> None:
    """Print the times and numbers of distance computations of exact trees over uniform points in a cube."""
    rows, rng = [], np.random.default_rng(0)
    VPTree(random_state=0).insert(rng.random((50, 2)))  # compile
    for n_features in (2, 4, 8):
        X, asked = rng.random((n, n_features)), rng.random((n_queries, n_features))
        ours = VPTree(random_state=0)
        _, built = timed(ours.insert, X)
        theirs, of_theirs = timed(BallTree, X)
        times = [built, of_theirs]
        ours.query(asked[:2])
        theirs.reset_n_calls()
        counts = []
        for k in (1, WANTED):
            found, of_ours = timed(ours.query, asked, k)
            (lengths, _), of_theirs = timed(theirs.query, asked, k)
            times += [1e6 * of_ours / n_queries, 1e6 * of_theirs / n_queries]
            np.testing.assert_allclose(found.distances, lengths, rtol=1e-4, atol=1e-6)
            counts += [found.n_computed.mean(), theirs.get_n_calls() / n_queries]
            theirs.reset_n_calls()
        for i, name in enumerate(("VPTree", "BallTree")):
            rows.append((n_features, name, times[i], times[i + 2], counts[i], times[i + 4], counts[i + 2]))
    head = ("features", "tree", "build, s", "us/query", "distances", f"us/query, {WANTED} nearest", "distances")
    print_table(head, rows, digits=".1f")


@commands.add(
    argument("--data", type=Path),
    argument("--sets", nargs="+", default=["synthetic, 100 shots"]),
    argument("--queries", type=int, default=2000),
    argument("--rounds", type=int, default=3),
    argument("--trees", type=int, metavar="POINTS", help="compare exact trees over this many random points instead"),
)
def neighbors(options: argparse.Namespace) -> None:
    """Compare searches for the nearest of very many dense rows.

    The sets are those of ``shared/labelled_sets.py``. Prints the seconds to build each index, and then recall at 10 by
    cosine and CPU time on one thread, with all queries in one call. Compares ``LandmarkIndex`` with several target
    recalls, faiss's inverted file with several numbers of probes, and a matrix product. All times are medians of
    ``--rounds`` rounds, in which the methods take turns.

    ``--trees 100000`` prints the times of exact searches of VPTree and BallTree in that many random points with few
    features instead. faiss is skipped unless faiss-cpu is installed.
    """
    if options.trees:
        compare_trees(options.trees, options.queries)
        return
    if options.data is None:
        raise SystemExit("--data is needed")
    for name in options.sets:
        print(name, flush=True)
        data = SETS[name](options.data)
        some = np.random.default_rng(0).permutation(data.answers.size)[: options.queries]
        data = data._replace(queries=data.queries[some], answers=data.answers[some])
        compare(data, options)


FIRST = 5
KINDS = ("plain", "learned")
"""Equal costs, and costs learned from other misspellings."""

WordSearch = Callable[[list[str]], Any]


class Task(NamedTuple):
    """Words, examples to learn from, and queries with the positions of their correct words."""

    words: list[str]
    examples: list[str]
    of_examples: np.ndarray
    queries: list[str]
    answers: np.ndarray


def read_misspellings(folder: Path, n_queries: int) -> Task:
    """Return the words, with examples for four fifths of them."""
    lines = read_lines(folder / "misspellings/codespell_single.jsonl.gz")
    words = sorted({line["word"] for line in lines})
    place = {word: i for i, word in enumerate(words)}
    rng = np.random.default_rng(0)
    of_lines = np.array([place[line["word"]] for line in lines])
    known = (rng.random(len(words)) < 0.8)[of_lines]
    typos = np.array([line["typo"] for line in lines], object)
    asked = rng.permutation(np.flatnonzero(~known))[:n_queries]
    return Task(words, typos[known].tolist(), of_lines[known], typos[asked].tolist(), of_lines[asked])


def our_searches(task: Task, n_examples: int, n_rounds: int, kinds: list[str]) -> Iterator[tuple[str, WordSearch]]:
    """Yield this package's searches, which return positions and the number of distances computed."""
    alphabet = sorted(set("".join(task.words + task.examples + task.queries)))
    some = np.random.default_rng(1).permutation(len(task.examples))[:n_examples]
    for name in kinds:
        distance = EditDistance(alphabet, n_rounds=n_rounds, random_state=0)
        if name != "plain":
            _, seconds = timed(distance.fit, task.words, [task.examples[i] for i in some], task.of_examples[some])
            print(f"{name} costs, from {some.size} misspellings: {seconds:.0f} s", flush=True)
        yield f"{name}, all words compared", lambda asked, d=distance: (d.nearest(asked, task.words, FIRST)[0], None)
        tree = VPTree(distance, random_state=0)
        tree.insert(task.words)
        yield f"{name}, VPTree", lambda asked, tree=tree: tree.query(asked, FIRST)[::2]
        memory = SequenceMemory(distance, random_state=0)
        memory.insert(task.words)
        yield f"{name}, SequenceMemory", lambda asked, memory=memory: memory.query(asked, FIRST)[::2]


def libraries(task: Task) -> Iterator[tuple[str, WordSearch]]:
    """Yield the searches of the installed libraries."""
    place = {word: i for i, word in enumerate(task.words)}
    if find_spec("rapidfuzz"):
        from rapidfuzz import distance as distances
        from rapidfuzz.process import extract

        for metric in ("Levenshtein", "OSA", "DamerauLevenshtein"):
            scorer = getattr(distances, metric).distance

            def scan(asked: list[str], scorer: Any = scorer) -> Any:
                found = [extract(word, task.words, scorer=scorer, limit=FIRST) for word in asked]
                return np.array([[i for _, _, i in row] for row in found]), None

            yield f"rapidfuzz, {metric}", scan
    if find_spec("symspellpy"):
        from symspellpy import SymSpell, Verbosity

        speller = SymSpell(max_dictionary_edit_distance=3, prefix_length=8)
        for word in task.words:
            speller.create_dictionary_entry(word, 1)

        def look_up(asked: list[str]) -> Any:
            found = [[place[s.term] for s in speller.lookup(word, Verbosity.ALL, 3)][:FIRST] for word in asked]
            return np.array([row + [-1] * (FIRST - len(row)) for row in found]), None

        yield "symspellpy", look_up


@commands.add(
    DATA,
    argument("--queries", type=int, default=1000),
    argument("--examples", type=int, default=6000),
    argument("--rounds", type=int, default=15),
    argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS)),
)
def misspellings(options: argparse.Namespace) -> None:
    """Compare edit distances for correcting misspellings: unit costs, learned costs, and other libraries.

    Expects ``misspellings/codespell_single.jsonl.gz`` with a line ``{"typo": ..., "word": ...}`` for each misspelling.
    All words are stored. Costs are learned from misspellings of four fifths of the words, and the queries are drawn
    from misspellings of the others.

    Prints for each engine the fraction of queries whose word is ranked first, the fraction whose word is among the
    first five, the distances computed per query, and microseconds per query: CPU time on one thread. Kernels
    are compiled before timing. rapidfuzz and symspellpy are skipped unless installed.
    """
    task = read_misspellings(options.data, options.queries)
    print(f"{len(task.words)} words, {len(task.queries)} queries", flush=True)
    rows = []
    for name, search in (*libraries(task), *our_searches(task, options.examples, options.rounds, options.kinds)):
        search(task.queries[:2])
        (positions, n_computed), seconds = timed(search, task.queries)
        right = positions == task.answers[:, None]
        computed = None if n_computed is None else np.mean(n_computed)
        rows.append((name, right[:, 0].mean(), right.any(axis=1).mean(), computed, 1e6 * seconds / len(task.queries)))
    head = ("engine", "accuracy at 1", "accuracy at 5", "distances", "us/query")
    print_table(head, rows)


if __name__ == "__main__":
    commands.main()
