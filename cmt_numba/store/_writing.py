"""Adding and replacing memories, and setting fields of payloads."""

from __future__ import annotations

from typing import Any

from ._checks import (
    DuplicateKeyError,
    Key,
    check_keys,
    check_kind,
    check_one_for_each_row,
    check_payloads,
    check_stored,
)
from ._contents import StoreContents
from ._results import read_payload


def write_memories(contents: StoreContents, keys: Any, X: Any, payloads: Any, replace: bool) -> None:
    """Add memories within a change. With ``replace``, keys that are already stored get new vectors and payloads."""
    own, X = check_keys(keys), contents.check_vectors(X)
    check_one_for_each_row(own, X.shape[0])
    texts = check_payloads(payloads, len(own))
    records, ids = contents.records, contents.records.find(own)
    is_old = ids >= 0
    if not is_old.any():
        check_kind(own, records.kind())
        contents.insert(own, texts, X)
        return
    if not replace:
        message = f"keys must not be in the store yet, but {own[is_old.argmax()]!r:.100} is; use upsert to replace it"
        raise DuplicateKeyError(message)
    if is_old.all():
        contents.replace(ids, texts, X)
        return
    old, new = is_old.nonzero()[0], (~is_old).nonzero()[0]
    contents.replace(ids[old], [texts[i] for i in old], X[old])
    contents.insert([own[i] for i in new], [texts[i] for i in new], X[new])


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
