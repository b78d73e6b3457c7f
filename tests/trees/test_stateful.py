"""Random sequences of operations, checked against a dictionary of keys."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse
from conftest import EVERY_LEAF, needs_jit
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from internals import folder_of, forest_room, state_of
from journals import journal_of, same

from cmt_numba import ContextualMemoryTree, Hits


def key_values(n_features: int) -> st.SearchStrategy[list[int]]:
    """Draw the values of a key from so few that equal keys and all-zero keys are common."""
    return st.lists(st.integers(-2, 2), min_size=n_features, max_size=n_features)


def unit_rows(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


class ForestMachine(RuleBasedStateMachine):
    """A forest and a dictionary from ids to unit-length keys."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = ContextualMemoryTree()
        self.keys: dict[int, np.ndarray] = {}  # the most recently returned memory is last
        self.next_id = 0
        self.answered: list[tuple[np.ndarray, Hits]] = []

    @initialize(
        options=st.fixed_dictionaries(
            {
                "n_trees": st.sampled_from([1, 3]),
                "alpha": st.sampled_from([0.3, 0.9, 1.0]),
                "leaf_multiplier": st.sampled_from([0.25, 0.5, 1.0, 2.0]),
                "n_reroutes": st.integers(0, 3),
                "router_loss": st.sampled_from(["squared", "logistic"]),
                "router_learning_rate": st.sampled_from([0.1, 2.0]),
                "scorer_loss": st.sampled_from(["contrast", "regression"]),
                "scorer_learning_rate": st.sampled_from([0.01, 0.1]),
                "max_memories": st.sampled_from([None, None, 1, 7, 40]),
                "eviction": st.sampled_from(forest_room.EVICTIONS),
                "n_threads": st.sampled_from([1, 2]),
                "random_state": st.integers(0, 2**64 - 1),
            }
        ),
        sparse=st.booleans(),
        n_features=st.integers(1, 4),
    )
    def begin(self, options: dict[str, Any], sparse: bool, n_features: int) -> None:
        self.tree = self.new_tree(options)
        self.most, self.eviction = options["max_memories"] or np.inf, options["eviction"]
        self.loss, self.sparse, self.n_features = options["scorer_loss"], sparse, n_features

    def new_tree(self, options: dict[str, Any]) -> ContextualMemoryTree:
        return ContextualMemoryTree(**options)

    def draw_rows(self, data: st.DataObject, most: int) -> np.ndarray:
        rows = data.draw(st.lists(key_values(self.n_features), min_size=1, max_size=most), label="rows")
        return np.array(rows, np.float32)

    def as_drawn(self, rows: np.ndarray) -> Any:
        return scipy.sparse.csr_array(rows) if self.sparse else rows

    @rule(data=st.data(), repeats=st.sampled_from([1, 1, 1, 15]))
    def insert(self, data: st.DataObject, repeats: int) -> None:
        rows = np.repeat(self.draw_rows(data, 12), repeats, axis=0)
        ids = self.tree.insert(self.as_drawn(rows))
        np.testing.assert_array_equal(ids, np.arange(self.next_id, self.next_id + len(rows)))  # new ones, in order
        self.next_id += len(rows)
        self.keys.update(zip(ids.tolist(), unit_rows(rows), strict=True))
        n_gone = max(0, len(self.keys) - self.most)
        ages = sorted(self.keys) if self.eviction == "oldest" else list(self.keys)
        gone = ages[:n_gone] if self.eviction != "random" else set(self.keys) - set(self.tree.ids.tolist())
        assert len(gone) == n_gone
        for memory_id in gone:
            del self.keys[memory_id]

    def note_returned(self, ids: list[int]) -> None:
        for memory_id in ids:
            if memory_id >= 0:
                self.keys[memory_id] = self.keys.pop(memory_id)

    @rule(data=st.data(), k=st.integers(1, 5), epsilon=st.sampled_from([0.0, 0.5, 1.0]), n_probes=st.integers(0, 6))
    def query(self, data: st.DataObject, k: int, epsilon: float, n_probes: int) -> None:
        rows = self.draw_rows(data, 6)
        hits = self.tree.query(self.as_drawn(rows), k=k, n_probes=n_probes or None, epsilon=epsilon)
        self.check_hits(rows, hits)
        self.note_returned(hits.ids[:, ::-1].ravel().tolist())
        self.answered.append((rows, hits))

    @rule(data=st.data(), more=st.integers(-3, 3))
    def query_all_leaves(self, data: st.DataObject, more: int) -> None:
        rows = self.draw_rows(data, 4)
        n = len(self.keys)
        k = max(1, n + more)
        hits = self.tree.query(self.as_drawn(rows), k=k, n_probes=EVERY_LEAF)
        self.check_hits(rows, hits)
        self.note_returned(hits.ids[:, ::-1].ravel().tolist())
        assert np.all(np.sum(hits.ids >= 0, axis=1) == min(k, n))
        if n > 0:
            best = -np.sort(-self.expected_scores(rows, np.array(list(self.keys))), axis=1)[:, :k]
            np.testing.assert_allclose(hits.scores[:, : best.shape[1]], best, rtol=1e-4, atol=1e-4)

    def expected_scores(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the scores of memories for each row, with the learned weights."""
        weights = np.ones(self.n_features)
        if state_of(self.tree).scorer.theta.size:
            weights = weights + state_of(self.tree).scorer.theta
        return (unit_rows(rows) * weights) @ np.array([self.keys[memory_id] for memory_id in ids.tolist()]).T

    def check_hits(self, rows: np.ndarray, hits: Hits) -> None:
        """Check that hits are distinct stored memories with their scores, in order, and padded."""
        for row, ids, scores, node, tree in zip(
            rows, hits.ids, hits.scores, hits.exploration.node, hits.exploration.tree, strict=True
        ):
            n_found = int(np.sum(ids >= 0))
            assert n_found > 0 or not self.keys
            assert len(set(ids[:n_found].tolist()) & set(self.keys)) == n_found
            assert np.all(ids[n_found:] == -1)
            assert np.all(scores[n_found:] == -np.inf)
            if n_found:
                expected = self.expected_scores(row[np.newaxis], ids[:n_found])[0]
                np.testing.assert_allclose(scores[:n_found], expected, rtol=1e-4, atol=1e-4)
            drawn_in_leaf = tree >= 0 and node < 0
            assert drawn_in_leaf or np.all(np.diff(scores[:n_found]) <= 0)

    @rule()
    def compact(self) -> None:
        self.tree.compact()

    @precondition(lambda self: self.keys)
    @rule(n_groups=st.integers(1, 5))
    def rebuild(self, n_groups: int) -> None:
        ids = sorted(self.keys)
        self.tree.rebuild(ids, np.arange(len(ids)) % n_groups)

    @precondition(lambda self: self.answered)
    @rule(data=st.data(), all_ranks=st.booleans())
    def update(self, data: st.DataObject, all_ranks: bool) -> None:
        """Reward a result, perhaps one whose memories and nodes have been removed."""
        rows, hits = data.draw(st.sampled_from(self.answered))
        shape = hits.ids.shape if all_ranks else (len(rows),)
        n_rewards = int(np.prod(shape))
        drawn = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=n_rewards, max_size=n_rewards))
        self.tree.update(self.as_drawn(rows), hits, np.reshape(drawn, shape))
        if not self.sparse and self.keys:
            # The contrast loss also moves the key of the best memory without a reward.
            has_runner_up = self.loss == "contrast" and n_rewards == len(rows)
            self.note_moved(set(self.keys if has_runner_up else hits.ids.reshape(-1).tolist()))

    def note_moved(self, movable: set[int]) -> None:
        """Take over the keys of memories that rewards may have moved. No other key may have changed."""
        keys = state_of(self.tree).keys
        for memory_id, key in zip(self.tree.ids.tolist(), keys.values.reshape(-1, self.n_features), strict=False):
            if memory_id not in movable:
                np.testing.assert_allclose(key, self.keys[memory_id], rtol=1e-4, atol=1e-4)
            assert abs(np.linalg.norm(key) - np.linalg.norm(self.keys[memory_id])) < 1e-4
            self.keys[memory_id] = key.astype(np.float64)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.keys)), min_size=1, max_size=10, unique=True))
        self.tree.remove(ids)
        for memory_id in ids:
            del self.keys[memory_id]
            assert memory_id not in self.tree

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        rows = self.draw_rows(data, min(10, len(self.keys)))
        ids = data.draw(st.permutations(sorted(self.keys)))[: len(rows)]
        self.tree.replace(ids, self.as_drawn(rows))
        self.keys.update(zip(ids, unit_rows(rows), strict=True))
        self.note_returned(ids)

    @precondition(lambda self: self.keys)
    @rule(n_kept=st.integers(0, 5))
    def remove_most(self, n_kept: int) -> None:
        ids = list(self.keys)[n_kept:]
        if ids:
            self.tree.remove(ids)
        self.keys = {memory_id: self.keys[memory_id] for memory_id in list(self.keys)[:n_kept]}

    @rule(n=st.integers(0, 50))
    def reroute(self, n: int) -> None:
        self.tree.reroute(n)

    @rule(mmap=st.booleans())
    def save_and_load(self, mmap: bool) -> None:
        """Continue with the tree loaded from a file."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "tree"
            self.tree.save(path)
            self.tree = ContextualMemoryTree.load(path, mmap=mmap)

    @invariant()
    def is_consistent(self) -> None:
        self.tree.check_invariants()
        assert self.tree.n_memories == len(self.tree) == len(self.keys)
        assert set(self.tree.ids.tolist()) == set(self.keys)


class DurableForestMachine(ForestMachine):
    """The same for a tree in a folder: after it is closed, or its process killed, nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.n_folders = 0

    def new_tree(self, options: dict[str, Any]) -> ContextualMemoryTree:
        return ContextualMemoryTree.open(Path(self.folder.name) / "0", **options)

    @rule(killed=st.booleans(), snapshot=st.booleans())
    def open_again(self, killed: bool, snapshot: bool) -> None:
        if snapshot:
            self.tree.checkpoint()
        before = ContextualMemoryTree.__new__(ContextualMemoryTree)
        before.__setstate__(self.tree.__getstate__())
        path = journal_of(self.tree).path
        if killed:
            self.tree.sync()
            self.n_folders += 1
            path = Path(shutil.copytree(path, Path(self.folder.name) / str(self.n_folders)))
        self.tree.close()
        self.tree = ContextualMemoryTree.open(path)
        assert same(self.tree, before)

    @rule(mmap=st.booleans())
    def save_and_load(self, mmap: bool) -> None:
        """Compare a copy, since a durable tree cannot be loaded from a file."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "tree"
            self.tree.save(path)
            assert same(ContextualMemoryTree.load(path, mmap=mmap), self.tree)

    def teardown(self) -> None:
        if folder_of(self.tree) is not None:
            self.tree.close()
        self.folder.cleanup()


TestDurableForestMachine = needs_jit(DurableForestMachine.TestCase)
TestDurableForestMachine.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestForestMachine = needs_jit(ForestMachine.TestCase)
TestForestMachine.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
