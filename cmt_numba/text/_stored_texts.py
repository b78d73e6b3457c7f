"""The texts that a classifier stores, with their ids, labels and features."""

import itertools
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from .. import persistence as files
from .._kernels import NONE, GrowingColumns, require
from .._validation import check_entries
from .._words import fold_text
from ._hash_kernels import N_COLUMNS, N_KINDS
from ._hashing import HashedTexts, features_of

MOST_IDS = 2**53
MOST_IMPORTANT = 1e6  # largest sample weight
_LARGEST = float(np.finfo(np.float32).max)
_COPIES, _RIGHT = 20, 19  # repeated texts assumed before any evidence, and how many have the class of their copies


class NewTexts(NamedTuple):
    """Texts to learn."""

    texts: list[str]
    ids: list[Any]
    importance: np.ndarray  # float32 (n,), sample weights
    hashed: HashedTexts
    encoded: np.ndarray | None  # the encoder's vectors: float32 (n, d)


def _check_features(name: str, hashed: HashedTexts) -> None:
    starts, columns, counts = hashed
    sound = starts.size > 0 and starts[0] == 0 and starts[-1] == columns.size == counts.size
    require(sound and bool((np.diff(starts) >= 0).all()), f"{name} must have a row for each text")
    row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    require(bool(((np.diff(columns) > 0) | (np.diff(row) > 0)).all()), f"{name} must ascend")


_FEATURES = files.TupleField(
    HashedTexts,
    _check_features,
    starts=files.ArrayField(np.int64),
    columns=files.ArrayField(np.int32, bounds=(0, N_KINDS * N_COLUMNS - 1)),
    counts=files.ArrayField(np.float32, bounds=(1, 2**24)),
)


class StoredTexts(files.WithFields):
    """Texts in the order in which they were learned.

    - ``tokenizer``: the name of the tokenizer that divided the texts into words; None for the default words.
    """

    FIELDS = files.FieldTable(
        texts=files.TextsField(),
        tokenizer=files.OptionalField(files.TextField()),
        tokenized=files.OptionalField(_FEATURES),
        ids=files.DocumentField(),  # id of each text
        slots=files.ArrayField(np.int64, bounds=(0, MOST_IDS)),
        next_slot=files.NumberField(0, MOST_IDS),  # slot of the next text
        first_live=files.NumberField(0, MOST_IDS),  # slot of the first text that was not learned by fit
        labels=files.ArrayField(np.int64),
        importance=files.ArrayField(np.float32, bounds=(0, MOST_IMPORTANT)),
        encoded=files.OptionalField(files.ArrayField(np.float32, n_axes=2, bounds=(-_LARGEST, _LARGEST))),
    )

    def __init__(self, tokenizer: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.texts: list[str] = []
        self.ids: list[Any] = []
        self.slot_of: dict[Any, int] = {}  # slot of each id
        self.next_slot = self.first_live = 0
        none = HashedTexts(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        self._set((np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)), none, None)

    def _set(self, rows: tuple[np.ndarray, ...], hashed: HashedTexts, encoded: np.ndarray | None) -> None:
        """Set the rows of slots, labels and importance, and the vectors of the texts."""
        self._rows = GrowingColumns(*rows)
        self._starts, self._features = GrowingColumns(hashed.starts), GrowingColumns(*hashed[1:])
        self._encoded = None if encoded is None else GrowingColumns(encoded)
        self._positions: dict[bytes, list[int]] = {}  # positions of the texts with the same features
        self._list_copies(hashed, 0)

    def _list_copies(self, hashed: HashedTexts, first: int) -> None:
        for position, key in enumerate(_keys(hashed), first):
            self._positions.setdefault(key, []).append(position)

    @property
    def slots(self) -> np.ndarray:
        """The slot of each text: int64, ascending. Slots are never reused."""
        return self._rows.columns[0]

    @property
    def labels(self) -> np.ndarray:
        """The label of each text: int64. The array may be modified in place."""
        return self._rows.columns[1]

    @property
    def importance(self) -> np.ndarray:
        """The sample weight of each text: float32."""
        return self._rows.columns[2]

    @property
    def hashed(self) -> HashedTexts:
        """The hashed features of the texts."""
        return HashedTexts(*self._starts.columns, *self._features.columns)

    @property
    def tokenized(self) -> HashedTexts | None:
        """The features of words by a tokenizer. None for the default words, which files need not contain."""
        return None if self.tokenizer is None else self.hashed

    @property
    def encoded(self) -> np.ndarray | None:
        """The encoder's vectors: float32, shape (n, d). None without an encoder."""
        return None if self._encoded is None else self._encoded.columns[0]

    def __len__(self) -> int:
        return len(self.texts)

    def new(
        self, texts: list[str], ids: Any, importance: np.ndarray, hashed: HashedTexts, encoded: np.ndarray | None
    ) -> NewTexts:
        """Return new texts. If ``ids`` is None, their ids are the slots, or the next unused integers."""
        return NewTexts(texts, self._check_new(ids, len(texts)), importance, hashed, encoded)

    def _check_new(self, ids: Any, n: int) -> list[Any]:
        if ids is None:
            unused = (i for i in itertools.count(self.next_slot) if i not in self.slot_of)
            return list(itertools.islice(unused, n))
        listed = check_ids(ids)
        check_entries("ids", len(listed), n, "texts")
        seen: set[Any] = set()
        for one in listed:
            if one in self.slot_of or one in seen:
                raise ValueError(f"ids must be new, but {one!r:.50} is already stored: remove it first")
            seen.add(one)
        return listed

    def append(self, new: NewTexts, labels: np.ndarray) -> None:
        hashed, encoded, n = new.hashed, new.encoded, labels.size
        slots = np.arange(self.next_slot, self.next_slot + n)
        rows = self._rows.appended(slots, labels, new.importance)
        starts = self._starts.appended(hashed.starts[1:] + self.hashed.starts[-1])
        features = self._features.appended(*hashed[1:])
        if encoded is not None:
            self._encoded = GrowingColumns(encoded) if self._encoded is None else self._encoded.appended(encoded)
        self._rows, self._starts, self._features = rows, starts, features
        self.texts.extend(new.texts)
        self.ids.extend(new.ids)
        self.slot_of.update(zip(new.ids, slots.tolist(), strict=True))
        self._list_copies(hashed, len(self) - n)
        self.next_slot += n

    def mark(self) -> tuple[Any, ...]:
        """Return what :meth:`undo_append` needs."""
        return self._rows, self._starts, self._features, self._encoded, self.next_slot

    def undo_append(self, new: NewTexts, mark: tuple[Any, ...]) -> None:
        """Undo :meth:`append`, also if it has failed. ``mark`` is the return value of :meth:`mark` before it."""
        self._rows, self._starts, self._features, self._encoded, self.next_slot = mark
        n = len(self._rows)
        del self.texts[n:], self.ids[n:]
        for one in new.ids:
            self.slot_of.pop(one, None)
        for key in _keys(new.hashed):
            if kept := [position for position in self._positions.pop(key, ()) if position < n]:
                self._positions[key] = kept

    def positions_of(self, ids: Any) -> np.ndarray:
        listed = check_ids(ids)
        for one in listed:
            if one not in self.slot_of:
                raise KeyError(f"ids must refer to stored texts, but no text has id {one!r:.50}")
        if len(set(listed)) < len(listed):
            raise ValueError("ids must be distinct")
        return np.searchsorted(self.slots, np.array([self.slot_of[one] for one in listed], np.int64))

    def labels_of_copies(self, hashed: HashedTexts, *, only_live: bool = False) -> np.ndarray:
        """Return the label of the stored texts with the same features as each text, or -1 if there is none.

        The latest of these texts counts if it was not learned by ``fit``. Otherwise, all must have the same label or,
        with ``only_live``, none counts. Texts without features have no copies.
        """
        found = np.full(hashed.starts.size - 1, NONE)
        for i, key in enumerate(_keys(hashed)):
            positions = self._positions.get(key)
            if positions and hashed.starts[i] < hashed.starts[i + 1]:
                label, is_live = self.labels[positions[-1]], self.slots[positions[-1]] >= self.first_live
                if is_live or (not only_live and np.all(self.labels[positions] == label)):
                    found[i] = label
        return found

    def copies_agree(self) -> float:
        """Return how probably a repeated text has the label of its copies, if these have one label.

        Each text with copies is left out in turn, in addition to the texts assumed before any evidence.
        """
        right, n = _RIGHT, _COPIES
        for positions in self._positions.values():
            if len(positions) > 1:
                counts = np.unique(self.labels[positions], return_counts=True)[1]
                right += int(counts[0]) if counts.size == 1 else 0
                n += int(counts[0]) if counts.size == 1 else int(np.sum(counts == 1)) if counts.size == 2 else 0
        return right / n

    def features_at(self, positions: np.ndarray) -> HashedTexts:
        first, sizes = self.hashed.starts[positions], np.diff(self.hashed.starts)[positions]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        at = np.repeat(first - starts[:-1], sizes) + np.arange(starts[-1])
        return HashedTexts(starts, self.hashed.columns[at], self.hashed.counts[at])

    def at(self, positions: np.ndarray) -> NewTexts:
        texts, ids = ([kept[i] for i in positions] for kept in (self.texts, self.ids))
        encoded = None if self.encoded is None else self.encoded[positions]
        return NewTexts(texts, ids, self.importance[positions], self.features_at(positions), encoded)

    def only(self, positions: np.ndarray | None = None) -> "StoredTexts":
        """Return a copy that contains only the texts at ``positions`` (default: all)."""
        positions = np.arange(len(self)) if positions is None else positions
        made = StoredTexts(self.tokenizer)
        made.texts, made.ids, importance, hashed, encoded = self.at(positions)
        made._set((self.slots[positions], self.labels[positions], importance), hashed, encoded)
        made.slot_of = dict(zip(made.ids, made.slots.tolist(), strict=True))
        made.next_slot, made.first_live = self.next_slot, self.first_live
        return made

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> "StoredTexts":
        made, n, hashed = cls(values["tokenizer"]), len(values["texts"]), values["tokenized"]
        made.texts, made.ids = values["texts"], check_ids(values["ids"])
        made.next_slot, made.first_live = values["next_slot"], values["first_live"]
        slots, labels, importance, encoded = (values[name] for name in ("slots", "labels", "importance", "encoded"))
        arrays = [slots, labels, importance, *(() if encoded is None else (encoded,))]
        require(all(len(array) == n for array in arrays), "every text must have an entry in each array")
        require(np.all(np.diff(slots, append=made.next_slot) > 0), "slots must be in ascending order")
        made.slot_of = dict(zip(made.ids, slots.tolist(), strict=True))
        require(len(made.slot_of) == n, "ids must be distinct")
        require((made.tokenizer is None) == (hashed is None), "words by a tokenizer need features")
        if hashed is None:
            hashed = features_of([fold_text(text) for text in made.texts])
        require(hashed.starts.size == n + 1, "each text must have features")
        made._set((slots, labels, importance), hashed, encoded)
        return made


def _keys(hashed: HashedTexts) -> list[bytes]:
    data, ends = hashed.columns.tobytes(), (hashed.columns.itemsize * hashed.starts).tolist()
    return [blake2b(data[a:b], digest_size=16).digest() for a, b in itertools.pairwise(ends)]


def check_ids(ids: Any) -> list[Any]:
    """Return one id or several as Python strings and integers. Raise TypeError or ValueError for any other id."""
    ids = [ids] if isinstance(ids, str | int | np.integer) else ids
    listed = [one.item() if isinstance(one, np.generic) else one for one in ids]
    for one in listed:
        if type(one) not in (str, int):
            raise TypeError(f"ids must be strings or integers, got {one!r:.50}")
        if type(one) is int and abs(one) > MOST_IDS:
            raise ValueError(f"ids must be at most 2**53 in absolute value, got {one}")
    return listed
