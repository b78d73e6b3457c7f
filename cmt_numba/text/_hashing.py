"""Hashed features of texts (words, pairs of words and n-grams of characters) and their weights."""

from typing import NamedTuple

import numpy as np

from .. import persistence as files
from ._hash_kernels import MOST_OF_A_CHARACTER, N_COLUMNS, N_KINDS, SPACE, Weighing, hash_texts, weigh_texts

_NEWLINE = 10
_FREQUENT = 50  # n-grams in at most this number of texts are never ignored
_MOST_CHARACTERS = 1 << 22  # per kernel call; a longer text is hashed alone


class HashedTexts(NamedTuple):
    """The features of texts, without duplicates and in ascending order, as the rows of a CSR matrix."""

    starts: np.ndarray  # int64 (n_texts + 1,)
    columns: np.ndarray  # int32
    counts: np.ndarray  # float32

    def rows(self, rows: slice) -> "HashedTexts":
        """Return the features of the texts ``rows.start`` to ``rows.stop``."""
        starts = self.starts[rows.start : rows.stop + 1]
        here = slice(starts[0], starts[-1])
        return HashedTexts(starts - starts[0], self.columns[here], self.counts[here])


class WeighedTexts(NamedTuple):
    """Features of texts with their weights, as the rows of a CSR matrix."""

    starts: np.ndarray  # int64 (n_texts + 1,)
    columns: np.ndarray  # int32
    weights: np.ndarray  # float32


class DocumentFrequencies(files.WithFields):
    """The number of texts with each feature, updated as texts are added and removed."""

    FIELDS = files.FieldTable(counts=files.SparseArrayField(np.int32, N_KINDS * N_COLUMNS), n_texts=files.NumberField())

    def __init__(self, counts: np.ndarray, n_texts: int) -> None:
        self.counts, self.n_texts = counts, n_texts

    @classmethod
    def of(cls, hashed: HashedTexts) -> "DocumentFrequencies":
        """Count the texts with each feature."""
        counts = np.bincount(hashed.columns, minlength=N_KINDS * N_COLUMNS).astype(np.int32)
        return cls(counts, hashed.starts.size - 1)

    def copy(self) -> "DocumentFrequencies":
        return DocumentFrequencies(self.counts.copy(), self.n_texts)

    def add(self, hashed: HashedTexts, times: int = 1) -> None:
        """Add texts to the counts, or subtract them if ``times`` is -1."""
        np.add.at(self.counts, hashed.columns, np.int32(times))
        self.n_texts += times * (hashed.starts.size - 1)

    def weighing(self, factors: np.ndarray, *, least: int = 0, most: float = 1.0) -> Weighing:
        """Return the settings that :meth:`weigh` needs, with a factor for each kind of feature.

        Features in fewer than ``least`` texts get weight 0. N-grams in more than a fraction ``most`` of all texts are
        ignored.
        """
        return Weighing(factors, self.counts, self.n_texts, least, max(_FREQUENT, int(most * self.n_texts)))

    def weigh(self, hashed: HashedTexts, weighing: Weighing, order: np.ndarray | None = None) -> WeighedTexts:
        """Return the feature weights of the texts at the positions ``order`` (default: all texts)."""
        if order is None:
            order = np.arange(hashed.starts.size - 1)
        n = int((hashed.starts[order + 1] - hashed.starts[order]).sum())
        starts, columns, weights = np.empty(order.size + 1, np.int64), np.empty(n, np.int32), np.empty(n, np.float32)
        weigh_texts(hashed, order, weighing, starts, columns, weights)
        return WeighedTexts(starts, columns, weights)


class LabelledTexts(NamedTuple):
    """Hashed texts to learn from."""

    hashed: HashedTexts
    frequencies: DocumentFrequencies
    labels: np.ndarray  # int64 (n_texts,)
    n_labels: int
    importance: np.ndarray  # float32 (n_texts,), weight of each text in learning
    vectors: np.ndarray  # float32 (n_texts, d), weighted vector of each text


def features_of(texts: list[str], *, divides: bool = True) -> HashedTexts:
    """Hash the features of texts that are words with spaces between them.

    With ``divides``, characters of scripts without spaces are words by themselves.
    """
    parts: list[HashedTexts] = []
    first = 0
    while first < len(texts) or not parts:
        stop, n = first, 0
        while stop < len(texts) and (stop == first or n + len(texts[stop]) <= _MOST_CHARACTERS):
            n += len(texts[stop])
            stop += 1
        parts.append(_features_of_some(texts[first:stop], divides))
        first = stop
    return parts[0] if len(parts) == 1 else join(parts)


def join(parts: list[HashedTexts]) -> HashedTexts:
    """Concatenate hashed texts."""
    sizes = np.concatenate([[0], *(np.diff(part.starts) for part in parts)])
    columns, counts = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return HashedTexts(np.cumsum(sizes), columns, counts)


def _features_of_some(texts: list[str], divides: bool) -> HashedTexts:
    joined = "\n".join(texts)
    codes = np.array(np.frombuffer(joined.encode("utf-32-le"), np.uint32))
    newlines = np.flatnonzero(codes == _NEWLINE)
    codes[newlines] = SPACE
    ends = np.append(newlines, codes.size)[: len(texts)]
    starts, n = np.empty(len(texts) + 1, np.int64), MOST_OF_A_CHARACTER * codes.size
    columns, counts = np.empty(n, np.int32), np.empty(n, np.float32)
    hash_texts(codes, ends, divides, starts, columns, counts)
    return HashedTexts(starts, columns[: starts[-1]].copy(), counts[: starts[-1]].copy())
