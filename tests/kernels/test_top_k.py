"""Tests of the largest scores of rows."""

import numpy as np
import pytest

from cmt_numba._kernels import top_k


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 300])
@pytest.mark.parametrize("k", [1, 2, 3, 7, 24, 25])
def test_equal_scores_are_ordered_by_column(n: int, k: int):
    rng = np.random.default_rng(n)
    some, k = rng.normal(size=(20, n)).astype(np.float32), min(k, n)
    for scores in (some, np.round(some), np.sort(some, axis=1), np.zeros_like(some), np.full_like(some, -np.inf)):
        columns, values = top_k(scores, k)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(columns, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def test_answers_are_padded_where_there_are_too_few_scores():
    scores = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    columns, values = top_k(scores, 4)
    np.testing.assert_array_equal(columns, [[2, 0, -1, -1], [-1, -1, -1, -1]])
    np.testing.assert_array_equal(values, np.array([[3.0, 1.0, *[-np.inf] * 2], [-np.inf] * 4], np.float32))
