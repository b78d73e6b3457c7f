"""The model of a text classifier: stored texts, document frequencies and class scorers."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._change import uninterrupted
from .._kernels import NONE, GrowingColumns, require
from ..estimators import in_one_type, places_in
from . import _mixture as mixture
from ._base import MOST
from ._class_sum_kernels import MarginSettings
from ._class_sums import SOFT, SOFTER, USUAL, ClassSums
from ._hash_kernels import N_COLUMNS, N_KINDS
from ._hashing import DocumentFrequencies, HashedTexts, LabelledTexts
from ._stored_texts import MOST_IDS, NewTexts, StoredTexts
from ._text_vectors import TextVectors
from ._vector_scorer import VectorScorer

_MOST_CELLS = 1 << 22  # maximum size of a matrix of scores
_MANY = 0.1  # train on all texts again if a larger fraction is new
# If a pass adds up more entries of class sums, only many new texts at once train all, and fit chooses no settings.
_MOST_ENTRIES = 1 << 27
_PASSES_OVER_ALL, _ENTRIES_OF_ALL = (3, 30), 1 << 34  # limits of passes, and of the entries that they add up
# With fewer classes, vectors of texts reduce no error. With more, they take too long.
_FEWEST_CLASSES, _MOST_CLASSES = 10, 500
# The share of the vectors grows with the root of the mean number of texts in a class: few texts are fitted too closely.
_SHARE, _SHARES = 0.1, (0.3, 1.5)
_MANY_TEXTS, _TRIED = 8_000, 4_000  # with more texts, settings are tried on some of them
_FEW = 10  # texts of a mean class: with fewer, no setting trusts texts very little
_LOST = 0.25  # train on all texts again if a larger fraction has been removed
_GROWTH = 1.25  # learn the weights of the scorers again when the number of texts has grown by this factor
_AFFECTED, _RIVALS = 8, 3  # stored texts of its class, and of so many rivals, to train with each new text
# Stored texts among which to look for those that the class of a new text takes, and approximate maximum of features
_COMPARED, _COMPARED_FEATURES = 4_096, 160_000
_ENTRIES = 400_000  # approximate maximum of entries that a pass over these texts adds up
_PASSES = 3  # maximum number of passes over new texts and the texts that they affect
_ROUNDS = 2  # number of searches for texts that a new text affects, if its class has few texts
_SIMILAR = np.array([1.0, 0.4, 0.6], np.float32)  # factors of words, n-grams and pairs in similarities
_MOST_COMPARED = 1_000  # texts whose similarities determine the first weights
_LEAST = 1e-300
_LEAD = 0.5  # minimum lead of the class of a text that was learned by partial_fit, in logits


class TextModel(files.WithFields):
    """The learned state of a text classifier.

    Class sums and, with an encoder, a VectorScorer score the classes. Classes are labelled 0, 1, 2, ... in order of
    arrival.
    """

    FIELDS = files.FieldTable(
        generator=files.GeneratorField(),
        names=files.LabelsField(),  # the class of each label
        stored=files.PartField(StoredTexts),
        frequencies=files.PartField(DocumentFrequencies),
        sums=files.PartField(ClassSums),
        vectors=files.OptionalField(files.PartField(TextVectors)),  # None if texts have no vectors
        dense=files.OptionalField(files.PartField(VectorScorer)),  # None without an encoder
        weights=files.ArrayField(np.float64, bounds=(_LEAST, MOST)),  # of the scorers, in this order
        confidence=files.ArrayField(np.float64, bounds=(-MOST, MOST)),  # (4,): see ``learn_confidence``
        copies_agree=files.RealField(0.0, 1.0),  # how probably a text with features of stored texts has their class
        # texts removed and added since all were last trained, and texts when the weights were last learned
        **dict.fromkeys(("n_removed", "n_since", "n_weighed"), files.NumberField(0, MOST_IDS)),
    )
    sums: ClassSums

    def __init__(self, generator: np.random.Generator, names: np.ndarray) -> None:
        self.generator = generator
        self.stored = StoredTexts()
        self.frequencies = DocumentFrequencies(np.zeros(N_KINDS * N_COLUMNS, np.int32), 0)
        self.vectors: TextVectors | None = None
        self.dense: Any = None
        self.weights, self.confidence = np.empty(0), np.ones(4)
        self.copies_agree = 0.0
        self.n_removed = self.n_since = self.n_weighed = 0
        self._name(names)

    def _name(self, names: np.ndarray) -> None:
        self.names, self.order = names, np.argsort(names, kind="stable")  # the label of each class
        self.classes = names[self.order]

    @classmethod
    def learned(cls, stored: StoredTexts, y: np.ndarray, generator: np.random.Generator) -> "TextModel":
        """Return a model trained on stored texts."""
        classes, labels = np.unique(y, return_inverse=True)
        model = cls(generator, classes)
        stored.labels[:] = labels  # in place: StoredTexts owns the array
        model.stored, model.frequencies = stored, DocumentFrequencies.of(stored.hashed)
        model._of_texts = GrowingColumns(np.zeros((labels.size, 0), np.float32))
        model.sums = ClassSums.of(model.labelled())
        model._learn_weights()
        model._train_all(learns_vectors=len(stored) <= _MANY_TEXTS)
        return model

    def labelled(self) -> LabelledTexts:
        """Return the stored texts with their labels, importance and vectors."""
        stored, vectors = self.stored, self._of_texts.columns[0]
        return LabelledTexts(
            stored.hashed, self.frequencies, stored.labels, self.names.size, stored.importance, vectors
        )

    def _vectors_of(self, hashed: HashedTexts) -> np.ndarray:
        """Return the weighted vectors of texts: float32, shape (n_texts, n_components)."""
        if self.vectors is None:
            return np.zeros((hashed.starts.size - 1, 0), np.float32)
        return np.float32(self.sums.settings.share) * self.vectors.of(hashed)

    def _use(self, settings: MarginSettings, vectors: TextVectors | None) -> None:
        """Change the settings of the class sums, and the vectors."""
        self.sums.settings, self.vectors = settings, vectors if settings.share > 0.0 else None
        self._of_texts = GrowingColumns(self._vectors_of(self.stored.hashed))
        self.sums.sum_vectors(self.labelled())

    def _learned_vectors(self, chosen: np.ndarray) -> TextVectors:
        """Return vectors learned from the texts at the positions ``chosen``."""
        stored = self.stored
        arguments = stored.labels[chosen], stored.importance[chosen], self.generator
        return TextVectors.learned(stored.features_at(chosen), *arguments)

    def _train_all(self, learns_vectors: bool = True) -> None:
        """Train all scorers on all texts. The vectors are learned from all texts, too, or stay as they are."""
        stored, settings = self.stored, self.sums.settings
        every = np.arange(len(stored))
        self._use(settings, self._learned_vectors(every) if settings.share and learns_vectors else self.vectors)
        self.sums.refresh(self.labelled(), every)
        self.sums.train(self.labelled(), every, self.generator, self._n_passes())
        self.dense = self._dense_of(every)
        self.copies_agree = stored.copies_agree()
        self.n_removed = self.n_since = 0

    def _n_entries(self) -> int:
        """Return how many entries of class sums a pass over all texts adds up."""
        return self.sums.n_entries_of(self.stored.hashed)

    def _n_passes(self) -> int:
        return int(np.clip(_ENTRIES_OF_ALL // max(1, self._n_entries()), *_PASSES_OVER_ALL))

    def _dense_of(self, chosen: np.ndarray) -> Any:
        """Return a scorer of the encoder's vectors, trained on the texts at the positions ``chosen``."""
        stored = self.stored
        if stored.encoded is None:
            return None
        parts = stored.encoded, self.names[stored.labels], stored.importance, stored.slots
        return VectorScorer.learned(int(self.generator.integers(2**31)), *(part[chosen] for part in parts))

    def _first_weights(self) -> np.ndarray:
        """Return the weights of the scorers before any evidence, by similarities of texts of different classes."""
        stored = self.stored
        if stored.encoded is None:
            return np.array([mixture.FIRST_WEIGHT])
        some = self._some(np.arange(len(stored)), _MOST_COMPARED)
        labels, hashed, encoded = stored.labels[some], stored.features_at(some), stored.encoded[some]
        differ = labels[:, None] != labels
        found = self._cosines(hashed, hashed), VectorScorer.cosines(encoded)
        return mixture.first_weights(*(cosines[differ] for cosines in found))

    def _learn_weights(self) -> None:
        """Learn the settings of class sums, the weights of the scorers and the confidence from held-out texts.

        If there are many texts, a part of them is enough to choose the settings.
        """
        possible, n_texts = self._possible_settings(), len(self.stored)
        if len(possible) > 1 and n_texts > _MANY_TEXTS:
            possible = [self._best_settings(possible, _TRIED)[0]]
        self.sums.settings, self.weights, logits, answers = self._best_settings(possible, n_texts)
        self.confidence = mixture.learn_confidence(logits, answers, self.weights.sum())
        self.n_weighed = n_texts

    def _best_settings(
        self, possible: list[MarginSettings], most: int
    ) -> tuple[MarginSettings, np.ndarray, np.ndarray, np.ndarray]:
        """Train with each of the settings on at most ``most`` texts, and return those with the fewest held-out errors.

        The first settings win unless others make fewer errors by more than the standard error of the difference, so
        the choice depends little on chance. Also return the weights of the scorers, and the logits and labels of
        the held-out texts.
        """
        labels, n_labels = self.stored.labels, self.names.size
        first, right = self._first_weights(), [np.empty(0, np.int64)]
        scores = [[[np.zeros((0, n_labels))] * first.size] for _ in possible]
        for fold in mixture.folds_of(labels, self.generator):
            fold = fold[: max(1, 4 * _MOST_CELLS // n_labels)]
            seen, hashed = np.delete(np.arange(labels.size), fold), self.stored.features_at(fold)
            if seen.size > most:
                seen = self.generator.choice(seen, most, replace=False)
            self.frequencies.add(hashed, -1)  # held-out texts are not counted, like texts to classify
            self.sums.refresh(self.labelled(), fold, removes=True)
            self.dense = self._dense_of(seen)
            encoded = None if self.stored.encoded is None else self.stored.encoded[fold]
            vectors = self._learned_vectors(seen) if possible[0].share else None
            for parts, settings in zip(scores, possible, strict=True):
                self._use(settings, vectors)
                self.sums.train(self.labelled(), seen, self.generator, self._n_passes())
                parts.append(self.scores(hashed, encoded))
            right.append(labels[fold])
            self.frequencies.add(hashed)
            self.sums.refresh(self.labelled(), fold)
        answers, results = np.concatenate(right), []
        for parts in scores:
            joined = [np.concatenate(of_scorer) for of_scorer in zip(*parts, strict=True)]
            weights = mixture.learn_weights_of_scores(joined, answers, first)
            logits = mixture.weighted_sum(joined, weights)
            results.append((weights, logits))
        best = 0
        for i, (_, logits) in enumerate(results):
            fewer, deviation = mixture.difference_of_errors(results[best][1], logits, answers)
            if fewer > (deviation if best == 0 else 0.0):
                best = i
        return possible[best], *results[best], answers

    def _possible_settings(self) -> list[MarginSettings]:
        """Return the usual settings first."""
        n_texts, n_classes = len(self.stored), self.names.size
        if self._n_entries() >= _MOST_ENTRIES:
            return [USUAL]
        has_few = n_texts < _FEW * n_classes
        if not _FEWEST_CLASSES <= n_classes <= min(_MOST_CLASSES, n_texts // 2):
            return [USUAL, SOFT] if has_few else [USUAL, SOFT, SOFTER]
        share = float(np.clip(_SHARE * np.sqrt(n_texts / n_classes), *_SHARES))
        return [USUAL._replace(share=share), USUAL, SOFT if has_few else SOFTER]

    # Additional texts

    def copied(self) -> "TextModel":
        """Return a copy that can be changed while readers use this model."""
        made = copy.copy(self)
        made.generator, made.dense = copy.deepcopy(self.generator), copy.deepcopy(self.dense)
        made.stored, made.sums, made.frequencies = self.stored.only(), self.sums.copy(), self.frequencies.copy()
        return made

    def is_due(self, n_more: int) -> bool:
        """Return whether to train on all texts after ``n_more`` texts are added."""
        return self.n_since + n_more > _MANY * (len(self.stored) + n_more) and self._may_train_all(n_more)

    def has_grown(self, n_more: int) -> bool:
        """Return whether to learn all texts like ``fit`` after ``n_more`` texts are added."""
        return len(self.stored) + n_more >= _GROWTH * self.n_weighed and self._may_train_all(n_more)

    def _may_train_all(self, n_more: int) -> bool:
        return n_more > _MANY * (len(self.stored) + n_more) or self._n_entries() < _MOST_ENTRIES

    def learn_further(self, new: NewTexts, y: np.ndarray) -> None:
        """Learn additional texts. Classes may be new. If this fails, the texts leave traces in the corrections."""
        stored, n, n_old, is_due = self.stored, y.size, len(self.stored), self.is_due(y.size)
        slots = np.arange(stored.next_slot, stored.next_slot + n)
        if self.dense is not None and not is_due:
            self.dense.learn_further(new.encoded, y, new.importance, slots)
        before, mark = (self.names, self.n_since, self._of_texts), stored.mark()
        n_weights, biases = len(self.sums.weights), self.sums.vectors.biases.copy()

        def undo() -> None:
            if self.frequencies.n_texts > n_old:
                self.sums.refresh(self.labelled(), np.arange(n_old, n_old + n), removes=True)
                self.frequencies.add(new.hashed, -1)
            names, self.n_since, self._of_texts = before
            self.sums.undo_add(new.hashed, biases, n_weights, n_old)
            stored.undo_append(new, mark)
            self._name(names)
            if self.dense is not None:
                self.dense.remove(slots)

        try:
            names, y = in_one_type("y", self.names, y)
            added = np.unique(y[places_in(self.classes, y) == NONE])
            if added.size > 0 or names.dtype != self.names.dtype:
                self._name(np.concatenate([names, added]))
            labels = self.order[np.searchsorted(self.classes, y)]
            of_texts = self._of_texts.appended(self._vectors_of(new.hashed))
            self.sums.add(new.hashed, labels, self.names.size, of_texts.columns[0])
            self._of_texts = of_texts
            stored.append(new, labels)
            self.frequencies.add(new.hashed)
            self.n_since += n
            if is_due:
                self._train_all()
            else:
                self._train_last(n)
        except BaseException:
            uninterrupted(undo)
            raise

    def _train_last(self, n: int) -> None:
        """Train the class sums on the last ``n`` texts one by one, each together with the texts that it affects.

        If these add up to as many texts as are stored, train on all texts once, which takes less time.
        """
        texts, every = self.labelled(), np.arange(len(self.stored))
        self.sums.refresh(texts, every[-n:])
        if n * (1 + 4 * _AFFECTED) >= every.size and n * _ENTRIES >= self._n_entries():
            self.sums.train(texts, every, self.generator, self._n_passes())
            return
        for text in every[-n:].tolist():
            self._train_with_affected(texts, text)

    def _train_with_affected(self, texts: LabelledTexts, new: int) -> None:
        """Train the class sums on a new text and on the stored texts that it affects.

        These are some texts of its class and of rival classes, and texts that its class comes too close to or that hold
        it off too far. The new text is trained first. If its class has few texts, training may raise their scores much,
        so the search for affected texts is repeated.
        """
        stored, label = self.stored, self.stored.labels[new]
        hashed = stored.features_at(np.array([new]))
        most = int(np.clip(_ENTRIES / (1 + self.sums.n_entries_of(hashed)) / 4, 1, _AFFECTED))
        scores = self.sums.scores(hashed, self.frequencies, texts.vectors[new : new + 1])[0]
        n_rivals = min(_RIVALS + 1, scores.size)
        rivals = np.argpartition(-scores, n_rivals - 1)[:n_rivals]
        of_rivals = np.logical_or.reduce([stored.labels == rival for rival in rivals if rival != label])
        members = [self._some(np.flatnonzero(chosen), most) for chosen in (stored.labels == label, of_rivals)]
        n_compared = min(_COMPARED, _COMPARED_FEATURES // (1 + stored.hashed.columns.size // len(stored)))
        self.sums.train(texts, np.array([new]), self.generator, 1)
        for _ in range(_ROUNDS if np.count_nonzero(stored.labels == label) <= _AFFECTED else 1):
            compared = np.sort(self._some(np.arange(len(stored)), n_compared))
            others = self.sums.affected_by(texts, label, compared, 2 * most)
            affected = np.unique(np.concatenate([[new], *members, others]))
            self.sums.train(texts, affected, self.generator, _PASSES)

    def _some(self, positions: np.ndarray, most: int) -> np.ndarray:
        return positions[self.generator.integers(0, positions.size, most)] if positions.size > most else positions

    def relabelled(self, positions: np.ndarray, y: np.ndarray) -> "TextModel":
        """Return a model that has learned the texts at ``positions`` with the classes ``y`` instead."""
        made = self.without(positions)
        made.learn_further(self.stored.at(positions), y)
        return made

    def has_lost_many(self, n_more: int) -> bool:
        """Return whether to train on all texts after ``n_more`` removals."""
        return self.n_removed + n_more > _LOST * len(self.stored)

    def without(self, gone: np.ndarray) -> "TextModel":
        """Return a model without the texts at the positions ``gone``, and without the classes that lose all texts."""
        stored, has_lost_many = self.stored, self.has_lost_many(gone.size)
        kept = np.delete(np.arange(len(stored)), gone)
        left = np.unique(stored.labels[kept])
        places = np.full(self.names.size, -1)
        places[left] = np.arange(left.size)
        made = copy.copy(self)
        made.generator = copy.deepcopy(self.generator)
        made._name(self.names[left])
        made.n_removed += gone.size
        made.stored = stored.only(kept)
        made.stored.labels[:] = places[made.stored.labels]
        made.frequencies = self.frequencies.copy()
        made.frequencies.add(stored.features_at(gone), -1)
        made._of_texts = GrowingColumns(self._of_texts.columns[0][kept])
        is_kept = np.repeat(np.isin(np.arange(len(stored)), kept), np.diff(stored.hashed.starts))
        made.sums = self.sums.without(made.labelled(), kept, is_kept, places)
        if kept.size == 0:  # all texts are relabelled, and learning them again trains all
            made.dense = None
        elif has_lost_many:
            made._train_all()
        else:
            made.dense = None if self.dense is None else copy.deepcopy(self.dense).remove(stored.slots[gone])
        return made

    # Queries

    def scores(self, hashed: HashedTexts, encoded: np.ndarray | None) -> list[np.ndarray]:
        """Return each scorer's scores: a list of arrays of shape (n_texts, n_labels).

        Words without vectors shorten the vector of a text. They do not make the text less similar to its class, so the
        scores of class sums are those of a text of length 1.
        """
        vectors = self._vectors_of(hashed)
        lengths = np.sqrt(1.0 + np.square(vectors).sum(axis=1, keepdims=True))
        scores = [self.sums.scores(hashed, self.frequencies, vectors) / lengths]
        if self.dense is not None:
            scores.append(self.dense.scores(encoded)[:, np.argsort(self.order)])
        return scores

    def logits(self, hashed: HashedTexts, encoded: np.ndarray | None) -> np.ndarray:
        """Return the weighted sum of all scores: float64, shape (n_texts, n_classes).

        Texts that were learned by ``partial_fit`` keep their class.
        """
        total = mixture.weighted_sum(self.scores(hashed, encoded), self.weights)
        labels = self.stored.labels_of_copies(hashed, only_live=True)
        for row in np.flatnonzero(labels != NONE):
            best = np.delete(total[row], labels[row]).max(initial=-np.inf)
            total[row, labels[row]] = max(total[row, labels[row]], best + _LEAD)
        return np.take(total, self.order, axis=1)  # rows are contiguous, so sums do not depend on the batch size

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield slices of ``n`` texts whose scores fit into little memory."""
        length = max(1, _MOST_CELLS // self.classes.size)
        for first in range(0, n, length):
            yield slice(first, min(n, first + length))

    def probabilities(self, logits: np.ndarray, hashed: HashedTexts, *, is_open: bool = False) -> np.ndarray:
        """Convert logits to the probabilities of classes, given that the text belongs to one of them.

        With ``is_open``, the rest is the probability that no class is correct. A text with the features of stored texts
        belongs to a class, and if theirs is the best, it is as probable as repeated texts show.
        """
        is_copy = self.stored.labels_of_copies(hashed) == self.order[logits.argmax(axis=1)]
        least = np.where(is_copy, self.copies_agree, 0.0)
        chances = mixture.probabilities_of(logits, self.confidence, len(self.stored), least)
        if is_open:
            chances *= np.where(is_copy, 1.0, mixture.known_probability(logits, self.confidence))[:, None]
        return chances

    def calibrate(self, scores: list[np.ndarray], labels: np.ndarray) -> None:
        """Learn the scale of the weights and the confidence from the scores and labels of other texts."""
        total = mixture.weighted_sum(scores, self.weights)
        scale = mixture.learn_weights_of_scores([total], labels, np.ones(1))[0]
        self.weights = self.weights * scale
        self.confidence = mixture.learn_confidence(total * scale, labels, self.weights.sum())

    def similarities(self, hashed: HashedTexts, encoded: np.ndarray | None) -> np.ndarray:
        """Return the cosine of each text and each stored text, or with an encoder the mean of both cosines."""
        found, stored = self._cosines(hashed, self.stored.hashed), self.stored
        return found if encoded is None or stored.encoded is None else (found + encoded @ stored.encoded.T) / 2.0

    def _cosines(self, texts: HashedTexts, others: HashedTexts) -> np.ndarray:
        """Return the cosine of the weighted features of each text and each other text."""
        weighing = self.frequencies.weighing(_SIMILAR, least=1)

        def rows(texts: HashedTexts) -> Any:
            starts, columns, weights = self.frequencies.weigh(texts, weighing)
            return scipy.sparse.csr_array((weights, columns, starts), (starts.size - 1, N_KINDS * N_COLUMNS))

        found: np.ndarray = (rows(texts) @ rows(others).T).toarray()
        return found

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "TextModel":
        model = super()._of_fields(values)
        model._name(model.names)
        n_labels, stored, dense = model.names.size, model.stored, model.dense
        require(n_labels > 0 and np.unique(model.names).size == n_labels, "classes must be distinct")
        require(np.array_equal(np.unique(stored.labels), np.arange(n_labels)), "each class must have a text")
        require(model.frequencies.n_texts == len(stored), "frequencies must be those of the stored texts")
        sums = model.sums
        sound = sums.squares.size == n_labels and sums.stored.size == stored.hashed.columns.size
        require(sound and len(sums.duals.weights) == len(stored), "texts and labels must have sums")
        model._of_texts = GrowingColumns(model._vectors_of(stored.hashed))
        of_texts = model._of_texts.columns[0]
        require(of_texts.shape == sums.vectors.of_texts.shape, "labels must have sums of the texts' vectors")
        sums.vectors = sums.vectors._replace(of_texts=of_texts)
        require((stored.encoded is None) == (dense is None), "texts have vectors if and only if they have a scorer")
        if dense is not None:
            require(np.array_equal(dense.classes, model.classes), "all scorers must have the same classes")
            sound = np.array_equal(dense.example_ids(), stored.slots)
            require(sound, "the scorer of the encoder's vectors must have learned the stored texts")
            sound = stored.encoded is not None and stored.encoded.shape[1] == dense.center.size
            require(sound, "the encoder's vectors must have the width that their scorer expects")
        sizes = model.weights.size, model.confidence.size
        require(sizes == (1 + (dense is not None), 4), "each scorer must have a weight")
        require(model.confidence[3] > 0.0, "the logit of an unknown class must be positive")
        return model
