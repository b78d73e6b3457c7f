"""Tests of columns that grow."""

import pickle

import numpy as np
from internals import kernels_room


def test_growing_columns_keep_the_used_part():
    first = kernels_room.GrowingColumns(np.arange(3), np.arange(3) * 2)
    longer = first.appended(np.array([3]), np.array([6]))
    longest = longer
    for n in range(4, 9):
        longest = longest.appended(np.array([n]), np.array([2 * n]))
    branch = longer.appended(np.array([7]), np.array([7]))  # must not overwrite the entries that follow in ``longest``
    np.testing.assert_array_equal(branch.columns, [[0, 1, 2, 3, 7], [0, 2, 4, 6, 7]])
    np.testing.assert_array_equal(longest.columns, [np.arange(9), np.arange(9) * 2])
    np.testing.assert_array_equal(longer.columns, [np.arange(4), np.arange(4) * 2])
    np.testing.assert_array_equal(first.columns, [np.arange(3), np.arange(3) * 2])


def test_appending_rarely_copies():
    columns, n_copies = kernels_room.GrowingColumns(np.empty((0, 2))), 0
    for n in range(2000):
        before, columns = columns.columns[0], columns.appended(np.full((1, 2), n))
        n_copies += not np.shares_memory(before, columns.columns[0])
    assert n_copies < 40
    np.testing.assert_array_equal(columns.columns[0][:, 1], np.arange(2000))


def test_changes_in_place_are_kept():
    columns = kernels_room.GrowingColumns(np.arange(3)).appended(np.array([3]))
    columns.columns[0][1] = 9
    np.testing.assert_array_equal(columns.appended(np.array([4])).columns[0], [0, 9, 2, 3, 4])


def test_appending_nothing_changes_no_other_columns():
    first = kernels_room.GrowingColumns(np.arange(3))
    longer, same = first.appended(np.array([3])), first.appended(np.array([], int))
    other = same.appended(np.array([7]))
    np.testing.assert_array_equal(longer.columns[0], [0, 1, 2, 3])
    np.testing.assert_array_equal(other.columns[0], [0, 1, 2, 7])


def test_a_pickle_has_no_spare_capacity():
    columns = kernels_room.GrowingColumns(np.arange(1000)).appended(np.array([1000]))
    pickled = pickle.dumps(columns)
    assert len(pickled) < 8500
    copy = pickle.loads(pickled)
    np.testing.assert_array_equal(copy.appended(np.array([5])).columns[0], [*range(1001), 5])


def test_new_entries_are_filled():
    np.testing.assert_array_equal(kernels_room.resized(np.ones((2, 1)), 3, axis=1, fill=7), [[1, 7, 7], [1, 7, 7]])
    array = np.arange(4)
    assert kernels_room.with_room(array, 2, 2) is array
    np.testing.assert_array_equal(kernels_room.with_room(array, 2, 20, fill=-1), [0, 1, *[-1] * 20])
