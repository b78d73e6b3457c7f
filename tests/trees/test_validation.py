"""Arguments that the public methods accept, and errors that leave everything unchanged."""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from exact_keys import WIDTH, pandas_frame, polars_frame, with_mask
from internals import engine_room, forest_of, kernels_room, prove, state_of
from journals import crashed, journal_of, same

from cmt_numba import ContextualMemoryTree, Hits
from cmt_numba.text import BM25Vectorizer


def arrays_of(tree: ContextualMemoryTree) -> list[np.ndarray]:
    """Return all arrays of a tree's state."""
    state = state_of(tree) or ()
    return [array for part in state for array in (part if isinstance(part, tuple) else (part,)) if np.ndim(array)]


@contextmanager
def nothing_changes(tree: ContextualMemoryTree) -> Iterator[None]:
    """Check that the body of the ``with`` leaves a tree exactly as it was."""
    probes = np.random.default_rng(5).normal(size=(10, tree.n_features or WIDTH))
    arrays = copy.deepcopy(arrays_of(tree))
    held = tree.n_memories, tree.n_features, tree.depth, tree.nbytes, tree.ids.tolist()
    answers = None if tree.n_features is None else tree.query(probes, k=3)
    yield
    assert held == (tree.n_memories, tree.n_features, tree.depth, tree.nbytes, tree.ids.tolist())
    tree.check_invariants()
    after = arrays_of(tree)
    assert len(arrays) == len(after)
    for before, now in zip(arrays, after, strict=True):
        assert before.tobytes() == now.tobytes()
    if answers is not None:
        again = tree.query(probes, k=3)
        np.testing.assert_array_equal(answers.ids, again.ids)
        np.testing.assert_array_equal(answers.scores, again.scores)


def grown_tree(sparse: bool, **options: Any) -> ContextualMemoryTree:
    options = {"n_trees": 2, "leaf_multiplier": 1.0, "n_reroutes": 1, "random_state": 3} | options
    keys = np.random.default_rng(4).normal(size=(60, WIDTH))
    tree = ContextualMemoryTree(**options)
    tree.insert(scipy.sparse.csr_array(keys) if sparse else keys)
    return tree


@pytest.fixture(scope="module", params=["dense", "sparse"])
def tree(request: pytest.FixtureRequest) -> ContextualMemoryTree:
    """Return a forest of 60 memories, which no test changes."""
    return grown_tree(request.param == "sparse")


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(6).normal(size=(5, WIDTH))


@pytest.fixture(scope="module")
def hits(tree: ContextualMemoryTree, queries: np.ndarray) -> Hits:
    return tree.query(queries, k=2)


def with_value(value: Any, dtype: Any = np.float64) -> np.ndarray:
    rows = np.ones((3, WIDTH), dtype)
    rows[1, 2] = value
    return rows


def broken_row() -> Any:
    row = scipy.sparse.csr_array(np.eye(WIDTH))[0].tocoo()
    row.coords = (row.coords[0] + np.int32(2**20),)
    return row


BAD_ROWS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "nan": (lambda: with_value(np.nan), ValueError, "X must be finite in float32: row 1 holds NaN"),
    "infinity": (lambda: with_value(-np.inf, np.float32), ValueError, "X must be finite in float32: row 1"),
    "too large for float32": (lambda: with_value(1e39), ValueError, "X must be finite in float32: row 1 .*too large"),
    "sparse nan": (lambda: scipy.sparse.csr_array(with_value(np.nan)), ValueError, "X must be finite.*row 1"),
    "sparse too large": (lambda: scipy.sparse.csr_array(with_value(-1e300)), ValueError, "X must be finite.*row 1"),
    "too narrow": (lambda: np.ones((2, WIDTH - 1)), ValueError, f"X must have {WIDTH} features .*got {WIDTH - 1}"),
    "too wide": (lambda: np.ones((2, WIDTH + 1)), ValueError, f"X must have {WIDTH} features .*got {WIDTH + 1}"),
    "sparse too wide": (
        lambda: scipy.sparse.csr_array(np.ones((2, WIDTH + 1))),
        ValueError,
        f"X must have {WIDTH} features .*got {WIDTH + 1}",
    ),
    "three dimensions": (lambda: np.ones((2, WIDTH, 1)), ValueError, "X must have two dimensions .*got 3"),
    "scalar": (lambda: 1.0, ValueError, "X must have two dimensions .*got 0"),
    "none": (lambda: None, ValueError, "X must have two dimensions .*got 0"),
    "sparse row beyond its width": (broken_row, ValueError, "index"),
    "no rows": (lambda: np.empty((0, WIDTH)), ValueError, "X must have at least one row and one feature"),
    "no features": (lambda: np.empty((3, 0)), ValueError, "X must have at least one row and one feature"),
    "sparse, no rows": (lambda: scipy.sparse.csr_array((0, WIDTH)), ValueError, "X must have at least one row"),
    "empty list": (list, ValueError, "X must have two dimensions"),
    "ragged list": (lambda: [[1.0] * WIDTH, [1.0]], TypeError, "X must be an array of real numbers"),
    "objects": (lambda: np.full((2, WIDTH), 1.0, object), TypeError, "X must contain real numbers, got object"),
    "strings": (lambda: np.full((2, WIDTH), "1"), TypeError, "X must contain real numbers, got <U1"),
    "complex": (lambda: np.full((2, WIDTH), 1j), TypeError, "X must contain real numbers, got complex128"),
    "dates": (lambda: np.zeros((2, WIDTH), "M8[s]"), TypeError, "X must contain real numbers, got datetime64"),
    "sparse complex": (
        lambda: scipy.sparse.csr_array(np.full((2, WIDTH), 1j)),
        TypeError,
        "X must contain real numbers, got complex128",
    ),
    "masked": (lambda: with_mask(True), ValueError, "X must not have masked entries"),
    "records": (lambda: np.zeros((3, WIDTH), "f4,f4"), TypeError, "X must contain real numbers"),
    "row of records": (lambda: np.zeros(3, "f4,f4"), ValueError, "X must have two dimensions"),
    "durations": (lambda: np.zeros((3, WIDTH), "m8[s]"), TypeError, "X must contain real numbers"),
    "numbers without end": (lambda: [[10**400] * WIDTH], TypeError, "X must contain real numbers, got object"),
    "frame of words": (lambda: pandas_frame().astype(str), TypeError, "X must contain real numbers"),
    "polars null": (lambda: polars_frame().shift(1), ValueError, "X must be finite in float32: row 0"),
    "float16 infinity": (lambda: np.full((2, WIDTH), np.inf, np.float16), ValueError, "X must be finite in float32"),
    "longdouble": (lambda: np.full((2, WIDTH), np.longdouble(1e39)), ValueError, "X must be finite in float32: row 0"),
    "sum of duplicates": (
        lambda: scipy.sparse.coo_array((np.full(2, 3e38), ([1, 1], [2, 2])), shape=(2, WIDTH)),
        ValueError,
        "X must be finite in float32: row 1",
    ),
    "sparse, no features": (lambda: scipy.sparse.csr_array((3, 0)), ValueError, "at least one row and one feature"),
}


@pytest.mark.parametrize("what", BAD_ROWS)
@pytest.mark.parametrize("method", ["insert", "query", "update"])
def test_bad_rows(tree: ContextualMemoryTree, hits: Hits, method: str, what: str):
    make, error, message = BAD_ROWS[what]
    arguments = (hits, np.zeros(5)) if method == "update" else ()
    with nothing_changes(tree), pytest.raises(error, match=message):
        getattr(tree, method)(make(), *arguments)


@pytest.mark.parametrize(
    "what", [what for what in BAD_ROWS if what not in ("too narrow", "too wide", "sparse too wide")]
)
def test_bad_rows_first(what: str):
    make, error, message = BAD_ROWS[what]
    tree = ContextualMemoryTree()
    with nothing_changes(tree), pytest.raises(error, match=message):
        tree.insert(make())
    assert tree.insert(np.eye(3)).tolist() == [0, 1, 2]


def test_too_many_features():
    tree = ContextualMemoryTree()
    with nothing_changes(tree), pytest.raises(ValueError, match="X must have at most 2147483647 features"):
        tree.insert(scipy.sparse.csr_array(([1.0], ([0], [2**31])), shape=(1, 2**31 + 1)))


def test_too_many_memories(tree: ContextualMemoryTree):
    totals = state_of(tree).keys.totals
    with nothing_changes(tree):
        held, totals[kernels_room.N_MEMORIES] = totals[kernels_room.N_MEMORIES], kernels_room.MAX_MEMORIES - 2
        with pytest.raises(ValueError, match="X must have at most 2 rows, got 3"):
            tree.insert(np.ones((3, WIDTH)))
        totals[kernels_room.N_MEMORIES] = held


@pytest.mark.parametrize(
    "form", [np.array, list, scipy.sparse.csr_array, scipy.sparse.coo_array, scipy.sparse.dok_array]
)
def test_a_single_row(form: Callable[[Any], Any]):
    tree, rows = ContextualMemoryTree(), np.eye(3, WIDTH) + 0.1
    tree.insert(rows)
    for i, row in enumerate(rows):
        own = form(row) if form is not list else row.tolist()
        assert tree.query(own).ids.tolist() == [[i]]
    assert tree.insert(form(rows[0])).tolist() == [3]
    texts = ["a red apple", "a green pear"]
    vectorizer = BM25Vectorizer()
    found = ContextualMemoryTree()
    X = vectorizer.fit_transform(texts)
    found.insert(X)
    assert found.query(X[1]).ids.tolist() == [[1]]


@pytest.mark.parametrize("form", [np.array, list, scipy.sparse.csr_array])
def test_a_single_row_of_a_tree_in_a_folder(form: Callable[[Any], Any], tmp_path: Path):
    tree, stored = ContextualMemoryTree(random_state=0), ContextualMemoryTree.open(tmp_path / "tree", random_state=0)
    row, other = form([1.0, 2.0, 0.0, 0.0]), form([0.0, 1.0, 1.0, 0.0])
    for each in (tree, stored):
        each.insert(row)
        each.insert(other)
        each.update(row, each.query(row), [1.0])
        each.teach(row, [0])
        each.replace([1], row)
        assert len(each) == 2
    stored.close()
    with ContextualMemoryTree.open(tmp_path / "tree") as again:
        assert same(again, tree)


BAD_IDS: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown": ([0, 60], KeyError, "ids must refer to stored memories, but no memory has id 60"),
    "negative": (-1, KeyError, "ids must refer to stored memories, but no memory has id -1"),
    "far away": ([2**62], KeyError, f"ids must refer to stored memories, but no memory has id {2**62}"),
    "beyond int64": (
        np.array([1, 2**63 + 1], np.uint64),
        KeyError,
        f"ids must refer to stored memories, but no memory has id {2**63 + 1}",
    ),
    "repeated": ([3, 1, 3], ValueError, "ids must be distinct, but 3 occurs twice"),
    "floats": ([1.0, 2.0], TypeError, "ids must be integers, got float64"),
    "booleans": ([True, False], TypeError, "ids must be integers, got bool"),
    "strings": (["1"], TypeError, "ids must be integers, got <U1"),
    "none": (None, TypeError, "ids must be integers, got object"),
    "beyond uint64": ([2**70], TypeError, "ids must be integers, got object"),
    "two dimensions": ([[1, 2]], ValueError, "ids must be one-dimensional, got shape"),
    "none at all": ([], ValueError, "ids must contain at least one id"),
    "ragged": ([[1], [1, 2]], ValueError, "ids must be one-dimensional"),
}


@pytest.mark.parametrize("what", BAD_IDS)
def test_bad_ids(tree: ContextualMemoryTree, what: str):
    ids, error, message = BAD_IDS[what]
    with nothing_changes(tree), pytest.raises(error, match=message):
        tree.remove(ids)
    empty = ContextualMemoryTree()
    for call in (lambda: empty.remove(0), lambda: empty.rebuild([0], [0]), lambda: empty.replace([0], TWO_ROWS[:1])):
        with nothing_changes(empty), pytest.raises(KeyError, match="no memory has id 0"):
            call()


TWO_ROWS = np.eye(2, WIDTH)
BAD_CALLS: list[tuple[Callable[[ContextualMemoryTree], Any], type[Exception], str]] = [
    (lambda tree: tree.teach(TWO_ROWS, [0, 99]), KeyError, "no memory has id 99"),
    (lambda tree: tree.teach(TWO_ROWS, [0]), ValueError, "ids must have one entry for each of the 2 rows"),
    (lambda tree: tree.teach(TWO_ROWS, [0.0, 1.0]), TypeError, "ids must be integers"),
    (lambda tree: tree.replace([1, 400], TWO_ROWS), KeyError, "no memory has id 400"),
    (lambda tree: tree.replace([1, 1], TWO_ROWS), ValueError, "1 occurs twice"),
    (lambda tree: tree.replace([1, 2, 3], TWO_ROWS), ValueError, "one entry for each of the 2 rows"),
    (lambda tree: tree.replace([1.0, 2.0], TWO_ROWS), TypeError, "ids must be integers"),
    (lambda tree: tree.replace([0, 1], [[1.0] * WIDTH, [np.nan] * WIDTH]), ValueError, "X must be finite"),
    (lambda tree: tree.replace([0, 1], TWO_ROWS[:, 1:]), ValueError, f"X must have {WIDTH} features"),
    (lambda tree: tree.rebuild([0, 99], [1, 1]), KeyError, "no memory has id 99"),
    (lambda tree: tree.rebuild([0, 0], [1, 1]), ValueError, "occurs twice"),
    (lambda tree: tree.rebuild([0, 1], [1]), ValueError, "groups must have one entry for each of the 2 ids, got 1"),
    (lambda tree: tree.rebuild([0, 1], [0.5, 1.0]), TypeError, "groups must be integers"),
    (lambda tree: tree.rebuild([], []), ValueError, "at least one id"),
    (lambda tree: tree.query(TWO_ROWS, among=np.zeros((2, 2), bool)), ValueError, "among must be one-dimensional"),
    (lambda tree: tree.query(TWO_ROWS, among=3), ValueError, "among must be one-dimensional, got shape"),
    (lambda tree: tree.query(TWO_ROWS, among=[0.5]), TypeError, "among must be integers or booleans, got float64"),
    (lambda tree: tree.query(TWO_ROWS, among=["a"]), TypeError, "among must be integers or booleans"),
    (lambda tree: tree.query(TWO_ROWS, among=[-1]), KeyError, "no memory has id -1"),
    (lambda tree: tree.query(TWO_ROWS, among=np.array([2**63], np.uint64)), KeyError, f"no memory has id {2**63}"),
    (lambda tree: tree.query(TWO_ROWS, epsilon=0.1, among=[1]), ValueError, "epsilon must be 0 if among is given"),
    (lambda tree: learn(tree, own_ids=[1]), ValueError, "ids must have one entry for each"),
    (lambda tree: learn(tree, n_passes=0), ValueError, "n_passes must be between"),
    (lambda tree: learn(tree, k=0), ValueError, "k must be between"),
    (lambda tree: learn(tree, n_probes=0), ValueError, "n_probes must be"),
    (lambda tree: learn(tree, epsilon=2.0), ValueError, "epsilon must be between"),
    (lambda tree: learn(tree, key_learning_rate=-0.1), ValueError, "key_learning_rate must be"),
    (lambda tree: tree.learn(TWO_ROWS, np.ones((2, 1))), TypeError, "reward must be a function"),
    (lambda tree: update(tree, key_learning_rate=1.5), ValueError, "key_learning_rate must be"),
    (lambda tree: update(tree, key_learning_rate=np.nan), ValueError, "key_learning_rate must be"),
]
"""Calls that a tree of 60 memories refuses, in memory and in a folder."""


def learn(tree: ContextualMemoryTree, **options: Any) -> None:
    tree.learn(TWO_ROWS, lambda rows, ids: np.ones(ids.shape), **options)


def update(tree: ContextualMemoryTree, **options: Any) -> None:
    tree.update(TWO_ROWS, tree.query(TWO_ROWS), np.ones(2), **options)


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_calls(tree: ContextualMemoryTree, call: Callable[[Any], Any], error: type[Exception], message: str):
    with nothing_changes(tree), pytest.raises(error, match=message):
        call(tree)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda rows, ids: np.full(ids.shape, 2.0), "rewards must be between 0 and 1"),
        (lambda rows, ids: np.zeros((1, 1, 1)), "rewards must have shape"),
    ],
)
def test_learn_refuses_rewards_after_it_has_drawn_random_numbers(reward: Any, message: str):
    tree = grown_tree(sparse=False)
    before = tree.query(TWO_ROWS, k=60).scores
    with pytest.raises(ValueError, match=message):
        tree.learn(TWO_ROWS, reward)
    np.testing.assert_array_equal(tree.query(TWO_ROWS, k=60).scores, before)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64, ">i4"])
def test_accepted_ids(dtype: Any):
    tree = grown_tree(sparse=False)
    tree.remove(np.array([3, 5, 59], dtype))
    assert set(tree.ids) == set(range(60)) - {3, 5, 59}
    with nothing_changes(tree), pytest.raises(KeyError, match="no memory has id 5"):
        tree.remove([8, 5])


INTEGERS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "between 1 and"),
    (-3, ValueError, "between 1 and"),
    (2**40, ValueError, "between 1 and"),
    (2.0, TypeError, "an integer, got 2.0"),
    (True, TypeError, "an integer, got True"),
    ("2", TypeError, "an integer, got '2'"),
    (np.array([2]), TypeError, "an integer, got"),
]
BAD_NUMBERS: list[tuple[str, Any, type[Exception], str]] = [
    *(("k", *row) for row in INTEGERS),
    *(("n_probes", *row) for row in INTEGERS),
    ("k", None, TypeError, "an integer, got None"),
    *(("epsilon", value, ValueError, f"between 0.0 and 1.0, got {value}") for value in (np.nan, np.inf, -0.1, 1.1)),
    *(("epsilon", value, TypeError, f"a real number, got {value!r}") for value in ("0.5", True, None, 0.5j)),
    *(("n", value, ValueError, "") for value in (-1, 2**31)),
    *(("n", value, TypeError, "") for value in (1.0, None)),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD_NUMBERS)
def test_bad_numbers(
    tree: ContextualMemoryTree, queries: np.ndarray, name: str, value: Any, error: type[Exception], message: str
):
    with nothing_changes(tree), pytest.raises(error, match=f"{name} must be {re.escape(message)}"):
        tree.reroute(value) if name == "n" else tree.query(queries, **{name: value})


BAD_REWARDS: dict[str, tuple[Any, type[Exception], str]] = {
    "nan": ([0, 0, np.nan, 0, 0], ValueError, r"rewards must be between 0 and 1"),
    "infinite": ([0, 0, np.inf, 0, 0], ValueError, r"rewards must be between 0 and 1"),
    "above 1": ([0, 0, 0, 0, 1.001], ValueError, r"rewards must be between 0 and 1"),
    "below 0": ([-0.001, 0, 0, 0, 0], ValueError, r"rewards must be between 0 and 1"),
    "too few": ([1.0] * 4, ValueError, r"rewards must have shape \(5,\) or \(5, 2\) like the hits, got \(4,\)"),
    "too many": (np.ones((5, 3)), ValueError, r"rewards must have shape .*got \(5, 3\)"),
    "one column": (np.ones((5, 1)), ValueError, r"rewards must have shape .*got \(5, 1\)"),
    "scalar": (1.0, ValueError, r"rewards must have shape .*got \(\)"),
    "strings": (["1"] * 5, TypeError, "rewards must be real numbers, got <U1"),
    "complex": ([1j] * 5, TypeError, "rewards must be real numbers, got complex128"),
    "none": (None, TypeError, "rewards must be real numbers, got object"),
    "ragged": ([[1, 2], [1]], TypeError, "rewards must be an array of real numbers"),
}


@pytest.mark.parametrize("what", BAD_REWARDS)
def test_bad_rewards(tree: ContextualMemoryTree, queries: np.ndarray, hits: Hits, what: str):
    rewards, error, message = BAD_REWARDS[what]
    with nothing_changes(tree), pytest.raises(error, match=message):
        tree.update(queries, hits, rewards)


@pytest.mark.parametrize("rewards", [[0, 1, 0, 1, 0], [True] * 5, np.full((5, 2), 0.5, np.float16), [[0, 1]] * 5])
def test_accepted_rewards(queries: np.ndarray, rewards: Any):
    tree = grown_tree(sparse=False, scorer_loss="regression")
    prove(tree)
    tree.update(queries, tree.query(queries, k=2), rewards)
    tree.check_invariants()
    assert np.any(state_of(tree).scorer.theta != 0)


def test_bad_hits(tree: ContextualMemoryTree, queries: np.ndarray, hits: Hits):
    rewards = np.ones(5)
    for wrong in (None, hits.ids, tuple(hits), hits._replace(exploration=None), hits._replace(exploration=(1,) * 5)):
        with nothing_changes(tree), pytest.raises(TypeError, match="hits must be the return value of query"):
            tree.update(queries, wrong, rewards)
    with nothing_changes(tree), pytest.raises(ValueError, match="hits must have one row for each of the 4 rows of X"):
        tree.update(queries[:4], hits, rewards)
    with nothing_changes(tree), pytest.raises(ValueError, match=r"hits must have one row .*got shape \(5,\)"):
        tree.update(queries, hits._replace(ids=hits.ids[:, 0]), rewards)
    for name in hits.exploration._fields:
        shorter = hits._replace(exploration=hits.exploration._replace(**{name: getattr(hits.exploration, name)[:4]}))
        with nothing_changes(tree), pytest.raises(ValueError, match=rf"hits.exploration.{name} must have shape \(5,\)"):
            tree.update(queries, shorter, rewards)


BAD_HITS: dict[str, tuple[str, Callable[[np.ndarray], Any], type[Exception]]] = {
    "no scores": ("scores", lambda scores: None, TypeError),
    "scores of another shape": ("scores", lambda scores: scores[:, :1], ValueError),
    "scores that are texts": ("scores", lambda scores: scores.astype(str), TypeError),
    "ids that are NaN": ("ids", lambda ids: np.where(ids == ids[0, 0], np.nan, ids), ValueError),
    "fractions of ids": ("ids", lambda ids: ids + 0.5, ValueError),
    "ids too large": ("ids", lambda ids: ids.astype(np.uint64) + np.uint64(2**63), ValueError),
    "infinite ids": ("ids", lambda ids: ids + np.inf, ValueError),
    "ids that are texts": ("ids", lambda ids: ids.astype(str), TypeError),
    "missing ids": ("ids", lambda ids: None, TypeError),
    "masked ids": ("ids", lambda ids: np.ma.masked_array(ids, ids == ids[0, 0]), ValueError),
    "no columns": ("ids", lambda ids: ids[:, :0], ValueError),
}


@pytest.mark.parametrize("what", BAD_HITS)
def test_hits_are_checked_before_anything_changes(
    tree: ContextualMemoryTree, queries: np.ndarray, hits: Hits, what: str
):
    name, alter, error = BAD_HITS[what]
    wrong = hits._replace(**{name: alter(getattr(hits, name))})
    with nothing_changes(tree), pytest.raises(error, match=rf"hits|{name}"):
        tree.update(queries, wrong, np.ones(5))


def test_refused_calls_are_not_journaled(queries: np.ndarray, tmp_path: Path):
    tree = ContextualMemoryTree.open(tmp_path / "tree", random_state=0)
    tree.insert(np.random.default_rng(4).normal(size=(60, WIDTH)))
    hits = tree.query(queries, k=2)
    refused = [call for call, *_ in BAD_CALLS]
    refused += [lambda tree, ids=ids: tree.remove(ids) for ids, *_ in BAD_IDS.values()]
    for name, alter, _ in BAD_HITS.values():
        wrong = hits._replace(**{name: alter(getattr(hits, name))})
        refused.append(lambda tree, wrong=wrong: tree.update(queries, wrong, np.ones(5)))
    before = copy.deepcopy(tree)
    for call in refused:
        with pytest.raises((KeyError, TypeError, ValueError)):
            call(tree)
        assert journal_of(tree).sequence == 1
    assert same(tree, before)
    with pytest.raises(ValueError, match="rewards must"):
        tree.learn(queries, lambda rows, ids: np.ones(3), epsilon=0.0)
    engine_room.draw_seed(forest_of(before))
    for each in (tree, before):
        each.remove(0)
    with ContextualMemoryTree.open(crashed(tmp_path / "tree")) as again:
        assert same(again, before)
    tree.close()


@pytest.mark.parametrize("name", ["tree", "node", "generation", "side", "probability"])
def test_non_numeric_records(tree: ContextualMemoryTree, queries: np.ndarray, hits: Hits, name: str):
    record = hits.exploration._replace(**{name: np.full(5, "0")})
    with nothing_changes(tree), pytest.raises(TypeError, match=rf"hits\.exploration\.{name} must be"):
        tree.update(queries, hits._replace(exploration=record), np.ones(5))
    if name != "probability":
        record = hits.exploration._replace(**{name: np.full(5, np.nan)})
        with nothing_changes(tree), pytest.raises(ValueError, match=rf"hits\.exploration\.{name} must be integers"):
            tree.update(queries, hits._replace(exploration=record), np.ones(5))


def test_hits_as_whole_floats(queries: np.ndarray):
    """Hits have the same effect after a conversion through a table that turns integers into floats."""
    trees = [grown_tree(sparse=False) for _ in range(2)]
    for tree, dtype in zip(trees, (np.int64, np.float64), strict=True):
        hits = tree.query(queries, k=2)
        tree.update(queries, hits._replace(ids=hits.ids.astype(dtype), scores=hits.scores.tolist()), np.ones((5, 2)))
    np.testing.assert_array_equal(*(tree.query(queries, k=3).ids for tree in trees))


def test_hits_of_another_forest(tree: ContextualMemoryTree):
    queries = np.random.default_rng(7).normal(size=(100, WIDTH))
    more_trees = grown_tree(sparse=False, n_trees=5).query(queries, epsilon=1.0)
    other = ContextualMemoryTree(n_trees=2, leaf_multiplier=1.0, random_state=0)
    other.insert(np.random.default_rng(8).normal(size=(500, WIDTH)))
    more_nodes = other.query(queries, epsilon=1.0)
    for hits in (more_trees, more_nodes):
        with nothing_changes(tree), pytest.raises(ValueError, match=r"hits\.exploration must come from this forest"):
            tree.update(queries, hits, np.ones(100))


@pytest.mark.parametrize(
    ("name", "value"),
    [("node", -5), ("node", 10**6), ("tree", 2), ("side", 7), ("probability", 0.0), ("probability", np.nan)],
)
def test_unknown_records(name: str, value: float):
    """A record that no query can make is refused, since it would make kernels access wrong memory."""
    tree = grown_tree(sparse=False)
    queries = np.random.default_rng(7).normal(size=(100, WIDTH))
    hits = tree.query(queries, epsilon=1.0)
    row = np.flatnonzero(hits.exploration.node >= 0)[0]
    getattr(hits.exploration, name)[row] = value
    with nothing_changes(tree), pytest.raises(ValueError, match=r"hits\.exploration"):
        tree.update(queries, hits, np.ones(100))


ABOVE_ZERO = [(0, ValueError), (-1.0, ValueError), (np.nan, ValueError), (np.inf, ValueError), ("1", TypeError)]
COUNTS = [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)]
BAD_OPTIONS: dict[str, list[tuple[Any, type[Exception]]]] = {
    "n_trees": [*COUNTS, (2**15 + 1, ValueError), (None, TypeError)],
    "alpha": [*ABOVE_ZERO, (1.01, ValueError), (None, TypeError), (True, TypeError)],
    "leaf_multiplier": [*ABOVE_ZERO, (2**21, ValueError), (None, TypeError)],
    "n_reroutes": [(-1, ValueError), (2**31, ValueError), (1.5, TypeError), (None, TypeError)],
    "router_loss": [("mira", ValueError), (1, ValueError), (None, ValueError)],
    "scorer_loss": [
        ("hinge", ValueError),
        ("mira", ValueError),
        ("squared", ValueError),
        (0, ValueError),
        (None, ValueError),
    ],
    "router_learning_rate": [*ABOVE_ZERO, (1e7, ValueError), (None, TypeError)],
    "scorer_learning_rate": [*ABOVE_ZERO, (1e7, ValueError), (None, TypeError)],
    "sure_margin": [(-0.1, ValueError), (np.nan, ValueError), (np.inf, ValueError), (None, TypeError)],
    "max_memories": [*COUNTS, (2**31, ValueError)],
    "eviction": [("newest", ValueError), (None, ValueError)],
    "n_threads": [*COUNTS, (2**15 + 1, ValueError)],
    "random_state": [(-1, ValueError), (2**64, ValueError), (1.5, TypeError), ("1", TypeError), ([1], TypeError)],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options(name: str):
    for value, error in BAD_OPTIONS[name]:
        with pytest.raises(error, match=f"{name} must be"):
            ContextualMemoryTree(**{name: value})


def test_accepted_options():
    tree = ContextualMemoryTree(
        np.int32(2),
        1,
        np.float32(0.5),
        np.uint8(0),
        router_loss="logistic",
        router_learning_rate=1,
        scorer_loss="regression",
        scorer_learning_rate=np.float64(0.5),
        n_threads=1,
        random_state=np.random.SeedSequence(5),
    )
    tree.insert(np.eye(5))
    assert tree.query(np.eye(5), n_probes=100).ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    tree.check_invariants()


def test_booleans():
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(np.eye(5, dtype=bool))
    assert tree.query(scipy.sparse.csr_array(np.eye(5, dtype=bool))).ids[:, 0].tolist() == [0, 1, 2, 3, 4]
