"""What a comparison measures, run by run, and the medians of it; written to and read from JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .contract import Options, described


@dataclass
class Point:
    """One setting of the queries to one build. Lists have an entry for each run; times are microseconds a query."""

    setting: Options
    n_queries: int = 0
    error: list[float] = field(default_factory=list)
    us: list[float] = field(default_factory=list)
    single_us: list[float] = field(default_factory=list)
    recall: dict[str, float] = field(default_factory=dict)  # by k
    us_at: dict[str, list[float]] = field(default_factory=dict)  # to find the k nearest rows


@dataclass
class Stream:
    """Inserting with queries in between."""

    build: Options
    setting: Options
    inserts_per_second: list[float] = field(default_factory=list)
    us_a_query: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)


@dataclass
class Entrant:
    """One peer with one build."""

    peer: str
    build: Options
    ours: bool
    exact: bool
    seconds: list[float] = field(default_factory=list)
    n_cpus: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    kept_mb: list[float] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    problem: str | None = None  # why it was given up

    @property
    def name(self) -> str:
        """The peer and the options of its build."""
        return f"{self.peer} ({described(self.build)})" if self.build else self.peer


@dataclass
class SetResult:
    """All entrants on one set."""

    shape: dict[str, Any]
    entrants: list[Entrant] = field(default_factory=list)
    streams: dict[str, list[Stream]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # peers, and why


@dataclass
class Results:
    """A whole comparison."""

    environment: dict[str, Any]
    sets: dict[str, SetResult] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write everything to a file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1))


def load_results(path: Path) -> Results:
    """Return what ``Results.save`` has written."""
    plain = json.loads(path.read_text())
    sets = {}
    for name, a_set in plain["sets"].items():
        entrants = [
            Entrant(**{**entrant, "points": [Point(**point) for point in entrant["points"]]})
            for entrant in a_set["entrants"]
        ]
        streams = {peer: [Stream(**stream) for stream in some] for peer, some in a_set["streams"].items()}
        sets[name] = SetResult(a_set["shape"], entrants, streams, a_set["left_out"])
    return Results(plain["environment"], sets)


def merge_earlier(now: SetResult, earlier: SetResult) -> None:
    """Add what was measured earlier, of peers that were not measured now."""
    measured = {entrant.peer for entrant in now.entrants}
    now.entrants += [entrant for entrant in earlier.entrants if entrant.peer not in measured]
    for peer, streams in earlier.streams.items():
        now.streams.setdefault(peer, streams)
    for peer, reason in earlier.left_out.items():
        if peer not in measured:
            now.left_out.setdefault(peer, reason)


def median(values: list[float]) -> float:
    """Return the median, not a number of nothing."""
    return statistics.median(values) if values else float("nan")
