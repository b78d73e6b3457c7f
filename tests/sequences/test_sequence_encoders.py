"""Texts, notes and frames as sequences of symbols."""

from typing import Any

import numpy as np
import pytest

from cmt_numba.sequences import NOTE_SYMBOLS, encode_frames, encode_notes, encode_text


def test_texts():
    assert encode_text("Déjà vu!", "abcdefghijklmnopqrstuvwxyz ") == "deja vu"
    assert encode_text("ÉaÄ", "aéÄ-", "-") == "éaÄ"
    assert encode_text("a1e\u0301", "aé-", "-") == "a-é"
    assert encode_text("ﬁn", "fin") == "fin"
    assert encode_text("Straße", "aerst") == "strasse"
    assert encode_text("Straße", "aerstß") == "straße"


def test_notes_are_the_same_in_every_key_and_at_every_speed(rng: np.random.Generator):
    pitches, durations = rng.integers(40, 90, 60), rng.choice([0.25, 0.5, 1.0, 2.0, 4.0], 60)
    symbols = encode_notes(pitches, durations)
    assert encode_notes(pitches + 7, 1.3 * durations) == symbols
    assert set(symbols) <= set(NOTE_SYMBOLS)
    assert len(symbols) == 59
    assert len(NOTE_SYMBOLS) == 27 * 4
    assert encode_notes([60, 80, 60.4, 60.4], [1, 0.5, 2, 2]) == [(13, 0), (-13, 3), (0, 1)]
    assert encode_notes([60], [1]) == encode_notes([], []) == []


def test_frames():
    assert encode_frames([-9.0, 0.0, 0.24, 0.25, 0.99, 1.0, 7.0], 4, 0.0, 1.0) == [0, 0, 0, 1, 3, 3, 3]
    assert encode_frames([[0.0, 5.0], [9.9, 2.4]], 4, 0, 10) == [(0, 2), (3, 0)]


@pytest.mark.parametrize(
    ("encode", "arguments", "error", "message"),
    [
        (encode_text, (3, "ab"), TypeError, "text must be a string"),
        (encode_text, ("a", "ab", "c"), ValueError, "unknown must be a letter"),
        (encode_notes, ([1, 2], [1]), ValueError, "one entry for each of the 2 pitches"),
        (encode_notes, ([1, 2], [1, 0]), ValueError, "durations must be above 0"),
        (encode_notes, (["c", "d"], [1, 1]), TypeError, "pitches must be numbers"),
        (encode_notes, ([1, np.nan], [1, 1]), ValueError, "pitches must be finite"),
        (encode_frames, ([1.0], 1, 0.0, 1.0), ValueError, "n_bins"),
        (encode_frames, ([1.0], 4, 1.0, 1.0), ValueError, "low must be less than high"),
        (encode_frames, ([[[1.0]]], 4, 0.0, 1.0), ValueError, "frames must have 1 or 2 dimensions"),
    ],
)
def test_what_is_refused(encode: Any, arguments: tuple[Any, ...], error: Any, message: str):
    with pytest.raises(error, match=message):
        encode(*arguments)
