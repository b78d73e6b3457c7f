"""The arrays of ``DenseIndex``, and what its searches reach, against plain NumPy."""

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from conftest import needs_jit
from internals import held_by, index_room, inner_state
from reference import _dense_index as reference

from cmt_numba._index import DenseIndex, dense_index, search
from cmt_numba._jit import held

METRICS = ("cosine", "inner_product", "euclidean")
N = 300


@cache
def grown(metric: str, d: int) -> tuple[Any, Any, np.ndarray]:
    """Return an index, its state, and its vectors as codes describe them. Tests must not change the index."""
    rng = np.random.default_rng(d)
    X = (rng.integers(-3, 4, size=(1, d)) + rng.standard_normal((N, d)) * rng.random((N, 1))).astype(np.float32)
    dense = DenseIndex(d, metric=metric, random_state=4)
    # As plain Python, each sample of the effort of searches takes long, and searches here get an effort.
    with patch.object(dense_index, "_FEW", 100), patch.object(dense_index, "N_SAMPLES", index_room.effort.N_AT_ONCE):
        dense.insert(X)
    dense.remove(dense.ids[:50])
    return dense, inner_state(dense), prepared(dense, dense.vectors(dense.ids))


def prepared(dense: Any, X: np.ndarray) -> np.ndarray:
    """Return vectors as codes describe them."""
    X = X.astype(np.float64)
    if dense.metric == "cosine":
        return X / np.linalg.norm(X, axis=1)[:, None]
    return (X - inner_state(dense).origin) * inner_state(dense).numbers[0]


@pytest.mark.parametrize("d", [1, 20, 64, pytest.param(100, marks=needs_jit), pytest.param(130, marks=needs_jit)])
@pytest.mark.parametrize("metric", METRICS)
def test_codes_describe_members(metric: str, d: int):
    dense, state, units = grown(metric, d)
    Y, words = reference.rotated(units, state.signs), state.signs.shape[1] // 64
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1), np.linalg.norm(units, axis=1))
    assert state.lists.counts[index_room.state.N_LISTS] > 1
    bits = state.lists.bits.reshape(-1, words, 32)
    for slot in range(len(dense)):
        place = state.lists.places[slot]
        tile, lane = divmod(int(place), 32)
        center, lift = state.lists.centers[state.lists.list_of[tile]], 0.5 * units[slot] @ units[slot]
        decoded = state.lists.scales[place] * state.lists.codes[place].astype(np.float64)
        stored = np.unpackbits(np.ascontiguousarray(bits[tile, :, lane]).view(np.uint8), bitorder="little")
        found = []
        for y in (Y[slot], decoded) if d >= 64 else (Y[slot],):  # a refreshed list has codes of the decoded vector
            signs, factor, added = reference.one_bit_code(y, center, lift if metric == "inner_product" else 0.0)
            numbers = (state.lists.factors[place], state.lists.added[place])
            clear = np.abs(y - center) > 1e-5
            is_close = np.allclose(numbers, (factor, added), rtol=1e-3, atol=1e-3) or not clear.all()
            found.append(is_close and np.array_equal(stored[clear].astype(bool), signs[clear]))
        assert any(found)
        coded = Y[slot] if d >= 64 else units[slot]
        assert np.linalg.norm(decoded - coded) <= state.lists.errors[place] + 1e-6
        np.testing.assert_allclose(state.lists.lifts[place], lift, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_lists_have_their_limits_and_most_members_are_in_the_nearest_one(metric: str):
    _, state, units = grown(metric, 20)
    n_lists = int(state.lists.counts[index_room.state.N_LISTS])
    assert state.lists.sizes[:n_lists].max() <= 2 * index_room.state.LIST_SIZE
    assert state.lists.counts[index_room.state.N_TILES] <= N // 32 + 4 * n_lists
    centers = state.lists.centers[:n_lists].astype(np.float64)
    near = reference.rotated(units, state.signs) @ centers.T - 0.5 * (centers**2).sum(axis=1)
    own = state.lists.list_of[state.lists.places[: len(units)] // 32]
    assert (near.argmax(axis=1) == own).mean() > 0.7


def effort_of(gap: float, n_groups: int):
    """Return an effort for which no bound is missed and no row is far."""
    some = np.zeros(3, np.float32)
    return held(search.ListEffort(some, some + np.float32(gap), some, some + np.float32(1e30), some, 20.0, n_groups))


@pytest.mark.parametrize(
    ("d", "together"), [(20, False), (3, True), (20, True), (64, True), pytest.param(130, True, marks=needs_jit)]
)
@pytest.mark.parametrize("metric", METRICS)
def test_a_search_finds_the_best_of_the_lists_within_its_gap(metric: str, d: int, together: bool):
    dense, state, units = grown(metric, d)
    Q = np.random.default_rng(1).standard_normal((6, d)).astype(np.float32)
    queries, n_lists, k = prepared(dense, Q), int(state.lists.counts[index_room.state.N_LISTS]), 4
    if metric == "inner_product":  # queries get the usual length of vectors
        queries *= np.sqrt((units**2).sum(axis=1).mean()) / np.linalg.norm(queries, axis=1)[:, None]
    rotated = reference.rotated(queries, state.signs)
    own = state.lists.list_of[state.lists.places[: len(units)] // 32]
    lifts_of_lists = state.groups.lifts[state.groups.places[:n_lists]]
    lifts = 0.5 * (units**2).sum(axis=1) if metric != "inner_product" else np.zeros(len(units))
    shares = []
    for gap in (0.01, 0.3, 1e30):
        ids, scores = np.empty((6, k), np.int64), np.empty((6, k))
        effort = effort_of(gap, 1)
        every = search.Mask(np.empty(0, np.uint64), np.empty(0, np.int64))
        for rows in [slice(0, 6)] if together else [slice(i, i + 1) for i in range(6)]:
            kernel = search.search_together if together else search.search_one_by_one
            kernel(held_by(dense), Q[rows], 0, len(Q[rows]), effort, tuple(every), scores[rows], ids[rows])
        for i, q in enumerate(rotated):
            lists = reference.within_gap(q, state.lists.centers[:n_lists], lifts_of_lists, gap)
            slots = np.flatnonzero(np.isin(own, lists))
            best = slots[np.argsort(-(units[slots] @ queries[i] - lifts[slots]), kind="stable")[:k]]
            shares.append(np.isin(state.vectors.ids[best], ids[i]).mean())
            if gap > 1.0:
                np.testing.assert_array_equal(ids[i], state.vectors.ids[best])
    assert np.mean(shares) > 0.9  # the distance of a center is an estimate, so a search may miss a list at the limit


@pytest.mark.parametrize(
    ("d", "n_vectors"), [(20, 0), (3, 0), (64, 0), *(pytest.param(d, 5000, marks=needs_jit) for d in (1, 20, 130))]
)
@pytest.mark.parametrize("metric", METRICS)
def test_samples_find_their_nearest_vectors(metric: str, d: int, n_vectors: int):
    dense, state, units = grown(metric, d)
    if n_vectors > 0:
        dense = DenseIndex(d, metric=metric)
        dense.insert(np.random.default_rng(2).standard_normal((n_vectors, d)).astype(np.float32))
        state, units = inner_state(dense), prepared(dense, dense.vectors(dense.ids))
    rng, n, k = np.random.default_rng(1), 70 if n_vectors > 0 else 3, 64
    own = rng.choice(len(dense), n, replace=False)
    own[0] = -1  # a query that is not stored
    Q = dense.vectors(state.vectors.ids[own])
    Q[0] = rng.standard_normal(d)
    found, n_copies = (
        np.empty((n, k), np.int64),
        np.empty((n, int(state.lists.counts[index_room.state.N_LISTS])), np.int32),
    )
    index_room.sample_search.find_nearest(held_by(dense), Q, own, np.float32(0.0), found, n_copies)
    np.testing.assert_array_equal(n_copies.sum(axis=1), own >= 0)
    scores = prepared(dense, Q) @ units.T
    if metric != "inner_product":
        scores -= 0.5 * (units**2).sum(axis=1)
    scores[np.arange(1, n), own[1:]] = -np.inf
    for row, slots, slot in zip(scores, found, own, strict=True):
        assert len(np.unique(slots)) == k
        assert slot not in slots
        ordered = np.sort(row)[::-1]
        np.testing.assert_allclose(row[slots], ordered[:k], atol=0.05 * (ordered[0] - ordered[-2]))


@needs_jit
@pytest.mark.parametrize("metric", METRICS)
def test_a_single_row_finds_the_best_of_the_lists_in_few_groups(metric: str):
    rng, n, k = np.random.default_rng(0), 40_000, 30
    dense = DenseIndex(20, metric=metric, random_state=4)
    X = 3.0 * rng.standard_normal((6, 20))[rng.integers(6, size=n)] + rng.standard_normal((n, 20))
    dense.insert(X.astype(np.float32))
    lists, groups = inner_state(dense).lists, inner_state(dense).groups
    n_lists, n_groups = (int(it.counts[index_room.state.N_LISTS]) for it in (lists, groups))
    assert n_groups > 2
    is_limited = metric != "inner_product"
    group_of = groups.list_of[groups.places[:n_lists] // 32][lists.list_of[lists.places[:n] // 32]]
    Q = dense.vectors(dense.ids[:40])
    queries = prepared(dense, Q)
    if metric == "inner_product":  # queries get the usual length of vectors
        mean = (prepared(dense, dense.vectors(dense.ids)) ** 2).sum(axis=1).mean()
        queries *= np.sqrt(mean) / np.linalg.norm(queries, axis=1)[:, None]
    apart = np.linalg.norm(
        reference.rotated(queries, inner_state(dense).signs)[:, None] - groups.centers[:n_groups], axis=2
    )
    every = search.Mask(np.empty(0, np.uint64), np.empty(0, np.int64))
    best, _ = dense.search(Q, n, target_recall=1.0)
    needed = dense._samples_of(Q, np.arange(40))[0][:, -1]
    for i in range(40):
        for wanted in (1, 2, int(needed[i])):
            ids, scores = np.empty((1, k), np.int64), np.empty((1, k))
            search.search_one_by_one(
                held_by(dense), Q[i : i + 1], 0, 1, effort_of(1e30, wanted), tuple(every), scores, ids
            )
            reached = np.isin(group_of, np.argsort(apart[i])[: wanted if is_limited else n_groups])
            np.testing.assert_array_equal(ids[0], best[i][np.isin(best[i], dense.ids[reached])][:k])
        np.testing.assert_array_equal(ids[0], best[i, :k])
    assert not is_limited or needed.min() < n_groups
