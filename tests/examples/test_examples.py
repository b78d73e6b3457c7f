"""The example scripts, run on part of their data."""

import gzip
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, load_script, needs_jit

from cmt_numba.sequences import SequenceMemory


@pytest.fixture(scope="module")
def home():
    for package in ("hassil", "home_assistant_intents", "platformdirs", "tabulate"):
        pytest.importorskip(package)
    return load_script("examples/smart_home.py")


@pytest.fixture(scope="module")
def requests(home):
    return home.read_requests()


@pytest.fixture(scope="module")
def learned(home, requests):
    classifier = home.TextClassifier(random_state=0)
    home.learn(classifier, requests)
    return classifier


def read_table(name: str) -> list[list[str]]:
    lines = (ROOT / "tests/examples" / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def test_requests_are_made_of_templates(home, requests):
    assert len(requests) > 5000
    assert len({request.intent for request in requests}) > 40
    assert all(request.text.strip() for request in requests)
    assert not any(set(request.text) & set("{}<>|") for request in requests)
    known, asked = home.split_by_template(requests)
    assert len(known) + len(asked) == len(requests)
    assert not {request.template for request in known} & {request.template for request in asked}


@needs_jit
def test_natural_questions_are_understood(home, learned, requests):
    """The questions are used only here."""
    questions = read_table("smart_home_questions.tsv")
    natural = {template for _, _, template in home.natural_templates()}
    assert not {text for _, text, _ in questions} & {r.text for r in requests if r.template in natural}
    n_right, n_wrong = 0, 0
    for _, text, intents in questions:
        is_right = learned.predict([text])[0] in intents.split("|")
        n_right += is_right and home.is_sure(learned, text)
        n_wrong += not is_right and home.is_sure(learned, text)
    assert n_right >= 52
    assert n_wrong <= 1


@needs_jit
def test_what_is_not_wanted_is_not_done(home, learned):
    refusals = read_table("smart_home_refusals.tsv")
    assert sum(home.is_sure(learned, text) for _, text, _ in refusals) <= 6


def test_negations_keep_what_is_asked(home):
    asked = [home.Request("mach das Licht im Flur an", "turn on: light", "t")]
    (negated,) = home.Negations().of("de", asked, random.Random(0))
    assert negated.intent == home.UNWANTED
    assert negated.text.startswith("mach")
    assert "Licht im Flur" in negated.text
    assert negated.text != asked[0].text
    assert negated.template != "t"
    question = home.Request("wie viel Uhr ist es", "get current time", "t")
    assert not list(home.Negations().of("de", [question], random.Random(0)))


@needs_jit
def test_smart_home(
    home, requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What was asked is answered first; then it learns, is corrected and forgets, and it stays in its folder."""
    some = [request for request in requests if request.intent in ("start timer", "media next", "turn on: light")]
    monkeypatch.setattr(home, "read_requests", lambda seed=0: some)
    folder = ["--folder", str(tmp_path / "home")]
    home.main([*folder, "start", "a", "timer", "for", "ten", "minutes"])
    first = capsys.readouterr().out
    answer = first.index("start timer")
    assert answer < first.index("Learned a new intent") < first.index("Corrected") < first.index("Forgot")
    assert "start the dishwasher" in first[first.index("Learned a new intent") : first.index("Corrected")]
    assert "start the dishwasher" not in first[first.index("Forgot") :].partition("\n")[2]

    home.main([*folder, "--means", "brew coffee", "qqq", "xyzzy"])
    home.main([*folder, "qqq", "xyzzy"])
    later = capsys.readouterr().out
    assert "Learned" not in later
    assert "brew coffee" in later
    with pytest.raises(SystemExit):
        home.main(folder)

    (snapshot,) = (tmp_path / "home").glob("tree-*.cmt")
    snapshot.write_bytes(snapshot.read_bytes()[:100])
    home.main([*folder, "next", "song"])
    again = capsys.readouterr().out
    assert again.index("another version") < again.index("Learned") < again.index("media next")


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


def test_requests_are_answered_better_and_better(capsys: pytest.CaptureFixture[str]):
    load_script("examples/bandits/answer_requests.py").main(["--rounds", "400"])
    shown = capsys.readouterr().out
    rewards = [float(value) for value in re.findall(r"mean reward ([\d.]+)", shown)]
    assert rewards[-1] > max(0.6, rewards[0])
    assert re.search(r"random: estimated from the log 0\.[12]", shown)


def test_other_routers_and_scorers_are_compared():
    figures = load_script("examples/own_router.py").compare(60)
    assert list(figures) == ["paper", "random routers", "Manhattan scorer"]
    assert all(0.0 < figure <= 1.0 for row in figures.values() for figure in row)


@pytest.fixture(scope="module")
def melodies():
    return load_script("examples/melodies.py")


def test_songs_are_read(melodies):
    assert melodies.signature("Eb") == {"B": -1, "E": -1, "A": -1}
    assert melodies.signature("Am") == melodies.signature("C") == melodies.signature("none") == {}
    assert melodies.signature("D") == melodies.signature("Bm") == melodies.signature("E dor") == {"F": 1, "C": 1}
    music = "F2 ^GG | G,/2 z4 =f' c3/2-c/ | B-|B4"
    assert melodies.notes_of(music, "G", 9) == ([66, 68, 68, 55, 89, 72, 71], [2.0, 1.0, 1.0, 0.5, 1.0, 2.0, 5.0])
    assert melodies.notes_of(music, "G", 3) == ([66, 68, 68], [2.0, 1.0, 1.0])
    text = "\nX:1\nT: One\nM: 4/4\nK: F\n" + "BcB|" * 10 + "\n\nX:2\nT: Two\nK: C\nABC\n"
    (song,) = melodies.songs_of(text)
    assert song.title == "One"
    assert song.pitches.tolist() == [70, 72, 70] * 10


@needs_jit
def test_songs_are_found(melodies, tmp_path: Path, rng: np.random.Generator):
    songs = [
        melodies.Song(str(i), 60 + np.cumsum(rng.integers(-4, 5, 30)), rng.choice([0.5, 1.0, 2.0], 30))
        for i in range(60)
    ]
    distance = melodies.learned(songs, 40, rng, n_rounds=3)
    query = melodies.sung(songs[7], rng)
    assert distance.nearest(melodies.encoded([query]), melodies.encoded(songs))[0].tolist() == [[7]]
    pytest.importorskip("matplotlib").use("Agg")
    melodies.plot(query, songs[7], distance, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    rows = melodies.evaluate(songs, 30, 20, n_rounds=3)
    assert [row[:2] for row in rows[5:]] == [("learned", tolerance) for tolerance in melodies.TOLERANCES]
    assert rows[5][2] < 0.3


@pytest.fixture(scope="module")
def spelling():
    return load_script("examples/spelling.py")


def test_lists_of_misspellings_are_read(spelling):
    lines = ["recieve->receive", "fo->of, for, to", "Teh->the", "mañana->manana", "", "abotu->about\n"]
    assert spelling.misspellings(lines) == [("recieve", "receive"), ("teh", "the"), ("abotu", "about")]


def test_words_are_corrected(spelling, tmp_path: Path):
    rng = np.random.default_rng(0)
    words = sorted({"".join(rng.choice(list("abcdefgh"), 7)) for _ in range(60)})
    pairs = []
    for word in words * 2:
        at = rng.integers(6)
        pairs.append((word[:at] + word[at + 1] + word[at] + word[at + 2 :], word))
    distance = spelling.learned_distance(pairs, words, 80, 3)
    memory = spelling.memory_of(words, distance)
    found = spelling.guesses(memory, words, [wrong for wrong, _ in pairs], 3)
    assert np.mean([row[0] == right for row, (_, right) in zip(found, pairs, strict=True)]) > 0.95
    for right in (words[0], "hamlet"):
        spelling.correct(memory, words, right[::-1] + "zz", right)
    memory.save(tmp_path / "memory")
    for one in (memory, SequenceMemory.load(tmp_path / "memory")):
        found = spelling.guesses(one, words, [words[0][::-1] + "zz", "telmahzz", "halmet"], 1)
        assert found == [[words[0]], ["hamlet"], ["hamlet"]]
    first, among_five = spelling.evaluate(pairs, 20, 60, 2)
    assert 0.5 < first <= among_five <= 1.0


def test_a_missing_package_is_one_line(spelling, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(spelling, "files", missing)
    with pytest.raises(SystemExit, match=r"^spelling.py needs the package codespell: pip install"):
        spelling.listed_misspellings()


FIELDS = ("name", "street", "year")


@pytest.fixture(scope="module")
def records():
    return load_script("examples/records.py")


@pytest.fixture
def record_files(tmp_path: Path, rng: np.random.Generator) -> list[Path]:
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


def test_records_are_read(records, record_files: list[Path]):
    read = records.tables_of(record_files[:2], record_files[2:])
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


def test_records_are_matched(records, record_files: list[Path], capsys: pytest.CaptureFixture[str]):
    read = records.tables_of(record_files[:2], record_files[2:])
    rows = list(records.compare(read, ("year",), share=0.3, k=3, seed=0))
    name, n_pairs, found, precision, recall, f1, *_ = rows[0]
    assert (name, found) == ("memory, learned distances", 1.0)
    assert n_pairs <= 3 * 90
    assert min(precision, recall, f1) > 0.9
    assert f1 == pytest.approx(2.0 / (1.0 / precision + 1.0 / recall))
    records.show(read, 0.3, 3, 0, 2)
    assert capsys.readouterr().out.count("likely the same") == 2


def test_duplicates_are_candidates_once(records, record_files: list[Path]):
    read = records.tables_of(record_files[:2], record_files[2:])
    names = [[f"{side}{i}" for i in range(len(table))] for side, table in zip("ab", read.tables, strict=True)]
    matches = [(f"a{i}", f"b{i}") for i in range(80)]
    both = np.concatenate(read.tables).tolist()
    one = records.joined([names[0] + names[1]], [both], FIELDS, matches)
    pairs = records.Matcher(2).candidates(one)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert np.unique(pairs, axis=0).shape == pairs.shape
    assert one.matching(pairs).sum() == one.n_matches == 80


@needs_jit
def test_the_desk_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.syspath_prepend(ROOT / "examples")
    notes: Any = __import__("support_notes")
    monkeypatch.setattr(sys, "argv", ["support_notes.py", "--questions", "100", "--output", str(tmp_path)])
    notes.main()
    assert "feedback" in capsys.readouterr().out
    assert (tmp_path / "support_notes.png").stat().st_size > 5000
    desk = notes.Desk(0)
    assert len(desk.change()) == len(desk.problems) // 3
    assert all(desk.right[problem] for problem in desk.problems)
