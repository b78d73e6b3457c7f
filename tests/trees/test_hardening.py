"""Unusual input: arrays of every kind and layout, handmade sparse matrices, extreme values, equal keys.

Each input either works, with the results of a plain computation in float64, or raises an error before anything changes.
This adds to :mod:`test_validation`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from exact_keys import LARGEST, ROWS, WIDTH, check_keys, pandas_frame, polars_frame, trees, with_mask
from test_validation import grown_tree, nothing_changes

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, metrics, rewards


def byte_swapped(matrix: Any) -> Any:
    matrix.data = matrix.data.astype(">f4")
    matrix.indices = matrix.indices.astype(">i4")
    return matrix


def with_wide_indices(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def twice_each_cell(form: str, dtype: Any) -> Any:
    """Return ROWS with every cell split into two halves, the second halves last, and an explicit zero in each row."""
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
    "list": ROWS.tolist,
    "float16": lambda: ROWS.astype(np.float16),
    "float32": lambda: ROWS.astype(np.float32),
    "longdouble": lambda: ROWS.astype(np.longdouble),
    "int64": lambda: ROWS.astype(np.int64),
    "int8": lambda: ROWS.astype(np.int8),
    "fortran": lambda: np.asfortranarray(ROWS, np.float32),
    "strided": lambda: np.repeat(np.repeat(ROWS.astype(np.float32), 2, 0), 3, 1)[::2, ::3],
    "big-endian": lambda: ROWS.astype(">f4"),
    "big-endian float64": lambda: ROWS.astype(">f8"),
    "csr_array": lambda: scipy.sparse.csr_array(ROWS.astype(np.float32)),
    "csr_matrix": lambda: scipy.sparse.csr_matrix(ROWS),
    "csr_array of int64": lambda: scipy.sparse.csr_array(ROWS.astype(np.int64)),
    "csr_array of int8": lambda: scipy.sparse.csr_array(ROWS.astype(np.int8)),
    "csc_array": lambda: scipy.sparse.csc_array(ROWS.astype(np.float32)),
    "coo_array": lambda: scipy.sparse.coo_array(ROWS.astype(np.float32)),
    "wide indices": lambda: with_wide_indices(scipy.sparse.csr_array(ROWS.astype(np.float32))),
    "sliced csr_array": lambda: scipy.sparse.csr_array(np.repeat(ROWS, 2, 0).astype(np.float32))[::2],
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
def test_duplicates_are_summed_without_overflow(form: str):
    """100 + 100 overflows int8, the type in which SciPy would add."""
    parts = np.array([100, 100, 100], np.int8)
    places = np.array([0, 0, 0]), np.array([1, 1, 2])
    matrix = scipy.sparse.coo_array((parts, places), shape=(1, WIDTH))
    if form == "csr":
        matrix = scipy.sparse.csr_array((parts, places[1], [0, 3]), shape=(1, WIDTH))
    for tree in trees():
        check_keys(tree, matrix, [[0, 200, 100, 0, 0, 0, 0, 0]])


def test_a_matrix_changed_since_it_was_canonical():
    """SciPy caches that a matrix has no duplicates, even after its indices change."""
    matrix = scipy.sparse.csr_array(np.eye(WIDTH) + 2 * np.eye(WIDTH, k=2))
    assert matrix.has_canonical_format
    matrix.indices[:4] = 1, 1, 5, 0  # a duplicate, and no longer sorted
    data, indices = matrix.data.copy(), matrix.indices.copy()
    expected = np.eye(WIDTH) + 2 * np.eye(WIDTH, k=2)
    expected[0] = 0, 3, 0, 0, 0, 0, 0, 0
    expected[1] = 2, 0, 0, 0, 0, 1, 0, 0
    for tree in trees():
        check_keys(tree, matrix, expected)
    np.testing.assert_array_equal(matrix.data, data)  # the caller's matrix is unchanged
    np.testing.assert_array_equal(matrix.indices, indices)


def changed(form: str, **parts: Any) -> Any:
    """Return a sparse matrix with some of its arrays replaced."""
    matrix = scipy.sparse.csr_array(np.eye(WIDTH) + np.eye(WIDTH, k=1)).asformat(form)
    for name, part in parts.items():
        setattr(matrix, name, part(getattr(matrix, name)) if callable(part) else part)
    return matrix


def with_last(array: np.ndarray, value: int) -> np.ndarray:
    array[-1] = value
    return array


def with_coordinate(value: int) -> Any:
    matrix = changed("coo")
    matrix.coords[1][-1] = value
    return matrix


def with_row(lists: np.ndarray, row: list[Any]) -> np.ndarray:
    lists[3] = row
    return lists


def with_key(cells: dict[Any, Any]) -> dict[Any, Any]:
    return cells | {(3, 10**6): 1.0}


BROKEN: dict[str, Callable[[], Any]] = {
    **{
        f"{form}, column {value}": lambda form=form, value=value: changed(
            form, indices=lambda old: with_last(old, value)
        )
        for form in ("csr", "csc", "bsr")
        for value in (-1, 10**6)
    },
    "coordinate too high": lambda: with_coordinate(10**6),
    "pointers fall": lambda: changed("csr", indptr=lambda old: with_last(old[::-1].copy(), old[-1])),
    "first pointer": lambda: changed("csr", indptr=lambda old: old + (old == 0)),
    "last pointer": lambda: changed("csr", indptr=lambda old: with_last(old, old[-1] + 1)),
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


def test_masked_ids_and_rewards():
    tree = grown_tree(sparse=False)
    hits = tree.query(np.eye(WIDTH))
    masked = np.ma.array(np.arange(WIDTH), mask=np.arange(WIDTH) == 3)
    with nothing_changes(tree), pytest.raises(ValueError, match="ids must not have masked entries"):
        tree.remove(masked)
    with nothing_changes(tree), pytest.raises(ValueError, match="rewards must not have masked entries"):
        tree.update(np.eye(WIDTH), hits, masked > 2)


def test_masked_arguments():
    """Values below a mask are never used, whichever argument it is."""
    tree = grown_tree(sparse=False)
    masked = np.ma.array(np.arange(4), mask=[0, 1, 0, 0])
    mask = np.ma.array([True] * 4, mask=[0, 1, 0, 0])
    for among in (masked, mask):
        with nothing_changes(tree), pytest.raises(ValueError, match="among must not have masked entries"):
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
        with pytest.raises(ValueError, match=f"^{name} must not have masked entries"):
            call()


# Estimators

LABELS = np.arange(30) % 5


@pytest.mark.parametrize("kind", [CMTClassifier, CMTMultilabelClassifier, CMTRetriever])
@pytest.mark.parametrize("sparse", [False, True])
def test_estimators_with_odd_rows(kind: Any, sparse: bool):
    """One class, one feature, equal rows, zero rows, huge rows: all can be fitted and queried."""
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
        getattr(estimator, "forest_", estimator).check_invariants()


@pytest.mark.parametrize("kind", [CMTClassifier, CMTMultilabelClassifier, CMTRetriever])
def test_estimators_refuse_broken_sparse(kind: Any):
    """scikit-learn converts matrices without checking their indices, which may crash the process."""
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
    getattr(fitted, "forest_", fitted).check_invariants()
