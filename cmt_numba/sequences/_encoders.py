"""Encoders of text, melodies and real values as sequences over small alphabets."""

import unicodedata
from typing import Any

import numpy as np

from .._validation import check_entries, check_integer

_WIDEST = 13  # semitones; wider intervals are clipped
_RATIO_EDGES = (0.7, 1.4, 2.8)  # edges between the four classes of duration ratios

NOTE_SYMBOLS = tuple((interval, ratio) for interval in range(-_WIDEST, _WIDEST + 1) for ratio in range(4))
"""The alphabet of :func:`encode_notes`."""


def encode_text(text: str, alphabet: str, unknown: str = "") -> str:
    """Reduce a text to the letters of an alphabet.

    Letters outside the alphabet are replaced by the lower-case or unaccented form of the letter ("ss" for "ß"), if the
    alphabet contains this form, and otherwise by ``unknown``: a letter of the alphabet, or the empty string.

    Examples
    --------
    >>> encode_text("Déjà vu!", "abcdefghijklmnopqrstuvwxyz ")
    'deja vu'
    """
    for name, value in (("text", text), ("alphabet", alphabet), ("unknown", unknown)):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    known = set(alphabet)
    if unknown and unknown not in known:
        raise ValueError(f"unknown must be a letter of the alphabet or empty, got {unknown!r:.40}")
    kept = []
    for letter in unicodedata.normalize("NFC", text):
        plain = "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))
        for form in (letter, letter.lower(), plain, plain.lower(), letter.casefold()):
            if form and set(form) <= known:
                kept.append(form)
                break
        else:
            kept.append(unknown)
    return "".join(kept)


def encode_notes(pitches: Any, durations: Any) -> list[tuple[int, int]]:
    """Encode a melody as intervals and duration ratios, independent of key and tempo.

    Each note after the first becomes a pair of integers: the interval from the previous note in semitones, clipped to
    [-13, 13], and the class of the ratio of their durations. The class is 0 for ratios below 0.7, 1 below 1.4, 2 below
    2.8, and 3 otherwise. ``NOTE_SYMBOLS`` contains all 108 symbols, for use with ``EditDistance(featured=True)``.

    Parameters
    ----------
    pitches : array-like of shape (n,)
        Pitches in semitones, such as MIDI numbers. Intervals are rounded.
    durations : array-like of shape (n,)
        Durations in any unit, above 0.

    Examples
    --------
    >>> encode_notes([60, 62, 64, 60], [1, 1, 2, 0.5])
    [(2, 1), (2, 2), (-4, 0)]
    """
    pitches, durations = _numbers("pitches", pitches, 1), _numbers("durations", durations, 1)
    check_entries("durations", durations.size, pitches.size, "pitches")
    if (durations <= 0.0).any():
        raise ValueError(f"durations must be above 0, got {durations.min()}")
    intervals = np.clip(np.rint(np.diff(pitches)), -_WIDEST, _WIDEST).astype(int)
    ratios = np.searchsorted(_RATIO_EDGES, durations[1:] / durations[:-1], side="right")
    return list(zip(intervals.tolist(), ratios.tolist(), strict=True))


def encode_frames(frames: Any, n_bins: int, low: float, high: float) -> list[int] | list[tuple[int, ...]]:
    """Encode real values, one or more for each time step, as bins from 0 to ``n_bins - 1``.

    Bins have equal width. Values outside the range from ``low`` to ``high`` are in the first or last bin. An alphabet
    of all bins has ``n_bins ** n_features`` symbols, and alphabets have at most 4,096.

    Examples
    --------
    >>> encode_frames([0.1, 0.5, 2.0], 4, 0.0, 1.0)
    [0, 2, 3]
    """
    n_bins, values = check_integer("n_bins", n_bins, 2), _numbers("frames", frames, 1, 2)
    bounds = _numbers("low and high", [low, high], 1)
    if not bounds[0] < bounds[1]:
        raise ValueError(f"low must be less than high, got {low} and {high}")
    width = (bounds[1] - bounds[0]) / n_bins
    bins = np.clip(np.floor((values - bounds[0]) / width), 0, n_bins - 1).astype(int).tolist()
    return [tuple(row) for row in bins] if values.ndim == 2 else bins


def _numbers(name: str, values: Any, *n_axes: int) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf" and array.size > 0:
        raise TypeError(f"{name} must be numbers, got {array.dtype}")
    if array.ndim not in n_axes:
        raise ValueError(f"{name} must have {' or '.join(map(str, n_axes))} dimensions, got {array.ndim}")
    if not np.isfinite(array.astype(float)).all():
        raise ValueError(f"{name} must be finite, but contains NaN or infinity")
    return array.astype(float)
