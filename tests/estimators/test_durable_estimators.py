"""Durable classifiers and retrievers, and the limit on stored examples."""

import copy
import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from internals import estimators_durable as durable
from internals import folder_of, journal_entries, model_of

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.journal import JournalError, unpack_entry
from cmt_numba.persistence import FileFormatError

FEW: dict[str, Any] = {"n_head_passes": 2}
X, Y = np.eye(4, dtype=np.float32), np.array(["a", "b", "c", "d"])


def test_labels_and_names_of_features_are_kept(tmp_path: Path):
    frame = pd.DataFrame(X, columns=["red", "green", "blue", "alpha"])
    with CMTClassifier.open(tmp_path / "folder", **FEW) as classifier:
        classifier.partial_fit(frame, np.array([3, 5, 7, 9]), example_ids=[10, 20, 30, 40])
    with CMTClassifier.open(tmp_path / "folder") as classifier:
        assert classifier.feature_names_in_.tolist() == list(frame)
        assert classifier.predict(frame).tolist() == [3, 5, 7, 9]
        with pytest.raises(TypeError, match="strings"):
            classifier.partial_fit(frame[:1], ["3"])  # must change nothing
        classifier.remove([20])
        assert classifier.classes_.tolist() == [3, 7, 9]


def test_strings_as_ids_and_weights_of_classes_are_kept(tmp_path: Path):
    options = FEW | {"class_weight": {"a": 2.0, "d": 0.5}, "random_state": 0}
    with CMTClassifier.open(tmp_path / "folder", **options) as classifier:
        classifier.fit(X, Y, example_ids=["w", "x", "y", "z"]).partial_fit(X[:1], ["d"], example_ids=["v"])
        classifier.remove(["x"])
        scores = classifier.decision_function(X)
    with CMTClassifier.open(tmp_path / "folder") as classifier:
        assert classifier.class_weight == {"a": 2.0, "d": 0.5}
        np.testing.assert_array_equal(classifier.decision_function(X), scores)
        assert classifier.kneighbors(X[3:], 2, return_distance=False)[0, 0] == "z"


def test_labels_of_many_for_each_row(tmp_path: Path):
    marks = scipy.sparse.csr_array(np.array([[1, 0], [0, 1], [1, 1], [0, 0]]))
    with CMTMultilabelClassifier.open(tmp_path / "folder", **FEW) as tagger:
        tagger.partial_fit(X, marks).partial_fit(X[:2], np.eye(2, 3), sample_weight=[0.0, 3.0])
        scores = tagger.decision_function(X)
    with CMTMultilabelClassifier.open(tmp_path / "folder") as tagger:
        np.testing.assert_array_equal(tagger.decision_function(X), scores)


def test_names_of_labels(tmp_path: Path):
    named = [["red", "round"], ("blue",), {"round"}, []]
    with CMTMultilabelClassifier.open(tmp_path / "folder", random_state=0, **FEW) as tagger:
        tagger.fit(np.tile(X, (5, 1)), named * 5)
        assert tagger.classes_.tolist() == ["blue", "red", "round"]
        assert tagger.predict(X) == [("red", "round"), ("blue",), ("round",), ()]
        tagger.partial_fit(X[:2], [[], []]).partial_fit(np.tile(X[3:], (9, 1)), [["amber"]] * 9)
        for bad, error in ((np.eye(1, 4), "the format of the first Y"), ([["red", 3]], "int, such as 3")):
            with pytest.raises((TypeError, ValueError), match=error):
                tagger.partial_fit(X[:1], bad)
    with CMTMultilabelClassifier.open(tmp_path / "folder") as again:
        again.check_invariants()
        assert again.classes_.tolist() == ["blue", "red", "round", "amber"]
        assert again.predict(X[3:]) == [("amber",)]
        np.testing.assert_array_equal(again.decision_function(X), tagger.decision_function(X))


def test_folders_of_others_are_refused(tmp_path: Path):
    with CMTClassifier.open(tmp_path / "folder", random_state=1, **FEW) as classifier:
        classifier.fit(X, Y)
    for other in (CMTMultilabelClassifier.open, ContextualMemoryTree.open):
        with pytest.raises(FileFormatError, match="CMTClassifier"):
            other(tmp_path / "folder")
    with pytest.raises(ValueError, match=r"random_state must be 1"):
        CMTClassifier.open(tmp_path / "folder", random_state=2)
    assert classifier.predict(X).tolist() == Y.tolist()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "letter.txt").write_text("Dear Sir")
    with pytest.raises(FileFormatError, match="letter"):
        CMTClassifier.open(tmp_path / "files")
    with pytest.raises(ValueError, match="not in a folder"):
        CMTClassifier().checkpoint()


def test_entries_of_a_later_version_are_refused(tmp_path: Path):
    path = tmp_path / "folder" / "journal.sqlite"
    with CMTClassifier.open(tmp_path / "folder", snapshot_seconds=1e9, **FEW) as classifier:
        classifier.fit(X, Y).remove_classes(["a"])
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        number, packed = database.execute("SELECT sequence, entry FROM entries ORDER BY sequence DESC").fetchone()
        later = journal_entries.pack_entry(number, unpack_entry(path, number, packed)._replace(version=3))
        database.execute("UPDATE entries SET entry = ? WHERE sequence = ?", (later, number))
    with pytest.raises(FileFormatError, match="'remove_classes', version 3, is unknown"):
        CMTClassifier.open(tmp_path / "folder")


@pytest.mark.parametrize(
    "bad", [{"aggressiveness": -1.0}, {"n_candidates": 0}, {"loss": "none"}, {"random_state": None}], ids=str
)
def test_changes_that_cannot_be_replayed_are_refused(tmp_path: Path, bad: dict[str, Any]):
    with CMTClassifier.open(tmp_path / "folder", random_state=1, **FEW) as classifier:
        classifier.fit(X, Y)
        before = classifier.decision_function(X)
        classifier.set_params(**bad)
        with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
            classifier.partial_fit(X, Y)
    with CMTClassifier.open(tmp_path / "folder") as again:
        np.testing.assert_array_equal(again.decision_function(X), before)
        again.partial_fit(X, Y)


def test_nothing_is_written_after_a_failure(tmp_path: Path, rng: np.random.Generator):
    rows, labels = rng.normal(size=(300, 4)), np.repeat(["a", "b", "c"], 100)
    with CMTClassifier.open(tmp_path / "folder", random_state=1, **FEW) as classifier:
        classifier.partial_fit(rows, labels)
        database = folder_of(classifier).journal.folder.database
        database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count')[0][0]}")
        with pytest.raises(JournalError, match="disk is full"):
            classifier.partial_fit(np.tile(rows, (20, 1)), np.tile(labels, 20))
        database.execute("PRAGMA max_page_count = 1000000")
        classifier.predict_proba(rows)  # learns a calibration, which would be journaled
    with CMTClassifier.open(tmp_path / "folder") as again:
        assert int(model_of(again).index.n_of_label.sum()) == 300


def test_copies_are_in_memory(tmp_path: Path):
    with CMTClassifier.open(tmp_path / "folder", **FEW) as classifier:
        classifier.fit(X, Y)
        for copied in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
            copied.remove_classes(["a"])
        assert classifier.classes_.size == 4


def test_operations_keep_their_names():
    """Folders of users contain these names, so names may be added but not changed."""
    names = {
        f"{kind}.{name}.{version}": sorted(how.parameters) for (kind, name, version), how in durable.OPERATIONS.items()
    }
    assert json.loads(json.dumps(names)) == {
        "CMTClassifier.fit.1": ["ids", "keys", "labels", "scales", "weights"],
        "CMTClassifier.partial_fit.1": ["classes", "ids", "keys", "labels", "scales", "weights"],
        "CMTClassifier.remove.1": ["ids"],
        "CMTClassifier.remove_classes.1": ["labels"],
        "CMTRetriever.feedback.1": ["ids", "keys", "rewards"],
        "CMTRetriever.fit.1": ["keys", "values", "weights"],
        "CMTRetriever.partial_fit.1": ["keys", "values", "weights"],
        "CMTRetriever.remove.1": ["ids"],
        "CMTRetriever.replace.1": ["ids", "keys"],
        "CMTRetriever.set_values.1": ["ids", "values"],
        "CMTMultilabelClassifier.fit.1": ["keys", "labels", "weights"],
        "CMTMultilabelClassifier.partial_fit.1": ["classes", "keys", "labels", "weights"],
    }


def test_the_oldest_examples_are_evicted(rng: np.random.Generator):
    y = np.repeat(np.arange(8), 10)
    rows = np.eye(8)[y] + 0.1 * rng.normal(size=(80, 8))
    classifier = CMTClassifier(max_examples=32, random_state=0, **FEW)
    for first in range(0, 80, 5):
        classifier.partial_fit(rows[first : first + 5], y[first : first + 5])
        assert model_of(classifier).index.n_of_label.sum() <= 32
    classifier.check_invariants()
    assert model_of(classifier).index.n_of_label.sum() >= 30
    assert classifier.classes_.tolist() == [5, 6, 7] or classifier.classes_.tolist() == [4, 5, 6, 7]
    assert classifier.kneighbors(rows[:3], 5, return_distance=False).min() >= 80 - 32
    with pytest.raises(ValueError, match="store_examples"):
        CMTClassifier(max_examples=5, store_examples=False).fit(rows, y)


# Retrievers


@pytest.mark.parametrize(
    "values",
    [None, ["a", "b", "c", "d"], [1, "two", None, [3.0]], [[1, 2], [3], [], [4]], np.eye(4, 2), np.arange(4) * 10**12],
    ids=["positions", "strings", "objects", "lists", "vectors", "numbers"],
)
def test_values_of_many_kinds(values: Any, tmp_path: Path):
    with CMTRetriever.open(tmp_path / "folder", random_state=0) as retriever:
        retriever.fit(X, values).partial_fit(X[:2], values if values is None else values[:2])
        wanted = retriever.values(np.arange(6))
    with CMTRetriever.open(tmp_path / "folder") as again:
        found = again.values(np.arange(6))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_values_that_cannot_be_saved_are_refused(tmp_path: Path):
    with CMTRetriever.open(tmp_path / "folder", random_state=0) as retriever:
        retriever.fit(X, ["a", "b", "c", "d"])
        for bad in ([(1, 2)], [object()]):
            with pytest.raises((TypeError, ValueError)):
                retriever.partial_fit(X[:1], bad)
        with pytest.raises(KeyError):
            retriever.remove([9])
        retriever.set_values([3], [{"any": ["thing", None]}])
    with CMTRetriever.open(tmp_path / "folder") as again:
        assert again.predict(X).tolist() == ["a", "b", "c", {"any": ["thing", None]}]


def test_a_reader_takes_over_parameters_that_the_writer_changes(tmp_path: Path):
    with CMTClassifier.open(tmp_path / "folder", random_state=0) as writer:
        writer.partial_fit(X, Y)
        reader = CMTClassifier.open(tmp_path / "folder", read_only=True, n_neighbors=2)
        reader.set_params(n_candidates=3)
        writer.set_params(method="neighbors", n_neighbors=1).partial_fit(X, Y)
        assert reader.refresh()
        assert (reader.method, reader.n_neighbors, reader.n_candidates) == ("neighbors", 2, 3)
        writer.set_params(method="head").partial_fit(X, Y).checkpoint()
        assert reader.refresh()
        assert (reader.method, reader.n_neighbors, reader.n_candidates) == ("head", 2, 3)
