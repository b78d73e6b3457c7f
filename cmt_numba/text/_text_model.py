"""The model of a text classifier: stored texts, document frequencies and class scorers."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._change import uninterrupted
from .._forest import NONE, require
from ..estimators import CMTClassifier, classified_examples, in_one_type, places_in
from . import _mixture as mixture
from ._base import MOST
from ._class_sums import ClassSums
from ._hash_kernels import N_COLUMNS, N_KINDS
from ._hashing import DocumentFrequencies, HashedTexts, LabelledTexts
from ._learned_vectors import LearnedVectors
from ._stored_texts import MOST_IDS, NewTexts, StoredTexts

_MOST_CLASSES = 500  # maximum number of classes for which vectors are learned
_MOST_CELLS = 1 << 22  # maximum size of a matrix of scores
_MANY = 0.25  # relearn all texts if a larger fraction is new or has been removed
_FEWEST = 16  # number of new texts below which texts that come singly are not relearned
_GROWTH = 1.5  # learn the weights of the scorers again when the number of texts has grown by this factor
_REPLAYED = 16  # number of stored texts that are relearned with each new text of a later class
_REPLAYED_FEATURES = 3_000  # approximate maximum of features of the relearned texts
_FADING = 4.0  # a larger value reduces the weight of learned vectors faster as texts of later classes are added
_SIMILAR = np.array([1.0, 0.4, 0.6], np.float32)  # factors of words, n-grams and pairs in similarities
_LEAST = 1e-300
_LEAD = 0.5  # minimum lead of the class of a new text in logits


class TextModel(files.WithFields):
    """The learned state of a text classifier.

    Up to three scorers score the classes: class sums, learned vectors and, with an encoder, a CMTClassifier
    trained on the encoder's vectors. Classes are labelled 0, 1, 2, ... in order of arrival.
    """

    FIELDS = files.FieldTable(
        generator=files.GeneratorField(),
        names=files.LabelsField(),  # the class of each label
        stored=files.PartField(StoredTexts),
        frequencies=files.PartField(DocumentFrequencies),
        sums=files.PartField(ClassSums),
        vectors=files.OptionalField(files.PartField(LearnedVectors)),  # None if there are too many classes
        dense=files.OptionalField(files.PartField(CMTClassifier)),  # None without an encoder
        weights=files.ArrayField(np.float64, bounds=(_LEAST, MOST)),  # of the scorers, in this order
        # (6,): mean lead of the best class for each share of the vectors in ``SHARES``
        leads=files.ArrayField(np.float64, bounds=(_LEAST, 1e6)),
        confidence=files.ArrayField(np.float64, bounds=(-MOST, MOST)),  # (4,): see ``learn_confidence``
        copies_agree=files.RealField(0.0, 1.0),  # how probably a text with features of stored texts has their class
        # texts removed and added since all were last learned, and texts when the weights were last learned
        **dict.fromkeys(("n_removed", "n_since", "n_weighed"), files.NumberField(0, MOST_IDS)),
    )
    sums: ClassSums

    def __init__(self, generator: np.random.Generator, names: np.ndarray) -> None:
        self.generator = generator
        self.stored = StoredTexts()
        self.frequencies = DocumentFrequencies(np.zeros(N_KINDS * N_COLUMNS, np.int32), 0)
        self.vectors: LearnedVectors | None = None
        self.dense: Any = None
        self.weights, self.leads, self.confidence = np.empty(0), np.ones(mixture.SHARES.size), np.ones(4)
        self.copies_agree = 0.0
        self.n_removed = self.n_since = self.n_weighed = 0
        self._name(names)

    def _name(self, names: np.ndarray) -> None:
        self.names, self.order = names, np.argsort(names, kind="stable")  # the label of each class
        self.classes = names[self.order]

    @classmethod
    def learned(
        cls, stored: StoredTexts, y: np.ndarray, generator: np.random.Generator, former: "TextModel | None" = None
    ) -> "TextModel":
        """Return a model trained on stored texts, with former weights until the number of texts has grown by half."""
        classes, labels = np.unique(y, return_inverse=True)
        model = cls(generator, classes)
        stored.labels[:] = labels  # in place: StoredTexts owns the array
        model.stored, model.frequencies = stored, DocumentFrequencies.of(stored.hashed)
        model.copies_agree = stored.copies_agree()
        if classes.size > _MOST_CLASSES and stored.encoded is None:
            model._learn_sums()
            return model
        has_vectors, n_texts = classes.size <= _MOST_CLASSES, len(stored)
        if former is None or n_texts >= _GROWTH * former.n_weighed or has_vectors != (former.vectors is not None):
            model._learn_weights()
        else:
            model.weights, model.leads, model.confidence = former.weights, former.leads, former.confidence
            model.n_weighed = former.n_weighed
        model._learn_scorers(stored.hashed, np.arange(len(stored)), stored)
        return model

    def _learn_sums(self) -> None:
        """Learn class sums from most texts and the confidence from the rest. Then add the rest to the sums."""
        stored, labels = self.stored, self.stored.labels
        folds = mixture.folds_of(labels, self.generator)
        later = folds[0][: max(1, 4 * _MOST_CELLS // self.names.size)] if folds else np.empty(0, np.int64)
        self.sums = ClassSums.learned(self._labelled(), self.generator, later)
        scores = self.sums.scores(stored.features_at(later), self.frequencies)
        first = np.array([mixture.FIRST_WEIGHTS["sums"]])
        self.weights = mixture.learn_weights_of_scores([scores], labels[later], first)
        logits = mixture.weighted_sum([scores], self.weights)
        self.confidence = mixture.learn_confidence(logits, labels[later], self.weights[0])
        self.sums.learn_further(self._labelled(), later, np.empty(0, np.int64))

    def _labelled(self) -> LabelledTexts:
        stored = self.stored
        n_old = max(0, len(stored) - self.n_since)
        return LabelledTexts(stored.hashed, self.frequencies, stored.labels, self.names.size, stored.importance, n_old)

    def _learn_scorers(self, hashed: HashedTexts, chosen: np.ndarray, stored: StoredTexts) -> None:
        """Train all scorers on the texts at the positions ``chosen``, whose features are ``hashed``."""
        labels, importance = stored.labels[chosen], stored.importance[chosen]
        texts = LabelledTexts(hashed, self.frequencies, labels, self.names.size, importance)
        self.sums = ClassSums.learned(texts, self.generator)
        if self.names.size <= _MOST_CLASSES:
            self.vectors = LearnedVectors.learned(texts, self.generator)
        if stored.encoded is not None:
            self.dense = CMTClassifier(random_state=int(self.generator.integers(2**31)))
            ids = stored.slots[chosen]
            self.dense.fit(stored.encoded[chosen], self.names[labels], sample_weight=importance, example_ids=ids)

    def _learn_weights(self) -> None:
        """Learn the weights of the scorers and the confidence from held-out texts."""
        labels, n_labels = self.stored.labels, self.names.size
        first = [mixture.FIRST_WEIGHTS["sums"]]
        first += [mixture.FIRST_WEIGHTS["vectors"]] if n_labels <= _MOST_CLASSES else []
        first += [mixture.FIRST_WEIGHTS["dense"]] if self.stored.encoded is not None else []
        most, scores, held_out = max(1, 4 * _MOST_CELLS // n_labels), [], []
        later: list[np.ndarray] = []
        for fold in mixture.folds_of(labels, self.generator):
            fold = fold[:most]
            trial, seen = TextModel(self.generator, self.names), np.delete(np.arange(labels.size), fold)
            hashed = self.stored.features_at(seen)
            trial.frequencies = DocumentFrequencies.of(hashed)  # held-out texts are not counted, like texts to classify
            trial._learn_scorers(hashed, seen, self.stored)
            encoded = None if self.stored.encoded is None else self.stored.encoded[fold]
            scores.append(trial.scores(self.stored.features_at(fold), encoded))
            held_out.append(labels[fold])
            if not later and 1 < n_labels <= _MOST_CLASSES:
                texts = LabelledTexts(hashed, trial.frequencies, labels[seen], n_labels, self.stored.importance[seen])
                later = trial._later_scores(texts, self.stored.features_at(fold))
        joined, right = [np.zeros((0, n_labels))] * len(first), np.empty(0, np.int64)
        if scores:
            joined, right = [np.concatenate(parts) for parts in zip(*scores, strict=True)], np.concatenate(held_out)
        self.weights = mixture.learn_weights_of_scores(joined, right, np.array(first))
        self.confidence = mixture.learn_confidence(mixture.weighted_sum(joined, self.weights), right, self.weights[0])
        self.n_weighed = labels.size
        if later:
            self.leads = mixture.leads_of_shares(later, scores[0][1:], self.weights)

    def _later_scores(self, texts: LabelledTexts, held_out: HashedTexts) -> list[np.ndarray]:
        """Return the scores of held-out texts by class sums for each of ``SHARES``, when later classes have come.

        With each of their texts, some stored texts are learned again, which raises the scores of all texts. ``texts``
        are the stored texts. The class sums are changed.
        """
        n, n_done, scores, generator = texts.labels.size, 0, [], copy.deepcopy(self.generator)
        for share in reversed(mixture.SHARES):
            n_since = min(_MANY, (1.0 / max(share, _LEAST) - 1.0) / _FADING) * n
            n_again = int(n_since * _n_replayed(texts.hashed, n)) - n_done
            self.sums.learn_further(texts, np.empty(0, np.int64), generator.integers(0, n, n_again))
            scores.append(self.sums.scores(held_out, self.frequencies))
            n_done += n_again
        return scores[::-1]

    # Additional texts

    def is_due(self, n_more: int) -> bool:
        """Return whether all texts must be learned again after ``n_more`` texts are added.

        Vectors that learn new texts become worse for old ones, so they are learned again even if texts come singly.
        """
        n_all, n_since = len(self.stored), self.n_since + n_more
        is_stale = self.vectors is not None and n_since >= max(_FEWEST, _MANY * (n_all - self.n_since))
        return is_stale or n_more > _MANY * n_all

    def learned_again(self, stored: StoredTexts, y: np.ndarray, new: np.ndarray) -> "TextModel":
        """Return a new model with the former weights of scorers, which classifies the texts ``new`` as given."""
        made = TextModel.learned(stored, y, copy.deepcopy(self.generator), self)
        made._put_first(stored.at(new), stored.labels[new])
        return made

    def learn_further(self, new: NewTexts, y: np.ndarray) -> None:
        """Learn additional texts. Classes may be new. If this fails, the texts leave traces as after ``remove``."""
        stored, n, n_old = self.stored, y.size, len(self.stored)
        slots = np.arange(stored.next_slot, stored.next_slot + n)
        if self.dense is not None:
            self.dense.partial_fit(new.encoded, y, sample_weight=new.importance, example_ids=slots)
        before = self.names, self.vectors, self.weights, self.n_since
        counts, n_weights, mark = self.sums.totals.counts, len(self.sums.weights), stored.mark()

        def undo() -> None:
            if self.n_since > before[-1]:
                self.sums.take_out(self._labelled(), np.arange(n_old, n_old + n))
            if self.frequencies.n_texts > n_old:
                self.frequencies.add(new.hashed, -1)
            self.sums.undo_add(new.hashed, counts, n_weights)
            stored.undo_append(new, mark)
            names, self.vectors, self.weights, self.n_since = before
            self._name(names)
            if self.dense is not None:
                self.dense.remove(slots)

        try:
            names, y = in_one_type("y", self.names, y)
            added = np.unique(y[places_in(self.classes, y) == NONE])
            if added.size > 0 or names.dtype != self.names.dtype:
                self._name(np.concatenate([names, added]))
                self._make_outputs()
            labels = self.order[np.searchsorted(self.classes, y)]
            self.sums.add(new.hashed, labels, self.names.size)
            stored.append(new, labels)
            self.frequencies.add(new.hashed)
            self.n_since += n
            self._learn_last(n)
            self._put_first(new, labels)
        except BaseException:
            uninterrupted(undo)
            raise

    def _learn_last(self, n: int) -> None:
        """Learn the last ``n`` texts.

        Classes that are new since all texts were learned must be told from the others, so their texts are learned
        together with a random sample of earlier texts. Other texts only join the sums until all texts are learned
        again, because such steps raise the errors on other texts. With too many classes for vectors, texts that come
        singly are never all learned again.
        """
        texts, n_old = self._labelled(), len(self.stored) - n
        new = np.arange(n_old, n_old + n)
        is_told = (texts.labels[new] >= texts.n_old_labels) | (self.vectors is None)
        n_again = int(np.count_nonzero(is_told)) * _n_replayed(self.stored.hashed, n_old) if n_old else 0
        self.sums.add_up(texts, new[~is_told])
        self.sums.learn_further(texts, new[is_told], self.generator.integers(0, max(1, n_old), n_again))
        if self.vectors is not None:
            self.vectors.introduce(texts, new)

    def _put_first(self, new: NewTexts, labels: np.ndarray) -> None:
        """Correct the class sums so that the class of each new text is its best class."""
        weights, hashed, encoded = self.current_weights(), new.hashed, new.encoded
        for rows in self.blocks(labels.size):
            scores = self.scores(hashed.rows(rows), None if encoded is None else encoded[rows])
            logits = mixture.weighted_sum(scores, weights)
            for logit, label, i in zip(logits, labels[rows], range(rows.start, rows.stop), strict=True):
                lack = np.delete(logit, label).max(initial=-np.inf) + _LEAD - logit[label]
                if lack > 0.0:
                    text = hashed.rows(slice(i, i + 1))
                    self.sums.raise_score(text, self.frequencies, label, lack / weights[0])

    def relabelled(self, positions: np.ndarray, y: np.ndarray) -> "TextModel":
        """Return a model that has learned the texts at ``positions`` with the classes ``y`` instead."""
        stored, made = self.stored, self.without(positions)
        made.generator = copy.deepcopy(self.generator)
        made.vectors = None if made.vectors is None else made.vectors.copy()
        made.learn_further(stored.at(positions), y)
        return made

    def _make_outputs(self) -> None:
        """Add vectors for new labels, or drop all vectors if there are too many labels."""
        if self.vectors is not None and self.names.size > _MOST_CLASSES:
            self.vectors, self.weights = None, np.delete(self.weights, 1)
        elif self.vectors is not None:
            self.vectors = self.vectors.with_classes(np.arange(len(self.vectors.vectors.outputs)), self.names.size)

    def has_lost_many(self, n_more: int) -> bool:
        """Return whether all texts must be learned again after ``n_more`` removals."""
        return self.n_removed + n_more > _MANY * len(self.stored)

    def without(self, gone: np.ndarray) -> "TextModel":
        """Return a model without the texts at the positions ``gone``, and without the classes that lose all texts."""
        stored = self.stored
        kept = np.delete(np.arange(len(stored)), gone)
        left = np.unique(stored.labels[kept])
        places = np.full(self.names.size, -1)
        places[left] = np.arange(left.size)
        made = copy.copy(self)
        made._name(self.names[left])
        made.n_removed += gone.size
        made.stored = stored.only(kept)
        made.stored.labels[:] = places[made.stored.labels]
        is_kept = np.repeat(np.isin(np.arange(len(stored)), kept), np.diff(stored.hashed.starts))
        made.sums = self.sums.without(made.stored.hashed, is_kept, made.stored.labels, places)
        if self.vectors is not None:
            made.vectors = self.vectors.with_classes(places, left.size)
        made.dense = None if self.dense is None else copy.deepcopy(self.dense).remove(stored.slots[gone])
        made.frequencies = DocumentFrequencies(self.frequencies.counts.copy(), self.frequencies.n_texts)
        made.frequencies.add(stored.features_at(gone), -1)
        return made

    # Queries

    def scores(self, hashed: HashedTexts, encoded: np.ndarray | None) -> list[np.ndarray]:
        """Return each scorer's scores: a list of arrays of shape (n_texts, n_labels)."""
        scores = [self.sums.scores(hashed, self.frequencies)]
        if self.vectors is not None:
            scores.append(self.vectors.scores(hashed, self.frequencies))
        if self.dense is not None:
            of_classes = self.dense.decision_function(encoded)
            if of_classes.ndim == 1:
                of_classes = np.column_stack([np.zeros_like(of_classes), of_classes])
            scores.append(of_classes[:, np.argsort(self.order)])
        return scores

    def logits(self, hashed: HashedTexts, encoded: np.ndarray | None) -> np.ndarray:
        """Return the weighted sum of all scores: float64, shape (n_texts, n_classes)."""
        total = mixture.weighted_sum(self.scores(hashed, encoded), self.current_weights())
        return np.take(total, self.order, axis=1)  # rows are contiguous, so sums do not depend on the batch size

    def current_weights(self) -> np.ndarray:
        """Return the weights of the scorers.

        Texts of later classes move weight from learned vectors to class sums. A factor keeps the mean lead of the best
        class.
        """
        if self.vectors is None or self.n_since == 0:
            return self.weights
        n_old = max(1, len(self.stored) - self.n_since)
        n_later = self.sums.totals.counts[self._labelled().n_old_labels :].sum()
        share = n_old / (n_old + _FADING * n_later)
        return mixture.faded(self.weights, share) * (self.leads[-1] / np.interp(share, mixture.SHARES, self.leads))

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
        total = mixture.weighted_sum(scores, self.current_weights())
        scale = mixture.learn_weights_of_scores([total], labels, np.ones(1))[0]
        self.weights = self.weights * scale
        self.confidence = mixture.learn_confidence(total * scale, labels, self.current_weights()[0])

    def similarities(self, hashed: HashedTexts, encoded: np.ndarray | None) -> np.ndarray:
        """Return the cosine of each text and each stored text, or with an encoder the mean of both cosines."""
        weighing, stored = self.frequencies.weighing(_SIMILAR, least=1), self.stored

        def rows(texts: HashedTexts) -> Any:
            starts, columns, weights = self.frequencies.weigh(texts, weighing)
            return scipy.sparse.csr_array((weights, columns, starts), (starts.size - 1, N_KINDS * N_COLUMNS))

        found: np.ndarray = (rows(hashed) @ rows(stored.hashed).T).toarray()
        return found if encoded is None or stored.encoded is None else (found + encoded @ stored.encoded.T) / 2.0

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "TextModel":
        model = super()._of_fields(values)
        model._name(model.names)
        n_labels, stored, dense = model.names.size, model.stored, model.dense
        require(n_labels > 0 and np.unique(model.names).size == n_labels, "classes must be distinct")
        require(np.array_equal(np.unique(stored.labels), np.arange(n_labels)), "each class must have a text")
        require(model.frequencies.n_texts == len(stored), "frequencies must be those of the stored texts")
        sums = model.sums
        sound = sums.totals.squares.size == n_labels and sums.stored.size == stored.hashed.columns.size
        require(sound, "texts and labels must have sums")
        sums.totals = sums.totals._replace(counts=np.bincount(stored.labels, minlength=n_labels))
        n_vectors = n_labels if model.vectors is None else len(model.vectors.vectors.outputs)
        require(n_vectors == n_labels, "each class must have a vector")
        require((stored.encoded is None) == (dense is None), "texts have vectors if and only if they have a scorer")
        if dense is not None:
            require(hasattr(dense, "n_features_in_"), "the scorer of the encoder's vectors must be fitted")
            require(np.array_equal(dense.classes_, model.classes), "all scorers must have the same classes")
            examples = None if dense.examples_ is None else classified_examples(dense)
            ids = np.empty(0, np.int64) if examples is None else np.sort(examples.ids)
            sound = dense.max_examples is None and np.array_equal(ids, stored.slots)
            require(sound, "the scorer of the encoder's vectors must have learned the stored texts")
            sound = stored.encoded is not None and stored.encoded.shape[1] == dense.n_features_in_
            require(sound, "the encoder's vectors must have the width that their scorer expects")
        n_scores = 1 + (model.vectors is not None) + (dense is not None)
        sizes = model.weights.size, model.leads.size, model.confidence.size
        require(sizes == (n_scores, mixture.SHARES.size, 4), "each scorer must have a weight")
        require(model.confidence[3] > 0.0, "the logit of an unknown class must be positive")
        return model


def _n_replayed(hashed: HashedTexts, n_old: int) -> int:
    """Return the number of stored texts to learn again with each new text."""
    mean_size = max(1, hashed.columns.size // max(1, hashed.starts.size - 1))
    return min(_REPLAYED, 1 + n_old // 10, 1 + _REPLAYED_FEATURES // mean_size)
