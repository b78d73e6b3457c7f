r"""Find a song by humming it.

The package music21 contains folk songs of the Essen collection. This script stores the first 30 notes of each song as
intervals and duration ratios, which do not depend on key and tempo, and learns typical errors from simulated singers::

    python examples/melodies.py --song 17 --plot alignment.png

simulates a singer of song 17, prints the nearest songs, and plots the alignment of the first one. ::

    python examples/melodies.py --evaluate --songs 2000

learns from singers of some songs, and tests with singers of other songs. It prints the error and the fraction of songs
that a vantage-point tree skips for each tolerance of the tree.

A simulated singer uses any key and tempo. Pitches have normal errors of 0.4 semitones, and the key drifts by 0.1
semitones per note. Durations are multiplied by exp(e), where e is normal with standard deviation 0.25. 5 % of the notes
are omitted, 5 % are split in two, and 3 % are a tone too high or too low. Needs music21, whose files may not be used
commercially, and matplotlib for the plot.
"""

import argparse
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cmt_numba.sequences import EditDistance, VPTree

N_NOTES = 30
TOLERANCES = (None, 0.0, 0.01, 0.03, 0.1)
_PITCHES = dict(zip("CDEFGAB", (0, 2, 4, 5, 7, 9, 11), strict=True))
_MODES = {"": 0, "maj": 0, "m": 3, "min": 3, "mix": 1, "dor": 2, "phr": 4, "lyd": -1, "loc": 5}
_NOTE = re.compile(r"([_^=]*)([A-Ga-gz])([,']*)(\d*)(/*)(\d*)(-?)|(\|)")


_WIDEST = 13  # semitones; wider intervals are clipped
_RATIO_EDGES = (0.7, 1.4, 2.8)  # edges between the four classes of duration ratios
NOTE_SYMBOLS = tuple((interval, ratio) for interval in range(-_WIDEST, _WIDEST + 1) for ratio in range(4))


class Song(NamedTuple):
    """The first notes of a song."""

    title: str
    pitches: np.ndarray  # in semitones
    durations: np.ndarray


def signature(key: str) -> dict[str, int]:
    """Return the sharps (1) and flats (-1) of a key such as "G", "Bb" or "Am"."""
    found = re.match(r"([A-G])([#b]?)\s*([A-Za-z]{0,3})", key)
    if found is None:
        return {}
    letter, accidental, mode = found.groups()
    n_sharps = "FCGDAEB".index(letter) - 1 + {"#": 7, "b": -7, "": 0}[accidental] - _MODES.get(mode.lower(), 0)
    order = "FCGDAEB" if n_sharps > 0 else "BEADGCF"
    return dict.fromkeys(order[: min(7, abs(n_sharps))], 1 if n_sharps > 0 else -1)


def notes_of(music: str, key: str, n: int) -> tuple[list[int], list[float]]:
    """Return pitches and durations of the first notes of music in ABC notation, without rests."""
    sharps, pitches, durations, tied = signature(key), [], [], False
    in_bar = dict(sharps)
    for accidental, letter, octaves, times, slashes, parts, tie, bar in _NOTE.findall(music):
        if bar:
            in_bar = dict(sharps)
            continue
        duration = float(times or 1) / (float(parts) if parts else 2.0 ** len(slashes))
        if letter == "z":
            tied = False
            continue
        name = letter.upper()
        if accidental:
            in_bar[name] = accidental.count("^") - accidental.count("_")
        octave = (letter.islower()) + octaves.count("'") - octaves.count(",")
        pitch = 60 + _PITCHES[name] + in_bar.get(name, 0) + 12 * octave
        if tied and pitches[-1] == pitch:
            durations[-1] += duration
        elif len(pitches) == n:
            break
        else:
            pitches.append(pitch)
            durations.append(duration)
        tied = bool(tie)
    return pitches, durations


def songs_of(text: str) -> Iterable[Song]:
    """Yield the songs with enough notes from a file in ABC notation."""
    for part in re.split(r"\nX:", text)[1:]:
        fields = dict(re.findall(r"^([A-Z]):\s*(.*)$", part, flags=re.MULTILINE))
        music = "\n".join(line for line in part.split("\n")[1:] if not re.match(r"[A-Za-z]:|%", line))
        pitches, durations = notes_of(music, fields.get("K", "C"), N_NOTES)
        if len(pitches) == N_NOTES and min(durations) > 0.0:
            yield Song(fields.get("T", "?").strip(), np.array(pitches), np.array(durations))


def all_songs() -> list[Song]:
    """Return the songs of the Essen collection with enough notes, without duplicate beginnings."""
    package = find_spec("music21")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("install music21, which contains the songs: pip install 'cmt-numba[examples]'")
    songs = {}
    for path in sorted((Path(package.submodule_search_locations[0]) / "corpus/essenFolksong").glob("*.abc")):
        for song in songs_of(path.read_text(encoding="utf-8", errors="replace")):
            songs.setdefault(tuple(encode_notes(song.pitches, song.durations)), song)
    return list(songs.values())


def encode_notes(pitches: np.ndarray, durations: np.ndarray) -> list[tuple[int, int]]:
    """Return the interval in semitones and the class of the duration ratio of each note after the first."""
    intervals = np.clip(np.rint(np.diff(pitches)), -_WIDEST, _WIDEST).astype(int)
    ratios = np.searchsorted(_RATIO_EDGES, durations[1:] / durations[:-1], side="right")
    return list(zip(intervals.tolist(), ratios.tolist(), strict=True))


def sung(song: Song, rng: np.random.Generator) -> Song:
    """Return a song with a simulated singer's errors."""
    n = song.pitches.size
    off = rng.normal(0.0, 0.4, n) + np.cumsum(rng.normal(0.0, 0.1, n)) + rng.uniform(-6.0, 6.0)
    off += np.where(rng.random(n) < 0.03, rng.choice((-2.0, 2.0), n), 0.0)
    durations = song.durations * np.exp(rng.normal(0.0, 0.25, n)) * rng.uniform(0.7, 1.4)
    times = np.where(rng.random(n) < 0.05, 2, np.where(rng.random(n) < 0.05, 0, 1))
    return Song(song.title, np.repeat(song.pitches + off, times), np.repeat(durations / np.maximum(times, 1), times))


def encoded(songs: list[Song]) -> list[list[tuple[int, int]]]:
    """Convert songs to sequences of symbols."""
    return [encode_notes(song.pitches, song.durations) for song in songs]


def learned(songs: list[Song], n_examples: int, rng: np.random.Generator, **options: Any) -> EditDistance:
    """Return an edit distance with costs learned from simulated singers."""
    answers = rng.permutation(len(songs))[:n_examples]
    queries = encoded([sung(songs[i], rng) for i in answers])
    distance = EditDistance(NOTE_SYMBOLS, transposition=None, featured=True, verbose=True, random_state=0, **options)
    return distance.fit(encoded(songs), queries, answers)


def evaluate(songs: list[Song], n_examples: int, n_queries: int, n_rounds: int = 40) -> list[tuple[Any, ...]]:
    """Return table rows for test songs: costs, tolerance, error and fraction of pruned songs."""
    order, rows = np.random.default_rng(1).permutation(len(songs)), []
    kept = [songs[i] for i in order]
    asked = [sung(song, np.random.default_rng(2 + i)) for i, song in enumerate(kept[-n_queries:])]
    answers, queries, targets = np.arange(len(kept) - n_queries, len(kept)), encoded(asked), encoded(kept)
    taught = learned(kept[:-n_queries], n_examples, np.random.default_rng(0), n_rounds=n_rounds)
    for costs, distance in (("equal", EditDistance(NOTE_SYMBOLS, transposition=None)), ("learned", taught)):
        for tolerance in TOLERANCES:
            tree = VPTree(distance, tolerance=tolerance, random_state=0)
            tree.insert(targets)
            found = tree.query(queries)
            left_out = 1.0 - found.n_computed.mean() / len(targets)
            rows.append((costs, tolerance, float(np.mean(found.ids[:, 0] != answers)), float(left_out)))
    return rows


def plot(query: Song, song: Song, distance: EditDistance, path: Path) -> None:
    """Plot the sung notes above the notes of a song, with lines between aligned notes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    places = []
    for one, offset, colour in ((query, 24.0, "C1"), (song, 0.0, "C0")):
        ends = np.cumsum(one.durations) / one.durations.sum()
        starts, heights = np.concatenate([[0.0], ends[:-1]]), one.pitches - np.median(one.pitches) + offset
        axes.hlines(heights, starts, ends, colour, linewidth=4, label="sung" if offset else song.title)
        places.append((0.5 * (starts + ends), heights))
    i = j = 0
    for old, new in distance.align(*encoded([query, song])).steps:
        i, j = i + (old is not None), j + (new is not None)
        if old is not None and new is not None:  # symbol i encodes the step from note i - 1 to note i
            ends = [(places[0][0][i], places[1][0][j]), (places[0][1][i] - 0.7, places[1][1][j] + 0.7)]
            axes.plot(*ends, "0.6" if old == new else "C3", linewidth=0.8)
    axes.set(xlabel="time, as a share of the whole", yticks=[], title="Red: intervals or durations that differ")
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Find a song by humming it.")
    parser.add_argument("--song", type=int, default=0, help="song to hum")
    parser.add_argument("--singer", type=int, default=0, help="random seed of the singer")
    parser.add_argument("--plot", type=Path, help="file for a plot of the alignment")
    parser.add_argument("--songs", type=int, default=2000, help="number of songs to store, drawn at random")
    parser.add_argument("--examples", type=int, default=300, help="number of simulated singers to learn from")
    parser.add_argument("--queries", type=int, default=200, help="number of singers for --evaluate")
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    print("Reading folk songs, and learning how singers deviate from them", flush=True)
    songs = all_songs()
    print(f"{len(songs)} songs with different beginnings", flush=True)
    some = np.random.default_rng(0).permutation(len(songs))[: options.songs]
    songs = [songs[i] for i in np.sort(some)]
    if options.evaluate:
        for costs, tolerance, error, left_out in evaluate(songs, options.examples, options.queries):
            print(f"{costs:9}tolerance {tolerance!s:6}error {error:.3f}, pruned {left_out:.3f}")
        return
    rng = np.random.default_rng(options.singer)
    distance = learned(songs, options.examples, rng, n_rounds=10)
    query, targets = sung(songs[options.song], rng), encoded(songs)
    positions, lengths = distance.nearest(encoded([query]), targets, 3)
    print(f"sung: {songs[options.song].title}")
    for position, length in zip(positions[0], lengths[0], strict=True):
        print(f"{length:8.2f}  {songs[position].title}")
    if options.plot:
        plot(query, songs[positions[0, 0]], distance, options.plot)


if __name__ == "__main__":
    main()
