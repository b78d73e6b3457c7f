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
    pytest.importorskip("sklearn")
    pytest.importorskip("tabulate")
    return load_script("examples/find_character.py")


@pytest.fixture(scope="module")
def characters(finder):
    return finder.named_characters()


@pytest.fixture(scope="module")
def pictures(characters):
    """Return some 2,300 characters, most of them emoji."""
    return [character for character in characters if 0x1F000 <= character.code_point < 0x1FB00]


@pytest.fixture(scope="module")
def picture_tree(finder, pictures):
    tree = finder.ContextualMemoryTree(n_trees=4, random_state=0)
    ids = tree.insert(finder.feature_rows([character.name for character in pictures]))
    np.testing.assert_array_equal(ids, np.arange(len(pictures)))
    return tree


def test_named_characters(characters):
    names = [character.name for character in characters]
    assert 30_000 < len(names) < 36_000
    assert len(set(names)) == len(names)
    assert {"LATIN SMALL LETTER A", "CRYING CAT FACE", "HANGUL CHOSEONG KIYEOK", "HYPHEN-MINUS"} <= set(names)
    by_rule = re.compile("CJK (UNIFIED|COMPATIBILITY) |(NUSHU|KHITAN SMALL SCRIPT) CHARACTER-|HANGUL SYLLABLE ")
    assert not [name for name in names if by_rule.match(name)]


def test_normalize(finder):
    assert finder.normalize(":1st_place_medal:") == "1st place medal"
    assert finder.normalize("  Man\N{RIGHT SINGLE QUOTATION MARK}s  SHOE") == "mans shoe"
    assert finder.normalize("pi\N{LATIN SMALL LETTER N WITH TILDE}ata, X-RAY!") == "pinata x ray"
    assert finder.normalize(" ?! ") == ""


def test_characters_are_shown_safely(finder):
    assert str(finder.Character(0x1F63F, "CRYING CAT FACE")) == "\N{CRYING CAT FACE}"
    assert str(finder.Character(0x301, "COMBINING ACUTE ACCENT")) == "\N{DOTTED CIRCLE}\N{COMBINING ACUTE ACCENT}"
    assert str(finder.Character(0x202E, "RIGHT-TO-LEFT OVERRIDE")) == ""


def test_emoji_queries(finder, characters):
    pytest.importorskip("emoji")
    queries = finder.emoji_queries(characters)
    assert 300 < len(queries.texts) == len(queries.answers)
    assert np.unique(queries.answers).size == queries.answers.size
    names = {characters[i].name: text for i, text in zip(queries.answers, queries.texts, strict=True)}
    assert names["CRYING CAT FACE"] == "crying cat"
    assert "red heart" in queries.texts  # an emoji only with its variation selector
    assert all(text and text != finder.normalize(name) for name, text in names.items())


def test_damaged_queries(finder, characters):
    queries = finder.damaged_queries(characters, count=1000, seed=3)
    assert len(queries.texts) == len(queries.answers) == 1000
    assert np.unique(queries.answers).size == 1000
    n_dropped = 0
    for position, text in zip(queries.answers, queries.texts, strict=True):
        words = finder.normalize(characters[position].name).split()
        damaged = text.split()
        if len(damaged) == len(words):
            assert sum(a != b for a, b in zip(words, damaged, strict=True)) == 1
        else:
            n_dropped += 1
            assert len(damaged) == len(words) - 1 >= 2
    assert 350 < n_dropped < 650

    again = finder.damaged_queries(characters, count=1000, seed=3)
    assert again.texts == queries.texts
    np.testing.assert_array_equal(again.answers, queries.answers)
    assert finder.damaged_queries(characters, count=1000, seed=4).texts != queries.texts


def test_misspell_changes_one_place(finder):
    rng = random.Random(0)
    for _ in range(200):
        misspelt = finder.misspell("aabb", rng)
        assert misspelt != "aabb"
        assert 3 <= len(misspelt) <= 5


def test_exact_search_finds_the_names_themselves(finder, pictures):
    rows = finder.feature_rows([character.name for character in pictures])
    found = finder.ExactSearch(rows).query(rows)
    # All but domino tiles: DOMINO TILE HORIZONTAL-00-01 has the words of DOMINO TILE HORIZONTAL-01-00.
    wrong = [pictures[i].name for i in np.flatnonzero(found != np.arange(len(pictures)))]
    assert all(name.startswith("DOMINO TILE") for name in wrong)
    assert len(wrong) < 50


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("crying cat face", "CRYING CAT FACE"),
        ("Crying Cat", "CRYING CAT FACE"),
        ("smilling face with sunglasses", "SMILING FACE WITH SUNGLASSES"),
        ("boquet of flowers", "BOUQUET OF FLOWERS"),
        ("slice of piza", "SLICE OF PIZZA"),
    ],
)
def test_find(finder, pictures, picture_tree, text, name):
    answers = finder.find(pictures, picture_tree, text, count=5, n_probes=32)
    assert len(answers) == 5
    assert answers[0][0].name == name
    scores = [score for _, score in answers]
    assert scores == sorted(scores, reverse=True)

    lines = finder.answer_table(answers).splitlines()
    assert len(lines) == 2 + 5
    assert name in lines[2]
    assert f"U+{answers[0][0].code_point:04X}" in lines[2]


def test_evaluation_table_has_all_rows(finder, pictures):
    pytest.importorskip("emoji")
    query_sets = [finder.emoji_queries(pictures), finder.damaged_queries(pictures, count=100, seed=0)]
    results = finder.evaluate(pictures, query_sets, seed=0)
    rows = finder.evaluation_table(results, query_sets).splitlines()[3:]
    assert [row.split()[:-6] for row in rows] == [
        ["exact", "all"],
        *(["1", "tree", leaves] for leaves in ("1", "4", "16", "64")),
        *(["8", "trees", leaves] for leaves in ("8", "16", "32", "64")),
    ]
    exact, *_, most_leaves = results
    for exact_error, error in zip(exact.errors, most_leaves.errors, strict=True):
        assert exact_error <= 0.5
        assert error <= exact_error + 0.1
    assert all(seconds > 0 for result in results for seconds in result.seconds)
    assert all(result.nbytes > 0 for result in results)


def test_command_line(finder, pictures, monkeypatch, capsys):
    monkeypatch.setattr(finder, "named_characters", lambda: pictures)
    finder.main(["crying", "cat", "face", "--count", "3", "--trees", "2", "--probes", "16"])
    output = capsys.readouterr().out
    assert f"Inserted {len(pictures):,} names" in output
    assert "U+1F63F" in output
    assert "CRYING CAT FACE" in output

    finder.main([])
    assert "usage:" in capsys.readouterr().out
    for arguments in (["?!"], ["cat", "--count", "0"]):
        with pytest.raises(SystemExit):
            finder.main(arguments)


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
