"""Nearest neighbours are exact for rows of any magnitude in float32."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from cmt_numba.sequences import VPTree

MAGNITUDES = [1e-44, 1e-38, 1e-25, 1e-20, 1.0, 1e19, 1e30, 1e38]


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("n_features", [1, 3])
def test_euclidean_neighbours_are_exact_at_any_magnitude(magnitude, n_features):
    random = np.random.default_rng(0)
    rows = np.float32(random.uniform(-3.0, 3.0, (60, n_features)) * magnitude)
    asked = np.float32(random.uniform(-3.0, 3.0, (7, n_features)) * magnitude)
    tree = VPTree(leaf_size=4, random_state=0)
    tree.insert(rows[:40])
    tree.insert(rows[40:])
    found = tree.query(asked, 60)
    unit = 2.0 ** np.floor(np.log2(magnitude))  # powers of two keep all digits
    exact = np.sort(cdist(asked.astype(float) / unit, rows.astype(float) / unit), axis=1)
    np.testing.assert_allclose(found.distances / unit, exact, rtol=1e-12)
    assert (np.sort(found.ids, axis=1) == np.arange(60)).all()
    np.testing.assert_array_equal(tree.query(rows, 1).distances, np.zeros((60, 1)))


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_powers_of_distances_lose_no_points_where_they_overflow(tolerance):
    rows = np.float32([[1.0], [2.0], [4.0], [1e-30], [1e38], [-3e38], [2e20], [-1e-40]])
    tree = VPTree(leaf_size=1, tolerance=tolerance, random_state=0)
    tree.insert(rows)
    for asked in ([[3e38]], [[0.0]], [[5.0]]):
        assert sorted(tree.query(asked, 8).ids[0].tolist()) == list(range(8))


def test_rows_of_mixed_magnitudes_are_told_apart():
    rows = np.float32([[1.0], [1e30], [3e38], [1e-30], [-3e38], [1e-45]])
    tree = VPTree(random_state=0)
    tree.insert(rows)
    found = tree.query(rows, 2)
    assert found.ids[:, 0].tolist() == list(range(6))
    assert np.isfinite(found.distances).all()


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_angles_do_not_depend_on_the_magnitude(magnitude):
    rows = np.float32(np.float32([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 1.0]]) * np.float32(magnitude))
    tree = VPTree("angular", random_state=0)
    tree.insert(rows)
    found = tree.query([[1.0, 0.0]], 4)
    assert found.ids[0].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found.distances[0], np.pi / 4 * np.arange(4), atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_rows_beyond_float32_are_refused(value):
    tree = VPTree(random_state=0)
    with pytest.raises(ValueError, match="X must be finite in float32"):
        tree.insert([[value]])
    assert len(tree) == 0
