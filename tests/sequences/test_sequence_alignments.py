"""Edit distances of all kinds against a plain reference, and distances by the bits of words."""

from collections.abc import Container
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    edit_costs_of,
    sequences_alignments,
    sequences_costs,
    sequences_encoding,
    sequences_spaces,
    sequences_vp_tree,
    set_costs,
)

from cmt_numba.sequences import EditDistance, VPTree

LETTERS = "abcd"
WORDS = st.text(LETTERS, max_size=7)


KINDS = ("swapped", "opened", "local")


def random_costs(seed: int, kinds: Container[str] = (), *, symmetric: bool = False) -> sequences_costs.Costs:
    """Return costs that are closed under sequences of edits."""
    rng = np.random.default_rng(seed)
    shapes = {
        "swaps": (4, 4) if "swapped" in kinds else (0, 0),
        "openings": 2 if "opened" in kinds else 0,
        "ends": 1 if "local" in kinds else 0,
    }
    drawn: dict[str, Any] = {name: rng.uniform(0.3, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}
    pairs = rng.uniform(0.5, 1.0, (5, 5)).astype(np.float32)
    pairs = (pairs + pairs.T) / 2 if symmetric else pairs
    np.fill_diagonal(pairs, 0.0)
    return sequences_costs.Costs(pairs, **drawn)


def with_costs(costs: sequences_costs.Costs, **options: Any) -> EditDistance:
    distance = EditDistance(LETTERS, **{"symmetric": False} | options)
    distance.pairwise(["a"], ["b"])
    set_costs(distance, costs)
    return distance


def reference(x: str, y: str, costs: sequences_costs.Costs) -> float:
    """Return the distance by its definition, as costs before, within and after the aligned part."""
    words = a, b = [[LETTERS.index(symbol) for symbol in word] for word in (x, y)]
    local = costs.ends.size > 0

    def gap(side: int, i: int, state: str) -> float:
        """Return the cost of deleting (side 0) or inserting (side 1) a symbol after an edit of some kind."""
        symbol = words[side][i]
        opening = costs.openings[side] if costs.openings.size and state != ("deleted", "inserted")[side] else 0.0
        return (costs.pairs[symbol, -1] if side == 0 else costs.pairs[-1, symbol]) + opening

    @cache
    def rest(i: int, j: int, state: str) -> float:
        ways = [0.0] if i == len(a) and j == len(b) else []
        if state in ("before", "after"):
            if i < len(a):
                ways.append(costs.ends[0] + rest(i + 1, j, state))
            if j < len(b):
                ways.append(rest(i, j + 1, state))
            return min([*ways, rest(i, j, "aligned")] if state == "before" else ways)
        if i < len(a):
            ways.append(gap(0, i, state) + rest(i + 1, j, "deleted"))
        if j < len(b):
            ways.append(gap(1, j, state) + rest(i, j + 1, "inserted"))
        if i < len(a) and j < len(b):
            ways.append(costs.pairs[a[i], b[j]] + rest(i + 1, j + 1, "aligned"))
        if costs.swaps.size and a[i : i + 2] == b[j : j + 2][::-1] and len(a[i : i + 2]) == 2:
            ways.append(costs.swaps[a[i], a[i + 1]] + rest(i + 2, j + 2, "aligned"))
        return min([*ways, rest(i, j, "after")] if local else ways)

    return rest(0, 0, "before" if local else "aligned")


@given(x=WORDS, y=WORDS, seed=st.integers(0, 20), symmetric=st.booleans(), kinds=st.sets(st.sampled_from(KINDS)))
@settings(max_examples=400)
def test_distances_and_alignments(x: str, y: str, seed: int, symmetric: bool, kinds: set[str]):
    costs = random_costs(seed, kinds, symmetric=symmetric)
    distance, expected = with_costs(costs, symmetric=symmetric), reference(x, y, costs)
    assert distance.pairwise([x, y], [y, x])[0, 0] == pytest.approx(expected, rel=1e-5)
    found = distance.align(x, y)
    assert found.distance == pytest.approx(expected, rel=1e-5)
    left, right = ([step[side] for step in found.steps if step[side] is not None] for side in (0, 1))
    if "swapped" in kinds:
        assert (sorted(left), sorted(right)) == (sorted(x), sorted(y))
    else:
        assert ("".join(left), "".join(right)) == (x, y)
    if not kinds:
        codes = {symbol: i for i, symbol in enumerate(LETTERS)} | {None: -1}
        assert sum(costs.pairs[codes[a], codes[b]] for a, b in found.steps) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kinds", ["swapped", "opened", "swapped opened", "local", " ".join(KINDS)])
def test_bounds_leave_out_nothing_nearer(kinds: str, rng: np.random.Generator):
    """A swap, for example, may bring a later row of the table back below the bound."""
    words = ["".join(rng.choice(list(LETTERS), rng.integers(0, 9))) for _ in range(50)]
    distance = with_costs(random_costs(3, kinds.split()))
    every = distance.pairwise(words[:12], words)
    positions, lengths = distance.nearest(words[:12], words, 3)
    np.testing.assert_array_equal(positions, np.argsort(every, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(lengths, np.sort(every, axis=1)[:, :3])


def test_plain_gaps_and_parts():
    affine = EditDistance(LETTERS, gap_opening=2.0)
    assert affine.pairwise(["aaaa", "abcab"], ["aa", "ab"]).tolist() == [[4.0, 5.0], [6.0, 5.0]]
    assert affine.align("abcab", "ab").steps in (
        [("a", "a"), ("b", "b"), ("c", None), ("a", None), ("b", None)],
        [("a", None), ("b", None), ("c", None), ("a", "a"), ("b", "b")],
        [("a", "a"), ("b", None), ("c", None), ("a", None), ("b", "b")],
    )
    costs = np.where(np.eye(5, dtype=bool), 0.0, 3.0)
    costs[-1, :4] = costs[:4, -1] = 0.5
    affine.costs_ = costs
    assert affine.costs_.max() == 3.0  # a deletion and an insertion in its place open two gaps
    assert affine.pairwise(["a"], ["b"])[0, 0] == 3.0
    whole = EditDistance(LETTERS, local=2.0, symmetric=False)
    assert whole.pairwise(["bc", "bdc"], ["aabcaa", "ad", "bc"]).tolist() == [[0.0, 2.0, 0.0], [1.0, 2.0, 1.0]]
    part = EditDistance(LETTERS, local=0.5, symmetric=False)
    assert part.paired(["aaabcaaa", ""], ["dbcd", "abc"]).tolist() == [3.0, 0.0]
    assert part.align("ab", "cbd").steps == [("a", None), (None, "c"), ("b", "b"), (None, "d")]


def test_affine_gaps_keep_a_metric(rng: np.random.Generator):
    distance = EditDistance(LETTERS, transposition=None, gap_opening=0.7)
    pairs = random_costs(1).pairs
    distance.pairwise(["a"], ["b"])
    distance.costs_ = pairs + pairs.T
    words = ["".join(rng.choice(list(LETTERS), rng.integers(0, 7))) for _ in range(45)]
    lengths = distance.pairwise(words, words)
    np.testing.assert_array_equal(lengths, lengths.T)
    assert (lengths <= (lengths[:, :, None] + lengths[None]).min(axis=1) + 1e-5).all()
    tree = VPTree(distance, leaf_size=2, random_state=0)
    tree.insert(words[8:])
    np.testing.assert_array_equal(tree.query(words[:8], 3).distances, distance.nearest(words[:8], words[8:], 3)[1])


@pytest.mark.parametrize("local", [False, True])
def test_counts_of_edits_are_the_gradient(local: bool, rng: np.random.Generator):
    alphabet = sequences_encoding.Alphabet(LETTERS)
    words = ["".join(rng.choice(list(LETTERS), rng.integers(2, 9))) for _ in range(40)]
    asked, stored = alphabet.encode("X", words[:20]), alphabet.encode("X", words[20:])
    costs, weights = random_costs(5, ["opened", "local"] if local else ["opened"]), rng.uniform(-1.0, 1.0, 20)
    pairs = np.arange(20), np.arange(20)

    def total(costs: sequences_costs.Costs) -> float:
        points = costs.points(asked, sequences_costs.QUERIED), costs.points(stored, sequences_costs.STORED)
        return float(weights @ sequences_spaces.distances_between(*points, *pairs))

    counts, points = (
        costs.no_counts(asked, stored),
        (costs.points(asked, sequences_costs.QUERIED), costs.points(stored, sequences_costs.STORED)),
    )
    sequences_alignments.count_edits(*points, *pairs, weights, counts, np.empty((0, 2), np.int64))
    for name, place in [("openings", 0), ("openings", 1), *([("ends", 0)] if local else []), ("pairs", (0, 1))]:
        moved = []
        for step in (1e-3, -1e-3):
            changed = getattr(costs, name).copy()
            changed[place] += step
            moved.append(total(costs._replace(**{name: changed})))
        expected = getattr(counts, name)[place]
        assert (moved[0] - moved[1]) / 2e-3 == pytest.approx(expected, rel=0.02, abs=0.02)


def edited(sequence: np.ndarray, n_symbols: int, rng: np.random.Generator) -> list[int]:
    """Return a sequence with some edits."""
    changed = sequence.tolist()
    for _ in range(rng.integers(0, 6)):
        i, kind = rng.integers(len(changed) + 1), rng.integers(4)
        if kind == 0:
            changed.insert(i, int(rng.integers(n_symbols)))
        elif i < len(changed) - 1:
            replaced = [changed[i + 1], changed[i]] if kind == 1 else changed[i + 1 : i + 2]
            changed[i : i + 2] = replaced if kind < 3 else [int(rng.integers(n_symbols)), changed[i + 1]]
    return changed


@pytest.mark.parametrize("transposition", [None, 0.5])
@pytest.mark.parametrize(("n_symbols", "longest", "n"), [(3, 12, 20), (40, 70, 6), (2, 200, 2)])
def test_distances_by_bits(transposition: float | None, n_symbols: int, longest: int, n: int, rng: np.random.Generator):
    """Distances by bits equal those of the table of costs, for any number of words."""
    options = dict.fromkeys(("substitution", "insertion", "deletion"), 0.5)
    distance = EditDistance(range(n_symbols), transposition=transposition, **options)
    queries = [rng.integers(0, n_symbols, rng.integers(0, longest)) for _ in range(n)]
    targets: list[Any] = [edited(query, n_symbols, rng) for query in queries] + queries[:2]
    few = queries[:2]

    def found() -> list[np.ndarray]:
        tree = VPTree(distance, tolerance=0.0, random_state=0)
        tree.insert(targets)
        return [
            distance.paired(queries, targets[:n]),
            distance.pairwise(few, targets),
            *distance.nearest(few, targets, 3),
            tree.query(few, 2).distances,
        ]

    distance.pairwise(few, few)
    assert edit_costs_of(distance).unit == 0.5
    by_bits = found()
    set_costs(distance, edit_costs_of(distance)._replace(unit=0.0))
    for one, other in zip(by_bits, found(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_which_costs_are_compared_by_bits():
    def unit(**options: Any) -> float:
        distance = EditDistance(LETTERS, symmetric=False, **options)
        distance.pairwise(["a"], ["b"])
        return float(distance._as_points("X", ["a" * 100]).edits.unit)

    assert unit() == 1.0
    assert unit(substitution=3.0, insertion=3.0, deletion=3.0, transposition=3.0) == 3.0
    assert unit(substitution=0.1, insertion=0.1, deletion=0.1) == 0.0  # sums of it are rounded
    for different in ("substitution", "insertion", "deletion", "transposition", "gap_opening", "local"):
        assert unit(**{different: 0.5}) == 0.0


@needs_jit
def test_costs_of_openings_and_ends_are_learned(rng: np.random.Generator):
    words = sorted({"".join(rng.choice(list(LETTERS), 9)) for _ in range(200)})
    answers = rng.integers(len(words), size=120)
    starts = rng.integers(1, 5, size=120)
    holes = [words[a][:s] + words[a][s + 4 :] for a, s in zip(answers, starts, strict=True)]
    parts = [words[a][s : s + 5] + "dd" for a, s in zip(answers, starts, strict=True)]
    options: dict[str, Any] = {"n_rounds": 6, "learning_rate": 0.5, "random_state": 0, "symmetric": False}
    for queries, option in ((holes, "gap_opening"), (parts, "local")):
        errors = []
        for richer in ({}, {option: 1.0}):
            distance = EditDistance(LETTERS, **options, **richer).fit(words, queries[:60], answers[:60])
            errors.append(np.mean(distance.nearest(queries[60:], words)[0][:, 0] != answers[60:]))
        assert errors[1] < errors[0] - 0.05, option
        learned = edit_costs_of(distance).openings if option == "gap_opening" else edit_costs_of(distance).ends
        assert (learned != 1.0).all()


def test_characters_are_encoded_as_other_symbols_are():
    alphabet = sequences_encoding.Alphabet(["é", "\U0001f600", "ab", "b", 3, "\ud800"])
    for words in (["é\U0001f600b", "", "b\ud800"], ["", ""]):
        quick, slow = alphabet.encode("X", words), alphabet.encode("X", [list(word) for word in words])
        for one, other in zip(quick, slow, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    with pytest.raises(ValueError, match=r"X\[1\] has the symbol 'a'"):
        alphabet.encode("X", ["b", "ab"])


def words_of(rng: np.random.Generator, n: int, least: int = 0) -> list[str]:
    return ["".join(rng.choice(list(LETTERS), rng.integers(least, 8))) for _ in range(n)]


def test_powers_of_distances():
    triangles = np.array([[3.0, 1.0, 1.0], [4.0, 1.0, 1.0], [5.0, 4.0, 0.5]])
    assert sequences_vp_tree.greatest_power(triangles[:, :1], 0.0) == pytest.approx(2.0, rel=1e-4)
    assert sequences_vp_tree.greatest_power(triangles, 0.0) == pytest.approx(0.5, rel=1e-4)
    assert sequences_vp_tree.greatest_power(triangles, 0.34) == pytest.approx(2.0, rel=1e-4)
    assert sequences_vp_tree.greatest_power(triangles[:, :0], 0.0) == 1.0


@needs_jit
@pytest.mark.parametrize("metric", ["euclidean", "exchanges"])
def test_trees_with_a_tolerance(metric: str, rng: np.random.Generator):
    X, asked, any_metric = rng.normal(size=(400, 3)), rng.normal(size=(60, 3)), "euclidean"
    if metric == "exchanges":
        X, asked = words_of(rng, 400, 5), words_of(rng, 60, 5)
        any_metric = EditDistance(LETTERS, transposition=0.6)
        any_metric.pairwise(["a"], ["b"])
        any_metric.costs_ = random_costs(3, symmetric=True).pairs
    computed, right = [], []
    for tolerance in (0.0, 0.05):
        tree = VPTree(any_metric, tolerance=tolerance, random_state=0)
        tree.insert(X)
        power, found = tree.power_, tree.query(asked)
        assert power == tree.power_
        if metric == "euclidean":
            exact = np.linalg.norm(asked[:, None] - X, axis=2).min(axis=1)
            assert power > 1.0
        else:
            exact = any_metric.nearest(asked, X)[1][:, 0]
        computed.append(found.n_computed.mean())
        right.append(np.mean(found.distances[:, 0] <= exact + 1e-4))
    assert right[0] > 0.95
    assert right[1] > 0.7
    assert computed[1] < computed[0]


def test_similar_symbols_are_learned_together():
    symbols = [(first, second) for first in range(4) for second in range(3)]
    features = sequences_costs.symbol_features(tuple(symbols))
    assert (features[-1] < features[:-1].min(axis=0)).all()
    gradient = np.zeros((13, 13))
    gradient[0, 3], gradient[3, 6] = 2.0, 3.0  # the first numbers differ by one, the second ones are the same
    gradient[0, 2], gradient[4, 9] = -1.0, -5.0
    found = sequences_costs.pooled(gradient, features)
    assert found[6, 9] > 0.0 > found[1, 11]
    assert not sequences_costs.pooled(np.zeros((13, 13)), features).any()
    rng = np.random.default_rng(0)
    targets = [[symbols[i] for i in rng.integers(12, size=6)] for _ in range(50)]
    answers = rng.integers(50, size=40)
    queries = [[((first + 1) % 4, second) for first, second in targets[answer]] for answer in answers]
    options: dict[str, Any] = {"n_rounds": 5, "learning_rate": 0.5, "random_state": 0}
    errors = []
    for featured in (False, True):
        distance = EditDistance(symbols, featured=featured, **options).fit(targets, queries[:10], answers[:10])
        errors.append(np.mean(distance.nearest(queries[10:], targets)[0][:, 0] != answers[10:]))
    assert errors[1] < errors[0] - 0.1
    np.testing.assert_array_equal(distance.costs_, distance.costs_.T)
