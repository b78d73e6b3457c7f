"""Compare vectors of words with what people say of the likeness of words, and ask them analogies.

    python asv_benchmarks/compare_vectors.py --data path/to/folder --corpus wikitext2

Expects ``wordsim/wordsim.jsonl.gz`` with a line ``{"set": ..., "lang": "en", "w1": ..., "w2": ..., "score": ...}`` for
each pair of words, ``wordsim/questions_words.jsonl.gz`` with a line ``{"kind": ..., "a": ..., "b": ..., "c": ...,
"d": ...}`` for each analogy, and a corpus: ``wikitext2/train.txt.gz`` (WikiText-2), ``novels_en/*.jsonl.gz`` of lines
with ``text``, or any text file with a text in each line.

Prints the number of words learned from in a second of processor time; for each set Spearman's correlation over all
pairs, over those whose words have both been learned, and over those with a word that has not; and the share of right
answers to analogies of four learned words, by sums and by products. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import gzip
import re
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from labelled_sets import read_lines
from scipy.stats import spearmanr
from tabulate import tabulate

from cmt_numba.text import SubwordVectors

SETS = "EN-WS-353-ALL", "EN-RW-STANFORD", "EN-MEN-TR-3k", "EN-SIMLEX-999"


def corpus(folder: Path, name: str, n_words: int | None) -> list[str]:
    """Return the texts of a corpus: its lines, up to a number of words."""
    tokens, paths = folder / name / "train.txt.gz", sorted((folder / name).glob("*.jsonl.gz"))
    if tokens.exists():
        with gzip.open(tokens, "rt", encoding="utf-8") as file:
            texts = [line.replace("<unk>", " ") for line in file]
    elif paths:
        texts = [line for path in paths for row in read_lines(path) for line in row["text"].splitlines()]
    else:
        texts = Path(name).read_text(encoding="utf-8").splitlines()
    texts = [text for text in texts if text.strip()]
    if n_words is not None:
        ends = np.cumsum([text.count(" ") + 1 for text in texts])
        texts = texts[: int(np.searchsorted(ends, n_words)) + 1]
    return texts


def likeness(vectors: SubwordVectors, pairs: list[dict[str, Any]]) -> list[Any]:
    """Return correlations over all pairs, over known words, and over unseen ones, each with the number of pairs."""
    words = [[pair[side].lower() for pair in pairs] for side in ("w1", "w2")]
    left, right = (vectors.word_vectors(side) for side in words)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = (left * right).sum(axis=1) / np.where(lengths > 0.0, lengths, 1.0)
    scores = np.array([pair["score"] for pair in pairs])
    known = np.array([one in vectors and other in vectors for one, other in zip(*words, strict=True)])
    found: list[Any] = []
    for some in (np.ones(known.size, bool), known, ~known):
        enough = np.count_nonzero(some) > 9
        found += [spearmanr(cosines[some], scores[some]).statistic if enough else None, int(some.sum())]
    return found


def analogies(vectors: SubwordVectors, questions: list[dict[str, Any]], n: int) -> list[list[Any]]:
    """Return for each kind the number of questions, and the shares of right answers by sums and by products."""
    asked = [{name: line[name].lower() for name in "abcd"} | {"kind": line["kind"]} for line in questions]
    asked = [line for line in asked if all(line[name] in vectors for name in "abcd")]
    asked = [asked[i] for i in np.random.RandomState(0).permutation(len(asked))[:n]]
    rows = []
    for kind in sorted({line["kind"] for line in asked}):
        some = [line for line in asked if line["kind"] == kind]
        shares = [
            np.mean([vectors.analogies(x["a"], x["b"], x["c"], 1, method=method)[0][0] == x["d"] for x in some])
            for method in ("add", "mul")
        ]
        rows.append([kind, len(some), *shares])
    return rows


def main() -> None:
    """Learn, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpus", default="wikitext2", help="wikitext2, novels_en or a file")
    parser.add_argument("--words", type=int, help="learn from the first of the corpus only")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--analogies", type=int, default=1000, help="questions asked, drawn at random")
    parser.add_argument("--save", type=Path, help="file to write the vectors to")
    arguments = parser.parse_args()
    texts = corpus(arguments.data, arguments.corpus, arguments.words)
    SubwordVectors(4, min_count=1, n_epochs=1).fit(texts[:20])
    start = process_time()
    vectors = SubwordVectors(n_epochs=arguments.epochs, random_state=0).fit(texts)
    seconds = process_time() - start
    n_words = sum(len(re.findall(r"\w+", text)) for text in texts)
    print(f"{n_words:,} words, {arguments.epochs * n_words / seconds:,.0f} a second\n")
    if arguments.save:
        vectors.save(arguments.save)
    pairs = read_lines(arguments.data / "wordsim/wordsim.jsonl.gz")
    rows = [[name, *likeness(vectors, [pair for pair in pairs if pair["set"] == name])] for name in SETS]
    headers = ["", "all", "pairs", "learned", "pairs", "unseen", "pairs"]
    print(tabulate(rows, headers, "github", floatfmt=".3f"), flush=True)
    rows = analogies(vectors, read_lines(arguments.data / "wordsim/questions_words.jsonl.gz"), arguments.analogies)
    print(f"\n{tabulate(rows, ['analogies', 'questions', 'by sums', 'by products'], 'github', floatfmt='.3f')}")


if __name__ == "__main__":
    main()
