"""Compare edit distances for finding the word that a misspelling means: plain and learned, with libraries.

    python asv_benchmarks/compare_sequences.py --data path/to/folder --queries 1000

Expects ``misspellings/codespell_single.jsonl.gz`` with a line ``{"typo": ..., "word": ...}`` for each misspelling. All
words are stored. Costs are learned from misspellings of four fifths of the words, and the queries are drawn from those
of the rest.

Prints for each engine the share of queries whose word comes first, or is among the first five, the distances computed
for a query, and microseconds for it: processor time on one thread. "all edits" are costs of each direction, with
exchanges of neighbours, and by the symbol before (``--kinds``). Kernels are compiled before. Needs tabulate, and
rapidfuzz, symspellpy and biopython for their rows, which are left out otherwise.

``--kernels`` prints how many pairs a second are compared instead: of each query with 1,000 words, or with all of them
for the nearest, and of sequences of 300 letters; with equal costs and with costs of each pair of letters. Distances of
``--pairs`` random pairs are first compared with those of plain Python. Takes parasail, too.
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


def plain_distance(x: list[int], y: list[int], costs: np.ndarray, opening: float, end: float | None) -> float:
    """Return an edit distance as it is defined, with a cost of opening gaps, and one of leaving out symbols at ends."""
    skips = [0.0 if end is None else end * i for i in range(len(x) + 1)]
    ends_of = [np.inf] * (len(y) + 1)  # the least costs that end with a deletion
    answer, row = skips[-1], [0.0]
    for i in range(len(x) + 1):
        above, row, inserted = row, [], np.inf
        for j in range(len(y) + 1):
            ways = [skips[i]] if end is not None or i + j == 0 else []
            if i > 0:
                deletion = costs[x[i - 1], -1]
                ends_of[j] = min(above[j] + opening, ends_of[j]) + deletion
                ways.append(ends_of[j])
            if j > 0:
                inserted = min(row[j - 1] + opening, inserted) + costs[-1, y[j - 1]]
                ways.append(inserted)
            if i > 0 and j > 0:
                ways.append(above[j - 1] + costs[x[i - 1], y[j - 1]])
            row.append(min(ways))
        answer = min(answer, min(row) + skips[len(x) - i])
    return row[-1] if end is None else answer


def check_kernels(alphabet: list[str], n_pairs: int) -> float:
    """Return the greatest difference of distances from those of plain Python, for random words and costs.

    A fifth of the pairs has equal costs, and the others have none or both of affine gaps and local alignment, or one.
    """
    rng = np.random.default_rng(0)
    codes, worst = {letter: code for code, letter in enumerate(alphabet)}, 0.0
    for equal, opening, end in ((1, 0.0, None), (0, 0.0, None), (0, 0.7, None), (0, 0.0, 0.6), (0, 0.7, 0.6)):
        n = n_pairs // 5
        words = ["".join(rng.choice(alphabet, size)) for size in rng.integers(0, 12, 2 * n)]
        costs = np.ones((len(alphabet) + 1,) * 2) if equal else rng.uniform(0.5, 1.0, (len(alphabet) + 1,) * 2)
        np.fill_diagonal(costs, 0.0)
        distance = EditDistance(alphabet, gap_opening=opening or None, local=end, symmetric=False)
        distance.pairwise(["a"], ["b"])
        distance.costs_ = costs
        found, of_words = distance.paired(words[:n], words[n:]), [[codes[letter] for letter in word] for word in words]
        pairs = zip(of_words[:n], of_words[n:], strict=True)
        expected = [plain_distance(x, y, costs, opening, end) for x, y in pairs]
        worst = max(worst, float(np.abs(found - expected).max()))
    return worst


def random_costs(n: int, local: float) -> np.ndarray:
    """Return costs of 3, 3.5 and 4, and 2 for gaps; deletions cost ``local`` more. No detour is cheaper.

    float32 (n + 1, n + 1).
    """
    costs = np.triu(np.random.default_rng(0).integers(6, 9, (n + 1, n + 1)) / 2.0, 1)
    costs += costs.T
    costs[-1], costs[:, -1] = 2.0, 2.0 + local
    np.fill_diagonal(costs, 0.0)
    return costs.astype(np.float32)


Pairwise = Callable[[list[str], list[str]], Any]
OPENING, LOCAL = 1.5, 2.0


def uniform_kernels(alphabet: list[str]) -> Iterator[tuple[str, Pairwise]]:
    """Yield ways to compute the distance of each of some words from each of others, where all edits cost the same."""
    plain = EditDistance(alphabet)
    yield "ours, all pairs", plain.pairwise
    yield "ours, pairs of a list", lambda asked, words: plain.paired(*paired(asked, words)).reshape(len(asked), -1)
    if find_spec("rapidfuzz"):
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        scorer = Levenshtein.distance
        yield "rapidfuzz, cdist", lambda asked, words: cdist(asked, words, scorer=scorer)
        yield "rapidfuzz, one by one", lambda asked, words: np.array([[scorer(x, y) for y in words] for x in asked])


def paired(asked: list[str], words: list[str]) -> tuple[list[str], list[str]]:
    """Return all pairs as two lists."""
    return [x for x in asked for _ in words], words * len(asked)


def nearest_kernels(alphabet: list[str]) -> Iterator[tuple[str, Pairwise]]:
    """Yield ways to find the least distance of each of some words from others."""
    plain = EditDistance(alphabet)
    yield "ours, nearest", lambda asked, words: plain.nearest(asked, words)[1][:, 0]
    if find_spec("rapidfuzz"):
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import extractOne

        scorer = Levenshtein.distance
        yield (
            "rapidfuzz, extractOne",
            lambda asked, words: np.array([extractOne(word, words, scorer=scorer)[1] for word in asked]),
        )


def weighted_kernels(alphabet: list[str], opening: float, local: float) -> Iterator[tuple[str, Pairwise]]:
    """Yield ways to compute distances with a cost for each pair of letters."""
    options = {"gap_opening": opening or None, "local": local or None, "symmetric": not local}
    ours = EditDistance(alphabet, deletion=1.0, **options)
    ours.pairwise(["a"], ["b"])
    ours.costs_ = costs = random_costs(len(alphabet), local)
    yield "ours", ours.pairwise
    scores = local - costs[:-1, :-1].astype(float)

    def as_distances(scores: Any, asked: list[str]) -> np.ndarray:
        return local * np.array([len(word) for word in asked])[:, None] - np.array(scores)

    if find_spec("parasail"):
        import parasail

        matrix = parasail.matrix_create("".join(alphabet), 1, 0, case_sensitive=True)
        for i, j in np.ndindex(scores.shape):
            matrix[i, j] = int(2 * scores[i, j])
        of_profile = parasail.sw_scan_profile_sat if local else parasail.nw_scan_profile_sat
        first, further = int(2 * (opening + 2.0)), 4

        def compare(asked: list[str], words: list[str]) -> np.ndarray:
            profiles = (parasail.profile_create_sat(word, matrix) for word in asked)
            found = [[of_profile(it, word, first, further).score / 2 for word in words] for it in profiles]
            return as_distances(found, asked)

        yield "parasail", compare
    if find_spec("Bio"):
        from Bio.Align import PairwiseAligner, substitution_matrices

        mode = "local" if local else "global"
        aligner = PairwiseAligner(mode=mode, open_gap_score=-2.0 - opening, extend_gap_score=-2.0)
        aligner.substitution_matrix = substitution_matrices.Array("".join(alphabet), 2, scores)
        yield (
            "Biopython",
            lambda asked, words: as_distances([[aligner.score(x, y) for y in words] for x in asked], asked),
        )


def compare_kernels(task: Task, n_pairs: int) -> None:
    """Print pairs a second, of words and of longer sequences."""
    alphabet = list(ascii_lowercase)
    print(f"{n_pairs} random pairs: greatest difference {check_kernels(alphabet, n_pairs):.1e}", flush=True)
    known, asked = ([word for word in words if set(word) <= set(alphabet)] for words in (task.words, task.queries))
    words, rows = known[:: len(known) // 1000][:1000], []
    rng = np.random.default_rng(0)
    long = ["".join(rng.choice(alphabet, size)) for size in rng.integers(250, 350, 70)]
    kinds: dict[str, Callable[[], Iterator[tuple[str, Pairwise]]]] = {
        "all 1": lambda: uniform_kernels(alphabet),
        "all 1, the nearest": lambda: nearest_kernels(alphabet),
        "of pairs": lambda: weighted_kernels(alphabet, 0.0, 0.0),
        "of pairs, affine gaps": lambda: weighted_kernels(alphabet, OPENING, 0.0),
        "of pairs, affine gaps, local": lambda: weighted_kernels(alphabet, OPENING, LOCAL),
    }
    expected: dict[tuple[str, int], np.ndarray] = {}
    for kind, kernels in kinds.items():
        for name, pairwise in kernels():
            rates = []
            others = known if "nearest" in kind else words
            for first, second in ((asked, others), (long[:20], long[20:])):
                pairwise(first[:2], second[:2])
                times = []
                for _ in range(3):
                    began = process_time()
                    distances = pairwise(first, second)
                    times.append(process_time() - began)
                np.testing.assert_array_equal(distances, expected.setdefault((kind, len(first)), distances))
                rates.append(len(first) * len(second) / np.median(times) / 1e6)
            rows.append((kind, name, *rates))
            print(kind, name, flush=True)
    print(tabulate(rows, ("costs", "kernel", "millions a second", "of 300 letters"), floatfmt=("", "", ".2f", ".4f")))


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
