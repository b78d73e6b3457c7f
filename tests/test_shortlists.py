"""The hardest negatives of each row, which further passes over the rows learn from."""

import numpy as np

from cmt_numba._forest.state import NONE
from cmt_numba._heads.search import Found
from cmt_numba._heads.shortlists import new_shortlists, shorten, shortlisted


def found_for(rows: np.ndarray, lists: list[np.ndarray], scores: list[np.ndarray]) -> Found:
    ends = np.cumsum([labels.size for labels in lists])
    room = np.full(7, -1)  # what has been found need not fill the arrays
    labels, values = np.concatenate([*lists, room]), np.concatenate([*scores, room]).astype(np.float32)
    return Found(rows, ends, ends, labels, values, 0, max(labels.size for labels in lists))


def test_the_best_candidates_of_each_row_are_kept(rng: np.random.Generator):
    rows = np.array([3, 0, 4, 1])
    lists = [rng.permutation(200)[:n] for n in (50, 0, 5, 16)]
    scores = [rng.permutation(labels.size) / 7 for labels in lists]
    shortlists = new_shortlists(5)
    length = shortlists.shape[1]
    shorten(found_for(rows, lists, scores), shortlists)
    for row, labels, values in zip(rows, lists, scores, strict=True):
        kept = shortlists[row][shortlists[row] != NONE]
        assert set(kept) == set(labels[np.argsort(-values)[:length]])
        assert (shortlists[row][kept.size :] == NONE).all()
    assert (shortlists[2] == NONE).all()


def test_shortlists_come_back_in_any_order(rng: np.random.Generator):
    shortlists = new_shortlists(3000)
    n_each = rng.integers(0, shortlists.shape[1] + 1, 3000)
    for row, n in enumerate(n_each):
        shortlists[row, :n] = row + np.arange(n)
    order = rng.permutation(3000)[:2500]
    came = []
    for found in shortlisted(shortlists, order):
        first = 0
        for row, end in zip(found.rows, found.ends, strict=True):
            came.append(row)
            np.testing.assert_array_equal(found.labels[first:end], row + np.arange(n_each[row]))
            first = end
        assert found.scores.size == found.labels.size
    np.testing.assert_array_equal(came, order)


def test_rows_of_no_candidates_have_empty_shortlists():
    shortlists = new_shortlists(2)
    shorten(found_for(np.array([1]), [np.empty(0, np.int64)], [np.empty(0)]), shortlists)
    (found,) = shortlisted(shortlists, np.array([1, 0]))
    assert found.labels.size == 0
    np.testing.assert_array_equal(found.ends, [0, 0])
