"""Compare edit distances for finding the word that a misspelling means: plain and learned, with libraries.

    python asv_benchmarks/compare_sequences.py --data path/to/folder --queries 1000

Expects ``misspellings/codespell_single.jsonl.gz`` with a line ``{"typo": ..., "word": ...}`` for each misspelling. All
words are stored. Costs are learned from misspellings of four fifths of the words, and the queries are drawn from those
of the rest.

Prints for each engine the share of queries whose word comes first, or is among the first five, the distances computed
for a query, and microseconds for it: processor time on one thread. "all edits" are costs of each direction, with
exchanges of neighbours, and by the symbol before (``--kinds``). Kernels are compiled before. Needs tabulate, and
rapidfuzz and symspellpy for their rows, which are left out otherwise.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from labelled_sets import read_lines
from tabulate import tabulate

from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree

FIRST = 5
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "learned": {},
    "all edits": {"transposition": 1.0, "contextual": True, "symmetric": False},
}
"""Options of edit distances. All but the plain one are learned."""

Search = Callable[[list[str]], Any]


class Task(NamedTuple):
    """Words, examples to learn from, and queries with the positions of the words that they mean."""

    words: list[str]
    examples: list[str]
    of_examples: np.ndarray
    queries: list[str]
    answers: np.ndarray


def misspellings(folder: Path, n_queries: int) -> Task:
    """Return the words, with four fifths of them to learn from."""
    lines = read_lines(folder / "misspellings/codespell_single.jsonl.gz")
    words = sorted({line["word"] for line in lines})
    place = {word: i for i, word in enumerate(words)}
    rng = np.random.default_rng(0)
    of_lines = np.array([place[line["word"]] for line in lines])
    known = (rng.random(len(words)) < 0.8)[of_lines]
    typos = np.array([line["typo"] for line in lines], object)
    asked = rng.permutation(np.flatnonzero(~known))[:n_queries]
    return Task(words, typos[known].tolist(), of_lines[known], typos[asked].tolist(), of_lines[asked])


def ours(task: Task, n_examples: int, n_rounds: int, kinds: list[str]) -> Iterator[tuple[str, Search]]:
    """Yield ways to search, which return positions and the number of distances computed."""
    alphabet = sorted(set("".join(task.words + task.examples + task.queries)))
    some = np.random.default_rng(1).permutation(len(task.examples))[:n_examples]
    for name in kinds:
        distance = EditDistance(alphabet, n_rounds=n_rounds, random_state=0, **KINDS[name])
        if name != "plain":
            began = process_time()
            distance.fit(task.words, [task.examples[i] for i in some], task.of_examples[some])
            print(f"{name} costs, from {some.size} misspellings in {process_time() - began:.0f} s", flush=True)
        yield f"{name}, compared with all", lambda asked, d=distance: (d.nearest(asked, task.words, FIRST)[0], None)
        if name != "all edits":  # which are no metric
            tree = VPTree(distance, random_state=0)
            tree.insert(task.words)
            yield f"{name}, VPTree", lambda asked, tree=tree: tree.query(asked, FIRST)[::2]
            yield f"{name}, VPTree, first only", lambda asked, tree=tree: tree.query(asked)[::2]
        memory = SequenceMemory(distance, random_state=0)
        memory.insert(task.words)
        yield f"{name}, SequenceMemory", lambda asked, memory=memory: memory.query(asked, FIRST)[::2]


def libraries(task: Task) -> Iterator[tuple[str, Search]]:
    """Yield the ways of libraries that are there."""
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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare ways to find the word that a misspelling means.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--examples", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    task = misspellings(options.data, options.queries)
    print(f"{len(task.words)} words, {len(task.queries)} queries", flush=True)
    rows = []
    for name, search in (*libraries(task), *ours(task, options.examples, options.rounds, options.kinds)):
        search(task.queries[:2])
        began = process_time()
        positions, n_computed = search(task.queries)
        seconds = process_time() - began
        right = positions == task.answers[:, None]
        several = right.any(axis=1).mean() if right.shape[1] > 1 else None
        computed = None if n_computed is None else np.mean(n_computed)
        rows.append((name, right[:, 0].mean(), several, computed, 1e6 * seconds / len(task.queries)))
        print(name, flush=True)
    head = ("engine", "right at 1", "right at 5", "distances", "us a query")
    print(tabulate(rows, head, floatfmt=("", ".3f", ".3f", ".0f", ".0f")))


if __name__ == "__main__":
    main()
