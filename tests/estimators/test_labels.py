"""Labels of all types, none of which is changed or confused with another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import estimators_labels

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
from cmt_numba._validation import label_array
from cmt_numba.estimators import check_unmixed, in_one_type
from cmt_numba.metrics import constant_accuracy
from cmt_numba.neighbors import LandmarkClassifier
from cmt_numba.text import FastTextClassifier, TextClassifier

FEW = {"n_head_passes": 0, "random_state": 0}
X = np.eye(4)


def learned(first: Any) -> CMTClassifier:
    return CMTClassifier(**FEW).fit(X[: len(first)], first)


@pytest.mark.parametrize("kind", [CMTClassifier, LandmarkClassifier, TextClassifier, FastTextClassifier])
def test_labels_of_other_classifiers_are_refused(kind: Any):
    X = ["a", "b"] if kind in (TextClassifier, FastTextClassifier) else np.eye(2)
    for y in ([["a", "b"], ["a"]], [["a", "b"], ["a", "c"]]):
        with pytest.raises(ValueError, match="use CMTMultilabelClassifier for several labels per row"):
            kind().fit(X, y)
    with pytest.raises(TypeError, match=r"y must be strings, numbers or bools, got datetime64\[D\]"):
        kind().fit(X, np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"))


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (np.array([2**63 + 1, 2**63 + 2, 3, 4], np.uint64), [5]),
        (np.array([2**53, 2**53 + 1, 1, 2]), [5.0]),
        (np.array([1, 2, 3], np.uint8), np.array([2**40])),
        (np.array([1, 2, 3], np.int32), np.array([4, 1])),
        (np.array([0.0, 1.0, 2.0]), [5]),
        (np.array([True, False]), np.array([True])),
        (np.array(["a", "b"]), ["longer"]),
        (np.array(["a", "b"], np.dtypes.StringDType()), ["longer"]),
        (np.array(["a", "b"]), np.array(["longer", "b"], object)),
        (np.array(["a", "b"], object), np.array(["longer", "b"])),
    ],
)
def test_classes_keep_their_values(first: np.ndarray, more: Any, tmp_path: Path):
    classifier = learned(first)
    assert classifier.partial_fit(X[: len(more)], more) is classifier
    assert classifier.classes_.tolist() == sorted(set(first.tolist()) | set(np.asarray(more).tolist()))
    classifier.save(tmp_path / "classifier")
    again = CMTClassifier.load(tmp_path / "classifier")
    assert again.classes_.dtype == classifier.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))


NULS = ["a", "a\0", "a\0\0", ""]


def test_strings_that_end_in_nul_stay_different_classes(tmp_path: Path):
    with CMTClassifier.open(tmp_path / "folder", **FEW) as classifier:
        classifier.partial_fit(X, NULS)
        classifier.save(tmp_path / "file")
    with CMTClassifier.open(tmp_path / "folder") as opened:
        for some in (opened, CMTClassifier.load(tmp_path / "file"), learned(NULS)):
            assert some.predict(X).tolist() == NULS
            assert some.calibrate(X, NULS).predict(np.ones((1, 4)), 1.0, "b\0").tolist() == ["b\0"]
        assert opened.remove_classes(["a\0"]).classes_.tolist() == ["", "a", "a\0\0"]
    with pytest.raises(ValueError, match="known classes"):
        learned(["a", "b"]).remove_classes(["a\0"])
    assert learned(["a", "b"]).partial_fit(X[:1], ["a\0"]).classes_.tolist() == ["a", "a\0", "b"]


def test_strings_that_end_in_nul_stay_different_names(tmp_path: Path):
    with CMTMultilabelClassifier.open(tmp_path / "folder", **FEW) as tagger:
        tagger.partial_fit(X[:2], [["a"], ["b"]]).partial_fit(X[2:], [["a\0"], ["a\0\0", "b"]])
        tagger.save(tmp_path / "file")
    with CMTMultilabelClassifier.open(tmp_path / "folder") as opened:
        for some in (opened, CMTMultilabelClassifier.load(tmp_path / "file")):
            assert some.classes_.tolist() == ["a", "b", "a\0", "a\0\0"]
            assert some.predict(X)[2] == ("a\0",)
    pair = CMTMultilabelClassifier(**FEW).fit(X, ["a", "a\0", "a", "a"])
    assert pair.classes_.tolist() == ["a", "a\0"]


def test_strings_that_end_in_nul_stay_different_in_other_arguments():
    assert CMTRetriever(random_state=0).fit(X, NULS).predict(X).tolist() == NULS
    assert LandmarkClassifier(n_neighbors=1).fit(X, NULS).predict(X).tolist() == NULS
    texts = FastTextClassifier(random_state=0, n_components=4).fit(["one", "two", "three", "four"], NULS)
    assert texts.classes_.tolist() == sorted(NULS)
    assert constant_accuracy(NULS) == 0.25


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("kind", [CMTClassifier, CMTMultilabelClassifier])
@pytest.mark.parametrize("label", ["card", 3])
def test_a_single_label_for_several_rows_is_refused(kind: Any, label: Any, in_folder: bool, tmp_path: Path):
    some = kind.open(tmp_path / "folder", **FEW) if in_folder else kind(**FEW)
    some.partial_fit(X[:2], ["card", "bill"])
    with pytest.raises(ValueError, match="a list with one label for each row"):
        some.partial_fit(X[:1], label)
    with pytest.raises(ValueError, match="a list with one label for each row"):
        some.fit(X[:1], label)
    some.close()


@pytest.mark.parametrize(
    ("first", "more", "error", "message"),
    [
        (np.array([1, 2, 3]), ["x"], TypeError, "known labels, numbers"),
        (np.array(["1", "2"]), [9], TypeError, "known labels, strings"),
        (np.array([2**63 + 1, 3], np.uint64), [-1], ValueError, "no type represents all values"),
        (np.array([0.0, 1.0]), [2**53 + 1], ValueError, "no type represents all values"),
        (np.array(["a", "b"]), np.array([b"a"]), TypeError, "bytes"),
        (np.array(["a", "b"]), np.array(["a", 3], object), TypeError, "must not mix strings with values of type int"),
        (np.array(["a", "b"]), ["a", 3], TypeError, "labels of one type"),
    ],
)
def test_other_values_are_refused_before_anything_changes(first: np.ndarray, more: Any, error: Any, message: str):
    classifier = learned(first)
    before = classifier.predict_proba(X)
    with pytest.raises(error, match=message):
        classifier.partial_fit(X[: len(more)], more)
    np.testing.assert_array_equal(classifier.classes_, np.unique(first))
    np.testing.assert_array_equal(classifier.predict_proba(X), before)
    with pytest.raises(error, match=message):
        CMTClassifier(**FEW).partial_fit(X[: len(more)], more, classes=first)


@pytest.mark.parametrize("call", ["fit", "partial_fit", "named beforehand", "pair"])
def test_lists_that_mix_numbers_and_strings_are_refused(call: str):
    mixed: Any = [1, "a", 1, "a"]
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: CMTClassifier(**FEW).fit(X, mixed),
        "partial_fit": lambda: CMTClassifier(**FEW).partial_fit(X, mixed),
        "named beforehand": lambda: CMTClassifier(**FEW).partial_fit(X, ["a"] * 4, classes=mixed),
        "pair": lambda: CMTMultilabelClassifier(**FEW).fit(X, mixed),
    }
    with pytest.raises(TypeError, match="labels of one type"):
        calls[call]()


def test_lists_that_numpy_would_round_are_refused():
    with pytest.raises(TypeError, match="labels of one type"):
        learned([2**53 + 1, 2**53, 1.0])
    with pytest.raises(TypeError, match="labels of one type"):
        learned([b"a\0", b"a"])
    with pytest.raises(ValueError, match="masked"):
        learned(np.ma.masked_array([1, 2, 3], [False, True, False]))


def test_a_pair_of_classes_takes_no_other_type():
    tagger = CMTMultilabelClassifier(**FEW).fit(X, [1, 2, 1, 2])
    assert tagger.partial_fit(X[:2], [2.0, 1.0]).classes_.tolist() == [1, 2]
    with pytest.raises(TypeError, match="known labels, numbers"):
        tagger.partial_fit(X[:2], ["1", "2"])
    wide = CMTMultilabelClassifier(**FEW).fit(X, np.array([2**53, 2**53 + 1] * 2))
    assert wide.partial_fit(X[:2], [2.0**53, 2.0**53]).classes_.tolist() == [2**53, 2**53 + 1]


def test_columns_of_data_frames():
    frame = pd.Series(["a", "b", "a", "b"])
    for column in (frame, frame.astype("category"), frame.astype("string")):
        assert learned(["a", "b"]).partial_fit(X, column).classes_.tolist() == ["a", "b"]


@given(st.lists(st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.text(), st.booleans()), max_size=6))
def test_accepted_values_are_stored_unchanged(labels: list[Any]):
    try:
        check_unmixed("y", labels)
    except TypeError:
        return
    for mine, held in zip(labels, label_array("y", labels).tolist(), strict=True):
        assert mine == held or mine != mine


NUMBERS = st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, np.float32, np.float64, np.bool_])


@given(
    st.lists(st.tuples(NUMBERS, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4)), min_size=2, max_size=3)
)
def test_one_type_holds_every_value(drawn: list[Any]):
    with np.errstate(all="ignore"):
        arrays = [np.array(values, np.uint64).astype(dtype) for dtype, values in drawn]
    found = estimators_labels.exactly(*arrays)
    if found is None:
        with pytest.raises(ValueError, match="no type represents all values"):
            in_one_type("y", *arrays)
        return
    assert len({array.dtype for array in found}) == 1
    for before, after in zip(arrays, found, strict=True):
        assert before.tolist() == after.tolist()


@pytest.mark.parametrize(
    ("first", "more"),
    [([1, 2], ["x"]), ([2**53 + 1, 2], [0.5]), (["a", "b"], [3]), ([True, False], [7]), ([1, "a"], [2])],
)
def test_values_that_fit_no_array_are_kept_as_objects(first: Any, more: Any):
    retriever = CMTRetriever(random_state=0).fit(X[:2], first).partial_fit(X[2:3], more)
    held = retriever.values([0, 1, 2]).tolist()
    assert held == [*first, *more]
    assert [type(value) for value in held] == [type(value) for value in [*first, *more]]
