"""Texts in and classes out: time, memory and error of text classifiers with default parameters."""

import pickle
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cmt_numba.text import FastTextClassifier, TextClassifier

from .keys import draw_words, reworded

LABELS = 300
CLASSIFIERS = {"TextClassifier": TextClassifier, "FastTextClassifier": FastTextClassifier}
_SHOTS = 10
_QUERIES = 1000
_FEW = 50  # texts that trigger all compilation
_SINGLE = 100  # texts predicted or learned one at a time


def make_texts(labels: np.ndarray, seed: int) -> list[str]:
    """Return a text of 20 words for each label; six of ten words of the label's text are replaced."""
    words = draw_words(np.random.default_rng(0), LABELS)
    return [" ".join(f"w{word}" for word in row) for row in reworded(words[labels], np.random.default_rng(seed), 0.6)]


class WithTexts:
    """Base class of the benchmarks of text classifiers, which run in the folder that contains them."""

    params = (list(CLASSIFIERS),)
    param_names = ("classifier",)
    number = 1
    timer = process_time
    timeout = 600

    def setup_cache(self) -> None:
        """Fit all classifiers."""
        for name in CLASSIFIERS:
            self.make_data()
            with _path(name).open("wb") as file:
                pickle.dump(self.fit(name), file, pickle.HIGHEST_PROTOCOL)

    def setup(self, name: str) -> None:
        """Make the texts, load the fitted classifier, and compile all kernels."""
        self.make_data()
        self.fit(name, _FEW)
        with _path(name).open("rb") as file:
            self.fitted = pickle.load(file)
        self.fitted.predict(self.queries[:1])

    def make_data(self) -> None:
        """Make the texts."""
        self.labels = np.arange(_SHOTS * LABELS) % LABELS
        self.answers = np.random.default_rng(1).integers(LABELS, size=_QUERIES)
        self.texts, self.queries = make_texts(self.labels, 2), make_texts(self.answers, 3)

    def fit(self, name: str, n: int | None = None) -> Any:
        """Return a classifier fitted on all texts, or on the first ``n``."""
        return CLASSIFIERS[name](random_state=0).fit(self.texts[:n], self.labels[:n])


class Classify(WithTexts):
    """Learn ten texts of each of 300 classes, and predict others."""

    def time_fit(self, name: str) -> None:
        """Fit on all texts."""
        self.fit(name)

    def time_predict_1000(self, name: str) -> None:
        """Predict all queries in one batch."""
        self.fitted.predict(self.queries)

    def time_predict_100_single_texts(self, name: str) -> None:
        """Predict one text at a time."""
        for query in self.queries[:_SINGLE]:
            self.fitted.predict([query])

    def peakmem_fit(self, name: str) -> None:
        """Fit on all texts. The previously fitted classifier is also in memory."""
        self.fit(name)

    def track_error(self, name: str) -> float:
        """Return the fraction of wrong predictions."""
        return float(np.mean(self.fitted.predict(self.queries) != self.answers))


class Correct(WithTexts):
    """Learn corrections one at a time."""

    params = (["TextClassifier"],)

    def setup(self, name: str) -> None:
        """Load the classifier and compile all kernels."""
        super().setup(name)
        self.fitted.partial_fit(self.queries[-1:], self.answers[-1:])

    def time_partial_fit_100_single_texts(self, name: str) -> None:
        """Learn one text at a time."""
        for i in range(_SINGLE):
            self.fitted.partial_fit([self.queries[i]], [self.answers[i]])


def _path(name: str) -> Path:
    return Path(f"{name}.pickle")
