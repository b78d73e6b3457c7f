"""Exhaustive searches of 8-bit codes. Vector instructions compare a row with all codes of a tile together."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .._forest import NONE, Hits, Rows, State
from .._heads import CodedLists, Landmarks, Scorers, chained, coded_lists, search_lists
from .._jit import FEATURES_OF_A_WORD, TILE, Tiles

ZERO = 64
"""The code of 0 in a query. Codes of queries are unsigned 7-bit integers."""

_TILES_AT_ONCE = 1 << 7  # number of tiles whose copy fits into the processor's cache
_NO_BIASES = np.empty(0, np.float32)


class CodedCandidates(NamedTuple):
    """The codes of candidates in one or several lists of tiles."""

    landmarks: Landmarks
    sizes: np.ndarray  # int64 (n_lists,): the number of memories in each list


def coded_candidates(state: State, slots: np.ndarray) -> CodedCandidates:
    """Return the codes of the dense keys in ``slots``, which must ascend, as a single list."""
    d, n_tiles = state.parameters.n_features, -(-slots.size // TILE)
    n_groups = -(-d // FEATURES_OF_A_WORD)
    labels = np.full(n_tiles * TILE, NONE)
    labels[: slots.size] = slots
    all_codes, marks = state.codes.values.reshape(-1, d), state.codes.marks
    codes = np.empty((n_tiles, n_groups, TILE, FEATURES_OF_A_WORD), np.int8)
    starts = np.zeros(labels.size, np.int32)
    scales, errors = np.zeros(labels.size, np.float32), np.full(labels.size, -np.inf, np.float32)
    scales[: slots.size], errors[: slots.size] = marks["scale"][slots], marks["error"][slots]
    padded = np.zeros((_TILES_AT_ONCE * TILE, n_groups * FEATURES_OF_A_WORD), np.int8)
    for tile in range(0, n_tiles, _TILES_AT_ONCE):
        some = slots[tile * TILE : (tile + _TILES_AT_ONCE) * TILE]
        padded[: some.size, :d] = all_codes[some]
        padded[some.size :] = 0
        starts[tile * TILE : tile * TILE + some.size] = -ZERO * padded[: some.size].sum(axis=1, dtype=np.int32)
        words = padded.view(np.int32).reshape(-1, TILE, n_groups)
        target = codes[tile : tile + _TILES_AT_ONCE].view(np.int32)[..., 0]
        target[:] = words[: len(target)].transpose(0, 2, 1)
    tiles = Tiles(codes.reshape(-1), starts, scales, errors)
    longest = 1.0 + float(marks["error"][slots].max(initial=0.0))
    lists = CodedLists(*chained(np.array([0, n_tiles])), labels, tiles, longest, ZERO)
    return CodedCandidates(Landmarks(_everywhere(d), lists, np.inf), np.array([slots.size]))


@lru_cache(maxsize=16)
def _everywhere(n_features: int) -> CodedLists:
    """Return a single landmark, which every row reaches."""
    return coded_lists(np.zeros((1, n_features), np.float32), None, np.zeros(1, np.int64), 1, ZERO)


class _Found(NamedTuple):
    """The arrays that ``search_lists`` writes."""

    labels: np.ndarray  # int64 (n_rows, k): slots
    scores: np.ndarray  # float32 (n_rows, k)
    n_scored: np.ndarray  # int64 (n_rows,): number of candidates compared with each row
    n_met: np.ndarray  # int64 (n_rows,): unused


def search_coded(state: State, candidates: CodedCandidates, rows: Rows, hits: Hits) -> np.ndarray:
    """Write the best candidates for rows to ``hits``; return the number of candidates compared with each row.

    Call this within a read of the forest.
    """
    n, k = hits.ids.shape
    d, theta, lengths = rows.n_features, state.scorer.theta, None
    values, offsets = rows.values[rows.offsets[0] : rows.offsets[-1]], rows.offsets - rows.offsets[0]
    if theta.size > 0:
        weighted = values.reshape(n, d) * (np.float32(1.0) + theta)
        lengths = np.sqrt(np.einsum("ij,ij->i", weighted, weighted))[:, None]
        values = (weighted / np.maximum(lengths, np.float32(1e-30))).reshape(-1)
    asked = Rows(values, rows.indices, offsets, d, False)
    found = _Found(np.empty((n, k), np.int64), hits.scores, np.empty(n, np.int64), np.empty(n, np.int64))
    search_lists(candidates.landmarks, candidates.sizes, Scorers(state.keys.values, d, _NO_BIASES), asked, 0, n, found)
    state.keys.ids.take(found.labels, out=hits.ids, mode="wrap")
    if candidates.sizes.size > 1 or k > candidates.sizes.item(0):  # a single list with k memories fills every row
        hits.ids[found.labels == NONE] = NONE
    if lengths is not None:
        hits.scores[:] *= lengths
    return found.n_scored
