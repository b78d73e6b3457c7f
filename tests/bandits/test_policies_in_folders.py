"""Policies in folders, whose decisions and rewards survive a crash."""

import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from failures import failing
from internals import bandits_cmt_bandit, bandits_folder, bandits_memory, feedback_of, keys_of
from threads import started

from cmt_numba.bandits import UCB1, CMTBandit, EpsilonGreedy, HybridLinUCB, LinearThompson, LinUCB, SquareCB
from cmt_numba.journal import JournalError
from cmt_numba.persistence import FileFormatError

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
POLICIES: list[tuple[Any, dict[str, Any]]] = [
    (CMTBandit, {"n_bits": 8}),
    (UCB1, {}),
    (EpsilonGreedy, {"contextual": True, "epsilon": 0.3}),
    (LinUCB, {}),
    (HybridLinUCB, {}),
    (LinearThompson, {}),
    (SquareCB, {}),
]


def play(policy: Any, first: int, stop: int) -> list[int]:
    """Let a policy decide and learn, and return its decisions."""
    chosen = []
    for i in range(first, stop):
        decision = policy.act(X[[i]], [0, 1, 2])
        chosen += decision.actions.tolist()
        rewards = (decision.actions == i % 3).astype(float)
        if isinstance(policy, CMTBandit):
            policy.reward(decision.ids, rewards)
        else:
            policy.learn(X[[i]], decision.actions, rewards, decision.propensities)
    return chosen


@pytest.mark.parametrize(("kind", "options"), POLICIES, ids=lambda given: getattr(given, "__name__", ""))
def test_a_policy_goes_on_after_a_crash(kind: Any, options: dict[str, Any], tmp_path: Path):
    twin = kind(n_actions=3, random_state=0, **options)
    with kind.open(tmp_path / "one", n_actions=3, random_state=0, **options) as one:
        assert play(one, 0, 4) == play(twin, 0, 4)
        one.checkpoint()
        one.add_actions([7]).remove_actions(7)
        twin.add_actions([7]).remove_actions(7)
        assert play(one, 4, 6) == play(twin, 4, 6)
        shutil.copytree(tmp_path / "one", tmp_path / "two")  # the files as a killed process leaves them
    with kind.open(tmp_path / "two", n_actions=3, **options) as two:
        assert play(two, 6, 12) == play(twin, 6, 12)
        np.testing.assert_array_equal(two.probabilities(X), twin.probabilities(X))
        assert two.n_rewards == 12
    with pytest.raises(FileFormatError, match="must contain an object of type"):
        (LinUCB if kind is not LinUCB else UCB1).open(tmp_path / "two")
    with pytest.raises(ValueError, match="n_actions must be 3"):
        kind.open(tmp_path / "two", n_actions=4)


def test_decisions_before_a_crash_are_rewarded_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The journal holds the chosen actions, since another processor may choose differently."""
    rows = scipy.sparse.csr_array(np.eye(3, 9))
    with CMTBandit.open(tmp_path / "one", n_bits=8, random_state=0) as bandit:
        bandit.add_actions([3, 4, 5], rows)
        decision = bandit.act(rows, [[3], [4, 5], [3, 5]])

    def draw(probabilities: np.ndarray, offsets: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        return offsets[1:] - 1  # the last action

    monkeypatch.setattr(bandits_cmt_bandit, "draw", draw)
    with CMTBandit.open(tmp_path / "one") as bandit:
        monkeypatch.undo()
        assert bandit.n_pending == 3
        bandit.reward(decision.ids[::-1], [1.0, 0.0, 1.0])
        assert feedback_of(bandit) is not None
        assert feedback_of(bandit).model.counts(decision.actions).tolist() == [
            np.sum(decision.actions == action) for action in decision.actions
        ]


def test_keys_that_come_after_the_first_contexts_are_saved(tmp_path: Path):
    """The map from contexts to keys is allocated for the next context or reward."""
    bandit = CMTBandit(3, n_bits=8, random_state=0)
    decision = bandit.act(X[:2])
    bandit.add_actions([3, 4], np.eye(2, 5))
    bandit.save(tmp_path / "bandit")
    again = CMTBandit.load(tmp_path / "bandit").reward(decision.ids, [1.0, 0.0])
    bandit.reward(decision.ids, [1.0, 0.0])
    np.testing.assert_array_equal(again.probabilities(X), bandit.probabilities(X))


def test_a_saved_bandit_scans_the_same_keys():
    """Keys after the indexed ones are scanned with what was learned, so a copy must index the same keys."""
    bandit = CMTBandit(n_candidates=2, n_bits=8, random_state=0)
    bandit.add_actions(range(40), scipy.sparse.csr_array(np.random.default_rng(1).random((40, 4))))
    bandit.act(scipy.sparse.csr_array(X))
    bandit.add_actions([40, 41], scipy.sparse.csr_array(np.eye(2, 4)))
    assert keys_of(pickle.loads(pickle.dumps(bandit))).n_indexed == keys_of(bandit).n_indexed == 40


def test_a_failed_change_of_a_policy_has_no_effect(tmp_path: Path):
    with LinUCB.open(tmp_path / "one", n_actions=3, random_state=0) as policy:
        play(policy, 0, 3)
        before = policy.probabilities(X)
        with pytest.raises(ValueError, match="rewards must be finite"):
            policy.learn(X[:1], [0], [np.nan])
        with failing("journal._journal.Journal._sync", OSError("full"), raised=JournalError):
            policy.learn(X[:1], [0], [1.0])
        np.testing.assert_array_equal(policy.probabilities(X), before)
        assert policy.n_rewards == 3


def test_queries_of_a_reader_wait_while_it_follows_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise the models of actions have moved already, but the reader would not know where."""
    found: list[np.ndarray] = []
    threads: list[threading.Thread] = []

    def use(form: bandits_folder.PolicyFolder, made: Any) -> None:
        threads.append(started(lambda: found.append(reader.probabilities(X))))
        threads[0].join(0.1)
        working(form, made)

    with LinUCB.open(tmp_path / "one", n_actions=3, random_state=0) as writer:
        writer.learn(X, np.arange(12) % 3, np.arange(12) % 3 / 3.0)
        with LinUCB.open(tmp_path / "one", read_only=True) as reader:
            writer.remove_actions([0])
            working = bandits_folder.PolicyFolder.use
            monkeypatch.setattr(bandits_folder.PolicyFolder, "use", use)
            reader.refresh()
            threads[0].join()
            np.testing.assert_array_equal(found[0], writer.probabilities(X))


def test_only_the_first_reader_inserts_waiting_contexts(monkeypatch: pytest.MonkeyPatch):
    bandit = CMTBandit(n_candidates=1, n_bits=8, random_state=0).add_actions(np.arange(12), X)
    bandit.reward(bandit.act(X).ids, np.ones(12))
    insert, calls = bandits_memory.insert_rows, []

    def slowly(*args: Any) -> Any:
        calls.append(args)
        time.sleep(0.05)
        return insert(*args)

    monkeypatch.setattr(bandits_memory, "insert_rows", slowly)
    readers = [threading.Thread(target=bandit.probabilities, args=(X,)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(calls) <= 1


def test_policies_in_memory_have_no_folder(tmp_path: Path):
    policy = LinUCB(3)
    with pytest.raises(ValueError, match="create it with LinUCB"):
        policy.checkpoint()
    policy.close()
    assert not policy.refresh()
