"""The readers of data files: what they read, in batches or as a whole, and what they say of broken files."""

import gzip
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from data_files import some_rows, svmlight_text
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from cmt_numba.formats import Batch, FormatError, open_data

pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

FINITE = st.floats(-1e6, 1e6, width=32).filter(lambda value: value == 0 or abs(value) > 1e-6)


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


def check_alike(one: Batch, other: Batch) -> None:
    assert np.array_equal(dense(one.X), dense(other.X))
    assert np.array_equal(dense(one.y), dense(other.y))


def put_together(batches: list[Batch]) -> Batch:
    """Return batches as one with dense rows, by other means than the package's."""
    width = max(batch.y.shape[-1] for batch in batches)
    labels = [
        np.pad(dense(batch.y), ((0, 0), (0, width - batch.y.shape[1]))) if batch.y.ndim == 2 else batch.y
        for batch in batches
    ]
    return Batch(np.concatenate([dense(batch.X) for batch in batches]), np.concatenate(labels))


NAMES = [f"{stem}{end}" for stem in ("one.svm", "one.csv", "one.tsv", "one.jsonl", "one.vw") for end in ("", ".gz")]
NAMES += ["one.parquet", "one.npz", "several.svm", "several.svm.gz", "some.xc", "some.xc.gz", "several.vw"]
NAMES += ["several.csv", "several.jsonl", "several.parquet", "several.npz"]


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_batches_are_the_whole(files: dict[str, Path], name: str, in_pieces: bool):
    whole = open_data(files[name]).read()
    assert whole.X.shape[0] == 57
    source = open_data(files[name])
    if in_pieces:
        source.block_bytes, source.rows_in_a_frame = 300, 7
        check_alike(source.read(), whole)
    positions: list[int] = []
    source.watch = positions.append
    batches = list(source.batches(10))
    assert [batch.X.shape[0] for batch in batches] == [10, 10, 10, 10, 10, 7]
    check_alike(put_together(batches), whole)
    assert positions[-1] == source.extent
    growing = list(source.batches(lambda seen: seen + 1))
    assert [batch.X.shape[0] for batch in growing] == [1, 2, 4, 8, 16, 26]
    check_alike(put_together(growing), whole)


@pytest.mark.parametrize("name", NAMES)
def test_contents(files: dict[str, Path], name: str):
    X, y = some_rows()
    batch = open_data(files[name]).read()
    assert batch.X.dtype == np.float32
    if ".vw" not in name:
        assert np.array_equal(dense(batch.X), X.toarray())
    if "one" in name:
        assert batch.y.dtype == np.int64
        assert np.array_equal(batch.y, y)
    else:
        assert batch.y.dtype == np.int8
        assert np.array_equal(dense(batch.y), np.load(files["several.npz"])["Y"])


def test_resolved_options_read_another_file(tmp_path: Path):
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("x,y,label\n1,2,a\n3,4,7\n")
    other.write_text("y,label,unasked,x\n2,7,word,1\n")
    options = open_data(path).resolved()
    assert options.columns == ("x", "y")
    assert options.named_labels
    batch = open_data(other, options).read()
    assert batch.X.tolist() == [[1.0, 2.0]]
    assert batch.y.tolist() == ["7"]  # not a number where the first file had names


@pytest.mark.parametrize("with_comment", [False, True])
def test_blocks_hold_whole_lines(tmp_path: Path, with_comment: bool):
    X, y = some_rows(200)
    path = tmp_path / "rows"
    path.write_bytes(svmlight_text(X, y, comment="of a test" if with_comment else None).rstrip(b"\n"))
    for block_bytes in (1, 7, 100, 10**6):
        source = open_data(path)  # the first line tells the format
        source.block_bytes = block_bytes
        check_alike(source.read(), Batch(X, y))


def test_batches_hold_little(tmp_path: Path):
    line = " ".join(f"{j}:1.{0:040}" for j in range(0, 100, 5))
    peaks = []
    for n_lines in (4_000, 12_000):
        path = tmp_path / f"{n_lines}.svm"
        path.write_text(f"1 {line}\n" * n_lines)
        source = open_data(path, n_features=100, task="multiclass")
        tracemalloc.start()
        try:
            assert sum(batch.X.shape[0] for batch in source.batches(500)) == n_lines
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert path.stat().st_size > 10e6
    assert peaks[1] < 1.1 * peaks[0] < 8e6


@given(X=arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=FINITE), data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_svmlight_as_scikit_learn_reads_it(tmp_path: Path, X: np.ndarray, data: st.DataObject):
    path = tmp_path / "drawn.svm"
    several = data.draw(st.booleans())
    if several:
        Y = data.draw(arrays(np.int8, (X.shape[0], 4), elements=st.integers(0, 1)))
        text = svmlight_text(X, Y, multilabel=True)
    else:
        Y = data.draw(arrays(np.int64, X.shape[0], elements=st.integers(-(2**40), 2**40)))
        text = svmlight_text(X, Y)
    assume(text.strip())  # rows without labels and features are blank lines, which are no rows
    path.write_bytes(text)
    batch = open_data(path, task="multilabel" if several else "multiclass", n_features=X.shape[1]).read()
    expected, labels = load_svmlight_file(
        str(path), n_features=X.shape[1], dtype=np.float32, multilabel=several, zero_based=True
    )
    assert np.array_equal(batch.X.toarray(), expected.toarray())
    if several:
        assert [tuple(np.flatnonzero(row)) for row in batch.y.toarray()] == labels
    else:
        assert np.array_equal(batch.y, Y)


def test_lines_read_slowly_are_read_alike(tmp_path: Path):
    # Features out of order are nothing for scikit-learn.
    path = tmp_path / "rows.xc"
    path.write_text("3 5 4\n3,1 4:1.5 0:2\n\n 2:1 1:-1e-3\n")
    batch = open_data(path).read()
    assert np.allclose(batch.X.toarray(), [[2, 0, 0, 0, 1.5], [0] * 5, [0, -1e-3, 1, 0, 0]])
    assert batch.X.has_sorted_indices
    assert batch.y.toarray().tolist() == [[0, 1, 0, 1], [0] * 4, [0] * 4]


def test_svmlight_details(tmp_path: Path):
    path = tmp_path / "rows.svm"
    path.write_text("# a comment\n1 qid:3 1:1 2:2 # 7:7\n\n-2\n 3.0 5:1e2 \n")
    batch = open_data(path).read()
    assert batch.y.tolist() == [1, -2, 3]
    assert batch.X.toarray().tolist() == [[0, 1, 2, 0, 0, 0], [0] * 6, [0, 0, 0, 0, 0, 100]]
    assert open_data(path, n_features=9).read().X.shape == (3, 9)


WORDS = st.text(st.sampled_from("abcxyz019_^é"), min_size=1, max_size=4)
FEATURES = st.lists(st.tuples(WORDS, st.none() | FINITE), max_size=4)


@given(
    rows=st.lists(
        st.tuples(
            st.integers(-5, 99),
            st.none() | st.floats(0.1, 9),
            st.none() | WORDS,
            st.lists(st.tuples(st.none() | WORDS, st.none() | st.floats(0.125, 4, width=16), FEATURES), min_size=1),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_vowpal(tmp_path: Path, rows: list[Any]):
    lines, pairs = [], []
    for label, importance, tag, spaces in rows:
        line = f"{label}" + (f" {importance}" if importance is not None else "") + (f" '{tag}" if tag else "") + " "
        pairs.append([])
        for name, weight, features in spaces:
            scale = weight if weight is not None and name else 1.0
            line += f"|{name or ''}" + (f":{weight}" if scale != 1.0 else "")
            line += "".join(f" {word}" + (f":{value}" if value is not None else "") for word, value in features) + " "
            pairs[-1] += [
                ((f"{name}^" if name else "") + word, scale * (1.0 if value is None else value))
                for word, value in features
            ]
        lines.append(line)
    path = tmp_path / "drawn.vw"
    path.write_text("\n".join(lines), encoding="utf-8")
    batch = open_data(path, n_bits=10).read()
    expected = FeatureHasher(1024, input_type="pair", alternate_sign=False).transform(pairs)
    assert np.allclose(batch.X.toarray(), expected.toarray(), rtol=1e-6)
    assert batch.y.tolist() == [row[0] for row in rows]


def test_vowpal_labels(tmp_path: Path):
    path = tmp_path / "rows.vw"
    path.write_text("cat 2.0 tag| a b\ndog |x a\n'7 |x a\n")
    source = open_data(path)
    assert source.resolved().task == "multiclass"
    assert source.resolved().named_labels
    with pytest.raises(FormatError, match="line 3: has no label"):
        source.read()
    assert open_data(path, with_labels=False).read().y is None
    path.write_text("1_0 |x a\n10 |x b\n")  # Python reads both as the number 10
    assert open_data(path).read().y.tolist() == ["1_0", "10"]
    path.write_text("1,0 |x a\n|x b\n3 |x c\n")
    batch = open_data(path).read()
    assert batch.y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_words_of_tables(tmp_path: Path, suffix: str):
    texts = ["a small cat", "a large cat, a CAT", ""]
    frame = pandas.DataFrame({"text": texts, "title": ["x1", "one two", "three"], "label": ["NA", "None", "cat"]})
    path = tmp_path / f"texts.{suffix}"
    getattr(frame, f"to_{suffix}")(path, index=False)
    batch = open_data(path, text=("text",), n_bits=12).read()
    words = HashingVectorizer(n_features=4096, alternate_sign=False, norm=None)
    assert np.array_equal(batch.X.toarray(), words.transform(texts).toarray())
    assert batch.y.tolist() == ["NA", "None", "cat"]
    both = open_data(path, text=("text", "title")).read()
    assert both.X.tolist() == [f"{text} {title}" for text, title in zip(texts, frame["title"], strict=True)]
    numbered = open_data(path, text=("text",), label="title", ignore=("label",)).read()
    assert numbered.y.tolist() == ["x1", "one two", "three"]


def test_labels_of_tables(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    for labels, expected in (
        ([True, False], ["True", "False"]),
        (["7", "8"], ["7", "8"]),  # text stays text
        ([7, 8], [7, 8]),
        ([3.0, 4.0], [3, 4]),
        (["7", "7,8"], None),
        (["7", "seven"], ["7", "seven"]),
    ):
        pandas.DataFrame({"x": [1.0, 2.0], "label": labels}).to_parquet(path)
        y = open_data(path).read().y
        assert (y.toarray().sum() == 3) if expected is None else (y.tolist() == expected)
    for labels, message in (
        ([1.0, None], "row 2: has no label"),
        ([7.0, 0.5], "row 2: label 0.5 is not an integer"),
    ):
        pandas.DataFrame({"x": [1.0, 2.0], "label": labels}).to_parquet(path)
        with pytest.raises(FormatError, match=message):
            open_data(path).read()


CODES = ["007", "012", "12", "1e3", "1000", "7.0"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_codes_stay_text(tmp_path: Path, suffix: str):
    """A column is numeric only if its numbers are written in the same way."""
    path, frame = tmp_path / f"codes.{suffix}", pandas.DataFrame({"x": np.arange(6.0), "label": CODES})
    if suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        getattr(frame, f"to_{suffix}")(path, index=False)
    assert open_data(path).read().y.tolist() == CODES
    if suffix == "csv":
        path.write_text("x,label\n1,12\n2,-7\n")
        assert open_data(path).read().y.tolist() == [12, -7]
        path.write_text("x,label\n1,007\n2,012\n")
        assert open_data(path, task="multilabel").resolved().label_names == ("007", "012")


def test_labels_of_lists_may_have_names(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x": 1, "label": ["maps", "city"]}\n{"x": 2, "label": []}\n{"x": 3, "label": ["city"]}\n')
    source = open_data(path)
    assert (source.resolved().task, source.resolved().label_names) == ("multilabel", ("city", "maps"))
    assert source.read().y.toarray().tolist() == [[1, 1], [0, 0], [1, 0]]
    frame = pandas.read_json(path, lines=True)
    frame.to_parquet(tmp_path / "rows.parquet")
    assert open_data(tmp_path / "rows.parquet").read().y.toarray().tolist() == [[1, 1], [0, 0], [1, 0]]
    frame.assign(label=["maps, city", None, "city"]).to_csv(tmp_path / "rows.csv", index=False)
    options = open_data(tmp_path / "rows.csv", task="multilabel").resolved()
    assert options.label_names == ("city", "maps")
    assert open_data(tmp_path / "rows.csv", label="label").resolved().task == "multiclass"  # commas may be in a name
    path.write_text('{"x": 1, "label": ["alps"]}\n{"x": 1, "label": ["city"]}\n')
    more = open_data(path, replace(options, format="jsonl"))
    assert more.resolved().label_names == ("city", "maps", "alps")  # new names are appended
    assert more.read().y.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    path.write_text('{"x": 1, "label": ["a"]}\n{"x": 1, "label": [1]}\n')
    with pytest.raises(FormatError, match="labels mix text such as 'a' with numbers such as 1"):
        open_data(path).read()


def test_a_folder_of_parquet_files_is_read_in_the_order_of_names(tmp_path: Path):
    folder = tmp_path / "parts"
    folder.mkdir()
    with pytest.raises(FormatError, match="is a directory"):
        open_data(folder)
    rows = pandas.DataFrame({"x": np.arange(9.0), "label": np.arange(9) % 2})
    rows.iloc[6:].to_parquet(folder / "b.pq")
    rows[["label", "x"]].iloc[:6].to_parquet(folder / "a.parquet")
    (folder / "_SUCCESS").touch()
    source = open_data(folder)
    batch = source.read()
    assert batch.X[:, 0].tolist() == list(range(9))
    assert batch.y.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert [part.X.shape[0] for part in source.batches(4)] == [4, 4, 1]
    with pytest.raises(FormatError, match="is a directory"):
        open_data(folder, format="csv")
    rows.rename(columns={"x": "y"}).to_parquet(folder / "c.parquet")
    with pytest.raises(FormatError, match=r"c\.parquet: must have the same columns as a\.parquet"):
        open_data(folder).read()
    (folder / "c.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FormatError, match=r"c\.parquet: is not a Parquet file"):
        open_data(folder).read()


def test_lists_in_parquet(tmp_path: Path):
    path = tmp_path / "embedded.parquet"
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    pandas.DataFrame({"vector": list(vectors), "more": np.arange(5.0), "label": [1, 2, 3, 4, 5]}).to_parquet(path)
    batch = open_data(path).read()
    assert np.array_equal(batch.X, np.column_stack([vectors, np.arange(5.0)]))
    for third, message in (
        (np.zeros(2, np.float32), "row 3: column 'vector' must contain a list of 3 numbers"),
        (None, "row 3: column 'vector' must contain a list of 3 numbers"),
        (np.array([1.0, np.nan, 2.0], np.float32), "row 3: column 'vector' contains a value that is not finite"),
    ):
        lists = [*vectors[:2], third, *vectors[3:]]
        pandas.DataFrame({"vector": lists, "label": [1, 2, 3, 4, 5]}).to_parquet(path)
        with pytest.raises(FormatError, match=message):
            open_data(path).read()


def test_sparse_matrices_with_labels_beside_them(tmp_path: Path):
    X, y = some_rows()
    scipy.sparse.save_npz(tmp_path / "X.npz", X.tocsc())
    np.save(tmp_path / "y.npy", y)
    scipy.sparse.save_npz(tmp_path / "Y.npz", scipy.sparse.csr_matrix(np.eye(57)))
    batch = open_data(tmp_path / "X.npz", labels_file=str(tmp_path / "y.npy")).read()
    check_alike(batch, Batch(X, y))
    batch = open_data(tmp_path / "X.npz", labels_file=str(tmp_path / "Y.npz")).read()
    check_alike(batch, Batch(X, np.eye(57)))
    assert open_data(tmp_path / "X.npz", with_labels=False, n_features=30).read().X.shape == (57, 30)
    with pytest.raises(FormatError, match="has no array y or Y"):
        open_data(tmp_path / "X.npz").read()


def test_rows_may_end_in_a_separator(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("x,label\n1,2,\n3,4,\n")
    check_alike(open_data(tmp_path / "rows.csv").read(), Batch(np.array([[1.0], [3.0]]), np.array([2, 4])))
    (tmp_path / "rows.csv").write_text("x,label\n1,2,5\n3,4,5\n")
    with pytest.raises(FormatError, match="is not a valid table"):
        open_data(tmp_path / "rows.csv").read()


@pytest.mark.parametrize("compressed", [False, True])
def test_byte_order_marks(tmp_path: Path, compressed: bool):
    texts = {
        "a.svm": "3 0:1\n4 1:1\n",
        "a.xc": "2 2 2\n0 0:1\n1 1:1\n",
        "a.vw": "3 | a\n4 | b\n",
        "a.csv": "label,x\n3,1\n4,2\n",
    }
    for name, text in texts.items():
        path, plain = tmp_path / name, tmp_path / f"plain.{name}"
        content = b"\xef\xbb\xbf" + text.encode()
        path.write_bytes(gzip.compress(content) if compressed else content)
        plain.write_text(text)
        check_alike(open_data(path).read(), open_data(plain).read())
    (tmp_path / "nameless").write_bytes(b"\xef\xbb\xbf3 0:1\n")
    assert open_data(tmp_path / "nameless").format == "svmlight"
