"""Use a ``MemoryStore`` as the store of a LangGraph agent. Needs langgraph."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp


class NotesStore(BaseStore):
    """A LangGraph store over a ``MemoryStore``, whose keys are JSON lists of a namespace and a name."""

    supports_ttl = True  # from the last write on: reading does not prolong it

    def __init__(self, notes):
        self.notes = notes

    def batch(self, ops):
        """Answer operations in order."""
        return [self._answer(op) for op in ops]

    async def abatch(self, ops):
        """Answer operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _answer(self, op):
        if isinstance(op, SearchOp):
            return self._found(op)
        if not isinstance(op, GetOp | PutOp):  # ListNamespacesOp
            found = {tuple(json.loads(key)[:-1]) for key in self.notes}
            conditions = op.match_conditions or ()
            found = {space[: op.max_depth] for space in found if all(matches(space, own) for own in conditions)}
            return sorted(found)[op.offset : op.offset + op.limit]
        key = json.dumps([*op.namespace, op.key])
        old = self.notes[key].payload if key in self.notes else None
        if isinstance(op, GetOp):
            return old and item(Item, key, old)
        if op.value is not None:
            now = datetime.now(UTC).isoformat()
            prefixes = [json.dumps(op.namespace[:n]) for n in range(len(op.namespace) + 1)]
            created = old["created_at"] if old else now
            payload = {"value": op.value, "prefixes": prefixes, "created_at": created, "updated_at": now}
            text = "note " + json.dumps([op.key, op.value], ensure_ascii=False, default=str)
            if op.index is False:
                text = "note"  # not found by its words
            expires = None if op.ttl is None else timedelta(minutes=op.ttl)
            self.notes.upsert(key, texts=text, payloads=payload, expires=expires)
        elif old:
            self.notes.delete(key)

    def _found(self, op):
        where = {"prefixes": {"contains": json.dumps(op.namespace_prefix)}}
        where |= {("value", field): wanted for field, wanted in (op.filter or {}).items()}
        if op.query:
            hits = self.notes.query(texts=op.query, k=op.offset + op.limit, where=where)[0]
            return [item(SearchItem, hit.key, hit.payload, score=hit.score) for hit in hits[op.offset :]]
        found = self.notes.get(where=where, limit=op.limit, offset=op.offset)
        return [item(SearchItem, *own) for own in zip(found.keys, found.payloads, strict=True)]


def item(kind, key, payload, **score):
    """Return an item of a key and a payload."""
    *namespace, name = json.loads(key)
    times = {when: datetime.fromisoformat(payload[when]) for when in ("created_at", "updated_at")}
    return kind(namespace=tuple(namespace), key=name, value=payload["value"], **times, **score)


def matches(namespace, condition):
    """Return whether a namespace begins or ends with a path, in which ``"*"`` stands for any part."""
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return len(part) == len(path) and all(wanted in ("*", own) for own, wanted in zip(part, path, strict=True))
