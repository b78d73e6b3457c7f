"""The example that finds post offices, with places made here."""

from pathlib import Path

import numpy as np
import pytest
from conftest import load_script

from cmt_numba.neighbors import LandmarkIndex


def test_post_offices_are_found(tmp_path: Path, rng: np.random.Generator):
    post_offices = load_script("examples/post_offices.py")
    points = post_offices.on_sphere(np.array([[0.0, 0.0], [0.0, 180.0], [90.0, 7.0], [0.0, -179.0]]))
    np.testing.assert_allclose(points[:3], [[1, 0, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-12)
    lengths = post_offices.kilometres(np.linalg.norm(points - points[1], axis=1))
    np.testing.assert_allclose(lengths, np.pi * 6371.0 * np.array([1.0, 0.0, 0.5, 1.0 / 180.0]))  # over the date line

    places = np.column_stack([rng.uniform(25, 49, 300), rng.uniform(-125, -67, 300)])
    offices = post_offices.Offices([str(i) for i in range(300)], places)
    post_offices.TARGETS = (0.95, 1.0)
    found = {row[0]: row[1:] for row in post_offices.evaluate(offices, places[:20] + 0.1, 1)}
    recalls = [row[0] for row in found.values()]
    assert recalls == [1.0] * 6
    assert found["VPTree"][2] < 300

    pytest.importorskip("matplotlib").use("Agg")
    index = LandmarkIndex("euclidean", random_state=0)
    index.insert(post_offices.on_sphere(places))
    post_offices.plot(offices, index, places[0], tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000
