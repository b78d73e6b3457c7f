"""The text classifier."""

import copy
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from .. import _validation as checks
from .._change import Lockable, changes, reads
from .._encoder import check_encoder
from .._jit import keeps_interpreter
from .._words import Tokenizer, check_same_tokenizer, check_tokenizer, fold_text, name_of_tokenizer, words_of
from ..estimators import check_targets, check_unmixed, in_one_type, positions_of, with_reject_label
from ..journal import InFolder
from ..persistence import FieldTable, OptionalField, OptionsField, PartField, pack_contents, unpack_contents
from ._base import SavableText, check_texts
from ._encoders import Encoder
from ._hashing import HashedTexts, features_of
from ._labelled import log_softmax
from ._stored_texts import MOST_IMPORTANT, StoredTexts, check_ids
from ._text_folder import TextFolder
from ._text_model import TextModel

_APART = frozenset({"_own_lock", "_folder", "_encoder", "_model"})  # attributes that are not pickled
_PICKLED = "contents"
_MOST_EXPLAINED = 200  # words of a text
_MOST_IN_A_STEP = 3  # texts to learn while readers wait; more texts are learned on a copy
_MOST_SIMILARITIES = 1 << 22  # similarities of texts that are computed together


class TextExplanation(NamedTuple):
    """The explanation of a predicted class."""

    label: Any
    """The class."""
    probability: float
    """The probability of the class."""
    runner_up: Any
    """The second most probable class; None if there is only one class."""
    words: list[tuple[str, float]]
    """Words of the text and their effects, the largest first. An effect is the decrease of the class's log-odds without
    the word."""

    def __str__(self) -> str:
        words = ", ".join(f"{word} {weight:+.2f}" for word, weight in self.words)
        return f"{self.label} ({self.probability:.0%}), not {self.runner_up}: {words}"


class _Lesson(NamedTuple):
    """The arguments of a change that learns texts, as in the journal."""

    texts: np.ndarray  # object
    labels: np.ndarray  # the class of each text
    ids: np.ndarray | None  # object
    vectors: np.ndarray | None  # of the encoder
    seed: int
    weights: np.ndarray  # float32
    tokenizer: str | None  # its name

    @property
    def no_labels(self) -> np.ndarray:
        return np.zeros(self.labels.size, np.int64)


class TextClassifier(ClassifierMixin, Lockable, InFolder, SavableText):
    """Text classifier that can learn additional texts and classes at any time.

    The classifier takes lists of strings and needs no vectorizer. It hashes words, word pairs and character n-grams, so
    new words need no vocabulary, and it updates document frequencies as texts are added and removed. It scores a class
    by the sum of its texts' feature weights, with the corrections of a support vector machine. Texts that are added
    later lead to about the same classifier as texts that are there from the start.

    Parameters
    ----------
    encoder : "use", callable or object with ``encode``, optional
        A pretrained encoder, whose vectors give a second score: a function that returns an array of shape ``(n, d)``
        for a list of texts, or an object with a method ``encode_query`` or ``encode`` that does the same, for example a
        sentence-transformers model. "use" is the Universal Sentence Encoder for 16 languages (extra ``use``). The
        vectors of learned texts are stored, so each text is encoded once. Files contain no encoder except "use"; pass
        any other encoder again after loading.
    tokenizer : callable, optional
        Returns the words of a text, for example without stop words or with a stemmer. Files and folders keep only its
        name: pass it again to :meth:`open`, or to ``set_params`` after loading a file. By default, words are found in
        any script.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Examples
    --------
    >>> from cmt_numba.text import TextClassifier
    >>> texts = ["rain and wind", "sun and clouds", "a song", "an album"]
    >>> classifier = TextClassifier(random_state=0).fit(texts, ["weather", "weather", "music", "music"])
    >>> _ = classifier.partial_fit(["goal in the last minute", "a football match"], ["sport", "sport"])
    >>> classifier.predict(["wind and clouds", "the match"]).tolist()
    ['weather', 'sport']
    """

    FIELDS = FieldTable(_parameters=OptionsField(), _model=OptionalField(PartField(TextModel)))
    _form = TextFolder
    _constraints: ClassVar[dict[str, checks.Constraint]] = {
        "encoder": checks.Checked(check_encoder, '"use", callable or object with encode'),
        "tokenizer": checks.Checked(check_tokenizer, "callable"),
        "random_state": checks.Checked(checks.check_seed, "int or numpy.random.SeedSequence"),
    }
    _lock_level = 2  # a change also changes the CMTClassifier of the encoder's vectors
    _model: TextModel | None = None

    def __init__(
        self,
        encoder: Any = None,
        *,
        tokenizer: Tokenizer | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.random_state = random_state

    # Learning

    def fit(self, texts: Iterable[str], y: Any, ids: Any = None, *, sample_weight: Any = None) -> Self:
        """Learn from texts and their classes. Earlier texts are forgotten.

        Parameters
        ----------
        texts : iterable of str
            The texts, of any length and in any language. They may be empty.
        y : array-like, shape (n_texts,)
            The class of each text: strings or numbers.
        ids : iterable of str or int, optional
            The id of each text, for :meth:`remove`. By default, the next unused integers: 0, 1, 2, ...
        sample_weight : array-like, shape (n_texts,), optional
            The weight of each text. A text of weight 2 counts about as much as two equal texts. Default: 1.
        """
        return self._learn(self._fit, texts, y, ids, sample_weight)

    def partial_fit(self, texts: Iterable[str], y: Any, ids: Any = None, *, sample_weight: Any = None) -> Self:
        """Learn from additional texts, whose classes may be new.

        Afterwards, each of these texts that has words is classified as given. Learning a text takes a few
        milliseconds: it is trained together with the stored texts that it affects. Each time the number of texts has
        grown by a tenth, all texts are trained.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        y : array-like, shape (n_texts,)
            The class of each text, of the same type as the known classes.
        ids, sample_weight : optional
            As for :meth:`fit`. Ids must not be in use.
        """
        return self._learn(self._partial_fit, texts, y, ids, sample_weight)

    def _learn(self, change: Callable[..., None], texts: Iterable[str], y: Any, ids: Any, sample_weight: Any) -> Self:
        checks.check_parameters(self, self._constraints)
        listed: list[str] = check_texts("texts", texts)
        labels = self._check_labels(y, len(listed))
        if ids is not None:
            ids = _objects(check_ids(ids))
        seed = int(checks.check_seed(self.random_state).generate_state(1)[0])
        weights, encoder = _check_weights(sample_weight, len(listed)), self._known_encoder(replaces=change == self._fit)
        vectors = None if encoder is None else encoder.encode(listed)
        tokenizer = name_of_tokenizer(self.tokenizer)
        self._change(change, _Lesson(_objects(listed), labels, ids, vectors, seed, weights, tokenizer)._asdict())
        self.__dict__["_encoder"] = encoder
        return self

    def _check_labels(self, y: Any, n_texts: int) -> np.ndarray:
        check_unmixed("y", y)
        labels = checks.label_array("y", y)
        if labels.ndim != 1 or labels.dtype.kind not in "biuU":  # scikit-learn's checks are slower than learning a text
            check_targets(y)
            labels = column_or_1d(labels)
        checks.check_entries("y", labels.size, n_texts, "texts")
        return labels

    def _change(self, change: Callable[..., None], arguments: dict[str, Any]) -> Self:
        """Run a method as a change, which is journaled under its name in a folder."""
        if self._folder is not None:
            self._folder.change(change.__name__.removeprefix("_"), arguments)
        else:
            self._lock.change(partial(change, **arguments))
        return self

    def _swap_in(self, model: TextModel) -> None:
        self._lock.step(partial(setattr, self, "_model", model))

    def _fit(self, **arguments: Any) -> None:
        lesson = _Lesson(**arguments)
        check_same_tokenizer(self.tokenizer, lesson.tokenizer)
        stored, listed = StoredTexts(lesson.tokenizer), lesson.texts.tolist()
        hashed = self._hashed(map(self._folded, listed))
        stored.append(stored.new(listed, lesson.ids, lesson.weights, hashed, lesson.vectors), lesson.no_labels)
        stored.first_live = stored.next_slot
        generator = np.random.Generator(np.random.PCG64(lesson.seed))
        self._swap_in(TextModel.learned(stored, lesson.labels, generator))

    def _partial_fit(self, **arguments: Any) -> None:
        lesson, model = _Lesson(**arguments), self._model
        if model is None:
            self._fit(**arguments)
            return
        vectors = lesson.vectors
        if (vectors is None) != (model.dense is None):
            raise ValueError("encoder must be given for all texts or for none")
        known = model.stored.encoded
        if vectors is not None and known is not None and vectors.shape[1] != known.shape[1]:
            raise ValueError(f"encoder must return {known.shape[1]} numbers per text as before, got {vectors.shape[1]}")
        names, labels = in_one_type("y", model.names, lesson.labels)
        listed = lesson.texts.tolist()
        new = model.stored.new(listed, lesson.ids, lesson.weights, self._features_of(listed), vectors)
        if model.has_grown(labels.size):
            stored = model.stored.only()
            y = np.concatenate([names[stored.labels], labels])
            stored.append(new, lesson.no_labels)
            self._swap_in(TextModel.learned(stored, y, copy.deepcopy(model.generator)))
        elif labels.size > _MOST_IN_A_STEP or model.is_due(labels.size):
            made = model.copied()
            made.learn_further(new, labels)
            self._swap_in(made)
        else:
            self._lock.step(partial(model.learn_further, new, labels))

    def relabel(self, ids: Any, labels: Any) -> Self:
        """Change the classes of stored texts in one step. Classes that have no texts left are forgotten.

        Texts keep their ids. ``labels`` has the class of each text, which may be a new class.
        """
        check_is_fitted(self, "classes_")
        listed = check_ids(ids)
        return self._change(self._relabel, {"ids": _objects(listed), "labels": self._check_labels(labels, len(listed))})

    def _relabel(self, ids: Any, labels: np.ndarray) -> None:
        model = self._fitted()
        positions = model.stored.positions_of(ids)
        self._swap_in(model.relabelled(positions, in_one_type("labels", model.names, labels)[1]))

    def remove(self, ids: Any) -> Self:
        """Forget texts by their ids, and classes that have no texts left.

        The texts and their contributions to all weights are deleted immediately. Once more than a quarter of the texts
        have been removed, or by ``calibrate()``, the other texts are trained again.
        """
        check_is_fitted(self, "classes_")
        return self._change(self._remove, {"ids": _objects(check_ids(ids))})

    def _remove(self, ids: Any) -> None:
        model = self._fitted()
        self._forget(model.stored.positions_of(ids))

    def _forget(self, positions: np.ndarray) -> None:
        model = self._fitted()
        if positions.size == 0:
            return
        if positions.size == len(model.stored):
            raise ValueError("ids must not include all texts: call fit to replace them")
        self._swap_in(model.without(np.sort(positions)))

    def remove_classes(self, labels: Any) -> Self:
        """Forget classes, but not all of ``classes_``, and their texts."""
        check_is_fitted(self, "classes_")
        return self._change(self._remove_classes, {"labels": np.ravel(checks.label_array("labels", labels))})

    def _remove_classes(self, labels: np.ndarray) -> None:
        model = self._fitted()
        gone = model.order[positions_of(labels, model.classes)]
        self._forget(np.flatnonzero(np.isin(model.stored.labels, gone)))

    def calibrate(self, texts: Iterable[str] | None = None, y: Any = None) -> Self:
        """Recalibrate the probabilities.

        :meth:`fit` already calibrates probabilities with held-out texts.

        Parameters
        ----------
        texts : iterable of str, optional
            Texts that the classifier has not learned. By default, all stored texts are learned again, and some of them
            are held out.
        y : array-like, shape (n_texts,), optional
            The class of each text. The classes must be known.
        """
        check_is_fitted(self, "classes_")
        if (texts is None) != (y is None):
            raise ValueError("texts and y must be given together, or both be omitted")
        if texts is None:
            return self._change(self._calibrate, {"texts": None, "labels": None, "vectors": None})
        listed: list[str] = check_texts("texts", texts)
        labels, vectors = self._check_labels(y, len(listed)), self._encoded(listed)
        return self._change(self._calibrate, {"texts": _objects(listed), "labels": labels, "vectors": vectors})

    def _calibrate(self, texts: Any, labels: Any, vectors: np.ndarray | None) -> None:
        model = self._fitted()
        if texts is None:
            stored = model.stored.only()
            y = model.names[stored.labels]
            self._swap_in(TextModel.learned(stored, y, copy.deepcopy(model.generator)))
            return
        classes, y = in_one_type("y", model.classes, labels)
        if not np.isin(y, classes).all():
            raise ValueError("y must contain only known classes: omit texts of other classes")
        scores = model.scores(self._features_of(texts.tolist()), vectors)
        self._lock.step(partial(model.calibrate, scores, model.order[np.searchsorted(classes, y)]))

    # Queries

    @keeps_interpreter
    @reads
    def predict(self, texts: Iterable[str], reject_below: float | None = None, reject_label: Any = None) -> np.ndarray:
        """Return the class of each text, or ``reject_label`` for rejected texts.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        reject_below : float in [0, 1], optional
            Reject texts if the probability that their best class is correct is below this value. The probability allows
            for texts of no known class, even if only one class is known.
        reject_label : object, optional
            The label of rejected texts, which must not be a class, and whose type must be compatible with ``classes_``.
            By default -1 for numbers and booleans, which become integers, and "" for strings.
        """
        model = self._fitted()
        if reject_below is None:
            best = [logits.argmax(axis=1) for _, logits in self._logits(texts)]
            answers: np.ndarray = model.classes[np.concatenate([np.empty(0, np.int64), *best])]
            return answers
        lowest = checks.check_real("reject_below", reject_below, 0.0, 1.0)
        named = with_reject_label(model.classes, reject_label)
        places, chances = self._best(texts, 1)
        return named[np.where(chances[:, 0] < lowest, named.size - 1, places[:, 0])]

    @keeps_interpreter
    @reads
    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the class probabilities of each text, given that it belongs to one of the classes.

        The result is float64 of shape (n_texts, n_classes); columns correspond to ``classes_``. :meth:`predict` and
        :meth:`top_classes` also allow for texts of no known class.
        """
        model, (hashed, vectors) = self._fitted(), self._read(texts)
        return model.probabilities(model.logits(hashed, vectors), hashed)

    @keeps_interpreter
    @reads
    def top_classes(self, texts: Iterable[str], k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the places in ``classes_`` of the ``k`` most probable classes of each text, and their probabilities.

        Both have shape (n_texts, k), best first, int64 and float64. If ``k`` exceeds the number of classes, all classes
        are returned. Their probabilities sum to less than 1 if the text may belong to none of them.
        """
        return self._best(texts, checks.check_integer("k", k, 1))

    def _best(self, texts: Iterable[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        model, best, chances = self._fitted(), [], []
        k = min(k, model.classes.size)
        for hashed, logits in self._logits(texts):
            order = np.argsort(-logits, axis=1, kind="stable")[:, :k] if k > 1 else logits.argmax(axis=1)[:, None]
            best.append(order)
            chances.append(np.take_along_axis(model.probabilities(logits, hashed, is_open=True), order, 1))
        return np.concatenate([np.empty((0, k), np.int64), *best]), np.concatenate([np.empty((0, k)), *chances])

    def _logits(self, texts: Iterable[str]) -> Iterator[tuple[HashedTexts, np.ndarray]]:
        """Yield the features and the logits of blocks of texts."""
        model, (hashed, vectors) = self._fitted(), self._read(texts)
        n = hashed.starts.size - 1
        for rows in model.blocks(n):
            few = hashed if n == rows.stop - rows.start else hashed.rows(rows)
            yield few, model.logits(few, None if vectors is None else vectors[rows])

    @reads
    def kneighbors(self, texts: Iterable[str], n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the most similar stored texts of each text: their distances, if ``return_distance``, and their ids.

        Both arrays have shape (n_texts, n_neighbors), nearest first. The similarity of two texts is the cosine of their
        weighted features or, with an encoder, the mean of this cosine and the cosine of their vectors. The distance is
        1 minus the similarity.
        """
        k = checks.check_integer("n_neighbors", n_neighbors, 1)
        (hashed, vectors), stored = self._read(texts), self._fitted().stored
        n, k, ids = hashed.starts.size - 1, min(k, len(stored)), _objects(stored.ids)
        found, distances = np.empty((n, k), object), np.empty((n, k))
        length = max(1, _MOST_SIMILARITIES // len(stored))
        for first in range(0, n, length):
            rows = slice(first, min(n, first + length))
            similar = self._fitted().similarities(hashed.rows(rows), None if vectors is None else vectors[rows])
            nearest = np.argsort(-similar, axis=1, kind="stable")[:, :k]
            found[rows], distances[rows] = ids[nearest], 1.0 - np.take_along_axis(similar, nearest, 1)
        return (distances, found) if return_distance else found

    @reads
    def sample(self, label: Any, n: int = 5, seed: int = 0) -> list[tuple[Any, str]]:
        """Return the ids and the texts of ``n`` random stored texts of a class, or of all if it has fewer."""
        n, model = checks.check_integer("n", n, 1), self._fitted()
        position = np.flatnonzero(model.classes == label)
        if position.size == 0:
            raise ValueError(f"label must be a known class, but {label!r:.50} is not one of the {model.classes.size}")
        texts = np.flatnonzero(model.stored.labels == model.order[position[0]])
        chosen = np.random.default_rng(checks.check_seed(seed)).permutation(texts)[:n].tolist()
        return [(model.stored.ids[i], model.stored.texts[i]) for i in chosen]

    @reads
    def explain(self, texts: Iterable[str], n_words: int = 5) -> list[TextExplanation]:
        """Explain the predicted class of each text by up to ``n_words`` words of the text.

        Each of the first 200 distinct words is left out in turn to measure its effect.
        """
        n_words = checks.check_integer("n_words", n_words, 0)
        check_same_tokenizer(self.tokenizer, self._fitted().stored.tokenizer)
        return [self._explained(text, n_words) for text in check_texts("texts", texts)]

    def _explained(self, text: str, n_words: int) -> TextExplanation:
        model, folded, is_default = self._fitted(), self._folded(text), self.tokenizer is None
        words = words_of(text, keep_case=True) if is_default else folded.split(" ") if folded else []
        names = [word.lower() for word in words] if is_default else words
        distinct, named = list(dict.fromkeys(names))[:_MOST_EXPLAINED], list(zip(names, words, strict=True))
        others = [" ".join(word for name, word in named if name != left_out) for left_out in distinct]
        hashed = self._hashed([folded, *(map(fold_text, others) if is_default else others)])
        vectors = None if model.dense is None else self._encoded([text, *others])
        logits = model.logits(hashed, vectors)
        logs = log_softmax(logits)
        order = np.argsort(-logs[0], kind="stable")[:2].tolist()
        own = logs[:, order[0]]
        odds = own - np.log(np.maximum(-np.expm1(np.minimum(own, -1e-12)), 1e-12))
        effects = odds[0] - odds[1:]
        chosen = np.argsort(-np.abs(effects), kind="stable")[:n_words].tolist()
        runner_up = model.classes[order[1]] if len(order) > 1 else None
        most = [(distinct[i], float(effects[i])) for i in chosen]
        chance = float(model.probabilities(logits[:1], hashed.rows(slice(0, 1)), is_open=True)[0, order[0]])
        return TextExplanation(model.classes[order[0]], chance, runner_up, most)

    def _read(self, texts: Iterable[str]) -> Any:
        """Return the hashed features of texts and, with an encoder, their vectors."""
        listed: list[str] = check_texts("texts", texts)
        return self._features_of(listed), self._encoded(listed) if self._fitted().dense is not None else None

    def _features_of(self, texts: list[str]) -> HashedTexts:
        """Return the features of texts, whose tokenizer must be the one of the stored texts."""
        check_same_tokenizer(self.tokenizer, self._fitted().stored.tokenizer)
        return self._hashed(map(self._folded, texts))

    def _folded(self, text: str) -> str:
        return fold_text(text, self.tokenizer)

    def _hashed(self, folded: Iterable[str]) -> HashedTexts:
        return features_of(list(folded), divides=self.tokenizer is None)

    def _encoded(self, texts: list[str]) -> np.ndarray | None:
        """Return the encoder's vectors of texts. None without an encoder."""
        encoder = self.__dict__["_encoder"] = self._known_encoder()
        return None if encoder is None else encoder.encode(texts)

    def _known_encoder(self, *, replaces: bool = False) -> Encoder | None:
        """Return the encoder with its cache. None without an encoder.

        Unless new texts replace all stored texts, the encoder must be the one of the stored texts.
        """
        stored = None if self._model is None or self._model.stored.encoded is None else self._model.stored
        if self.encoder is None:
            if stored is not None and not replaces:
                raise ValueError(
                    "the classifier was trained with an encoder: pass the encoder again with set_params(encoder=...)"
                )
            return None
        known: Encoder | None = self.__dict__.get("_encoder")
        if known is None or known.encoder is not self.encoder:
            known = Encoder(self.encoder)
            if stored is not None and not known.adopt(stored) and not replaces:
                raise ValueError(
                    "encoder must return the same vectors for the stored texts as before: pass the same encoder, or "
                    "call fit to learn all texts with another one"
                )
        return known

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the encoder, which may be large or impossible to copy."""
        copied = type(self)(self.encoder, tokenizer=self.tokenizer, random_state=self.random_state)
        if hasattr(self, "_metadata_request"):  # of set_fit_request and set_score_request
            copied._metadata_request = clone(self._metadata_request, safe=False)
        return copied

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    @property
    def classes_(self) -> np.ndarray:
        """The classes in ascending order."""
        if self._model is None:
            raise AttributeError("classes_ exists only after fit")
        return self._model.classes

    @property
    def n_texts_(self) -> int:
        """The number of stored texts."""
        return len(self._fitted().stored)

    @property
    def ids_(self) -> list[Any]:
        """The ids of the stored texts, in the order in which they were learned."""
        return list(self._fitted().stored.ids)

    def _fitted(self) -> TextModel:
        if self._model is None:
            check_is_fitted(self, "classes_")
        model: Any = self._model
        return model

    # Files and folders

    @classmethod
    def open(cls, path: str | os.PathLike[str], encoder: Any = None, **options: Any) -> Self:
        """Open a classifier in a folder, where its changes survive a crash.

        Parameters
        ----------
        path, **options
            As for :meth:`cmt_numba.CMTClassifier.open`. Always pass a ``tokenizer``, of which the folder keeps only the
            name.
        encoder : "use", callable or object with ``encode``, optional
            The encoder. The folder keeps only "use"; always pass any other one.
        """
        return super().open(path, **options if encoder is None else options | {"encoder": encoder})

    @property
    def _parameters(self) -> dict[str, Any]:
        seed = int(self.random_state) if isinstance(self.random_state, int | np.integer) else None
        return {"encoder": self.encoder if isinstance(self.encoder, str) else None, "random_state": seed}

    save = changes(SavableText.save)  # only reads, but must not overlap with changes

    @changes  # only reads, but must not overlap with changes
    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in _APART}
        return state | ({} if self._model is None else {_PICKLED: pack_contents(self._contents())})

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state.pop(_PICKLED, None)
        self.__dict__.update(state)
        if packed is not None:
            self._model = self._made_of(unpack_contents("pickle", "classifier", packed))._model


def _objects(values: list[Any]) -> np.ndarray:
    """Return an array of objects. NumPy's string arrays would drop trailing NULs."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _check_weights(weights: Any, n_texts: int) -> np.ndarray:
    """Return sample weights as float32. Raise TypeError or ValueError if they are invalid."""
    if weights is None:
        return np.ones(n_texts, np.float32)
    checked: np.ndarray = column_or_1d(weights, dtype=np.float32)
    checks.check_entries("sample_weight", checked.size, n_texts, "texts")
    checks.check_range("sample_weight", checked, 0.0, MOST_IMPORTANT)
    return checked
