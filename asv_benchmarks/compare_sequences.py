"""Compare edit distances for finding the word that a misspelling means: plain and learned, with libraries.

    python asv_benchmarks/compare_sequences.py --data path/to/folder --queries 1000

Expects ``misspellings/codespell_single.jsonl.gz`` with a line ``{"typo": ..., "word": ...}`` for each misspelling. All
words are stored. Costs are learned from misspellings of four fifths of the words, and the queries are drawn from those
of the rest.

Prints for each engine the share of queries whose word comes first, or is among the first five, the distances computed
for a query, and microseconds for it: processor time on one thread. "all edits" are costs of each direction, with
exchanges of neighbours, and by the symbol before (``--kinds``). Kernels are compiled before. Needs tabulate, and
rapidfuzz, symspellpy and biopython for their rows, which are left out otherwise.

``--kernels`` prints alignments a second instead: of each query with 1,000 words, with uniform costs and with costs of
each pair of letters. Distances of ``--pairs`` random pairs are first compared with those of plain Python.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase
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


def plain_distance(x: str, y: str, costs: np.ndarray, codes: dict[str, int]) -> float:
    """Return an edit distance as it is defined."""
    row = [0.0]
    for b in y:
        row.append(row[-1] + costs[-1, codes[b]])
    for a in x:
        above, row = row, [row[0] + costs[codes[a], -1]]
        for j, b in enumerate(y):
            substituted = above[j] + costs[codes[a], codes[b]]
            row.append(min(substituted, above[j + 1] + costs[codes[a], -1], row[j] + costs[-1, codes[b]]))
    return row[-1]


def random_costs(n: int) -> np.ndarray:
    """Return costs of 3, 3.5 and 4, and 2 for gaps: float32 (n + 1, n + 1). No detour is cheaper."""
    costs = np.triu(np.random.default_rng(0).integers(6, 9, (n + 1, n + 1)) / 2.0, 1)
    costs += costs.T
    costs[-1], costs[:, -1] = 2.0, 2.0
    np.fill_diagonal(costs, 0.0)
    return costs.astype(np.float32)


def check_kernels(alphabet: list[str], n_pairs: int) -> float:
    """Return the greatest difference of distances from those of plain Python, for random words and costs."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(alphabet, size)) for size in rng.integers(0, 12, 2 * n_pairs)]
    costs = rng.uniform(0.5, 1.0, (len(alphabet) + 1,) * 2)
    np.fill_diagonal(costs, 0.0)
    distance = EditDistance(alphabet, symmetric=False)
    distance.pairwise(["a"], ["b"])
    distance.costs_ = costs
    found = distance.paired(words[:n_pairs], words[n_pairs:])
    codes = {letter: code for code, letter in enumerate(alphabet)}
    expected = [plain_distance(x, y, costs, codes) for x, y in zip(words[:n_pairs], words[n_pairs:], strict=True)]
    return float(np.abs(found - expected).max())


def kernels(alphabet: list[str]) -> Iterator[tuple[str, Callable[[list[str], list[str]], Any]]]:
    """Yield ways to compute the distance of each of some words from each of others."""
    plain, weighted = EditDistance(alphabet), EditDistance(alphabet)
    weighted.pairwise(["a"], ["b"])
    weighted.costs_ = costs = random_costs(len(alphabet))
    yield "uniform costs, ours", plain.pairwise
    if find_spec("rapidfuzz"):
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        yield "uniform costs, rapidfuzz", lambda asked, words: cdist(asked, words, scorer=Levenshtein.distance)
    yield "costs of pairs, ours", weighted.pairwise
    if find_spec("Bio"):
        from Bio.Align import PairwiseAligner, substitution_matrices

        aligner = PairwiseAligner(mode="global", open_gap_score=-2.0, extend_gap_score=-2.0)
        scores = -costs[:-1, :-1].astype(float)
        aligner.substitution_matrix = substitution_matrices.Array("".join(alphabet), 2, scores)
        yield (
            "costs of pairs, Biopython",
            lambda asked, words: np.array([[-aligner.score(x, y) for y in words] for x in asked]),
        )


def compare_kernels(task: Task, n_pairs: int) -> None:
    """Print alignments a second."""
    alphabet = list(ascii_lowercase)
    known, asked = ([word for word in words if set(word) <= set(alphabet)] for words in (task.words, task.queries))
    print(f"{n_pairs} random pairs: greatest difference {check_kernels(alphabet, n_pairs):.1e}", flush=True)
    words, rows, expected = known[:: len(known) // 1000][:1000], [], {}
    for name, pairwise in kernels(alphabet):
        pairwise(asked[:2], words)
        times = []
        for _ in range(3):
            began = process_time()
            distances = pairwise(asked, words)
            times.append(process_time() - began)
        costs = name.split(",")[0]
        np.testing.assert_array_equal(distances, expected.setdefault(costs, distances))
        rows.append((name, len(words) * len(asked) / np.median(times) / 1e6))
    print(tabulate(rows, ("kernel", "millions a second"), floatfmt=".2f"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare ways to find the word that a misspelling means.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--examples", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--kernels", action="store_true", help="compare alignments a second instead")
    parser.add_argument("--pairs", type=int, default=100_000)
    options = parser.parse_args()
    task = misspellings(options.data, options.queries)
    if options.kernels:
        compare_kernels(task, options.pairs)
        return
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
