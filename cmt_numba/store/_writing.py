"""Adding and replacing memories, and setting fields of payloads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._validation import check_entries
from ._checks import (
    DuplicateKeyError,
    Key,
    check_keys,
    check_kind,
    check_payloads,
    check_stored,
    check_texts,
)
from ._contents import MemoryContent, StoreContents
from ._results import read_payload
from ._words import count_words, has_words


def write_memories(contents: StoreContents, keys: Any, X: Any, payloads: Any, texts: Any, replace: bool) -> None:
    """Add memories within a change. With ``replace``, keys that are already stored get new contents."""
    own = check_keys(keys)
    content = _checked(contents, len(own), X, payloads, texts)
    records, ids = contents.records, contents.records.find(own)
    is_old = ids >= 0
    n_old = np.count_nonzero(is_old)
    if n_old == 0:
        check_kind(own, records.kind())
        contents.insert(own, content)
        return
    if not replace:
        message = f"keys must not be in the store yet, but {own[is_old.argmax()]!r:.100} is; use upsert to replace it"
        raise DuplicateKeyError(message)
    if n_old == len(own):
        contents.replace(ids, content)
        return
    old, new = is_old.nonzero()[0], (~is_old).nonzero()[0]
    contents.replace(ids[old], content.rows(old))
    contents.insert([own[i] for i in new], content.rows(new))


def _checked(contents: StoreContents, n: int, X: Any, payloads: Any, texts: Any) -> MemoryContent:
    """Return the contents of ``n`` memories."""
    given = check_new_texts(n, X, texts)
    words = None if texts is None else count_words(given)
    if X is not None:
        X = contents.check_vectors(X)
        check_entries("keys", n, X.shape[0])
    return MemoryContent(X, words, given, check_payloads(payloads, n))


def check_new_texts(n: int, X: Any, texts: Any) -> list[str | None]:
    """Return the texts of ``n`` new memories, with None for no text."""
    if X is None and texts is None:
        raise TypeError("pass vectors X, texts, or both")
    given = check_texts(texts, n, may_be_missing=X is not None)
    for i, text in enumerate(given):
        if text is not None and not has_words(text):
            raise ValueError(f"texts must contain words, but texts[{i}] is {text!r:.50}")
    return given


def set_fields(contents: StoreContents, keys: list[Key], fields: list[dict[str, Any]]) -> None:
    """Set payload fields of memories, within a change."""
    ids = contents.records.find(keys)
    check_stored(keys, ids)
    found = contents.records.payloads(ids.tolist())
    before = [read_payload(found.get(memory_id, "{}")) for memory_id in ids.tolist()]
    for key, payload in zip(keys, before, strict=True):
        if not isinstance(payload, dict):
            raise TypeError(
                f"the payload of {key!r:.50} must be a dict before its fields can be updated, got {payload!r:.50}"
            )
    after = [payload | own for payload, own in zip(before, fields, strict=True)]
    contents.set_payloads(ids, check_payloads(after, len(after)))
