"""Term weights that BM25Vectorizer learns from rewards."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from cmt_numba.text import BM25Vectorizer
from cmt_numba.text._term_weights import _negative_log_posterior, comparisons_of, learn_weights

N_WORDS, N_MISLEADING = 60, 30
NONE = -1


def texts_and_queries(rng: np.random.Generator, n: int, n_queries: int) -> tuple[list[str], list[str], np.ndarray]:
    """Return documents, queries, and the position of the right document for each query.

    A query shares its "even" words with the right document. Its "odd" words, which are rarer, are random.
    """
    documents = [
        [f"even{i}" for i in rng.choice(N_WORDS, 6, replace=False)]
        + [f"odd{i}" for i in rng.choice(N_MISLEADING, 2, replace=False)]
        for _ in range(n)
    ]
    answers = rng.integers(n, size=n_queries)
    queries = [[*documents[i][:4], *(f"odd{j}" for j in rng.choice(N_MISLEADING, 2, replace=False))] for i in answers]
    return [" ".join(words) for words in documents], [" ".join(words) for words in queries], answers


def ranked(vectorizer: BM25Vectorizer, keys: Any, queries: list[str], k: int) -> np.ndarray:
    scores = (vectorizer.transform(queries) @ keys.T).toarray()
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def error(vectorizer: BM25Vectorizer, keys: Any, queries: list[str], answers: np.ndarray) -> float:
    return float(np.mean(ranked(vectorizer, keys, queries, 1)[:, 0] != answers))


@pytest.mark.parametrize("options", [{}, {"norm": None}, {"norm": "l2"}, {"n_features": 512}], ids=str)
def test_rewards_lower_the_error_of_other_queries(options: dict[str, Any], rng: np.random.Generator):
    documents, queries, answers = texts_and_queries(rng, 400, 600)
    vectorizer = BM25Vectorizer(**options)
    keys = vectorizer.fit_transform(documents)
    before = error(vectorizer, keys, queries[300:], answers[300:])
    ids = ranked(vectorizer, keys, queries[:300], 10)
    vectorizer.learn_weights(queries[:300], keys, ids, ids == answers[:300, None])
    assert error(vectorizer, keys, queries[300:], answers[300:]) < 0.8 * before
    assert vectorizer.term_weights_ is not None
    assert np.all(vectorizer.term_weights_ >= 0.0)


def test_few_rewards_cannot_hurt(rng: np.random.Generator):
    documents, queries, answers = texts_and_queries(rng, 400, 400)
    for n_rewarded in (1, 3, 10):
        vectorizer = BM25Vectorizer()
        keys = vectorizer.fit_transform(documents)
        before = error(vectorizer, keys, queries[10:], answers[10:])
        ids = ranked(vectorizer, keys, queries[:n_rewarded], 10)
        vectorizer.learn_weights(queries[:n_rewarded], keys, ids, ids == answers[:n_rewarded, None])
        assert error(vectorizer, keys, queries[10:], answers[10:]) < before + 0.02


def test_equal_rewards_teach_nothing_and_later_ones_build_on_earlier(rng: np.random.Generator):
    documents, queries, answers = texts_and_queries(rng, 100, 100)
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(documents)
    ids = ranked(vectorizer, keys, queries, 5)
    vectorizer.learn_weights(queries, keys, ids, np.ones((100, 5)))
    np.testing.assert_array_equal(vectorizer.term_weights_, 1.0)
    vectorizer.learn_weights(queries, keys, np.full((100, 5), NONE), np.ones((100, 5)))
    np.testing.assert_array_equal(vectorizer.term_weights_, 1.0)
    vectorizer.learn_weights(queries, keys, ids, ids == answers[:, None])
    once = vectorizer.term_weights_
    vectorizer.learn_weights(queries, keys, ids, ids == answers[:, None])
    assert vectorizer.term_weights_ is not None
    assert np.corrcoef(np.log(once + 0.01), np.log(vectorizer.term_weights_ + 0.01))[0, 1] > 0.8
    assert vectorizer.fit(documents).term_weights_ is None


def test_the_gradient_is_that_of_the_loss(rng: np.random.Generator):
    documents, queries, _ = texts_and_queries(rng, 20, 12)
    vectorizer = BM25Vectorizer(norm=None)
    keys = vectorizer.fit_transform(documents)
    ids = rng.integers(-1, 20, (12, 4))
    rewards = np.where(rng.random((12, 4)) < 0.5, rng.random((12, 4)), 0.0)
    comparisons = comparisons_of(vectorizer.transform(queries), keys, ids, rewards)
    assert 0 < comparisons.rewards.shape[0] <= 12
    seen = np.unique(comparisons.products.indices)
    of_curve, of_terms = rng.normal(size=(comparisons.there.size, 3)), comparisons.products[:, seen]
    values, deviations = rng.normal(size=3 + seen.size), np.full(3 + seen.size, 0.7)
    _, gradient = _negative_log_posterior(comparisons, of_curve, of_terms, values, deviations)
    for i in (0, 2, 3, 3 + seen.size // 2):
        step = np.zeros(values.size)
        step[i] = 1e-5
        above, below = (
            _negative_log_posterior(comparisons, of_curve, of_terms, values + sign * step, deviations)[0]
            for sign in (1, -1)
        )
        assert gradient[i] == pytest.approx((above - below) / 2e-5, abs=1e-5)


def test_uninformative_rewards_leave_the_weights():
    products = scipy.sparse.csr_array(np.zeros((2, 3)))
    there, rewards = np.ones((1, 2), np.bool_), np.array([[1.0, 0.0]])
    comparisons = comparisons_of(products[:1], products, np.array([[0, 1]]), rewards)
    np.testing.assert_array_equal(comparisons.there, there)
    np.testing.assert_allclose(learn_weights(comparisons, np.array([1.0, 2.0, 3.0])), 1.0)


def test_bad_arguments_change_nothing(rng: np.random.Generator):
    documents, queries, _ = texts_and_queries(rng, 30, 4)
    vectorizer = BM25Vectorizer()
    keys = vectorizer.fit_transform(documents)
    ids, rewards = np.zeros((4, 2), np.int64), np.zeros((4, 2))
    for arguments, message in (
        ((keys[:, :-1], ids, rewards), "keys must have"),
        ((keys, ids[:3], rewards), r"ids must be integers of shape \(4, k\)"),
        ((keys, ids.astype(float), rewards), "ids must be integers"),
        ((keys, ids + 30, rewards), "ids must be between -1 and 29"),
        ((keys, ids, rewards[:, :1]), "rewards must have shape"),
        ((keys, ids, rewards + 2), "rewards must be between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            vectorizer.learn_weights(queries, *arguments)
    assert vectorizer.term_weights_ is None
