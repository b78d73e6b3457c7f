"""Shortlists of the hardest negatives of each row."""

import numpy as np
from internals import heads_room

from cmt_numba._heads import new_shortlists
from cmt_numba._kernels import NONE


def found_for(rows: np.ndarray, lists: list[np.ndarray], scores: list[np.ndarray]) -> heads_room.search.FoundLabels:
    ends = np.cumsum([labels.size for labels in lists])
    room = np.full(7, -1)  # arrays may have spare capacity at the end
    labels, values = np.concatenate([*lists, room]), np.concatenate([*scores, room]).astype(np.float32)
    return heads_room.search.FoundLabels(rows, ends, ends, labels, values, 0, max(labels.size for labels in lists))


def test_the_best_candidates_of_each_row_are_kept_behind_the_right_label(rng: np.random.Generator):
    rows = np.array([3, 0, 4, 1])
    lists = [rng.permutation(200)[:n] for n in (50, 0, 5, 16)]
    scores = [rng.permutation(labels.size) / 7 for labels in lists]
    right = np.array([300, int(lists[3][2]), 300, int(lists[0][7]), 300])
    shortlists = new_shortlists(right)
    length = shortlists.shape[1] - 1
    found_scores = heads_room.shortlists.shorten(found_for(rows, lists, scores), shortlists)
    for row, labels, values, kept_scores in zip(rows, lists, scores, found_scores, strict=True):
        wrong = labels != right[row]
        kept = shortlists[row, 1:][shortlists[row, 1:] != NONE]
        assert set(kept) == set(labels[wrong][np.argsort(-values[wrong])[:length]])
        assert (shortlists[row, 1 + kept.size :] == NONE).all()
        score_of = dict(zip(labels, values.astype(np.float32), strict=True))
        np.testing.assert_array_equal(kept_scores[1 : 1 + kept.size], [score_of[label] for label in kept])
        np.testing.assert_equal(kept_scores[0], score_of.get(right[row], np.float32(np.nan)))
    np.testing.assert_array_equal(shortlists[:, 0], right)
    assert (shortlists[2, 1:] == NONE).all()


def test_shortlists_are_restored_in_any_order(rng: np.random.Generator):
    shortlists = new_shortlists(np.arange(300))
    n_each = rng.integers(0, shortlists.shape[1], 300)
    for row, n in enumerate(n_each):
        shortlists[row, 1 : 1 + n] = row + 1 + np.arange(n)
    order = rng.permutation(300)[:250]
    scores = rng.random((250, shortlists.shape[1]), np.float32)
    found, first = heads_room.shortlists.shortlisted(shortlists, order, scores), 0
    np.testing.assert_array_equal(found.rows, order)
    for i, row in enumerate(order):
        np.testing.assert_array_equal(found.labels[first : found.ends[i]], row + np.arange(1 + n_each[row]))
        np.testing.assert_array_equal(found.scores[first : found.ends[i]], scores[i, : 1 + n_each[row]])
        first = found.ends[i]
