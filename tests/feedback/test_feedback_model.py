"""The feedback model: against plain NumPy, and what it must do."""

import numpy as np
import pytest
import scipy.sparse
from plain_feedback import PlainModel

from cmt_numba import InvariantError
from cmt_numba._feedback import PART_NAMES, FeedbackModel

WIDTH = 8


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


class Memory:
    """A model with keys, whose candidates are the ``n`` most similar memories."""

    def __init__(self, keys, n=10):
        self.keys, self.n = unit(keys), n
        self.model = FeedbackModel(keys.shape[1], is_sparse=False)

    def candidates(self, queries, shown=None):
        scores = queries @ self.keys.T
        ids = np.argsort(-scores, axis=1, kind="stable")[:, : self.n]
        if shown is not None:
            ids = np.where((ids[:, :, None] == shown[:, None]).any(axis=2), -1, ids)
            ids = np.hstack([shown, ids])
        return queries, ids, np.take_along_axis(scores, np.maximum(ids, 0), 1), self.keys[ids].reshape(-1, WIDTH)

    def rank(self, candidates):
        return self.model.rank(*candidates, self.model.map(candidates[0]).mapped)

    def query(self, queries, k=1):
        candidates = self.candidates(unit(queries))
        order = np.argsort(-self.rank(candidates), axis=1, kind="stable")
        learned = np.take_along_axis(candidates[1], order, 1)
        return np.where(self.model.is_chosen(candidates[0])[:, None], learned, candidates[1])[:, :k]

    def learn(self, queries, shown, rewards, is_shared=False):
        candidates = self.candidates(unit(queries), shown)
        known = np.full(candidates[1].shape, np.nan)
        known[:, : shown.shape[1]] = rewards
        self.model.learn(*candidates, known, is_shared)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_shared", [False, True])
def test_model_equals_plain_numpy(seed, is_shared):
    rng = np.random.default_rng(seed)
    memory, plain = Memory(rng.normal(size=(30, WIDTH)), n=6), PlainModel(WIDTH)
    n_used = 0
    for turn in range(30):  # after many more, codes of the map that float32 rounds the other way would matter
        queries = unit(memory.keys[rng.integers(0, 30, 3)] + 0.3 * rng.normal(size=(3, WIDTH)))
        shown = np.argsort(-queries @ memory.keys.T, axis=1)[:, : 1 + turn % 3]
        rewards = rng.integers(0, 2, shown.shape).astype(float)
        if seed == 2:  # which memory is shown matters, so the learned model is used
            rewards = (shown % 2).astype(float)
        if is_shared:
            rewards[:] = rewards[:, :1]
        elif turn % 5 == 0:
            rewards[0, 0] = np.nan
        candidates = memory.candidates(queries)
        expected = [plain.rank(*one) for one in by_row(candidates)]
        np.testing.assert_allclose(memory.rank(candidates), expected, rtol=0, atol=2e-3)
        are_static = (~memory.model.is_chosen(unit(queries))).tolist()  # the hash of the rows that are learned
        taught = zip(by_row(memory.candidates(queries, shown)), padded(rewards, 6), are_static, strict=True)
        for one, given, is_static in taught:
            plain.learn(*one, given, is_shared, is_static, memory.model.is_used)
        memory.learn(queries, shown, rewards, is_shared)
        if memory.model.is_used:
            assert memory.model.share == pytest.approx(min(plain.odds / (1 + plain.odds), 31 / 32), abs=0.01)
            n_used += 1
        if turn == 15:
            memory.model.forget(np.arange(5))
            plain.forget(range(5))
    assert (n_used > 0) == (seed == 2)


def by_row(candidates):
    queries, ids, similarities, keys = candidates
    return zip(queries.astype(float), ids, similarities.astype(float), keys.reshape(*ids.shape, -1), strict=True)


def padded(rewards, n):
    return np.hstack([rewards, np.full((len(rewards), n), np.nan)])


def confused(rng, n=40):
    """Return keys, and a function that draws queries, which are more similar to the memory before the wanted one."""
    keys = unit(rng.normal(size=(n, WIDTH)))

    def ask(wanted):
        return unit(0.8 * keys[wanted] + keys[(wanted - 1) % n] + 0.1 * rng.normal(size=(wanted.size, WIDTH)))

    return keys, ask


def teach(memory, ask, rng, n=1500, noise=0.0):
    n_memories = len(memory.keys)
    for _ in range(n // 10):
        wanted = rng.integers(0, n_memories, 10)
        queries = ask(wanted)
        shown = memory.query(queries, 2)
        rewards = (shown == wanted[:, None]) != (rng.random(shown.shape) < noise)
        memory.learn(queries, shown, rewards.astype(float))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_rewards_teach_which_memory_to_return(rng, noise):
    static, learned = [], []
    for _ in range(4):  # draws differ by more than 0.1
        keys, ask = confused(rng)
        memory = Memory(keys, n=40)
        teach(memory, ask, rng, noise=noise)
        wanted = rng.integers(0, 40, 200)
        queries = ask(wanted)
        static.append(np.mean(np.argmax(queries @ memory.keys.T, axis=1) == wanted))
        learned.append(np.mean(memory.query(queries)[:, 0] == wanted))
    assert np.mean(learned) > np.mean(static) + 0.4


@pytest.mark.parametrize("k", [1, 5])
def test_late_memories_are_found_and_take_few_queries_of_rewarded_ones(rng, k):
    gains = []
    for _ in range(4):  # draws differ by more than 0.1
        topics = unit(rng.normal(size=(40, WIDTH)))  # queries about a topic differ from keys about it, in the same way
        shift = unit(rng.normal(size=WIDTH))

        def ask(wanted, topics=topics, shift=shift):
            return unit(topics[wanted] + 0.7 * shift + 0.15 * rng.normal(size=(wanted.size, WIDTH)))

        keys = unit(topics + 0.15 * rng.normal(size=topics.shape))
        memory = Memory(keys[:30])
        for _ in range(200):
            wanted = rng.integers(0, 30, 10)
            queries = ask(wanted)
            shown = memory.query(queries, k)
            memory.learn(queries, shown, (shown == wanted[:, None]).astype(float))
        old, late = rng.integers(0, 30, 500), rng.integers(30, 40, 500)
        queries, late_queries = ask(old), ask(late)
        before = np.mean(memory.query(queries)[:, 0] == old)
        memory.keys = keys
        after = np.mean(memory.query(queries)[:, 0] == old)
        found = np.mean(memory.query(late_queries)[:, 0] == late)
        gains.append((after - before, found - np.mean(np.argmax(late_queries @ keys.T, axis=1) == late)))
    of_old, of_late = np.mean(gains, axis=0)
    assert of_old > -0.25
    assert of_late > 0.05


def test_without_rewards_scores_are_similarities(rng):
    memory = Memory(rng.normal(size=(30, WIDTH)))
    candidates = memory.candidates(unit(rng.normal(size=(4, WIDTH))))
    np.testing.assert_allclose(memory.rank(candidates), candidates[2], atol=1e-5)


KINDS = {  # rewards that say nothing about memories
    "ones": lambda rng, shown: np.ones(shown.shape),
    "zeros": lambda rng, shown: np.zeros(shown.shape),
    "coins": lambda rng, shown: rng.integers(0, 2, shown.shape).astype(float),
    "outcome": lambda rng, shown: np.repeat(rng.integers(0, 2, (len(shown), 1)).astype(float), shown.shape[1], axis=1),
}


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", KINDS)
def test_rewards_that_say_nothing_leave_the_ranking_static(rng, name, k):
    keys, ask = confused(rng)
    memory, queries = Memory(keys, n=40), ask(rng.integers(0, 40, 100))
    for _ in range(100):
        asked = ask(rng.integers(0, 40, 10))
        shown = memory.query(asked, k)
        memory.learn(asked, shown, KINDS[name](rng, shown), is_shared=name == "outcome")
    assert np.mean(memory.query(queries)[:, 0] == memory.candidates(queries)[1][:, 0]) > 0.98
    learned = memory.model.learned()
    assert learned.interval[0] <= 0.0 <= learned.interval[1]
    assert learned.share < 0.2


@pytest.mark.parametrize("k", [2, 5])
def test_rewards_of_easy_queries_leave_the_ranking_static(rng, k):
    keys, ask = confused(rng)
    memory = Memory(keys, n=40)
    for _ in range(100):
        asked = ask(rng.integers(0, 40, 10))
        is_easy = asked[:, :1] > 0  # whatever is shown
        shown = memory.query(asked, k)
        memory.learn(asked, shown, (rng.random(shown.shape) < np.where(is_easy, 0.9, 0.1)).astype(float))
    assert memory.model.share == 0.0


def test_some_queries_are_ranked_statically_to_measure_the_gain(rng):
    keys, ask = confused(rng)
    memory = Memory(keys, n=40)
    assert not memory.model.is_used
    teach(memory, ask, rng)
    wanted = rng.integers(0, 40, 2000)
    queries, model = ask(wanted), memory.model
    chosen = model.is_chosen(queries)
    assert 0.95 < model.share == model.learned().share
    assert abs(chosen.mean() - model.share) < 0.02
    np.testing.assert_array_equal(model.is_chosen(queries), chosen)
    static = memory.candidates(queries)[1][:, 0]
    learned = model.learned()
    low, high = learned.interval
    assert low < np.mean(memory.query(queries)[:, 0] == wanted) - np.mean(static == wanted) < high
    assert 0.0 < low < learned.gain < high <= 1.0
    assert {type(end) for end in learned.interval} == {float}  # prints without np.float64
    assert [part.name for part in learned.parts] == list(PART_NAMES)


def test_known_answers_teach_by_the_memories_that_were_passed_over(rng):
    keys, ask = confused(rng)
    memory = Memory(keys, n=40)
    for _ in range(60):
        asked = rng.integers(0, 40, 10)
        memory.learn(ask(asked), (asked[:, None] + 20) % 40, np.ones((10, 1)))
    asked = rng.integers(0, 40, 300)
    queries = ask(asked)
    static = memory.candidates(queries)[1][:, 0]
    assert np.mean(memory.query(queries)[:, 0] == (asked + 20) % 40) > np.mean(static == (asked + 20) % 40) + 0.2


def test_forgotten_memories_are_not_found_by_their_moved_keys(rng):
    memory = Memory(rng.normal(size=(100, WIDTH)))
    queries = unit(rng.normal(size=(300, WIDTH)))
    shown = memory.candidates(queries)[1][:, :3]
    memory.learn(queries, shown, np.where(shown % 3 == 0, 0.0, rng.integers(0, 2, shown.shape)))
    model = memory.model
    for gone in (model.ids[-1:], [3, 98, 50], [99], [97, 0, 1, 2]):
        model.forget(np.array(gone))
        found = model.map(queries, 5).moved
        restored = FeedbackModel.of_arrays(WIDTH, False, model.arrays())
        np.testing.assert_array_equal(found, restored.map(queries, 5).moved)
        assert not np.isin(found, gone).any()
        assert (found % 3 != 0).all()  # these were never rewarded


@pytest.mark.parametrize("name", ["ids", "map", "past_rows", "past_of", "weights"])
def test_invalid_arrays_are_refused(rng, name):
    memory = Memory(rng.normal(size=(10, WIDTH)))
    memory.learn(memory.keys, np.arange(10)[:, None], np.ones((10, 1)))
    arrays = memory.model.arrays()
    arrays[name] = np.full_like(arrays[name], 99 if arrays[name].dtype.kind == "i" else np.nan)
    with pytest.raises(InvariantError):
        FeedbackModel.of_arrays(WIDTH, False, arrays)


def test_sparse_and_wide_rows_are_hashed(rng):
    rows = scipy.sparse.random_array((6, 3000), density=0.01, format="csr", dtype=np.float32, rng=rng)
    hashed = FeedbackModel(3000, is_sparse=True).prepare(rows)
    assert hashed.shape == (6, 2048)
    np.testing.assert_allclose(np.linalg.norm(hashed, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(FeedbackModel(3000, is_sparse=False).prepare(rows.toarray()), hashed, atol=1e-5)


def test_query_is_transformed_towards_rewarded_keys(rng):
    keys = unit(np.hstack([rng.normal(size=(40, 4)), np.zeros((40, 4))]))

    def ask(wanted):  # half of the features carry only noise
        noise = np.hstack([np.zeros((wanted.size, 4)), 2.0 * rng.normal(size=(wanted.size, 4))])
        return unit(keys[wanted] + 0.1 * rng.normal(size=(wanted.size, WIDTH)) + noise)

    keys[:, 4:] = rng.normal(size=(40, 4))
    memory = Memory(keys, n=40)
    wanted = rng.integers(0, 40, 200)
    queries = ask(wanted)
    np.testing.assert_array_equal(memory.model.map(queries).transformed, queries)
    before = np.mean(np.argmax(queries @ memory.keys.T, axis=1) == wanted)
    teach(memory, ask, rng)
    after = np.mean(np.argmax(memory.model.map(queries).transformed @ memory.keys.T, axis=1) == wanted)
    assert after > before + 0.1


@pytest.mark.parametrize("seed", range(4))
def test_one_outcome_of_several_memories_never_ruins_the_ranking(seed):
    rng = np.random.default_rng(seed)
    keys, ask = confused(rng)
    memory = Memory(keys, n=40)
    for _ in range(150):
        wanted = rng.integers(0, 40, 10)
        queries = ask(wanted)
        shown = memory.query(queries, 5)
        outcome = (shown == wanted[:, None]).any(axis=1, keepdims=True)
        memory.learn(queries, shown, np.broadcast_to(outcome, shown.shape).astype(float), is_shared=True)
    wanted = rng.integers(0, 40, 500)
    queries = ask(wanted)
    static = np.mean(memory.candidates(queries)[1][:, 0] == wanted)
    assert np.mean(memory.query(queries)[:, 0] == wanted) >= static - 0.02


@pytest.mark.parametrize("k", [1, 2])
def test_interval_contains_the_gain_on_other_queries(k):
    n_right = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        keys, ask = confused(rng)
        memory = Memory(keys, n=40)
        for _ in range(150):
            wanted = rng.integers(0, 40, 10)
            queries = ask(wanted)
            shown = memory.query(queries, k)
            memory.learn(queries, shown, (shown == wanted[:, None]).astype(float))
        wanted = rng.integers(0, 40, 1000)
        queries = ask(wanted)
        static = np.mean(memory.candidates(queries)[1][:, 0] == wanted)
        low, high = memory.model.learned().interval
        n_right += low <= np.mean(memory.query(queries)[:, 0] == wanted) - static <= high
    assert n_right >= 4
