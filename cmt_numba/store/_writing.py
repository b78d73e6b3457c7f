"""Adding and replacing memories, and setting fields of payloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

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
from ._metrics import METRICS, check_lengths
from ._results import read_payload
from ._search import NewKeys

_CELLS_REPLACED_AT_ONCE = 1 << 22  # about ten milliseconds of work, for which queries wait


def write_memories(contents: StoreContents, keys: Any, X: Any, payloads: Any, replace: bool) -> None:
    """Add memories within a change. With ``replace``, keys that are already stored get new vectors and payloads."""
    own, X = check_keys(keys), contents.check_form(X)
    search = contents.search
    norms = check_lengths(X, search.space.metric)
    check_one_for_each_row(own, X.shape[0])
    texts: list[str | None] = [None] * len(own)
    if payloads is not None:
        texts = check_payloads(payloads, len(own))
    records, ids = search.records, search.records.find(own)
    is_old = ids >= 0
    if not is_old.any():
        check_kind(own, records.kind())
    elif not replace:
        message = f"keys must not be in the store yet, but {own[is_old.argmax()]!r:.100} is; use upsert to replace it"
        raise DuplicateKeyError(message)
    if search.space.n_more > 0:
        _make_room(contents, X)
    new = contents.search.keys_of(X, norms)
    if is_old.all():
        _replace(contents, ids, texts, new)
        return
    if is_old.any():
        old = is_old.nonzero()[0]
        _replace(contents, ids[old], [texts[i] for i in old], new.of(old))
        contents.commit_part()
        rest = (~is_old).nonzero()[0]
        own, texts, new = [own[i] for i in rest], [texts[i] for i in rest], new.of(rest)
    first = contents.tree._forest.next_id
    records.insert(np.arange(first, first + len(own)), own, texts, new.lost)
    evicted = contents.insert(new)
    if evicted.size > 0:
        records.delete(evicted)


def _replace(contents: StoreContents, ids: np.ndarray, texts: list[str | None], new: NewKeys) -> None:
    """Replace vectors and payloads in steps, within a change."""
    size = max(1, _CELLS_REPLACED_AT_ONCE * ids.size // max(1, new.rows.values.size))
    for start in range(0, ids.size, size):
        if start > 0:
            contents.commit_part()
        some = new if size >= ids.size else new.of(np.arange(start, min(start + size, ids.size)))
        here = slice(start, start + size)
        contents.search.records.update(ids[here], texts[here], some.lost)
        contents.replace(ids[here], some)


def _make_room(contents: StoreContents, X: Any) -> None:
    """Prepare the key space for new vectors, within a change. If this requires a new bound, recompute all keys."""
    space = contents.space
    admitting = space.admits(X, contents.tree.n_memories) if space.bound > 0.0 else None
    if admitting is space:
        return
    if admitting is not None:
        contents.set_space(admitting)
        return
    ids, every = np.sort(contents.tree.ids), X
    if ids.size > 0:
        stack = scipy.sparse.vstack if scipy.sparse.issparse(X) else np.concatenate
        every = stack([contents.search.read(ids)[0].rows, X])
    contents.rekey(METRICS[space.metric].fitted(every))
    contents.efforts.forget()


def set_fields(contents: StoreContents, keys: list[Key], fields: list[dict[str, Any]]) -> None:
    """Set payload fields of memories, within a change."""
    ids = contents.records.find(keys)
    check_stored(keys, ids)
    records = contents.records
    found = records.payloads(ids.tolist())
    before = [read_payload(found.get(memory_id, "{}")) for memory_id in ids.tolist()]
    for key, payload in zip(keys, before, strict=True):
        if not isinstance(payload, dict):
            raise TypeError(
                f"the payload of {key!r:.50} must be a dict before its fields can be updated, got {payload!r:.50}"
            )
    after = [payload | own for payload, own in zip(before, fields, strict=True)]
    records.update_payloads(ids, check_payloads(after, len(after)))
