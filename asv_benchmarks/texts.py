"""Compare classifiers of texts: errors, calibration, learning of single texts, and rejection."""

from __future__ import annotations

from shared.commands import Commands, argument, print_table, timed

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import MOST_QUERIES, calibration_error, read_lines
from shared.texts import TOKEN
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier
from cmt_numba.text import FastTextClassifier, TextClassifier
from cmt_numba.text._encoders import Encoder

commands = Commands(__doc__)

N_WARMING = 300  # texts used to compile kernels
WORDS: dict[str, Any] = {"sublinear_tf": True, "token_pattern": TOKEN}


class Taught(NamedTuple):
    """Texts with classes to learn from, queries, and out-of-scope questions."""

    texts: list[str]
    labels: np.ndarray
    queries: list[str]
    answers: np.ndarray
    others: list[str]

    def shots(self, n: int | None, seed: int) -> Taught:
        """Return at most ``n`` texts of each class, in another order."""
        order: Any = np.random.default_rng(seed).permutation(len(self.texts))
        if n is not None:
            seen: Counter[Any] = Counter()
            order = [i for i in order if (seen.update([self.labels[i]]) or seen[self.labels[i]]) <= n]
        return self._replace(texts=[self.texts[i] for i in order], labels=self.labels[order])

    def of_classes(self, kept: np.ndarray) -> Taught:
        """Return the texts of some classes."""
        here, asked = np.isin(self.labels, kept), np.isin(self.answers, kept)
        texts = [self.texts[i] for i in np.flatnonzero(here)]
        queries = [self.queries[i] for i in np.flatnonzero(asked)]
        return self._replace(texts=texts, labels=self.labels[here], queries=queries, answers=self.answers[asked])


def taught(folder: Path) -> Taught:
    """Return the texts of a folder."""
    train, test = (read_lines(folder / f"{part}.jsonl.gz") for part in ("train", "test"))
    chosen = np.random.default_rng(0).permutation(len(test))[:MOST_QUERIES]
    test = [test[i] for i in chosen]
    out = read_lines(folder / "oos.jsonl.gz") if (folder / "oos.jsonl.gz").exists() else []
    parts = [[line["text"] for line in lines] for lines in (train, test, out)]
    labels, answers = (np.array([line["label"] for line in lines]) for lines in (train, test))
    return Taught(parts[0], labels, parts[1], answers, parts[2])


def words_and_characters() -> Any:
    """Return the features of the rivals: words, and n-grams of characters."""
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    return make_union(TfidfVectorizer(**WORDS), characters)


def rival_classifiers() -> dict[str, Callable[[], Any]]:
    """Return the rivals: linear models and FastTextClassifier, on words and with characters."""
    return {
        "LinearSVC, words": lambda: make_pipeline(TfidfVectorizer(**WORDS), LinearSVC()),
        "LinearSVC, and characters": lambda: make_pipeline(words_and_characters(), LinearSVC()),
        "logistic, words": lambda: make_pipeline(TfidfVectorizer(**WORDS), LogisticRegression(C=10.0)),
        "logistic, and characters": lambda: make_pipeline(words_and_characters(), LogisticRegression(C=10.0)),
        "FastTextClassifier, words": lambda: FastTextClassifier(max_n=0, random_state=0),
        "FastTextClassifier": lambda: FastTextClassifier(random_state=0),
    }


def encoder_rivals(encoder: str) -> dict[str, Callable[[], Any]]:
    """Return classifiers on the vectors of an encoder, alone or with words. Each text is encoded once."""
    encode = FunctionTransformer(Encoder(encoder, most_remembered=10**6).encode)
    return {
        f"logistic, {encoder}": lambda: make_pipeline(encode, LogisticRegression(C=10.0)),
        f"logistic, {encoder} and words": lambda: make_pipeline(
            make_union(encode, words_and_characters()), LogisticRegression(C=10.0)
        ),
        f"CMTClassifier, {encoder}": lambda: make_pipeline(encode, CMTClassifier(random_state=0)),
    }


def out_of_scope(classifier: Any, data: Taught) -> float:
    """Return the area under the curve when the highest probability separates questions in scope from others."""
    sure = [classifier.top_classes(texts, 1)[1][:, 0] for texts in (data.queries, data.others)]
    return float(roc_auc_score(np.repeat([1, 0], [len(part) for part in sure]), np.concatenate(sure)))


@commands.add(
    argument("folders", type=Path, nargs="+", help="folders with train.jsonl.gz and test.jsonl.gz"),
    argument("--shots", nargs="+", default=["5", "20", "all"], help="texts per class"),
    argument("--seeds", type=int, default=3),
    argument("--encoder", choices=["use"]),
    argument("--alone", action="store_true", help="leave out the other libraries"),
)
def classifier(options: argparse.Namespace) -> None:
    """Compare ``TextClassifier`` with linear models and ``FastTextClassifier``, on words and with characters.

    The folders have lines ``{"text": ..., "label": ...}`` and may have out-of-scope questions in ``oos.jsonl.gz``.

    Prints errors (averaged over seeds), seconds to fit and microseconds to classify one text: CPU time on one thread.
    For ``TextClassifier``, also prints the calibration error, the area under the curve for out-of-scope questions,
    megabytes of the file, and the mean time and the longest time to learn one text. With ``--encoder``, also compares
    classifiers on the vectors of the encoder, alone or with words.
    """
    ours = {"TextClassifier": lambda: TextClassifier(random_state=0)}
    if options.encoder:
        ours[f"TextClassifier, {options.encoder}"] = lambda: TextClassifier(options.encoder, random_state=0)
    learners = ours if options.alone else ours | rival_classifiers()
    if options.encoder and not options.alone:
        learners |= encoder_rivals(options.encoder)
    for folder in options.folders:
        data, rows, further = taught(folder), [], []
        for name, learner in learners.items():
            learner().fit(data.texts[:N_WARMING], data.labels[:N_WARMING]).predict(data.queries[:1])  # compile
            row: list[Any] = [name]
            for shots in options.shots:
                n = None if shots == "all" else int(shots)
                fitted = [fit_timed(learner, data.shots(n, seed)) for seed in range(1 if n is None else options.seeds)]
                row.append(np.mean([np.mean(one.predict(data.queries) != data.answers) for one, _ in fitted]))
                row.append(np.mean([seconds for _, seconds in fitted]))
                if name in ours:
                    further.append([name, shots, *np.mean([facts(one, data) for one, _ in fitted], axis=0)])
            rows.append([*row, 1e6 * seconds_of_each(fitted[0][0].predict, [[text] for text in data.queries])])
        headers = [h for shots in options.shots for h in (f"{shots} shots", "fit, s")]
        print_table(["", *headers, "classify one, us"], rows, folder.name)
        names = ["", "shots", "calibration error", "out of scope", "file, MB", "learn one, us", "longest, ms"]
        print_table(names, further, f"{folder.name}, further")


@commands.add(
    argument("folder", type=Path, help="clinc150"),
    argument("--classes", type=int, nargs="+", default=[1, 2, 10, 30]),
    argument("--shots", type=int, default=5),
    argument("--draws", type=int, default=5),
)
def rejection(options: argparse.Namespace) -> None:
    """Measure ``reject_below=0.5`` with a few classes, on related and on out-of-scope texts.

    Prints the fractions of related texts that are rejected and of out-of-scope texts that are accepted, and the area
    under the curve, averaged over draws of classes.
    """
    data, rows = taught(options.folder), []
    for n in options.classes:
        results = []
        for draw in range(options.draws):
            classes = np.random.default_rng(draw).permutation(np.unique(data.labels))[:n]
            few = data.of_classes(classes).shots(options.shots, draw)
            fitted = TextClassifier(random_state=0).fit(few.texts, few.labels)
            rejected = [np.mean(fitted.top_classes(texts, 1)[1] < 0.5) for texts in (few.queries, few.others)]
            results.append([rejected[0], 1.0 - rejected[1], out_of_scope(fitted, few)])
        rows.append([n, *np.mean(results, axis=0)])
    names = ["classes", "related, rejected", "out of scope, accepted", "area under the curve"]
    print_table(names, rows)


def fit_timed(learner: Callable[[], Any], data: Taught) -> tuple[Any, float]:
    """Return a fitted classifier, and the seconds to fit it."""
    return timed(lambda: learner().fit(data.texts, data.labels))


def seconds_of_each(work: Callable[..., Any], *arguments: list[Any]) -> float:
    """Return the mean seconds of a call over lists of arguments."""
    calls = list(zip(*arguments, strict=True))[:N_WARMING]
    return timed(lambda: [work(*given) for given in calls])[1] / len(calls)


def facts(classifier: Any, data: Taught) -> list[float]:
    """Return the calibration error, out-of-scope detection, file size and learning times of a fitted classifier."""
    auc = out_of_scope(classifier, data) if data.others else np.nan
    with tempfile.NamedTemporaryFile() as file:
        classifier.save(file.name)
        size = Path(file.name).stat().st_size
    error = calibration_error(classifier, data.queries, data.answers, n_bins=10)
    pairs = list(zip(data.queries, data.answers, strict=True))[:N_WARMING]
    learned = [timed(classifier.partial_fit, [pair[0]], [pair[1]])[1] for pair in pairs]
    return [error, auc, size / 1e6, 1e6 * np.mean(learned[1:]), 1e3 * max(learned[1:])]


if __name__ == "__main__":
    commands.main()
