"""Text keys from a convolutional network (Kim, Convolutional neural networks for sentence classification, 2014)."""

import re
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cmt_numba.text import SubwordVectors

FORMS = ("rand", "static", "non-static", "multichannel")
WIDTHS = (3, 4, 5)
PADDING = max(WIDTHS) - 1  # zeros before and after a text
SPREAD = 0.25  # random vectors are uniform in [-SPREAD, SPREAD]
DECAY, EPSILON = 0.95, 1e-6  # Adadelta (Zeiler, 2012)
WORD = re.compile(r"n't\b|'(?:s|ve|re|d|ll|m)\b|\w+?(?=n't\b)|\w+|[^\w\s]", re.IGNORECASE)
LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128)  # padded lengths; longer texts are truncated

_FEWEST_ROWS = 128  # the number of words of a batch is rounded up to a power of 2


class Layers(NamedTuple):
    """The weights of all layers above the word vectors."""

    filters: Any  # (n_components, maps times positions, for all widths)
    biases: Any  # (total number of maps,)
    outputs: Any  # (total number of maps, n_classes)
    shifts: Any  # (n_classes,)


class Texts(NamedTuple):
    """A batch of texts as rows of word vectors and positions."""

    rows: np.ndarray  # distinct rows of the word vectors, padded with 0
    places: np.ndarray  # (n, length), indices into rows


def maxima(layers: Layers, vectors: Any, places: Any, n_maps: int) -> Any:
    """Return the maximum of each map in each text, the penultimate layer: shape (n, total number of maps)."""
    products = (vectors @ layers.filters)[places]  # one product per distinct word
    best, first = [], 0
    for i, width in enumerate(WIDTHS):
        n = places.shape[1] - width + 1
        parts = products[:, :, first : first + width * n_maps].reshape(*places.shape, width, n_maps)
        found = sum(parts[:, place : place + n, place] for place in range(width))
        best.append((found + layers.biases[i * n_maps : (i + 1) * n_maps]).max(axis=1))
        first += width * n_maps
    return jax.nn.relu(jnp.concatenate(best, axis=1))


def stepped(weights: Any, gradient: Any, squares: Any, changes: Any) -> tuple[Any, Any, Any]:
    """Return the weights and the running averages after a step of Adadelta."""
    squares = DECAY * squares + (1.0 - DECAY) * gradient**2
    change = -jnp.sqrt((changes + EPSILON) / (squares + EPSILON)) * gradient
    return weights + change, squares, DECAY * changes + (1.0 - DECAY) * change**2


@partial(jax.jit, static_argnames=("n_maps", "dropout", "learned", "fixed"), donate_argnums=(0, 1))
def learn(
    state: Any, tables: Any, texts: Texts, y: Any, key: Any, *, n_maps: int, dropout: float, learned: bool, fixed: bool
) -> Any:
    """Return weights and vectors after one step, which changes only the vectors of words in the batch."""
    layers, memory = state
    of_words, still = tables  # (vectors, squares, changes), and fixed vectors
    own = [table[texts.rows] for table in of_words] if learned else None

    def loss(layers: Layers, vectors: Any) -> Any:
        if fixed:
            vectors = still[texts.rows] + (vectors if learned else 0.0)
        hidden = maxima(layers, vectors, texts.places, n_maps)
        hidden = hidden * jax.random.bernoulli(key, 1.0 - dropout, hidden.shape)
        scores = jax.nn.log_softmax(hidden @ layers.outputs + layers.shifts)
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    of_layers, of_vectors = jax.grad(loss, (0, 1))(layers, own[0] if learned else jnp.zeros((1, 1)))
    new = [stepped(*each) for each in zip(layers, of_layers, *memory, strict=True)]
    layers, *memory = (Layers(*parts) for parts in zip(*new, strict=True))
    lengths = jnp.linalg.norm(layers.outputs, axis=0)
    layers = layers._replace(outputs=layers.outputs * jnp.minimum(1.0, 3.0 / jnp.maximum(lengths, 1e-9)))
    if learned:
        there = (texts.rows > 0)[:, None]  # row 0 is padding
        moved = stepped(own[0], jnp.where(there, of_vectors, 0.0), *own[1:])
        of_words = tuple(table.at[texts.rows].set(rows) for table, rows in zip(of_words, moved, strict=True))
    return (layers, tuple(memory)), (of_words, still)


class ConvolutionalKeys(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Convert texts to the penultimate layer of a convolutional network trained on classes.

    Parameters
    ----------
    form : {"rand", "static", "non-static", "multichannel"}, default "rand"
        Word vectors: "rand" learns from a random start, "static" uses ``vectors`` unchanged, "non-static" starts from
        ``vectors`` and learns, and "multichannel" adds a static and a learned vector.
    vectors : SubwordVectors, optional
        Fitted word vectors; required unless ``form="rand"``.
    n_components : int, default 300
        Length of random vectors.
    n_maps : int, default 100
        Number of maps for each of the widths 3, 4 and 5.
    dropout : float, default 0.5
        Probability of dropping an output of the penultimate layer.
    batch_size : int, default 50
        Number of texts per step of Adadelta.
    n_epochs : int, default 25
        Maximum number of passes over the texts. ``fit`` keeps the weights with the smallest validation error.
    patience : int, default 4
        Number of passes without improvement before training stops.
    lowercase : bool, default True
        Whether to convert texts to lower case.
    random_state : int, default 0
        Random seed.
    """

    def __init__(
        self,
        form: str = "rand",
        vectors: SubwordVectors | None = None,
        *,
        n_components: int = 300,
        n_maps: int = 100,
        dropout: float = 0.5,
        batch_size: int = 50,
        n_epochs: int = 25,
        patience: int = 4,
        lowercase: bool = True,
        random_state: int = 0,
    ) -> None:
        self.form = form
        self.vectors = vectors
        self.n_components = n_components
        self.n_maps = n_maps
        self.dropout = dropout
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.patience = patience
        self.lowercase = lowercase
        self.random_state = random_state

    def fit(self, texts: list[str], y: Any, validation: tuple[list[str], Any] | None = None) -> Self:
        """Train on texts with classes; without ``validation``, hold out a tenth of the texts for early stopping."""
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {self.form!r}")
        if (self.vectors is None) != (self.form == "rand"):
            raise ValueError('vectors must be given unless form="rand", and only then')
        self.classes_, labels = np.unique(y, return_inverse=True)
        rng = np.random.default_rng(self.random_state)
        if validation is None:
            order = rng.permutation(len(texts))
            held, kept = order[: len(texts) // 10], order[len(texts) // 10 :]
            validation = [texts[i] for i in held], self.classes_[labels[held]]
        else:
            kept = np.arange(len(texts))
        words = [words_of(text, lowercase=self.lowercase) for text in texts]
        self.places_: dict[str, int] = {}
        for i in kept:
            for word in words[i]:
                self.places_.setdefault(word, len(self.places_) + 1)
        state, tables = self._first_state(rng)
        key, best, since = jax.random.key(self.random_state), np.inf, 0
        for _ in range(self.n_epochs):
            for batch in self._batches([words[i] for i in kept], rng):
                key, own = jax.random.split(key)
                texts_of_batch = self._encoded([words[i] for i in kept[batch]], self.places_)
                options = {"n_maps": self.n_maps, "dropout": self.dropout}
                options |= {"learned": self.form != "static", "fixed": self.form in ("static", "multichannel")}
                state, tables = learn(state, tables, texts_of_batch, labels[kept[batch]], own, **options)
            self._take(state, tables)
            error = float(np.mean(self.predict(validation[0]) != validation[1]))
            since += 1
            if error < best:
                best, since = error, 0
                learned = self.layers_, self.table_
            if since >= self.patience:
                break
        self.layers_, self.table_ = learned
        return self

    def predict(self, texts: list[str]) -> np.ndarray:
        """Return the most probable class of each text."""
        hidden = self.transform(texts) * (1.0 - self.dropout)
        return self.classes_[(hidden @ self.layers_.outputs + self.layers_.shifts).argmax(axis=1)]

    def transform(self, texts: list[str]) -> np.ndarray:
        """Return the penultimate layer for each text: float32, (n, 3 * n_maps).

        Unknown words have their vector in ``vectors``, or a fixed random vector.
        """
        check_is_fitted(self, "layers_")
        words = [words_of(text, lowercase=self.lowercase) for text in texts]
        places, table = dict(self.places_), self.table_
        new = sorted({word for text in words for word in text} - places.keys())
        places |= {word: len(table) + i for i, word in enumerate(new)}
        channels = 2 if self.form == "multichannel" else 1
        table = np.concatenate([table, channels * self._first_vectors(new)])
        keys = np.zeros((len(texts), len(WIDTHS) * self.n_maps), np.float32)
        for batch in self._batches(words, None):
            some = self._encoded([words[i] for i in batch], places)
            keys[batch] = _maxima(self.layers_, table[some.rows], some.places, self.n_maps)
        return keys

    def _first_state(self, rng: np.random.Generator) -> tuple[Any, Any]:
        first = self._first_vectors([*self.places_])
        d = first.shape[1]
        table = np.concatenate([np.zeros((1, d), np.float32), first])
        still = np.zeros((1, 1), np.float32)
        if self.form in ("static", "multichannel"):
            still = table.copy()
        if self.form == "static":
            table = np.zeros((1, 1), np.float32)
        n = len(WIDTHS) * self.n_maps
        layers = Layers(
            jnp.asarray(rng.uniform(-0.01, 0.01, (d, sum(WIDTHS) * self.n_maps)), jnp.float32),
            jnp.zeros(n),
            jnp.zeros((n, self.classes_.size)),
            jnp.zeros(self.classes_.size),
        )
        none = [Layers(*(jnp.zeros_like(weights) for weights in layers)) for _ in range(2)]
        of_words = tuple(jnp.asarray(each) for each in (table, np.zeros_like(table), np.zeros_like(table)))
        return (layers, tuple(none)), (of_words, jnp.asarray(still))

    def _first_vectors(self, words: list[str]) -> np.ndarray:
        """Return the initial word vectors: known vectors, scaled to the length of random ones, or random vectors."""
        if self.vectors is None:
            found = np.zeros((len(words), self.n_components), np.float32)
            for i, word in enumerate(words):
                rng = np.random.default_rng([self.random_state, zlib.crc32(word.encode())])
                found[i] = rng.uniform(-SPREAD, SPREAD, self.n_components)
            return found
        vectors = self.vectors.word_vectors(words)
        known = self.vectors._fitted().own_vectors()
        return vectors * np.float32(SPREAD / np.sqrt(3.0) / known.std())

    def _take(self, state: Any, tables: Any) -> None:
        (vectors, _, _), still = tables
        self.layers_ = Layers(*(np.array(weights) for weights in state[0]))
        parts = [still] * (self.form in ("static", "multichannel")) + [vectors] * (self.form != "static")
        self.table_ = np.array(sum(np.asarray(part) for part in parts))

    def _batches(self, words: list[list[str]], rng: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield batches of texts with similar lengths in random order."""
        lengths = np.array([len(text) for text in words], float)
        order = np.argsort(lengths if rng is None else lengths + rng.uniform(0, 4, lengths.size), kind="stable")
        batches = [order[first : first + self.batch_size] for first in range(0, order.size, self.batch_size)]
        for i in range(len(batches)) if rng is None else rng.permutation(len(batches)):
            yield batches[i]

    def _encoded(self, words: list[list[str]], places: dict[str, int]) -> Texts:
        """Return a batch padded to one of a few sizes to limit the number of shapes that JAX compiles."""
        longest = max((len(text) for text in words), default=0)
        length = next((length for length in LENGTHS if length >= longest), LENGTHS[-1])
        rows = np.zeros((len(words), length + 2 * PADDING), np.int64)
        for i, text in enumerate(words):
            numbers = [places.get(word, 0) for word in text[:length]]
            rows[i, PADDING : PADDING + len(numbers)] = numbers
        distinct, where = np.unique(rows, return_inverse=True)
        filled = np.zeros(max(_FEWEST_ROWS, 1 << (distinct.size - 1).bit_length()), np.int32)
        filled[: distinct.size] = distinct
        return Texts(filled, where.reshape(rows.shape).astype(np.int32))


_maxima = jax.jit(maxima, static_argnums=3)


def words_of(text: str, *, lowercase: bool = True) -> list[str]:
    """Split a text into words, endings such as "n't" and "'s", and punctuation marks."""
    return WORD.findall(text.lower() if lowercase else text)
