"""Tables on the command line: kinds of columns, and how models keep them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from conftest import needs_jit
from internals import cli_features, cli_models, persistence_container
from scipy.sparse import issparse
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from test_cli import fail, run, succeed

from cmt_numba import FileFormatError
from cmt_numba.formats import FormatError, open_data
from cmt_numba.persistence import document

KINDS = ("size=number", "age=number", "city=category", "zip=number", "note=text")


def read_back(columns: Any) -> Any:
    """Return a column transformer after it was written and read."""
    arrays: dict[str, np.ndarray] = {}
    field = cli_features.TableFeaturesField().put("keys", columns, arrays)
    return cli_features.TableFeaturesField().get("keys", field, arrays, thorough=True)


def mixed_table(n: int, seed: int = 0) -> pandas.DataFrame:
    """Return a table of numbers of very different sizes, categories and texts, some missing, and labels."""
    rng = np.random.default_rng(seed)
    X, y = make_classification(n, 6, n_informative=5, n_redundant=0, flip_y=0.02, random_state=5)
    cities = np.array(["Rome", "Oslo", "New York", "Lima"])
    frame = pandas.DataFrame({"size": 1e5 * X[:, 0] + 7e5, "age": 0.01 * X[:, 1]})
    frame["city"] = cities[np.digitize(X[:, 2], [-1.0, 0.0, 1.0])]
    frame["zip"] = rng.integers(100, 120, n)
    frame["note"] = [f"call {rng.integers(10**6)} about the {'big' if x > 0 else 'small'} red house" for x in X[:, 3]]
    frame.loc[rng.random(n) < 0.02, "age"] = None
    frame.loc[rng.random(n) < 0.02, "city"] = None
    frame["outcome"] = np.array(["no", "yes"])[y]
    return frame


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write tables to learn from and to ask with, as CSV, TSV and JSONL."""
    folder = tmp_path_factory.mktemp("tables")
    frame = mixed_table(1500)
    for name, part in (("train", frame[:1000]), ("test", frame[1000:])):
        part.to_csv(folder / f"{name}.csv", index=False)
        part.to_csv(folder / f"{name}.tsv", index=False, sep="\t")
        part.to_json(folder / f"{name}.jsonl", orient="records", lines=True, double_precision=15)
    return folder


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_kinds_are_inferred(tables: Path, suffix: str):
    path = tables / f"train.{suffix}"
    source = open_data(path, label=None, kinds=())
    options = source.resolved()
    assert (options.label, options.kinds, options.task) == ("outcome", KINDS, "multiclass")
    source.rows_in_a_frame = 99
    X, expected = source.read().X, pandas.read_csv(tables / "train.csv")
    assert X.index.tolist() == list(range(1000))
    np.testing.assert_allclose(X["age"], expected["age"], rtol=1e-6)
    assert X["city"].tolist() == expected["city"].fillna("").tolist()
    chosen = open_data(path, label=None, kinds=("zip=category",)).read().X
    assert chosen["zip"].tolist() == expected["zip"].map(str).tolist()
    asked = next(iter(open_data(path, options, with_labels=False).batches(10)))
    pandas.testing.assert_frame_equal(asked.X, X[:10])


def fail_last(*words: Any) -> str:
    """Run a command that has to fail after it has shown the columns, and return its complaint."""
    result = run(*words)
    assert result.exit_code == 2
    shown, *_, complaint = result.stderr.splitlines()
    assert shown.startswith("Columns: ")
    return complaint


def test_kinds_that_cannot_be_used(tables: Path, tmp_path: Path):
    assert "COLUMN=KIND" in fail("info", tables / "train.csv", "--kind", "city=colour")
    assert "got 'town'" in fail("info", tables / "train.csv", "--kind", "town=text")
    assert "--kind cannot be combined with --text" in fail(
        "info", tables / "train.csv", "--kind", "city=text", "--text", "note"
    )
    given = ("-m", tmp_path / "my.cmt", "--kind", "city=text", "--streaming")
    assert "--kind cannot be combined with" in fail("fit", tables / "train.csv", *given)
    (tmp_path / "rows.svm").write_text("1 0:1\n2 1:1\n")
    assert "--kind names a column, but" in fail("info", tmp_path / "rows.svm", "--kind", "city=text")
    (tmp_path / "a.csv").write_text("city,label\nRome,1\nOslo,2\n")
    source = open_data(tmp_path / "a.csv", kinds=("city=number",))
    with pytest.raises(FormatError, match="row 1: column 'city' contains 'Rome', which is not a number"):
        source.read()
    (tmp_path / "b.csv").write_text("x,name,label\n1,Ada,a\n2,Bob,b\n")
    assert "ignore a text column with --ignore" in fail_last("fit", tmp_path / "b.csv", "-m", tmp_path / "my.cmt")
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"vector": [1, 2], "label": 1}\n{"vector": [3, 4], "label": 2}\n')
    assert open_data(lists, kinds=()).read().X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("kinds", "sparse"), [((), False), (("zip=category", "note=category"), True)])
def test_columns_in_files(tables: Path, kinds: tuple[str, ...], sparse: bool):
    source = open_data(tables / "train.csv", label=None, kinds=kinds)
    rows = source.read().X
    X, columns = cli_features.to_features(rows, source.resolved())
    odd = rows[:3].assign(city=["Paris", "", "Rome"], note=["", "unheard", "red"], age=[np.nan, 1.0, 0.0])
    restored = read_back(columns)
    for frame in (rows, odd):
        one, other = columns.transform(frame), restored.transform(frame)
        assert issparse(one) == issparse(other) == sparse
        assert abs(one - other).max() == 0
    numbers = X[:, :2].toarray() if sparse else X[:, :2]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(numbers.std(axis=0), 1, atol=0.05)  # missing numbers are the mean


@needs_jit
def test_models_of_columns_are_explained_and_updated(tables: Path, tmp_path: Path):
    model = tmp_path / "my.cmt"
    succeed("fit", tables / "train.csv", "-m", model)
    lines = succeed("predict", tables / "test.csv", "-m", model, "--explain").splitlines()
    reasons = {reason.rpartition(" ")[0] for line in lines for reason in line.split("\t")[1].split(", ")}
    assert {"size", "age", "city_Rome", "note: big", "note: small"} <= reasons
    new = tmp_path / "new.csv"
    for label in ("maybe", "never"):  # the second update reads a model that has been saved after loading
        mixed_table(60).assign(size=9e6, outcome=label).to_csv(new, index=False)
        assert run("update", new, "-m", model).exit_code == 0
        assert label in succeed("predict", new, "-m", model).split()


def test_words_for_missing_numbers(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c,label\n1,NaN,NA,p\nnull,2.5,no,q\n3,NA,no,p\n")
    source = open_data(path, kinds=())
    X = source.read().X
    assert source.resolved().kinds == ("a=number", "b=number", "c=text")
    np.testing.assert_array_equal(X[["a", "b"]], [[1, np.nan], [np.nan, 2.5], [3, np.nan]])
    assert X["c"].tolist() == ["NA", "no", "no"]  # a text column keeps these words


def test_numbers_that_are_all_missing(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n1,,p\n2,,q\n3,,p\n")
    source = open_data(path, kinds=())
    X, columns = cli_features.to_features(source.read().X, source.resolved())
    assert X[:, 1].tolist() == [0, 0, 0]
    restored = read_back(columns)
    assert restored.transform(pandas.DataFrame({"a": [2.0], "b": [7.0]})).tolist() == [[0, 0]]


@pytest.mark.parametrize("command", ["info", "evaluate", "fit"])
def test_labels_of_mixed_types_are_refused(command: str, tmp_path: Path):
    path, model = tmp_path / "mixed.jsonl", tmp_path / "my.cmt"
    path.write_text("".join(json.dumps({"size": i, "label": "a" if i == 7 else i % 3}) + "\n" for i in range(9)))
    printed = fail(command, path, *(("-m", model) if command == "fit" else ()))
    assert "the labels mix text such as 'a' with numbers such as 0: write all of them as text" in printed
    assert not model.exists()


@needs_jit
def test_mixed_tables(tables: Path, tmp_path: Path):
    model = tmp_path / "my.cmt"
    result = run("fit", tables / "train.csv", "-m", model)
    assert result.exit_code == 0
    assert "size (number), age (number), city (category), zip (number), note (text), outcome (label)" in result.stderr
    loaded = cli_models.load_model(model)
    train, test = (open_data(tables / f"{name}.csv", loaded.options).read() for name in ("train", "test"))
    rival = LogisticRegression(max_iter=1000).fit(loaded.rows(train.X), train.y)
    answers = succeed("predict", tables / "test.csv", "-m", model).splitlines()
    assert np.mean(answers == test.y) >= rival.score(loaded.rows(test.X), test.y) - 0.01
    assert succeed("predict", tables / "test.jsonl", "-m", model).splitlines() == answers
    given = ("--test", tables / "test.csv", "--seeds", 1, "--json", "-")
    error = json.loads(succeed("evaluate", tables / "train.csv", *given))["result"]["metrics"]["error"]
    assert error[0] == pytest.approx(np.mean(answers != test.y))
    described = json.loads(succeed("info", tables / "test.csv", "--json"))["data"]
    assert described["columns"].endswith("note (text), outcome (label)")

    other = tmp_path / "rows.svm"
    other.write_text("1 0:1\n")
    assert f"requires columns 'size', 'age', 'city', 'zip', 'note' of csv, but {other} has the format svmlight" in fail(
        "predict", other, "-m", model
    )
    contents = persistence_container.read_contents(model, mmap=False)
    spoilt: list[dict[str, Any]] = [
        {"keys.mean": np.zeros(2)},
        {"keys.known": document([["Rome", "Rome"]])},
        {"keys.known": document([["Rome"]])},  # not as many columns as the estimator has features
    ]
    for spoil in spoilt:
        persistence_container.write_contents(model, contents._replace(arrays=contents.arrays | spoil))
        with pytest.raises(FileFormatError):
            cli_models.load_model(model)
    persistence_container.write_contents(model, contents._replace(fields=contents.fields | {"keys": {}}))
    with pytest.raises(FileFormatError):
        cli_models.load_model(model)
