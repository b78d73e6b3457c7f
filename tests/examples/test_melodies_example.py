"""The example that finds songs by humming, with songs made here."""

from pathlib import Path

import numpy as np
import pytest
from conftest import load_script, needs_jit


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
