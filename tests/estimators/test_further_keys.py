"""Learning from rewards how much similarity to earlier queries counts in a retriever."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cmt_numba import CMTRetriever
from cmt_numba.estimators._memories import FURTHER, OWN, FurtherKeyWorth

N, WIDTH = 60, 16


def asked_alike(rng: np.random.Generator, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return keys, and ``n`` queries that are more similar to each other than to their keys."""
    keys = np.random.default_rng(1).normal(size=(N, WIDTH))
    queries = np.tile(keys, (-(-n // N), 1))[:n] + 0.8 * rng.normal(size=(n, WIDTH))
    return keys, np.hstack([queries, np.full((n, 1), 6.0)])


def taught(rng: np.random.Generator, n: int, **options: Any) -> tuple[CMTRetriever, NDArray[Any]]:
    """Return a retriever with feedback on the right memories of queries, and these queries."""
    keys, queries = asked_alike(rng, n)
    retriever = CMTRetriever("key", random_state=0, n_probes=64, **options)
    retriever.fit(np.hstack([keys, np.zeros((N, 1))]), list(range(N)))
    found = retriever.kneighbors(queries, 5, return_distance=False)
    return retriever.feedback(queries, found, found == np.arange(n)[:, None] % N), queries


def test_queries_that_are_alike_do_no_harm(rng: np.random.Generator):
    retriever, asked = taught(rng, 600)
    _, queries = asked_alike(rng, 120)
    plain = CMTRetriever("key", random_state=0, n_probes=64)
    plain.fit(np.hstack([asked_alike(rng, 1)[0], np.zeros((N, 1))]), list(range(N)))
    right = np.arange(120) % N
    before, after = (np.mean(np.array(each.predict(queries)) == right) for each in (plain, retriever))
    assert before > 0.7
    assert after > before - 0.03
    assert (
        retriever._model.worth.in_terms_of_own(np.array([0.9]))[0] < 0.8
    )  # a further key counts much less than an own key
    again = np.array(retriever.predict(asked[:60]))  # earlier queries are known
    assert np.mean(again == np.arange(60)) >= before
    hits = retriever.query(queries, N)
    assert all(np.unique(row).size == N for row in hits.ids)  # each memory once


@pytest.mark.parametrize("sure", [True, False])
def test_the_weight_of_further_keys_is_learned(sure: bool, rng: np.random.Generator):
    similarities = rng.random(2000)
    right = rng.random(2000) < 1 / (1 + np.exp(-(8 * similarities - 4)))
    worth = FurtherKeyWorth.first().seen(OWN, similarities, right)
    easier = 8 * similarities - (2 if sure else 6)
    worth = worth.seen(FURTHER, similarities, rng.random(2000) < 1 / (1 + np.exp(-easier)))
    np.testing.assert_allclose(worth.in_terms_of_own(np.array([0.5])), 0.75 if sure else 0.25, atol=0.1)
    assert worth.in_terms_of_own(np.array([1.0]))[0] <= 1.0


def test_without_evidence_all_keys_have_equal_weight():
    similarities = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(FurtherKeyWorth.first().in_terms_of_own(similarities), similarities)
    worth = FurtherKeyWorth.first().seen(OWN, np.full(500, 0.1), np.zeros(500))  # slopes stay positive
    worth = worth.seen(FURTHER, np.linspace(0, 1, 500), np.linspace(1, 0, 500))
    assert np.all(np.diff(worth.in_terms_of_own(similarities)) >= 0.0)


def test_copies_continue_learning(rng: np.random.Generator, tmp_path: Path):
    retriever, queries = taught(rng, 120)
    retriever.save(tmp_path / "file")
    for other in (CMTRetriever.load(tmp_path / "file"), pickle.loads(pickle.dumps(retriever))):
        np.testing.assert_array_equal(other._model.worth.means, retriever._model.worth.means)
        np.testing.assert_array_equal(other.kneighbors(queries, 3)[0], retriever.kneighbors(queries, 3)[0])
        other.check_invariants()
