"""Re-ranking search results by a model of rewards."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import contents_of, kernels_room, reranking_models, reranking_pairs
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmt_numba import Hits
from cmt_numba.reranking import Reranker
from cmt_numba.sequences import EditDistance
from cmt_numba.text import BM25Vectorizer

DOCUMENTS = [
    f"{size} {colour} {thing}"
    for size, colour, thing in itertools.product(["big", "small"], ["red", "blue", "green"], ["fox", "whale", "planet"])
]
WITHOUT_KERNELS = ("score", "rank", "bm25", "overlap", "lengths")


def log(n: int = 60, seed: int = 0) -> tuple[list[str], Hits, np.ndarray]:
    """Return misspelt queries, three documents each in random order, and rewards: 1 for the document meant."""
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(len(DOCUMENTS))[:3] for _ in range(n)])
    meant = rng.integers(0, 3, n)
    queries = [DOCUMENTS[ids[i, meant[i]]].replace("e", "3").title() for i in range(n)]
    rewards = (np.arange(3) == meant[:, None]).astype(float)
    hits = kernels_room.no_hits(n, 3)._replace(ids=ids, scores=np.sort(rng.random((n, 3)).astype(np.float32))[:, ::-1])
    return queries, hits, rewards


def small(**options: Any) -> Reranker:
    model = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5, early_stopping=False)
    given = {"model": model, "features": WITHOUT_KERNELS, "validate": False, "random_state": 0}
    return Reranker(**given | options)


@pytest.fixture(scope="module")
def learned() -> Reranker:
    queries, hits, rewards = log()
    return small(features=[*WITHOUT_KERNELS, "edit"]).fit(queries, DOCUMENTS, hits, rewards)


class Ranker(RegressorMixin, BaseEstimator):
    """A ranker that records the arguments of its calls."""

    def fit(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> Any:
        self.X_, self.y_, self.qid_, self.sample_weight_ = X, y, qid, sample_weight
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.zeros(X.shape[0])


class GroupRanker(Ranker):
    def fit(self, X: Any, y: Any, group: Any = None, sample_weight: Any = None) -> Any:
        self.group_ = group
        return super().fit(X, y, sample_weight=sample_weight)


# Learning


def test_what_was_rewarded_comes_first_for_new_queries(learned: Reranker):
    queries, hits, rewards = log(40, seed=1)
    before = np.mean(rewards[:, 0])
    best = learned.rerank(queries, DOCUMENTS, hits)
    meant = hits.ids[rewards == 1.0]
    assert before < 0.6 < 0.9 < np.mean(best.ids[:, 0] == meant)
    assert np.all(np.diff(best.scores, axis=1) <= 0.0)
    np.testing.assert_array_equal(np.sort(best.ids, axis=1), np.sort(hits.ids, axis=1))
    np.testing.assert_array_equal(learned.rerank(queries, DOCUMENTS, hits, 1).ids, best.ids[:, :1])
    assert learned.n_queries_ == 60
    assert learned.n_pairs_ == 180


@pytest.mark.parametrize("model", [None, make_pipeline(StandardScaler(), Ridge()), KNeighborsRegressor()])
def test_any_regressor_can_rerank(model: Any):
    queries, hits, rewards = log(100)
    reranker = small(model=model).fit(queries, DOCUMENTS, hits, rewards)
    asked, found, worth = log(40, seed=1)
    best = reranker.rerank(asked, DOCUMENTS, found, 1).ids[:, 0]
    assert np.mean(best == found.ids[worth == 1.0]) > np.mean(worth[:, 0]) + 0.2


def test_documents_may_be_a_mapping_or_a_function(learned: Reranker):
    queries, hits, _ = log(5, seed=2)
    expected = learned.rerank(queries, DOCUMENTS, hits)
    shifted = hits._replace(ids=hits.ids + 1000)
    by_id = {i + 1000: text for i, text in enumerate(DOCUMENTS)}
    for documents in (by_id, lambda ids: np.array(DOCUMENTS)[ids - 1000]):
        best = learned.rerank(queries, documents, shifted)
        np.testing.assert_array_equal(best.ids, expected.ids + 1000)
    pair = hits.ids.tolist(), hits.scores.tolist()
    np.testing.assert_array_equal(learned.rerank(queries, DOCUMENTS, pair).ids, expected.ids)


def test_missing_documents_stay_last(learned: Reranker):
    queries, hits, rewards = log(6, seed=3)
    ids, scores = hits.ids.copy(), hits.scores.copy()
    ids[0], scores[0] = -1, -np.inf
    ids[1, 2], scores[1, 2] = -1, -np.inf
    best = learned.rerank(queries, DOCUMENTS, hits._replace(ids=ids, scores=scores))
    assert best.ids[0].tolist() == [-1, -1, -1]
    assert best.ids[1, 2] == -1
    assert np.all(best.ids[1, :2] >= 0)
    assert np.isneginf(best.scores[best.ids == -1]).all()
    none = learned.rerank(queries, DOCUMENTS, (np.full((6, 2), -1), np.full((6, 2), -np.inf)))
    assert np.all(none.ids == -1)
    with pytest.raises(ValueError, match="at least one document"):
        clone(learned).fit(queries[:1], DOCUMENTS, (ids[:1], scores[:1]), rewards[:1])


def test_rewards_that_are_not_known_are_left_out():
    queries, hits, rewards = log(30)
    rewards[:10] = np.nan
    rewards[12, 1] = np.nan
    ranker = small(model=Ranker()).fit(queries, DOCUMENTS, hits, rewards, weights=np.arange(30))
    known = ~np.isnan(rewards)
    np.testing.assert_array_equal(ranker.model_.y_, rewards[known].astype(np.float32))
    assert ranker.n_queries_ == 20
    assert np.bincount(ranker.model_.qid_).tolist() == [3, 3, 2] + [3] * 17
    np.testing.assert_array_equal(ranker.model_.sample_weight_, np.arange(10.0, 30.0))


def test_rankers_are_told_which_pairs_belong_together():
    queries, hits, rewards = log(4)
    told = small(model=GroupRanker()).fit(queries, DOCUMENTS, hits, rewards, weights=[1, 2, 3, 4])
    assert told.model_.group_.tolist() == [3, 3, 3, 3]
    np.testing.assert_array_equal(told.model_.sample_weight_, np.repeat([1.0, 2.0, 3.0, 4.0], 3))
    assert small(model=Ranker()).fit(queries, DOCUMENTS, hits, rewards).model_.sample_weight_ is None


def test_a_log_may_come_in_parts():
    queries, hits, rewards = log()
    whole = small(vectorizer=BM25Vectorizer().fit(DOCUMENTS)).fit(queries, DOCUMENTS, hits, rewards)
    parts = clone(whole)
    for first, stop in ((0, 25), (25, 60)):
        parts.partial_fit(queries[first:stop], DOCUMENTS, hits.between(first, stop), rewards[first:stop])
    asked, found, _ = log(20, seed=1)
    np.testing.assert_array_equal(
        parts.rerank(asked, DOCUMENTS, found).scores, whole.rerank(asked, DOCUMENTS, found).scores
    )
    weighted = small(model=Ranker()).fit(queries, DOCUMENTS, hits, rewards)
    weighted.partial_fit(queries[:1], DOCUMENTS, hits.between(0, 1), rewards[:1], weights=[5.0])
    assert weighted.model_.sample_weight_.tolist() == [1.0] * 60 + [5.0]
    with pytest.raises(ValueError, match="call fit to start a new log"):
        parts.set_params(features=["score"]).partial_fit(queries, DOCUMENTS, hits, rewards)


def test_the_order_of_the_search_is_kept_unless_the_model_is_better(tmp_path: Path):
    queries, hits, rewards = log(60)
    best_first = np.argsort(-rewards, axis=1, kind="stable")
    found = hits._replace(ids=np.take_along_axis(hits.ids, best_first, 1))
    perfect = np.take_along_axis(rewards, best_first, 1)
    kept = small(features=["lengths"], validate=True).fit(queries, DOCUMENTS, found, perfect)
    assert not kept.improves_
    assert kept.improvement_[0] <= 0.0
    kept.save(tmp_path / "kept")
    for each in (kept, Reranker.load(tmp_path / "kept", kept.model)):
        again = each.rerank(queries, DOCUMENTS, found)
        np.testing.assert_array_equal(again.ids, found.ids)
        np.testing.assert_array_equal(again.scores, found.scores)
        assert each.improvement_ == kept.improvement_
    better = small(validate=True).fit(queries, DOCUMENTS, hits, rewards)
    assert better.improves_
    gain, error = better.improvement_
    assert gain == pytest.approx(1.0 - rewards[:, 0].mean(), abs=0.15)
    assert 0.0 < error < 0.1
    assert not small(validate=True).fit(queries[:2], DOCUMENTS, hits.between(0, 2), rewards[:2]).improves_


# Features


def test_features_of_a_pair():
    documents = ["red fox", "the red whale"]
    hits = np.array([[1, 0]]), np.array([[0.5, 0.25]])
    reranker = Reranker(Ranker(), features=["score", "rank", "bm25", "overlap", "edit", "lengths"])
    reranker.set_params(validate=False).fit(["Red fx!"], documents, hits, [[0, 1]])
    table = dict(zip(reranker.feature_names_, reranker.transform(["Red fx!"], documents, hits).T, strict=True))
    expected = {
        "score": [0.5, 0.25],
        "score, lead": [0.25, -0.25],
        "rank": [0, 1],
        "query words found": [0.5, 0.5],
        "query words found, lead": [0, 0],
        "document words asked": [1 / 3, 1 / 2],
        "trigrams shared": [3 / 16, 4 / 9],  # " re", "red" and "ed ", and of the second document "d f"
        "query words": [2, 2],
        "document words": [3, 2],
        "edit similarity": [1 - 9 / 13, 1 - 2 / 7],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], values, rtol=1e-6, err_msg=name)
    idf = np.log1p(0.5 / 2.5)  # of a word of both documents
    for column, n_terms in ((0, 4), (1, 2)):  # the beginning of "whale" is a term
        share = 1 / (1 + 1.5 * (0.25 + 0.75 * n_terms / 3))
        assert table["bm25"][column] == pytest.approx(idf * share, rel=1e-5)


def test_leads_are_differences_from_the_best_other():
    rng = np.random.default_rng(0)
    of_query = np.array([0, 0, 0, 2, 3, 3])
    values = rng.integers(0, 3, (6, 2)).astype(np.float32)
    for column in range(2):
        for i in range(6):
            others = [values[j, column] for j in range(6) if j != i and of_query[j] == of_query[i]]
            expected = values[i, column] - max(others) if others else 0.0
            assert reranking_pairs.leads_of(values, of_query)[i, column] == expected


def test_own_functions_and_sparse_features():
    queries, hits, rewards = log(30)

    def same_start(asked: list[str], stored: list[str]) -> list[bool]:
        return [one[0].lower() == other[0] for one, other in zip(asked, stored, strict=True)]

    reranker = small(model=Ridge(), features=[same_start, "terms"]).fit(queries, DOCUMENTS, hits, rewards)
    X = reranker.transform(queries, DOCUMENTS, hits)
    assert scipy.sparse.issparse(X)
    assert reranker.feature_names_[:3] == ["same_start0", "same_start0, lead", "terms0"]
    assert X.shape == (90, 2 + 12)  # 8 words and 4 beginnings of words
    assert X.indices.size > 0
    assert reranker.rerank(queries, DOCUMENTS, hits).ids.shape == (30, 3)
    things = small(model=Ridge(), features=[lambda asked, stored: np.array(stored) - np.array(asked)])
    things.fit([1, 2], [5, 6, 7], (np.array([[0, 1], [1, 2]]), np.ones((2, 2))), [[0, 1], [0, 1]])
    assert things.rerank([1], [5, 6, 7], ([[0, 2]], [[1.0, 0.5]])).ids.tolist() == [[2, 0]]


def test_a_custom_distance_is_used():
    distance = EditDistance("abc", substitution=0.5)
    reranker = Reranker(Ranker(), features=["edit"], compare=False, distance=distance, validate=False)
    hits = np.array([[0, 1]]), np.ones((1, 2))
    reranker.fit(["ab"], ["ac", "xab!"], hits, [[0, 1]])
    np.testing.assert_allclose(reranker.transform(["ab"], ["ac", "xab!"], hits).ravel(), [0.75, 1.0])


# Files


def test_functions_must_be_given_again(tmp_path: Path):
    def length(asked: list[str], stored: list[str]) -> list[int]:
        return [len(text) for text in stored]

    queries, hits, rewards = log(10)
    reranker = small(model=Ridge(), features=["terms", length]).fit(
        queries, DOCUMENTS, hits, rewards, weights=np.arange(10)
    )
    reranker.save(tmp_path / "reranker")
    with pytest.raises(ValueError, match="functions must be the 1 functions"):
        Reranker.load(tmp_path / "reranker", Ridge())
    loaded = Reranker.load(tmp_path / "reranker", Ridge(), functions=[length])
    np.testing.assert_allclose(
        loaded.rerank(queries, DOCUMENTS, hits).scores, reranker.rerank(queries, DOCUMENTS, hits).scores
    )


# XGBoost


def test_xgboost_ranks_pairs_and_its_json_is_kept(tmp_path: Path):
    xgboost = pytest.importorskip("xgboost")
    queries, hits, rewards = log()
    rewards[3, 0] = np.nan
    options = {"n_estimators": 20, "n_jobs": 1, "random_state": 0}
    asked, found, worth = log(40, seed=1)
    for model, features in (
        (xgboost.XGBRanker(objective="rank:pairwise", **options), WITHOUT_KERNELS),
        (xgboost.XGBRanker(objective="rank:pairwise", **options), ("overlap", "terms")),
        (xgboost.XGBRegressor(**options), WITHOUT_KERNELS),
    ):
        reranker = small(model=model, features=features)
        reranker.fit(queries, DOCUMENTS, hits, rewards, weights=np.linspace(1, 2, 60))
        best = reranker.rerank(asked, DOCUMENTS, found)
        assert np.mean(best.ids[:, 0] == found.ids[worth == 1.0]) > np.mean(worth[:, 0]) + 0.2
        reranker.save(tmp_path / "reranker")
        loaded = Reranker.load(tmp_path / "reranker", clone(model))
        np.testing.assert_array_equal(loaded.rerank(asked, DOCUMENTS, found).scores, best.scores)
        again = Reranker.load(tmp_path / "reranker", model.set_params(n_estimators=1))
        np.testing.assert_array_equal(again.rerank(asked, DOCUMENTS, found).scores, best.scores)  # not fitted again
    booster = contents_of(reranker)().arrays["booster"][:-5]
    with pytest.raises(ValueError, match="XGBoost cannot read the booster"):
        reranking_models.read_model(xgboost.XGBRegressor(), reranker._log, booster)


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "boosting"}, TypeError, "model must be a regressor or a ranker"),
        ({"model": Ridge}, TypeError, "model must be a regressor or a ranker"),
        ({"model": LogisticRegression()}, TypeError, "must be a regressor or a ranker"),
        ({"features": "score"}, TypeError, "features must be a list"),
        ({"features": []}, TypeError, "features must be a list"),
        ({"features": ["scores"]}, ValueError, "each feature must be a function or one of score, rank"),
        ({"features": [lambda asked, stored: np.zeros(2)]}, ValueError, "must have one row for each of the 6 pairs"),
        ({"features": [lambda asked, stored: np.full(6, np.nan)]}, ValueError, "must be finite"),
        ({"features": [lambda asked, stored: ["long"] * 6]}, ValueError, "the feature <lambda> must be an array"),
        ({"compare": 1}, TypeError, "compare"),
        ({"vectorizer": BM25Vectorizer()}, ValueError, "vectorizer must be fitted"),
        ({"vectorizer": "bm25"}, TypeError, "vectorizer must be a BM25Vectorizer"),
        ({"distance": "edit"}, TypeError, "distance must be an EditDistance"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str):
    queries, hits, rewards = log(2)
    with pytest.raises(error, match=message):
        small(**options).fit(queries, DOCUMENTS, hits, rewards)


def test_bad_input_changes_nothing(learned: Reranker):
    queries, hits, rewards = log(2)
    before = vars(learned).copy()
    good = {"queries": queries, "documents": DOCUMENTS, "hits": hits, "rewards": rewards}
    for changed, error, message in (
        ({"queries": "red fox"}, TypeError, r"pass \[query\] for a single query"),
        ({"queries": [1, 2]}, TypeError, "queries must be texts for the feature 'bm25'"),
        ({"queries": queries[:1]}, ValueError, "for each of the 1 queries"),
        ({"documents": "red fox"}, TypeError, "documents must be a list"),
        ({"documents": DOCUMENTS[:2]}, KeyError, "documents must contain every id in hits, but no document has id"),
        ({"documents": {}}, KeyError, "documents must contain every id in hits, but no document has id"),
        ({"documents": lambda ids: []}, ValueError, "the result of documents must have one entry for each"),
        ({"documents": list(range(18))}, TypeError, "documents must be texts"),
        ({"hits": 3}, TypeError, "hits must be the return value of query"),
        ({"hits": (hits.ids.astype(float), hits.scores)}, TypeError, "integer ids"),
        (
            {"hits": (hits.ids - 5, hits.scores)},
            KeyError,
            "documents must contain every id in hits, but no document has id -",
        ),
        ({"hits": (hits.ids, hits.scores * np.nan)}, ValueError, "finite score"),
        ({"rewards": rewards[:, :2]}, ValueError, "rewards must have shape"),
        ({"rewards": rewards + 0.5}, ValueError, "rewards must be between 0 and 1"),
        ({"rewards": rewards * np.nan}, ValueError, "at least one number that is not NaN"),
        ({"rewards": [["a"] * 3] * 2}, TypeError, "rewards must be real numbers"),
        ({"weights": [1.0]}, ValueError, "weights must have one entry for each"),
        ({"weights": [1.0, -1.0]}, ValueError, "weights must be between 0"),
    ):
        with pytest.raises(error, match=message):
            learned.fit(**good | changed)
    assert vars(learned) == before
    with pytest.raises(TypeError, match="takes no sample_weight"):
        small(model=KNeighborsRegressor(1)).fit(**good, weights=[1, 2])
    with pytest.raises(NotFittedError):
        clone(learned).rerank(queries, DOCUMENTS, hits)
    with pytest.raises(NotFittedError):
        clone(learned).save("nowhere")
