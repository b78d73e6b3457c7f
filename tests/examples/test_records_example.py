"""The example that finds records that mean the same, with records made here."""

from pathlib import Path

import numpy as np
import pytest
from conftest import load_script

FIELDS = ("name", "street", "year")


@pytest.fixture(scope="module")
def records():
    return load_script("examples/records.py")


@pytest.fixture
def files(tmp_path: Path, rng: np.random.Generator) -> list[Path]:
    """Tables of 120 and 80 records, whose first 80 match though each has a letter too much, and what matches."""
    letters = list("abcdefgh")
    words = ["".join(rng.choice(letters, 6)) for _ in range(240)]
    rows = [(f"a{i}", words[2 * i], words[2 * i + 1], 1900.0 + i % 50) for i in range(120)]
    others = []
    for i, (_, name, street, year) in enumerate(rows[:80]):
        at = int(rng.integers(6))
        others.append((f"b{i}", f"{name[:at]}x{name[at:]}", "" if i % 5 == 0 else street, int(year)))
    paths = [tmp_path / f"{name}.csv" for name in ("first", "second", "matches")]
    matches = [(f"a{i}", f"b{i}", 1) for i in range(80)] + [("a90", "b1", 0)]
    for path, head, lines in zip(paths, (FIELDS, FIELDS, ("b", "label")), (rows, others, matches), strict=True):
        path.write_text("\n".join(",".join(map(str, line)) for line in [("id", *head), *lines]), encoding="utf-8")
    return paths


def test_records_are_read(records, files: list[Path]):
    read = records.tables_of(files[:2], files[2:])
    assert read.fields == FIELDS
    assert (len(read.tables[0]), len(read.tables[1]), read.n_matches, read.same) == (120, 80, 80, False)
    assert read.tables[0][3, 2] == read.tables[1][3, 2] == "1903"
    assert read.matching(np.array([[3, 3], [3, 4], [90, 1]])).tolist() == [True, False, False]
    known, asked = records.divided(read, 0.25, 0)
    assert known.n_matches + asked.n_matches == 80  # no entity is in both
    assert len(known.tables[0]) + len(asked.tables[0]) == 120
    assert np.unique(np.concatenate(known.entities)).size == 30
    assert records.plain("Café  Noir, 12.0") == "caf noir, 12"
    same = records.joined([["a", "b", "c", "d"]], [[["x"]] * 4], ("name",), [("a", "b"), ("b", "c")])
    assert (same.same, same.n_matches) == (True, 3)


def test_records_are_matched(records, files: list[Path], capsys: pytest.CaptureFixture[str]):
    read = records.tables_of(files[:2], files[2:])
    rows = list(records.compare(read, ("year",), share=0.3, k=3, seed=0))
    name, n_pairs, found, precision, recall, f1, *_ = rows[0]
    assert (name, found) == ("memory, learned distances", 1.0)
    assert n_pairs <= 3 * 90
    assert min(precision, recall, f1) > 0.9
    assert f1 == pytest.approx(2.0 / (1.0 / precision + 1.0 / recall))
    records.show(read, 0.3, 3, 0, 2)
    assert capsys.readouterr().out.count("likely the same") == 2


def test_duplicates_are_candidates_once(records, files: list[Path]):
    read = records.tables_of(files[:2], files[2:])
    names = [[f"{side}{i}" for i in range(len(table))] for side, table in zip("ab", read.tables, strict=True)]
    matches = [(f"a{i}", f"b{i}") for i in range(80)]
    both = np.concatenate(read.tables).tolist()
    one = records.joined([names[0] + names[1]], [both], FIELDS, matches)
    pairs = records.Matcher(2).candidates(one)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert np.unique(pairs, axis=0).shape == pairs.shape
    assert one.matching(pairs).sum() == one.n_matches == 80
