"""The stored texts of a text classifier, with their ids, classes and features."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._forest import require
from .._validation import check_entries
from ..estimators import appended
from ..persistence import document, read_array, read_document
from ._hashing import HashedTexts, features_of

MOST_IDS = 2**53


class StoredTexts:
    """Texts in the order in which they were learned.

    Attributes
    ----------
    texts : list of str
        The texts.
    ids : list of str or int
        The ids that the user gave them.
    slots : ndarray of int64
        Their numbers: ascending, and never reused.
    labels : ndarray of int64
        The positions of their classes among all classes.
    hashed : HashedTexts
        Their features.
    encoded : ndarray of float32, shape (n, d), or None
        Their vectors from an encoder.
    next_slot : int
        The next number.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ids: list[Any] = []
        self.slot_of: dict[Any, int] = {}
        self.slots = self.labels = np.empty(0, np.int64)
        self.hashed = HashedTexts(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        self.encoded: np.ndarray | None = None
        self.next_slot = 0
        self._rooms: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def check_new(self, ids: Any, n: int) -> list[Any]:
        """Return the ids of new texts, by default their numbers.

        Raises
        ------
        TypeError
            If an id is neither a string nor an integer.
        ValueError
            If an id is in use or given twice, or if their number is wrong.
        """
        if ids is None:
            ids = list(range(self.next_slot, self.next_slot + n))
        listed = check_ids(ids)
        check_entries("ids", len(listed), n, "texts")
        seen: set[Any] = set()
        for one in listed:
            if one in self.slot_of or one in seen:
                raise ValueError(f"ids must be new, but {one!r:.50} is already stored: remove it first")
            seen.add(one)
        return listed

    def append(
        self, texts: list[str], ids: list[Any], labels: np.ndarray, hashed: HashedTexts, encoded: np.ndarray | None
    ) -> np.ndarray:
        """Add texts; return their slots."""
        slots = np.arange(self.next_slot, self.next_slot + len(texts))
        rows = self._appended("rows", (self.slots, self.labels), (slots, labels))
        (starts,) = self._appended("starts", (self.hashed.starts,), (hashed.starts[1:] + self.hashed.starts[-1],))
        features = self._appended("features", self.hashed[1:], hashed[1:])
        if encoded is not None:
            former = np.empty((0, encoded.shape[1]), np.float32) if self.encoded is None else self.encoded
            self.encoded = np.concatenate([former, encoded])
        (self.slots, self.labels), self.hashed = rows, HashedTexts(starts, *features)
        self.texts.extend(texts)
        self.ids.extend(ids)
        self.slot_of.update(zip(ids, slots.tolist(), strict=True))
        self.next_slot += len(texts)
        return slots

    def _appended(self, name: str, columns: tuple[np.ndarray, ...], further: tuple[np.ndarray, ...]) -> Any:
        self._rooms[name], made = appended(self._rooms.get(name), columns, further)
        return made

    def positions_of(self, ids: Any) -> np.ndarray:
        """Return the positions of stored texts.

        Raises
        ------
        KeyError
            If an id is unknown.
        TypeError, ValueError
            If they are not ids, or if one is given twice.
        """
        listed = check_ids([ids] if isinstance(ids, str | int | np.integer) else ids)
        for one in listed:
            if one not in self.slot_of:
                raise KeyError(f"ids must be ids of stored texts: there is no {one!r:.50}")
        if len(set(listed)) < len(listed):
            raise ValueError("ids must be distinct")
        return np.searchsorted(self.slots, np.array([self.slot_of[one] for one in listed], np.int64))

    def features_at(self, positions: np.ndarray) -> HashedTexts:
        """Return the features of texts at some positions."""
        first, sizes = self.hashed.starts[positions], np.diff(self.hashed.starts)[positions]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        at = np.repeat(first - starts[:-1], sizes) + np.arange(starts[-1])
        return HashedTexts(starts, self.hashed.columns[at], self.hashed.counts[at])

    def only(self, positions: np.ndarray, labels: np.ndarray) -> StoredTexts:
        """Return the texts at some positions, under other labels."""
        made = StoredTexts()
        made.texts, made.ids = ([kept[i] for i in positions] for kept in (self.texts, self.ids))
        made.slots, made.labels, made.hashed = self.slots[positions], labels.copy(), self.features_at(positions)
        made.slot_of = dict(zip(made.ids, made.slots.tolist(), strict=True))
        made.encoded = None if self.encoded is None else self.encoded[positions]
        made.next_slot = self.next_slot
        return made

    # Files

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a file."""
        kept = {"texts": document(self.texts), "ids": document(self.ids), "slots": self.slots, "labels": self.labels}
        return kept if self.encoded is None else kept | {"encoded": self.encoded}

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], n_classes: int, next_slot: int) -> StoredTexts:
        """Return the texts of a file. Raises InvariantError, TypeError or ValueError if they are not valid."""
        made = cls()
        texts, ids = read_document(arrays, "texts"), read_document(arrays, "ids")
        require(type(texts) is list and all(type(text) is str for text in texts), "texts must be strings")
        n = len(texts)
        made.texts, made.ids = texts, check_ids(ids)
        made.slots, made.labels = read_array("slots", arrays, np.int64), read_array("labels", arrays, np.int64)
        require(made.slots.shape == made.labels.shape == (n,) == (len(ids),), "there must be an id for each text")
        require(bool(np.all(np.diff(made.slots) > 0)) and 0 <= next_slot < MOST_IDS, "slots must be ascending")
        require(n == 0 or 0 <= made.slots[0] <= made.slots[-1] < next_slot, "slots must have been used")
        require(bool(np.all((made.labels >= 0) & (made.labels < n_classes))), "labels must be classes")
        made.slot_of = dict(zip(ids, made.slots.tolist(), strict=True))
        require(len(made.slot_of) == n, "ids must be distinct")
        if "encoded" in arrays:
            made.encoded = read_array("encoded", arrays, np.float32, n_axes=2)
            require(len(made.encoded) == n and bool(np.isfinite(made.encoded).all()), "each text must have a vector")
        made.hashed, made.next_slot = features_of(texts), next_slot
        return made


def check_ids(ids: Any) -> list[Any]:
    """Return ids as a list of strings and integers. Raises TypeError if one is neither."""
    listed = [one.item() if isinstance(one, np.generic) else one for one in ids]
    for one in listed:
        if type(one) not in (str, int):
            raise TypeError(f"ids must be strings or integers, got {one!r:.50}")
        if type(one) is int and abs(one) > MOST_IDS:
            raise ValueError(f"ids must be at most 2**53, got {one}")
    return listed
