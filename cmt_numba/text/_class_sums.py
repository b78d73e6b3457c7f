"""Scores of classes by the features of their texts: class sums with corrections."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._kernels import GrowingColumns, require
from . import _class_sum_kernels as kernels
from ._base import MOST
from ._class_sum_kernels import N_COMPETITORS, MarginSettings
from ._hash_kernels import N_COLUMNS, N_KINDS, Weighing
from ._hashing import DocumentFrequencies, HashedTexts, LabelledTexts

_FACTORS = np.array([1.0, 0.6, 0.6], np.float32)  # weights of words, n-grams and pairs
_MANY_LABELS, _MOST = 500, 0.02  # with more labels, n-grams in more than this fraction of texts are ignored
USUAL = MarginSettings(0.6, 0.5, 0.0)
SOFT, SOFTER = MarginSettings(1.0, 3.0, 0.0), MarginSettings(1.0, 10.0, 0.0)  # for wrong labels
_MOST_MEMBERS = 128  # texts of a label that tell which features have weights for it
_CLOSE_ENOUGH = 0.03  # training ends when a pass moves the dual variables by less than this fraction of their sum
_N_FEATURES = N_KINDS * N_COLUMNS
_SPARE = 1.25  # capacity of new arrays, relative to their size


class ClassSums(files.WithFields):
    """The sum of each class's feature weights, with corrections that make each text's class lead by a margin.

    A text has weights of its features, and may have a vector as further features. The score of a class is the cosine
    between the text and the class sum, plus the inner product of the text and the corrections. The corrections are
    those of a support vector machine, and each stored text has dual variables. So texts that are added later, with the
    texts that they affect, end where training all texts would end.

    - ``postings``: sums and corrections, listed by feature.
    - ``squares``: the squared length of each label's sum.
    - ``weights``: the weight that each feature of each stored text has in the sums.
    - ``duals``: the dual variables of each stored text.
    - ``vectors``: the part of the texts' vectors, if texts have vectors.
    """

    FIELDS = files.FieldTable(
        columns=files.ArrayField(np.int32, bounds=(0, _N_FEATURES - 1)),
        sizes=files.ArrayField(np.int32, bounds=(1, np.inf)),
        labels=files.ArrayField(np.int32, bounds=(0, np.inf)),
        **dict.fromkeys(("sums", "corrections", "stored"), files.ArrayField(np.float32, bounds=(-MOST, MOST))),
        squares=files.ArrayField(np.float64, bounds=(0, MOST)),
        competitors=files.ArrayField(np.int32, n_axes=2, bounds=(0, np.inf)),
        dual_weights=files.ArrayField(np.float32, n_axes=2, bounds=(0, MOST)),
        limits=files.ArrayField(np.float32, bounds=(-MOST, MOST)),
        **dict.fromkeys(
            ("vector_sums", "vector_corrections"), files.ArrayField(np.float32, n_axes=2, bounds=(-MOST, MOST))
        ),
        biases=files.ArrayField(np.float32, bounds=(-MOST, MOST)),
        margin=files.RealField(0.0, 10.0),
        slack=files.RealField(1e-3, 1e3),
        share=files.RealField(0.0, 10.0),
    )

    def __init__(
        self,
        postings: kernels.FeatureLists,
        squares: np.ndarray,
        stored: np.ndarray,
        duals: kernels.DualVariables,
        vectors: kernels.VectorSums,
        settings: MarginSettings,
    ) -> None:
        self.postings, self.squares, self.vectors, self.settings = postings, squares, vectors, settings
        self.weights, self._duals = GrowingColumns(stored), GrowingColumns(*duals)

    @classmethod
    def of(cls, texts: LabelledTexts) -> "ClassSums":
        """Return the sums of all texts, without corrections."""
        hashed, frequencies, labels, n_labels, importance = texts[:5]
        weighed = frequencies.weigh(hashed, _weighing(frequencies, n_labels))
        weights = weighed.weights * np.repeat(importance, np.diff(hashed.starts))
        return cls.of_weights(texts, weights, _no_duals(labels.size), USUAL)

    @classmethod
    def of_weights(
        cls, texts: LabelledTexts, weights: np.ndarray, duals: kernels.DualVariables, settings: MarginSettings
    ) -> "ClassSums":
        """Return the sums and corrections of weights in the sums and of dual variables."""
        hashed, _, labels, n_labels, importance = texts[:5]
        sizes = np.diff(hashed.starts)
        used = np.flatnonzero(weights)
        of_text = np.repeat(np.arange(labels.size), sizes)[used]
        columns, weights_used = hashed.columns[used].astype(np.int64) * n_labels, weights[used]
        entries, places = np.unique(columns + labels[of_text], return_inverse=True)
        sums = np.bincount(places, weights_used, entries.size)
        shares = weights_used / importance[of_text]
        corrections = np.bincount(places, shares * duals.weights.sum(axis=1)[of_text], entries.size)
        for competitors, amounts in zip(duals.competitors.T, duals.weights.T, strict=True):
            has = np.flatnonzero(amounts[of_text])
            wanted = columns[has] + competitors[of_text[has]]
            at = np.minimum(np.searchsorted(entries, wanted), entries.size - 1)
            there = entries[at] == wanted
            taken = (shares[has] * amounts[of_text[has]])[there]
            corrections -= np.bincount(at[there], taken, entries.size)
        columns, of_entries = np.divmod(entries, n_labels)
        squares = np.bincount(of_entries, sums.astype(np.float32).astype(np.float64) ** 2, n_labels)
        none = np.zeros((n_labels, 0), np.float32)
        vectors = kernels.VectorSums(texts.vectors[:0], none, none, np.zeros(n_labels, np.float32))
        made = cls(_listed(columns, of_entries, sums, corrections), squares, weights, duals, vectors, settings)
        made.sum_vectors(texts)
        return made

    def sum_vectors(self, texts: LabelledTexts) -> None:
        """Compute the part of the texts' vectors, and the biases, anew."""
        n, of_texts = texts.labels.size, np.repeat(np.arange(texts.labels.size), np.diff(texts.hashed.starts))
        is_in = np.zeros(n, np.float32)  # whether the text is in the sums
        is_in[of_texts[self.stored != 0.0]] = 1.0

        def shares_of(labels: np.ndarray, amounts: np.ndarray) -> scipy.sparse.csc_array:
            starts = np.arange(n + 1) * (labels.size // max(1, n))
            return scipy.sparse.csr_array((amounts.ravel(), labels.ravel(), starts), (n, texts.n_labels)).T

        sums = np.asarray(shares_of(texts.labels, is_in * texts.importance) @ texts.vectors)
        weights = is_in[:, None] * self.duals.weights
        labels = np.column_stack([texts.labels, self.duals.competitors])
        shares = shares_of(labels, np.column_stack([weights.sum(axis=1), -weights]))
        corrections, biases = np.asarray(shares @ texts.vectors), kernels.CONSTANT * shares.sum(axis=1)
        before, after = (np.square(part, dtype=np.float64).sum(axis=1) for part in (self.vectors.sums, sums))
        self.squares = np.maximum(0.0, self.squares + after - before)
        self.vectors = kernels.VectorSums(texts.vectors, sums, corrections, biases)

    @property
    def stored(self) -> np.ndarray:
        """The array of ``weights``: float32. The array may be modified in place."""
        return self.weights.columns[0]

    @property
    def _sums(self) -> kernels.Sums:
        return kernels.Sums(self.postings, self.squares, self.vectors)

    @property
    def duals(self) -> kernels.DualVariables:
        """The dual variables of the stored texts. The arrays may be modified in place."""
        return kernels.DualVariables(*self._duals.columns)

    def copy(self) -> "ClassSums":
        postings = kernels.FeatureLists(*(array.copy() for array in self.postings))
        duals = kernels.DualVariables(*(array.copy() for array in self.duals))
        of_texts, *of_labels = self.vectors
        vectors = kernels.VectorSums(of_texts, *(part.copy() for part in of_labels))
        return ClassSums(postings, self.squares.copy(), self.stored.copy(), duals, vectors, self.settings)

    # Learning

    def train(self, texts: LabelledTexts, chosen: np.ndarray, generator: np.random.Generator, n_passes: int) -> None:
        """Train on the texts at the positions ``chosen``, in at most ``n_passes``, until their dual variables settle.

        A pass omits the texts that the last pass did not move. A pass over all chosen texts comes first and last.
        """
        weighing, active = _weighing(texts.frequencies, texts.n_labels), chosen
        for _ in range(n_passes):
            order, moved = generator.permutation(active), np.empty(active.size, np.float32)
            lessons = kernels.Lessons(texts.labels, texts.importance, order, moved)
            kernels.learn_margins(self._sums, texts.hashed, self.stored, self.duals, lessons, weighing, self.settings)
            if moved.sum() > _CLOSE_ENOUGH * self.duals.weights[chosen].sum():
                active = order[moved > 0.0]
            elif active.size == chosen.size:
                break
            else:
                active = chosen

    def refresh(self, texts: LabelledTexts, positions: np.ndarray, *, removes: bool = False) -> None:
        """Give the texts at ``positions`` their current weights in the sums, or remove them from the sums."""
        weighing = _weighing(texts.frequencies, texts.n_labels)
        if removes:
            weighing = weighing._replace(factors=np.zeros_like(_FACTORS))
        lessons = kernels.Lessons(texts.labels, texts.importance, positions)
        arrays = self.postings, self.squares, self.vectors, texts.hashed, self.stored, self.duals
        kernels.refresh_texts(*arrays, lessons, weighing)

    def add(self, hashed: HashedTexts, labels: np.ndarray, n_labels: int, vectors: np.ndarray) -> None:
        """Make room for new texts, which have weight 0 until they are refreshed or trained.

        ``vectors`` are those of all stored texts and the new ones.
        """
        for i in range(labels.size):
            columns = hashed.columns[hashed.starts[i] : hashed.starts[i + 1]]
            done = kernels.add_postings(self.postings, columns, labels[i])
            while done < columns.size:
                self._grow()
                columns = columns[done:]
                done = kernels.add_postings(self.postings, columns, labels[i])
        weights = self.weights.appended(np.zeros(hashed.columns.size, np.float32))
        duals = self._duals.appended(*_no_duals(labels.size))
        room = 0, n_labels - self.squares.size
        if room[1]:
            sums, corrections = (np.pad(part, (room, (0, 0))) for part in self.vectors[1:3])
            biases = np.pad(self.vectors.biases, room)
            self.vectors = kernels.VectorSums(vectors, sums, corrections, biases)
        else:
            self.vectors = self.vectors._replace(of_texts=vectors)
        self.squares = np.pad(self.squares, room)
        self.weights, self._duals = weights, duals

    def undo_add(self, hashed: HashedTexts, biases: np.ndarray, n_weights: int, n_texts: int) -> None:
        """Undo :meth:`add` for texts of weight 0. The biases and numbers are those before."""
        lists, n_labels = self.postings, biases.size
        for column in hashed.columns.tolist():  # a list ends with its latest labels
            while (n := lists.sizes[column]) > 0 and lists.labels[lists.starts[column] + n - 1] >= n_labels:
                lists.sizes[column] -= 1
        self.squares, self.weights = self.squares[:n_labels], GrowingColumns(self.stored[:n_weights])
        sums, corrections = self.vectors.sums[:n_labels], self.vectors.corrections[:n_labels]
        self.vectors = kernels.VectorSums(self.vectors.of_texts[:n_texts], sums, corrections, biases)
        competitors, weights, limits = (array[:n_texts] for array in self.duals)
        is_gone = competitors >= n_labels
        competitors[is_gone], weights[is_gone] = 0, 0.0
        self._duals = GrowingColumns(competitors, weights, limits)

    def _grow(self) -> None:
        old = self.postings
        parts = (old.labels, old.sums, old.corrections)
        labels, sums, corrections = (np.pad(part, (0, part.size)) for part in parts)
        self.postings = old._replace(labels=labels, sums=sums, corrections=corrections)

    def without(self, texts: LabelledTexts, kept: np.ndarray, is_kept: np.ndarray, places: np.ndarray) -> "ClassSums":
        """Return the sums without the removed texts.

        ``texts`` are the remaining texts, at the positions ``kept``, ``is_kept`` masks their entries in ``stored``, and
        ``places[label]`` is the new number of a label or -1.
        """
        competitors, weights, limits = (array[kept] for array in self.duals)
        competitors = places[competitors].astype(np.int32)
        weights[competitors < 0] = 0.0
        duals = kernels.DualVariables(np.maximum(competitors, 0), weights, limits)
        return ClassSums.of_weights(texts, self.stored[is_kept], duals, self.settings)

    def scores(self, hashed: HashedTexts, frequencies: DocumentFrequencies, vectors: np.ndarray) -> np.ndarray:
        """Return the score of each label for each text, given their vectors: float32, shape (n_texts, n_labels)."""
        texts = frequencies.weigh(hashed, _weighing(frequencies, self.squares.size))
        scores = np.empty((texts.starts.size - 1, self.squares.size), np.float32)
        kernels.score_labels(self.postings, self.squares, self.vectors._replace(of_texts=vectors), texts, scores)
        return scores

    def affected_by(self, texts: LabelledTexts, label: int, chosen: np.ndarray, most: int) -> np.ndarray:
        """Return up to ``most`` of the texts ``chosen`` that a label, which is not theirs, affects most.

        It comes too close to these texts, or they hold it off further than necessary.
        """
        members = np.flatnonzero(texts.labels == label)[-_MOST_MEMBERS:]
        lessons = kernels.Lessons(texts.labels, texts.importance, chosen)
        violations = np.empty(chosen.size, np.float32)
        arrays = self._sums, texts.hashed, self.stored, self.duals
        kernels.measure_violations(*arrays, lessons, label, members, violations)
        largest = np.argsort(-violations, kind="stable")[:most]
        return chosen[largest[violations[largest] > 0.0]]

    def n_entries_of(self, hashed: HashedTexts) -> int:
        """Return how many entries the scores of texts add up."""
        return int(self.postings.sizes[hashed.columns].sum(dtype=np.int64))

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
            squares=self.squares,
            stored=self.stored,
            competitors=self.duals.competitors,
            dual_weights=self.duals.weights,
            limits=self.duals.limits,
            vector_sums=self.vectors.sums,
            vector_corrections=self.vectors.corrections,
            biases=self.vectors.biases,
            **self.settings._asdict(),
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "ClassSums":
        columns, sizes, labels, squares = (values[name] for name in ("columns", "sizes", "labels", "squares"))
        sound = columns.shape == sizes.shape and sizes.sum(dtype=np.int64) == labels.size
        require(sound, "each listed feature must have labels")
        sums, corrections = values["sums"], values["corrections"]
        require(labels.shape == sums.shape == corrections.shape, "each entry must have a sum and a correction")
        require(np.all(labels < squares.size), "each entry must have a label")
        of_entries = np.repeat(columns, sizes).astype(np.int64)
        require(np.all(np.diff(of_entries * squares.size + labels) > 0), "entries must be in ascending order")
        duals = kernels.DualVariables(*(values[name] for name in ("competitors", "dual_weights", "limits")))
        require(duals.competitors.shape == duals.weights.shape, "each dual variable must have a competitor")
        sound = duals.weights.shape == (duals.limits.size, N_COMPETITORS)
        require(sound, "each text must have its competitors and a limit")
        require(np.all(duals.competitors < squares.size), "each competitor must be a label")
        settings = MarginSettings(*(values[name] for name in MarginSettings._fields))
        of_labels = values["vector_sums"], values["vector_corrections"], values["biases"]
        sound = of_labels[0].shape == of_labels[1].shape and len(of_labels[0]) == squares.size
        require(sound, "each label must have a sum and a correction of vectors")
        require(of_labels[2].shape == squares.shape, "each label must have a bias")
        vectors = kernels.VectorSums(np.zeros((duals.limits.size, of_labels[0].shape[1]), np.float32), *of_labels)
        return cls(_listed(of_entries, labels, sums, corrections), squares, values["stored"], duals, vectors, settings)


def _no_duals(n: int) -> kernels.DualVariables:
    competitors, weights = np.zeros((n, N_COMPETITORS), np.int32), np.zeros((n, N_COMPETITORS), np.float32)
    return kernels.DualVariables(competitors, weights, np.zeros(n, np.float32))


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
