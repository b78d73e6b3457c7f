"""Results and memories of a sharded store, merged from those of its shards."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ..store import ExplainedResult, Items, Key, LearnedSummary, Results, are_none


class ShardedResults(Results):
    """The results of a query of a :class:`ShardedStore`.

    Attributes
    ----------
    missing_shards : tuple of str
        The names of shards that did not answer in time. Their memories are missing from the results.
    """

    missing_shards: tuple[str, ...] = ()

    def __getitem__(self, rows: Any) -> Any:
        found = super().__getitem__(rows)
        if isinstance(found, Results):
            found = ShardedResults(found.keys, found.scores, found._payloads, found._texts)
            found.missing_shards = self.missing_shards
        return found

    def __repr__(self) -> str:
        missing = f", without {', '.join(self.missing_shards)}" if self.missing_shards else ""
        return f"{super().__repr__()}{missing}"


def merge_results(answers: Sequence[Results], k: int, *, are_distinct: bool = True) -> ShardedResults:
    """Return the ``k`` best results of all shards, each memory once even if not ``are_distinct``."""
    keys = np.concatenate([answer.keys for answer in answers], axis=1)  # int64 if all parts are int64, else object
    payloads = np.concatenate([answer._payloads for answer in answers], axis=1)
    texts = np.concatenate([answer._texts for answer in answers], axis=1)
    scores = np.concatenate([answer.scores for answer in answers], axis=1)
    if not are_distinct:
        repeated, keys = _find_repeated(keys), keys.astype(object)
        keys[repeated], scores[repeated], payloads[repeated], texts[repeated] = None, -np.inf, None, None
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]

    def choose(values: np.ndarray, missing: Any, dtype: Any = object) -> np.ndarray:
        chosen = np.full((len(values), k), missing, dtype)
        chosen[:, : order.shape[1]] = np.take_along_axis(values, order, axis=1)
        return chosen

    best = ShardedResults(
        choose(keys, None), choose(scores, -np.inf, scores.dtype), choose(payloads, None), choose(texts, None)
    )
    if best.keys.size > 0 and isinstance(best.keys[0, 0], int) and not are_none(best.keys).any():
        best.keys = best.keys.astype(np.int64)
    return best


def _find_repeated(keys: np.ndarray) -> np.ndarray:
    """Return a mask of keys that equal an earlier key in their row."""
    repeated = np.zeros(keys.shape, np.bool_)
    row, column = np.nonzero(~are_none(keys.astype(object)))
    if row.size > 0:
        distinct, number = np.unique(keys[row, column], return_inverse=True)
        firsts = np.unique(row * distinct.size + number, return_index=True)[1]
        again = np.delete(np.arange(row.size), firsts)
        repeated[row[again], column[again]] = True
    return repeated


def stack_results(blocks: Sequence[ShardedResults]) -> ShardedResults:
    """Concatenate the results of blocks of queries."""
    if len(blocks) == 1:
        return blocks[0]
    keys = [block.keys for block in blocks]
    if len({part.dtype for part in keys}) > 1:
        keys = [part.astype(object) for part in keys]
    others = ([block.scores, block._payloads, block._texts] for block in blocks)
    results = ShardedResults(np.concatenate(keys), *map(np.concatenate, zip(*others, strict=True)))
    results.missing_shards = tuple(sorted({name for block in blocks for name in block.missing_shards}))
    return results


Place = tuple[int, Any]
"""The type and the value by which a memory is ordered."""


class ListedItems(NamedTuple):
    """Memories that a shard lists."""

    items: Items
    places: list[Place | None]  # None for memories without a value, which come last
    ids: list[int]


def merge_listed(parts: list[ListedItems], descending: bool, limit: int | None, offset: int) -> Items:
    """Return some of the memories that shards list, each once, in their order."""
    items = join_items([part.items for part in parts])
    order = [(place, memory_id) for part in parts for place, memory_id in zip(part.places, part.ids, strict=True)]
    rows = sorted(range(len(order)), key=lambda row: (order[row][0] or (0, 0), order[row][1]), reverse=descending)
    rows.sort(key=lambda row: order[row][0] is None)
    first = {items.keys[row]: row for row in reversed(rows)}
    rows = [row for row in rows if first[items.keys[row]] == row]
    return pick_items(items, rows[offset : None if limit is None else offset + limit])


def join_items(parts: list[Items]) -> Items:
    """Return the memories of all parts."""
    joined = Items([], _stack(parts), [], [], [] if any(part.expires for part in parts) else None)
    for part in parts:
        joined.keys.extend(part.keys)
        joined.payloads.extend(part.payloads)
        joined.texts.extend(part.texts)
        if joined.expires is not None:
            joined.expires.extend(part.expires or [None] * len(part.keys))
    return joined


def pick_items(items: Items, rows: list[int]) -> Items:
    """Return some memories in the order of ``rows``."""
    columns: Any = (items.keys, items.payloads, items.texts, items.expires)
    keys, payloads, texts, expires = (None if column is None else [column[i] for i in rows] for column in columns)
    vectors = None if items.vectors is None else items.vectors[np.array(rows, np.int64)]
    return Items(keys, vectors, payloads, texts, expires)  # type: ignore[arg-type]


def _stack(parts: list[Items]) -> Any:
    """Return the vectors of all items as one matrix, or None if there are none."""
    some = next((items.vectors for items in parts if items.vectors is not None), None)
    if some is None or len(parts) == 1:
        return some
    is_sparse, blocks = scipy.sparse.issparse(some), []
    for items in parts:
        shape = len(items.keys), some.shape[1]
        nothing = scipy.sparse.csr_array(shape, dtype=np.float32) if is_sparse else np.full(shape, np.nan, np.float32)
        blocks.append(nothing if items.vectors is None else items.vectors)
    return scipy.sparse.vstack(blocks, "csr") if is_sparse else np.vstack(blocks)


def merge_explained(parts: list[list[ExplainedResult]], k: int) -> list[ExplainedResult]:
    """Return the ``k`` best of the results that shards explain. A memory that is moving may be in two shards."""
    best: dict[Key, ExplainedResult] = {}
    for result in sorted(chain.from_iterable(parts), key=lambda result: -result.score):
        best.setdefault(result.key, result)
    return list(best.values())[:k]


def mean_summary(summaries: list[LearnedSummary]) -> LearnedSummary | None:
    """Return the means of the figures of shards, or None if there are none."""
    if not summaries:
        return None
    weights = np.mean([[part.weight for part in each.parts] for each in summaries], axis=0).tolist()
    parts = [part._replace(weight=weight) for part, weight in zip(summaries[0].parts, weights, strict=True)]
    figures = [(each.n_rewards, each.gain, *each.interval, each.share) for each in summaries]
    n, gain, low, high, share = np.mean(figures, axis=0).tolist()
    return LearnedSummary(parts, n, gain, (low, high), share, summaries[0].reason)
