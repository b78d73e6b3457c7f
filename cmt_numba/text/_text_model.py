"""The model of a text classifier: stored texts, document frequencies, and several scorers of classes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._forest import require
from ..estimators import CMTClassifier, estimator_contents, estimator_of
from ..persistence import as_part, generator_fields, of_part, read_array, read_generator, take
from ._base import are_moderate, of_prefix, with_prefix
from ._hash_kernels import N_COLUMNS, N_KINDS
from ._hashing import DocumentFrequencies, HashedTexts
from ._learned_vectors import LearnedVectors
from ._mixture import FIRST_WEIGHTS, folds_of, learn_weights_of_scores, weighted_sum
from ._stored_texts import MOST_IDS, StoredTexts

_MOST_CLASSES = 500  # maximum number of classes for learned vectors, which score all classes for each text
_FEW_TEXTS = 5_000  # maximum number of texts for which keys have all features
_ALL_FEATURES, _WORDS = np.array([1.0, 0.4, 0.6], np.float32), np.array([1.0, 0.0, 0.0], np.float32)
_MOST_CELLS = 1 << 22  # maximum size of a matrix of scores
_FEWEST_SHARED = 1024  # minimum number of shared columns of keys
_MANY = 0.1  # ratio of new to stored texts above which all texts are learned again
_SMALL = 3_000  # maximum number of texts of a small model
_GROWTH, _GROWTH_OF_SMALL = 1.0, 0.1  # relative changes after which all texts are learned again
_GROWTH_OF_WEIGHTS = 1.5  # growth factor after which the weights of scores are also learned again


class KeySlots:
    """The columns of keys: one for each feature of the texts learned together, and some shared by all other features.

    Parameters
    ----------
    known : ndarray of int32
        The hashed columns of these features, ascending.
    """

    def __init__(self, known: np.ndarray) -> None:
        shared = max(_FEWEST_SHARED, known.size // 2)
        self.known, self.n_slots = known, known.size + shared
        self.table = (known.size + np.arange(N_KINDS * N_COLUMNS) % shared).astype(np.int32)
        self.table[known] = np.arange(known.size)


class TextModel:
    """The learned state of a text classifier.

    A :class:`~cmt_numba.CMTClassifier` scores classes by the sparse features of a text, learned vectors score them by
    all features, and with an encoder a second CMTClassifier scores them by its vectors.

    Attributes
    ----------
    stored : StoredTexts
        The texts.
    frequencies : DocumentFrequencies
        The document frequencies of their features.
    factors : ndarray of float32, shape (3,)
        The weights of words, n-grams of characters and pairs of words in the keys.
    slots : KeySlots
        The columns of the keys.
    keys : CMTClassifier
        Scores by sparse features. Its classes are those of the model.
    vectors : LearnedVectors or None
        Scores by learned vectors, unless there are too many classes.
    dense : CMTClassifier or None
        Scores by the vectors of an encoder.
    weights : ndarray of float64
        The weights of these scores.
    n_learned : int
        The number of texts when all texts were last learned.
    n_changed : int
        The number of texts added and removed since then.
    n_weighed : int
        The number of texts when the weights were last learned.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.stored = StoredTexts()
        self.frequencies = DocumentFrequencies(np.zeros(N_KINDS * N_COLUMNS, np.int32), 0)
        self.factors = _ALL_FEATURES
        self.slots = KeySlots(np.empty(0, np.int32))
        self.keys: Any = None
        self.vectors: LearnedVectors | None = None
        self.dense: Any = None
        self.weights = np.empty(0)
        self.n_learned = self.n_changed = self.n_weighed = 0

    @classmethod
    def learned(
        cls,
        stored: StoredTexts,
        y: np.ndarray,
        generator: np.random.Generator,
        weighed: tuple[np.ndarray, int] | None = None,
    ) -> TextModel:
        """Learn texts and their classes ``y``; return the model.

        The weights of scores are learned from held-out texts, unless ``weighed`` contains them and the number of texts
        from which they were learned.
        """
        model = cls(generator)
        model.frequencies = DocumentFrequencies.of(stored.hashed)
        classes, stored.labels[:] = np.unique(y, return_inverse=True)  # further labels are appended here
        has_vectors = classes.size <= _MOST_CLASSES
        model.factors = _WORDS if has_vectors and len(stored) > _FEW_TEXTS else _ALL_FEATURES
        model.stored = stored
        used = stored.hashed.columns[model.factors[stored.hashed.columns // N_COLUMNS] > 0.0]
        model.slots = KeySlots(np.unique(used))
        weights, model.n_weighed = weighed or (model._learn_weights(has_vectors, classes.size), len(stored))
        model._learn_scorers(np.arange(len(stored)), y, has_vectors, classes.size)
        model.weights, model.n_learned = weights, len(stored)
        return model

    def _learn_scorers(self, chosen: np.ndarray, y: np.ndarray, has_vectors: bool, n_classes: int) -> None:
        stored = self.stored
        hashed = stored.features_at(chosen)
        self.keys = CMTClassifier(feature_weights="none", random_state=int(self.generator.integers(2**31)))
        self.keys.fit(self._matrix(hashed), y, example_ids=stored.slots[chosen])
        self.vectors = self.dense = None
        if has_vectors:
            labels = stored.labels[chosen]
            self.vectors = LearnedVectors.learned(hashed, self.frequencies, labels, n_classes, self.generator)
        if stored.encoded is not None:
            self.dense = CMTClassifier(random_state=int(self.generator.integers(2**31)))
            self.dense.fit(stored.encoded[chosen], y, example_ids=stored.slots[chosen])

    def _learn_weights(self, has_vectors: bool, n_classes: int) -> np.ndarray:
        """Learn the weights of scores from held-out texts."""
        labels = self.stored.labels
        first = [FIRST_WEIGHTS["keys"]]
        first += [FIRST_WEIGHTS["vectors"]] if has_vectors else []
        first += [FIRST_WEIGHTS["dense"]] if self.stored.encoded is not None else []
        most, scores, held_out = max(1, 4 * _MOST_CELLS // n_classes), [], []
        for fold in folds_of(labels, self.generator):
            fold = fold[:most]
            seen = np.delete(np.arange(labels.size), fold)
            trial = TextModel(self.generator)
            trial.frequencies, trial.factors, trial.slots = self.frequencies, self.factors, self.slots
            trial.stored = self.stored
            trial._learn_scorers(seen, labels[seen], has_vectors, n_classes)
            encoded = None if self.stored.encoded is None else self.stored.encoded[fold]
            scores.append(trial.scores(self.stored.features_at(fold), encoded))
            held_out.append(labels[fold])
        if not scores:
            return np.array(first)
        joined = [np.concatenate(parts) for parts in zip(*scores, strict=True)]
        return learn_weights_of_scores(joined, np.concatenate(held_out), np.array(first))

    @property
    def classes(self) -> np.ndarray:
        """The classes, sorted."""
        classes: np.ndarray = self.keys.classes_
        return classes

    # Further texts

    def is_due(self, n_more: int) -> bool:
        """Return whether ``n_more`` new texts require learning all texts again."""
        few = self.n_learned <= _SMALL
        share = _GROWTH_OF_SMALL if few else _GROWTH
        return self.n_changed + n_more > share * self.n_learned or n_more > _MANY * len(self.stored)

    def learned_again(self, stored: StoredTexts, y: np.ndarray) -> TextModel:
        """Return a model trained from scratch. It keeps the weights of scores unless many texts were added."""
        same_scores = (self.vectors is None) == (np.unique(y).size > _MOST_CLASSES)
        keeps = same_scores and len(stored) < _GROWTH_OF_WEIGHTS * self.n_weighed
        weighed = (self.weights, self.n_weighed) if keeps else None
        return TextModel.learned(stored, y, copy.deepcopy(self.generator), weighed)

    def learn_further(
        self, texts: list[str], ids: list[Any], y: np.ndarray, hashed: HashedTexts, encoded: np.ndarray | None
    ) -> None:
        """Learn further texts, of known classes or new ones."""
        former, n = self.classes, len(texts)
        slots = np.arange(self.stored.next_slot, self.stored.next_slot + n)
        self.frequencies.add(hashed)
        try:
            self.keys.partial_fit(self._matrix(hashed), y, example_ids=slots)
        except BaseException:
            self.frequencies.add(hashed, -1)
            raise
        try:
            if self.dense is not None:
                self.dense.partial_fit(encoded, y, example_ids=slots)
        except BaseException:
            self.frequencies.add(hashed, -1)
            self.keys.remove(slots)
            raise
        classes = self.classes
        if classes.size > former.size:
            places = np.searchsorted(classes, former.astype(classes.dtype))
            self.stored.labels[:] = places[self.stored.labels]  # where further labels are appended
            if self.vectors is not None:
                self.vectors = self.vectors.with_classes(places, classes.size)
        labels = np.searchsorted(classes, y.astype(classes.dtype))
        self.stored.append(texts, ids, labels, hashed, encoded)
        if self.vectors is not None:
            self.vectors.learn_further(self.stored.hashed, self.frequencies, self.stored.labels, n, self.generator)
        self.n_changed += n

    def without(self, gone: np.ndarray) -> TextModel:
        """Return a model without the texts at some positions, and without classes that have no other texts."""
        stored, former = self.stored, self.classes
        made = TextModel(self.generator)
        made.factors, made.slots, made.weights, made.n_learned = self.factors, self.slots, self.weights, self.n_learned
        made.n_changed, made.n_weighed = self.n_changed + gone.size, self.n_weighed
        made.keys = _copied(self.keys).remove(stored.slots[gone])
        made.dense = None if self.dense is None else _copied(self.dense).remove(stored.slots[gone])
        kept = np.delete(np.arange(len(stored)), gone)
        places = np.full(former.size, -1)
        known = np.isin(former, made.classes.astype(former.dtype))
        places[known] = np.arange(made.classes.size)
        if self.vectors is not None:
            made.vectors = self.vectors.with_classes(places, made.classes.size)
        made.stored = stored.only(kept, places[stored.labels[kept]])
        made.frequencies = DocumentFrequencies(self.frequencies.counts.copy(), self.frequencies.n_texts)
        made.frequencies.add(stored.features_at(gone), -1)
        return made

    # Answers

    def _matrix(self, hashed: HashedTexts) -> Any:
        """Return the keys of texts."""
        texts, n_known = self.frequencies.weigh(hashed, self.factors), self.slots.known.size
        columns = self.slots.table[texts.columns]
        shape = (texts.starts.size - 1, self.slots.n_slots)
        matrix = scipy.sparse.csr_array((texts.weights, columns, texts.starts), shape)
        if columns.size and columns.max() >= n_known:
            matrix.sum_duplicates()
        return matrix

    def scores(self, hashed: HashedTexts, encoded: np.ndarray | None) -> list[np.ndarray]:
        """Return the scores of all classes for texts, one array for each scorer."""
        scores = [_of_classes(self.keys, self._matrix(hashed))]
        if self.vectors is not None:
            scores.append(self.vectors.scores(hashed, self.frequencies))
        if self.dense is not None:
            scores.append(_of_classes(self.dense, encoded))
        return scores

    def logits(self, hashed: HashedTexts, encoded: np.ndarray | None) -> np.ndarray:
        """Return the sum of the weighted scores of each class for texts: float64."""
        return weighted_sum(self.scores(hashed, encoded), self.weights)

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield spans of ``n`` texts whose scores fit in little memory."""
        length = max(1, _MOST_CELLS // self.classes.size)
        for first in range(0, n, length):
            yield slice(first, min(n, first + length))

    def calibrate(self, scores: list[np.ndarray], labels: np.ndarray) -> None:
        """Scale the weights by maximum likelihood of the classes of further texts."""
        total = weighted_sum(scores, self.weights)
        self.weights = self.weights * learn_weights_of_scores([total], labels, np.ones(1))[0]

    # Files

    def described(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the fields and the arrays for a file."""
        counts = self.frequencies.counts
        columns = np.flatnonzero(counts).astype(np.int32)
        fields: dict[str, Any] = {
            "next_slot": self.stored.next_slot,
            "n_learned": self.n_learned,
            "n_changed": self.n_changed,
            "n_weighed": self.n_weighed,
            "n_counted": self.frequencies.n_texts,
            "generator": generator_fields(self.generator),
        }
        arrays = {"columns": columns, "frequencies": counts[columns], "factors": self.factors, "weights": self.weights}
        arrays["known"] = self.slots.known
        for name, part in (("keys", self.keys), ("dense", self.dense)):
            if part is not None:
                fields[name], of_part = with_prefix(name, estimator_contents(part))
                arrays |= of_part
        arrays |= as_part("stored", self.stored.arrays())
        return fields, arrays if self.vectors is None else arrays | as_part("vectors", self.vectors.arrays())

    @classmethod
    def of(cls, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> TextModel:
        """Return the model of a file. Raises InvariantError, TypeError or ValueError if it is not valid."""
        model = cls(read_generator("the generator", fields.get("generator")))
        model.keys = estimator_of(CMTClassifier, of_prefix("keys", fields.get("keys"), arrays), thorough=True)
        classes = model.keys.classes_
        vectors = of_part("vectors", arrays)
        if vectors:
            model.vectors = LearnedVectors.of(vectors, classes.size)
        model.stored = StoredTexts.of(of_part("stored", arrays), classes.size, take(fields, "next_slot", int))
        require((model.stored.encoded is None) == ("dense" not in fields), "texts must have vectors if these are used")
        if "dense" in fields:
            model.dense = estimator_of(CMTClassifier, of_prefix("dense", fields["dense"], arrays), thorough=True)
            require(np.array_equal(model.dense.classes_, classes), "all scores must be of the same classes")
        counts = [take(fields, name, int) for name in ("n_learned", "n_changed", "n_weighed", "n_counted")]
        require(all(0 <= count < MOST_IDS for count in counts), "counts must not be negative")
        model.n_learned, model.n_changed, model.n_weighed, n_counted = counts
        columns = read_array("columns", arrays, np.int32)
        require(bool(np.all((columns >= 0) & (columns < N_KINDS * N_COLUMNS))), "columns must be those of features")
        found, frequencies = read_array("frequencies", arrays, np.int32), np.zeros(N_KINDS * N_COLUMNS, np.int32)
        require(found.shape == columns.shape and bool(np.all(found >= 0)), "each column must have a frequency")
        frequencies[columns] = found
        model.frequencies = DocumentFrequencies(frequencies, n_counted)
        model.factors, model.weights = (
            read_array("factors", arrays, np.float32),
            read_array("weights", arrays, np.float64),
        )
        known = read_array("known", arrays, np.int32)
        sound = bool(np.all(np.diff(known) > 0)) and (
            known.size == 0 or 0 <= known[0] <= known[-1] < N_KINDS * N_COLUMNS
        )
        require(sound, "known columns must be in ascending order")
        model.slots = KeySlots(known)
        require(model.keys.n_features_in_ == model.slots.n_slots, "keys must have a feature for each slot")
        n_scores = 1 + (model.vectors is not None) + (model.dense is not None)
        require(
            model.factors.shape == (N_KINDS,) and model.weights.shape == (n_scores,), "each score must have a weight"
        )
        require(are_moderate(model.factors, model.weights), "weights must be finite")
        return model


def _of_classes(classifier: CMTClassifier, rows: Any) -> np.ndarray:
    """Return the score of each class for each row."""
    scores = classifier.decision_function(rows)
    return scores if scores.ndim == 2 else np.column_stack([np.zeros_like(scores), scores])


def _copied(classifier: CMTClassifier) -> Any:
    """Return an independent copy."""
    return copy.deepcopy(classifier)
