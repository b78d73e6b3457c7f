"""The estimators on made data: time to fit and to predict, memory, and errors."""

import numpy as np
import scipy.sparse

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

from .keys import FORMS, draw_words, make_labelled, reworded, rows_of_words

_LABELS = 1000
_SHOTS = 10


class Classifier:
    """10 examples of each of 1,000 classes."""

    params = (FORMS,)
    param_names = ("form",)
    number = 1
    timeout = 600

    def setup(self, form: str) -> None:
        """Make the examples and fit a classifier, which has everything compiled."""
        self.data = make_labelled(form, _LABELS, _SHOTS)
        self.classifier = CMTClassifier(random_state=0).fit(self.data.examples, self.data.labels)
        self.classifier.predict(self.data.queries[:1])

    def time_fit(self, form: str) -> None:
        """Learn from all examples."""
        CMTClassifier(random_state=0).fit(self.data.examples, self.data.labels)

    def time_predict_1000(self, form: str) -> None:
        """Ask all at once."""
        self.classifier.predict(self.data.queries)

    def peakmem_fit(self, form: str) -> None:
        """Learn from all examples; the classifier of the setup is in memory too."""
        self.time_fit(form)

    def track_error(self, form: str) -> float:
        """Return the share of wrong answers."""
        return float(np.mean(self.classifier.predict(self.data.queries) != self.data.answers))

    def track_share_of_classes(self, form: str) -> float:
        """Return which share of the classes is looked at."""
        return float(np.mean(self.classifier.count_candidates(self.data.queries))) / _LABELS


class Multilabel:
    """6,000 examples of two of 2,000 labels each: too many labels to ask each of them."""

    params = (FORMS,)
    param_names = ("form",)
    number = 1
    timeout = 600

    def setup(self, form: str) -> None:
        """Make the examples and fit a classifier, which has everything compiled."""
        self.examples, self.marks, self.queries, self.answers = self._make(form)
        self.classifier = CMTMultilabelClassifier(random_state=0).fit(self.examples, self.marks)
        self.classifier.predict(self.queries[:1])

    def _make(self, form: str) -> tuple:
        """Return examples that are the sum of two objects, the objects' labels, and the same for queries."""
        data = make_labelled(form, 2 * _LABELS, 6, n_queries=2000)
        half, n_queries = data.labels.size // 2, data.answers.size // 2
        return (
            data.examples[:half] + data.examples[half:],
            _indicators(data.labels[:half], data.labels[half:]),
            data.queries[:n_queries] + data.queries[n_queries:],
            _indicators(data.answers[:n_queries], data.answers[n_queries:]),
        )

    def time_fit(self, form: str) -> None:
        """Learn from all examples."""
        CMTMultilabelClassifier(random_state=0).fit(self.examples, self.marks)

    def time_predict_1000(self, form: str) -> None:
        """Ask all at once."""
        self.classifier.predict(self.queries)

    def peakmem_fit(self, form: str) -> None:
        """Learn from all examples; the classifier of the setup is in memory too."""
        self.time_fit(form)

    def track_wrong_labels(self, form: str) -> float:
        """Return how many labels of a row are wrong or missing."""
        wrong = scipy.sparse.csr_array(self.classifier.predict(self.queries)) != self.answers
        return float(wrong.sum()) / self.answers.shape[0]

    def track_error_of_best(self, form: str) -> float:
        """Return how often the label that fits best is wrong."""
        best = self.classifier.top_labels(self.queries, 1)[0][:, 0]
        return 1.0 - float(np.mean(self.answers[np.arange(best.size), best]))


class Retriever:
    """10,000 vectors stored under texts that say, in noisy words, what the vector is."""

    params = (["key", "value"],)
    param_names = ("search by",)
    number = 1
    timeout = 600

    def setup(self, search: str) -> None:
        """Make keys and values and fit a retriever, which has everything compiled."""
        rng = np.random.default_rng(0)
        words, vectors = draw_words(rng, _LABELS), rng.standard_normal((_LABELS, 32), dtype=np.float32)
        stored, asked = rng.integers(_LABELS, size=10_000), rng.integers(_LABELS, size=1000)
        self.keys, self.values = rows_of_words(reworded(words[stored], rng, 0.5)), vectors[stored]
        self.queries, self.answers = rows_of_words(reworded(words[asked], rng, 0.5)), vectors[asked]
        self.retriever = CMTRetriever(search, random_state=0).fit(self.keys, self.values)
        self.retriever.query(self.queries[:1])

    def time_fit(self, search: str) -> None:
        """Store everything."""
        CMTRetriever(search, random_state=0).fit(self.keys, self.values)

    def time_query_1000(self, search: str) -> None:
        """Ask all at once."""
        self.retriever.query(self.queries)

    def peakmem_fit(self, search: str) -> None:
        """Store everything; the retriever of the setup is in memory too."""
        self.time_fit(search)

    def track_error(self, search: str) -> float:
        """Return what the reward, the cosine of what is found and what was meant, falls short of 1 on average."""
        return 1.0 - self.retriever.score(self.queries, self.answers)


def _indicators(first: np.ndarray, second: np.ndarray) -> scipy.sparse.csr_array:
    """Return which rows have which labels: two of them, or twice the same."""
    n = first.size
    rows = np.tile(np.arange(n), 2)
    marks = scipy.sparse.csr_array((np.ones(2 * n), (rows, np.concatenate([first, second]))), (n, 2 * _LABELS))
    return (marks > 0).astype(np.int8)
