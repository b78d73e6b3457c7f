"""What the readers of data files say of broken files and of options that cannot be used."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import CORPUS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import EXAMPLES, read_text

from cmt_numba.formats import FORMATS, FormatError, open_data

pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")


SVM, XC, VW, CSV = "rows.svm", "rows.xc", "rows.vw", "rows.csv"
BROKEN = [
    (SVM, "1 0:1\n1 2:x\n", {}, "line 2: must have the format label feature:value .*: could not convert .*'x'"),
    (SVM, "1 0:1\n\n# \n1 2:\n", {}, "line 4: must have the format label feature:value"),
    (SVM, "1 0:1\n2 3\n", {}, "line 2: must have the format label feature:value"),
    (SVM, "1 0:1\n2 3:nan\n", {}, "line 2: has a value that is not finite"),
    (SVM, "1 0:1\n2 3:1e39\n", {}, "line 2: has a value that is not finite"),
    (SVM, "1 0:1\n2 -3:1\n", {}, "line 2: .* Invalid index -3"),
    (SVM, "1 0:1\n2 3:1 2:1\n", {}, "line 2: .* should be sorted and unique"),
    (SVM, "1 0:1\n2 3:1 3:1\n", {}, "line 2: .* should be sorted and unique"),
    (SVM, "1 0:1\n2 3:1\n", {"n_features": 3}, "line 2: feature 3 is too large: features must be between 0 and 2"),
    (SVM, "1 0:1\n2 99999999999:1\n", {}, "line 2: .* value too large"),
    (SVM, "1 0:1\ncat 3:1\n", {}, "line 2: .* could not convert .*'cat'"),
    (SVM, "1 0:1\n0.5 3:1\n", {}, "line 2: label '0.5' is not an integer"),
    (SVM, "1 0:1\nnan 3:1\n", {}, "line 2: label 'nan' is not an integer"),
    (SVM, "1 0:1\n0,2 3:1\n", {"task": "multiclass"}, "line 2: label '0,2' is not an integer"),
    (SVM, "1 0:1\n 3:1\n", {"task": "multiclass"}, "line 2: has no label"),
    (SVM, "1,2 0:1\n-1 3:1\n", {}, "line 2: label -1 is negative"),
    (SVM, "1,2 0:1\n1.5 3:1\n", {}, "line 2: label '1.5' is not an integer"),
    (SVM, "1,2 0:1\n9999999999 3:1\n", {}, "line 2: label 9999999999 is too large"),
    (SVM, "# only a comment\n\n", {}, "has no rows"),
    (SVM, "\x00\x01 \x80\n", {}, "line 1: must have the format label"),
    (XC, "2 5\n1 0:1\n", {}, "line 1: must be three integers"),
    (XC, "2 0 3\n1 0:1\n", {}, "line 1: must be three integers"),
    (XC, "3 5 3\n1 0:1\n2 1:1\n", {}, "has 2 rows, but its header states 3"),
    (XC, "2 5 3\n1 0:1\n2 5:1\n", {}, "line 3: feature 5 is too large"),
    (XC, "2 5 3\n1 0:1\n3 1:1\n", {}, "line 3: label 3 is too large: labels must be between 0 and 2"),
    (XC, "2 5 3\n1 0:1\n1 2:1 2:3\n", {}, "line 3: .* should be sorted and unique"),
    (XC, "2 5 3\n1 0:1\n1 2:1\n", {"n_features": 4}, "line 1: n_features must be at least 5"),
    (XC, "2 5 3\n1 0:1\n1 2:1\n", {"task": "multiclass"}, "choose the task multilabel"),
    (VW, "1 | a\n2 a b\n", {}, r"line 2: has no \|"),
    (VW, "1 | a\n2 | a:x\n", {}, "line 2: 'a:x' must be a name"),
    (VW, "1 | a\n2 |n:x a\n", {}, "line 2: 'n:x' must be a name"),
    (VW, "1 | a\n2 | a:inf\n", {}, "line 2: 'a:inf' must be a name"),
    (VW, "1 | a\n2:0.5 | a\n", {}, "line 2: '2:0.5' must have the format: label .*; costs are not supported"),
    (VW, "1 | a\n2 heavy 'tag | a\n", {}, "line 2: .* must have the format: label importance"),
    (VW, "1 | a\n2 ee | a\n", {}, "line 2: .* must have the format: label importance"),
    (VW, "1,2 | a\n2,-1 | a\n", {}, "line 2: label -1 is negative"),
    (VW, "1,2 | a\ncat | a\n", {"task": "multilabel", "named_labels": False}, "line 2: label 'cat' is not an integer"),
    (CSV, "x,label\n1,2\n,3\n", {}, "row 2: column 'x' has no value"),
    (CSV, "x,label\n1,2\nno,3\n", {}, "row 2: column 'x' contains 'no', which is not a number"),
    (CSV, "x,label\n1,2\nNA,3\n", {}, "row 2: column 'x' has no value"),
    (CSV, "x,label\n1,2\n1e40,3\n", {}, "row 2: column 'x' contains a value that is not finite"),
    (CSV, "x,label\n1,2\n3,\n", {}, "row 2: has no label"),
    (CSV, "x,label\n1,2\n3,4,5\n", {}, "is not a valid table: .*line 3"),
    (CSV, "x,y\n1,2\n", {}, "has no column 'label' for the labels, but 'x', 'y'"),
    (CSV, "x,label\n1,2\n", {"text": ("words",)}, "has no column 'words'"),
    (CSV, "x,label\n1,2\n", {"ignore": ("id",)}, "has no column 'id', but 'x', 'label'"),
    (CSV, "x,label\n1,2\n", {"text": ("label",)}, "column 'label' contains the labels"),
    (CSV, "x,label\n1,2\n", {"text": ("x", "x")}, "must be distinct, got 'x', 'x'"),
    (CSV, "label\n2\n", {}, "has no feature columns"),
    (CSV, "x,label\n", {}, "has no rows"),
    (CSV, "x\n1,2,3", {}, "is not a valid table"),
    (CSV, "\x00\n,,", {}, "rows.csv"),
    (
        CSV,
        "x,label\n1,2\n1,a\n",
        {"task": "multilabel", "named_labels": False},
        "row 2: label 'a' is not an integer",
    ),
    (CSV, 'x,label\n1,"2,3"\n1,-1\n', {}, "row 2: label -1 is negative"),
    (CSV, "x,label\n1,2\n", {"task": "multiclass", "named_labels": False, "label": "z"}, "has no column 'z'"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), BROKEN)
@pytest.mark.parametrize("compressed", [False, True])
def test_broken_text(tmp_path: Path, name: str, content: str, options: Any, message: str, compressed: bool):
    path = tmp_path / (name + ".gz" if compressed else name)
    data = content.encode("latin-1")
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(FormatError, match=message) as caught:
        open_data(path, **options).read()
    assert str(path) in str(caught.value)
    with pytest.raises(FormatError, match=message):
        for _ in open_data(path, **options).batches(1):
            pass


def cut(path: Path, share: float) -> Path:
    data = path.read_bytes()
    shorter = path.with_name(f"cut-{path.name}")
    shorter.write_bytes(data[: int(share * len(data))])
    return shorter


@pytest.mark.parametrize(
    "name", ["one.svm.gz", "some.xc.gz", "one.vw.gz", "one.csv.gz", "one.parquet", "one.npz", "some.xc"]
)
def test_files_cut_off(files: dict[str, Path], name: str):
    for share in (0.2, 0.5, 0.8, 0.95):
        path = cut(files[name], share)
        with pytest.raises(FormatError, match=r"cut-"):
            open_data(path).read()


@pytest.mark.parametrize("suffix", ["svm", "xc", "vw", "csv", "parquet", "npz", "unknown"])
def test_a_missing_file(tmp_path: Path, suffix: str):
    path = tmp_path / f"rows.{suffix}"
    with pytest.raises(FormatError, match="does not exist"):
        open_data(path)
    path.mkdir()
    with pytest.raises(FormatError, match="is a directory"):
        open_data(path)
    path.rmdir()
    path.touch()
    with pytest.raises(FormatError, match="is empty"):
        open_data(path)


def test_unrecognizable_formats(tmp_path: Path):
    path = tmp_path / "rows.txt"
    path.write_text("hello world\n")
    with pytest.raises(FormatError, match="has an unknown suffix and an ambiguous first line"):
        open_data(path)
    for content, name in [
        ("2 3 4\n", "xc"),
        ("1 | a\n", "vw"),
        ("1 0:3 # x\n", "svmlight"),
        ("1,2 3:0.5\n", "svmlight"),
        ('{"a": 1}\n', "jsonl"),
    ]:
        path.write_text(content)
        assert open_data(path).format == name
        assert open_data(path, format="csv").format == "csv"
    assert {source.format for source in FORMATS.values()} == set(FORMATS)


@pytest.mark.parametrize(
    "options", [{"format": "arff"}, {"task": "regression"}, {"n_bits": 0}, {"n_bits": 31}, {"n_features": 0}]
)
def test_options_that_cannot_be_used(files: dict[str, Path], options: dict[str, Any]):
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must be"):
        open_data(files["one.svm"], **options)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"x": 1, "label": 1}\n\n{"x": 2', "line 3: is not JSON"),
        ('{"x": "\\ud800", "label": 1}\n', "line 1: is not JSON"),
        ("[1, 2]\n", "line 1: must be a JSON object"),
        (
            '{"x": 1, "label": 1}\n{"x": {"a": 1}, "label": 1}\n',
            "line 2: column 'x' contains .*'a': 1.*, which is not a number",
        ),
        ('{"x": [[1], []], "label": 1}\n', "line 1: column 'x' must contain a list of 2 numbers"),
        ('{"x": 1, "label": 1}\n{"label": 1}\n', "line 2: column 'x' has no value"),
        ('{"x": 1e999, "label": 1}\n', "line 1: column 'x' contains a value that is not finite"),
        ('{"x": "a", "label": 1}\n', "line 1: column 'x' contains 'a', which is not a number"),
        ('{"x": 1, "label": ["a", 1]}\n', "line 1: labels must be a list of numbers or a list of text"),
    ],
)
def test_broken_objects(tmp_path: Path, lines: str, message: str):
    path = tmp_path / "rows.jsonl"
    path.write_text(lines)
    with pytest.raises(FormatError, match=message):
        open_data(path).read()


ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"Z": np.ones(3)}, "must contain an array X"),
    ({"X": np.ones(3), "y": np.ones(3)}, "X must be numbers of shape"),
    ({"X": np.array([["a"], ["b"]]), "y": np.ones(2)}, "X must be numbers of shape"),
    ({"X": np.ones((2, 3)), "y": np.ones(3)}, "labels must be numbers or text of shape"),
    ({"X": np.ones((2, 3))}, "has no array y or Y"),
    ({"X": np.array([[1.0], [np.nan]]), "y": np.ones(2)}, "row 2: X must be finite"),
    ({"X": np.ones((2, 1)), "y": np.array([1.5, 2])}, "row 1: label 1.5 is not an integer"),
    ({"X": np.ones((2, 1)), "y": np.array([None, "a"])}, "is not a valid file of arrays"),
    ({"X": np.ones((0, 1)), "y": np.ones(0)}, "has no rows"),
]


@pytest.mark.parametrize(("contents", "message"), ARRAYS)
def test_broken_arrays(tmp_path: Path, contents: dict[str, Any], message: str):
    np.savez(tmp_path / "rows.npz", **contents)
    with pytest.raises(FormatError, match=message):
        open_data(tmp_path / "rows.npz").read()


def test_broken_sparse_matrix(tmp_path: Path):
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    matrix.indices[1] = 99  # beyond the last column
    scipy.sparse.save_npz(tmp_path / "X.npz", matrix)
    with pytest.raises(FormatError, match="is not a valid file of arrays"):
        open_data(tmp_path / "X.npz", with_labels=False).read()


@given(content=st.binary(max_size=200) | st.text(st.sampled_from("01 :,.|-e#\n'ax"), max_size=80).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("suffix", ["svm", "xc", "vw", "csv", "jsonl", "npz"])
def test_any_text_is_read_or_refused(tmp_path: Path, suffix: str, content: bytes):
    path = tmp_path / f"drawn.{suffix}"
    path.write_bytes(content)
    try:
        batch = open_data(path).read()
    except FormatError:
        return
    assert batch.X.shape[0] == batch.y.shape[0] > 0
    assert np.isfinite(batch.X.data if scipy.sparse.issparse(batch.X) else batch.X).all()


def test_seeds_of_fuzzing_are_read(tmp_path: Path):
    assert [read_text(tmp_path / "file", example) > 0 for example in EXAMPLES] == [True] * len(EXAMPLES)


def test_files_that_once_broke_readers_are_refused(tmp_path: Path):
    for path in sorted((CORPUS / "formats").glob("*")):
        assert read_text(tmp_path / "file", path.read_bytes()) >= -1
