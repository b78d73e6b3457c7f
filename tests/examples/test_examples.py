"""The example scripts, run on part of their data."""

import gzip
import json
from pathlib import Path

import pytest
from conftest import ROOT, load_script, needs_jit


@pytest.fixture(scope="module")
def home():
    for package in ("hassil", "home_assistant_intents", "platformdirs", "tabulate"):
        pytest.importorskip(package)
    return load_script("examples/smart_home.py")


@pytest.fixture(scope="module")
def requests(home):
    return home.read_requests()


def test_requests_are_made_of_templates(home, requests):
    assert len(requests) > 5000
    assert len({request.intent for request in requests}) > 40
    assert all(request.text.strip() for request in requests)
    assert not any(set(request.text) & set("{}<>|") for request in requests)
    known, asked = home.split_by_template(requests)
    assert len(known) + len(asked) == len(requests)
    assert not {request.template for request in known} & {request.template for request in asked}


@needs_jit
def test_natural_questions_are_understood(home, requests):
    """The questions are used only here."""
    lines = (ROOT / "tests/examples/smart_home_questions.tsv").read_text(encoding="utf-8").splitlines()
    questions = [line.split("\t") for line in lines]
    natural = {template for _, _, template in home.natural_templates()}
    assert not {text for _, text, _ in questions} & {r.text for r in requests if r.template in natural}
    classifier = home.TextClassifier(random_state=0)
    home.learn(classifier, requests)
    n_right = 0
    for _, text, intents in questions:
        (best,), (chance,) = (row[0] for row in classifier.top_classes([text], k=1))
        if intents == "not sure":
            assert not home.is_sure(classifier, text) or chance < 0.8
        elif home.is_sure(classifier, text) and classifier.classes_[best] in intents.split("|"):
            n_right += 1
        else:
            assert chance < 0.8, text
    assert n_right >= 34


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
