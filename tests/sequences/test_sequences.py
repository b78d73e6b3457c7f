"""Edit distances, learned costs, and exact searches by trees."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COMPILED, needs_jit
from failures import failing, interrupted_after
from internals import edit_costs_of
from sklearn.base import clone

from cmt_numba.sequences import (
    EditDistance,
    SequenceMemory,
    VPTree,
    encode_text,
)

LETTERS = "abcd"


def costs_of(seed: int, symmetric: bool = True) -> np.ndarray:
    """Return costs that are a metric on the letters and the gap."""
    costs = np.random.default_rng(seed).uniform(0.5, 1.0, (5, 5))  # a detour costs at least 1
    costs = (costs + costs.T) / 2 if symmetric else costs
    np.fill_diagonal(costs, 0.0)
    return costs.astype(np.float32)


def of_costs(costs: np.ndarray, **options: Any) -> EditDistance:
    distance = EditDistance(LETTERS, **options)
    distance.pairwise(["a"], ["b"])
    distance.costs_ = costs
    return distance


# Distances


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalized": True},
        {"symmetric": False, "local": 0.6},
        {"symmetric": False, "local": 0.6, "normalized": True},
        {"symmetric": False},
    ],
)
def test_the_nearest_are_those_of_the_least_distances(options: dict[str, Any], learned: bool, rng: np.random.Generator):
    """For blocks of narrow and wide words, and for longer sequences."""
    costs = costs_of(3, options.get("symmetric", True))
    distance = of_costs(costs, **options) if learned else EditDistance(LETTERS, **options)
    n_asked = 9 if COMPILED else 1
    for longest in (12, 40, 90):
        stored, asked = (
            ["".join(rng.choice(list(LETTERS), n)) for n in rng.integers(0, longest, m)] for m in (200, n_asked)
        )
        lengths = np.stack([distance.paired([word] * 200, stored) for word in asked])
        np.testing.assert_array_equal(distance.pairwise(asked, stored), lengths)
        positions, nearest = distance.nearest(asked, stored, 7)
        expected = np.argsort(lengths, axis=1, kind="stable")[:, :7]
        np.testing.assert_array_equal(positions, expected)
        np.testing.assert_array_equal(nearest, np.take_along_axis(lengths, expected, axis=1))


def test_distances_divided_by_lengths():
    plain, divided = EditDistance("abc"), EditDistance("abc", normalized=True)
    x, y = ["abcabc", "", "a"], ["abab", "", "bc"]
    np.testing.assert_allclose(divided.paired(x, y), plain.paired(x, y) / [6, 1, 2])
    assert divided.align("ab", "ba").distance == 0.5


def test_plain_edit_distances():
    distance = EditDistance("abcdefghijklmnopqrstuvwxyz")
    assert distance.pairwise(["kitten", "flaw", ""], ["sitting", "lawn"]).tolist() == [[3, 5], [7, 2], [7, 4]]
    assert EditDistance(range(3)).pairwise([(0, 1), np.array([2, 2])], [[0, 2]]).tolist() == [[1], [1]]
    assert EditDistance([("c", 1), ("d", 2)]).pairwise([[("c", 1)]], [[("d", 2), ("c", 1)]]).tolist() == [[1]]


def test_costs_may_be_integers_and_fractions():
    distance = EditDistance("abc", substitution=2, insertion=0.75, deletion=1.5, symmetric=False)
    assert distance.pairwise(["ab", ""], ["abc", "b", ""]).tolist() == [[0.75, 1.5, 3.0], [2.25, 0.75, 0.0]]
    assert EditDistance("ab", substitution=5.0).pairwise(["a"], ["b"])[0, 0] == 2.0  # a deletion and an insertion
    one_way = EditDistance("ab", insertion=0.25, deletion=0.75, symmetric=False)
    assert one_way.pairwise(["a", "aab"], ["aab", "a"]).tolist() == [[0.5, 0.0], [0.0, 1.5]]


def test_symbols_of_many_kinds_are_saved(tmp_path: Path):
    symbols = [("c", 1), ("c", (2, None)), 3, 4.5, "é", True, None]
    EditDistance(symbols).save(tmp_path / "distance")
    loaded = EditDistance.load(tmp_path / "distance")
    assert loaded.symbols_ == tuple(symbols)
    assert loaded.pairwise([[("c", 1), 3]], [[3]]).tolist() == [[1.0]]
    with pytest.raises(TypeError, match="symbols must be strings, numbers"):
        EditDistance([frozenset("a")]).save(tmp_path / "another")
    assert not (tmp_path / "another").exists()


def test_fewer_sequences_than_wanted():
    positions, lengths = EditDistance(LETTERS).nearest(["a"], ["b"], 3)
    assert positions.tolist() == [[0, -1, -1]]
    assert np.isinf(lengths[0, 1:]).all()


# Learning


def noisy_words(rng: np.random.Generator, n_words: int, n_queries: int) -> tuple[list[str], list[str], np.ndarray]:
    """Return words and noisy forms, in which 'a' and 'b' often replace each other, and 'd' is inserted."""
    words = sorted({"".join(rng.choice(list(LETTERS), 6)) for _ in range(n_words)})
    answers, queries = rng.integers(len(words), size=n_queries), []
    for answer in answers:
        letters = [({"a": "b", "b": "a"}.get(s, s) if rng.random() < 0.4 else s) for s in words[answer]]
        letters.insert(int(rng.integers(7)), "d")
        queries.append("".join(letters))
    return words, queries, answers


@needs_jit
def test_costs_follow_the_noise(rng: np.random.Generator):
    words, queries, answers = noisy_words(rng, 60, 130)
    distance = EditDistance(LETTERS, n_rounds=6, learning_rate=0.5, n_examples=60, random_state=0)
    before = np.mean(distance.nearest(queries[70:], words)[0][:, 0] == answers[70:])
    plain = distance.costs_
    assert distance.fit(words, queries[:70], answers[:70]) is distance
    after = np.mean(distance.nearest(queries[70:], words)[0][:, 0] == answers[70:])
    assert after > before + 0.1
    costs = distance.costs_
    assert costs[0, 1] == costs[:4, :4][~np.eye(4, dtype=bool)].min()
    assert costs[3, -1] == costs[:4, -1].min()
    np.testing.assert_array_equal(costs, costs.T)
    assert (costs <= (costs[:, :, None] + costs[None]).min(axis=1) * (1 + 1e-6)).all()
    assert (np.diag(costs) == 0.0).all()
    assert (costs[~np.eye(5, dtype=bool)] > 0.0).all()
    assert len(distance.errors_) == 6
    assert min(distance.errors_) < distance.errors_[0]
    again = clone(distance).fit(words, queries[:70], answers[:70])
    np.testing.assert_array_equal(again.costs_, costs)
    assert (plain != costs).any()


def test_costs_of_each_direction(rng: np.random.Generator):
    words, queries, answers = noisy_words(rng, 40, 40)
    distance = EditDistance(symmetric=False, n_rounds=5, learning_rate=0.5, random_state=0).fit(words, queries, answers)
    assert set(distance.symbols_) == set(LETTERS)
    d = distance.symbols_.index("d")
    assert distance.costs_[d, -1] < distance.costs_[-1, d]  # queries have it, targets do not


# Exchanges and contexts


def test_plain_exchanges():
    distance = EditDistance(LETTERS, transposition=1.0)
    assert distance.pairwise(["ab", "abcd", "ca"], ["ba", "badc", "abc"]).tolist() == [[1, 3, 1], [3, 2, 1], [1, 3, 3]]
    assert distance.align("ab", "ba").steps == [("a", "a"), ("b", "b")]
    assert distance.align("cab", "cba").distance == 1.0


@needs_jit
def test_costs_of_exchanges_follow_the_noise(rng: np.random.Generator):
    words = sorted({"".join(rng.choice(list(LETTERS), 6)) for _ in range(300)})
    answers, queries = rng.integers(len(words), size=160), []
    for answer in answers:
        word = words[answer]
        at = rng.integers(5)
        queries.append(word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    options = {"n_rounds": 6, "learning_rate": 0.5, "random_state": 0}
    plain = EditDistance(LETTERS, transposition=None, **options).fit(words, queries[:80], answers[:80])
    richer = EditDistance(LETTERS, **options).fit(words, queries[:80], answers[:80])
    errors = [np.mean(d.nearest(queries[80:], words)[0][:, 0] != answers[80:]) for d in (plain, richer)]
    assert errors[1] < errors[0] - 0.1
    swaps = edit_costs_of(richer).swaps
    np.testing.assert_array_equal(swaps, swaps.T)
    assert swaps[~np.eye(4, dtype=bool)].mean() < richer.costs_[~np.eye(5, dtype=bool)].mean()


def test_a_memory_follows_costs_that_are_learned_later(rng: np.random.Generator):
    words = sorted({"".join(rng.choice(list(LETTERS), 6)) for _ in range(40)})
    distance = EditDistance(LETTERS, transposition=1.0, n_rounds=3, learning_rate=1.0, random_state=0)
    memory = SequenceMemory(distance, random_state=0)
    memory.insert(words)
    memory.query(words[:1])  # which prepares a search with the costs of before
    distance.fit(words, [word[1:] for word in words], np.arange(len(words)))
    found = memory.query(["abcd", "dbca"], 3)
    for word, ids, lengths in zip(["abcd", "dbca"], found.ids, found.distances, strict=True):
        expected = distance.pairwise([word], [words[i] for i in ids])[0]
        np.testing.assert_array_equal(lengths, expected)


# Trees


def points_of(kind: str, rng: np.random.Generator, n: int) -> Any:
    if kind == "words":
        return ["".join(rng.choice(list(LETTERS), rng.integers(0, 8))) for _ in range(n)]
    return rng.integers(-3, 4, (n, 3)) + (0.5 if kind == "angular" else 0.0)


def all_distances(kind: str, asked: Any, stored: Any, metric: Any) -> np.ndarray:
    if kind == "words":
        return metric.pairwise(asked, stored)
    if kind == "euclidean":
        return np.linalg.norm(asked[:, None] - stored, axis=2)
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (asked, stored)]
    return np.arccos(np.clip(unit[0] @ unit[1].T, -1.0, 1.0))


def taken(points: Any, places: np.ndarray) -> Any:
    return [points[i] for i in places] if isinstance(points, list) else points[places]


@pytest.mark.parametrize("kind", ["words", "euclidean", "angular"])
@pytest.mark.parametrize("leaf_size", [1, 5])
def test_trees_find_the_exact_neighbours(kind: str, leaf_size: int, rng: np.random.Generator):
    metric = of_costs(costs_of(3)) if kind == "words" else kind
    n_asked = 12 if COMPILED else 3
    points, asked = points_of(kind, rng, 150), points_of(kind, rng, n_asked)
    tree = VPTree(metric, leaf_size=leaf_size, random_state=0)
    there = np.empty(0, np.int64)

    def check(k: int) -> None:
        every = all_distances(kind, asked, taken(points, there), metric) if there.size else np.empty((n_asked, 0))
        found = tree.query(asked, k)
        lengths = np.full((n_asked, k), np.inf)
        lengths[:, : there.size] = np.sort(every, axis=1)[:, :k]
        np.testing.assert_allclose(found.distances, lengths, rtol=1e-5, atol=1e-3)
        assert np.isin(found.ids[found.ids >= 0], there).all()
        assert ((found.ids >= 0) == np.isfinite(lengths)).all()
        np.testing.assert_array_equal(tree.ids, there)
        assert len(tree) == there.size

    for first, stop in ((0, 90), (90, 91), (91, 120), (120, 150)):
        ids = tree.insert(taken(points, np.arange(first, stop)))
        assert ids.tolist() == list(range(first, stop))
        there = np.append(there, ids)
        check(4)
    for gone in (there[::3], there[1::9]):
        tree.remove(gone)
        there = np.setdiff1d(there, gone)
        check(4)
    tree.rebuild()
    check(1)
    tree.remove(there[:-3])
    there = there[-3:]
    check(5)
    tree.remove(there)
    there = there[:0]
    check(1)


def test_ties_go_to_the_first_point():
    tree = VPTree(EditDistance(LETTERS), leaf_size=1, random_state=0)
    tree.insert(["ab", "ac", "ad", "ab", "bb"])
    found = tree.query(["aa", "ab"], 4)
    assert found.ids.tolist() == [[0, 1, 2, 3], [0, 3, 1, 2]]


def test_searches_look_at_few_points_and_at_fewer_with_a_tolerance(rng: np.random.Generator):
    points = rng.normal(size=(600, 2))
    asked = points[:30] + 0.01 * rng.normal(size=(30, 2))
    exact, loose = VPTree(random_state=0), VPTree(tau=0.5, random_state=0)
    for tree in (exact, loose):
        tree.insert(points)
    found, near = exact.query(asked), loose.query(asked)
    assert found.n_computed.mean() < 150
    assert near.n_computed.mean() < found.n_computed.mean()
    assert (near.distances >= found.distances).all()
    assert (near.distances * 0.5 <= found.distances + 1e-6).all()


def test_a_tree_and_its_file_keep_the_costs_until_the_tree_is_rebuilt(tmp_path: Path):
    distance = EditDistance(LETTERS, n_rounds=1, random_state=0).fit(["aaaa", "ab"], ["aaab"], [0])
    distance.costs_ = np.where(np.eye(5, dtype=bool), 0.0, 1.0).astype(np.float32)
    tree = VPTree(distance, random_state=0)
    tree.insert(["aaaa", "ab", "cc"])
    distance.costs_ = distance.costs_ / 2
    tree.save(tmp_path / "tree")
    for each in (tree, VPTree.load(tmp_path / "tree")):
        assert each.metric.errors_ == distance.errors_
        assert each.query(["aa"]).distances.tolist() == [[1.0]]
        each.rebuild()
        assert each.query(["aa"]).distances.tolist() == [[0.5]]


def test_an_interrupted_insertion(rng: np.random.Generator):
    points = rng.normal(size=(80, 3))
    tree = VPTree(random_state=0)
    tree.insert(points[:50])
    tree.remove(np.arange(10))
    expected = tree.query(points[50:], 3)

    for n in (5, 30):
        with failing("sequences._vp_tree.sorted_by_distance", KeyboardInterrupt):
            tree.insert(np.concatenate([points[50:], points[50:]])[: 10 * n])
        with interrupted_after("sequences._point_store.PointStore.append"):
            tree.insert(points[50:])
        assert len(tree) == 40
        np.testing.assert_array_equal(tree.query(points[50:], 3).distances, expected.distances)
    ids = tree.insert(points[50:])
    assert ids.min() > 50
    assert (tree.query(points[50:]).ids[:, 0] == ids).all()


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alphabet": "aa"}, ValueError, "alphabet must contain each symbol only once"),
        ({"alphabet": ""}, ValueError, "alphabet must have 1 to"),
        ({"alphabet": [[1]]}, TypeError, "alphabet must contain hashable symbols"),
        ({"alphabet": None}, ValueError, "the alphabet is not known"),
        ({"substitution": -1.0}, ValueError, "substitution must be"),
        ({"insertion": float("nan")}, ValueError, "insertion must be"),
        ({"insertion": 0.5}, ValueError, "insertion and deletion must cost the same"),
        ({"n_rounds": -1}, ValueError, "n_rounds must be"),
        ({"transposition": 0.0}, ValueError, "transposition must be"),
        ({"normalized": 1}, TypeError, "normalized must be"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be"),
        ({"gap_opening": 0.0}, ValueError, "gap_opening must be"),
        ({"local": -1.0, "symmetric": False}, ValueError, "local must be"),
        ({"local": 1.0}, ValueError, "local requires symmetric=False"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], error: Any, message: str):
    with pytest.raises(error, match=message):
        EditDistance(**({"alphabet": LETTERS} | options)).pairwise(["a"], ["b"])


@pytest.mark.parametrize(
    ("sequences", "error", "message"),
    [
        ("abc", TypeError, "queries must be a list of sequences, got str"),
        (3, TypeError, "queries must be a list of sequences, got int"),
        ([], ValueError, "queries must contain at least one sequence"),
        ([3], TypeError, r"queries\[0\] must be a string or a sequence"),
        (["a", b"a"], TypeError, r"queries\[1\] must be a string or a sequence"),
        (["ab", "aéb"], ValueError, r"queries\[1\] has the symbol 'é', which is not in the alphabet"),
        ([["a", ["b"]]], ValueError, r"queries\[0\] has the symbol \['b'\]"),
    ],
)
def test_sequences_that_cannot_be_used(sequences: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        EditDistance(LETTERS).pairwise(sequences, ["a"])


def test_examples_that_cannot_be_used():
    distance = EditDistance(LETTERS).fit(["a", "b"], ["a"], [0])
    costs = edit_costs_of(distance)
    for arguments, message in [
        ((["a", "b"], ["a"], [0.0]), "answers must have one integer for each of the 1 queries"),
        ((["a", "b"], ["a"], [0, 1]), "answers must have one integer"),
        ((["a", "b"], ["a"], [2]), "answers must be positions"),
        ((["a"], ["a"], [0]), "at least two sequences"),
        ((["a", "b"], ["e"], [0]), "not in the alphabet"),
    ]:
        with pytest.raises(ValueError, match=message):
            distance.fit(*arguments)
        assert edit_costs_of(distance) is costs
    for symbols in (("ab", "cd"), [[(1, 2)], [(3,)]]):
        with pytest.raises(ValueError, match="symbols must be finite numbers"):
            EditDistance(featured=True).fit(symbols, symbols[:1], [0])
    with pytest.raises(ValueError, match="too long to align"):
        distance.align("a" * 20_000, "b" * 20_000)
    with pytest.raises(ValueError, match="too long to align"):
        EditDistance(LETTERS, gap_opening=1.0).align("a" * 10_000, "b" * 10_000)


def test_costs_that_are_set():
    distance = EditDistance("ab")
    assert not distance.costs_.flags.writeable
    distance.costs_ = [[0, 9, 1], [9, 0, 1], [1, 1, 0]]
    assert distance.costs_[0, 1] == 2.0  # a deletion and an insertion
    good = distance.costs_.copy()
    for costs, message in [
        (np.zeros((2, 2)), "must be numbers of shape"),
        (np.full((3, 3), "a"), "must be numbers of shape"),
        (good * np.nan, "must be finite"),
        (-good, "must be finite and non-negative"),
        (good + 1.0, "0 on the diagonal"),
        (np.triu(good), "must be symmetric"),
    ]:
        with pytest.raises(ValueError, match=message):
            distance.costs_ = costs
        np.testing.assert_array_equal(distance.costs_, good)


@pytest.mark.parametrize("kind", [VPTree, SequenceMemory])
def test_sequences_of_another_alphabet_are_not_compared(kind: Any):
    """Stored codes would stand for other symbols, or for none."""
    distance = EditDistance(n_rounds=1, random_state=0).fit(["abcdef", "fedcba"], ["abcdef"], [0])
    stored = kind(distance, random_state=0)
    stored.insert(["fff", "abc"])
    distance.fit(["abcdef", "fedcba"], ["abcdeg"], [0])
    distance.fit(["ab", "b"], ["a"], [0])
    for use in (lambda: stored.query(["ab"]), lambda: stored.insert(["ab"])):
        with pytest.raises(ValueError, match="has changed: store all sequences again"):
            use()
    if kind is VPTree:
        with pytest.raises(ValueError, match="alphabet of the distance has changed"):
            stored.rebuild()
    distance.fit(["abcdef", "fedcba"], ["abcdef"], [0])
    assert stored.query(["abd"]).ids.tolist() == [[1]]


def test_a_tree_of_points_that_come_one_by_one_stays_shallow():
    tree = VPTree(leaf_size=4, random_state=0)
    for x in range(400):
        tree.insert([[float(x), 0.0]])
    assert tree._depth < 40  # 82 if it were never built anew
    assert tree.query([[250.2, 0.0]], 2).ids.tolist() == [[250, 251]]
    tree.remove(250)
    assert 250 not in tree
    assert 251 in tree
    assert "251" not in tree


@needs_jit
def test_long_sequences():
    distance = EditDistance(LETTERS)
    assert distance.pairwise(["a" * 100_000], ["", "ab"]).tolist() == [[100_000.0, 99_999.0]]


def test_invalid_trees_and_queries():
    for options, message in [
        ({"metric": "cosine"}, "metric must be an EditDistance, 'euclidean' or 'angular'"),
        ({"metric": EditDistance(LETTERS, symmetric=False)}, "metric must be symmetric"),
        ({"leaf_size": 0}, "leaf_size must be"),
        ({"tau": 1.0}, "tau must be below 1"),
        ({"tolerance": -0.1}, "tolerance must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            VPTree(**options)
    tree = VPTree("angular", random_state=0)
    tree.insert(np.eye(3))
    for X, message in [
        (np.eye(4), "features"),
        ([[np.nan, 0.0, 0.0]], "X must be finite"),
        (np.zeros((1, 3)), "must not have rows of zeros"),
    ]:
        with pytest.raises(ValueError, match=message):
            tree.insert(X)
        with pytest.raises(ValueError, match=message):
            tree.query(X)
    with pytest.raises(ValueError, match="k must be"):
        tree.query(np.eye(3), 0)
    with pytest.raises(KeyError, match="3"):
        tree.remove([0, 3])
    assert len(tree) == 3
    assert VPTree("euclidean").query(np.eye(2), 2).ids.tolist() == [[-1, -1], [-1, -1]]


def test_texts():
    assert encode_text("Déjà vu!", "abcdefghijklmnopqrstuvwxyz ") == "deja vu"
    assert encode_text("ÉaÄ", "aéÄ-", "-") == "éaÄ"
    assert encode_text("a1e\u0301", "aé-", "-") == "a-é"
    assert encode_text("ﬁn", "fin") == "fin"
    assert encode_text("Straße", "aerst") == "strasse"
    assert encode_text("Straße", "aerstß") == "straße"


@pytest.mark.parametrize(
    ("encode", "arguments", "error", "message"),
    [
        (encode_text, (3, "ab"), TypeError, "text must be a string"),
        (encode_text, ("a", "ab", "c"), ValueError, "unknown must be a letter"),
    ],
)
def test_what_cannot_be_encoded(encode: Any, arguments: tuple[Any, ...], error: Any, message: str):
    with pytest.raises(error, match=message):
        encode(*arguments)
