"""Files of indexes with a wrong array or field but a valid checksum are refused, or load as a working index."""

from pathlib import Path

import numpy as np
import pytest
from forged import check_forgeries

from cmt_numba.neighbors import LandmarkIndex

ROWS = np.random.default_rng(0).normal(size=(30, 3))


def use(index: LandmarkIndex) -> None:
    """Query and change an index."""
    width = index.landmarks_.shape[1] if index.n_lists_ else 3
    rows = np.random.default_rng(1).normal(size=(4, width))
    for _ in range(2):
        found = index.query(rows, 5)
        assert (np.isin(found.ids, index.ids) | (found.ids == -1)).all()
        assert np.isfinite(found.values[found.ids >= 0]).all()
        index.insert(rows)
        index.remove(index.ids[::2])
        index.rebuild()


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("metric", ["cosine", "inner_product", "euclidean", "gaussian", "laplacian", "empty"])
def test_forged_indexes_are_refused_or_work(metric: str, tmp_path: Path):
    index = LandmarkIndex("cosine" if metric == "empty" else metric, random_state=0)
    if metric != "empty":
        index.insert(ROWS)
        index.remove([3, 4])
    index.save(tmp_path / "index")
    check_forgeries((tmp_path / "index").read_bytes(), LandmarkIndex.load, use, tmp_path / "forged")
