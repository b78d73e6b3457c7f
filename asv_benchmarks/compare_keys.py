"""Compare classifiers of texts: learned keys and words as keys, beside the library fastText and a linear model.

    python asv_benchmarks/compare_keys.py --data path/to/folder --sets "clinc150, 5 shots" trec

Expects the sets of texts of ``labelled_sets.py``, and ``sentclass/{mr,subj,cr,mpqa,sst1,sst2,trec}.jsonl.gz`` with a
line ``{"text": ..., "label": ..., "split": ...}`` for each sentence. Sets without splits are shuffled, and a tenth of
them is asked.

Prints for each engine the error, seconds to learn, and microseconds to answer a query in one batch: processor time on
one thread. Kernels are compiled before. With ``--corpus``, a text file, vectors of words are learned from its lines
first, and used to start from. fastText is included with ``--fasttext``, an interpreter that has it. ``--classes 10000
300000`` prints instead what a text costs with so many classes, from ``packages/summaries.jsonl.gz``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from labelled_sets import few_of_each, read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, HybridVectorizer, SubwordVectors

PARTS = "mr", "subj", "cr", "mpqa", "sst1", "sst2", "trec"
MOST_SOFTMAX = 10_000  # classes that it is measured with
LOSSES = {"softmax": "softmax", "forest": None, "hierarchical": "hs", "negative": "ns"}  # and those of fastText


class Texts(NamedTuple):
    """Texts to learn from and to ask with, and their classes."""

    texts: list[str]
    y: np.ndarray
    queries: list[str]
    answers: np.ndarray


class Result(NamedTuple):
    """How an engine did: seconds to learn, microseconds for a query."""

    error: float
    learn: float
    query: float


def shots(folder: Path, name: str, n_shots: int) -> Texts:
    """Return ``n_shots`` texts of each class, and all texts of the test part."""
    train, test = (read_lines(folder / name / f"{part}.jsonl.gz") for part in ("train", "test"))
    kept = [train[i] for i in few_of_each(np.array([line["label"] for line in train]), n_shots)]
    return _texts(kept, test)


def sentences(folder: Path, name: str) -> Texts:
    """Return sentences, and those to ask with."""
    lines = read_lines(folder / "sentclass" / f"{name}.jsonl.gz")
    if lines[0].get("split"):
        return _texts([line for line in lines if line["split"] == "train"], [x for x in lines if x["split"] == "test"])
    order = [lines[i] for i in np.random.RandomState(0).permutation(len(lines))]
    return _texts(order[len(lines) // 10 :], order[: len(lines) // 10])


def _texts(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> Texts:
    texts, queries = ([" ".join(re.findall(r"\w+", line["text"].lower())) for line in part] for part in (train, test))
    labels, answers = (np.array([str(line["label"]) for line in part]) for part in (train, test))
    return Texts(texts, labels, queries, answers)


SETS: dict[str, Callable[[Path], Texts]] = {
    "clinc150, 5 shots": lambda folder: shots(folder, "clinc150", 5),
    "clinc150, 100 shots": lambda folder: shots(folder, "clinc150", 100),
    "wikipara1k, 3 shots": lambda folder: shots(folder, "wikipara1k", 3),
    "wikipara1k, 20 shots": lambda folder: shots(folder, "wikipara1k", 20),
    **{name: partial(sentences, name=name) for name in PARTS},
}


def measured(texts: Texts, model: Any, warm: Any) -> Result:
    """Return how a model does, after another one like it has compiled its kernels."""
    few = np.concatenate([np.flatnonzero(texts.y == label)[:5] for label in np.unique(texts.y)[:20]])
    warm.fit([texts.texts[i] for i in few], texts.y[few]).predict(texts.queries[:2])
    start = process_time()
    model.fit(texts.texts, texts.y)
    learned = process_time()
    found = model.predict(texts.queries)
    asked = process_time() - learned
    return Result(float((found != texts.answers).mean()), learned - start, 1e6 * asked / len(texts.queries))


def by_fasttext(texts: Texts, interpreter: str, **options: Any) -> Result:
    """Learn with the library fastText."""
    classes, labels = np.unique(texts.y, return_inverse=True)
    task = {"texts": texts.texts, "labels": labels.tolist(), "queries": texts.queries, "options": options}
    worker = [interpreter, str(Path(__file__).with_name("fasttext_worker.py"))]
    done = json.loads(subprocess.run(worker, input=json.dumps(task), capture_output=True, text=True, check=True).stdout)
    found = classes[np.array(done["answers"])]
    return Result(float((found != texts.answers).mean()), done["learned"], 1e6 * done["asked"] / len(texts.queries))


def by_number_of_classes(folder: Path, n_classes: int, loss: str) -> list[float]:
    """Return microseconds to learn a text once and to find its five best classes, one text for each class."""
    lines = read_lines(folder / "packages/summaries.jsonl.gz")[:n_classes]
    texts = [f"{line['name']} {line['summary']}" for line in lines]
    make = partial(FastTextClassifier, loss=loss, max_n=0, word_ngrams=1, random_state=0)
    make(n_epochs=1).fit(texts[:20], np.arange(20)).top_classes(texts[:2])
    times = []
    for n_epochs in (1, 7):
        start = process_time()
        model = make(n_epochs=n_epochs).fit(texts, np.arange(n_classes))
        times.append(process_time() - start)
    hidden = model.transform(texts[:500])
    model.transform = lambda texts: hidden  # what a query costs besides its words
    start = process_time()
    model.top_classes(texts[:500])
    asked = process_time() - start
    return [1e6 * (times[1] - times[0]) / 6 / n_classes, 1e6 * asked / 500]


def engines(arguments: argparse.Namespace, vectors: SubwordVectors | None) -> dict[str, Callable[[Texts], Result]]:
    """Return what is compared."""
    twice = lambda make: lambda texts: measured(texts, make(), make())  # noqa: E731
    given = {"epoch": arguments.epochs, "lr": arguments.rate, "wordNgrams": 2, "dim": 100, "bucket": 2_000_000}
    given |= {"minn": 3 if arguments.max_n else 0, "maxn": arguments.max_n}
    found: dict[str, Callable[[Texts], Result]] = {}
    for loss, theirs in LOSSES.items():
        found[f"FastTextClassifier, {loss}"] = twice(partial(FastTextClassifier, loss=loss, random_state=0))
        if arguments.fasttext and theirs is not None:
            found[f"fastText, {theirs}"] = partial(by_fasttext, interpreter=arguments.fasttext, loss=theirs, **given)
    classifier = partial(CMTClassifier, random_state=0)
    found["linear, tf-idf"] = twice(lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True), LinearSVC()))
    found["CMTClassifier, BM25"] = twice(lambda: make_pipeline(BM25Vectorizer(norm="l2"), classifier()))
    found["CMTClassifier, tf-idf"] = twice(
        lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True, dtype=np.float32), classifier())
    )
    found["CMTClassifier, learned"] = twice(lambda: make_pipeline(FastTextClassifier(random_state=0), classifier()))
    for weight in (*arguments.weights, "held_out"):
        found[f"CMTClassifier, hybrid, {weight}"] = twice(
            lambda weight=weight: make_pipeline(HybridVectorizer(weight=weight), classifier())
        )
    if vectors is not None:
        found["FastTextClassifier, softmax, vectors"] = twice(
            partial(FastTextClassifier, vectors=vectors, random_state=0)
        )
    return found


def main() -> None:
    """Print one table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--engines", help="part of the names of engines")
    parser.add_argument("--epochs", type=int, default=25, help="of fastText")
    parser.add_argument("--rate", type=float, default=0.5, help="of fastText")
    parser.add_argument("--max-n", type=int, default=5, help="of fastText")
    parser.add_argument("--weights", type=float, nargs="*", default=[0.1, 0.3, 0.5], help="of the dense part")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--fasttext", metavar="PYTHON")
    parser.add_argument("--classes", type=int, nargs="*", default=[], help="measure costs with so many classes instead")
    arguments = parser.parse_args()
    if arguments.classes:
        rows = [
            [n, loss, *by_number_of_classes(arguments.data, n, loss)]
            for n in arguments.classes
            for loss in LOSSES
            if (loss != "softmax" or n <= MOST_SOFTMAX) and re.search(arguments.engines or "", loss)
        ]
        print(tabulate(rows, ["classes", "loss", "learn a text, us", "query, us"], "github", floatfmt=".4g"))
        return
    vectors = None
    if arguments.corpus is not None:
        with arguments.corpus.open(encoding="utf-8") as file:
            vectors = SubwordVectors(random_state=0).fit(file)
    for name in arguments.sets:
        texts = SETS[name](arguments.data)
        rows = []
        for engine, measure in engines(arguments, vectors).items():
            if arguments.engines is None or re.search(arguments.engines, engine):
                rows.append([engine, *measure(texts)])
        print(f"\n{name}\n")
        print(tabulate(rows, ["", "error", "learn, s", "query, us"], "github", floatfmt=".4g"), flush=True)


if __name__ == "__main__":
    main()
