"""The example scripts, run on part of their data."""

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, load_script, needs_jit


@pytest.fixture(scope="module")
def finder():
    for package in ("emoji", "platformdirs", "tabulate"):
        pytest.importorskip(package)
    return load_script("examples/find_emoji.py")


def test_normalize(finder):
    assert finder.normalize(":1st_place_medal:") == "1st place medal"
    assert finder.normalize("  Man\N{RIGHT SINGLE QUOTATION MARK}s  SHOE") == "mans shoe"
    assert finder.normalize("pi\N{LATIN SMALL LETTER N WITH TILDE}ata, X-RAY!") == "pinata x ray"
    assert finder.normalize(" ?! ") == ""


def test_emoji_names(finder):
    names = finder.emoji_names()
    assert len(names) > 1800
    assert {"crying cat", "gato llorando", "weinende katze"} <= set(names["\N{CRYING CAT FACE}"])
    assert next(iter(names["\N{CRYING CAT FACE}"])) == "crying cat"
    assert all(name for of_one in names.values() for name in of_one)
    assert "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-3}" not in names


def test_misspell_changes_one_place(finder):
    rng = random.Random(0)
    for _ in range(200):
        misspelt = finder.misspell("aabb", rng)
        assert misspelt != "aabb"
        assert 3 <= len(misspelt) <= 5


@needs_jit
def test_find_emoji(finder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The classifier learns, errs less than what it is compared with, stays in its folder, and is corrected."""
    some = dict(list(finder.emoji_names().items())[:120])
    monkeypatch.setattr(finder, "emoji_names", lambda: some)
    results = []
    learn = finder.learn
    monkeypatch.setattr(finder, "learn", lambda *given, **more: results.append(learn(*given, **more)))
    small = ["--cache", str(tmp_path / "cache/emoji"), "--picks", "800", "--asked", "400", "--without-linear"]
    finder.main([*small, "crying", "cat"])
    assert len(results) == 1
    *others, ours = results[0]
    assert [other.search for other in others] == ["BM25"] * 2 + ["exact search"] * 2 + ["class means"]
    assert ours.search == "CMTClassifier"
    printed = capsys.readouterr()
    errors = [float(re.split(r" {2,}", line)[2]) for line in printed.out.splitlines() if " names " in line[:40]]
    assert len(errors) == 6
    assert errors[-1] < min(errors[:-1]) + 0.02
    assert "which is new" in printed.out
    assert "learning 120 names" in printed.err

    finder.main([*small, "--means", "\N{GHOST}", "qqq", "xyzzy"])
    assert '"qqq xyzzy" means \N{GHOST}' in capsys.readouterr().out
    finder.main([*small, "--count", "1", "qqq", "xyzzy"])
    assert "ghost" in capsys.readouterr().out
    assert len(results) == 1  # later runs have not learned again
    with pytest.raises(SystemExit):
        finder.main([*small, "?!"])


def test_linear_model(finder):
    labels = np.array(["cat", "dog"] * 5)
    rows = finder.feature_rows([f"{label} {i}" for i, label in enumerate(labels)])
    answers, learned, per_query = finder.linear_model(rows, labels, rows)
    np.testing.assert_array_equal(answers, labels)
    assert min(learned, per_query) >= 0


@needs_jit
def test_search_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    search = load_script("examples/search_packages.py")
    topics = {"maps": "draws plots of maps and places", "mail": "sends mail and letters to friends"}
    packages = [{"name": f"{name}-{i}", "summary": f"{text} {i}"} for i in range(40) for name, text in topics.items()]
    with gzip.open(tmp_path / "packages.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(package) + "\n" for package in packages)
    for more in ([], ["--prefix", "mail"], ["--right", "maps-7"]):  # the later ones open what the first has stored
        monkeypatch.setattr("sys.argv", ["search", str(tmp_path / "packages.gz"), "plots of places 7", *more])
        search.main()
        found = [line.split()[1].split("-")[0] for line in capsys.readouterr().out.splitlines()]
        assert found == ["mail" if "mail" in more else "maps"] * 5


@needs_jit
def test_tour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The code of the tour runs and does what its comments say."""
    monkeypatch.chdir(tmp_path)  # it writes a file
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tour.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    blocks.reverse()
    exec(blocks.pop(), names)
    assert names["hits"].ids.shape == names["hits"].scores.shape == (5, 3)
    assert len(names["tree"]) == 9900
    exec(blocks.pop(), names)
    assert len(names["kept"]) == 5000
    exec(blocks.pop(), names)
    assert [sorted(row) for row in names["results"].keys] == [["ant", "red fox"]] * 2
    assert sorted(names["store"]) == ["blue whale", "red fox"]
    exec(blocks.pop(), names)
    classifier = names["classifier"]
    np.testing.assert_array_equal(classifier.predict(names["objects"][1:5]), [1, 2, 3, 4])
    assert classifier.classes_.size == 1999
    assert not np.isin([7, 8], classifier.classes_).any()
    exec(blocks.pop(), names)
    has = names["objects"] > 1
    assert np.mean((names["tagger"].predict(names["objects"]) > 0) != has) < 0.8 * has.mean()
    exec(blocks.pop(), names)
    assert names["ids"].min() >= 0
    exec(blocks.pop(), names)
    assert names["finder"].predict(names["vectorizer"].transform(["Which planet is red?"])) == ["the red planet"]
    exec(blocks.pop(), names)
    assert names["vectors"].transform(["the redder fox"]).any()
    exec(blocks.pop(), names)
    assert names["linear"].predict(["the redder fox"]) == ["animals"]
    assert names["finder"].predict(names["hybrid"].transform(["the redder fox"])) == ["animals"]
    exec(blocks.pop(), names)
    assert names["words"].query(["definate"]).ids.tolist() == [[2]]
    exec(blocks.pop(), names)
    assert len(names["index"]) == 5990
    exec(blocks.pop(), names)
    assert names["rewards"].mean() > 0.3  # 1 / 2000 is chance
    assert names["result"].estimates["ips"].value < 0.01
    assert names["result"].advice
    exec(blocks.pop(), names)
    best = names["reranker"].rerank(["red"], names["documents"], ([[0, 1]], [[0.9, 0.8]]))
    assert best.ids.tolist() == [[1, 0]]
    assert not blocks
