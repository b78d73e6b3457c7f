"""Scores of classes by the features of their texts: class sums with corrections."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import persistence as files
from .._forest import GrowingColumns, require
from . import _class_sum_kernels as kernels
from ._base import MOST
from ._hash_kernels import N_COLUMNS, N_KINDS, Weighing
from ._hashing import DocumentFrequencies, HashedTexts, LabelledTexts

_FACTORS = np.array([1.0, 0.4, 0.6], np.float32)  # weights of words, n-grams and pairs
_MANY_LABELS, _MOST = 500, 0.02  # with more labels, n-grams in more than this fraction of texts are ignored
_MARGIN = 0.3
_RATE = 0.6  # step size at the start of fit
_NEW_RATE, _OLD_RATE = 0.3, 0.7  # step sizes of new and of stored texts in partial_fit
_STEPS, _EPOCHS = 40_000, (2, 5)
_N_FEATURES = N_KINDS * N_COLUMNS
_NONE = np.empty(0, np.int64)
_SPARE = 1.25  # capacity of new arrays, relative to their size


class ClassSums(files.WithFields):
    """The sum of each class's feature weights, with corrections learned from errors.

    The score of a class is the cosine between the text and the class sum, plus the inner product of the text and the
    corrections. Sums and corrections change in place when a text is added, so the other texts are not learned again.

    - ``postings``: sums and corrections, listed by feature.
    - ``totals``: the number of texts of each label and the squared length of its sum.
    - ``weights``: the weight that each feature of each stored text has in the sums.
    """

    FIELDS = files.FieldTable(
        columns=files.ArrayField(np.int32, bounds=(0, _N_FEATURES - 1)),
        sizes=files.ArrayField(np.int32, bounds=(1, np.inf)),
        labels=files.ArrayField(np.int32, bounds=(0, np.inf)),
        **dict.fromkeys(("sums", "corrections", "stored"), files.ArrayField(np.float32, bounds=(-MOST, MOST))),
        squares=files.ArrayField(np.float64, bounds=(0, MOST)),
    )

    def __init__(self, postings: kernels.FeatureLists, totals: kernels.LabelTotals, stored: np.ndarray) -> None:
        self.postings, self.totals, self.weights = postings, totals, GrowingColumns(stored)

    @classmethod
    def learned(cls, texts: LabelledTexts, generator: np.random.Generator, later: np.ndarray = _NONE) -> "ClassSums":
        """Learn from all texts except those at the positions ``later``, which keep weight 0 until they are learned."""
        hashed, frequencies, labels, n_labels, importance = texts[:5]
        weighed = frequencies.weigh(hashed, _weighing(frequencies, n_labels))
        weights = weighed.weights * np.repeat(importance, np.diff(hashed.starts))
        made = cls.of_weights(hashed, weights, labels, n_labels)
        made.take_out(texts, later)
        now = np.delete(np.arange(labels.size), later)
        n_epochs = 2 if n_labels > _MANY_LABELS else int(np.clip(_STEPS // max(1, now.size), *_EPOCHS))
        fall = _RATE / max(1, now.size * n_epochs)
        for epoch in range(n_epochs):
            settings = kernels.MarginSettings(_MARGIN, _RATE - fall * epoch * now.size, fall)
            made._learn(texts, generator.permutation(now), settings)
        return made

    @classmethod
    def of_weights(
        cls, hashed: HashedTexts, weights: np.ndarray, labels: np.ndarray, n_labels: int, former: Any = None
    ) -> "ClassSums":
        """Return the sums of the weights.

        ``former`` contains the corrections to keep: ascending codes ``column * n_labels + label``, and their values.
        """
        of_features = np.repeat(labels, np.diff(hashed.starts))
        used = np.flatnonzero(weights)
        pairs = hashed.columns[used].astype(np.int64) * n_labels + of_features[used]
        entries, places = np.unique(pairs, return_inverse=True)
        sums = np.bincount(places, weights[used], entries.size)
        columns, of_entries = np.divmod(entries, n_labels)
        squares = np.bincount(of_entries, sums.astype(np.float32).astype(np.float64) ** 2, n_labels)
        corrections = np.zeros(entries.size, np.float32)
        if former is not None:
            known, values = former
            at = np.minimum(np.searchsorted(known, entries), known.size - 1)
            corrections = np.where(known[at] == entries, values[at], np.float32(0.0))
        postings = _listed(columns, of_entries, sums, corrections)
        return cls(postings, kernels.LabelTotals(squares, np.bincount(labels, minlength=n_labels)), weights)

    @property
    def stored(self) -> np.ndarray:
        """The array of ``weights``: float32. The array may be modified in place."""
        return self.weights.columns[0]

    def _learn(
        self, texts: LabelledTexts, order: np.ndarray, settings: kernels.MarginSettings, *, removes: bool = False
    ) -> None:
        weighing = _weighing(texts.frequencies, texts.n_labels)
        if removes:
            weighing = weighing._replace(factors=np.zeros_like(_FACTORS))
        n_old_labels = texts.n_old_labels
        n_old = texts.n_old if n_old_labels > 1 else 0  # a single class needs no corrections
        lessons = kernels.Lessons(texts.labels, texts.importance, order, n_old, n_old_labels)
        kernels.learn_margins(self.postings, self.totals, texts.hashed, self.stored, lessons, weighing, settings)

    def add(self, hashed: HashedTexts, labels: np.ndarray, n_labels: int) -> None:
        """Make room for new texts, which have weight 0 until they are learned."""
        for i in range(labels.size):
            columns = hashed.columns[hashed.starts[i] : hashed.starts[i + 1]]
            done = kernels.add_postings(self.postings, columns, labels[i])
            while done < columns.size:
                self._grow()
                columns = columns[done:]
                done = kernels.add_postings(self.postings, columns, labels[i])
        weights = self.weights.appended(np.zeros(hashed.columns.size, np.float32))
        more = n_labels - self.totals.counts.size
        totals = kernels.LabelTotals(*(np.pad(array, (0, more)) for array in self.totals)) if more else self.totals
        counts = totals.counts + np.bincount(labels, minlength=n_labels)
        self.totals, self.weights = kernels.LabelTotals(totals.squares, counts), weights

    def undo_add(self, hashed: HashedTexts, counts: np.ndarray, n_weights: int) -> None:
        """Undo :meth:`add` for texts of weight 0, where ``counts`` and ``n_weights`` are those before."""
        lists = self.postings
        for column in hashed.columns.tolist():  # a list ends with its latest labels
            while (n := lists.sizes[column]) > 0 and lists.labels[lists.starts[column] + n - 1] >= counts.size:
                lists.sizes[column] -= 1
        self.totals = kernels.LabelTotals(self.totals.squares[: counts.size], counts)
        self.weights = GrowingColumns(self.stored[:n_weights])

    def take_out(self, texts: LabelledTexts, positions: np.ndarray) -> None:
        """Give the texts at ``positions`` weight 0 in the sums. Corrections learned from them remain."""
        self._learn(texts, positions, kernels.MarginSettings(0.0, 0.0, 0.0), removes=True)

    def _grow(self) -> None:
        old = self.postings
        parts = (old.labels, old.sums, old.corrections)
        labels, sums, corrections = (np.pad(part, (0, part.size)) for part in parts)
        self.postings = old._replace(labels=labels, sums=sums, corrections=corrections)

    def learn_further(self, texts: LabelledTexts, new: np.ndarray, again: np.ndarray) -> None:
        """Learn the stored texts at the positions ``new`` for the first time, and those at ``again`` once more."""
        self._learn(texts, new, kernels.MarginSettings(_MARGIN, _NEW_RATE, 0.0))
        self._learn(texts, again, kernels.MarginSettings(_MARGIN, _OLD_RATE, 0.0))

    def add_up(self, texts: LabelledTexts, new: np.ndarray) -> None:
        """Add the stored texts at the positions ``new`` to the sums of their classes, without corrections."""
        self._learn(texts, new, kernels.MarginSettings(-np.inf, 0.0, 0.0))

    def raise_score(self, hashed: HashedTexts, frequencies: DocumentFrequencies, label: int, by: float) -> None:
        """Increase the score of a label for one stored text, mainly by features that few other texts have."""
        text = frequencies.weigh(hashed, _weighing(frequencies, self.totals.counts.size))
        shares = text.weights / frequencies.counts[text.columns]
        total = float(text.weights @ shares)
        if total > 0.0:
            kernels.raise_corrections(self.postings, text.columns, (by / total * shares).astype(np.float32), label)

    def without(self, hashed: HashedTexts, kept: np.ndarray, labels: np.ndarray, places: np.ndarray) -> "ClassSums":
        """Return the sums without the removed texts.

        ``hashed`` and ``labels`` are of the remaining texts, ``kept`` masks their entries in ``stored``, and
        ``places[label]`` is the new number of a label or -1.
        """
        columns, of_entries, _, corrections = self.entries()
        n_labels = int(places.max()) + 1
        there = places[of_entries] >= 0
        pairs = columns[there].astype(np.int64) * n_labels + places[of_entries[there]]
        return ClassSums.of_weights(hashed, self.stored[kept], labels, n_labels, (pairs, corrections[there]))

    def scores(self, hashed: HashedTexts, frequencies: DocumentFrequencies) -> np.ndarray:
        """Return the score of each label for each text: float32, shape (n_texts, n_labels)."""
        texts = frequencies.weigh(hashed, _weighing(frequencies, self.totals.counts.size))
        scores = np.empty((texts.starts.size - 1, self.totals.counts.size), np.float32)
        kernels.score_labels(self.postings, self.totals, texts, scores)
        return scores

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return four arrays: the feature, label, sum and correction of each entry of the postings."""
        postings = self.postings
        columns = np.flatnonzero(postings.sizes)
        sizes = postings.sizes[columns].astype(np.int64)
        ends = np.cumsum(sizes)
        at = np.repeat(postings.starts[columns] - ends + sizes, sizes) + np.arange(sizes.sum())
        return np.repeat(columns, sizes), postings.labels[at], postings.sums[at], postings.corrections[at]

    # Files

    def _packed(self) -> Any:
        columns, labels, sums, corrections = self.entries()
        first = np.flatnonzero(np.diff(columns, prepend=-1))
        return SimpleNamespace(
            columns=columns[first],
            sizes=np.diff(np.append(first, columns.size)),
            labels=labels,
            sums=sums,
            corrections=corrections,
            squares=self.totals.squares,
            stored=self.stored,
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "ClassSums":
        """Return the sums with these values. The caller counts the texts of each label."""
        columns, sizes, labels, squares = (values[name] for name in ("columns", "sizes", "labels", "squares"))
        sound = columns.shape == sizes.shape and sizes.sum(dtype=np.int64) == labels.size
        require(sound, "each listed feature must have labels")
        sums, corrections = values["sums"], values["corrections"]
        require(labels.shape == sums.shape == corrections.shape, "each entry must have a sum and a correction")
        require(np.all(labels < squares.size), "each entry must have a label")
        of_entries = np.repeat(columns, sizes).astype(np.int64)
        require(np.all(np.diff(of_entries * squares.size + labels) > 0), "entries must be in ascending order")
        totals = kernels.LabelTotals(squares, np.zeros(squares.size, np.int64))
        return cls(_listed(of_entries, labels, sums, corrections), totals, values["stored"])


def _weighing(frequencies: DocumentFrequencies, n_labels: int) -> Weighing:
    return frequencies.weighing(_FACTORS, most=_MOST if n_labels > _MANY_LABELS else 1.0)


def _listed(columns: np.ndarray, labels: np.ndarray, sums: np.ndarray, corrections: np.ndarray) -> kernels.FeatureLists:
    """Build the lists from entries that are sorted by feature, then by label."""
    sizes = np.bincount(columns, minlength=_N_FEATURES)
    starts, n = np.cumsum(sizes) - sizes, columns.size
    capacity = int(_SPARE * n) + 1024
    spare, counts = np.zeros((2, capacity), np.float32), sizes.astype(np.int32)
    room = np.zeros(capacity, np.int32), spare[0], spare[1], np.array([n])
    held = kernels.FeatureLists(starts, counts, counts.copy(), *room)
    held.labels[:n], held.sums[:n], held.corrections[:n] = labels, sums, corrections
    return held
