"""The example that corrects misspelt words, with misspellings made here."""

from pathlib import Path

import numpy as np
import pytest
from conftest import load_script

from cmt_numba.sequences import SequenceMemory


@pytest.fixture(scope="module")
def spelling():
    return load_script("examples/spelling.py")


def test_lines(spelling):
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
