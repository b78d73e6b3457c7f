"""Compare word vectors with those of fastText."""

from shared.commands import DATA, Commands, argument, print_table, timed  # before other libraries

# isort: split
import argparse
import gzip
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from shared.labelled_sets import read_lines

from cmt_numba.text import SubwordVectors

commands = Commands(__doc__)

WORD_PAIRS = "EN-WS-353-ALL", "EN-RW-STANFORD", "EN-MEN-TR-3k", "EN-SIMLEX-999"

FASTTEXT = """
import fasttext, json, sys, time
task = json.load(sys.stdin)
start = time.process_time()
options = {"model": "skipgram", "dim": 100, "thread": 1, "verbose": 0}
model = fasttext.train_unsupervised(task["corpus"], epoch=task["epochs"], **options)
seconds = time.process_time() - start
vectors = {word: model.get_word_vector(word).tolist() for word in task["words"]}
learned = sorted(set(model.words) & set(task["words"]))
json.dump({"seconds": seconds, "vectors": vectors, "learned": learned}, sys.stdout)
"""
"""A program for another interpreter, since fastText may need another version of NumPy."""


def corpus(folder: Path, name: str) -> list[str]:
    """Return the texts of a corpus: its lines."""
    tokens, paths = folder / name / "train.txt.gz", sorted((folder / name).glob("*.jsonl.gz"))
    if tokens.exists():
        with gzip.open(tokens, "rt", encoding="utf-8") as file:
            texts = [line.replace("<unk>", " ") for line in file]
    elif paths:
        texts = [line for path in paths for row in read_lines(path) for line in row["text"].splitlines()]
    else:
        texts = Path(name).read_text(encoding="utf-8").splitlines()
    return [text for text in texts if text.strip()]


def by_fasttext(texts: list[str], words: list[str], epochs: int, python: str) -> dict[str, Any]:
    """Return the vectors that fastText has learned, the learned words, and the seconds of CPU time."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(" ".join(re.findall(r"\w+", text.lower())) + "\n" for text in texts)
        file.flush()
        task = json.dumps({"corpus": file.name, "words": words, "epochs": epochs})
        done = subprocess.run([python, "-c", FASTTEXT], input=task, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def correlations(pairs: list[dict[str, Any]], vectors: dict[str, Any], known: set[str]) -> list[float]:
    """Return Spearman's correlation over all pairs of a set, over known words, and over pairs with an unknown word."""
    sides = [[pair[side].lower() for pair in pairs] for side in ("w1", "w2")]
    left, right = (np.array([vectors[word] for word in side]) for side in sides)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines, scores = (left * right).sum(axis=1) / np.maximum(lengths, 1e-12), np.array([p["score"] for p in pairs])
    both = np.array([one in known and other in known for one, other in zip(*sides, strict=True)])
    return [spearmanr(cosines[some], scores[some]).statistic for some in (both | ~both, both, ~both)]


@commands.add(
    DATA,
    argument("--corpus", default="wikitext2", help="wikitext2, novels_en or a file"),
    argument("--epochs", type=int, default=5),
    argument("--fasttext", metavar="PYTHON", help="interpreter that has the library fastText"),
)
def words(options: argparse.Namespace) -> None:
    """Compare word vectors with human judgements of similarity.

    Expects ``wordsim/wordsim.jsonl.gz`` with a line ``{"set": ..., "w1": ..., "w2": ..., "score": ...}`` for each pair
    of words, and a corpus: ``wikitext2/train.txt.gz`` (WikiText-2), ``novels_en/*.jsonl.gz`` with the field ``text``,
    or any text file with one text per line. Prints the words per second of CPU time on one thread and, for each set,
    Spearman's correlation over all pairs, over pairs of two known words, and over pairs with an unknown word.
    """
    texts = corpus(options.data, options.corpus)
    pairs = [pair for pair in read_lines(options.data / "wordsim/wordsim.jsonl.gz") if pair["set"] in WORD_PAIRS]
    words = sorted({pair[side].lower() for pair in pairs for side in ("w1", "w2")})
    SubwordVectors(4, min_count=1, n_epochs=1).fit(texts[:20])  # compile
    model, seconds = timed(SubwordVectors(n_epochs=options.epochs, n_jobs=1, random_state=0).fit, texts)
    vectors = dict(zip(words, model.word_vectors(words), strict=True))
    found = [("SubwordVectors", seconds, vectors, {word for word in words if word in model})]
    if options.fasttext:
        theirs = by_fasttext(texts, words, options.epochs, options.fasttext)
        found.append(("fastText", theirs["seconds"], theirs["vectors"], set(theirs["learned"])))
    n_words = options.epochs * sum(len(re.findall(r"\w+", text)) for text in texts)
    rows = [
        [who, n_words / seconds, name, *correlations([pair for pair in pairs if pair["set"] == name], vectors, known)]
        for who, seconds, vectors, known in found
        for name in WORD_PAIRS
    ]
    print_table(["library", "words/s", "set", "all", "known words", "unknown words"], rows)


main = commands.main

if __name__ == "__main__":
    main()
