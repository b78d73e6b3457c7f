"""Curves of error, or of recall missed, against time, and how one stands to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .results import Entrant, median


class Dot(NamedTuple):
    """One setting as a dot: what it misses, what it takes, and what it is."""

    missed: float
    us: float
    name: str = ""


class Level(NamedTuple):
    """A level that a peer reaches, and when we reach it."""

    missed: float
    theirs: Dot
    ours: Dot | None

    @property
    def ratio(self) -> float:
        """Our time over theirs, infinite where we do not reach the level."""
        return float("inf") if self.ours is None else self.ours.us / self.theirs.us


def error_dots(entrants: Iterable[Entrant]) -> list[Dot]:
    """Return the medians of error and time of all settings."""
    return [
        Dot(median(point.error), median(point.us), f"{entrant.name} {_words(point.setting)}".strip())
        for entrant in entrants
        for point in entrant.points
        if point.us
    ]


def single_dots(entrants: Iterable[Entrant]) -> list[Dot]:
    """Return the medians of error and time of all settings, queried row by row."""
    return [
        Dot(median(point.error), median(point.single_us), f"{entrant.name} {_words(point.setting)}".strip())
        for entrant in entrants
        for point in entrant.points
        if point.single_us
    ]


def recall_dots(entrants: Iterable[Entrant], k: int) -> list[Dot]:
    """Return the share of the ``k`` nearest rows that was missed, and the time, of all settings that find rows."""
    return [
        Dot(1.0 - point.recall[str(k)], median(point.us_at[str(k)]), f"{entrant.name} {_words(point.setting)}".strip())
        for entrant in entrants
        for point in entrant.points
        if str(k) in point.recall
    ]


def _words(setting: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def frontier(dots: Iterable[Dot]) -> list[Dot]:
    """Return the dots that no other beats in both, the fastest first."""
    kept: list[Dot] = []
    for dot in sorted(dots, key=lambda dot: (dot.us, dot.missed)):
        if not kept or dot.missed < kept[-1].missed:
            kept.append(dot)
    return kept


def fastest_within(dots: Iterable[Dot], missed: float) -> Dot | None:
    """Return the fastest dot that misses at most so much."""
    reached = [dot for dot in dots if dot.missed <= missed]
    return min(reached, key=lambda dot: dot.us) if reached else None


def compare(ours: list[Dot], theirs: list[Dot]) -> list[Level]:
    """Return, for each level on the frontier of a peer, when we reach it."""
    return [Level(dot.missed, dot, fastest_within(ours, dot.missed)) for dot in frontier(theirs)]


def verdict(levels: list[Level]) -> str:
    """Return whether we are behind anywhere, and at which levels, with the numbers."""
    if not levels:
        return "nothing to compare"
    behind = [level for level in levels if level.ratio > 1.0]
    if not behind:
        worst = max(levels, key=lambda level: level.ratio)
        return f"nowhere behind; closest at {worst.missed:.4f}: {_numbers(worst)}"
    return "behind at " + "; ".join(f"{level.missed:.4f}: {_numbers(level)}" for level in behind)


def _numbers(level: Level) -> str:
    if level.ours is None:
        return f"never, they take {level.theirs.us:.1f} us"
    return f"{level.ours.us:.1f} us to {level.theirs.us:.1f} us = {level.ratio:.2f}"
