"""Retrievers that learn from rewards in a search by key."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORM_OF
from internals import model_of

from cmt_numba import CMTRetriever

N_TOPICS, N_OLD, WIDTH = 12, 8, 24


class Stream:
    """Topics of memories that are worth different rewards, and queries for a topic."""

    def __init__(self, form: str) -> None:
        self.rng, self.to = np.random.default_rng(0), FORM_OF[form]
        self.centers = self.rng.normal(size=(N_TOPICS, WIDTH))
        self.topics = np.repeat(np.arange(N_OLD), 6)
        self.worth = self.rng.choice([0.1, 0.3, 0.5, 0.9], self.topics.size)

    def draw(self, topics: np.ndarray) -> Any:
        return self.to(self.centers[topics] + self.rng.normal(size=(topics.size, WIDTH)))

    def retriever(self) -> CMTRetriever:
        return CMTRetriever("key", random_state=0).fit(self.draw(self.topics), list(range(self.topics.size)))

    def ask(self, n: int = 25) -> tuple[Any, np.ndarray]:
        topics = self.rng.integers(0, N_OLD, n)
        return self.draw(topics), topics

    def reward(self, ids: np.ndarray, topics: np.ndarray) -> np.ndarray:
        return (self.topics[ids] == topics[:, None]) * self.worth[ids]

    def teach(self, retriever: CMTRetriever, n_calls: int) -> None:
        for _ in range(n_calls):
            Q, topics = self.ask()
            ids = retriever.query(Q, 5).ids
            retriever.feedback(Q, ids, self.rng.random(ids.shape) < self.reward(ids, topics))


@pytest.mark.parametrize("form", FORM_OF)
def test_rewards_raise_rewards_and_new_memories_are_found(form: str):
    stream = Stream(form)
    retriever = stream.retriever()
    Q, topics = stream.ask(300)
    before = stream.reward(retriever.query(Q).ids, topics).mean()
    stream.teach(retriever, 40)
    assert stream.reward(retriever.query(Q).ids, topics).mean() > before + 0.1
    late = np.repeat(np.arange(N_OLD, N_TOPICS), 6)
    keys, first = stream.draw(late), retriever.n_memories_
    retriever.partial_fit(keys, list(range(first, first + late.size)))
    assert retriever.query(keys).ids[:, 0].tolist() == list(range(first, first + late.size))
    found = retriever.query(stream.draw(late)).ids[:, 0]
    assert np.mean(np.append(stream.topics, late)[found] == late) > 0.6
    hits = retriever.query(Q[:5], retriever.n_memories_)
    assert (np.sort(hits.ids, axis=1) == np.arange(retriever.n_memories_)).all()
    retriever.check_invariants()
    explained, learned = retriever.explain(Q[:1], 3), retriever.learned()
    assert learned is not None
    assert learned.gain > 0.0
    assert [result.key for result in explained] == retriever.query(Q[:1], 3).ids[0].tolist()
    assert all(sum(result.parts.values()) == pytest.approx(result.score, abs=1e-4) for result in explained)


@pytest.mark.parametrize("form", FORM_OF)
def test_copies_continue_learning_and_removals_forget(form: str, tmp_path: Path):
    stream = Stream(form)
    retriever = stream.retriever()
    stream.teach(retriever, 4)
    Q, topics = stream.ask()
    retriever.save(tmp_path / "file")
    others = [CMTRetriever.load(tmp_path / "file"), pickle.loads(pickle.dumps(retriever))]
    ids = retriever.query(Q, 3).ids
    for each in (retriever, *others):
        each.feedback(Q, ids, stream.reward(ids, topics)).remove(ids[0]).replace(ids[1, :1], Q[:1])
        each.check_invariants()
        hits = each.query(Q, 20)
        np.testing.assert_array_equal(hits.ids, retriever.query(Q, 20).ids)
        np.testing.assert_array_equal(hits.scores, retriever.query(Q, 20).scores)
        assert len(model_of(each).learned.model) > 0


def test_unknown_and_common_rewards():
    stream = Stream("dense")
    retriever, Q = stream.retriever(), stream.ask()[0]
    ids = retriever.query(Q, 3).ids
    retriever.feedback(Q, ids, np.full(ids.shape, np.nan))
    assert model_of(retriever).learned is None
    each, common = pickle.loads(pickle.dumps(retriever)), pickle.loads(pickle.dumps(retriever))
    outcomes = np.arange(25) % 2.0
    each.feedback(Q, ids, np.repeat(outcomes[:, None], 3, axis=1))
    common.feedback(Q, ids, outcomes)
    weights = (model_of(one).learned.model.weights for one in (each, common))
    assert not np.array_equal(*weights)
