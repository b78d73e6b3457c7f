"""Compare learned keys of texts, and word vectors, with fastText."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import gzip
import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr
from shared.labelled_sets import few_of_each, read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.text import FastTextClassifier, SubwordVectors

commands = Commands(__doc__)

PARTS = "mr", "subj", "cr", "mpqa", "sst1", "sst2", "trec"


class LabelledTexts(NamedTuple):
    """Labelled texts to learn from, and labelled queries."""

    texts: list[str]
    y: np.ndarray
    queries: list[str]
    answers: np.ndarray


class Result(NamedTuple):
    """The results of an engine: error, seconds to learn, and microseconds per query."""

    error: float
    learn: float
    query: float


def shots(folder: Path, name: str, n_shots: int) -> LabelledTexts:
    """Return ``n_shots`` texts of each class, and all texts of the test part."""
    train, test = (read_lines(folder / name / f"{part}.jsonl.gz") for part in ("train", "test"))
    kept = [train[i] for i in few_of_each(np.array([line["label"] for line in train]), n_shots)]
    return _texts(kept, test)


def sentences(folder: Path, name: str) -> LabelledTexts:
    """Return labelled sentences, and queries."""
    lines = read_lines(folder / "sentclass" / f"{name}.jsonl.gz")
    if lines[0].get("split"):
        return _texts([line for line in lines if line["split"] == "train"], [x for x in lines if x["split"] == "test"])
    order = [lines[i] for i in np.random.RandomState(0).permutation(len(lines))]
    return _texts(order[len(lines) // 10 :], order[: len(lines) // 10])


def _texts(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> LabelledTexts:
    texts, queries = ([" ".join(re.findall(r"\w+", line["text"].lower())) for line in part] for part in (train, test))
    labels, answers = (np.array([str(line["label"]) for line in part]) for part in (train, test))
    return LabelledTexts(texts, labels, queries, answers)


SETS: dict[str, Callable[[Path], LabelledTexts]] = {
    "clinc150, 5 shots": lambda folder: shots(folder, "clinc150", 5),
    "clinc150, 100 shots": lambda folder: shots(folder, "clinc150", 100),
    "wikipara1k, 3 shots": lambda folder: shots(folder, "wikipara1k", 3),
    "wikipara1k, 20 shots": lambda folder: shots(folder, "wikipara1k", 20),
    **{name: partial(sentences, name=name) for name in PARTS},
}


def measured(texts: LabelledTexts, model: Any, warm: Any) -> Result:
    """Return the results of a model; a similar model first compiles all kernels."""
    few = np.concatenate([np.flatnonzero(texts.y == label)[:5] for label in np.unique(texts.y)[:20]])
    warm.fit([texts.texts[i] for i in few], texts.y[few]).predict(texts.queries[:2])
    _, learned = timed(model.fit, texts.texts, texts.y)
    found, asked = timed(model.predict, texts.queries)
    return Result(float((found != texts.answers).mean()), learned, 1e6 * asked / len(texts.queries))


def ask_fasttext(interpreter: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of the library fastText, run by an interpreter that has it."""
    worker = [interpreter, str(Path(__file__).parents[1] / "shared/fasttext_worker.py")]
    done = subprocess.run(worker, input=json.dumps(task), stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def by_fasttext(texts: LabelledTexts, interpreter: str, **options: Any) -> Result:
    """Learn with the library fastText."""
    classes, labels = np.unique(texts.y, return_inverse=True)
    task = {"texts": texts.texts, "labels": labels.tolist(), "queries": texts.queries, "options": options}
    done = ask_fasttext(interpreter, task)
    found = classes[np.array(done["answers"])]
    return Result(float((found != texts.answers).mean()), done["learned"], 1e6 * done["asked"] / len(texts.queries))


def engines(arguments: argparse.Namespace) -> dict[str, Callable[[LabelledTexts], Result]]:
    """Return the engines to compare."""
    twice = lambda make: lambda texts: measured(texts, make(), make())  # noqa: E731
    given = {"epoch": 25, "lr": 0.5, "wordNgrams": 2, "dim": 100, "bucket": 2_000_000}
    given |= {"minn": 3 if arguments.max_n else 0, "maxn": arguments.max_n}
    found: dict[str, Callable[[LabelledTexts], Result]] = {}
    found["FastTextClassifier"] = twice(partial(FastTextClassifier, random_state=0))
    if arguments.fasttext:
        found["fastText"] = partial(by_fasttext, interpreter=arguments.fasttext, loss="softmax", **given)
    words = partial(TfidfVectorizer, sublinear_tf=True)
    found["linear, tf-idf"] = twice(lambda: make_pipeline(words(), LinearSVC()))
    found["CMTClassifier, tf-idf"] = twice(
        lambda: make_pipeline(words(dtype=np.float32), CMTClassifier(random_state=0))
    )
    return found


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=SETS, default=list(SETS)),
    argument("--engines", help="run only engines whose names contain this"),
    argument("--max-n", type=int, default=5, help="longest character n-gram of fastText"),
    argument("--fasttext", metavar="PYTHON"),
)
def classes(options: argparse.Namespace) -> None:
    """Compare classifiers of texts: ``FastTextClassifier``, words as keys, the library fastText, and a linear model.

    Expects the sets of texts of ``shared/labelled_sets.py``, and
    ``sentclass/{mr,subj,cr,mpqa,sst1,sst2,trec}.jsonl.gz`` with a line ``{"text": ..., "label": ..., "split": ...}``
    for each sentence. Sets without splits are shuffled, and a tenth of each is used for queries.

    Prints the error, seconds to learn, and microseconds per query in one batch for each engine: CPU time on one thread.
    Kernels are compiled before timing. ``--fasttext`` names an interpreter that has fastText, which is then included.
    """
    for name in options.sets:
        texts = SETS[name](options.data)
        rows = []
        for engine, measure in engines(options).items():
            if options.engines is None or re.search(options.engines, engine):
                rows.append([engine, *measure(texts)])
        print(f"\n{name}\n")
        print(tabulate(rows, ["engine", "error", "learn, s", "query, us"], "github", floatfmt=".4g"), flush=True)


WORD_PAIRS = "EN-WS-353-ALL", "EN-RW-STANFORD", "EN-MEN-TR-3k", "EN-SIMLEX-999"


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


class ByFastText(NamedTuple):
    """The results of the library fastText."""

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
        """Return the best word by sums; fastText has no search by products."""
        return [(self.right.get((a, b, c), "") if method == "add" else "", 0.0)]


def vectors_by_fasttext(
    texts: list[str], words: list[str], questions: list[Any], arguments: Any
) -> tuple[ByFastText, Any]:
    """Return the vectors that fastText has learned, with the wall time and the CPU time in seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(" ".join(re.findall(r"\w+", text.lower())) + "\n" for text in texts)
        file.flush()
        options = {"model": "skipgram", "dim": 100, "epoch": arguments.epochs, "thread": arguments.threads}
        asked = [[line[name].lower() for name in "abc"] for line in questions]
        task = {"corpus": file.name, "words": words, "analogies": asked, "options": options}
        done = ask_fasttext(arguments.fasttext, task)
    right = {tuple(each): best for each, best in zip(asked, done["analogies"], strict=True) if best is not None}
    return ByFastText(done["vectors"], set(done["learned"]), right), (done["seconds"], done["processor"])


def likeness(vectors: SubwordVectors | ByFastText, pairs: list[dict[str, Any]]) -> list[Any]:
    """Return correlations over all pairs, over known words, and over unseen words, each with the number of pairs."""
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


def analogies(vectors: Any, questions: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the number of questions of each kind, and the accuracy by sums and by products."""
    rows = []
    for kind in sorted({line["kind"] for line in questions}):
        some = [{name: line[name].lower() for name in "abcd"} for line in questions if line["kind"] == kind]
        shares = [
            np.mean([vectors.analogies(x["a"], x["b"], x["c"], 1, method=method)[0][0] == x["d"] for x in some])
            for method in ("add", "mul")
        ]
        rows.append([kind, len(some), *shares])
    return rows


def show(name: str, vectors: Any, seconds: tuple[float, float], n_words: int, pairs: Any, questions: Any) -> None:
    """Print the tables of one engine."""
    by_clock, of_processor = (n_words / each for each in seconds)
    print(f"\n{name}: {by_clock:,.0f} words/s by wall time, {of_processor:,.0f} words/s of CPU time\n")
    rows = [[name, *likeness(vectors, [pair for pair in pairs if pair["set"] == name])] for name in SETS]
    headers = ["set", "all", "pairs", "known words", "pairs", "unknown words", "pairs"]
    print(tabulate(rows, headers, "github", floatfmt=".3f"), flush=True)
    headers = ["analogies", "questions", "sums", "products"]
    print(f"\n{tabulate(analogies(vectors, questions), headers, 'github', floatfmt='.3f')}", flush=True)


@commands.add(
    DATA,
    argument("--corpus", default="wikitext2", help="wikitext2, novels_en or a file"),
    argument("--words", type=int, help="learn only from this many words at the start of the corpus"),
    argument("--epochs", type=int, default=5),
    argument("--threads", type=int, default=1),
    argument("--analogies", type=int, default=1000, help="number of questions, drawn at random"),
    argument("--fasttext", metavar="PYTHON"),
)
def words(options: argparse.Namespace) -> None:
    """Compare word vectors with human judgements of similarity, and on analogies.

    Expects ``wordsim/wordsim.jsonl.gz`` with a line ``{"set": ..., "lang": "en", "w1": ..., "w2": ..., "score": ...}``
    for each pair of words, ``wordsim/questions_words.jsonl.gz`` with a line ``{"kind": ..., "a": ..., "b": ..., "c":
    ..., "d": ...}`` for each analogy, and a corpus: ``wikitext2/train.txt.gz`` (WikiText-2), ``novels_en/*.jsonl.gz``
    with the field ``text``, or any text file with one text per line.

    Prints the words per second in training, by wall time and by CPU time. For each set, prints Spearman's correlation
    over all pairs, over pairs of two known words, and over pairs with an unknown word. Also prints the accuracy on
    analogies of four known words, by sums and by products. ``--fasttext`` names an interpreter that has the library
    fastText: it learns from the same words with the same options and number of threads, and solves analogies by sums.
    Needs tabulate.
    """
    texts = corpus(options.data, options.corpus, options.words)
    n_words = options.epochs * sum(len(re.findall(r"\w+", text)) for text in texts)
    print(f"{n_words / options.epochs:,.0f} words, {options.epochs} epochs, {options.threads} thread(s)")
    SubwordVectors(4, min_count=1, n_epochs=1).fit(texts[:20])
    started, start = perf_counter(), process_time()
    vectors = SubwordVectors(n_epochs=options.epochs, n_jobs=options.threads, random_state=0).fit(texts)
    seconds = perf_counter() - started, process_time() - start
    pairs = [pair for pair in read_lines(options.data / "wordsim/wordsim.jsonl.gz") if pair["set"] in WORD_PAIRS]
    questions = read_lines(options.data / "wordsim/questions_words.jsonl.gz")
    questions = [line for line in questions if all(line[name].lower() in vectors for name in "abcd")]
    questions = [questions[i] for i in np.random.RandomState(0).permutation(len(questions))[: options.analogies]]
    show("SubwordVectors", vectors, seconds, n_words, pairs, questions)
    if options.fasttext:
        words = sorted({pair[side].lower() for pair in pairs for side in ("w1", "w2")})
        theirs, seconds = vectors_by_fasttext(texts, words, questions, options)
        show("fastText", theirs, seconds, n_words, pairs, questions)
