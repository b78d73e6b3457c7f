"""Odd input: arrays of every kind and layout, sparse matrices made by hand, extreme values, keys that are all alike.

Either it works and gives what a plain computation in float64 gives, or it is refused by name before anything changes.
What :mod:`test_validation` has is not repeated here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import EVERY_LEAF, load_script
from numba import njit
from test_validation import grown_tree, nothing_changes

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, metrics, rewards
from cmt_numba._forest import allocation as _growth
from cmt_numba._forest.hash_table import hash_feature, hash_number
from cmt_numba._forest.linear_model import probed_margin
from cmt_numba._forest.rows import Row
from cmt_numba._forest.scorer import Probe
from cmt_numba._forest.sparse_weights import table_bits
from cmt_numba._forest.state import leaf_limit
from cmt_numba._jit import as_python

WIDTH = 8
ROWS = np.random.default_rng(0).integers(-3, 4, (30, WIDTH)).astype(np.float64)
LARGEST = float(np.finfo(np.float32).max)


def unit(rows: Any) -> np.ndarray:
    """Return rows scaled to length 1, in float64."""
    rows = np.asarray(rows, np.float64)
    lengths = np.sqrt(np.sum(np.square(rows), axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1.0)


def stored(tree: ContextualMemoryTree) -> np.ndarray:
    """Return the keys of a tree in the order of their slots, as they are stored."""
    state = tree._allocated()
    if not state.parameters.sparse:
        return state.keys.values[: len(tree) * tree.n_features].reshape(len(tree), -1)
    rows = np.zeros((len(tree), tree.n_features))
    for slot, (a, b) in enumerate(state.keys.spans[: len(tree)]):
        rows[slot, state.keys.indices[a:b]] = state.keys.values[a:b]
    return rows


def check_keys(tree: ContextualMemoryTree, X: Any, expected: Any, *, rtol: float = 1e-6) -> None:
    """Insert rows into a tree, and check what it stores and finds against exact search in float64."""
    expected = unit(expected)
    first = len(tree)
    ids = tree.insert(X)
    tree.check_invariants()
    np.testing.assert_allclose(stored(tree)[first:], expected, rtol=rtol, atol=1e-7)
    hits = tree.query(X, k=len(tree), n_probes=EVERY_LEAF)
    assert np.all(np.sort(hits.ids) == np.sort(tree.ids))
    exact = expected @ unit(stored(tree)).T
    np.testing.assert_allclose(hits.scores, -np.sort(-exact), atol=1e-5)
    np.testing.assert_allclose(hits.scores, np.take_along_axis(exact, hits.ids, axis=1), atol=1e-5)
    assert np.all(np.isin(ids, hits.ids))


def trees(width: int = WIDTH) -> list[ContextualMemoryTree]:
    """Return trees that store dense and sparse keys."""
    made = []
    for first in (np.eye(1, width), scipy.sparse.csr_array(np.eye(1, width))):
        tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
        tree.insert(first)
        made.append(tree)
    return made


def with_mask(mask: bool) -> np.ma.MaskedArray:
    masked = np.ma.array(ROWS, mask=False)
    masked[3, 4] = np.ma.masked if mask else masked[3, 4]
    return masked


def pandas_frame(**options: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS, **options)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


def byte_swapped(matrix: Any) -> Any:
    matrix.data = matrix.data.astype(">f4")
    matrix.indices = matrix.indices.astype(">i4")
    return matrix


def twice_each_cell(form: str, dtype: Any) -> Any:
    """Return ROWS with every cell in two halves, one behind all others, and an explicit zero in each row."""
    rows, columns = np.nonzero(np.ones_like(ROWS))
    values = np.concatenate([ROWS.ravel(), ROWS.ravel()]).astype(dtype)
    places = np.concatenate([rows, rows]), np.concatenate([columns, columns])
    matrix = scipy.sparse.coo_array((values, places), shape=ROWS.shape)
    if form == "coo":
        return matrix
    order = np.argsort(places[0], kind="stable")
    pointers = np.arange(0, 2 * ROWS.size + 1, 2 * WIDTH)
    return scipy.sparse.csr_array((values[order], places[1][order], pointers), shape=ROWS.shape)


GOOD: dict[str, Callable[[], Any]] = {
    "matrix": lambda: ROWS.view(np.matrix),
    "tuple of arrays": lambda: tuple(ROWS),
    "array without masked entries": lambda: with_mask(False),
    "read-only diagonal stride": lambda: np.lib.stride_tricks.as_strided(
        np.concatenate([ROWS, ROWS], axis=1)[:, :WIDTH], writeable=False
    ),
    "backwards": lambda: np.ascontiguousarray(ROWS[::-1, ::-1])[::-1, ::-1],
    "column by column, backwards": lambda: np.asfortranarray(ROWS[:, ::-1])[:, ::-1],
    "part of records": lambda: np.array([(0.0, row) for row in ROWS], [("a", "f8"), ("row", "f4", WIDTH)])["row"],
    "unaligned": lambda: np.array([(0, row) for row in ROWS], [("a", "i1"), ("row", "f8", WIDTH)])["row"],
    "big-endian integers": lambda: ROWS.astype(">i2"),
    "big-endian float16": lambda: ROWS.astype(">f2"),
    "frame": pandas_frame,
    "frame of float32": lambda: pandas_frame(dtype="float32"),
    "frame of sparse columns": lambda: pandas_frame().astype(pytest.importorskip("pandas").SparseDtype(float, 0.0)),
    "polars frame": polars_frame,
    "dok_array": lambda: scipy.sparse.dok_array(ROWS),
    "dia_array": lambda: scipy.sparse.dia_array(ROWS),
    "bsr_array": lambda: scipy.sparse.bsr_array(ROWS, blocksize=(3, 4)),
    "lil_array": lambda: scipy.sparse.lil_array(ROWS),
    "big-endian csr_array": lambda: byte_swapped(scipy.sparse.csr_array(ROWS)),
    "cells in halves": lambda: twice_each_cell("csr", np.float32),
    "cells in halves, bytes": lambda: twice_each_cell("csr", np.int8),
    "cells in halves, coordinates": lambda: twice_each_cell("coo", np.float64),
}


@pytest.mark.parametrize("what", GOOD)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of np.matrix
def test_forms_of_input(what: str):
    for tree in trees():
        check_keys(tree, GOOD[what](), ROWS)


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_duplicates_add_up_beyond_their_type(form: str):
    """100 + 100 does not fit int8, in which scipy would add."""
    parts = np.array([100, 100, 100], np.int8)
    places = np.array([0, 0, 0]), np.array([1, 1, 2])
    matrix = scipy.sparse.coo_array((parts, places), shape=(1, WIDTH))
    if form == "csr":
        matrix = scipy.sparse.csr_array((parts, places[1], [0, 3]), shape=(1, WIDTH))
    for tree in trees():
        check_keys(tree, matrix, [[0, 200, 100, 0, 0, 0, 0, 0]])


def test_a_matrix_changed_since_it_was_canonical():
    """Scipy keeps in mind that a matrix has no duplicates, even where its indices change."""
    matrix = scipy.sparse.csr_array(np.eye(WIDTH) + 2 * np.eye(WIDTH, k=2))
    assert matrix.has_canonical_format
    matrix.indices[:4] = 1, 1, 5, 0  # twice the same, and no longer sorted
    expected = np.eye(WIDTH) + 2 * np.eye(WIDTH, k=2)
    expected[0] = 0, 3, 0, 0, 0, 0, 0, 0
    expected[1] = 2, 0, 0, 0, 0, 1, 0, 0
    for tree in trees():
        check_keys(tree, matrix, expected)


def changed(form: str, **parts: Any) -> Any:
    """Return a sparse matrix some of whose parts have been replaced by hand."""
    matrix = scipy.sparse.csr_array(np.eye(WIDTH) + np.eye(WIDTH, k=1)).asformat(form)
    for name, part in parts.items():
        setattr(matrix, name, part(getattr(matrix, name)) if callable(part) else part)
    return matrix


def with_row(lists: np.ndarray, row: list[Any]) -> np.ndarray:
    lists[3] = row
    return lists


def with_key(cells: dict[Any, Any]) -> dict[Any, Any]:
    return cells | {(3, 10**6): 1.0}


BROKEN: dict[str, Callable[[], Any]] = {
    "indices that are floats": lambda: changed("csr", indices=lambda old: old + 0.5),
    "indices without a sign": lambda: changed("csr", indices=lambda old: old.astype(np.uint64)),
    "pointers that are floats": lambda: changed("csr", indptr=lambda old: old + 0.5),
    "a pointer too few": lambda: changed("csr", indptr=lambda old: old[:-1]),
    "pointers of two dimensions": lambda: changed("csr", indptr=lambda old: old[None]),
    "values too few": lambda: changed("csr", data=lambda old: old[:-1]),
    "values too many": lambda: changed("csr", data=lambda old: np.append(old, np.nan)),
    "values of two dimensions": lambda: changed("csr", data=lambda old: old[:, None]),
    "indices too many": lambda: changed("csc", indices=lambda old: np.append(old, 77)),
    "no indices": lambda: changed("csr", indices=None),
    "no pointers": lambda: changed("csc", indptr=None),
    "no values": lambda: changed("csr", data=None),
    "a list of values": lambda: changed("csr", data=np.ndarray.tolist),
    "index beyond int32": lambda: changed("csr", indices=lambda old: old.astype(np.int64) + 2**32),
    "pointer beyond int32": lambda: changed("csr", indptr=lambda old: old.astype(np.int64) + 2**32),
    "lists, column too high": lambda: changed("lil", rows=lambda old: with_row(old, [3, 10**8])),
    "lists, column negative": lambda: changed("lil", rows=lambda old: with_row(old, [-5, 3])),
    "lists, columns too many": lambda: changed("lil", rows=lambda old: with_row(old, [1, 2, 3, 4])),
    "lists, values too many": lambda: changed("lil", data=lambda old: with_row(old, [1.0] * 9)),
    "lists, a row too few": lambda: changed("lil", rows=lambda old: old[:-1], data=lambda old: old[:-1]),
    "dictionary, column too high": lambda: changed("dok", _dict=with_key),
    "diagonals named twice": lambda: changed("dia", offsets=lambda old: np.zeros_like(old)),
    "diagonals without a number": lambda: changed("dia", offsets=lambda old: old[:-1]),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["into dense", "into sparse"])
@pytest.mark.parametrize("what", BROKEN)
def test_broken_sparse(what: str, sparse: bool):
    tree = grown_tree(sparse)
    for method in ("insert", "query"):
        with nothing_changes(tree), pytest.raises(ValueError, match="X must be a valid sparse matrix: "):
            getattr(tree, method)(BROKEN[what]())


UNUSABLE: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "masked": (lambda: with_mask(True), ValueError, "X must have no masked entries"),
    "records": (lambda: np.zeros((3, WIDTH), "f4,f4"), TypeError, "X must hold real numbers"),
    "row of records": (lambda: np.zeros(3, "f4,f4"), ValueError, "X must have two dimensions"),
    "durations": (lambda: np.zeros((3, WIDTH), "m8[s]"), TypeError, "X must hold real numbers"),
    "numbers without end": (lambda: [[10**400] * WIDTH], TypeError, "X must hold real numbers, not object"),
    "frame of words": (lambda: pandas_frame().astype(str), TypeError, "X must hold real numbers"),
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


@pytest.mark.parametrize("sparse", [False, True], ids=["into dense", "into sparse"])
@pytest.mark.parametrize("what", UNUSABLE)
def test_unusable(what: str, sparse: bool):
    make, error, message = UNUSABLE[what]
    tree = grown_tree(sparse)
    for method in ("insert", "query"):
        with nothing_changes(tree), pytest.raises(error, match=message):
            getattr(tree, method)(make())


def test_masked_ids_and_rewards():
    tree = grown_tree(sparse=False)
    hits = tree.query(np.eye(WIDTH))
    masked = np.ma.array(np.arange(WIDTH), mask=np.arange(WIDTH) == 3)
    with nothing_changes(tree), pytest.raises(ValueError, match="ids must have no masked entries"):
        tree.remove(masked)
    with nothing_changes(tree), pytest.raises(ValueError, match="rewards must have no masked entries"):
        tree.update(np.eye(WIDTH), hits, masked > 2)


def test_masked_arguments():
    """What lies below a mask is never taken for real, whichever argument it is."""
    tree = grown_tree(sparse=False)
    masked = np.ma.array(np.arange(4), mask=[0, 1, 0, 0])
    mask = np.ma.array([True] * 4, mask=[0, 1, 0, 0])
    for among in (masked, mask):
        with nothing_changes(tree), pytest.raises(ValueError, match="among must have no masked entries"):
            tree.query(np.eye(WIDTH), among=among)
    X, Y = np.eye(4), np.ma.array(np.eye(4, dtype=int), mask=np.eye(4) > 0)
    for name, call in (
        ("y", lambda: CMTClassifier().fit(X, masked)),
        ("y", lambda: CMTClassifier().partial_fit(X, masked)),
        ("classes", lambda: CMTClassifier().partial_fit(X[:1], [0], classes=masked)),
        ("Y", lambda: CMTMultilabelClassifier().fit(X, Y)),
        ("y", lambda: CMTRetriever().fit(X, Y)),
        ("y", lambda: CMTRetriever().fit(X, masked)),
        ("X", lambda: CMTRetriever().fit(Y, np.arange(4))),
        ("y", lambda: metrics.constant_accuracy(masked)),
        ("predicted", lambda: metrics.hamming(X, Y)),
        ("of_rows", lambda: rewards.LabelEquality(np.arange(4), masked)),
        ("of_memories", lambda: rewards.LabelF1(Y, X)),
    ):
        with pytest.raises(ValueError, match=f"^{name} must have no masked entries"):
            call()


# Values

EXTREME = {
    "squares overflow": [[3e38, 2e38, -1e38, 0], [1e20, 1e30, 0, 0]],
    "all the largest": [[LARGEST] * 4, [-LARGEST, LARGEST, 0, LARGEST]],
    "squares vanish": [[1e-30, 2e-30, -3e-30, 0], [1e-38, 0, 1e-37, 0]],
    "denormal": [[2.0**-149, 2.0**-148, 0, 0], [2.0**-140, 0, 3 * 2.0**-149, -(2.0**-130)]],
    "huge and tiny in a row": [[LARGEST, 2.0**-149, 1.0, 0], [1e30, 1e-30, 1e30, -1e30]],
    "huge and tiny rows": [[LARGEST, LARGEST, 0, 0], [2.0**-149, 0, 2.0**-149, 0]],
    "negative zeros": [[-0.0, 1.0, -0.0, 0.0], [-0.0, -0.0, -0.0, -0.0]],
}


@pytest.mark.parametrize("what", EXTREME)
def test_extreme_values_as_in_float64(what: str):
    """Computed from what the values are in float32: that is where digits are lost, and nowhere after."""
    rows = np.array(EXTREME[what], np.float64).astype(np.float32)
    for form in (np.asarray, scipy.sparse.csr_array):
        for tree in trees(4):
            check_keys(tree, form(rows), rows)
            check_keys(tree, form(rows.astype(np.float64)), rows)


@pytest.mark.parametrize("loss", ["squared", "logistic", "mira"])
@pytest.mark.parametrize("rate", [1e-30, 1e6])
@pytest.mark.parametrize("sparse", [False, True])
def test_extreme_learning_rates(sparse: bool, rate: float, loss: str):
    rows = np.random.default_rng(1).normal(size=(200, 3))
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(
        leaf_multiplier=1.0,
        router_loss=loss,
        router_learning_rate=rate,
        scorer_learning_rate=rate,
        scorer_loss="regression",
        random_state=0,
    )
    ids = tree.insert(rows)
    tree.update(rows, tree.query(rows, k=3, epsilon=0.5), np.ones((200, 3)))
    tree.teach(rows, ids)
    tree.check_invariants()
    assert np.all(np.isfinite(tree.query(rows).scores))


# Keys that are alike


@pytest.mark.parametrize("alpha", [0.9, 1e-300])
@pytest.mark.parametrize("leaf_multiplier", [0.01, 1.0])
@pytest.mark.parametrize("noise", [0.0, 1e-8, 6e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("sparse", [False, True])
def test_nearly_identical_keys(sparse: bool, noise: float, leaf_multiplier: float, alpha: float):
    """Keys that differ by rounding errors have margins between which no threshold fits; their leaves are parted yet."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=4) + noise * rng.normal(size=(150, 4))).astype(np.float32)
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(leaf_multiplier=leaf_multiplier, alpha=alpha, random_state=0)
    for first in range(0, 150, 50):
        tree.insert(rows[first : first + 50])
        tree.check_invariants()
    assert tree.leaves().size.min() > 0
    assert tree.leaves().size.size <= 150
    tree.reroute(100)
    tree.remove(tree.ids[:100])
    tree.check_invariants()
    np.testing.assert_allclose(tree.query(rows, k=50, n_probes=EVERY_LEAF).scores, 1.0, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_distinct", [0, 1, 2, 3])
def test_few_distinct_keys(n_distinct: int, sparse: bool):
    """20,000 keys of which all but a few are equal: the tree stays flat. None distinct means that all are zero."""
    n = 20_000
    kinds = np.arange(n) % max(1, n_distinct)
    rows = np.zeros((n, 3))
    rows[np.arange(n), kinds] = n_distinct > 0
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(random_state=0, n_reroutes=1)
    ids = tree.insert(rows)
    tree.check_invariants()
    assert tree.depth <= 3 * np.log2(n)
    assert tree.leaves().size.size < n / 16
    hits = tree.query(rows[:30], k=5)
    assert np.all(kinds[hits.ids] == kinds[:30, None])
    np.testing.assert_allclose(hits.scores, float(n_distinct > 0))
    tree.remove(ids[::2])
    tree.check_invariants()


def test_script_that_inserts_identical_keys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    script = load_script("tests/stress_identical.py")
    assert script.main(["--most", "2000", "--kinds", "0", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 2
    monkeypatch.setattr(script, "LEVELS", 0.1)  # so that any tree is too deep
    assert script.main(["--most", "2000", "--kinds", "1", "--forms", "dense"]) == 1
    assert capsys.readouterr().out.endswith("too deep\n")


def test_digests_of_trees():
    """They tell any difference: the same steps give the same, another seed or another bit gives others."""
    script = load_script("tests/digest_trees.py")
    lines = [list(script.steps(True, 1, {"alpha": alpha})) for alpha in (0.9, 0.9, 0.8)]
    assert lines[0] == lines[1]
    assert [what for what, _ in lines[0]] == [what for what, _ in lines[2]]
    assert all(one != other for one, other in zip(lines[0][1:], lines[2][1:], strict=True))
    zeros = np.zeros((2, 3), np.float32)
    others = [zeros, -zeros, zeros.T, zeros.view(np.int32)]
    assert len({script.digest((array,)) for array in others}) == 4


@pytest.mark.parametrize("sparse", [False, True])
def test_one_memory_of_one_feature(sparse: bool):
    form = scipy.sparse.csr_array if sparse else np.asarray
    tree = ContextualMemoryTree(random_state=0)
    assert tree.insert(form(np.array([[-3.0]]))).tolist() == [0]
    tree.reroute(3)
    hits = tree.query(form(np.array([[2.0], [0.0], [-1e-40]])), k=2, n_probes=5, epsilon=0.0)
    assert hits.ids.tolist() == [[0, -1]] * 3
    np.testing.assert_allclose(hits.scores[:, 0], [-1.0, 0.0, 1.0])
    tree.update(form(np.array([[1.0]])), tree.query(form(np.array([[1.0]])), epsilon=1.0), [1.0])
    tree.teach(form(np.array([[1.0]])), [0])
    tree.check_invariants()
    tree.remove(0)
    tree.check_invariants()
    assert tree.query(form(np.array([[1.0]]))).ids.tolist() == [[-1]]
    assert tree.insert(form(np.array([[1.0]]))).tolist() == [1]


# Numbers near 2**31


def test_highest_feature_indices():
    width = 2**31 - 1
    places = [0, 1, 2, 3], [width - 1, width - 2, 0, width - 1]
    rows = scipy.sparse.csr_array((np.ones(4), places), shape=(4, width))
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(rows)
    tree.insert(rows)
    tree.check_invariants()
    hits = tree.query(rows, k=4, n_probes=EVERY_LEAF)
    assert [sorted(row) for row in hits.ids[[0, 3]]] == [[0, 3, 4, 7]] * 2
    np.testing.assert_allclose(hits.scores[0], 1.0)
    assert [sorted(row[:2]) for row in hits.ids[1:3]] == [[1, 5], [2, 6]]
    assert tree.nbytes < 100_000
    tree.remove(tree.ids)
    tree.check_invariants()


def test_hashes_of_large_numbers():
    for bits in (4, 16, 31, 32):
        for feature in (0, 1, 2**31 - 2, 2**31 - 1):
            assert 0 <= hash_feature(np.int32(feature), np.int64(bits)) < 2**bits
    for size in (1, 16, 2**31, 2**32):
        for number in (0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1):
            assert 0 <= hash_number(np.int64(number), np.int64(size)) < size


@njit
def margin_in_kernel(models: Any, t: int, label: int, probe: Any, row: Any) -> float:
    """Return what only kernels can ask for."""
    return probed_margin(models, t, label, probe, row)


def test_sizes_near_the_limits():
    assert leaf_limit(4.0, np.int64(2**31 - 1)) == 123
    assert leaf_limit(2.0**20, np.int64(2**31 - 1)) < 2**31
    bits = as_python(table_bits)  # which no wrapper is compiled for
    assert bits(np.int64(2**30)) == 31
    assert 3 * 2 ** bits(np.int64(2**31 - 1)) >= 4 * (2**31 - 1)


def test_more_router_storage_than_can_be_addressed(monkeypatch: pytest.MonkeyPatch):
    """Where tables start is told in 32 bits: a tree that wants more of them says so, and holds what it held."""
    rows = scipy.sparse.random_array((400, 300), density=0.05, format="csr", random_state=np.random.default_rng(0))
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(rows[:100])
    monkeypatch.setattr(_growth, "MOST_CELLS", int(1.2 * tree._allocated().routers.table.shape[1]))
    with pytest.raises(MemoryError, match="a tree's routers cannot have more than"):
        tree.insert(rows[100:])
    tree.check_invariants()
    assert sorted(tree.ids) == list(range(100))
    assert tree._allocated().routers.table.shape[1] <= _growth.MOST_CELLS
    monkeypatch.undo()
    assert tree.insert(rows[100:]).tolist() == list(range(100, 400))
    tree.check_invariants()


def test_generations_wrap_around():
    """A record of a node freed 2**31 times is told from others as before."""
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(np.random.default_rng(0).normal(size=(60, 3)))
    tree._allocated().nodes["generation"] = 2**31 - 1
    queries = np.random.default_rng(1).normal(size=(40, 3))
    hits = tree.query(queries, epsilon=1.0)
    tree.remove(tree.ids[:50])
    tree.insert(np.random.default_rng(2).normal(size=(50, 3)))
    assert tree._allocated().nodes["generation"].min() == -(2**31)
    tree.check_invariants()
    tree.update(queries, hits, np.ones(40))
    tree.check_invariants()


# Estimators

LABELS = np.arange(30) % 5


@pytest.mark.parametrize("kind", [CMTClassifier, CMTMultilabelClassifier, CMTRetriever])
@pytest.mark.parametrize("sparse", [False, True])
def test_estimators_with_odd_rows(kind: Any, sparse: bool):
    """One class, one feature, all rows alike, all rows zero, huge rows: every one fits and answers."""
    form = scipy.sparse.csr_array if sparse else np.asarray
    sets = {
        "one feature": np.linspace(-1, 1, 30)[:, None],
        "alike": np.ones((30, 3)),
        "zero": np.zeros((30, 3)),
        "huge": np.full((30, 3), LARGEST) * np.linspace(-1, 1, 30)[:, None],
        "one row": np.ones((1, 3)),
    }
    for rows in sets.values():
        labels = LABELS[: len(rows)] if len(rows) > 1 else np.array([1])
        y = np.eye(5, dtype=int)[labels] if kind is CMTMultilabelClassifier else labels
        estimator = kind(random_state=0).fit(form(rows), y)
        answers = estimator.predict(form(rows))
        assert answers.shape[0] == len(rows)
        estimator.forest_.check_invariants()


@pytest.mark.parametrize("kind", [CMTClassifier, CMTMultilabelClassifier, CMTRetriever])
def test_estimators_refuse_broken_sparse(kind: Any):
    """Scikit-learn converts matrices without a look at their indices, which may end the process."""
    y = np.eye(WIDTH, dtype=int) if kind is CMTMultilabelClassifier else np.arange(WIDTH)
    fitted = kind(random_state=0).fit(changed("csr"), y)
    for make in BROKEN.values():
        with pytest.raises(ValueError, match="X must be a valid sparse matrix: "):
            kind(random_state=0).fit(make(), y)
        with pytest.raises(ValueError, match="X must be a valid sparse matrix: "):
            fitted.predict(make())
    outside = changed("csc", indices=lambda old: old + 10**6)
    with pytest.raises(ValueError, match="X must be a valid sparse matrix: "):
        kind(random_state=0).fit(outside, y)
    fitted.forest_.check_invariants()


def test_labels_whose_mean_is_zero():
    """Their scorers begin without a single weight, and so without a table to read."""
    rows = scipy.sparse.csr_array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [1.0, 0.0]])
    head = CMTClassifier(n_head_passes=0, random_state=0).fit(rows, [0, 0, 1, 1]).head_
    head.routers.table["weight"][0, :16] = 5.0  # the other label's
    tables = head.nodes["table_bits"][0, :2]
    probe = Probe(np.ones(2, np.float32), np.empty(0, np.int32), np.zeros(3, np.int64), np.ones(1, np.float32))
    row = Row(np.ones(2, np.float32), np.arange(2, dtype=np.int32), 0, 2)
    assert sorted(tables > 0) == [False, True]
    assert margin_in_kernel(head.models, 0, int(np.argmin(tables)), probe, row) == 0.0
