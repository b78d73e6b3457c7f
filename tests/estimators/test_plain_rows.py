"""Rows that need no conversion, which are checked in microseconds and treated like all others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from cmt_numba import CMTClassifier
from cmt_numba._validation import check_rows, is_plain

ROWS = np.where(np.random.default_rng(0).random((6, 5)) < 0.5, np.random.default_rng(1).normal(size=(6, 5)), 0.0)


def csr(X: Any, dtype: type = np.float32) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(np.asarray(X, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, csr, scipy.sparse.csr_matrix])
def test_plain_rows_become_the_same_rows_as_others(form: Callable[[Any], Any], dtype: type) -> None:
    X = form(ROWS.astype(dtype))
    other = np.asfortranarray(ROWS.astype(dtype)) if form is np.asarray else scipy.sparse.csc_array(ROWS.astype(dtype))
    assert is_plain(X, 5)
    assert not is_plain(X, 4)
    assert not is_plain(other, 5)
    plain, converted = check_rows(X), check_rows(other)
    for part, expected in zip(plain, converted, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_long_rows_are_sorted(rng: np.random.Generator) -> None:
    X = scipy.sparse.csr_array(rng.random((3, 400), np.float32))
    order = np.concatenate([400 * row + rng.permutation(400) for row in range(3)])
    unsorted = scipy.sparse.csr_array((X.data[order], X.indices[order], X.indptr), X.shape)
    for part, other in zip(check_rows(unsorted), check_rows(X), strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("form", [np.asarray, csr])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_plain_rows_that_are_not_finite_are_refused(form: Callable[[Any], Any], bad: float) -> None:
    classifier = CMTClassifier(random_state=0).fit(form(ROWS), [0, 1, 2, 0, 1, 2])
    X = ROWS.copy()
    X[3, 2] = bad
    message = "row 3 holds NaN, first in column 2; .*SimpleImputer" if np.isnan(bad) else "row 3 holds infinity"
    for call in (
        classifier.predict,
        lambda X: classifier.partial_fit(X, [0] * 6),
        lambda X: classifier.fit(X, [0] * 6),
    ):
        with pytest.raises(ValueError, match=message):
            call(form(X))
    assert classifier.classes_.tolist() == [0, 1, 2]
