"""Files of rerankers with a wrong array or field but a valid checksum are refused, or load as working ones."""

from pathlib import Path

import numpy as np
import pytest
from forged import check_forgeries
from sklearn.tree import DecisionTreeRegressor

from cmt_numba.persistence import FileFormatError
from cmt_numba.reranking import Reranker

DOCUMENTS = ["a red fox", "the blue whale", "red planets", "a small green fox"]
QUERIES = ["red", "blue fox", "planet", "green"]
IDS = np.array([[0, 1], [1, 3], [2, -1], [3, 0]])
SCORES = np.where(IDS >= 0, np.linspace(1.0, 0.1, 8).reshape(4, 2), -np.inf)
REWARDS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, np.nan], [0.5, 0.0]])
FEATURES = {"dense": ("score", "rank", "overlap", "lengths"), "sparse": ("score", "bm25", "terms")}


def use(reranker: Reranker) -> None:
    """Rerank and learn."""
    for _ in range(2):
        found = reranker.rerank(QUERIES, DOCUMENTS, (IDS, SCORES), 1)
        assert np.isin(found.ids, IDS).all()
        assert np.isfinite(found.scores[found.ids >= 0]).all()
        reranker.partial_fit(QUERIES, DOCUMENTS, (IDS, SCORES), REWARDS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEATURES)
def test_forged_rerankers_are_refused_or_work(name: str, tmp_path: Path):
    model = DecisionTreeRegressor(max_depth=2, random_state=0)
    reranker = Reranker(model, features=FEATURES[name])
    reranker.fit(QUERIES, DOCUMENTS, (IDS, SCORES), REWARDS, weights=[1.0, 2.0, 0.0, 1.0])
    reranker.save(tmp_path / "reranker")

    def load(path: Path) -> Reranker:
        try:
            return Reranker.load(path, model)
        except ValueError as error:
            if "functions must be" not in str(error):  # if the file has other features than the functions passed
                raise
            raise FileFormatError(path, str(error)) from error

    # The vectorizer has tests of its own.
    check_forgeries((tmp_path / "reranker").read_bytes(), load, use, tmp_path / "forged", ("vectorizer",))
