"""Sharded classifiers without Ray: the division of classes, training and answers of a shard, and refused arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import (
    check_taught,
    distributed_actors,
    distributed_classifier_shard,
    distributed_folder,
    distributed_sharded_classifier,
)
from sklearn.datasets import load_wine

from cmt_numba import FileFormatError
from cmt_numba.distributed import PartialChangeError, ShardedClassifier
from cmt_numba.estimators import scales_of_table


def unit_rows(n: int, d: int = 8, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# The division of classes


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_similar_classes_are_in_one_shard(form: Callable[[Any], Any]):
    centers = np.eye(8, dtype=np.float32)[np.arange(60) % 3]
    owners = distributed_sharded_classifier.divided(form(centers + 0.05 * unit_rows(60)), 3, np.random.default_rng(0))
    assert [len(set(owners[np.arange(60) % 3 == kind])) for kind in range(3)] == [1, 1, 1]
    assert np.bincount(owners).tolist() == [20, 20, 20]


@pytest.mark.parametrize(("n", "n_shards"), [(1, 3), (3, 3), (4, 3), (50, 4), (500, 7)])
@pytest.mark.parametrize("alike", [False, True])
def test_shares_are_bounded_and_none_is_empty(n: int, n_shards: int, alike: bool):
    means = np.tile(unit_rows(1), (n, 1)) if alike else unit_rows(n)
    sizes = np.bincount(
        distributed_sharded_classifier.divided(means, n_shards, np.random.default_rng(0)), minlength=n_shards
    )
    assert sizes.max() <= np.ceil(1.1 * n / n_shards)
    assert (sizes > 0).sum() == min(n, n_shards)


def test_new_classes_join_similar_ones_if_there_is_room():
    centers = 10 * np.eye(2, 8, dtype=np.float32)
    like_first = np.eye(2, 8, dtype=np.float32)[np.zeros(4, np.int64)]
    assert distributed_sharded_classifier.assigned(like_first, centers, np.array([10, 12])).tolist() == [0, 0, 0, 0]
    assert sorted(distributed_sharded_classifier.assigned(like_first, centers, np.array([15, 10])).tolist()) == [
        0,
        1,
        1,
        1,
    ]
    np.testing.assert_array_equal(
        distributed_sharded_classifier.sums_of(centers, np.array([-1, 1]), 2), [np.zeros(8), centers[1]]
    )


# A shard


def test_shards_standardise_tables_by_the_same_scales(tmp_path: Path):
    rows, y = load_wine(return_X_y=True)
    rows = rows.astype(np.float32)
    scales = scales_of_table(rows, 3, "auto")
    assert scales is not None
    np.testing.assert_allclose(scales, [rows.mean(axis=0), rows.std(axis=0)], rtol=1e-4)
    shards = [distributed_classifier_shard.ClassifierShard(plan(tmp_path / name)) for name in "ab"]
    for shard, own in zip(shards, ([0, 1], [2]), strict=True):
        shard.fit(rows, y, distributed_classifier_shard.ExampleShare(np.arange(178), np.isin(y, own), scales))
        shard.close()
    again = [distributed_classifier_shard.ClassifierShard(plan(tmp_path / name, is_new=False)) for name in "ab"]
    classes, scores = zip(*(shard.best(rows, 1) for shard in again), strict=True)
    best = np.where(scores[0] > scores[1], classes[0], classes[1])[:, 0]
    assert np.mean(best == y) > 0.98
    for shard in again:
        np.testing.assert_allclose(shard.facts().scales, scales)
        shard.learn(
            rows[:2] * 1e3,
            y[:2],
            distributed_classifier_shard.ExampleShare(np.arange(2), np.ones(2, np.bool_), scales),
            178,
        )
        np.testing.assert_allclose(shard.facts().scales, scales)
        shard.close()
    assert scales_of_table(unit_rows(100), 3, "auto") is None
    assert scales_of_table(rows, 3, "none") is None


def plan(path: Path | None = None, *, is_new: bool = True) -> distributed_classifier_shard.ClassPlan:
    return distributed_classifier_shard.ClassPlan(
        "shard-000", None if path is None else str(path), is_new, {"random_state": 0}
    )


X = unit_rows(12)
Y = np.array(["a", "b", "c", "d"] * 3)
OWN = distributed_classifier_shard.ExampleShare(np.arange(12), np.isin(Y, ["a", "c"]))


def test_a_shard_answers_for_its_own_classes_and_learns_a_call_once(tmp_path: Path):
    shard = distributed_classifier_shard.ClassifierShard(plan(tmp_path / "shard"))
    assert shard.best(X, 1) is None
    assert shard.facts().classes is None
    assert np.isneginf(shard.rivals(X, Y)).all()
    shard.fit(X, Y, OWN)
    for _ in range(2):  # as after a process that died before it answered
        shard.learn(
            X[:3],
            np.array(["a", "e", "b"]),
            distributed_classifier_shard.ExampleShare(np.array([0, 1]), np.array([True, True])),
            12,
        )
        assert shard.n_examples() == 14
    classes, scores = shard.best(X, 5)
    assert classes.shape == scores.shape == (12, 5)
    assert set(classes[np.isfinite(scores)]) == {"a", "c", "e"}
    assert np.isneginf(scores[:, 3:]).all()
    assert (np.diff(scores[:, :3], axis=1) <= 0).all()
    shard.close()
    again = distributed_classifier_shard.ClassifierShard(plan(tmp_path / "shard", is_new=False))
    facts = again.facts()
    assert facts.classes is not None
    assert facts.classes.tolist() == ["a", "c", "e"]
    assert facts.next_number == 14
    for part, before in zip(again.best(X, 5) or (), (classes, scores), strict=True):
        np.testing.assert_array_equal(part, before)
    again.close()
    with pytest.raises(FileFormatError, match="missing"):
        distributed_classifier_shard.ClassifierShard(plan(tmp_path / "other", is_new=False)).facts()


def test_rivals_are_the_best_other_classes():
    shard = distributed_classifier_shard.ClassifierShard(plan())
    of_means = shard.rivals_of_means(
        X, Y, distributed_classifier_shard.ExampleShare(np.arange(12), np.ones(12, np.bool_))
    )
    means = np.stack([X[i::4].sum(axis=0) for i in range(4)])
    likeness = X @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    likeness[Y[:, None] == np.array(list("abcd"))] = -np.inf
    np.testing.assert_allclose(of_means, likeness.max(axis=1), atol=1e-6)
    shard.fit(X, Y, OWN)
    rivals, (classes, scores) = shard.rivals(X, Y), shard.best(X, 2) or (Y, X)
    expected = np.where(classes[:, 0] == Y, scores[:, 1], scores[:, 0])
    np.testing.assert_array_equal(rivals, expected)


# Refused arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "has no classifier.json"),
        ("{", "damaged"),
        ('{"kind": "ShardedClassifier", "version": 2, "n_shards": 0, "complete": true}', "damaged"),
        ('{"kind": "ShardedStore", "version": 1}', "version 1"),
    ],
)
def test_folders_of_something_else_are_refused(tmp_path: Path, text: str | None, words: str):
    assert distributed_folder.read_classifier_list(tmp_path) is None
    distributed_folder.write_classifier_list(tmp_path, 2, complete=True)
    assert distributed_folder.read_classifier_list(tmp_path) == (2, True)
    with pytest.raises(ValueError, match="n_shards must be 2"):
        ShardedClassifier(3, tmp_path)
    (tmp_path / "other").touch()
    (tmp_path / "classifier.json").unlink()
    if text is not None:
        (tmp_path / "classifier.json").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        ShardedClassifier(path=tmp_path)


def test_shards_that_have_not_learned_are_named():
    classifier = ShardedClassifier.__new__(ShardedClassifier)
    classifier._handles = {"shard-000": None, "shard-001": None}
    classes, owners = np.array(["a", "b", "c"]), np.array([0, 1, 0])
    check_taught(
        classifier, classes, owners, distributed_actors.Replies({"shard-000": None, "shard-001": None}, {}, [])
    )
    with pytest.raises(PartialChangeError) as caught:
        check_taught(
            classifier,
            classes,
            owners,
            distributed_actors.Replies({"shard-000": None}, {"shard-001": OSError("no room")}, []),
        )
    assert (caught.value.made, caught.value.not_made, caught.value.unknown) == (["a", "c"], ["b"], [])
    with pytest.raises(OSError, match="no room"):
        check_taught(classifier, classes, owners, distributed_actors.Replies({}, {"shard-001": OSError("no room")}, []))
