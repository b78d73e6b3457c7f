"""Compare vectors of words with what people say of the likeness of words, and ask them analogies.

    python asv_benchmarks/compare_vectors.py --data path/to/folder --corpus wikitext2

Expects ``wordsim/wordsim.jsonl.gz`` with a line ``{"set": ..., "lang": "en", "w1": ..., "w2": ..., "score": ...}`` for
each pair of words, ``wordsim/questions_words.jsonl.gz`` with a line ``{"kind": ..., "a": ..., "b": ..., "c": ...,
"d": ...}`` for each analogy, and a corpus: ``wikitext2/train.txt.gz`` (WikiText-2), ``novels_en/*.jsonl.gz`` of lines
with ``text``, or any text file with a text in each line.

Prints the number of words learned from in a second, by the clock and of processor time; for each set Spearman's
correlation over all pairs, over those whose words have both been learned, and over those with a word that has not; and
the share of right answers to analogies of four learned words, by sums and by products. With ``--fasttext``, an
interpreter that has the library fastText, it learns from the same words with as many threads and the same options, and
answers analogies by sums. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import gzip
import json
import re
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple, Protocol

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


class Learned(Protocol):
    """What is compared: vectors of words."""

    def __contains__(self, word: str) -> bool:
        """Return whether a word has been learned."""

    def word_vectors(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words."""

    def analogies(self, a: str, b: str, c: str, k: int, *, method: str) -> list[tuple[str, float]]:
        """Return the words that are to ``c`` as ``b`` is to ``a``."""


class ByFastText(NamedTuple):
    """The answers of the library fastText."""

    vectors: dict[str, list[float]]
    learned: set[str]
    right: dict[tuple[str, str, str], str]

    def __contains__(self, word: object) -> bool:
        """Return whether a word has been learned."""
        return word in self.learned

    def word_vectors(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words."""
        return np.array([self.vectors[word] for word in words])

    def analogies(self, a: str, b: str, c: str, k: int, *, method: str) -> list[tuple[str, float]]:
        """Return the best word by sums, and none by products."""
        return [(self.right.get((a, b, c), "") if method == "add" else "", 0.0)]


def by_fasttext(texts: list[str], words: list[str], questions: list[Any], arguments: Any) -> tuple[ByFastText, Any]:
    """Return what fastText has learned, and its seconds by the clock and of processor time."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(" ".join(re.findall(r"\w+", text.lower())) + "\n" for text in texts)
        file.flush()
        options = {"model": "skipgram", "dim": 100, "epoch": arguments.epochs, "thread": arguments.threads}
        asked = [[line[name].lower() for name in "abc"] for line in questions]
        task = {"corpus": file.name, "words": words, "analogies": asked, "options": options}
        worker = [arguments.fasttext, str(Path(__file__).with_name("fasttext_worker.py"))]
        answer = subprocess.run(worker, input=json.dumps(task), stdout=subprocess.PIPE, text=True, check=True).stdout
    done = json.loads(answer)
    right = {tuple(each): best for each, best in zip(asked, done["analogies"], strict=True) if best is not None}
    return ByFastText(done["vectors"], set(done["learned"]), right), (done["seconds"], done["processor"])


def likeness(vectors: Learned, pairs: list[dict[str, Any]]) -> list[Any]:
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


def analogies(vectors: Learned, questions: list[dict[str, Any]]) -> list[list[Any]]:
    """Return for each kind the number of questions, and the shares of right answers by sums and by products."""
    rows = []
    for kind in sorted({line["kind"] for line in questions}):
        some = [{name: line[name].lower() for name in "abcd"} for line in questions if line["kind"] == kind]
        shares = [
            np.mean([vectors.analogies(x["a"], x["b"], x["c"], 1, method=method)[0][0] == x["d"] for x in some])
            for method in ("add", "mul")
        ]
        rows.append([kind, len(some), *shares])
    return rows


def show(name: str, vectors: Learned, seconds: tuple[float, float], n_words: int, pairs: Any, questions: Any) -> None:
    """Print the tables of one engine."""
    by_clock, of_processor = (n_words / each for each in seconds)
    print(f"\n{name}: {by_clock:,.0f} words a second, {of_processor:,.0f} a second of processor time\n")
    rows = [[name, *likeness(vectors, [pair for pair in pairs if pair["set"] == name])] for name in SETS]
    headers = ["", "all", "pairs", "learned", "pairs", "unseen", "pairs"]
    print(tabulate(rows, headers, "github", floatfmt=".3f"), flush=True)
    headers = ["analogies", "questions", "by sums", "by products"]
    print(f"\n{tabulate(analogies(vectors, questions), headers, 'github', floatfmt='.3f')}", flush=True)


def main() -> None:
    """Learn, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpus", default="wikitext2", help="wikitext2, novels_en or a file")
    parser.add_argument("--words", type=int, help="learn from the first of the corpus only")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--analogies", type=int, default=1000, help="questions asked, drawn at random")
    parser.add_argument("--fasttext", metavar="PYTHON")
    parser.add_argument("--save", type=Path, help="file to write the vectors to")
    arguments = parser.parse_args()
    texts = corpus(arguments.data, arguments.corpus, arguments.words)
    n_words = arguments.epochs * sum(len(re.findall(r"\w+", text)) for text in texts)
    print(f"{n_words / arguments.epochs:,.0f} words, {arguments.epochs} epochs, {arguments.threads} thread(s)")
    SubwordVectors(4, min_count=1, n_epochs=1).fit(texts[:20])
    started, start = perf_counter(), process_time()
    vectors = SubwordVectors(n_epochs=arguments.epochs, n_jobs=arguments.threads, random_state=0).fit(texts)
    seconds = perf_counter() - started, process_time() - start
    if arguments.save:
        vectors.save(arguments.save)
    pairs = [pair for pair in read_lines(arguments.data / "wordsim/wordsim.jsonl.gz") if pair["set"] in SETS]
    questions = read_lines(arguments.data / "wordsim/questions_words.jsonl.gz")
    questions = [line for line in questions if all(line[name].lower() in vectors for name in "abcd")]
    questions = [questions[i] for i in np.random.RandomState(0).permutation(len(questions))[: arguments.analogies]]
    show("SubwordVectors", vectors, seconds, n_words, pairs, questions)
    if arguments.fasttext:
        words = sorted({pair[side].lower() for pair in pairs for side in ("w1", "w2")})
        theirs, seconds = by_fasttext(texts, words, questions, arguments)
        show("fastText", theirs, seconds, n_words, pairs, questions)


if __name__ == "__main__":
    main()
